//! What Docker Compose projects an engine keeps: listed with their labels, removed one by one.
//!
//! Which of it is whose, and whether it may go, is not decided here.

use std::collections::{BTreeMap, HashMap};

use bollard::models::ContainerSummaryStateEnum;
use bollard::query_parameters::{
    InspectContainerOptions, InspectNetworkOptions, ListContainersOptionsBuilder, ListImagesOptionsBuilder,
    ListNetworksOptionsBuilder, ListVolumesOptionsBuilder, RemoveImageOptions, RemoveVolumeOptions,
};

use super::super::{EnvError, Trouble};
use super::container::remove_container;
use super::{DockerEngine, calls};
use crate::job::Stamp;

/// Label: the project that a thing belongs to.
pub const PROJECT: &str = "com.docker.compose.project";
/// Label of containers: the files that the project was made from, with commas between.
pub const CONFIG_FILES: &str = "com.docker.compose.project.config_files";
/// Label of containers: the directory that the project is about.
pub const WORKING_DIR: &str = "com.docker.compose.project.working_dir";

/// The kinds of things that a project has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ComposedKind {
    /// A container.
    Container,
    /// A network.
    Network,
    /// A volume with a name.
    Volume,
    /// An image built for the project, by its tag.
    Image,
}

impl ComposedKind {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            ComposedKind::Container => "container",
            ComposedKind::Network => "network",
            ComposedKind::Volume => "volume",
            ComposedKind::Image => "image",
        }
    }
}

/// A thing of a project. Texts are hostile until cleaned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composed {
    /// Its kind.
    pub kind: ComposedKind,
    /// The engine's id; the name for volumes.
    pub id: String,
    /// Its name; the tag for images.
    pub name: String,
    /// The project that its label names; for an image without label what stands before the service in
    /// its tag is not known, and this is empty.
    pub project: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Directories mounted into a container: on the host, and inside.
    pub mounts: Vec<(String, String)>,
    /// Seconds since 1970 by the engine's clock, where known.
    pub created: Option<i64>,
    /// Bytes of its own, where known.
    pub bytes: Option<u64>,
    /// True when it runs (containers).
    pub running: bool,
}

/// The things of all projects, and the engine's clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComposedList {
    /// Containers first, then networks, volumes, images.
    pub things: Vec<Composed>,
    /// Seconds since 1970 by the engine's clock; None when it does not say.
    pub now: Option<i64>,
}

impl DockerEngine {
    /// Everything that carries a label of Compose, and images that look by their tag as if built by it.
    ///
    /// # Errors
    /// No answer.
    pub async fn composed(&self) -> Result<ComposedList, EnvError> {
        let filters = HashMap::from([("label", vec![PROJECT])]);
        let now = self.call(&calls::INFO, "", self.docker().info()).await?.system_time;
        let now = now.and_then(|t| t.parse::<Stamp>().ok()).map(|s| s.as_second());
        let mut things = Vec::new();

        let options = ListContainersOptionsBuilder::default().all(true).size(true).filters(&filters).build();
        for found in self.call(&calls::LIST, "", self.docker().list_containers(Some(options))).await? {
            let names = found.names.unwrap_or_default();
            let labels = sorted(found.labels);
            let mounts = found.mounts.unwrap_or_default().into_iter();
            things.push(Composed {
                kind: ComposedKind::Container,
                id: found.id.unwrap_or_default(),
                name: names.first().map(|n| n.trim_start_matches('/').to_string()).unwrap_or_default(),
                project: labels.get(PROJECT).cloned().unwrap_or_default(),
                labels,
                mounts: mounts.filter_map(|m| Some((m.source?, m.destination?))).collect(),
                created: found.created,
                bytes: found.size_rw.and_then(|n| u64::try_from(n).ok()),
                running: found.state == Some(ContainerSummaryStateEnum::RUNNING),
            });
        }

        let plain = |kind, id, name: String, labels: BTreeMap<String, String>, created, bytes| Composed {
            kind,
            id,
            name,
            project: labels.get(PROJECT).cloned().unwrap_or_default(),
            labels,
            mounts: Vec::new(),
            created,
            bytes,
            running: false,
        };
        let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
        for found in self.call(&calls::NETWORK_LIST, "", self.docker().list_networks(Some(options))).await? {
            let created = found.created.as_ref().and_then(|t| second(&t.to_string()));
            let (id, name) = (found.id.unwrap_or_default(), found.name.unwrap_or_default());
            things.push(plain(ComposedKind::Network, id, name, sorted(found.labels), created, None));
        }

        let options = ListVolumesOptionsBuilder::default().filters(&filters).build();
        let volumes = self.call(&calls::LIST, "", self.docker().list_volumes(Some(options))).await?;
        for found in volumes.volumes.unwrap_or_default() {
            let created = found.created_at.as_ref().and_then(|t| second(&t.to_string()));
            let labels = found.labels.into_iter().collect();
            things.push(plain(ComposedKind::Volume, found.name.clone(), found.name, labels, created, None));
        }

        // Older versions of Compose do not label what they build: the tag alone tells.
        let options = ListImagesOptionsBuilder::default().build();
        for found in self.call(&calls::LIST, "", self.docker().list_images(Some(options))).await? {
            let labels: BTreeMap<String, String> = found.labels.into_iter().collect();
            for tag in found.repo_tags {
                if labels.contains_key(PROJECT) || tag.contains("__") {
                    let bytes = u64::try_from(found.size).ok();
                    let (id, labels) = (found.id.clone(), labels.clone());
                    things.push(plain(ComposedKind::Image, id, tag, labels, Some(found.created), bytes));
                }
            }
        }
        Ok(ComposedList { things, now })
    }

