//! How to tell that a Compose project is Harbor's, and whose trial it is: pure.
//!
//! Harbor sets no labels of its own. Its mark is the list of files that a container's project was made
//! from: it holds `<session>-docker-compose-resources.json`, which Harbor writes for every trial and
//! which keeps the letters of the trial's name as they are, or Harbor's own packaged file. A name that
//! ends in `__env` proves nothing.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::environment::docker::compose::{CONFIG_FILES, Composed, ComposedKind};

/// End of the name of the file by which a session is known.
pub(super) const RESOURCES: &str = "-docker-compose-resources.json";
/// End of a session's name after the trial's, for the trial's own environment.
const ENVIRONMENT: &str = "__env";
/// Between the trial's name and the key, for separate verifiers.
const VERIFIER: &str = "__verifier__";
/// Where trials' directories are mounted: the part below the trial dir, and the target inside.
const MOUNTS: [(&str, &str); 3] =
    [("agent", "/logs/agent"), ("verifier", "/logs/verifier"), ("artifacts/logs/artifacts", "/logs/artifacts")];

/// The project name that Harbor makes of a session's.
pub fn project_of(session: &str) -> String {
    let lower = session.to_lowercase();
    let starts = lower.chars().next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let whole = if starts { lower } else { format!("0{lower}") };
    whole.chars().map(|c| if matches!(c, 'a'..='z' | '0'..='9' | '_' | '-') { c } else { '-' }).collect()
}

/// The trial that a session belongs to; None for what is no session's name.
pub fn trial_of_session(session: &str) -> Option<&str> {
    let trial = match session.split_once(VERIFIER) {
        Some((trial, _)) => trial,
        None => session.strip_suffix(ENVIRONMENT)?,
    };
    (!trial.is_empty()).then_some(trial)
}

/// The session's name in a file name, as Harbor writes it.
pub fn session_of_file(name: &str) -> Option<&str> {
    name.strip_suffix(RESOURCES).filter(|session| trial_of_session(session).is_some())
}

/// What a container's labels say of Harbor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The trial's name with its own letters, where the labels tell.
    pub trial: Option<String>,
    /// The files that say so.
    pub evidence: String,
}

/// Whether a container was made by Harbor for a trial.
pub fn mark(labels: &BTreeMap<String, String>, project: &str) -> Option<Mark> {
    trial_of_session(project)?;
    let files = labels.get(CONFIG_FILES)?;
    for file in files.split(',') {
        let name = file.rsplit('/').next().unwrap_or(file);
        if let Some(session) = session_of_file(name).filter(|session| project_of(session) == project) {
            let trial = trial_of_session(session).map(str::to_string);
            return Some(Mark { trial, evidence: format!("made from {name}") });
        }
    }
    let packaged = [
        "/harbor/environments/docker/docker-compose-prebuilt.yaml",
        "/harbor/environments/docker/docker-compose-build.yaml",
    ];
    let file = files.split(',').find(|file| packaged.iter().any(|p| file.ends_with(p)))?;
    Some(Mark { trial: None, evidence: format!("made from {file}") })
}

/// The trial dir that a container's mounts name: it must be the same for all of them.
pub fn trial_dir_of_mounts(mounts: &[(String, String)]) -> Option<PathBuf> {
    let mut found: Option<PathBuf> = None;
    for (source, target) in mounts {
        let Some((below, _)) = MOUNTS.iter().find(|(_, t)| t == target) else { continue };
        let dir = source.strip_suffix(below)?.strip_suffix('/')?;
        match &found {
            Some(other) if other != Path::new(dir) => return None,
            _ => found = Some(PathBuf::from(dir)),
        }
    }
    found.filter(|dir| dir.is_absolute())
}

/// A trial of a job that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The job dir.
    pub job_dir: PathBuf,
    /// The trial's name.
    pub trial: String,
}

