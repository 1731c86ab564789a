//! The terminal without a container: the keys of its sisters, and what is its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pilothouse::environment::local::LocalEnvironment;
use pilothouse::environment::{Environment, Mount, PtyCommand, Trouble};
use pilothouse::harbor::write::Folder;
use pilothouse::terminal::{FILE_CAP, Recording, Session, SessionSpec, Standing};

use super::bench::{QUIET, begun, block, run, seen};
use super::support;

const SECOND: Duration = Duration::from_secs(1);

/// A started environment.
struct Here {
    root: tempfile::TempDir,
    env: Arc<LocalEnvironment>,
}

impl Here {
    async fn start() -> Here {
        let root = tempfile::tempdir().unwrap();
        let logs = root.path().join("agent");
        std::fs::create_dir(&logs).unwrap();
        let mounts = vec![Mount { host: logs, inside: "/logs/agent".to_string(), read_only: false }];
        let given = vec![("LANG".to_string(), "C.UTF-8".to_string()), ("GIVEN".to_string(), "a 'b' $c".to_string())];
        let env = LocalEnvironment::new(root.path().join("scratch"), mounts, given);
        env.start().await.unwrap();
        Here { root, env: Arc::new(env) }
    }

    fn app(&self) -> PathBuf {
        self.root.path().join("scratch/app")
    }

    async fn open(&self) -> Session {
        self.open_with(SessionSpec::default(), None).await
    }

    async fn open_with(&self, spec: SessionSpec, recording: Option<Recording>) -> Session {
        let session = Session::open(self.env.clone(), spec, recording).await.unwrap();
        assert!(session.settle(QUIET, Duration::from_secs(20)).await, "no prompt: {}", session.screen());
        session
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.app().join(name)).unwrap_or_default()
    }
}

/// A path on which some programs are missing.
fn path_without(missing: &[&str], at: &Path) -> String {
    std::fs::create_dir_all(at).unwrap();
    for name in ["sh", "bash", "stty", "sleep", "cat", "id", "env"].iter().filter(|n| !missing.contains(n)) {
        let path = std::env::var_os("PATH").unwrap();
        let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.exists()).unwrap();
        std::os::unix::fs::symlink(found, at.join(name)).unwrap();
    }
    at.to_str().unwrap().to_string()
}

fn alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn local_it_is_the_terminal_of_this_user_in_the_place_of_the_task() {
    block(async {
        let here = Here::start().await;
        let mut session = here.open().await;
        let keys = "echo \"$(id -u):$PWD:$APP_DIR:$GIVEN:$TERM:$(stty size)\" >out; tty >tty; ps -o sid= -p $$ >sid; echo $$ >pid\n";
        run(&mut session, keys).await;
        let uid = rustix::process::getuid().as_raw();
        let app = here.app();
        let wanted = format!("{uid}:{0}:{0}:a 'b' $c:xterm-256color:40 160\n", app.display());
        assert_eq!(here.said("out"), wanted);
        assert!(here.said("tty").starts_with("/dev/pts/"), "{}", here.said("tty"));
        assert_eq!(here.said("sid").trim(), here.said("pid").trim());
        session.close().await;

        let spec = SessionSpec { workdir: Some("/logs/agent".to_string()), ..SessionSpec::default() };
        let mut session = here.open_with(spec, None).await;
        run(&mut session, "pwd -P >where\n").await;
        let logs = here.root.path().join("agent").canonicalize().unwrap();
        assert_eq!(std::fs::read_to_string(logs.join("where")).unwrap().trim(), logs.to_str().unwrap());
        session.close().await;

        let open = |spec| Session::open(here.env.clone(), spec, None);
        let other = SessionSpec { user: Some("nobody".to_string()), ..SessionSpec::default() };
        assert_eq!(open(other).await.unwrap_err().trouble, Trouble::Unsupported);
        let nowhere = SessionSpec { workdir: Some("/no/where".to_string()), ..SessionSpec::default() };
        let error = open(nowhere).await.unwrap_err();
        assert!(error.trouble == Trouble::Command && error.detail.contains("no such directory"), "{error}");
        let command = PtyCommand { argv: vec!["/no/such/program".to_string()], ..PtyCommand::default() };
        assert_eq!(here.env.open_pty(&command).await.unwrap_err().trouble, Trouble::Command);
        assert_eq!(here.env.pty_end("other").await.unwrap_err().trouble, Trouble::NotFound);
        assert_eq!(here.env.size_pty("other", 1, 1).await.unwrap_err().trouble, Trouble::NotFound);
        here.env.stop().await.unwrap();
        assert_eq!(open(SessionSpec::default()).await.unwrap_err().trouble, Trouble::NotRunning);
    });
}

