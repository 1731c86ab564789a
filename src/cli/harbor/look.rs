//! Looks up what the remarks before the start need. Everything has its limit in time: a hung server or
//! engine keeps nobody.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::start::behaviour;
use crate::environment::docker::DockerEngine;
use crate::harbor::run_config::HarborVersion;
use crate::job::host::is_near;
use crate::job::text::{clean, mask_secrets};
use crate::requeue::source;
use crate::supervise::clouds::{CLOUDS, Cloud, known as is_known};
use crate::supervise::{Asked, Seen, rerun};

/// For the answer of a model server, name included.
const SERVER: Duration = Duration::from_secs(4);
/// For the Docker engine.
const ENGINE: Duration = Duration::from_secs(6);
/// For Harbor's list of environments.
const LIST: Duration = Duration::from_secs(30);
/// Images that are looked into.
const IMAGES: usize = 6;

/// The version of a Harbor: by what is installed beside it, else by asking it, which takes seconds.
pub fn version(program: &Path) -> Option<String> {
    installed(program).or_else(|| source::version_of(program))
}

/// The behaviour that is known for it.
pub fn known(version: Option<&str>) -> Option<HarborVersion> {
    version.and_then(behaviour)
}

/// `<prefix>/bin/harbor` → `<prefix>/lib/python3.x/site-packages/harbor-<version>.dist-info`.
fn installed(program: &Path) -> Option<String> {
    let real = program.canonicalize().ok()?;
    let lib = real.parent()?.parent()?.join("lib");
    let pythons =
        std::fs::read_dir(lib).ok()?.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("python"));
    let mut found: Vec<String> = Vec::new();
    for python in pythons {
        let Ok(packages) = std::fs::read_dir(python.path().join("site-packages")) else { continue };
        for package in packages.flatten() {
            let name = package.file_name().to_string_lossy().into_owned();
            let version = name.strip_prefix("harbor-").and_then(|n| n.strip_suffix(".dist-info"));
            found.extend(version.filter(|v| v.starts_with(|c: char| c.is_ascii_digit())).map(String::from));
        }
    }
    match found.as_slice() {
        [one] => Some(one.chars().take(40).collect()),
        _ => None,
    }
}

/// Only what needs no look at servers, engine and images.
pub fn little(asked: &Asked) -> Seen {
    let variables = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    let variables = variables.filter_map(|(name, _)| name.into_string().ok()).collect();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let there = |file: &&&str| home.as_ref().is_some_and(|home| home.join(file).exists());
    let mut files: std::collections::BTreeSet<String> =
        CLOUDS.iter().flat_map(|c| c.files).filter(there).map(|f| (*f).to_string()).collect();
    // The hosting client's own directory may be elsewhere.
    if std::env::var_os("HF_HOME").is_some_and(|dir| Path::new(&dir).join("token").exists()) {
        files.insert(".cache/huggingface/token".to_string());
    }
    Seen { variables, files, rerun: rerun::look(asked), ..Seen::default() }
}

/// All of it.
pub fn around(asked: &Asked, program: &Path) -> Seen {
    let mut seen = little(asked);
    if asked.not_here.is_some() {
        return seen;
    }
    let mut bases: Vec<String> = asked.workers.iter().filter(|w| !w.without_model()).filter_map(|w| w.base()).collect();
    bases.sort();
    bases.dedup();
    let waiting: Vec<(String, mpsc::Receiver<Result<(), String>>)> =
        bases.into_iter().map(|b| (b.clone(), ask(b))).collect();
    if asked.environment == "docker" {
        engine(asked, &mut seen);
    }
    let name = asked.environment.as_str();
    if !name.contains(':') && !is_known(name, asked.version) && Cloud::of(name, None).is_none() {
        seen.environments = environments(program);
    }
    for (base, told) in waiting {
        match told.recv_timeout(SERVER) {
            Ok(answer) => seen.bases.push((base, answer)),
            Err(_) => seen.bases.push((base, Err(format!("no answer within {} s", SERVER.as_secs())))),
        }
    }
    seen
}

/// Whether something listens at an address; on a thread of its own, since names may take long.
fn ask(base: String) -> mpsc::Receiver<Result<(), String>> {
    let (tell, told) = mpsc::sync_channel(1);
    let work = move || {
        let _ = tell.send(listens(&base));
    };
    if let Err(error) = std::thread::Builder::new().name("look".into()).spawn(work) {
        tracing::warn!(%error, "a model's address is not looked at");
    }
    told
}