/// Trials of known jobs, by what Harbor makes of their names.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// By `<trial>` as in a project's name.
    trials: HashMap<String, Vec<Known>>,
}

impl Index {
    /// Adds a trial.
    pub fn add(&mut self, job_dir: &Path, trial: &str) {
        let known = Known { job_dir: job_dir.to_path_buf(), trial: trial.to_string() };
        self.trials.entry(project_of(trial)).or_default().push(known);
    }

    /// The trials that a project's name fits.
    pub fn of_project(&self, project: &str) -> &[Known] {
        let trial = trial_of_session(project).unwrap_or_default();
        self.trials.get(trial).map_or(&[], Vec::as_slice)
    }
}

/// What is known of a project of Harbor's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its name.
    pub name: String,
    /// The trial's name, with its own letters where known.
    pub trial: Option<String>,
    /// The trial dir by the mounts of a container.
    pub trial_dir: Option<PathBuf>,
    /// Why it is Harbor's.
    pub evidence: String,
    /// Files that a container of it was made from: absolute paths.
    pub files: Vec<PathBuf>,
}

/// Harbor's projects among everything that an engine keeps. A project with a container that is not
/// Harbor's is none of them, whatever its name.
pub fn projects(things: &[Composed], index: &Index) -> BTreeMap<String, Project> {
    let mut out: BTreeMap<String, Project> = BTreeMap::new();
    let mut foreign: Vec<&str> = Vec::new();
    for thing in things.iter().filter(|t| t.kind == ComposedKind::Container) {
        let Some(mark) = mark(&thing.labels, &thing.project) else {
            foreign.push(&thing.project);
            continue;
        };
        let mounted = trial_dir_of_mounts(&thing.mounts);
        // A mount that names another trial than the labels says nothing.
        let mounted = mounted.filter(|dir| {
            let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            mark.trial.as_ref().map_or(trial_of_session(&thing.project) == Some(&project_of(&name)), |t| *t == name)
        });
        let project = out.entry(thing.project.clone()).or_insert_with(|| Project {
            name: thing.project.clone(),
            trial: None,
            trial_dir: None,
            evidence: mark.evidence.clone(),
            files: Vec::new(),
        });
        project.trial = project.trial.take().or(mark.trial);
        project.trial_dir = project.trial_dir.take().or(mounted);
        let files = thing.labels.get(CONFIG_FILES).map(String::as_str).unwrap_or_default();
        project.files.extend(files.split(',').filter(|f| f.starts_with('/')).map(PathBuf::from));
    }
    // What is left without its container is Harbor's if a known trial has the name.
    for thing in things.iter().filter(|t| t.kind != ComposedKind::Container) {
        let name = project_named(thing, index, &out);
        let Some(name) = name.filter(|n| !out.contains_key(n)) else { continue };
        if let Some(known) = index.of_project(&name).first() {
            let evidence = format!("named after trial {}", known.trial);
            let project = Project {
                name: name.clone(),
                trial: Some(known.trial.clone()),
                trial_dir: None,
                evidence,
                files: Vec::new(),
            };
            out.insert(name, project);
        }
    }
    out.retain(|name, _| !foreign.contains(&name.as_str()));
    out
}