#[test]
fn local_plain_sh_and_a_size_that_is_set_from_outside() {
    block(async {
        let here = Here::start().await;
        let path = path_without(&["bash", "stty"], &here.root.path().join("bin"));
        let spec = SessionSpec { env: vec![("PATH".to_string(), path)], ..SessionSpec::default() };
        let mut session = here.open_with(spec, None).await;
        assert_eq!(session.shell(), Some("sh"));
        run(&mut session, "PATH=/usr/local/bin:/usr/bin:/bin; stty size >out\n").await;
        assert_eq!(here.said("out"), "40 160\n");
        run(&mut session, "sleep 1001\n").await;
        session.interrupt().await.unwrap();
        assert!(session.settle(QUIET, 10 * SECOND).await);
        run(&mut session, "exit 4\n").await;
        let began = Instant::now();
        while session.standing().await.unwrap() == Standing::Open && began.elapsed() < 20 * SECOND {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(session.standing().await.unwrap(), Standing::Ended(Some(4)));
        assert!(session.send("echo a''gain\n").await.unwrap().reopened.is_some());
        seen(&session, "again").await;
        session.close().await;
    });
}

#[test]
fn local_a_shell_that_ends_is_opened_again_and_what_it_left_ends_with_the_environment() {
    block(async {
        let here = Here::start().await;
        let mut session = here.open().await;
        let left = "sleep 1111 & echo $! >a; nohup sleep 2222 >nohup.log 2>&1 & echo $! >b; \
                    (setsid sh -c 'echo $$ >c; exec sleep 3333' &); (sh -c 'echo $$ >d; while :; do echo x; sleep 0.01; done' &)\n";
        session.send(left).await.unwrap();
        tokio::time::sleep(SECOND).await;
        // One that prints on, and holds the terminal: the stream ends with the shell all the same.
        session.send("exit 7\n").await.unwrap();
        let began = Instant::now();
        while session.standing().await.unwrap() == Standing::Open {
            assert!(began.elapsed() < 5 * SECOND, "the stream goes on");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(session.standing().await.unwrap(), Standing::Ended(Some(7)));
        let sent = session.send("echo a new o''ne\n").await.unwrap();
        assert_eq!(sent.reopened.as_deref(), Some("the shell ended with exit code 7"));
        seen(&session, "[the shell ended with exit code 7; this is a new one]").await;
        seen(&session, "a new one").await;
        let pids = ["a", "b", "c"].map(|name| here.said(name));
        assert!(pids.iter().all(|pid| alive(pid)), "{pids:?}");
        tokio::time::sleep(2 * SECOND).await;
        for (ends, code) in [("kill -9 $$\n", 137), ("exec sh -c 'exit 3'\n", 3)] {
            run(&mut session, ends).await;
            assert_eq!(session.standing().await.unwrap(), Standing::Ended(Some(code)), "{ends:?}");
            assert!(session.send("true\n").await.unwrap().reopened.unwrap().ends_with(&format!("code {code}")));
            assert!(session.settle(QUIET, 20 * SECOND).await);
        }
        // Without a variable of ours only its session tells whose it is.
        run(&mut session, "env -i sh -c 'echo $$ >e; exec sleep 4444' & \n").await;
        let last = here.said("e");
        assert!(alive(&last) && pids.iter().all(|pid| alive(pid)), "{last} {pids:?}");
        here.env.stop().await.unwrap();
        let began = Instant::now();
        while alive(&last) || pids.iter().any(|pid| alive(pid)) {
            assert!(began.elapsed() < 5 * SECOND, "{last} {pids:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!here.app().exists());
    });
}

#[test]
fn local_a_terminal_that_is_closed_is_hung_up_once() {
    block(async {
        let here = Here::start().await;
        let mut session = here.open().await;
        let script = "trap 'echo hup >>hups' HUP; echo $$ >pid; while :; do sleep 0.1; done\n";
        session.send(&format!("exec sh -c '{}'\n", script.trim().replace('\'', r"'\''"))).await.unwrap();
        let began = Instant::now();
        while here.said("pid").is_empty() {
            assert!(began.elapsed() < 5 * SECOND);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        session.close().await;
        tokio::time::sleep(SECOND).await;
        assert_eq!(here.said("hups"), "hup\n");
        // It was told, and what ignores that lives to the end.
        let pid = here.said("pid");
        assert!(alive(&pid));
        here.env.stop().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!alive(&pid));

        // Cancelled: those of its session end at once.
        let here = Here::start().await;
        let mut session = here.open().await;
        run(&mut session, "nohup sleep 5555 >nohup.log 2>&1 & echo $! >pid\n").await;
        let pid = here.said("pid");
        assert!(alive(&pid));
        session.cancel().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!alive(&pid));
        here.env.stop().await.unwrap();
    });
}

#[test]
fn local_a_paste_that_nobody_reads_and_a_flood() {
    block(async {
        let here = Here::start().await;
        let logs = here.root.path().join("agent");
        let recording = Recording::begin(&Folder::open(&logs).unwrap(), "terminal", 64 << 10).unwrap();
        let mut session = here.open_with(SessionSpec::default(), Some(recording)).await;
        run(&mut session, "sleep 1002\n").await;
        session.send(&"echo ran >>ran\n".repeat(6100)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(session.send("C-c").await.unwrap().interrupted);
        // The shell forgets what is typed until it has seen the interrupt.
        let began = Instant::now();
        while !here.app().join("heard").exists() {
            assert!(began.elapsed() < 30 * SECOND, "the shell does not come back");
            session.send("touch heard\n").await.unwrap();
            assert!(session.settle(3 * QUIET, 30 * SECOND).await);
        }
        assert!(here.said("ran").lines().count() < 50, "{} ran", here.said("ran").lines().count());
        session.send("yes\n").await.unwrap();
        let size = |file: &str| std::fs::metadata(logs.join(file)).unwrap().len();
        let files = ["recording.cast", "terminal.pane"];
        let began = Instant::now();
        while files.iter().any(|file| size(file) < 57 << 10) && began.elapsed() < 30 * SECOND {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // What comes now is over the cap.
        tokio::time::sleep(SECOND).await;
        session.send("C-c").await.unwrap();
        assert!(session.settle(QUIET, 30 * SECOND).await, "yes goes on");
        for file in files {
            let size = size(file);
            assert!((57 << 10..=64 << 10).contains(&size), "{file}: {size}");
        }
        session.send("yes\n").await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        // It prints without end, and is ended.
        let began = Instant::now();
        here.env.stop().await.unwrap();
        session.close().await;
        assert!(began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
    });
}

#[test]
fn local_a_recording_is_followed_by_another_that_begins_with_the_screen() {
    block(async {
        let here = Here::start().await;
        let [first, second] = ["one", "two"].map(|name| {
            let dir = here.root.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            Folder::open(&dir).unwrap()
        });
        let recording = |folder: &Folder| Some(Recording::begin(folder, "terminal", FILE_CAP).unwrap());
        let mut session = here.open_with(SessionSpec::default(), recording(&first)).await;
        run(&mut session, "PS1='$ '; clear; printf '\\033[1;31mre\u{301}d\\033[m \u{4efb}\\n'; kept=yes\n").await;
        session.record(None);
        let size = std::fs::metadata(first.path().join("recording.cast")).unwrap().len();
        run(&mut session, "echo between\n").await;
        assert_eq!(std::fs::metadata(first.path().join("recording.cast")).unwrap().len(), size);
        session.record(recording(&second));
        run(&mut session, "echo $kept\n").await;
        let rows: Vec<String> = session.capture().rows.iter().map(|row| row.to_string()).collect();
        let frame = session.view().frame();
        session.close().await;
        let played = |folder: &Folder| {
            let file = std::fs::File::open(folder.path().join("recording.cast")).unwrap();
            let mut player = pilothouse::cast::Player::open(file, "cast").unwrap();
            player.work_to_end();
            player.seek(pilothouse::cast::Target::Percent(100.0));
            player
        };
        let player = played(&second);
        // The player shows no marks.
        let plain: Vec<String> = rows.iter().map(|row| row.replace('\u{301}', "")).collect();
        assert!(plain.iter().any(|row| row == "red \u{4efb}") && plain.iter().any(|row| row == "yes"), "{plain:#?}");
        let shown: Vec<String> = player.screen().text().iter().map(|row| row.replace('\u{301}', "")).collect();
        assert_eq!(shown, plain);
        let row = plain.iter().position(|row| row.starts_with("red")).unwrap();
        let cell = player.screen().rows().nth(row).unwrap().next().unwrap();
        assert_eq!(Some(&cell), frame.row(u16::try_from(row).unwrap()).first());
        assert!(!played(&first).screen().text().iter().any(|row| row == "between"));
        here.env.stop().await.unwrap();
    });
}

/// What is typed, one after the other, each followed by silence. `D` stands for a directory.
const SCRIPTS: [(&str, &[&str]); 13] = [
    ("simple", &["echo hello\n", "cd /; pwd\n", "printf 'a\\tb\\tc\\n'; echo done;\n"]),
    ("pager", &["seq 1 500 >D/n; less D/n\n", "Space", "/321\n", "Up", "PgUp", "G", "q", "echo back\n"]),
    ("sleep", &["sleep 1003\n", "C-c", "echo $?\n", "sleep 1004\n", "C-z", "echo $?\n"]),
    ("ctrl-p", &["echo one\n", "echo two\n", "C-p", "C-p", "Enter", "C-p", "C-a", "C-k"]),
    ("clear", &["seq 1 100\n", "clear\n", "echo after\n"]),
    ("erase", &["seq 1 100\n", "printf '\\033[H\\033[2Jwhole\\n'\n", "seq 1 5\n", "C-l", "printf '\\033creset\\n'\n"]),
    (
        "alternate",
        &["seq 1 50\n", "printf '\\033[?1049h\\033[5;5Hover there'; sleep 0.1; printf '\\033[?1049l'; echo back\n"],
    ),
    ("wide", &["printf '\u{4efb}\u{52a1} e\u{301} \u{1f600} \u{ff21}|\\n'\n", "echo '\u{4efb}e\u{301}\u{1f600}'\n"]),
    (
        "progress",
        &[
            "for i in $(seq 0 10 100); do printf '\\r[%-20s] %d %%' \"$(printf '#%.0s' $(seq 0 5 $i))\" $i; sleep 0.02; done; echo\n",
            "printf '50%%\\033[K\\r100%%\\b\\b\\b99\\n'\n",
        ],
    ),
    ("lines", &["seq 1 5000\n", "echo end\n"]),
    ("here", &["cat >D/here <<'EOF'\none $(not run) \\\\ `nor this`\ntwo\nEOF\n", "wc D/here; md5sum <D/here\n"]),
    (
        "wrap",
        &[
            "printf '%0500d\\n' 7\n",
            "printf '%0160d\\n' 7; printf '%0161d\\n' 7\n",
            "C-p",
            "C-a",
            "M-f",
            "X",
            "C-e",
            "C-w",
        ],
    ),
    (
        "regions",
        &[
            "seq 1 30\n",
            "printf '\\033[5;20r\\033[20;1H\\n\\n\\nin the region\\033[r\\033[30;1H'\n",
            "printf '\\033[2;1H\\033[3L\\033[10;1H\\033[2M\\033[1;1H\\033[2M\\033[2S\\033[1T\\033[35;1H'\n",
        ],
    ),
];

/// Runs a program of this machine to its end; what it prints.
async fn program(name: &str, args: &[&str], dir: &Path) -> std::io::Result<String> {
    let mut command = tokio::process::Command::new(name);
    command
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .env("LANG", "C.UTF-8")
        .env("TERM", "xterm-256color");
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("SHELL", "/bin/bash").stdin(Stdio::null());
    Ok(String::from_utf8_lossy(&command.output().await?.stdout).into_owned())
}

async fn played_both_ways(name: &str, keys: &[&str]) {
    let here = Here::start().await;
    let dir = here.app();
    let word = dir.to_str().unwrap();
    let keys = keys.iter().map(|keys| keys.replace("D/", &format!("{word}/")));
    let keys: Vec<String> = std::iter::once("PS1='$ '; PROMPT_COMMAND=; clear\n".to_string()).chain(keys).collect();
    let mut session = here.open().await;
    for keys in &keys {
        // All of them show; a machine that is busy takes its time until they do.
        let mut changes = session.view().changes();
        session.send(keys).await.unwrap();
        let _ = tokio::time::timeout(5 * SECOND, changes.changed()).await;
        begun(keys).await;
        assert!(session.settle(3 * QUIET, 60 * SECOND).await, "never quiet after {keys:?}");
    }
    let capture = session.capture();
    session.cancel().await.unwrap();

    let (socket, conf) = (dir.join("socket"), dir.join("conf"));
    std::fs::write(&conf, "set -g default-terminal xterm-256color\n").unwrap();
    let (socket, conf) = (socket.to_str().unwrap(), conf.to_str().unwrap());
    let tmux = async |args: &[&str]| {
        let args = [&["-S", socket, "-f", conf], args].concat();
        program("tmux", &args, &dir).await.unwrap()
    };
    let quiet = async || {
        let (mut last, mut same) = (String::new(), 0);
        while same < 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = tmux(&["capture-pane", "-t", "t", "-p", "-S", "-"]).await;
            same = if now == last && !now.trim().is_empty() { same + 1 } else { 0 };
            last = now;
        }
    };
    tmux(&["new-session", "-x", "160", "-y", "40", "-d", "-s", "t", "bash --login"]).await;
    quiet().await;
    for keys in &keys {
        let keys = keys.strip_suffix(';').map_or(keys.clone(), |rest| format!("{rest}\\;"));
        tmux(&["send-keys", "-t", "t", "--", &keys]).await;
        begun(&keys).await;
        quiet().await;
    }
    let theirs =
        (tmux(&["capture-pane", "-t", "t", "-p"]).await, tmux(&["capture-pane", "-t", "t", "-p", "-S", "-"]).await);
    tmux(&["kill-server"]).await;
    assert_eq!(capture.screen(), theirs.0, "{name}");
    assert_eq!(capture.whole(), theirs.1, "{name}");
    here.env.stop().await.unwrap();
}

#[test]
fn local_scripts_of_keys_give_what_tmux_shows() {
    block(async {
        let here = tempfile::tempdir().unwrap();
        let version = program("tmux", &["-V"], here.path()).await.unwrap_or_default();
        let bash = Path::new("/bin/bash").exists();
        if version.trim() != "tmux 3.3a" || !bash {
            return support::skipped(&format!("local terminals beside tmux 3.3a and bash: {version:?}"));
        }
        // A few side by side: they wait, mostly.
        for few in SCRIPTS.chunks(4) {
            futures_util::future::join_all(few.iter().map(|(name, keys)| played_both_ways(name, keys))).await;
        }
    });
}
