//! Images: there, pulled, or built from a task's Dockerfile.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bollard::models::BuildInfo;
use bollard::query_parameters::{BuildImageOptionsBuilder, CreateImageOptionsBuilder};
use futures_util::{Stream, StreamExt};

use super::super::error::tidy;
use super::super::pipe::pipe;
use super::super::{EnvError, Labels, Trouble, pack};
use super::archive::pieces;
use super::{DockerEngine, calls};

/// Longest pull of one image that still makes progress.
const PULL_WHOLE: Duration = Duration::from_secs(2 * 3600);
/// Before an image that could not be pulled is asked for again.
const PULL_AGAIN: Duration = Duration::from_secs(60);

/// How far a pull or a build is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Layers that are through (pull).
    pub layers_done: usize,
    /// Layers heard of so far (pull).
    pub layers: usize,
    /// Bytes loaded of the layers whose size is known (pull).
    pub bytes: u64,
    /// The sum of those sizes (pull).
    pub bytes_known: u64,
    /// The engine's last line, safe to print.
    pub line: String,
}

/// What becomes of an image that is to be here.
#[derive(Debug, Clone)]
pub enum ImageNews {
    /// It is not here; the pull begins.
    Begun,
    /// How far the pull is.
    Progress(Progress),
    /// It is here, or why not.
    Done(Result<Pulled, EnvError>),
}

/// How an image came to be here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// It was here.
    Here,
    /// It was pulled.
    Now,
}

/// What to build.
#[derive(Debug, Clone)]
pub struct BuildSpec {
    /// Name of the image; builds of the same name wait for each other, and only the first one works.
    pub tag: String,
    /// The task's `environment/` directory, with a `Dockerfile`.
    pub context: PathBuf,
    /// Whose it is.
    pub labels: Labels,
    /// Longest build.
    pub timeout: Duration,
    /// `HTTP_PROXY` and the like, known to the engine without being declared.
    pub args: Vec<(String, String)>,
}

/// The engine's word for a processor in the words of images.
pub(super) fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" | "x86-64" => "amd64",
        "aarch64" | "arm64v8" => "arm64",
        "armv7l" | "armv6l" => "arm",
        "i686" | "i386" => "386",
        other => other,
    }
}

/// Whether an image runs here; what it does not say is taken to fit.
fn fits(image: &str, machine: &str, system: &str, wants: &str) -> Result<(), EnvError> {
    let call = format!("use image {image}");
    if !system.is_empty() && system != "linux" {
        let detail = format!("it is made for {system}, containers here run linux");
        return Err(EnvError::new(Trouble::Architecture, &call, &detail, "name another image"));
    }
    if !machine.is_empty() && !wants.is_empty() && architecture(machine) != wants {
        let detail = format!("it is made for {machine}, this engine runs {wants}");
        let remedy = format!("pull it for linux/{wants}, or run on a machine with {machine}");
        return Err(EnvError::new(Trouble::Architecture, &call, &detail, &remedy));
    }
    Ok(())
}

