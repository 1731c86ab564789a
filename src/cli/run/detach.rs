//! `d`: the run goes on without a terminal, in this same process.
//!
//! No second process takes over: trials at work hang on this one. It gives the terminal up for good: its
//! output goes to a file, keys typed there mean others, SIGHUP is heard and ends nothing. A shell with job
//! control gets its prompt back: it is shown a process that stops, which a helper lets go on at once, in
//! the background.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use tokio::runtime::Runtime;

use super::headless::{Ears, Output};
use super::owner::Owner;
use crate::cli::ctl::place::name_of;

/// Files of the login manager that may say what a logout ends, the last word last.
const CONFIGS: [&str; 6] = [
    "/usr/lib/systemd/logind.conf",
    "/usr/lib/systemd/logind.conf.d",
    "/usr/local/lib/systemd/logind.conf.d",
    "/run/systemd/logind.conf.d",
    "/etc/systemd/logind.conf",
    "/etc/systemd/logind.conf.d",
];
/// Most that is read of one, in bytes.
const CONFIG: u64 = 1 << 20;

/// Leaves the terminal: says where the run is found, then goes.
pub fn leave(owner: &Owner, out: Output, ears: &mut Ears, runtime: &Runtime) {
    let dir = std::path::absolute(&owner.dir).unwrap_or_else(|_| owner.dir.clone());
    let log = log(&owner.id);
    let place = log.as_ref().map_or("nowhere".to_string(), |(path, _)| path.display().to_string());
    out.say(&format!("detached: the run goes on as pid {}; its output: {place}", std::process::id()));
    if has_a_shell() {
        out.say("the shell gets the terminal back: its word Stopped holds for a moment, then the run goes on");
    }
    out.say(&format!("  pilothouse attach {}", dir.display()));
    out.say(&format!("  pilothouse ctl {} status", dir.display()));
    if let Some(why) = logout() {
        out.say(&format!("! {why}"));
    }
    let detached = {
        let _inside = runtime.enter();
        ears.detach()
    };
    if let Err(error) = detached {
        tracing::warn!(%error, "keys of the terminal still reach the run");
    }
    give_up_terminal(log.map(|(_, file)| file));
    tracing::info!("detached");
    background();
}

/// The file for what would go to the terminal.
fn log(id: &str) -> Option<(PathBuf, File)> {
    let dir = crate::cli::state_dir()?.join("detached");
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    let path = dir.join(Path::new(&name_of(id)).with_extension("log"));
    let file = made.and_then(|()| OpenOptions::new().create(true).append(true).mode(0o600).open(&path));
    file.inspect_err(|error| tracing::error!(%error, path = %path.display(), "no file for the output"))
        .ok()
        .map(|f| (path, f))
}

fn give_up_terminal(log: Option<File>) {
    // A directory: the thread that waits for keys, should one wake it, gets an error and ends, where it
    // would otherwise take a key that is meant for the shell, and be stopped for it.
    let nothing = File::open("/");
    let out = log.or_else(|| OpenOptions::new().write(true).open("/dev/null").ok());
    if let Ok(nothing) = nothing
        && let Err(error) = rustix::stdio::dup2_stdin(&nothing)
    {
        tracing::warn!(%error, "standard input stays");
    }
    if let Some(out) = out {
        let done = rustix::stdio::dup2_stdout(&out).and_then(|()| rustix::stdio::dup2_stderr(&out));
        if let Err(error) = done {
            tracing::warn!(%error, "standard output stays");
        }
    }
}

/// Whether a shell with job control waits for this process: it gave it a process group of its own.
fn has_a_shell() -> bool {
    let me = Pid::as_raw(Some(rustix::process::getpid()));
    own_group_and_session().is_some_and(|(group, session)| group == me && session != me)
}

/// Process group and session of this process; 0 for one that belongs to another PID namespace, which the
/// system calls of the crate take for impossible.
#[cfg(target_os = "linux")]
pub fn own_group_and_session() -> Option<(i32, i32)> {
    let stat = crate::job::process::ProcessStat::parse(&std::fs::read("/proc/self/stat").ok()?)?;
    Some((stat.group, stat.session))
}

/// Process group and session of this process.
#[cfg(not(target_os = "linux"))]
pub fn own_group_and_session() -> Option<(i32, i32)> {
    let session = rustix::process::getsid(None).ok()?;
    Some((Pid::as_raw(Some(rustix::process::getpgrp())), Pid::as_raw(Some(session))))
}

