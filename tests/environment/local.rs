//! The local environment.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pilothouse::environment::local::LocalEnvironment;
use pilothouse::environment::{CUT_MARKER, Caps, Command, Ended, Environment, Life, Mount, OnTimeout, Trouble, Upload};

use super::{block, failed, into, said, sh, tree};

const CAPS: Caps = Caps { bytes: 1 << 20, file_bytes: 1 << 20, entries: 100 };

struct Place {
    _temp: tempfile::TempDir,
    root: PathBuf,
    logs: PathBuf,
    env: LocalEnvironment,
}

fn place() -> Place {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().to_path_buf();
    let logs = root.join("agent");
    std::fs::create_dir(&logs).unwrap();
    let mounts = vec![Mount { host: logs.clone(), inside: "/logs/agent".to_string(), read_only: false }];
    let env = LocalEnvironment::new(root.join("scratch"), mounts, vec![("RUN".to_string(), "env".to_string())]);
    Place { _temp: temp, root, logs, env }
}

#[test]
fn commands_find_their_places_by_variables() {
    let place = place();
    block(async {
        let env = &place.env;
        assert_eq!(failed(env.exec(&sh("true")).await).trouble, Trouble::NotRunning);
        env.start().await.unwrap();
        assert_eq!(env.is_alive().await.unwrap(), Life::Alive);
        assert!(env.describe().summary.contains("isolates nothing"));

        let script = "pwd; echo $APP_DIR; echo $RUN-$ONE; echo ${SECRET_OF_OURS-unset}; echo err >&2; exit 3";
        let command = Command { env: vec![("ONE".to_string(), "1".to_string())], ..sh(script) };
        let (ended, text) = said(env, command).await;
        assert_eq!(ended, Ended::Exited(3));
        let app = place.root.join("scratch/app");
        assert_eq!(text, format!("{0}\n{0}\nenv-1\nunset\nerr\n", app.display()));
        // The whole environment of a command is known; nothing of ours comes along.
        let (_, text) = said(env, sh("env")).await;
        assert!(!text.contains("CARGO"), "{text}");

        // A mount is this machine's directory, by its path and by the variable.
        let command =
            Command { workdir: Some("/logs/agent".to_string()), ..sh("echo a > here; echo b > $LOGS_DIR/agent/there") };
        env.exec(&command).await.unwrap();
        assert_eq!(std::fs::read_to_string(place.logs.join("here")).unwrap(), "a\n");
        assert_eq!(std::fs::read_to_string(place.logs.join("there")).unwrap(), "b\n");
        assert_eq!(env.locate("/logs/agent/here"), place.logs.join("here").display().to_string());

        let error = failed(env.exec(&Command { user: Some("nobody".to_string()), ..sh("true") }).await);
        assert_eq!(error.trouble, Trouble::Unsupported, "{error}");
        let error = failed(env.exec(&Command { shell: "no-such-shell".to_string(), ..sh("true") }).await);
        assert_eq!(error.trouble, Trouble::Command, "{error}");
        let (ended, _) = said(env, sh("kill -9 $$")).await;
        assert_eq!(ended, Ended::Exited(137));

        env.stop().await.unwrap();
        env.stop().await.unwrap();
        assert!(!place.root.join("scratch").exists());
        assert!(place.logs.join("here").exists(), "what was mounted stays");
        assert_eq!(env.is_alive().await.unwrap(), Life::Absent);
    });
}

#[test]
fn output_is_cut_at_its_cap() {
    let place = place();
    block(async {
        let env = &place.env;
        env.start().await.unwrap();
        let command =
            Command { output: into("/logs/agent/out.txt", 100_000), ..sh("yes | head -c 50000000; echo end") };
        let end = env.exec(&command).await.unwrap();
        assert_eq!(end.ended, Ended::Exited(0));
        assert!(end.output_cut);
        let text = std::fs::read_to_string(place.logs.join("out.txt")).unwrap();
        assert_eq!(text.len(), 100_000 + CUT_MARKER.len());
        assert!(text.ends_with(CUT_MARKER) && text.starts_with("y\ny\n"));
        let part = env.download_file("/logs/agent/out.txt", 10).await.unwrap();
        assert_eq!((part.data.as_slice(), part.cut), (b"y\ny\ny\ny\ny\n".as_slice(), true));
        env.stop().await.unwrap();
    });
}

