//! An engine of a test's own, in its own network name space, so that the machine's is not touched.
#![allow(dead_code, clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An engine. Stopped when dropped, with all that is in it.
pub struct Daemon {
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Daemon {
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("docker.sock")
    }

    pub fn start(&mut self) -> bool {
        let at = |name: &str| self.dir.path().join(name).to_str().unwrap().to_string();
        let log = fs::File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let child = Command::new("unshare")
            .args(["-n", "dockerd", "--bridge=none", "--iptables=false", "--shutdown-timeout=1"])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["-H", &format!("unix://{}", self.socket().display())])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let Ok(child) = child else { return false };
        self.child = Some(child);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(30) {
            if self.docker(&["version"]).is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        false
    }

    /// What its own command line says; None when it fails.
    pub fn docker(&self, args: &[&str]) -> Option<String> {
        let host = format!("unix://{}", self.socket().display());
        let out = Command::new("docker").args(["-H", &host]).args(args).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
    }

    pub fn signal(&mut self, signal: &str) {
        // `unshare` becomes the engine: it is the child itself.
        if let Some(child) = &mut self.child {
            let _ = Command::new("kill").args([signal, &child.id().to_string()]).status();
        }
    }

    pub fn stop(&mut self) {
        self.signal("-TERM");
        let begin = Instant::now();
        if let Some(mut child) = self.child.take() {
            while begin.elapsed() < Duration::from_secs(20) && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for id in self.docker(&["ps", "-aq"]).unwrap_or_default().lines() {
            self.docker(&["rm", "-f", id]);
        }
        self.stop();
        // What it mounted of its own.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mine = self.dir.path().to_str().unwrap();
        for at in mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|at| at.starts_with(mine)) {
            let _ = Command::new("umount").args(["-l", at]).status();
        }
    }
}

/// An engine of the test's own with the image of the tests.
pub fn daemon() -> Result<Daemon, &'static str> {
    if !rustix_root() {
        return Err("an engine of one's own needs root");
    }
    let here = Command::new("docker").args(["image", "inspect", "tb-base:1"]).output();
    if !here.is_ok_and(|out| out.status.success()) {
        return Err("no image tb-base:1");
    }
    let mut daemon = Daemon { dir: tempfile::tempdir().unwrap(), child: None };
    if !daemon.start() {
        return Err("dockerd does not start in a network name space of its own");
    }
    let mut save = Command::new("docker").args(["save", "tb-base:1"]).stdout(Stdio::piped()).spawn().unwrap();
    let host = format!("unix://{}", daemon.socket().display());
    let load = Command::new("docker").args(["-H", &host, "load"]).stdin(save.stdout.take().unwrap()).output().unwrap();
    save.wait().unwrap();
    if load.status.success() { Ok(daemon) } else { Err("the image can not be loaded") }
}

fn rustix_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}
