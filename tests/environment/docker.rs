//! The Docker environment, where an engine answers.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::models::{ContainerCreateBody, NetworkCreateRequest};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, InspectContainerOptions, KillContainerOptions,
    ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
};
use futures_util::StreamExt;
use pilothouse::environment::docker::{
    Address, BuildSpec, ContainerSpec, DockerEngine, DockerEnvironment, Isolation, JobNetwork, NetworkChoice,
    ownership_refusal, parse_address, proxy_variables,
};
use pilothouse::environment::subnet::Pool;
use pilothouse::environment::{
    CUT_MARKER, Caps, Command, Ended, Environment, KeptKind, Labels, Life, Mount, OnTimeout, Role, Trouble, Upload,
};
use pilothouse::harbor::{Dir, OpenError};

use super::{block, failed, into, said, sh, support, tree};

const IMAGE: &str = "pilothouse-test:1";
const CAPS: Caps = Caps { bytes: 1 << 20, file_bytes: 1 << 20, entries: 100 };

/// A job of this test run alone.
fn labels(job: &str) -> Labels {
    Labels {
        job: format!("test-{}-{job}", std::process::id()),
        trial: Some(format!("{job}__abc")),
        owner: "tests".to_string(),
        role: Role::Trial,
    }
}

/// An engine and a small image in it; None, said aloud, where there is no engine. With `CI=true` its
/// absence is a failure.
async fn engine() -> Option<(DockerEngine, Docker)> {
    static WHY_NOT: OnceLock<()> = OnceLock::new();
    static IMPORT: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let engine = match DockerEngine::connect().await {
        Ok(engine) => engine,
        Err(e) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{e}");
            WHY_NOT.get_or_init(|| {
                support::skipped(&format!("Docker tests: {e}"));
            });
            return None;
        }
    };
    engine.ping().await.unwrap();
    let host = engine.address().to_string();
    let client = Docker::connect_with_host(&host).unwrap();
    let _one_at_a_time = IMPORT.lock().await;
    if engine.image(IMAGE).await.unwrap().is_none() {
        let Some(archive) = small_image() else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "no static busybox");
            support::skipped("Docker tests: no static busybox (apt-get install busybox-static)");
            return None;
        };
        let options = CreateImageOptionsBuilder::default().from_src("-").repo("pilothouse-test").tag("1").build();
        let mut import = client.create_image(Some(options), Some(bollard::body_full(archive.into())), None);
        while let Some(line) = import.next().await {
            line.unwrap();
        }
    }
    Some((engine, client))
}

/// A file system of one static program under many names.
fn small_image() -> Option<Vec<u8>> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().find_map(|p| std::fs::read(p).ok())?;
    let list = std::process::Command::new("busybox").arg("--list").output().ok()?;
    let mut tar = tar::Builder::new(Vec::new());
    let header = |kind, mode, size| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header
    };
    for dir in ["bin", "tmp", "etc", "app"] {
        let mode = if dir == "tmp" { 0o1777 } else { 0o755 };
        tar.append_data(&mut header(tar::EntryType::Directory, mode, 0), dir, std::io::empty()).unwrap();
    }
    let mut file = |path: &str, mode, data: &[u8]| {
        tar.append_data(&mut header(tar::EntryType::Regular, mode, data.len() as u64), path, data).unwrap();
    };
    file("bin/busybox", 0o755, &busybox);
    file("etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\nsomeone:x:1000:1000::/tmp:/bin/sh\n");
    for name in String::from_utf8_lossy(&list.stdout).lines().filter(|n| *n != "busybox" && !n.contains('/')) {
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        tar.append_link(&mut link, format!("bin/{name}"), "busybox").unwrap();
    }
    tar.into_inner().ok()
}

/// A started container that goes even when its test fails half-way.
struct Up(DockerEnvironment);

impl std::ops::Deref for Up {
    type Target = DockerEnvironment;

    fn deref(&self) -> &DockerEnvironment {
        &self.0
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let name = self.name().to_string();
        let removal = std::thread::spawn(move || {
            block(async {
                let client = Docker::connect_with_defaults().unwrap();
                let options = RemoveContainerOptionsBuilder::default().force(true).build();
                let _ = client.remove_container(&name, Some(options)).await;
            });
        });
        let _ = removal.join();
    }
}

async fn up(engine: &DockerEngine, spec: ContainerSpec) -> Up {
    let env = Up(DockerEnvironment::new(engine.clone(), spec).unwrap());
    env.start().await.unwrap();
    env
}

struct Logs {
    _temp: tempfile::TempDir,
    root: PathBuf,
    dir: PathBuf,
}

fn logs(spec: &mut ContainerSpec) -> Logs {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().to_path_buf();
    let dir = root.join("agent");
    std::fs::create_dir(&dir).unwrap();
    spec.mounts.push(Mount { host: dir.clone(), inside: "/logs/agent".to_string(), read_only: false });
    Logs { _temp: temp, root, dir }
}