/// A reference as the two parts of a pull: without a tag the engine would pull all of them.
fn reference(image: &str) -> (&str, &str) {
    if image.contains('@') {
        return (image, "");
    }
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

impl DockerEngine {
    /// The id of an image that is here and made for this engine's processor; None when it is not
    /// here.
    ///
    /// # Errors
    /// Another processor or operating system; or no answer.
    pub async fn image(&self, image: &str) -> Result<Option<String>, EnvError> {
        let found = self.call(&calls::INSPECT_IMAGE, image, self.docker().inspect_image(image)).await;
        let found = match found {
            Ok(found) => found,
            Err(e) if matches!(e.trouble, Trouble::Image | Trouble::NotFound) => return Ok(None),
            Err(e) => return Err(e),
        };
        let (machine, system) = (found.architecture.unwrap_or_default(), found.os.unwrap_or_default());
        fits(image, &machine, &system, &self.facts().architecture)?;
        Ok(Some(found.id.unwrap_or_default()))
    }

    /// Makes sure that images are here: those that are not are pulled, `at_a_time` at a time. Gives every
    /// image once, in the order in which they are done; one that can not be had holds up no other.
    pub async fn pull_all(
        &self,
        images: &[String],
        at_a_time: usize,
        news: &(dyn Fn(&str, &ImageNews) + Send + Sync),
    ) -> Vec<(String, Result<Pulled, EnvError>)> {
        let pulls = images.iter().map(|image| async move {
            let done = match self.image(image).await {
                Ok(Some(_)) => Ok(Pulled::Here),
                Ok(None) => {
                    news(image, &ImageNews::Begun);
                    let progress = |p: &Progress| news(image, &ImageNews::Progress(p.clone()));
                    self.pull_if_missing(image, &progress).await.map(|_| Pulled::Now)
                }
                Err(e) => Err(e),
            };
            news(image, &ImageNews::Done(done.clone()));
            (image.clone(), done)
        });
        futures_util::stream::iter(pulls).buffer_unordered(at_a_time.max(1)).collect().await
    }

    /// The id of an image, pulled where it is not here. One that could not be had is not asked for again
    /// for a minute: every trial of it would wait for the same answer.
    ///
    /// # Errors
    /// As [`DockerEngine::pull`].
    pub async fn pull_if_missing(
        &self,
        image: &str,
        progress: &(dyn Fn(&Progress) + Send + Sync),
    ) -> Result<String, EnvError> {
        if let Some(id) = self.image(image).await? {
            return Ok(id);
        }
        let lock = self.build_lock(&format!("pull {image}"));
        let _one = lock.lock().await;
        if let Some(id) = self.image(image).await? {
            return Ok(id);
        }
        let failed = || self.inner.failed_pulls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, error)) = failed().get(image)
            && at.elapsed() < PULL_AGAIN
        {
            return Err(error.clone());
        }
        let pulled = self.pull(image, PULL_WHOLE, progress).await;
        if let Err(e) = &pulled {
            failed().insert(image.to_string(), (Instant::now(), e.clone()));
        }
        pulled
    }

    /// Pulls an image and checks it; `limit` is for the whole of it.
    ///
    /// # Errors
    /// Unknown image, rate limit, no progress for three minutes, over the limit, wrong processor.
    pub async fn pull(
        &self,
        image: &str,
        limit: Duration,
        progress: &(dyn Fn(&Progress) + Send + Sync),
    ) -> Result<String, EnvError> {
        let (name, tag) = reference(image);
        let options = CreateImageOptionsBuilder::default().from_image(name).tag(tag).build();
        let whole = async {
            let mut stream = std::pin::pin!(self.docker().create_image(Some(options), None, None));
            let mut layers: HashMap<String, (u64, u64, bool)> = HashMap::new();
            loop {
                let next = tokio::time::timeout(calls::PULL.limit, stream.next()).await;
                let line = match next {
                    Ok(Some(Ok(line))) => line,
                    Ok(Some(Err(e))) => return Err(calls::explain(&calls::PULL, image, &e)),
                    Ok(None) => return Ok(()),
                    Err(_) => return Err(calls::late(&calls::PULL, image, calls::PULL.limit)),
                };
                let status = line.status.unwrap_or_default();
                if let Some(id) = line.id.filter(|_| !status.starts_with("Pulling from"))
                    && layers.len() < 4096
                {
                    let layer = layers.entry(id).or_default();
                    let detail = line.progress_detail.unwrap_or_default();
                    let count = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
                    if status == "Downloading" {
                        (layer.0, layer.1) = (count(detail.current), count(detail.total));
                    }
                    if matches!(status.as_str(), "Download complete" | "Pull complete" | "Already exists") {
                        layer.0 = layer.1;
                        layer.2 |= status != "Download complete";
                    }
                }
                progress(&Progress {
                    layers_done: layers.values().filter(|l| l.2).count(),
                    layers: layers.len(),
                    bytes: layers.values().map(|l| l.0).sum(),
                    bytes_known: layers.values().map(|l| l.1).sum(),
                    line: tidy(&status),
                });
            }
        };
        match tokio::time::timeout(limit, whole).await {
            Ok(done) => done?,
            Err(_) => return Err(calls::late(&calls::PULL, image, limit)),
        }
        self.image(image).await?.ok_or_else(|| {
            EnvError::new(
                Trouble::Image,
                &format!("pull image {image}"),
                "pulled, and still not here",
                "pull it by hand",
            )
        })
    }

    /// Builds a task's Dockerfile, once per name however many ask; gives the image's id.
    ///
    /// # Errors
    /// No Dockerfile, a failing step (with the engine's last lines), over the limit.
    pub async fn build(
        &self,
        spec: &BuildSpec,
        progress: &(dyn Fn(&Progress) + Send + Sync),
    ) -> Result<String, EnvError> {
        let lock = self.build_lock(&spec.tag);
        let mut done = lock.lock().await;
        if let Some(id) = done.as_ref() {
            return Ok(id.clone());
        }
        match tokio::time::timeout(spec.timeout, self.build_now(spec, progress)).await {
            Ok(built) => built?,
            Err(_) => return Err(calls::late(&calls::BUILD, &spec.tag, spec.timeout)),
        }
        let id = self.image(&spec.tag).await?.ok_or_else(|| {
            EnvError::new(Trouble::Build, &format!("build image {}", spec.tag), "built, and still not here", "")
        })?;
        *done = Some(id.clone());
        Ok(id)
    }

    async fn build_now(&self, spec: &BuildSpec, progress: &(dyn Fn(&Progress) + Send + Sync)) -> Result<(), EnvError> {
        let call = format!("build image {}", spec.tag);
        let labels: HashMap<String, String> = spec.labels.pairs().into_iter().collect();
        let args: HashMap<&str, &str> = spec.args.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let labels: HashMap<&str, &str> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let options = BuildImageOptionsBuilder::default()
            .dockerfile("Dockerfile")
            .t(&spec.tag)
            .rm(true)
            .forcerm(true)
            .labels(&labels)
            .buildargs(&args)
            .build();
        let (rx, packing) = send_context(&spec.context);
        let request = self.docker().build_image(options, None, Some(bollard::body_try_stream(pieces(rx))));
        // In a function of its own: when it ends the request is gone, and with it what the packing
        // thread may wait for.
        let (failed, last) = follow_build(request, &spec.tag, progress).await;
        // What went wrong while packing is the reason, whatever the engine says about half a tar.
        match packing.await {
            Ok(Err(e)) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                let remedy = "look whether environment/ holds a Dockerfile and can be read";
                return Err(EnvError::new(Trouble::Build, &call, &format!("{}: {e}", spec.context.display()), remedy));
            }
            _ => {}
        }
        match failed {
            None => Ok(()),
            Some(e) if e.trouble == Trouble::Engine || e.trouble == Trouble::NotFound => {
                let detail = format!("{} | {}", e.detail, last.join(" | "));
                let remedy = "correct the Dockerfile; docker build shows the whole output";
                Err(EnvError::new(Trouble::Build, &call, &detail, remedy))
            }
            Some(e) => Err(e),
        }
    }
}