fn listens(base: &str) -> Result<(), String> {
    let Some((scheme, rest)) = base.split_once("://") else {
        return Err("no address: http://HOST:PORT/v1".to_string());
    };
    let place = rest.split('/').next().unwrap_or(rest);
    let place = place.rsplit('@').next().unwrap_or(place);
    let port = if scheme == "https" { 443 } else { 80 };
    let has_port = place.rsplit_once(':').is_some_and(|(_, p)| !p.is_empty() && p.chars().all(|c| c.is_ascii_digit()));
    let whole = if has_port { place.to_string() } else { format!("{place}:{port}") };
    let host = whole.rsplit_once(':').map_or("", |(host, _)| host);
    let proxy = ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
    if !is_near(host) && proxy.iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty())) {
        // A proxy reaches it for us: nothing can be said by a look of our own.
        return Ok(());
    }
    let mut last = "its name is not known here".to_string();
    for address in whole.to_socket_addrs().map_err(|_| last.clone())? {
        match TcpStream::connect_timeout(&address, SERVER - Duration::from_millis(500)) {
            Ok(_) => return Ok(()),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

fn engine(asked: &Asked, seen: &mut Seen) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let until = Instant::now() + ENGINE;
    let looked = async {
        let engine = match tokio::time::timeout(ENGINE, DockerEngine::connect()).await {
            Ok(Ok(engine)) => engine,
            Ok(Err(error)) => return seen.networks = Some(Err(safe(&error.to_string()))),
            Err(_) => return seen.networks = Some(Err(format!("no answer within {} s", ENGINE.as_secs()))),
        };
        seen.networks = match tokio::time::timeout(ENGINE, engine.free_networks(None)).await {
            Ok(Ok(free)) => Some(Ok(free)),
            // It answers; what it does not say is no reason to be held up.
            Ok(Err(_)) | Err(_) => None,
        };
        if !asked.workers.iter().any(|w| w.name.starts_with("terminus")) {
            return;
        }
        let mut images: Vec<String> = asked.tasks.iter().filter_map(image).collect();
        images.sort();
        images.dedup();
        for image in images.into_iter().take(IMAGES) {
            let left = until.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, engine.lacks(&image, &["tmux", "asciinema"])).await {
                Ok(Ok(Some(lacks))) => seen.images.push((image, lacks)),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => tracing::info!(%error, image, "not looked into"),
                Err(_) => break,
            }
        }
    };
    runtime.block_on(looked);
    runtime.shutdown_background();
}

/// The image that a task's containers are of: its own, else what its Dockerfile begins with, where nothing in
/// that names the programs.
fn image(task: &crate::harbor::task::Task) -> Option<String> {
    if let Some(image) = &task.config.environment.docker_image {
        return Some(image.clone());
    }
    let text = task.text("environment/Dockerfile", 1 << 20).ok()??;
    if text.contains("tmux") {
        return None;
    }
    let from = text.lines().rev().find_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|w| w.eq_ignore_ascii_case("from"))?;
        words.find(|w| !w.starts_with("--")).map(String::from)
    });
    from.filter(|image| !image.contains('$'))
}

/// The names that this Harbor has; None where it does not say.
fn environments(program: &Path) -> Option<Vec<String>> {
    let mut child = Command::new(program)
        .args(["environment", "list", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let output = child.stdout.take()?;
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        use std::io::Read as _;
        let mut text = String::new();
        let _ = output.take(1 << 20).read_to_string(&mut text);
        let _ = tell.send(text);
    });
    let text = told.recv_timeout(LIST);
    if text.is_err() {
        let _ = child.kill();
    }
    let fine = child.wait().is_ok_and(|status| status.success());
    let text = text.ok().filter(|_| fine)?;
    // Warnings may stand before it.
    let list = text.get(text.find('[')?..)?;
    let names: Vec<String> = serde_json::from_str(list.trim()).ok()?;
    // A list without the commonest is none that can be read.
    names.iter().any(|n| n == "docker").then_some(names)
}

fn safe(text: &str) -> String {
    clean(&mask_secrets(text)).into_owned()
}
