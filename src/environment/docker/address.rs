//! Where the engine is.

use std::fmt;

use super::super::{EnvError, Trouble};

/// Where Docker listens when nothing else is said.
const DEFAULT: &str = "/var/run/docker.sock";

/// An address that is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket of this machine.
    Unix(String),
    /// `host:port` without encryption.
    Tcp(String),
}

impl Address {
    /// True when the engine sees this machine's files: mounts are possible.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(at) => {
                let host = at.rsplit_once(':').map_or(at.as_str(), |(host, _)| host);
                matches!(host, "localhost" | "127.0.0.1" | "[::1]")
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix://{path}"),
            Address::Tcp(at) => write!(f, "tcp://{at}"),
        }
    }
}

/// Reads the variables that name an engine: `DOCKER_HOST`, whether `DOCKER_TLS_VERIFY` is set,
/// `DOCKER_CONTEXT`.
///
/// # Errors
/// For what is not spoken (TLS, ssh, contexts), by name.
pub fn parse_address(host: Option<&str>, tls: bool, context: Option<&str>) -> Result<Address, EnvError> {
    let refuse =
        |detail: String, remedy: &str| Err(EnvError::new(Trouble::Unsupported, "connect to Docker", &detail, remedy));
    let Some(host) = host.map(str::trim).filter(|h| !h.is_empty()) else {
        return match context.filter(|c| *c != "default") {
            Some(context) => refuse(
                format!("DOCKER_CONTEXT={context}: contexts are not read"),
                "unset it, or set DOCKER_HOST to the context's address",
            ),
            None => Ok(Address::Unix(DEFAULT.to_string())),
        };
    };
    let (scheme, rest) = host.split_once("://").unwrap_or(("", host));
    let rest = rest.trim_end_matches('/');
    match scheme {
        "unix" if rest.starts_with('/') => Ok(Address::Unix(rest.to_string())),
        "tcp" | "http" if tls => refuse(
            format!("DOCKER_HOST={host} with DOCKER_TLS_VERIFY: TLS is not spoken"),
            "use the engine's unix socket, or forward it: ssh -L /tmp/docker.sock:/var/run/docker.sock HOST",
        ),
        "tcp" | "http" if !rest.is_empty() && !rest.contains('/') => {
            let with_port = if rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
                rest.to_string()
            } else {
                format!("{rest}:2375")
            };
            Ok(Address::Tcp(with_port))
        }
        "ssh" | "https" | "npipe" | "fd" => refuse(
            format!("DOCKER_HOST={host}: {scheme} is not spoken"),
            "use the engine's unix socket, or forward it: ssh -L /tmp/docker.sock:/var/run/docker.sock HOST",
        ),
        _ => refuse(
            format!("DOCKER_HOST={host} is no address of an engine"),
            "set it to unix:///path/to/docker.sock or tcp://HOST:PORT, or unset it",
        ),
    }
}
