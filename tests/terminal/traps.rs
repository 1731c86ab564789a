//! What was found out about terminals in containers, one test each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pilothouse::environment::docker::{ContainerSpec, DockerEnvironment};
use pilothouse::environment::{Environment, Labels, Mount, Role, Trouble};
use pilothouse::harbor::write::Folder;
use pilothouse::terminal::{FILE_CAP, Recording, Session, SessionSpec, Standing};

use super::bench::{QUIET, Up, block, run, seen, up, up_from};
use super::proxy::through_a_wire;

/// Work at once: some milliseconds in a release, the more in a build for tests.
const AT_ONCE: Duration = Duration::from_millis(250);
const SECOND: Duration = Duration::from_secs(1);

/// Most processor time that the runtime took between two turns of a task that is always ready: what
/// others had to wait for it, however busy the machine is.
struct Rounds(tokio::task::JoinHandle<()>, Arc<std::sync::Mutex<Duration>>);

fn rounds() -> Rounds {
    let most = Arc::new(std::sync::Mutex::new(Duration::ZERO));
    let to = Arc::clone(&most);
    let task = tokio::spawn(async move {
        let mut before = cpu();
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let now = cpu();
            let mut most = to.lock().unwrap();
            *most = (now - before).max(*most);
            before = now;
        }
    });
    Rounds(task, most)
}

impl Rounds {
    fn most(self) -> Duration {
        self.0.abort();
        *self.1.lock().unwrap()
    }
}

/// Processor time of this thread, which is the whole runtime.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

fn rss_kib() -> u64 {
    super::support::proc::rss_kib(std::process::id()).unwrap()
}

/// A directory of logs with a recording in it.
fn recorded(cap: u64) -> (tempfile::TempDir, Recording) {
    let dir = tempfile::tempdir().unwrap();
    let recording = Recording::begin(&Folder::open(dir.path()).unwrap(), "terminal", cap).unwrap();
    (dir, recording)
}

