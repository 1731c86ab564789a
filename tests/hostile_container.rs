//! Containers that put links, FIFOs and second names where this machine reads and writes: nothing outside
//! a trial's directory is read or written.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;
#[path = "support/yard.rs"]
mod yard;

use std::fs;
use std::path::Path;

use yard::{IMAGE, PASS_INSIDE, Yard, find, in_containers, json, left_of, nothing};

/// Words that must never turn up in a job dir.
const TOKEN: &str = "THE-HOSTS-OWN-WORDS";

/// Every regular file and every name below a directory, no link followed.
fn walk(dir: &Path, each: &mut dyn FnMut(&Path, &fs::Metadata)) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let meta = fs::symlink_metadata(entry.path()).unwrap();
        each(&entry.path(), &meta);
        if meta.is_dir() {
            walk(&entry.path(), each);
        }
    }
}

/// Contents and modes of what is outside.
fn picture(dir: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut out = Vec::new();
    walk(dir, &mut |path, meta| {
        let text = if meta.is_file() { fs::read_to_string(path).unwrap() } else { String::new() };
        out.push(format!("{} {:o} {} {} {text}", path.display(), meta.mode(), meta.uid(), meta.mtime()));
    });
    out.sort();
    out
}

#[test]
fn nothing_outside_a_trial_is_read_or_written() {
    let yard = Yard::new();
    let outside = yard.temp.path().join("outside");
    fs::create_dir_all(outside.join("dir")).unwrap();
    fs::write(outside.join("token"), TOKEN).unwrap();
    fs::write(outside.join("one"), "1").unwrap();
    fs::write(outside.join("dir/token"), TOKEN).unwrap();
    let out = outside.display();
    // The container does not have the path: a reader or writer on this side would follow it.
    let swap = format!(
        "mkdir -p $D/d; echo x > $D/d/f; (cd $D; while :; do mv d e && ln -s {out}/dir d && rm d && mv e d; done) \
         >/dev/null 2>&1 &"
    );
    let swap_in = |dir: &str| swap.replace("$D", dir);
    let kept = "artifacts = [\"/app/link\", \"/app/out\", \"/tmp/w/d\", \"/logs/artifacts/sub\", \"/app/fifo\"]";
    let toml = format!("{kept}\n{IMAGE}");
    let yard = yard
        .task(
            "links",
            &format!(
                "cd /logs/agent; rm oracle.txt; ln -s {out}/one oracle.txt; ln -s {out}/one exit-code.txt; \
                 ln -s {out} ../artifacts/sub; mkdir -p /app/out; ln -s {out}/token /app/link; \
                 ln -s {out}/token /app/out/link; mkfifo /app/fifo; exit 3"
            ),
            &format!("rm -f /logs/verifier/*; ln -s {out}/one /logs/verifier/reward.txt"),
            &toml,
        )
        .task("json-link", "true", &format!("ln -s {out}/one /logs/verifier/reward.json; {PASS_INSIDE}"), IMAGE)
        .task(
            "fifos",
            "cd /logs/agent; rm oracle.txt; mkfifo oracle.txt exit-code.txt; exit 3",
            "cd /logs/verifier; rm -f *; mkfifo reward.json reward.txt test-stdout.txt",
            IMAGE,
        )
        .task(
            "second-names",
            "cd /logs/agent; ln oracle.txt exit-code.txt; ln oracle.txt ../agent/third; echo said; exit 3",
            "cd /logs/verifier; echo 1 > r; ln r reward.txt",
            IMAGE,
        )
        .task(
            "directories",
            "cd /logs/agent; rm oracle.txt; mkdir oracle.txt exit-code.txt; exit 3",
            "cd /logs/verifier; mkdir reward.json; echo 1 > reward.txt",
            IMAGE,
        )
        .task(
            "swaps",
            &format!("{}\n{}\n{}", swap_in("/logs/agent"), swap_in("/logs/artifacts"), swap_in("/tmp/w")),
            &format!("{}\n{PASS_INSIDE}", swap_in("/logs/verifier")),
            &toml,
        )
        .task("fine", "true", PASS_INSIDE, IMAGE);
    let before = picture(&outside);
    let mut config = yard.config("oracle", 3);
    config.n_attempts = 2;
    let Some((done, id)) = in_containers(&yard, config, nothing) else { return };
    assert!(done.complete, "{done:?}");
    assert_eq!(picture(&outside), before);
    let mut seen = 0;
    walk(&yard.dir(), &mut |path, meta| {
        seen += 1;
        if meta.is_file() {
            let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
            assert!(!text.contains(TOKEN), "{}", path.display());
        }
    });
    assert!(seen > 100, "{seen}");
    let read = yard.read();
    // A link to a reward is none.
    assert_eq!(read.end("links"), (None, Some("VerifierOutputParseError")));
    assert_eq!(read.end("json-link"), (None, Some("VerifierOutputParseError")));
    assert_eq!(read.end("fifos"), (None, Some("VerifierOutputParseError")));
    assert_eq!(read.end("directories"), (None, Some("OSError")));
    assert_eq!(read.end("second-names"), (Some(1.0), None));
    assert_eq!(read.end("swaps"), (Some(1.0), None));
    assert_eq!(read.end("fine"), (Some(1.0), None));
    let dir = |task: &str| find(&yard, &read, task);
    for task in ["links", "fifos", "second-names"] {
        let code = dir(task).join("agent/exit-code.txt");
        assert!(fs::symlink_metadata(&code).unwrap().is_file(), "{task}");
        assert_eq!(fs::read_to_string(code).unwrap(), "3", "{task}");
    }
    // Its other name kept what was in it.
    assert_eq!(fs::read_to_string(dir("second-names").join("agent/third")).unwrap(), "said\n");
    let manifest = json(&dir("links").join("artifacts/manifest.json"));
    let status = |source: &str| {
        let lines = manifest.as_array().unwrap();
        lines.iter().find(|l| l["source"] == source).unwrap()["status"].as_str().unwrap().to_string()
    };
    let all = ["/app/link", "/app/fifo", "/logs/artifacts/sub", "/app/out"].map(status);
    assert_eq!(all, ["failed", "failed", "skipped", "empty"]);
    assert_eq!(left_of(&id), "");
}