#[test]
fn commands_run_and_end_with_their_exit_codes() {
    block(async {
        let Some((engine, client)) = engine().await else { return };
        let mut spec = ContainerSpec::new(IMAGE, labels("exec"));
        spec.env = vec![("RUN".to_string(), "container".to_string()), ("ONE".to_string(), "0".to_string())];
        spec.workdir = Some("/app".to_string());
        spec.cpus = Some(0.5);
        spec.memory = Some(64 << 20);
        spec.extra_hosts = vec!["model:10.1.2.3".to_string()];
        let env = Up(DockerEnvironment::new(engine.clone(), spec).unwrap());
        assert_eq!(failed(env.exec(&sh("true")).await).trouble, Trouble::NotRunning);
        assert_eq!(env.is_alive().await.unwrap(), Life::Absent);
        env.start().await.unwrap();
        assert_eq!(env.is_alive().await.unwrap(), Life::Alive);

        let one = vec![("ONE".to_string(), "1 ' \" $x".to_string())];
        let command = Command { env: one, ..sh("id -u; pwd; echo $RUN-$ONE; echo err >&2; exit 7") };
        assert_eq!(said(&*env, command).await, (Ended::Exited(7), "0\n/app\ncontainer-1 ' \" $x\nerr\n".to_string()));
        let command = Command {
            user: Some("someone".to_string()),
            workdir: Some("/tmp".to_string()),
            output: into("/tmp/by-someone", 100),
            ..sh("id -u; pwd; ls -ld /tmp/by-someone | cut -c1-10; grep model /etc/hosts")
        };
        assert_eq!(env.exec(&command).await.unwrap().ended, Ended::Exited(0));
        let text = env.download_file("/tmp/by-someone", 1000).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&text.data), "1000\n/tmp\n-rw-r--r--\n10.1.2.3\tmodel\n");
        // Without a file; by a signal; a child in the background that keeps the streams.
        assert_eq!(env.exec(&sh("echo nowhere; exit 2")).await.unwrap().ended, Ended::Exited(2));
        assert_eq!(env.exec(&sh("kill -15 $$")).await.unwrap().ended, Ended::Exited(143));
        let end = env.exec(&Command { output: into("/tmp/out", 100), ..sh("sleep 60 & echo on") }).await.unwrap();
        assert!(end.ended == Ended::Exited(0) && end.took < Duration::from_secs(10), "{end:?}");

        // A shell that is not there is what the command says; what keeps it from beginning is ours.
        let (ended, text) = said(&*env, Command { shell: "bash".to_string(), ..sh("true") }).await;
        assert!(ended == Ended::Exited(127) && text.contains("bash"), "{ended:?} {text}");
        for wrong in [
            Command { user: Some("nobody-here".to_string()), ..sh("true") },
            Command { output: into("/no/such/dir/out", 100), ..sh("true") },
            Command { output: into("/etc", 100), ..sh("true") },
        ] {
            let error = failed(env.exec(&wrong).await);
            assert_eq!(error.trouble, Trouble::Command, "{error:?}");
            assert!(error.to_string().contains("run a command in pilothouse-exec__abc"), "{error}");
        }
        for odd in ["/dev/null", "/proc/1/x", "relative", "/a/../b"] {
            assert_eq!(failed(env.exec(&Command { output: into(odd, 1), ..sh("true") }).await).trouble, Trouble::Path);
        }
        let answer =
            env.probe(&["sh", "-c", "yes | head -c 100000; exit 4"], None, Duration::from_secs(20)).await.unwrap();
        assert_eq!((answer.exit, answer.text.len()), (4, pilothouse::environment::PROBE_BYTES));

        // As asked for, by the engine's own word.
        let found = client.inspect_container(env.name(), None::<InspectContainerOptions>).await.unwrap();
        let host = found.host_config.unwrap();
        assert_eq!(
            (host.nano_cpus, host.memory, host.memory_swap),
            (Some(500_000_000), Some(64 << 20), Some(64 << 20))
        );
        assert_eq!((host.pids_limit, host.init, host.network_mode.as_deref()), (Some(4096), Some(true), Some("none")));
        assert_eq!(host.log_config.unwrap().config.unwrap()["max-size"], "1m");
        let text = env.describe();
        assert!(text.summary.contains("0.5 cpus, 64 MiB, no network") && text.deviations.len() == 4, "{text:?}");

        let began = Instant::now();
        env.stop().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(8), "an end is a kill, not a wait: {:?}", began.elapsed());
        env.stop().await.unwrap();
        assert_eq!(failed(env.exec(&sh("true")).await).trouble, Trouble::NotRunning);
        assert!(client.inspect_container(env.name(), None::<InspectContainerOptions>).await.is_err());
    });
}

#[test]
fn long_output_is_cut_inside_and_on_the_way_out() {
    block(async {
        let Some((engine, _)) = engine().await else { return };
        let mut spec = ContainerSpec::new(IMAGE, labels("output"));
        let logs = logs(&mut spec);
        let env = up(&engine, spec).await;
        let cap = 1 << 20;
        for (path, bytes) in [("/logs/agent/out.txt", 200_000_000), ("/tmp/out.txt", 60_000_000)] {
            let script = format!("yes 0123456789abcdef | head -c {bytes}; echo last");
            let end = env.exec(&Command { output: into(path, cap), ..sh(&script) }).await.unwrap();
            assert!(end.ended == Ended::Exited(0) && end.output_cut, "{path}: {end:?}");
            let part = env.download_file(path, 1000).await.unwrap();
            assert!(part.cut && part.data.len() == 1000 && part.data.starts_with(b"0123456789abcdef\n"));
            let whole = env.download_file(path, 1 << 30).await.unwrap();
            assert_eq!(whole.data.len() as u64, cap + CUT_MARKER.len() as u64, "{path}");
            assert!(!whole.cut && whole.data.ends_with(CUT_MARKER.as_bytes()));
        }
        assert_eq!(std::fs::metadata(logs.dir.join("out.txt")).unwrap().len(), cap + CUT_MARKER.len() as u64);
        // A tree with a huge, empty-looking file costs no more than the caps.
        env.exec(&sh("mkdir /big; echo a > /big/a; truncate -s 50G /big/b; echo c > /big/c")).await.unwrap();
        let to = logs.root.join("to");
        std::fs::create_dir(&to).unwrap();
        let began = Instant::now();
        let fetched = env.download_tree("/big", to.clone(), CAPS).await.unwrap();
        assert!(fetched.cut && fetched.bytes <= CAPS.bytes && began.elapsed() < Duration::from_secs(20), "{fetched:?}");
        assert_eq!(std::fs::read_to_string(to.join("a")).unwrap(), "a\n");
        env.stop().await.unwrap();
    });
}

