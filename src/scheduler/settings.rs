//! Settings of the environment: `environment.kwargs` of a config, `--ek` on the command line.

use std::path::PathBuf;

use serde_json::Value;

use crate::environment::docker::PIDS_DEFAULT;
use crate::environment::subnet::{Pool, Subnet};
use crate::environment::{Mount, plain_path};
use crate::harbor::run_config::SETTINGS;
use crate::harbor::write::config::EnvironmentConfig;
use crate::job::text::clean;
use crate::verifier::OUTPUT_CAP;

/// Prefix length of the networks that are cut from a range which names none.
const NETWORK_SIZE: u8 = 24;
const MIB: u64 = 1 << 20;

/// What is set; `Default` is what holds when nothing is.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Most processes in a container.
    pub pids_limit: i64,
    /// An init as PID 1.
    pub init: bool,
    /// As much swap again as memory, as Harbor's containers have; else none.
    pub swap: bool,
    /// This process's proxy variables are given to containers and builds.
    pub proxy: bool,
    /// `name:address` lines for hosts files.
    pub extra_hosts: Vec<String>,
    /// More directories or files of this machine, not writable inside.
    pub volumes: Vec<Mount>,
    /// A network for each trial instead of one for the job.
    pub network_per_trial: bool,
    /// Where networks are cut from; None: the engine's own choice.
    pub pool: Option<Pool>,
    /// Most bytes kept of what an agent or the tests print.
    pub output_cap: u64,
    /// What was set at all, by name.
    pub named: Vec<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pids_limit: PIDS_DEFAULT,
            init: true,
            swap: false,
            proxy: false,
            extra_hosts: Vec::new(),
            volumes: Vec::new(),
            network_per_trial: false,
            pool: None,
            output_cap: OUTPUT_CAP,
            named: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads the settings of a job.
    ///
    /// # Errors
    /// Unknown names and values that can not be, a line each.
    pub fn of(config: &EnvironmentConfig) -> Result<Settings, Vec<String>> {
        let mut out = Settings::default();
        let mut wrong = Vec::new();
        for (name, value) in &config.kwargs {
            match out.set(name, value) {
                Ok(()) => out.named.push(name.clone()),
                Err(why) => wrong.push(format!("environment setting {}: {}", clean(name), clean(&why))),
            }
        }
        if out.pool.is_some() && config.kind.as_deref() == Some("local") {
            wrong.push("environment setting network_pool: the local environment has no networks".to_string());
        }
        if wrong.is_empty() { Ok(out) } else { Err(wrong) }
    }

    /// The settings that mean something in containers only, as they are named.
    pub fn for_containers(&self) -> impl Iterator<Item = &str> {
        let anywhere = ["auto_mounting", "output_cap_mb"];
        self.named.iter().map(String::as_str).filter(move |name| !anywhere.contains(name))
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        match name {
            "auto_mounting" if flag(value)? => {}
            "auto_mounting" => return Err("logs are always live on this machine".to_string()),
            "pids_limit" => {
                let limit = number(value)?;
                if !(16..=4_194_304).contains(&limit) {
                    return Err(format!("{limit} is not from 16 to 4194304"));
                }
                self.pids_limit = i64::try_from(limit).map_err(|e| e.to_string())?;
            }
            "init" => self.init = flag(value)?,
            "swap" => self.swap = flag(value)?,
            "proxy" => self.proxy = flag(value)?,
            "extra_hosts" => {
                self.extra_hosts = list(value)?;
                for host in &self.extra_hosts {
                    let parts = host.split_once([':', '=']).filter(|(name, address)| {
                        !name.is_empty() && (address.parse::<std::net::IpAddr>().is_ok() || *address == "host-gateway")
                    });
                    parts.ok_or_else(|| format!("{host:?} is no name:address"))?;
                }
            }
            "volumes" => {
                self.volumes = list(value)?.iter().map(|line| volume(line)).collect::<Result<_, _>>()?;
            }
            "network_per_trial" => self.network_per_trial = flag(value)?,
            "network_pool" => self.pool = Some(pool(word(value)?)?),
            "output_cap_mb" => {
                let cap = number(value)?;
                if !(1..=16_384).contains(&cap) {
                    return Err(format!("{cap} is not from 1 to 16384"));
                }
                self.output_cap = cap.saturating_mul(MIB);
            }
            _ => {
                let known: Vec<&str> = SETTINGS.iter().map(|(name, _)| *name).collect();
                return Err(format!("no such setting here; there are {}", known.join(", ")));
            }
        }
        Ok(())
    }
}

