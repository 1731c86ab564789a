//! Which programs an image lacks: by a container of it that is made, looked into and removed, never started.

use std::path::Path;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{ContainerArchiveInfoOptionsBuilder, CreateContainerOptions};

use super::super::labels::OwnerLabel;
use super::super::{EnvError, Labels, Role, Trouble};
use super::container::remove_container;
use super::{DockerEngine, calls};

/// Where programs are looked for.
const PLACES: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/bin"];

impl DockerEngine {
    /// Those of `programs` that are in none of the usual directories of an image; None when the image is not
    /// here.
    ///
    /// # Errors
    /// No answer, or an image for another processor.
    pub async fn lacks(&self, image: &str, programs: &[&'static str]) -> Result<Option<Vec<&'static str>>, EnvError> {
        if self.image(image).await?.is_none() {
            return Ok(None);
        }
        let owner = OwnerLabel::mine(Path::new("/")).to_string();
        let labels = Labels { job: "preflight".to_string(), trial: None, owner, role: Role::Probe };
        let body = ContainerCreateBody {
            image: Some(image.to_string()),
            cmd: Some(vec!["true".to_string()]),
            labels: Some(labels.pairs().into_iter().collect()),
            ..ContainerCreateBody::default()
        };
        let made = self.docker().create_container(None::<CreateContainerOptions>, body);
        let id = self.call(&calls::CREATE, image, made).await?.id;
        let looked = self.absent(&id, image, programs).await;
        let removed = remove_container(self, &id, image).await;
        let lacks = looked?;
        removed?;
        Ok(Some(lacks))
    }

    async fn absent(&self, id: &str, image: &str, programs: &[&'static str]) -> Result<Vec<&'static str>, EnvError> {
        let mut out = Vec::new();
        'next: for program in programs {
            for place in PLACES {
                let options = ContainerArchiveInfoOptionsBuilder::default().path(&format!("{place}/{program}")).build();
                let looked = self.docker().get_container_archive_info(id, Some(options));
                match self.call(&calls::STAT, image, looked).await {
                    Ok(_) => continue 'next,
                    Err(e) if e.trouble == Trouble::NotFound => {}
                    Err(e) => return Err(e),
                }
            }
            out.push(*program);
        }
        Ok(out)
    }
}