#[test]
fn a_group_is_killed_and_a_background_child_dies_with_the_environment() {
    let place = place();
    block(async {
        let env = &place.env;
        env.start().await.unwrap();
        let began = Instant::now();
        let script = "sleep 300 & echo $! > pid; setsid sleep 301 & sleep 0.2; sleep 302";
        let command = Command { timeout: Some(Duration::from_millis(600)), on_timeout: OnTimeout::Kill, ..sh(script) };
        let end = env.exec(&command).await.unwrap();
        assert_eq!(end.ended, Ended::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(5));
        let pid = std::fs::read_to_string(place.root.join("scratch/app/pid")).unwrap();
        assert!(ends(pid.trim()), "the group is killed at its timeout");

        // What a command leaves behind lives on, holds up nobody, and ends with the environment.
        let began = Instant::now();
        env.exec(&sh("setsid sleep 303 & echo $! > left")).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(3));
        let left = std::fs::read_to_string(place.root.join("scratch/app/left")).unwrap();
        assert!(alive(left.trim()));
        let began = Instant::now();
        env.stop().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(3));
        assert!(ends(left.trim()), "what left its group is found by its mark");
    });
}

/// True for a process that is there and no zombie.
fn alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z"))
}

/// True once a killed process is gone.
fn ends(pid: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(3);
    while alive(pid) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    !alive(pid)
}

#[test]
fn uploads_and_downloads_follow_nothing() {
    let place = place();
    tree(&place.root.join("tests"));
    block(async {
        let env = &place.env;
        env.start().await.unwrap();
        let packed = env.upload(Upload::Dir(place.root.join("tests")), "/tests").await.unwrap();
        assert_eq!((packed.files, packed.skipped.as_slice()), (3, ["fifo".to_string()].as_slice()));
        env.upload(Upload::Bytes(b"one".to_vec(), 0o600), "/app/deep/one").await.unwrap();
        // Twice: what is there is replaced.
        env.upload(Upload::Dir(place.root.join("tests")), "/tests").await.unwrap();
        let (_, text) = said(env, sh("sh $TESTS_DIR/test.sh; cat $APP_DIR/deep/one; readlink $TESTS_DIR/out")).await;
        assert_eq!(text, "tested\none../secret\n");

        std::os::unix::fs::symlink("tests", place.root.join("linked")).unwrap();
        let error = failed(env.upload(Upload::Dir(place.root.join("linked")), "/tests").await);
        assert!(error.to_string().contains("upload to /tests"), "{error}");

        env.exec(&sh(
            "ln -s /etc/passwd $LOGS_DIR/agent/reward.txt; mkfifo $LOGS_DIR/agent/pipe; echo x > $LOGS_DIR/agent/x",
        ))
        .await
        .unwrap();
        for name in ["/logs/agent/reward.txt", "/logs/agent/pipe", "/logs/agent"] {
            assert_eq!(failed(env.download_file(name, 10).await).trouble, Trouble::Path, "{name}");
        }
        let to = place.root.join("to");
        std::fs::create_dir(&to).unwrap();
        let fetched = env.download_tree("/logs/agent", to.clone(), CAPS).await.unwrap();
        // The FIFO is left out while packing already.
        assert_eq!((fetched.files, fetched.skipped), (1, 1), "{fetched:?}");
        assert!(!to.join("reward.txt").exists() && to.join("x").exists());
        for bad in ["relative", "/a/../b", "/a//b", "/a\0b"] {
            assert_eq!(failed(env.download_file(bad, 1).await).trouble, Trouble::Path, "{bad:?}");
        }
        env.stop().await.unwrap();
    });
}

#[test]
fn caps_hold_for_trees() {
    let place = place();
    block(async {
        let env = &place.env;
        env.start().await.unwrap();
        env.exec(&sh("mkdir many; for i in $(seq 1 50); do echo $i > many/$i; done; yes | head -c 3000000 > big"))
            .await
            .unwrap();
        let to = |name: &str| {
            let dir = place.root.join(name);
            std::fs::create_dir(&dir).unwrap();
            dir
        };
        let few = Caps { entries: 10, ..CAPS };
        let fetched = env.download_tree("/app/many", to("few"), few).await.unwrap();
        assert!(fetched.cut && fetched.files <= 10, "{fetched:?}");
        let fetched = env.download_tree("/app", to("small"), CAPS).await.unwrap();
        assert!(fetched.cut && fetched.bytes <= CAPS.bytes, "{fetched:?}");
        let fetched = env.download_tree("/app/big", to("one"), CAPS).await.unwrap();
        assert!(fetched.cut && fetched.files == 1 && fetched.bytes == CAPS.file_bytes, "{fetched:?}");
        env.stop().await.unwrap();
    });
}