#[test]
fn a_command_that_does_not_end_makes_its_container_suspect() {
    block(async {
        let Some((engine, client)) = engine().await else { return };
        let env = up(&engine, ContainerSpec::new(IMAGE, labels("late"))).await;
        let late = |on_timeout| Command {
            timeout: Some(Duration::from_millis(700)),
            on_timeout,
            output: into("/tmp/late", 100),
            ..sh("echo begun; sleep 601; echo ended")
        };
        let end = env.exec(&late(OnTimeout::Kill)).await.unwrap();
        assert_eq!((end.ended, env.suspicion()), (Ended::TimedOut, None), "a killed group is the end of it");
        let running = "ps | grep -c ' sleep 601$'";
        assert_eq!(said(&*env, sh(running)).await.1, "0\n");

        let end = env.exec(&late(OnTimeout::Leave)).await.unwrap();
        assert_eq!(end.ended, Ended::TimedOut);
        assert!(env.suspicion().unwrap().contains("did not end in 0.7 s"));
        // It answers: the verifier may still run there, beside what was left.
        assert_eq!(env.is_alive().await.unwrap(), Life::Alive);
        assert_eq!(env.suspicion(), None);
        assert_eq!(said(&*env, sh(running)).await.1, "1\n");
        assert_eq!(env.download_file("/tmp/late", 100).await.unwrap().data, b"begun\n");

        // One that does not answer stays suspect, and takes no further command.
        client.pause_container(env.name()).await.unwrap();
        assert!(env.exec(&sh("true")).await.is_err());
        assert!(matches!(env.is_alive().await.unwrap(), Life::Suspect(why) if why.contains("paused")));
        assert_eq!(failed(env.exec(&sh("true")).await).trouble, Trouble::Suspect);
        let began = Instant::now();
        env.stop().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(8));
    });
}

#[test]
fn the_memory_limit_kills_a_command_and_is_seen_while_the_container_lives() {
    block(async {
        let Some((engine, _)) = engine().await else { return };
        let mut spec = ContainerSpec::new(IMAGE, labels("memory"));
        spec.memory = Some(48 << 20);
        let env = up(&engine, spec).await;
        let end = env.exec(&sh("exec dd if=/dev/zero of=/dev/null bs=200M count=1")).await.unwrap();
        assert_eq!(end.ended, Ended::Exited(137));
        assert!(end.oom_kills >= 1, "{end:?}");
        assert_eq!(env.is_alive().await.unwrap(), Life::Alive);
        let end = env.exec(&sh("exec kill -9 $$")).await.unwrap();
        assert_eq!((end.ended, end.oom_kills), (Ended::Exited(137), 0), "another kill is not called one of memory");
        env.stop().await.unwrap();
    });
}

/// A socket before the engine's, whose connections can be cut.
struct Cutter {
    path: PathBuf,
    open: Arc<Mutex<Vec<UnixStream>>>,
    /// The answer to the next creation of a container is lost with its connection.
    loses: Arc<AtomicBool>,
}