/// Goes into the background where a shell with job control waits for this process.
fn background() {
    if !has_a_shell() {
        return;
    }
    let me = rustix::process::getpid();
    // It outlives a terminal that is closed right now, and tries more than once.
    let number = Pid::as_raw(Some(me));
    let script = format!("trap '' HUP; for wait in 0.2 0.5 1 2; do sleep $wait; kill -CONT {number} || exit; done");
    let mut helper = Command::new("/bin/sh");
    helper.arg("-c").arg(script).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut helper, 0);
    match helper.spawn() {
        Ok(mut helper) => {
            // Never stopped without somebody who lets it go on.
            if !matches!(helper.try_wait(), Ok(None)) {
                return;
            }
            if let Err(error) = rustix::process::kill_process(me, Signal::STOP) {
                tracing::warn!(%error, "the shell keeps waiting");
            }
            let _ = std::thread::Builder::new().name("helper".into()).spawn(move || helper.wait());
        }
        Err(error) => tracing::warn!(%error, "the shell keeps waiting"),
    }
}

/// Why the login manager would end this process at logout, in words; None: it would not, or that can not be
/// told.
pub fn logout() -> Option<String> {
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let user = crate::journal::user();
    let lingers = Path::new("/var/lib/systemd/linger").join(&user).exists();
    ends_at_logout(&cgroup, &configs(), &user, lingers)
}

/// The texts of the login manager's configuration, the last word last.
fn configs() -> Vec<String> {
    use std::io::Read;
    let text = |path: PathBuf| {
        let meta = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file);
        meta.and_then(|_| File::open(&path).ok()).and_then(|file| {
            let mut text = String::new();
            file.take(CONFIG).read_to_string(&mut text).ok().map(|_| text)
        })
    };
    let mut out = Vec::new();
    for path in CONFIGS.map(PathBuf::from) {
        if path.is_dir() {
            let mut parts: Vec<PathBuf> =
                std::fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()).collect();
            parts.retain(|part| part.extension().is_some_and(|e| e == "conf"));
            parts.sort();
            out.extend(parts.into_iter().filter_map(text));
        } else {
            out.extend(text(path));
        }
    }
    out
}

/// The rule: a process of a login session ends with it where `KillUserProcesses` says so for its user; one
/// of the user's own manager ends with the last session, unless the user lingers.
pub fn ends_at_logout(cgroup: &str, configs: &[String], user: &str, lingers: bool) -> Option<String> {
    let setting = |name: &str| {
        let lines = configs.iter().flat_map(|text| text.lines());
        let of = |line: &str| Some(line.trim().strip_prefix(name)?.trim_start().strip_prefix('=')?.trim().to_string());
        lines.filter_map(of).next_back()
    };
    let listed = |list: Option<String>| list.is_some_and(|list| list.split_whitespace().any(|name| name == user));
    let in_session = cgroup.lines().any(|line| line.contains("/session-") && line.contains(".scope"));
    let in_manager = cgroup.lines().any(|line| line.contains("/user@"));
    let kills =
        setting("KillUserProcesses").is_some_and(|v| matches!(&*v.to_ascii_lowercase(), "yes" | "true" | "on" | "1"));
    let only = setting("KillOnlyUsers").filter(|list| !list.is_empty());
    // Root is spared unless somebody says otherwise.
    let spared = setting("KillExcludeUsers").or(Some("root".to_string()));
    if in_session && kills && (only.is_none() || listed(only)) && !listed(spared) {
        return Some(
            "the login manager ends your processes at logout (KillUserProcesses=yes): begin such a run with \
             systemd-run --user --scope, and let your user linger (loginctl enable-linger)"
                .to_string(),
        );
    }
    (in_manager && !in_session && !lingers).then(|| {
        format!("your user manager ends at your last logout, and this process with it: loginctl enable-linger {user}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logout_ends_what_the_login_manager_says() {
        let (session, manager) = (
            "0::/user.slice/user-7.slice/session-3.scope\n",
            "0::/user.slice/user-7.slice/user@7.service/app.slice/x.scope",
        );
        let kill = || vec!["[Login]\nKillUserProcesses=yes\n".to_string()];
        let with = |more: &str| kill().into_iter().chain([more.to_string()]).collect::<Vec<_>>();
        assert!(ends_at_logout(session, &kill(), "me", true).is_some_and(|w| w.contains("KillUserProcesses")));
        assert_eq!(ends_at_logout(session, &kill(), "root", false), None);
        assert_eq!(ends_at_logout(session, &[], "me", false), None);
        assert_eq!(ends_at_logout(session, &with("KillUserProcesses = no"), "me", false), None, "the last word counts");
        assert_eq!(ends_at_logout(session, &with("#KillUserProcesses=no\nKillExcludeUsers=me you"), "me", false), None);
        assert_eq!(ends_at_logout(session, &with("KillOnlyUsers=you"), "me", false), None);
        assert!(ends_at_logout(manager, &[], "me", false).is_some_and(|w| w.contains("enable-linger me")));
        assert_eq!(ends_at_logout(manager, &[], "me", true), None);
        assert_eq!(ends_at_logout("0::/system.slice/ssh.service", &kill(), "me", false), None);
    }
}
