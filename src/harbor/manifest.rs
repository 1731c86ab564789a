//! `artifacts/manifest.json`: what was collected after the agent was over.

use super::json::{self, FileProblem, List, Object, Scalar, object};

/// Entries that are kept.
const ENTRIES: usize = 10_000;

object!(RawArtifact<'a> {
    source: Scalar<'a> = "source",
    destination: Scalar<'a> = "destination",
    kind: Scalar<'a> = "type",
    status: Scalar<'a> = "status",
    service: Scalar<'a> = "service",
});

/// One collected file or directory. A pass over another container or step appends its own entries,
/// so that the same source may come twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Path in the container.
    pub source: String,
    /// Path below the trial dir; not to be followed without [`super::Dir`].
    pub destination: Option<String>,
    /// True for a directory.
    pub is_dir: bool,
    /// `ok`, `failed`, `empty` or `skipped`.
    pub status: String,
    /// Compose service that it comes from, where it is not the main one.
    pub service: Option<String>,
}

/// Reads an artifacts manifest: the first 10,000 entries.
///
/// # Errors
/// See [`FileProblem`]; `Foreign` for anything but a list.
pub fn manifest(bytes: &[u8]) -> Result<Vec<Artifact>, FileProblem> {
    let (list, _) = json::lenient(bytes, |body| {
        json::document::<List<Object<'_, RawArtifact<'_>>, ENTRIES>>(body)
            .map(|list| list.present.then(|| list.items.iter().filter_map(Object::get).map(read).collect()))
    })?;
    list.ok_or_else(|| FileProblem::foreign("not an artifacts manifest: no list"))
}

fn read(raw: &RawArtifact<'_>) -> Artifact {
    let text = |value: &Scalar<'_>| value.text().map(str::to_string);
    Artifact {
        source: text(&raw.source).unwrap_or_else(|| "-".to_string()),
        destination: text(&raw.destination),
        is_dir: raw.kind.str() == Some("directory"),
        status: text(&raw.status).unwrap_or_else(|| "-".to_string()),
        service: text(&raw.service),
    }
}