/// Passes on what one side says; `seen` is shown every piece, and may end it.
fn pass_on(mut from: UnixStream, mut to: UnixStream, mut seen: impl FnMut(&[u8]) -> bool) {
    let mut piece = [0; 8192];
    while let Ok(n @ 1..) = from.read(&mut piece) {
        if !seen(&piece[..n]) {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
        if to.write_all(&piece[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

impl Cutter {
    fn before(engine: &str, at: PathBuf) -> Cutter {
        let listener = UnixListener::bind(&at).unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let loses = Arc::new(AtomicBool::new(false));
        let (kept, engine, losing) = (Arc::clone(&open), engine.to_string(), Arc::clone(&loses));
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let to = UnixStream::connect(&engine).unwrap();
                kept.lock().unwrap().extend([from.try_clone().unwrap(), to.try_clone().unwrap()]);
                let doomed = Arc::new(AtomicBool::new(false));
                let (a, b) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let (dooms, losing) = (Arc::clone(&doomed), Arc::clone(&losing));
                std::thread::spawn(move || {
                    pass_on(a, b, |piece| {
                        let creates = piece.windows(18).any(|w| w == b"/containers/create");
                        if creates && losing.swap(false, Ordering::SeqCst) {
                            dooms.store(true, Ordering::SeqCst);
                        }
                        true
                    });
                });
                std::thread::spawn(move || pass_on(to, from, |_| !doomed.load(Ordering::SeqCst)));
            }
        });
        Cutter { path: at, open, loses }
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_creation_whose_answer_was_lost_makes_one_container() {
    block(async {
        let Some((engine, client)) = engine().await else { return };
        let Address::Unix(socket) = engine.address().clone() else { return };
        let temp = tempfile::tempdir().unwrap();
        let cutter = Cutter::before(&socket, temp.path().join("d.sock"));
        let engine = DockerEngine::connect_to(Address::Unix(cutter.path.display().to_string())).await.unwrap();
        let labels = labels("lost");
        cutter.loses.store(true, Ordering::SeqCst);
        let env = up(&engine, ContainerSpec::new(IMAGE, labels.clone())).await;
        assert!(!cutter.loses.load(Ordering::SeqCst), "an answer was lost");
        assert_eq!(env.exec(&sh("exit 3")).await.unwrap().ended, Ended::Exited(3));
        let mine = format!("pilothouse.job={}", labels.job);
        let filters = HashMap::from([("label".to_string(), vec![mine])]);
        let all = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        assert_eq!(client.list_containers(Some(all)).await.unwrap().len(), 1);
        env.stop().await.unwrap();
    });
}

#[test]
fn events_are_followed_again_after_the_connection_broke() {
    block(async {
        let Some((engine, _)) = engine().await else { return };
        let Address::Unix(socket) = engine.address().clone() else { return };
        let temp = tempfile::tempdir().unwrap();
        let cutter = Cutter::before(&socket, temp.path().join("d.sock"));
        let engine = DockerEngine::connect_to(Address::Unix(cutter.path.display().to_string())).await.unwrap();
        let mut spec = ContainerSpec::new(IMAGE, labels("events"));
        spec.memory = Some(48 << 20);
        let env = up(&engine, spec).await;
        let hog = sh("exec dd if=/dev/zero of=/dev/null bs=200M count=1");
        // Once with the first connection, twice after a cut; what happens meanwhile is asked for again.
        for round in 1..=3 {
            let end = env.exec(&hog).await.unwrap();
            assert!(end.ended == Ended::Exited(137) && end.oom_kills == 1, "round {round}: {end:?}");
            cutter.cut();
        }
        // A command whose connection is cut is still asked about.
        let command = sh("sleep 2; exit 9");
        let cut = async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            cutter.cut();
        };
        let (end, ()) = tokio::join!(env.exec(&command), cut);
        assert_eq!(end.unwrap().ended, Ended::Exited(9));
        env.stop().await.unwrap();
    });
}

#[test]
fn a_fork_bomb_stays_within_its_limit() {
    block(async {
        let Some((engine, client)) = engine().await else { return };
        let mut spec = ContainerSpec::new(IMAGE, labels("bomb"));
        spec.pids = 64;
        spec.cpus = Some(0.5);
        let env = up(&engine, spec).await;
        let bomb = Command { timeout: Some(Duration::from_secs(3)), ..sh("f() { f | f & }; f; sleep 600") };
        // It may end by its own failure, or by its time.
        let _ = env.exec(&bomb).await;
        let top = client.top_processes(env.name(), None::<bollard::query_parameters::TopOptions>).await.unwrap();
        let processes = top.processes.unwrap().len();
        assert!(processes <= 64, "{processes}");
        let began = Instant::now();
        env.stop().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    });
}

#[test]
fn no_network_has_no_way_out_and_neighbours_do_not_reach_each_other() {
    block(async {
        let Some((engine, client)) = engine().await else { return };
        let labels = labels("network");
        let env = up(&engine, ContainerSpec::new(IMAGE, labels.clone())).await;
        let (_, text) =
            said(&*env, sh("wc -l < /proc/net/route; ls /sys/class/net; nc -w 2 1.1.1.1 53 </dev/null")).await;
        assert!(text.starts_with("1\nlo\n") && text.contains("unreachable"), "{text}");
        env.stop().await.unwrap();

        let pool = Pool::new("10.213.64.0/24".parse().unwrap(), 28).unwrap();
        let network = engine.job_network(&labels, Some(&pool)).await.unwrap();
        assert!(network.subnet.unwrap().to_string().starts_with("10.213.64."), "{network:?}");
        assert_eq!(engine.job_network(&labels, None).await.unwrap(), network, "a job has one");
        let apart = engine.probe_isolation(&network, IMAGE, &labels).await;
        // The same question in a network that lets neighbours through: it can tell.
        let name = format!("pilothouse-test-open-{}", std::process::id());
        let request = NetworkCreateRequest { name: name.clone(), ..NetworkCreateRequest::default() };
        let id = client.create_network(request).await.unwrap().id;
        let open = JobNetwork { name, id, subnet: None };
        let answer = engine.probe_isolation(&open, IMAGE, &labels).await;
        engine.remove_network(&open).await.unwrap();
        engine.remove_network(&network).await.unwrap();
        engine.remove_network(&network).await.unwrap();
        assert_eq!(answer.unwrap(), Isolation::NotEnforced);
        let filter = std::fs::read_to_string("/proc/sys/net/bridge/bridge-nf-call-iptables");
        if filter.is_ok_and(|f| f.trim() == "1") {
            assert_eq!(apart.unwrap(), Isolation::Enforced);
        } else {
            support::skipped("neighbours kept apart: this host does not filter bridged traffic");
        }
    });
}

#[test]
fn a_full_pool_is_named_with_the_way_out() {
    block(async {
        let Some((engine, _)) = engine().await else { return };
        let pool = Pool::new("10.213.96.0/28".parse().unwrap(), 29).unwrap();
        let one = engine.job_network(&labels("pool-1"), Some(&pool)).await.unwrap();
        let two = engine.job_network(&labels("pool-2"), Some(&pool)).await.unwrap();
        let three = engine.job_network(&labels("pool-3"), Some(&pool)).await;
        engine.remove_network(&one).await.unwrap();
        engine.remove_network(&two).await.unwrap();
        let error = failed(three);
        assert_eq!(error.trouble, Trouble::AddressPool);
        let text = error.to_string();
        assert!(
            text.contains("10.213.96.0/28 in /29 (2 networks in all)") && text.contains("pilothouse clean"),
            "{text}"
        );
    });
}

#[test]
fn files_of_a_hostile_container_lead_nowhere() {
    block(async {
        let Some((engine, _)) = engine().await else { return };
        let mut spec = ContainerSpec::new(IMAGE, labels("hostile"));
        let logs = logs(&mut spec);
        let victim = logs.root.join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        let env = up(&engine, spec).await;
        let script = format!(
            "cd /logs/agent; ln -s /etc/passwd reward.txt; mkfifo reward.json; ln -s {} out.txt; mkfifo out2.txt; \
             ln -s / root; echo real > real; ln real twin; mkdir d; echo in > d/in; mknod null c 1 3",
            victim.display()
        );
        assert_eq!(env.exec(&sh(&script)).await.unwrap().ended, Ended::Exited(0));
        for (name, word) in
            [("reward.txt", "symbolic link"), ("reward.json", "FIFO"), ("null", "device"), ("d", "directory")]
        {
            let error = failed(env.download_file(&format!("/logs/agent/{name}"), 100).await);
            assert!(error.trouble == Trouble::Path && error.detail.contains(word), "{error}");
        }
        assert_eq!(failed(env.download_file("/logs/agent/none", 1).await).trouble, Trouble::NotFound);
        assert_eq!(failed(env.download_tree("/logs/agent/root", logs.root.clone(), CAPS).await).trouble, Trouble::Path);
        // The readers of the mounted directory itself.
        let dir = Dir::open(&logs.dir).unwrap();
        assert!(matches!(dir.read("reward.txt", 100), Err(OpenError::Symlink)));
        assert!(matches!(dir.read("reward.json", 100), Err(OpenError::NotRegular("a FIFO"))));
        assert!(matches!(dir.read("root/etc/passwd", 100), Err(OpenError::Symlink)));

        // Into a directory that holds a trap of its own under one of the names.
        let to = logs.root.join("to");
        std::fs::create_dir(&to).unwrap();
        std::os::unix::fs::symlink(&victim, to.join("real")).unwrap();
        let fetched = env.download_tree("/logs/agent", to.clone(), CAPS).await.unwrap();
        let names = fetched.skipped_names.join(", ");
        for name in ["reward.txt (a symbolic link)", "reward.json (a FIFO)", "real (there already)", "null"] {
            assert!(names.contains(name), "{name}: {names}");
        }
        assert_eq!(std::fs::read_to_string(to.join("d/in")).unwrap(), "in\n");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");

        // Output goes to a new file in the place of the trap, and no command hangs at a FIFO.
        for name in ["out.txt", "out2.txt"] {
            let command = Command { output: into(&format!("/logs/agent/{name}"), 100), ..sh("echo out") };
            assert_eq!(env.exec(&command).await.unwrap().ended, Ended::Exited(0));
            assert_eq!(dir.read(name, 100).unwrap().data, b"out\n");
        }
        // An upload replaces a link instead of following it.
        env.upload(Upload::Bytes(b"new".to_vec(), 0o644), "/logs/agent/reward.txt").await.unwrap();
        assert_eq!(dir.read("reward.txt", 100).unwrap().data, b"new");
        assert_eq!(said(&*env, sh("grep -c root /etc/passwd")).await.1, "1\n");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
        env.stop().await.unwrap();
    });
}

#[test]
fn uploads_belong_to_root_and_links_stay_links() {
    block(async {
        let Some((engine, _)) = engine().await else { return };
        let mut spec = ContainerSpec::new(IMAGE, labels("upload"));
        let logs = logs(&mut spec);
        tree(&logs.root.join("tests"));
        std::os::unix::fs::chown(logs.root.join("tests/test.sh"), Some(1234), Some(1234)).ok();
        let env = up(&engine, spec).await;
        // A new directory, and one that is there with a mode of its own.
        env.exec(&sh("mkdir -m 0777 /app/there")).await.unwrap();
        for to in ["/tests", "/app/there", "/tests"] {
            let packed = env.upload(Upload::Dir(logs.root.join("tests")), to).await.unwrap();
            assert_eq!((packed.files, packed.skipped.as_slice()), (3, ["fifo".to_string()].as_slice()));
        }
        env.upload(Upload::Bytes(b"one".to_vec(), 0o700), "/new/deep/one").await.unwrap();
        let script = "/tests/test.sh; stat -c '%u:%g %a' /tests /app/there /tests/test.sh /new/deep/one; \
            cat /app/there/sub/data.txt /new/deep/one; readlink /tests/out; ls /tests/sub | wc -l";
        let (_, text) = said(&*env, sh(&format!("sh {script}"))).await;
        assert_eq!(text, "tested\n0:0 755\n0:0 777\n0:0 755\n0:0 700\ndata\none../secret\n3\n");
        // Nothing at all: the directory is made, or stays as it is.
        let hollow = logs.root.join("hollow");
        std::fs::create_dir(&hollow).unwrap();
        for to in ["/hollow", "/app/there"] {
            assert_eq!(env.upload(Upload::Dir(hollow.clone()), to).await.unwrap().files, 0);
        }
        let (_, text) =
            said(&*env, sh("stat -c '%F %a' /hollow /app/there; ls /hollow; cat /app/there/sub/data.txt")).await;
        assert_eq!(text, "directory 755\ndirectory 777\ndata\n");
        // More than one piece.
        let large: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(hollow.join("large"), &large).unwrap();
        env.upload(Upload::Dir(hollow.clone()), "/hollow").await.unwrap();
        assert_eq!(env.download_file("/hollow/large", 1 << 20).await.unwrap().data, large);
        assert_eq!(failed(env.upload(Upload::Dir(hollow), "/etc/passwd").await).trouble, Trouble::Path);
        assert!(env.upload(Upload::Dir(logs.root.join("absent")), "/tests").await.is_err());
        assert_eq!(
            failed(env.upload(Upload::Dir(logs.root.join("tests")), "/etc/passwd").await).trouble,
            Trouble::Path
        );
        let to = logs.root.join("back");
        std::fs::create_dir(&to).unwrap();
        let fetched = env.download_tree("/tests", to.clone(), CAPS).await.unwrap();
        assert_eq!((fetched.files, fetched.skipped, fetched.cut), (3, 1, false));
        assert_eq!(std::fs::metadata(to.join("test.sh")).unwrap().mode() & 0o777, 0o755);
        env.download_tree("/tests/sub/data.txt", to.clone(), CAPS).await.unwrap();
        assert_eq!(std::fs::read_to_string(to.join("data.txt")).unwrap(), "data\n");
        env.stop().await.unwrap();
    });
}

#[test]
fn mounted_files_are_handed_over_and_a_missing_source_is_not_made() {
    block(async {
        let Some((engine, client)) = engine().await else { return };
        let mut spec = ContainerSpec::new(IMAGE, labels("owner"));
        let logs = logs(&mut spec);
        spec.owner = Some((1234, 1235));
        spec.mounts.push(Mount { host: logs.root.clone(), inside: "/extra".to_string(), read_only: true });
        std::fs::write(logs.root.join("outside"), "x").unwrap();
        let missing = ContainerSpec {
            mounts: vec![Mount { host: logs.root.join("no"), inside: "/no".to_string(), read_only: false }],
            ..spec.clone()
        };
        let env = up(&engine, spec).await;
        let script =
            "cd /logs/agent; mkdir -m 700 d; echo a > d/a; chmod 600 d/a; ln -s /extra/outside out; touch /extra/x";
        let by = Command { user: Some("someone".to_string()), ..sh(script) };
        assert_eq!(env.exec(&by).await.unwrap().ended, Ended::Exited(1), "a read-only volume takes nothing");
        env.hand_over().await.unwrap();
        let owner = |path: &str| {
            let meta = std::fs::symlink_metadata(logs.dir.join(path)).unwrap();
            (meta.uid(), meta.gid())
        };
        assert_eq!([owner("d"), owner("d/a"), owner("out")], [(1234, 1235); 3]);
        assert_ne!(std::fs::metadata(logs.root.join("outside")).unwrap().uid(), 1234);
        // When it is dead, another container does it, and goes.
        env.exec(&sh("mkdir /logs/agent/late")).await.unwrap();
        client.kill_container(env.name(), None::<KillContainerOptions>).await.unwrap();
        assert_eq!(owner("late"), (0, 0));
        env.hand_over().await.unwrap();
        assert_eq!(owner("late"), (1234, 1235));
        env.stop().await.unwrap();
        assert!(engine.kept(Some(&labels("owner").job)).await.unwrap().is_empty());

        let env = DockerEnvironment::new(engine.clone(), missing).unwrap();
        let error = failed(env.start().await);
        assert_eq!(error.trouble, Trouble::Mount, "{error}");
        assert!(!logs.root.join("no").exists());
        env.stop().await.unwrap();
    });
}

#[test]
fn the_end_of_a_container_is_noticed() {
    block(async {
        let Some((engine, client)) = engine().await else { return };
        let env = up(&engine, ContainerSpec::new(IMAGE, labels("killed"))).await;
        let began = Instant::now();
        let kill = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            client.kill_container(env.name(), None::<KillContainerOptions>).await.unwrap();
        };
        let command = Command { output: into("/tmp/x", 10), ..sh("sleep 600") };
        let (end, ()) = tokio::join!(env.exec(&command), kill);
        let error = failed(end);
        assert!(error.trouble == Trouble::Died && error.detail.contains("137"), "{error}");
        // In its first command: its image did run.
        assert!(!error.to_string().contains("at once"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        assert_eq!(env.is_alive().await.unwrap(), Life::Dead(Some(137)));
        assert_eq!(failed(env.exec(&sh("true")).await).trouble, Trouble::Died);
        // Removed behind our back, too.
        let options = RemoveContainerOptionsBuilder::default().force(true).build();
        client.remove_container(env.name(), Some(options)).await.unwrap();
        assert!(matches!(env.is_alive().await.unwrap(), Life::Dead(_)));
        env.stop().await.unwrap();
    });
}

#[test]
fn what_is_left_is_listed_by_label_and_only_that_is_removed() {
    block(async {
        let Some((engine, client)) = engine().await else { return };
        let labels = labels("left");
        let network = engine.job_network(&labels, None).await.unwrap();
        let mut spec = ContainerSpec::new(IMAGE, labels.clone());
        spec.network = NetworkChoice::Named(network.name.clone());
        let env = up(&engine, spec).await;
        env.exec(&sh("dd if=/dev/zero of=/data bs=1M count=3")).await.unwrap();
        // A bystander of another project, with labels of that project and one that only looks like ours.
        let name = format!("bystander-{}", std::process::id());
        let body = ContainerCreateBody {
            image: Some(IMAGE.to_string()),
            cmd: Some(vec!["sleep".to_string(), "300".to_string()]),
            labels: Some(HashMap::from([
                ("com.docker.compose.project".to_string(), "other__env".to_string()),
                ("pilothouse.job".to_string(), labels.job.clone()),
            ])),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        client.create_container(Some(options), body).await.unwrap();
        client.start_container(&name, None::<StartContainerOptions>).await.unwrap();

        let kept = engine.kept(Some(&labels.job)).await.unwrap();
        let kinds: Vec<KeptKind> = kept.iter().map(|k| k.kind).collect();
        assert_eq!(kinds, [KeptKind::Container, KeptKind::Network], "{kept:?}");
        let container = &kept[0];
        assert_eq!(container.labels, labels);
        assert!(container.running && container.name.starts_with("pilothouse-left__abc"));
        assert!(container.age.unwrap() < 60 && container.bytes.unwrap() >= 3 << 20, "{container:?}");
        assert!(kept[1].labels.trial.is_none() && kept[1].age.unwrap() < 60);
        assert!(engine.kept(None).await.unwrap().len() >= 2);

        // Another's thing under our list's name stays.
        let mut wrong = container.clone();
        wrong.labels.job = "another".to_string();
        assert_eq!(failed(engine.remove_kept(&wrong).await).trouble, Trouble::Denied);
        let mut wrong = container.clone();
        wrong.id = name.clone();
        assert_eq!(failed(engine.remove_kept(&wrong).await).trouble, Trouble::Denied);
        for thing in &kept {
            engine.remove_kept(thing).await.unwrap();
            engine.remove_kept(thing).await.unwrap();
        }
        assert!(engine.kept(Some(&labels.job)).await.unwrap().is_empty());
        let found = client.inspect_container(&name, None::<InspectContainerOptions>).await.unwrap();
        assert_eq!(found.state.unwrap().running, Some(true), "the bystander lives");
        let options = RemoveContainerOptionsBuilder::default().force(true).build();
        client.remove_container(&name, Some(options)).await.unwrap();
    });
}

#[test]
fn a_dockerfile_is_built_once_by_its_rules() {
    block(async {
        let Some((engine, _)) = engine().await else { return };
        let temp = tempfile::tempdir().unwrap();
        let context = temp.path().join("environment");
        std::fs::create_dir_all(context.join("data/cache")).unwrap();
        std::fs::write(context.join("Dockerfile"), format!("FROM {IMAGE}\nCOPY . /built\nWORKDIR /built\n")).unwrap();
        std::fs::write(context.join(".dockerignore"), "# no\n**/cache\n*.log\n!keep.log\n").unwrap();
        for file in ["data/cache/x", "data/a", "b.log", "keep.log", "c"] {
            std::fs::write(context.join(file), "1").unwrap();
        }
        let labels = labels("build").with_role(Role::Image);
        let spec = BuildSpec {
            tag: format!("pilothouse-test-built:{}", std::process::id()),
            context: context.clone(),
            labels: labels.clone(),
            timeout: Duration::from_secs(60),
            args: Vec::new(),
        };
        let lines = std::sync::Mutex::new(Vec::new());
        let note = |p: &pilothouse::environment::docker::Progress| lines.lock().unwrap().push(p.line.clone());
        let (one, two) = tokio::join!(engine.build(&spec, &note), engine.build(&spec, &note));
        let id = one.unwrap();
        assert_eq!(id, two.unwrap());
        let steps = lines.lock().unwrap().iter().filter(|l| l.starts_with("Successfully built")).count();
        assert_eq!(steps, 1, "{lines:?}");
        let env = up(&engine, ContainerSpec::new(&spec.tag, self::labels("build"))).await;
        assert_eq!(
            said(&*env, sh("pwd; find . -type f | sort")).await.1,
            "/built\n./.dockerignore\n./Dockerfile\n./c\n./data/a\n./keep.log\n"
        );
        env.stop().await.unwrap();

        std::fs::write(context.join("Dockerfile"), format!("FROM {IMAGE}\nRUN echo oh no; exit 3\n")).unwrap();
        let broken = BuildSpec { tag: "pilothouse-test-broken:1".to_string(), ..spec.clone() };
        let error = failed(engine.build(&broken, &|_| {}).await);
        assert!(error.trouble == Trouble::Build && error.to_string().contains("oh no"), "{error}");
        std::fs::remove_file(context.join("Dockerfile")).unwrap();
        let error =
            failed(engine.build(&BuildSpec { tag: "pilothouse-test-none:1".to_string(), ..spec }, &|_| {}).await);
        assert!(error.trouble == Trouble::Build && error.to_string().contains("Dockerfile"), "{error}");

        let kept = engine.kept(Some(&labels.job)).await.unwrap();
        assert_eq!(kept.iter().map(|k| k.kind).collect::<Vec<_>>(), [KeptKind::Image], "{kept:?}");
        engine.remove_kept(&kept[0]).await.unwrap();
        assert!(engine.kept(Some(&labels.job)).await.unwrap().is_empty());
    });
}

/// Builds an image from the small one and some lines.
async fn built(engine: &DockerEngine, labels: &Labels, name: &str, lines: &str) -> String {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("Dockerfile"), format!("FROM {IMAGE}\n{lines}\n")).unwrap();
    let spec = BuildSpec {
        tag: format!("pilothouse-test-{name}:{}", std::process::id()),
        context: temp.path().to_path_buf(),
        labels: labels.with_role(Role::Image),
        timeout: Duration::from_secs(60),
        args: Vec::new(),
    };
    engine.build(&spec, &|_| {}).await.unwrap();
    spec.tag
}

async fn remove_all(engine: &DockerEngine, labels: &Labels) {
    for thing in engine.kept(Some(&labels.job)).await.unwrap() {
        engine.remove_kept(&thing).await.unwrap();
    }
}

#[test]
fn a_container_that_ends_at_once_tells_what_its_image_said() {
    block(async {
        let Some((engine, _)) = engine().await else { return };
        let labels = labels("ends");
        let image = built(&engine, &labels, "ends", r#"ENTRYPOINT ["/bin/sh", "-c", "echo not today; exit 3"]"#).await;
        // The second one is not looked at after its start.
        for _ in 0..2 {
            let env = Up(DockerEnvironment::new(engine.clone(), ContainerSpec::new(&image, labels.clone())).unwrap());
            let begun = env.start().await;
            let error = match begun {
                Err(error) => error,
                Ok(()) => failed(env.exec(&sh("true")).await),
            };
            assert_eq!(error.trouble, Trouble::Died);
            let text = error.to_string();
            assert!(
                text.contains("ended at once with exit code 3: not today") && text.contains("entrypoint"),
                "{text}"
            );
            env.stop().await.unwrap();
        }
        remove_all(&engine, &labels).await;
    });
}

#[test]
fn a_name_that_comes_to_mean_another_image_has_that_ones_directory() {
    block(async {
        let Some((engine, _)) = engine().await else { return };
        let labels = labels("home");
        let image = built(&engine, &labels, "home", "WORKDIR /app").await;
        let home = async || {
            let env = up(&engine, ContainerSpec::new(&image, labels.clone())).await;
            let home = env.home();
            env.stop().await.unwrap();
            home.unwrap()
        };
        assert_eq!((home().await, home().await), ("/app".to_string(), "/app".to_string()));
        // By somebody else.
        let other = DockerEngine::connect().await.unwrap();
        assert_eq!(built(&other, &labels, "home", "WORKDIR /tmp").await, image);
        let deadline = Instant::now() + Duration::from_secs(20);
        while home().await != "/tmp" {
            assert!(Instant::now() < deadline, "it is still the directory of the image before");
        }
        remove_all(&engine, &labels).await;
    });
}

#[test]
fn images_that_are_not_to_be_had_say_so() {
    block(async {
        let Some((engine, _)) = engine().await else { return };
        assert!(engine.image(IMAGE).await.unwrap().unwrap().starts_with("sha256:"));
        assert_eq!(engine.image("pilothouse-test-absent:9").await.unwrap(), None);
        // Nobody listens there: no registry is asked.
        let error = failed(engine.pull("127.0.0.1:9/none:1", Duration::from_secs(30), &|_| {}).await);
        assert!(error.to_string().starts_with("pull image 127.0.0.1:9/none:1"), "{error}");
        let env =
            DockerEnvironment::new(engine.clone(), ContainerSpec::new("pilothouse-test-absent:9", labels("absent")))
                .unwrap();
        assert_eq!(failed(env.start().await).trouble, Trouble::Image);
        env.stop().await.unwrap();
    });
}

#[test]
fn an_engine_that_is_not_there_is_named_with_the_way_out() {
    block(async {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("docker.sock");
        let address = Address::Unix(path.display().to_string());
        let error = failed(DockerEngine::connect_to(address.clone()).await);
        assert!(error.trouble == Trouble::Unreachable && error.to_string().contains("there is no socket"), "{error}");
        // A socket that an engine left.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let error = failed(DockerEngine::connect_to(address).await);
        let text = error.to_string();
        assert!(text.contains("connection refused") && text.contains("systemctl start docker"), "{text}");
        let error = failed(DockerEngine::connect_to(Address::Tcp("127.0.0.1:9".to_string())).await);
        assert!(error.trouble == Trouble::Unreachable && error.to_string().contains("tcp://127.0.0.1:9"), "{error}");
        // One that takes the connection and says nothing.
        let silent = temp.path().join("silent.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
        let began = Instant::now();
        let error = failed(DockerEngine::connect_to(Address::Unix(silent.display().to_string())).await);
        assert_eq!(error.trouble, Trouble::TimedOut, "{error}");
        assert!(error.to_string().contains("no answer in 10 s") && began.elapsed() < Duration::from_secs(15));
    });
}

#[test]
fn addresses_and_refusals() {
    let at = |host: &str| parse_address(Some(host), false, None);
    assert_eq!(parse_address(None, false, None).unwrap().to_string(), "unix:///var/run/docker.sock");
    assert_eq!(at("unix:///run/d.sock").unwrap(), Address::Unix("/run/d.sock".to_string()));
    assert_eq!(at("tcp://10.0.0.1").unwrap(), Address::Tcp("10.0.0.1:2375".to_string()));
    assert!(at("tcp://127.0.0.1:2375").unwrap().is_local() && !at("tcp://10.0.0.1:1").unwrap().is_local());
    for (host, word) in
        [("ssh://me@host", "ssh"), ("https://host:2376", "https"), ("npipe:////x", "npipe"), ("host", "no address")]
    {
        let error = at(host).unwrap_err();
        assert!(
            error.trouble == Trouble::Unsupported && error.detail.contains(word) && !error.remedy.is_empty(),
            "{error}"
        );
    }
    assert!(parse_address(Some("tcp://h:2376"), true, None).unwrap_err().detail.contains("TLS"));
    assert!(parse_address(None, false, Some("remote")).unwrap_err().detail.contains("DOCKER_CONTEXT=remote"));
    assert!(parse_address(None, false, Some("default")).is_ok());

    let security = |words: &[&str]| words.iter().map(|w| (*w).to_string()).collect::<Vec<_>>();
    assert!(ownership_refusal(&security(&["name=seccomp,profile=default"])).is_none());
    for shifted in ["name=rootless", "name=userns"] {
        let error = ownership_refusal(&security(&["name=seccomp,profile=default", shifted])).unwrap();
        assert!(error.trouble == Trouble::Unsupported && !error.remedy.is_empty());
    }
    let proxies = proxy_variables(|name| (name == "https_proxy").then(|| "http://p:1".to_string()));
    assert_eq!(proxies.iter().map(|p| p.0.as_str()).collect::<Vec<_>>(), ["HTTPS_PROXY", "https_proxy"]);
}