fn flag(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        other => Err(format!("{other} is neither true nor false")),
    }
}

fn number(value: &Value) -> Result<u64, String> {
    let read = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    read.ok_or_else(|| format!("{value} is no whole number"))
}

fn word(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is no text"))
}

/// A list, or one text with commas.
fn list(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(items) => items.iter().map(|item| word(item).map(str::to_string)).collect(),
        other => {
            let parts = word(other)?.split(',').map(|part| part.trim().to_string());
            Ok(parts.filter(|part| !part.is_empty()).collect())
        }
    }
}

/// `/on/this/machine:/inside`, with or without `:ro` at its end.
fn volume(line: &str) -> Result<Mount, String> {
    let wrong = || format!("{line:?} is no /path/here:/path/inside");
    let (host, rest) = line.split_once(':').ok_or_else(wrong)?;
    let inside = rest.strip_suffix(":ro").unwrap_or(rest);
    if !host.starts_with('/') || inside.contains(':') {
        return Err(wrong());
    }
    let inside = plain_path("volumes", inside).map_err(|_| wrong())?;
    Ok(Mount { host: PathBuf::from(host), inside, read_only: true })
}

/// `10.200.0.0/16`, or `10.200.0.0/16:26` with the size of each network.
fn pool(text: &str) -> Result<Pool, String> {
    let (range, size) = match text.split_once(':') {
        Some((range, size)) => (range, size.parse().map_err(|_| format!("{size:?} is no prefix length"))?),
        None => (text, NETWORK_SIZE),
    };
    let base: Subnet = range.parse()?;
    Pool::new(base, size).ok_or_else(|| format!("no networks of /{size} fit into {range}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kwargs: Value) -> Result<Settings, String> {
        let kwargs = kwargs.as_object().unwrap().clone();
        Settings::of(&EnvironmentConfig { kwargs, ..EnvironmentConfig::default() }).map_err(|w| w.join("\n"))
    }

    #[test]
    fn every_setting_is_read_as_a_value_and_as_a_word() {
        let values = of(json!({
            "auto_mounting": true, "pids_limit": 256, "init": false, "swap": true, "proxy": true,
            "extra_hosts": ["a:10.0.0.1", "gate:host-gateway"], "volumes": ["/data:/mnt/data:ro"],
            "network_per_trial": true, "network_pool": "10.9.0.0/16:26", "output_cap_mb": 4,
        }));
        let words = of(json!({
            "auto_mounting": "true", "pids_limit": "256", "init": "False", "swap": "true", "proxy": "true",
            "extra_hosts": "a:10.0.0.1, gate:host-gateway", "volumes": "/data:/mnt/data",
            "network_per_trial": "true", "network_pool": "10.9.0.0/16:26", "output_cap_mb": "4",
        }));
        let values = values.unwrap();
        assert_eq!(values, words.unwrap());
        assert_eq!((values.pids_limit, values.output_cap, values.volumes.len()), (256, 4 << 20, 1));
        assert_eq!(values.pool.unwrap().capacity(), 1024);
        assert_eq!(SETTINGS.len(), values.named.len());
        assert_eq!(of(json!({})).unwrap(), Settings::default());
    }

    #[test]
    fn what_can_not_be_is_named() {
        for (name, value) in [
            ("keep_containers", json!(true)),
            ("init", json!(1)),
            ("auto_mounting", json!(false)),
            ("pids_limit", json!(-1)),
            ("pids_limit", json!(3)),
            ("extra_hosts", json!("a")),
            ("volumes", json!(["data:/x"])),
            ("volumes", json!(["/data:/x/../y"])),
            ("network_pool", json!("10.0.0.0/28:24")),
            ("output_cap_mb", json!("all")),
        ] {
            let why = of(json!({ name: value })).unwrap_err();
            assert!(why.contains(name), "{why}");
        }
    }
}