/// Steps are moved while processes of the container swap directories for links.
#[test]
fn steps_are_moved_within_the_trial_only() {
    let yard = Yard::new();
    let outside = yard.temp.path().join("outside");
    fs::create_dir_all(outside.join("dir")).unwrap();
    fs::write(outside.join("dir/token"), TOKEN).unwrap();
    let out = outside.display();
    let task = yard.temp.path().join("tasks/steps");
    fs::create_dir_all(task.join("environment")).unwrap();
    let mut toml = format!("schema_version = \"1.1\"\n{IMAGE}\n");
    for step in ["a", "b", "c"] {
        toml += &format!("[[steps]]\nname = \"{step}\"\n");
        for sub in ["tests", "solution"] {
            fs::create_dir_all(task.join("steps").join(step).join(sub)).unwrap();
        }
        let at = task.join("steps").join(step);
        fs::write(at.join("instruction.md"), "Do it.\n").unwrap();
        let solve = format!(
            "#!/bin/bash\ntouch /logs/agent/{step}\nfor D in /logs/agent /logs/verifier /logs/artifacts; do\n\
             (cd $D; while :; do mkdir -p d; mv d e; ln -s {out}/dir d; rm -rf d e; done) >/dev/null 2>&1 &\ndone\n\
             rm -rf /tests; ln -s /etc /tests\n"
        );
        fs::write(at.join("solution/solve.sh"), solve).unwrap();
        fs::write(at.join("tests/test.sh"), format!("#!/bin/bash\nls /etc/passwd || exit\n{PASS_INSIDE}\n")).unwrap();
    }
    fs::write(task.join("task.toml"), toml).unwrap();
    let mut yard = yard;
    yard.tasks.push(task);
    let before = picture(&outside);
    let mut config = yard.config("oracle", 2);
    config.n_attempts = 2;
    let Some((done, id)) = in_containers(&yard, config, nothing) else { return };
    assert!(done.complete, "{done:?}");
    assert_eq!(picture(&outside), before);
    let read = yard.read();
    assert_eq!(read.end("steps"), (Some(1.0), None));
    let dir = find(&yard, &read, "steps");
    for step in ["a", "b", "c"] {
        assert!(dir.join("steps").join(step).join("agent").join(step).exists(), "{step}");
    }
    assert!(!dir.join("steps/b/agent/a").exists());
    walk(&yard.dir(), &mut |path, meta| {
        let text = if meta.is_file() { fs::read(path).unwrap() } else { Vec::new() };
        assert!(!String::from_utf8_lossy(&text).contains(TOKEN), "{}", path.display());
    });
    assert_eq!(left_of(&id), "");
}
