//! A smoke in real tmux.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::support::{self, job::Job};
use super::{SOON, STATE};

struct Tmux(String);

impl Tmux {
    fn run(&self, arguments: &[&str]) -> std::io::Result<Output> {
        Command::new("tmux")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .env(STATE.0, STATE.1)
            .args(["-u", "-L", &self.0])
            .args(arguments)
            .output()
    }

    fn say(&self, format: &str) -> String {
        let out = self.run(&["display-message", "-p", format]).unwrap();
        String::from_utf8_lossy(&out.stdout).trim().to_string()
    }

    fn pane(&self) -> String {
        String::from_utf8_lossy(&self.run(&["capture-pane", "-p"]).unwrap().stdout).into_owned()
    }

    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !holds(&self.pane()) {
            assert!(began.elapsed() < SOON, "no {what} in\n{}", self.pane());
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    fn keys(&self, keys: &[&str]) {
        let mut all = vec!["send-keys"];
        all.extend_from_slice(keys);
        assert!(self.run(&all).unwrap().status.success());
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.run(&["kill-server"]);
    }
}

#[test]
fn in_tmux_it_opens_moves_copies_and_leaves_the_pane_as_it_was() {
    if support::tmux().is_none() {
        return;
    }
    let job = Job::finished("night-run");
    let tmux = Tmux(format!("pilothouse-e2e-{}", std::process::id()));
    let conf = job.dir.parent().unwrap().join("conf");
    std::fs::write(&conf, "set -g default-terminal screen-256color\nset -g escape-time 10\n").unwrap();
    let started = tmux.run(&[
        "-f",
        conf.to_str().unwrap(),
        "new-session",
        "-d",
        "-x",
        "110",
        "-y",
        "32",
        "env PS1='prompt> ' sh -i",
    ]);
    assert!(started.as_ref().is_ok_and(|o| o.status.success()), "{started:?}");
    tmux.wait("prompt", |text| text.contains("prompt>"));
    let line = format!("'{}' attach '{}'; echo code=$?", env!("CARGO_BIN_EXE_pilothouse"), job.arg());
    tmux.keys(&["-l", &line]);
    tmux.keys(&["Enter"]);
    tmux.wait("the list", |text| text.contains("alpha-task") && text.contains("finished"));
    assert_eq!(tmux.say("#{alternate_on} #{cursor_flag}"), "1 0");
    tmux.keys(&["Down", "j", "Up"]);
    tmux.keys(&["y"]);
    tmux.wait("the notice", |text| text.contains("via tmux"));
    let buffer = tmux.run(&["show-buffer"]).unwrap();
    assert!(String::from_utf8_lossy(&buffer.stdout).contains("-task__"), "{buffer:?}");
    tmux.keys(&["Enter"]);
    tmux.wait("the trial", |text| !text.contains("1 Trials") && text.contains("-task"));
    // Escape alone is a key, too, in spite of tmux's waiting.
    tmux.keys(&["Escape"]);
    tmux.wait("the list again", |text| text.contains("1 Trials"));
    tmux.keys(&["q"]);
    tmux.wait("the shell", |text| text.contains("code=0") && !text.contains("alpha-task"));
    assert_eq!(tmux.say("#{alternate_on} #{cursor_flag} #{mouse_any_flag}"), "0 1 0");
    assert!(tmux.pane().contains("prompt>"), "{}", tmux.pane());
}