#[test]
fn every_byte_arrives_whatever_a_chunk_begins_with() {
    block(async {
        let Some(up) = up("bytes").await else { return };
        let program = "import os, time, tty\ntty.setraw(1)\nfor n in range(256):\n    os.write(1, bytes([n]) + b'\\x00\\x00\\x00\\xff\\xff\\xff\\xff' + bytes([n]) * 3)\n    time.sleep(0.002)\n";
        up.put("/tmp/bytes.py", program.as_bytes()).await;
        let (dir, recording) = recorded(FILE_CAP);
        let mut session = up.open_with(SessionSpec::default(), Some(recording)).await;
        session.send("python3 /tmp/bytes.py; stty sane; echo E''ND\n").await.unwrap();
        let wanted: Vec<u8> = (0..=255).flat_map(|n| [[n, 0, 0, 0].as_slice(), &[0xff; 4], &[n; 3]].concat()).collect();
        let pane = || std::fs::read(dir.path().join("terminal.pane")).unwrap();
        let deadline = Instant::now() + 20 * SECOND;
        while !pane().windows(wanted.len()).any(|w| w == wanted) {
            assert!(Instant::now() < deadline, "bytes are missing in {:?}", pane());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        session.close().await;
    });
}

#[test]
fn a_flood_is_bounded_and_its_container_can_be_removed_at_once() {
    block(async {
        let Some(up) = up("flood").await else { return };
        let cap = 256 << 10;
        let (dir, recording) = recorded(cap);
        let mut session = up.open_with(SessionSpec::default(), Some(recording)).await;
        run(&mut session, "true\n").await;
        let (before, rounds, cpu_before) = (rss_kib(), rounds(), cpu());
        session.send("yes\n").await.unwrap();
        let began = Instant::now();
        let mut probes = Duration::ZERO;
        let long = if std::env::var_os("PILOTHOUSE_LONG_FAULTS").is_some() { 30 } else { 4 };
        while began.elapsed() < long * SECOND {
            tokio::time::sleep(SECOND).await;
            let asked = Instant::now();
            assert_eq!(up.said("echo ok").await, "ok\n");
            probes = probes.max(asked.elapsed());
        }
        let (used, grown, most) = (cpu() - cpu_before, rss_kib().saturating_sub(before), rounds.most());
        // Never more than its share: half a processor of a release, so not a whole one of this build.
        assert!(used < began.elapsed(), "{used:?} of processor time");
        assert!(grown < 40 * 1024, "{grown} KiB more");
        assert!(most < AT_ONCE, "{most:?} without a turn for others");
        assert!(probes < 5 * SECOND, "{probes:?}");
        for file in ["recording.cast", "terminal.pane"] {
            let size = std::fs::metadata(dir.path().join(file)).unwrap().len();
            assert!((cap * 9 / 10..=cap).contains(&size), "{file}: {size}");
        }
        assert_eq!(session.notes().iter().filter(|n| n.contains("cut at")).count(), 2);
        // Ctrl-C gets through; the rest is what the engine had on the way.
        session.send("C-c").await.unwrap();
        assert!(session.settle(QUIET, 60 * SECOND).await, "yes goes on");
        // And a container that prints without end dies at once.
        session.send("yes\n").await.unwrap();
        tokio::time::sleep(SECOND).await;
        let closing = Instant::now();
        session.close().await;
        up.env.stop().await.unwrap();
        assert!(closing.elapsed() < 8 * SECOND, "{:?}", closing.elapsed());
    });
}

#[test]
fn a_flood_of_escape_sequences_starves_nobody() {
    block(async {
        let Some(up) = up("escapes").await else { return };
        let program = r"
import os
flood = b''.join([b'\x1b[2J\x1b[H\x1b[1;40r\x1b[999L\x1b[999M\x1b[65535b\x1b[999S\x1b[?1049h\x1b[?1049l\x1b#8',
    b'\x1b[6n\x1b[c\x1b]11;?\x07\x1b[5n', b'\x1b]0;' + b't' * 500 + b'\x07', b'e\xcc\x81' * 50, b'\x1bP' + b'q' * 300 + b'\x1b\\']) * 50
while True: os.write(1, flood)
";
        up.put("/tmp/flood.py", program.as_bytes()).await;
        let mut session = up.open().await;
        let rounds = rounds();
        session.send("stty -echo; python3 /tmp/flood.py\n").await.unwrap();
        tokio::time::sleep(5 * SECOND).await;
        let most = rounds.most();
        assert!(most < AT_ONCE, "{most:?} without a turn for others");
        let stop = up.said("pkill -9 python3; echo done").await;
        assert_eq!(stop, "done\n");
        // It may have ended within a string, which swallows what follows until it is given up.
        assert!(session.settle(QUIET, 60 * SECOND).await);
        tokio::time::sleep(6 * SECOND).await;
        run(&mut session, "C-c").await;
        run(&mut session, "reset; stty sane; echo 'still he're\n").await;
        seen(&session, "still here").await;
        session.close().await;
    });
}

#[test]
fn the_first_program_sees_the_size() {
    block(async {
        let Some(up) = up("size").await else { return };
        up.put("/etc/profile.d/size.sh", b"python3 -c 'import os; print(os.get_terminal_size(0))' >>/tmp/sizes\n")
            .await;
        for _ in 0..4 {
            let session = up.open().await;
            session.close().await;
        }
        let wanted = "os.terminal_size(columns=160, lines=40)\n".repeat(4);
        assert_eq!(String::from_utf8(up.file("/tmp/sizes").await).unwrap(), wanted);
        // Where it can not be set from inside, from outside.
        up.said("mv /bin/stty /bin/stty-gone; rm /tmp/sizes").await;
        let mut session = up.open().await;
        run(&mut session, "echo $TERM $SHELL\n").await;
        assert!(session.screen().contains("xterm-256color /usr/bin/bash"), "{}", session.screen());
        assert_eq!(String::from_utf8(up.file("/tmp/sizes").await).unwrap(), wanted[..wanted.len() / 4]);
        session.close().await;
    });
}

#[test]
fn a_line_too_long_for_the_kernel_is_noted() {
    block(async {
        let Some(up) = up("canonical").await else { return };
        let mut session = up.open().await;
        run(&mut session, "stty -echo; cat >/tmp/cut\n").await;
        session.send(&format!("{}\n", "x".repeat(6000))).await.unwrap();
        run(&mut session, "after\n").await;
        run(&mut session, "C-d").await;
        let notes = session.notes();
        assert!(
            notes.iter().any(|n| n.contains("6000 bytes") && n.contains("takes whole lines") && n.contains("4095")),
            "{notes:?}"
        );
        assert_eq!(up.file("/tmp/cut").await, format!("{}\nafter\n", "x".repeat(4095)).into_bytes());
        // At a prompt there is no such limit, and nothing to note.
        run(&mut session, "stty sane\n").await;
        run(&mut session, &format!("echo -n {} >/tmp/whole\n", "y".repeat(6000))).await;
        assert_eq!(up.file("/tmp/whole").await.len(), 6000);
        assert_eq!(session.notes(), Vec::<String>::new());
        session.close().await;
    });
}

#[test]
fn ctrl_c_behind_a_paste_that_nobody_reads_interrupts_from_outside() {
    block(async {
        let Some(up) = up("paste").await else { return };
        let mut session = up.open().await;
        run(&mut session, "sleep 1007\n").await;
        session.send(&"echo ran >>/tmp/ran\n".repeat(6100)).await.unwrap();
        tokio::time::sleep(SECOND).await;
        let sent = session.send("C-c").await.unwrap();
        assert!(sent.interrupted);
        assert!(session.settle(QUIET, 30 * SECOND).await);
        let ran = up.said("cat /tmp/ran 2>/dev/null | wc -l").await;
        assert!(ran.trim().parse::<u32>().unwrap() < 50, "{ran} of the pasted lines ran");
        assert!(session.notes().iter().any(|n| n.contains("from outside: interrupted")));
        run(&mut session, "echo 'usable a'gain\n").await;
        seen(&session, "usable again").await;
        session.close().await;
    });
}

#[test]
fn ctrl_p_and_ctrl_q_are_keys() {
    block(async {
        let Some(up) = up("detach").await else { return };
        let program = "import os, tty\ntty.setraw(0)\nwhile True: os.write(1, b'<%d>' % os.read(0, 1)[0])\n";
        up.put("/tmp/keys.py", program.as_bytes()).await;
        let mut session = up.open().await;
        run(&mut session, "clear; python3 /tmp/keys.py\n").await;
        session.send("C-p").await.unwrap();
        // At once, not with the next key.
        seen(&session, "<16>").await;
        session.send("C-q").await.unwrap();
        seen(&session, "<16><17>").await;
        session.send("C-^").await.unwrap();
        session.send("x").await.unwrap();
        seen(&session, "<16><17><30><120>").await;
        assert_eq!(session.standing().await.unwrap(), Standing::Open);
        session.close().await;
    });
}

#[test]
fn a_start_whose_answer_is_lost_is_not_repeated() {
    block(async {
        let Some(up) = up("lost").await else { return };
        let (engine, wire) = through_a_wire().await.unwrap();
        let labels = Labels {
            job: format!("test-terminal-{}-wire", std::process::id()),
            trial: Some("wire__abc".to_string()),
            owner: "tests".to_string(),
            role: Role::Trial,
        };
        let other = Up::of(DockerEnvironment::new(engine, ContainerSpec::new(super::bench::IMAGE, labels)).unwrap());
        other.env.start().await.unwrap();
        wire.swallow_starts.store(true, Ordering::SeqCst);
        let error = Session::open(other.env.clone(), SessionSpec::default(), None).await.unwrap_err();
        assert!(error.detail.contains("not begun again"), "{error}");
        assert_eq!(error.trouble, Trouble::Unreachable);
        assert_eq!(wire.starts.load(Ordering::SeqCst), 1);
        // The same wire, over TCP, when it works.
        wire.swallow_starts.store(false, Ordering::SeqCst);
        let mut session = other.open().await;
        run(&mut session, "echo over T''CP\n").await;
        seen(&session, "over TCP").await;

        // And when it breaks: the shell lives on, can not be attached to, and is ended; what ignores
        // a hangup is not.
        run(&mut session, "(sleep 5151 &); nohup sleep 6161 >/dev/null 2>&1 & setsid sleep 7171 &\n").await;
        run(&mut session, "cd /tmp; sleep 4141\n").await;
        let alive = "for n in 4141 5151 6161 7171; do pgrep -f \"^sleep $n\" >/dev/null && echo $n; done";
        assert_eq!(other.said(alive).await, "4141\n5151\n6161\n7171\n");
        wire.cut();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(other.said(alive).await, "4141\n5151\n6161\n7171\n");
        let sent = session.send("pwd\n").await.unwrap();
        assert_eq!(sent.reopened.as_deref(), Some("the connection to the shell was lost"));
        seen(&session, "[the connection to the shell was lost; this is a new one]").await;
        seen(&session, "/app").await;
        assert_eq!(other.said(alive).await, "6161\n7171\n");
        session.close().await;
        drop(up);
    });
}

#[test]
fn a_shell_that_can_not_begin_says_why() {
    block(async {
        let Some(up) = up("begin").await else { return };
        let open = |user: Option<&str>, workdir: Option<&str>| {
            let spec =
                SessionSpec { user: user.map(str::to_string), workdir: workdir.map(str::to_string), env: Vec::new() };
            Session::open(up.env.clone(), spec, None)
        };
        let error = open(Some("nosuchuser"), None).await.unwrap_err();
        assert!(error.to_string().contains("nosuchuser"), "{error}");
        let error = open(None, Some("/no/such/dir")).await.unwrap_err();
        assert!(
            error.to_string().contains("no such file or directory") || error.to_string().contains("/no/such/dir"),
            "{error}"
        );
        up.said("mv /bin/sh /bin/sh-gone").await;
        let error = open(None, None).await.unwrap_err();
        assert_eq!(error.trouble, Trouble::Command, "{error}");
        assert!(error.detail.contains("exit code 12") && error.detail.contains("\"sh\""), "{error}");
    });
}

#[test]
fn an_ended_shell_is_opened_again_and_its_survivors_live() {
    block(async {
        let Some(up) = up("exit").await else { return };
        let mut session = up.open().await;
        run(&mut session, "sleep 1111 & nohup sleep 2222 >/dev/null 2>&1 & setsid sleep 3333 & (sleep 4444 &)\n").await;
        run(&mut session, "printf '\\033[?1049h\\033]0;unfinished'; exit 7\n").await;
        assert_eq!(session.standing().await.unwrap(), Standing::Ended(Some(7)));
        let sent = session.send("echo a new o''ne\n").await.unwrap();
        assert_eq!(sent.reopened.as_deref(), Some("the shell ended with exit code 7"));
        seen(&session, "[the shell ended with exit code 7; this is a new one]").await;
        seen(&session, "a new one").await;
        let alive = "for n in 1111 2222 3333 4444; do pgrep -f \"^sleep $n\" >/dev/null && echo $n; done";
        assert_eq!(up.said(alive).await, "1111\n2222\n3333\n4444\n");
        assert!(session.incremental().to_string().contains("a new one"));

        for (ends, code) in [("kill -9 $$\n", 137), ("exec sh -c 'exit 3'\n", 3), ("C-d", 0), ("exec sleep 0.1\n", 0)] {
            // Not one that ends at once.
            tokio::time::sleep(2 * SECOND).await;
            run(&mut session, ends).await;
            assert_eq!(session.standing().await.unwrap(), Standing::Ended(Some(code)), "{ends:?}");
            assert!(session.send("true\n").await.unwrap().reopened.unwrap().ends_with(&format!("code {code}")));
            assert!(session.settle(QUIET, 20 * SECOND).await);
        }
        // tmux is nothing to this terminal.
        run(&mut session, "tmux new-session -d; tmux kill-server; echo t''mux\n").await;
        seen(&session, "tmux").await;
        assert_eq!(session.standing().await.unwrap(), Standing::Open);
        assert_eq!(up.said(alive).await, "1111\n2222\n3333\n4444\n");
        // Cancelled: those of its session end.
        run(&mut session, "sleep 5555 & setsid sleep 6666 &\n").await;
        session.cancel().await.unwrap();
        assert_eq!(up.said("pgrep -f '^sleep 5555'; pgrep -f '^sleep 6666' >/dev/null && echo lives").await, "lives\n");
    });
}

#[test]
fn a_shell_that_ends_at_once_is_tried_without_its_files() {
    block(async {
        let Some(up) = up("rc").await else { return };
        let mut session = up.open().await;
        up.said("echo 'exit 9' >>/root/.bash_profile; echo 'exit 9' >>/root/.profile").await;
        run(&mut session, "exit\n").await;
        let mut reopened = 0;
        for _ in 0..4 {
            reopened += usize::from(session.send("echo usable a''gain\n").await.unwrap().reopened.is_some());
            assert!(session.settle(QUIET, 20 * SECOND).await);
        }
        assert!(reopened >= 2, "{reopened}");
        seen(&session, "usable again").await;
        assert!(session.notes().iter().any(|n| n.contains("reads no startup files")));
        assert_eq!(session.standing().await.unwrap(), Standing::Open);
        session.close().await;
    });
}

#[test]
fn all_processes_killed_by_the_agent() {
    block(async {
        // Without an init PID 1 is the sleeper, and can not be killed from inside: only the shell is gone.
        let Some(up) = up_from(super::bench::IMAGE, "killall", |spec| spec.init = false).await else { return };
        let mut session = up.open().await;
        run(&mut session, "sleep 1111 & python3 -c 'import os; os.kill(-1, 9)'\n").await;
        let sent = session.send("echo st''ill\n").await.unwrap();
        assert_eq!(sent.reopened.as_deref(), Some("the shell ended with exit code 137"));
        seen(&session, "still").await;
        assert_eq!(up.said("pgrep -f '^sleep 1111'").await, "");
        session.close().await;
        // With one the sleeper is its child, and its end the container's.
        let up = up_from(super::bench::IMAGE, "killinit", |spec| spec.init = true).await.unwrap();
        let mut session = up.open().await;
        session.send("python3 -c 'import os; os.kill(-1, 9)'\n").await.unwrap();
        tokio::time::sleep(SECOND).await;
        let error = session.send("echo\n").await.unwrap_err();
        assert!(error.trouble == Trouble::Died && error.detail.contains("137"), "{error}");
    });
}

#[test]
fn a_dead_container_is_an_error_of_the_environment() {
    block(async {
        let Some(up) = up("dead").await else { return };
        let mut session = up.open().await;
        run(&mut session, "sleep 1008\n").await;
        let killed = std::process::Command::new("docker").args(["kill", &up.name]).output().unwrap();
        assert!(killed.status.success());
        tokio::time::sleep(Duration::from_millis(500)).await;
        let error = session.send("echo\n").await.unwrap_err();
        assert_eq!(error.trouble, Trouble::Died, "{error}");
        assert!(error.detail.contains("exited (exit code 137)"), "{error}");
        assert_eq!(session.standing().await.unwrap_err().trouble, Trouble::Died);
        let began = Instant::now();
        session.close().await;
        assert!(began.elapsed() < SECOND);
    });
}

#[test]
fn a_process_without_memory_dies_and_the_terminal_goes_on() {
    block(async {
        let with = |spec: &mut ContainerSpec| spec.memory = Some(96 << 20);
        let Some(up) = up_from(super::bench::IMAGE, "oom", with).await else { return };
        let mut session = up.open().await;
        session.send("python3 -c 'x = bytearray(10**9)'; echo co''de $?\n").await.unwrap();
        seen(&session, "code 137").await;
        assert_eq!(session.standing().await.unwrap(), Standing::Open);
        session.close().await;
    });
}

#[test]
fn other_users_and_plain_sh() {
    block(async {
        let Some(up) = up("user").await else { return };
        let spec = SessionSpec {
            user: Some("nobody".to_string()),
            workdir: Some("/tmp".to_string()),
            env: vec![("GIVEN".to_string(), "a 'b' $c".to_string())],
        };
        let mut session = up.open_with(spec, None).await;
        run(&mut session, "echo \"$(whoami):$PWD:$GIVEN:$(stty size)\"\n").await;
        assert!(session.screen().contains("nobody:/tmp:a 'b' $c:40 160"), "{}", session.screen());
        // Its size and its end are the business of root.
        run(&mut session, "sleep 1009\n").await;
        session.interrupt().await.unwrap();
        assert!(session.settle(QUIET, 10 * SECOND).await);
        assert_eq!(up.said("pgrep -f '^sleep 1009'").await, "");
        session.cancel().await.unwrap();

        let Some(plain) = up_from("pilothouse-test:1", "plain", |_| {}).await else { return };
        let mut session = plain.open().await;
        assert_eq!(session.shell(), Some("sh"));
        run(&mut session, "echo \"$0 $TERM $(stty size)\"\n").await;
        assert!(session.screen().contains("xterm-256color 40 160"), "{}", session.screen());
        run(&mut session, "sleep 1010\n").await;
        session.interrupt().await.unwrap();
        run(&mut session, "exit 4\n").await;
        assert!(session.send("echo a''gain\n").await.unwrap().reopened.is_some());
        seen(&session, "again").await;
        run(&mut session, "sleep 1234 &\n").await;
        session.cancel().await.unwrap();
        assert_eq!(plain.said("ps | grep '[s]leep 1234' | wc -l").await.trim(), "0");
    });
}

/// Asks a terminal and writes down what it answers.
const ASK: &str = r#"
import os, sys, select, tty, termios
old = termios.tcgetattr(0); tty.setraw(0)
def ask(question):
    os.write(1, question); got = b''
    while select.select([0], [], [], 0.4)[0]: got += os.read(0, 4096)
    return got
questions = [b'\x1b[5n', b'\x1b[3;7H\x1b[6n', b'\x1b[?6n', b'\x1b[c', b'\x1b[0c', b'\x1b[1c', b'\x1b[>c', b'\x1b[=c', b'\x1b[>q',
    b'\x05', b'\x1bZ', b'\x1b[x', b'\x1b[21t', b'\x1bP$qm\x1b\\', b'\x1b]4;1;?\x07',
    b'\x1b[18t', b'\x1b[?2004h\x1b[?2004$p', b'\x1b[?2004l\x1b[?2004$p', b'\x1b[?9999$p', b'\x1b]10;?\x07', b'\x1b]11;?\x1b\\']
answers = [ask(q) for q in questions]
termios.tcsetattr(0, termios.TCSADRAIN, old)
open(sys.argv[1], 'w').write(''.join(repr(a) + '\n' for a in answers))
"#;

#[test]
fn questions_are_answered_as_tmux_answers_them() {
    block(async {
        let Some(up) = up("ask").await else { return };
        up.put("/tmp/ask.py", ASK.as_bytes()).await;
        let mut session = up.open().await;
        session.send("python3 /tmp/ask.py /tmp/ours; echo E''ND\n").await.unwrap();
        seen(&session, "END").await;
        up.said("TERM=xterm-256color tmux new-session -d -x 160 -y 40 'python3 /tmp/ask.py /tmp/tmux'").await;
        up.until("tmux answers", "[ -s /tmp/tmux ]").await;
        let lines = async |path: &str| {
            let text = String::from_utf8(up.file(path).await).unwrap();
            text.lines().map(str::to_string).collect::<Vec<_>>()
        };
        let (ours, tmux) = (lines("/tmp/ours").await, lines("/tmp/tmux").await);
        assert_eq!(ours.len(), 21);
        assert_eq!(ours[..15], tmux[..15]);
        // tmux 3.3a has columns and rows the wrong way round here, knows no modes, and colours only
        // while somebody is attached.
        assert_eq!(tmux[15..], [r"b'\x1b[8;160;40t'", "b''", "b''", "b''", "b''", "b''"]);
        assert_eq!(
            ours[15..],
            [
                r"b'\x1b[8;40;160t'",
                r"b'\x1b[?2004;1$y'",
                r"b'\x1b[?2004;2$y'",
                r"b'\x1b[?9999;0$y'",
                r"b'\x1b]10;rgb:ffff/ffff/ffff\x07'",
                r"b'\x1b]11;rgb:0000/0000/0000\x1b\\'",
            ]
        );
        session.close().await;
    });
}

#[test]
fn a_megabyte_and_a_long_line_arrive_whole_while_ten_are_read() {
    block(async {
        let Some(up) = up("volume").await else { return };
        let mut session = up.open().await;
        let noise = "(head -c 10000000 /dev/zero | tr '\\0' n | fold -w 99; touch /tmp/noise-DONE) &\n";
        // Lines of all lengths up to 4,000 bytes.
        let mut text = String::new();
        let mut n = 1u64;
        while text.len() < 1_000_000 {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let length = (n >> 33) as usize % 3900;
            let line: String = (0..length).map(|i| char::from(b'!' + ((n as usize + i * 7) % 94) as u8)).collect();
            text.push_str(&format!("{line} é任\n"));
        }
        run(&mut session, "PS1='$ '; PS2=; bind 'set enable-bracketed-paste off'\n").await;
        session.send(noise).await.unwrap();
        session.send(&format!("cat >/tmp/here <<'EOF'\n{text}EOF\necho here-E''ND\n")).await.unwrap();
        up.until("the here-document is there", "[ -s /tmp/here ] && [ \"$(tail -c 1 /tmp/here | od -An -c)\" ]").await;
        let deadline = Instant::now() + 120 * SECOND;
        while up.said("wc -c </tmp/here").await.trim() != text.len().to_string() {
            assert!(Instant::now() < deadline, "{} of {}", up.said("wc -c </tmp/here").await, text.len());
            tokio::time::sleep(SECOND).await;
        }
        assert!(up.file("/tmp/here").await == text.as_bytes(), "the here-document is not the same");
        up.until("all was read", "[ -e /tmp/noise-DONE ]").await;
        assert!(session.settle(QUIET, 60 * SECOND).await);

        let line: String = (0..100_000).map(|i| char::from(b'a' + (i * 7 % 26) as u8)).collect();
        up.said("rm /tmp/noise-DONE").await;
        run(&mut session, "clear\n").await;
        session.send(noise).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        session.send(&format!("printf %s {line} >/tmp/line\n")).await.unwrap();
        let deadline = Instant::now() + 120 * SECOND;
        while up.said("wc -c </tmp/line 2>/dev/null").await.trim() != "100000" {
            assert!(Instant::now() < deadline, "{:?}", up.said("wc -c </tmp/line").await);
            tokio::time::sleep(SECOND).await;
        }
        assert!(up.file("/tmp/line").await == line.as_bytes(), "the line is not the same");
        session.close().await;
    });
}

#[test]
fn a_recording_can_be_played_and_the_container_can_not_lead_it_astray() {
    block(async {
        let root = tempfile::tempdir().unwrap();
        let agent = root.path().join("agent");
        std::fs::create_dir(&agent).unwrap();
        std::fs::write(root.path().join("secret"), "of the host").unwrap();
        let mount = Mount { host: agent.clone(), inside: "/logs/agent".to_string(), read_only: false };
        let Some(up) = up_from(super::bench::IMAGE, "record", |spec| spec.mounts = vec![mount]).await else { return };
        let recording = Recording::begin(&Folder::open(&agent).unwrap(), "terminal", FILE_CAP).unwrap();
        let mut session = up.open_with(SessionSpec::default(), Some(recording)).await;
        session.mark(0);
        run(&mut session, "echo first\n").await;
        let before = std::fs::read_to_string(agent.join("recording.cast")).unwrap();
        assert!(before.contains("first"), "the cast grows as the terminal works");
        run(&mut session, "cd /logs/agent; mv recording.cast kept.cast; ln -s ../secret recording.cast; cd /\n").await;
        session.mark(1);
        run(&mut session, "printf 'w\\303\\251rk \\344\\273'; printf '\\273 \\377done\\n'\n").await;
        let screen = session.capture().rows;
        session.close().await;
        assert_eq!(std::fs::read_to_string(root.path().join("secret")).unwrap(), "of the host");

        let file = std::fs::File::open(agent.join("kept.cast")).unwrap();
        let mut player = pilothouse::cast::Player::open(file, "kept.cast").unwrap();
        while player.work(500_000) == pilothouse::cast::Work::More {}
        let labels: Vec<&str> = player.markers().iter().map(|m| m.label.as_str()).collect();
        assert_eq!(labels, ["episode 0", "episode 1"]);
        player.seek(pilothouse::cast::Target::Percent(100.0));
        let played = player.screen().text();
        assert_eq!(player.screen().size(), (160, 40));
        assert_eq!(played, screen.iter().map(|row| row.to_string()).collect::<Vec<_>>());
        assert!(played.iter().any(|row| row == "wérk 任 done"), "{played:?}");
        let header: serde_json::Value =
            serde_json::from_str(std::fs::read_to_string(agent.join("kept.cast")).unwrap().lines().next().unwrap())
                .unwrap();
        assert_eq!((&header["version"], &header["env"]["TERM"]), (&2.into(), &"xterm-256color".into()));
    });
}
