//! What of ours an engine still keeps, found by label alone.

use std::collections::{BTreeMap, HashMap};

use bollard::models::ContainerSummaryStateEnum;
use bollard::query_parameters::{
    InspectContainerOptions, InspectNetworkOptions, ListContainersOptionsBuilder, ListImagesOptionsBuilder,
    ListNetworksOptionsBuilder, RemoveImageOptions,
};

use super::super::labels::{JOB, Kept, KeptKind, Listed, ROLE, ours};
use super::super::{EnvError, Trouble};
use super::container::remove_container;
use super::{DockerEngine, calls};
use crate::job::Stamp;

impl DockerEngine {
    /// Containers, networks and images of ours, of one job or of all.
    ///
    /// # Errors
    /// No answer.
    pub async fn kept(&self, job: Option<&str>) -> Result<Vec<Kept>, EnvError> {
        let listed = self.listed(job).await?;
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        // The age of things is by the engine's own clock.
        let now = self.call(&calls::INFO, "", self.docker().info()).await?.system_time;
        let now = now.and_then(|t| t.parse::<Stamp>().ok()).map_or(i64::MIN, |s| s.as_second());
        Ok(ours(listed, now))
    }

    /// The same without ages, for one question less.
    ///
    /// # Errors
    /// No answer.
    pub async fn kept_undated(&self, job: Option<&str>) -> Result<Vec<Kept>, EnvError> {
        Ok(ours(self.listed(job).await?, i64::MIN))
    }

    async fn listed(&self, job: Option<&str>) -> Result<Vec<Listed>, EnvError> {
        let label = job.map_or_else(|| JOB.to_string(), |job| format!("{JOB}={job}"));
        let filters = HashMap::from([("label", vec![label.as_str()])]);
        let mut listed = Vec::new();

        let options = ListContainersOptionsBuilder::default().all(true).size(true).filters(&filters).build();
        for found in self.call(&calls::LIST, "", self.docker().list_containers(Some(options))).await? {
            let names = found.names.unwrap_or_default();
            listed.push(Listed {
                kind: KeptKind::Container,
                id: found.id.unwrap_or_default(),
                name: names.first().map(|n| n.trim_start_matches('/').to_string()).unwrap_or_default(),
                labels: sorted(found.labels),
                created: found.created,
                bytes: found.size_rw.and_then(|n| u64::try_from(n).ok()),
                running: found.state == Some(ContainerSummaryStateEnum::RUNNING),
                paused: found.state == Some(ContainerSummaryStateEnum::PAUSED),
            });
        }

        let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
        for found in self.call(&calls::NETWORK_LIST, "", self.docker().list_networks(Some(options))).await? {
            let created = found.created.as_ref().and_then(|t| t.to_string().parse::<Stamp>().ok());
            listed.push(Listed {
                kind: KeptKind::Network,
                id: found.id.unwrap_or_default(),
                name: found.name.unwrap_or_default(),
                labels: sorted(found.labels),
                created: created.map(|s| s.as_second()),
                bytes: None,
                running: false,
                paused: false,
            });
        }

        let options = ListImagesOptionsBuilder::default().filters(&filters).build();
        for found in self.call(&calls::LIST, "", self.docker().list_images(Some(options))).await? {
            listed.push(Listed {
                kind: KeptKind::Image,
                name: found.repo_tags.first().cloned().unwrap_or_else(|| found.id.clone()),
                id: found.id,
                labels: found.labels.into_iter().collect(),
                created: Some(found.created),
                bytes: u64::try_from(found.size).ok(),
                running: false,
                paused: false,
            });
        }
        Ok(listed)
    }

    /// Removes one thing that was listed. Its labels are read again first: what is not ours, or not
    /// that job's any more, stays.
    ///
    /// # Errors
    /// [`Trouble::Denied`] when the labels differ; a network with containers; no answer.
    pub async fn remove_kept(&self, thing: &Kept) -> Result<(), EnvError> {
        let labels = match self.labels_of(thing).await {
            Ok(labels) => labels,
            Err(e) if matches!(e.trouble, Trouble::NotFound | Trouble::Image) => return Ok(()),
            Err(e) => return Err(e),
        };
        let call = format!("remove {} {}", thing.kind.word(), thing.name);
        if labels.get(JOB) != Some(&thing.labels.job)
            || labels.get(ROLE).map(String::as_str) != Some(thing.labels.role.word())
        {
            let detail = "its labels do not say that it belongs to that job";
            return Err(EnvError::new(Trouble::Denied, &call, detail, "list again"));
        }
        let removed = match thing.kind {
            KeptKind::Container => remove_container(self, &thing.id, &thing.name).await,
            KeptKind::Network => {
                self.call(&calls::NETWORK_REMOVE, &thing.name, self.docker().remove_network(&thing.id)).await
            }
            KeptKind::Image => {
                let gone = self.docker().remove_image(&thing.name, None::<RemoveImageOptions>, None);
                self.call(&calls::REMOVE_IMAGE, &thing.name, gone).await.map(|_| ())
            }
        };
        match removed {
            Err(e) if matches!(e.trouble, Trouble::NotFound | Trouble::Image) => Ok(()),
            other => other,
        }
    }

    async fn labels_of(&self, thing: &Kept) -> Result<BTreeMap<String, String>, EnvError> {
        let labels = match thing.kind {
            KeptKind::Container => {
                let asked = self.docker().inspect_container(&thing.id, None::<InspectContainerOptions>);
                self.call(&calls::INSPECT, &thing.name, asked).await?.config.and_then(|c| c.labels)
            }
            KeptKind::Network => {
                let asked = self.docker().inspect_network(&thing.id, None::<InspectNetworkOptions>);
                self.call(&calls::NETWORK_LIST, &thing.name, asked).await?.labels
            }
            KeptKind::Image => {
                let asked = self.docker().inspect_image(&thing.name);
                self.call(&calls::INSPECT_IMAGE, &thing.name, asked).await?.config.and_then(|c| c.labels)
            }
        };
        Ok(sorted(labels))
    }
}

fn sorted(labels: Option<HashMap<String, String>>) -> BTreeMap<String, String> {
    labels.unwrap_or_default().into_iter().collect()
}
