//! Real tmux as a judge of the screen.

use std::io;
use std::time::{Duration, Instant};

use pilothouse::cast::Target;

use super::{events, load, support};

struct Tmux(String);

impl Tmux {
    fn run(&self, arguments: &[&str]) -> io::Result<std::process::Output> {
        std::process::Command::new("tmux")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .args(["-u", "-L", &self.0])
            .args(arguments)
            .output()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.run(&["kill-server"]);
    }
}

#[test]
fn the_final_screen_is_what_tmux_shows() {
    let Some(shared) = support::shared() else { return };
    if support::tmux().is_none() {
        return;
    }
    for file in ["demo.cast", "welcome.cast", "agg-demo.cast", "clock-steps-back.cast", "long.cast"] {
        let path = shared.join("data/casts/real").join(file);
        let mut player = load(&path);
        player.seek(Target::End);
        player.work_to_end();
        let (cols, rows) = player.screen().size();

        let dir = tempfile::tempdir().unwrap();
        let output: String = events(&path).into_iter().filter(|e| e.1 == "o").map(|e| e.2).collect();
        std::fs::write(dir.path().join("bytes"), output).unwrap();
        std::fs::write(dir.path().join("conf"), "set -g status off\nset -g default-terminal screen-256color\n")
            .unwrap();
        let (conf, bytes, done) = (dir.path().join("conf"), dir.path().join("bytes"), dir.path().join("done"));
        // Raw, so that the bytes arrive as they are and answers to queries are not echoed.
        let script = format!("stty raw -echo; cat '{}'; touch '{}'; exec sleep 60", bytes.display(), done.display());
        let tmux = Tmux(format!("pilothouse-test-{}-{file}", std::process::id()));
        let (x, y) = (cols.to_string(), rows.to_string());
        let started =
            tmux.run(&["-f", conf.to_str().unwrap(), "new-session", "-d", "-x", &x, "-y", &y, "sh", "-c", &script]);
        assert!(started.as_ref().is_ok_and(|o| o.status.success()), "{started:?}");

        let capture = || String::from_utf8(tmux.run(&["capture-pane", "-p"]).unwrap().stdout).unwrap();
        let start = Instant::now();
        let (mut last, mut quiet) = (String::new(), 0);
        while quiet < 4 && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(50));
            let now = capture();
            quiet = if done.exists() && now == last { quiet + 1 } else { 0 };
            last = now;
        }
        assert!(quiet == 4, "{file}: tmux did not come to rest");
        let mut theirs: Vec<String> = last.lines().map(|l| l.trim_end().to_string()).collect();
        theirs.resize(usize::from(rows), String::new());
        assert_eq!(player.screen().text(), theirs, "{file}");
        assert!(theirs.iter().any(|l| !l.is_empty()) || file == "demo.cast", "{file} shows something");
    }
}