/// The engine's answer to a build, to its end: what failed, and its last lines.
async fn follow_build(
    request: impl Stream<Item = Result<BuildInfo, bollard::errors::Error>>,
    tag: &str,
    progress: &(dyn Fn(&Progress) + Send + Sync),
) -> (Option<EnvError>, Vec<String>) {
    let mut stream = std::pin::pin!(request);
    let mut last: Vec<String> = Vec::new();
    while let Some(item) = stream.next().await {
        let line = match item {
            Ok(line) => line,
            Err(e) => return (Some(calls::explain(&calls::BUILD, tag, &e)), last),
        };
        for part in line.stream.unwrap_or_default().lines().map(tidy).filter(|l| !l.is_empty()) {
            progress(&Progress { line: part.clone(), ..Progress::default() });
            if last.len() == 5 {
                last.remove(0);
            }
            last.push(part);
        }
    }
    (None, last)
}

type Pieces = tokio::sync::mpsc::Receiver<std::io::Result<bytes::Bytes>>;

/// The build's directory as a tar stream, by its `.dockerignore`.
fn send_context(context: &Path) -> (Pieces, tokio::task::JoinHandle<std::io::Result<()>>) {
    let (writer, rx) = pipe();
    let context = context.to_path_buf();
    let packing = tokio::task::spawn_blocking(move || {
        let mut builder = tar::Builder::new(writer);
        let packed = pack::open_source(&context).and_then(|dir| {
            if let Err(e) = dir.open_file("Dockerfile") {
                return Err(std::io::Error::new(std::io::ErrorKind::NotFound, format!("Dockerfile: {e}")));
            }
            let rules = dir.read(".dockerignore", 1 << 20).ok().map(|f| String::from_utf8_lossy(&f.data).into_owned());
            let ignore = pack::Ignore::parse(&rules.unwrap_or_default());
            pack::pack(
                &dir,
                Path::new(""),
                &mut builder,
                &pack::Rules { keep: &|path, _| ignore.keeps(path), program: None },
            )
        });
        let finished = builder.into_inner();
        match (packed, finished) {
            (Ok(_), Ok(mut writer)) => writer.flush(),
            (Err(e), Ok(writer)) => {
                writer.fail(std::io::Error::new(e.kind(), e.to_string()));
                Err(e)
            }
            (_, Err(e)) => Err(e),
        }
    });
    (rx, packing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_for_another_processor_is_refused() {
        assert!(fits("i", "amd64", "linux", "amd64").is_ok());
        assert!(fits("i", "aarch64", "", "arm64").is_ok());
        assert!(fits("i", "", "", "amd64").is_ok());
        let wrong = fits("i:1", "arm64", "linux", "amd64").map_err(|e| e.to_string());
        let text = "use image i:1: it is made for arm64, this engine runs amd64 (pull it for linux/amd64, or run on a \
            machine with arm64)";
        assert_eq!(wrong, Err(text.to_string()));
        assert!(fits("i", "amd64", "windows", "amd64").is_err());
    }

    #[test]
    fn a_reference_without_a_tag_means_one_image() {
        assert_eq!(reference("ubuntu"), ("ubuntu", "latest"));
        assert_eq!(reference("host:5000/a/b"), ("host:5000/a/b", "latest"));
        assert_eq!(reference("host:5000/a/b:1"), ("host:5000/a/b", "1"));
        assert_eq!(reference("a@sha256:00"), ("a@sha256:00", ""));
        assert_eq!(architecture("x86_64"), "amd64");
    }
}
