//! What a phase of a trial may reach.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::read::{Section, shown};

/// What may be reached over the network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// Everything.
    #[default]
    Public,
    /// Nothing.
    None,
    /// These hosts only: names, `*.` and a name, addresses, ranges of addresses; in lower case.
    Allowlist(Vec<String>),
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Public,
    None,
    Allowlist,
}

/// `network_mode` and `allowed_hosts` of a table; None where it sets neither.
fn written(section: &Section<'_>) -> Option<Network> {
    let modes = [("no-network", Mode::None), ("public", Mode::Public), ("allowlist", Mode::Allowlist)];
    let mode = section.word("network_mode", &modes);
    let mut hosts = Vec::new();
    for host in section.texts("allowed_hosts").unwrap_or_default() {
        match host_entry(&host) {
            Ok(host) => hosts.push(host),
            Err(why) => section.problem("allowed_hosts", format_args!("{:?} {why}", shown(&host))),
        }
    }
    if mode != Some(Mode::Allowlist) && !hosts.is_empty() {
        section.problem("allowed_hosts", "only has a meaning with network_mode \"allowlist\"");
    }
    mode.map(|mode| match mode {
        Mode::Public => Network::Public,
        Mode::None => Network::None,
        Mode::Allowlist => Network::Allowlist(hosts),
    })
}

/// The policy of `[agent]` and `[verifier]`, which holds during their phase; None for the
/// environment's.
pub(super) fn of_phase(section: &Section<'_>) -> Option<Network> {
    if section.has("allowed_hosts") && !section.has("network_mode") {
        section.problem("allowed_hosts", "only has a meaning with network_mode \"allowlist\"");
    }
    written(section)
}

/// The policy of an environment, with the old `allow_internet` where neither new key is set.
pub(super) fn of_environment(section: &Section<'_>) -> Network {
    let allow = section.flag("allow_internet");
    let old = allow.filter(|_| !section.has("network_mode") && !section.has("allowed_hosts"));
    match (written(section), old) {
        (Some(network), _) => network,
        (None, Some(false)) => Network::None,
        (None, _) => Network::Public,
    }
}

/// An entry of a list of hosts as it is kept, or what is wrong with it.
fn host_entry(written: &str) -> Result<String, &'static str> {
    const NO_HOST: &str = "is not a host name, address or range of addresses (no URLs, ports or paths)";
    let host = written.trim().to_lowercase();
    let host = host.trim_end_matches('.');
    if host.is_empty() {
        return Err("is empty");
    }
    if let Some((address, prefix)) = host.split_once('/') {
        return range(address, prefix).ok_or(NO_HOST);
    }
    if host.contains(':') {
        return host.parse::<Ipv6Addr>().map(|a| a.to_string()).map_err(|_| NO_HOST);
    }
    let name = match host.strip_prefix("*.") {
        Some(name) if name.parse::<Ipv4Addr>().is_ok() => return Err("has a wildcard before an address"),
        Some(name) => name,
        None if host.contains('*') => return Err("has a wildcard that is not a leading \"*.\""),
        None => host,
    };
    let label = |label: &str| {
        let edge = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        bytes.len() <= 63
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    if name.split('.').all(label) { Ok(host.to_string()) } else { Err(NO_HOST) }
}

/// A range by its prefix's length, or by a mask of IPv4; no bits may be set behind the prefix.
fn range(address: &str, prefix: &str) -> Option<String> {
    let length =
        || Some(prefix).filter(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))?.parse::<u32>().ok();
    if let Ok(v4) = address.parse::<Ipv4Addr>() {
        let bits = match prefix.parse::<Ipv4Addr>() {
            Ok(mask) => {
                let ones = mask.to_bits().leading_ones();
                (mask.to_bits().count_ones() == ones).then_some(ones)?
            }
            Err(_) => length().filter(|n| *n <= 32)?,
        };
        let behind = u32::MAX.checked_shr(bits).unwrap_or(0);
        return (v4.to_bits() & behind == 0).then(|| format!("{v4}/{bits}"));
    }
    let v6 = address.parse::<Ipv6Addr>().ok()?;
    let bits = length().filter(|n| *n <= 128)?;
    let behind = u128::MAX.checked_shr(bits).unwrap_or(0);
    (v6.to_bits() & behind == 0).then(|| format!("{v6}/{bits}"))
}