/// The project of a thing: by its label, or for images by their tag, which is all that `docker compose`
/// removes too: an image under a name of its own is not the project's.
pub fn project_named(thing: &Composed, index: &Index, known: &BTreeMap<String, Project>) -> Option<String> {
    if thing.kind != ComposedKind::Image {
        return (!thing.project.is_empty()).then(|| thing.project.clone());
    }
    let tag = thing.name.strip_suffix(":latest")?;
    // `<project>-<service>`: both may have dashes.
    let mut cuts = tag.match_indices('-').map(|(at, _)| tag.get(..at).unwrap_or_default());
    let fits = |project: &&str| known.contains_key(*project) || !index.of_project(project).is_empty();
    let project = cuts.find(fits)?;
    (thing.project.is_empty() || thing.project == project).then(|| project.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::environment::docker::compose::PROJECT;

    fn thing(kind: ComposedKind, name: &str, project: &str, files: &str, mounts: &[(&str, &str)]) -> Composed {
        let mut labels = BTreeMap::new();
        if !project.is_empty() {
            labels.insert(PROJECT.to_string(), project.to_string());
        }
        if !files.is_empty() {
            labels.insert(CONFIG_FILES.to_string(), files.to_string());
        }
        Composed {
            kind,
            id: format!("id-{name}"),
            name: name.to_string(),
            project: project.to_string(),
            labels,
            mounts: mounts.iter().map(|(a, b)| ((*a).to_string(), (*b).to_string())).collect(),
            created: None,
            bytes: None,
            running: true,
        }
    }

    #[test]
    fn names_are_made_as_harbor_makes_them() {
        assert_eq!(project_of("Half.Done__9dSUW6Z__env"), "half-done__9dsuw6z__env");
        assert_eq!(project_of("_x__env"), "0_x__env");
        assert_eq!(trial_of_session("a__B__verifier__step-1"), Some("a__B"));
        assert_eq!(trial_of_session("__env"), None);
    }

    /// The labels of a recorded container, and what only looks like one.
    #[test]
    fn only_the_files_that_it_was_made_from_prove_a_project_to_be_harbors() {
        use ComposedKind::{Container, Image, Network};
        let files = "/tmp/tmpmaxm1kib/half-done__9dSUW6Z__env-docker-compose-resources.json,/v/harbor/environments/docker/docker-compose-prebuilt.yaml,/tmp/tmpgapg3h21/docker-compose-environment.json";
        let dir = "/home/op/runs/jobs/d/half-done__9dSUW6Z";
        let (agent, verifier) = (format!("{dir}/agent"), format!("{dir}/verifier"));
        let real = "half-done__9dsuw6z__env";
        let things = vec![
            thing(Container, "c", real, files, &[(&agent, "/logs/agent"), (&verifier, "/logs/verifier"), ("/x", "/y")]),
            thing(Network, "n", real, "", &[]),
            thing(Image, &format!("{real}-main:latest"), "", "", &[]),
            thing(Image, "my-own:latest", real, "", &[]),
            // Somebody's project with such a name, and one that borrows a real trial's name.
            thing(Container, "b", "web__env", "/home/me/docker-compose.yaml", &[]),
            thing(Network, "bn", "web__env", "", &[]),
            thing(Container, "s", "t__abc__env", "/home/me/compose.yaml", &[]),
            thing(Network, "sn", "t__abc__env", "", &[]),
            thing(Network, "ln", "left__xyz__env", "", &[]),
        ];
        let mut index = Index::default();
        index.add(Path::new("/jobs/j"), "t__aBc");
        index.add(Path::new("/jobs/j"), "Left__xyz");
        let found = projects(&things, &index);
        assert_eq!(found.keys().collect::<Vec<_>>(), [real, "left__xyz__env"]);
        let project = found.get(real).unwrap();
        assert_eq!(project.trial.as_deref(), Some("half-done__9dSUW6Z"));
        assert_eq!(project.trial_dir.as_deref(), Some(Path::new(dir)));
        let names: Vec<Option<String>> = things.iter().map(|t| project_named(t, &index, &found)).collect();
        assert_eq!(names[2].as_deref(), Some(real));
        assert_eq!(names[3], None);
        // The session in the file must be that of the project.
        let renamed =
            thing(Container, "r", "other__1__env", "/tmp/a/half-done__9dSUW6Z__env-docker-compose-resources.json", &[]);
        assert_eq!(mark(&renamed.labels, &renamed.project), None);
        assert_eq!(
            trial_dir_of_mounts(&[
                ("/a/agent".into(), "/logs/agent".into()),
                ("/b/verifier".into(), "/logs/verifier".into())
            ]),
            None
        );
    }
}
