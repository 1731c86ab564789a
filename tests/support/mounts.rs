//! File systems that tests put in the way: read-only bind mounts, and bindfs, which passes everything on
//! and reports no change.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::skipped;

/// A directory seen at another place, as long as it lives.
pub struct Mounted {
    /// Where it is seen.
    pub at: PathBuf,
    /// The program that serves it, where one does.
    server: Option<std::process::Child>,
}

impl Mounted {
    /// A read-only bind mount; says so where it can not be made.
    pub fn read_only(dir: &Path, at: &Path) -> Option<Mounted> {
        std::fs::create_dir_all(at).unwrap();
        let run = |args: &[&std::ffi::OsStr]| {
            Command::new("mount").args(args).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
        };
        if !run(&["--bind".as_ref(), dir.as_os_str(), at.as_os_str()]) {
            skipped("a read-only mount: mounting needs root");
            return None;
        }
        let mounted = Mounted { at: at.to_path_buf(), server: None };
        assert!(run(&["-o".as_ref(), "remount,ro,bind".as_ref(), at.as_os_str()]));
        assert!(std::fs::write(at.join("x"), "").is_err(), "it can be written to");
        Some(mounted)
    }

    /// The directory through bindfs, which this process can stop; says so where there is no FUSE. Where CI
    /// asks for all tests and there is FUSE, a missing bindfs is a failure.
    pub fn bindfs(dir: &Path, at: &Path) -> Option<Mounted> {
        std::fs::create_dir_all(at).unwrap();
        let installed = Command::new("bindfs").arg("--version").output().is_ok_and(|out| out.status.success());
        let fuse = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
        if !installed || !fuse {
            let all = std::env::var("CI").as_deref() == Ok("true") && fuse && rustix::process::geteuid().is_root();
            assert!(!all, "bindfs is missing: apt-get install bindfs");
            skipped(if fuse { "bindfs: not installed (apt-get install bindfs)" } else { "bindfs: no /dev/fuse here" });
            return None;
        }
        let child = Command::new("bindfs")
            .args(["-f", "--no-allow-other"])
            .args([dir, at])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut mounted = Mounted { at: at.to_path_buf(), server: Some(child) };
        let until = Instant::now() + Duration::from_secs(20);
        while !mounted.is_there() {
            let ended = mounted.server.as_mut().unwrap().try_wait().unwrap();
            if ended.is_some() && std::env::var("CI").as_deref() != Ok("true") {
                skipped("bindfs: it can not mount here");
                return None;
            }
            assert!(ended.is_none() && Instant::now() < until, "bindfs does not mount: {ended:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(mounted)
    }

    fn is_there(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let at = self.at.to_str().unwrap();
        mounts.lines().any(|line| line.split(' ').nth(4) == Some(at))
    }

    fn signal(&self, name: &str) {
        let pid = self.server.as_ref().unwrap().id();
        assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
    }

    /// From now on nobody answers.
    pub fn hang(&self) {
        self.signal("-STOP");
    }

    /// It answers again.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever still waits for it is let go.
        if self.server.is_some() {
            self.signal("-CONT");
        }
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
