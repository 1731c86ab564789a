//! One network per job, whose containers do not reach each other.
//!
//! The host and the outside stay reachable: what this machine binds to all its addresses, an agent
//! can reach. A container that may not have a network gets none instead.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::{Ipam, IpamConfig, Network, NetworkCreateRequest};
use bollard::query_parameters::ListNetworksOptionsBuilder;

use super::super::labels::{JOB, ROLE, TRIAL};
use super::super::subnet::{Pool, Subnet, routes};
use super::super::{EnvError, Environment, Labels, Role, Trouble};
use super::container::{ContainerSpec, DockerEnvironment, NetworkChoice};
use super::{DockerEngine, calls};

/// The bridge option for traffic between its containers.
const ICC: &str = "com.docker.network.bridge.enable_icc";
/// Subnets tried when another user of the engine is faster.
const TRIES: usize = 8;

/// A job's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobNetwork {
    /// Its name, for [`NetworkChoice::Named`].
    pub name: String,
    /// The engine's id.
    pub id: String,
    /// Its range, where the engine says.
    pub subnet: Option<Subnet>,
}

/// Whether containers of one network are kept apart on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// A neighbour was not reached.
    Enforced,
    /// A neighbour answered: the host does not filter bridged traffic.
    NotEnforced,
    /// Could not be asked; why.
    Unknown(String),
}

impl DockerEngine {
    /// The network of a job: the one it has, or a new one out of `pool` (the engine's own choice when
    /// None).
    ///
    /// # Errors
    /// [`Trouble::AddressPool`] when nothing is free.
    pub async fn job_network(&self, labels: &Labels, pool: Option<&Pool>) -> Result<JobNetwork, EnvError> {
        let labels = labels.with_role(Role::Network);
        let networks = self.networks().await?;
        if let Some(found) = networks.iter().find(|n| is_of_job(n, &labels)) {
            return Ok(JobNetwork {
                name: found.name.clone().unwrap_or_default(),
                id: found.id.clone().unwrap_or_default(),
                subnet: subnets(found).first().copied(),
            });
        }
        let stem: String = labels.job.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
        self.new_network(&format!("pilothouse-{stem}"), &labels, pool).await
    }

    /// What is taken of the ranges of addresses, by the engine's networks and this machine's routes.
    async fn used(&self) -> Result<Vec<Subnet>, EnvError> {
        let mut used: Vec<Subnet> = self.networks().await?.iter().flat_map(subnets).collect();
        if self.address().is_local() {
            used.extend(routes(&std::fs::read_to_string("/proc/net/route").unwrap_or_default()));
        }
        Ok(used)
    }

    /// How many more networks there is room for, in a range or in what the engine takes by itself.
    ///
    /// # Errors
    /// No answer.
    pub async fn free_networks(&self, pool: Option<&Pool>) -> Result<u64, EnvError> {
        let used = self.used().await?;
        let pools = match pool {
            Some(pool) => vec![*pool],
            None => {
                let info = self.call(&calls::INFO, "", self.docker().info()).await?;
                let own = info.default_address_pools.unwrap_or_default();
                let own = own.into_iter().filter_map(|p| Pool::new(p.base?.parse().ok()?, u8::try_from(p.size?).ok()?));
                let own: Vec<Pool> = own.collect();
                if own.is_empty() { built_in() } else { own }
            }
        };
        Ok(pools.iter().map(|pool| pool.free(&used).count() as u64).sum())
    }

    /// A new network out of `pool` (the engine's own choice when None), its containers kept apart.
    ///
    /// # Errors
    /// [`Trouble::AddressPool`] when nothing is free.
    pub(super) async fn new_network(
        &self,
        name: &str,
        labels: &Labels,
        pool: Option<&Pool>,
    ) -> Result<JobNetwork, EnvError> {
        let name = name.to_string();
        let Some(pool) = pool else {
            let id = self.create_network(&name, labels, None).await?;
            let subnet = self.networks().await?.iter().find(|n| n.id.as_deref() == Some(&id)).map(subnets);
            return Ok(JobNetwork { name, id, subnet: subnet.and_then(|s| s.first().copied()) });
        };
        let used = self.used().await?;
        let mut last = None;
        for subnet in pool.free(&used).take(TRIES) {
            match self.create_network(&name, labels, Some(subnet)).await {
                Ok(id) => return Ok(JobNetwork { name, id, subnet: Some(subnet) }),
                // Taken meanwhile, or by something that cannot be seen from here.
                Err(e) if e.detail.to_ascii_lowercase().contains("overlap") => last = Some(e),
                Err(e) => return Err(e),
            }
        }
        let why = last.map(|e| format!(": {}", e.detail)).unwrap_or_default();
        let detail = format!("nothing is free in {pool} ({} networks in all){why}", pool.capacity());
        Err(EnvError::new(Trouble::AddressPool, &format!("create network {name}"), &detail, calls::POOL_REMEDY))
    }