    /// Removes one thing that was listed, if it is still the same: same id and, where it had one, same
    /// project. A network with containers and an image in use stay.
    ///
    /// # Errors
    /// [`Trouble::Denied`] when it is another one now; in use; no answer. Gone already is no error.
    pub async fn remove_composed(&self, thing: &Composed) -> Result<(), EnvError> {
        let (id, labels) = match self.same(thing).await {
            Ok(found) => found,
            Err(e) if gone(&e) => return Ok(()),
            Err(e) => return Err(e),
        };
        if id != thing.id || labels.get(PROJECT).map_or("", String::as_str) != thing.project {
            let call = format!("remove {} {}", thing.kind.word(), thing.name);
            let detail = "another one has this name now";
            return Err(EnvError::new(Trouble::Denied, &call, detail, "list again"));
        }
        let removed = match thing.kind {
            ComposedKind::Container => remove_container(self, &thing.id, &thing.name).await,
            ComposedKind::Network => {
                self.call(&calls::NETWORK_REMOVE, &thing.name, self.docker().remove_network(&thing.id)).await
            }
            ComposedKind::Volume => {
                let asked = self.docker().remove_volume(&thing.name, None::<RemoveVolumeOptions>);
                self.call(&calls::REMOVE_IMAGE, &thing.name, asked).await
            }
            // By its tag: layers and other tags of the same image stay.
            ComposedKind::Image => {
                let asked = self.docker().remove_image(&thing.name, None::<RemoveImageOptions>, None);
                self.call(&calls::REMOVE_IMAGE, &thing.name, asked).await.map(|_| ())
            }
        };
        match removed {
            Err(e) if gone(&e) => Ok(()),
            other => other,
        }
    }

    /// Id and labels of what has this id now (of what has this tag now, for images).
    async fn same(&self, thing: &Composed) -> Result<(String, BTreeMap<String, String>), EnvError> {
        Ok(match thing.kind {
            ComposedKind::Container => {
                let asked = self.docker().inspect_container(&thing.id, None::<InspectContainerOptions>);
                let found = self.call(&calls::INSPECT, &thing.name, asked).await?;
                (found.id.unwrap_or_default(), sorted(found.config.and_then(|c| c.labels)))
            }
            ComposedKind::Network => {
                let asked = self.docker().inspect_network(&thing.id, None::<InspectNetworkOptions>);
                let found = self.call(&calls::NETWORK_LIST, &thing.name, asked).await?;
                (found.id.unwrap_or_default(), sorted(found.labels))
            }
            ComposedKind::Volume => {
                let asked = self.docker().inspect_volume(&thing.name);
                let found = self.call(&calls::INSPECT_IMAGE, &thing.name, asked).await?;
                (found.name, found.labels.into_iter().collect())
            }
            ComposedKind::Image => {
                let asked = self.docker().inspect_image(&thing.name);
                let found = self.call(&calls::INSPECT_IMAGE, &thing.name, asked).await?;
                (found.id.unwrap_or_default(), sorted(found.config.and_then(|c| c.labels)))
            }
        })
    }
}

fn gone(error: &EnvError) -> bool {
    matches!(error.trouble, Trouble::NotFound | Trouble::Image)
}

fn second(time: &str) -> Option<i64> {
    time.parse::<Stamp>().ok().map(|s| s.as_second())
}

fn sorted(labels: Option<HashMap<String, String>>) -> BTreeMap<String, String> {
    labels.unwrap_or_default().into_iter().collect()
}