    /// Removes a job's network; fine when it is gone.
    ///
    /// # Errors
    /// Containers are still connected to it; no answer.
    pub async fn remove_network(&self, network: &JobNetwork) -> Result<(), EnvError> {
        match self.call(&calls::NETWORK_REMOVE, &network.name, self.docker().remove_network(&network.id)).await {
            Err(e) if e.trouble != Trouble::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Starts two containers of `image` in the network and lets one knock at the other's closed port:
    /// a refusal means that it got through.
    ///
    /// # Errors
    /// Of starting the containers.
    pub async fn probe_isolation(
        &self,
        network: &JobNetwork,
        image: &str,
        labels: &Labels,
    ) -> Result<Isolation, EnvError> {
        let spec = || {
            let mut spec = ContainerSpec::new(image, labels.with_role(Role::Probe));
            spec.network = NetworkChoice::Named(network.name.clone());
            spec.pids = 64;
            spec
        };
        let one = DockerEnvironment::new(self.clone(), spec())?;
        let other = DockerEnvironment::new(self.clone(), spec())?;
        let result = knock(&one, &other, &network.name).await;
        let (gone, gone_too) = (one.stop().await, other.stop().await);
        let result = result?;
        gone.and(gone_too).map(|()| result)
    }

    async fn create_network(&self, name: &str, labels: &Labels, subnet: Option<Subnet>) -> Result<String, EnvError> {
        let ipam = subnet.map(|s| Ipam {
            config: Some(vec![IpamConfig { subnet: Some(s.to_string()), ..IpamConfig::default() }]),
            ..Ipam::default()
        });
        let request = NetworkCreateRequest {
            name: name.to_string(),
            driver: Some("bridge".to_string()),
            ipam,
            options: Some(HashMap::from([(ICC.to_string(), "false".to_string())])),
            labels: Some(labels.pairs().into_iter().collect()),
            ..NetworkCreateRequest::default()
        };
        Ok(self.call(&calls::NETWORK_CREATE, name, self.docker().create_network(request)).await?.id)
    }

    async fn networks(&self) -> Result<Vec<Network>, EnvError> {
        let options = ListNetworksOptionsBuilder::default().build();
        self.call(&calls::NETWORK_LIST, "", self.docker().list_networks(Some(options))).await
    }
}

async fn knock(one: &DockerEnvironment, other: &DockerEnvironment, network: &str) -> Result<Isolation, EnvError> {
    one.start().await?;
    other.start().await?;
    let Some(address) = other.address_in(network).await? else {
        return Ok(Isolation::Unknown("the engine gave the neighbour no address".to_string()));
    };
    // Port 9 is closed. Filtered: nothing comes back, and the knocking goes on. Not filtered: a
    // refusal, at once. The wait is inside, so that a slow engine is not taken for a filter.
    let script = "if command -v bash >/dev/null; then bash -c \"exec 3<>/dev/tcp/$1/9\" 2>&1 & \
        elif command -v nc >/dev/null; then nc -w 10 \"$1\" 9 </dev/null 2>&1 & \
        else echo no-tool; exit; fi; \
        sleep 1; if kill -9 $! 2>/dev/null; then echo silence; else wait $!; echo \"ended $?\"; fi";
    let id = one.id("probe")?;
    let answer = one.ask(&id, &["sh", "-c", script, "sh", &address], None, Duration::from_secs(30)).await?;
    let text = answer.text.to_ascii_lowercase();
    Ok(if text.contains("no-tool") {
        Isolation::Unknown("the image has neither bash nor nc".to_string())
    } else if text.contains("refused") || text.contains("ended 0") {
        Isolation::NotEnforced
    } else if text.contains("silence") || text.contains("no route") || text.contains("prohibited") {
        Isolation::Enforced
    } else {
        Isolation::Unknown(super::super::error::tidy(&answer.text))
    })
}

/// Where engines cut networks from when nobody tells them (the bridge of the engine takes one of them).
fn built_in() -> Vec<Pool> {
    let mut out: Vec<Pool> = (17..=31).filter_map(|n| Pool::new(format!("172.{n}.0.0/16").parse().ok()?, 16)).collect();
    out.extend("192.168.0.0/16".parse().ok().and_then(|base| Pool::new(base, 20)));
    out
}

fn is_of_job(network: &Network, labels: &Labels) -> bool {
    let has = network.labels.as_ref();
    let label = |key: &str| has.and_then(|l| l.get(key)).map(String::as_str);
    let apart = network.options.as_ref().and_then(|o| o.get(ICC)).is_some_and(|v| v == "false");
    let whole = label(TRIAL).is_none();
    apart && whole && label(JOB) == Some(&labels.job) && label(ROLE) == Some(labels.role.word())
}

fn subnets(network: &Network) -> Vec<Subnet> {
    let configs = network.ipam.as_ref().and_then(|i| i.config.clone()).unwrap_or_default();
    configs.iter().filter_map(|c| c.subnet.as_deref().and_then(|s| s.parse().ok())).collect()
}
