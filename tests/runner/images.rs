//! Images of trials: built from Dockerfiles, pulled beforehand, or not to be had.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pilothouse::environment::docker::{DockerEngine, ImageNews, Pulled};
use pilothouse::environment::{EnvError, Trouble};
use pilothouse::scheduler::docker::{NeededImage, PULLS};
use pilothouse::scheduler::{DockerPlaces, Finished};
use sha2::Digest;

use crate::support;
use crate::yard::{PASS_INSIDE as PASS, Yard, class_of, docker, find, in_containers, json, left_of, nothing};

/// A task that is built from this Dockerfile.
fn built(yard: Yard, name: &str, dockerfile: &str, solve: &str, toml: &str) -> Yard {
    let yard = yard.task(name, solve, PASS, toml);
    fs::write(yard.temp.path().join("tasks").join(name).join("environment/Dockerfile"), dockerfile).unwrap();
    yard
}

fn images_of(job: &str) -> Vec<String> {
    let label = format!("label={}={job}", pilothouse::environment::labels::JOB);
    let out = docker(&["images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", &label]);
    out.lines().map(str::to_string).collect()
}

#[test]
fn a_dockerfile_is_built_once_for_a_task_under_its_own_limit() {
    // Different for every run: nothing of it may come from an earlier one.
    let salt = std::process::id();
    let good = format!("FROM tb-base:1\nRUN echo {salt} > /salt && echo built >> /built\nWORKDIR /work\n");
    let bad = "FROM tb-base:1\nRUN echo about to fail && false\n";
    let slow = format!("FROM tb-base:1\nRUN echo {salt} && sleep 60\n");
    let yard = Yard::new();
    let yard = built(yard, "Good_Task", &good, "[ $(wc -l < /built) = 1 ] && pwd && cat /salt", "");
    let yard = built(yard, "bad", bad, "true", "");
    let yard = built(yard, "slow", &slow, "true", "[environment]\nbuild_timeout_sec = 4.0");
    // Both: the image unless the build is forced.
    let image = "[environment]\ndocker_image = \"tb-base:1\"";
    let yard = built(yard, "both", &good, "[ -e /built ] && echo built || echo prebuilt", image);
    for force in [false, true] {
        let mut config = yard.config("oracle", 4);
        config.job_name = format!("job-{force}");
        config.n_attempts = 2;
        config.environment.force_build = force;
        config.environment.delete = !force;
        let Some((done, id)) = in_containers(&yard, config, nothing) else { return };
        assert_eq!(done, Finished { planned: 8, ended: 8, queued: 0, complete: true });
        let read = yard.read_job(&format!("job-{force}"));
        assert_eq!(read.end("Good_Task"), (Some(1.0), None));
        let dir = yard.temp.path().join("jobs").join(format!("job-{force}"));
        let file = |task: &str, name: &str| fs::read_to_string(dir.join(&*read.trial(task).name).join(name)).unwrap();
        assert_eq!(file("Good_Task", "agent/oracle.txt"), format!("/work\n{salt}\n"));
        assert_eq!(file("both", "agent/oracle.txt"), if force { "built\n" } else { "prebuilt\n" });
        assert_eq!(read.end("bad"), (None, Some("RuntimeError")));
        let why = file("bad", "exception.txt");
        assert!(why.contains("about to fail") && why.contains("build image"), "{why}");
        let why = file("slow", "exception.txt");
        assert_eq!(read.end("slow"), (None, Some("EnvironmentStartTimeoutError")), "{why}");
        let note: serde_json::Value = serde_json::from_str(&file("Good_Task", "pilothouse.json")).unwrap();
        assert!(note["environment"]["deviations"].to_string().contains("4096 processes"), "{note}");
        assert_eq!(left_of(&id), "");
        let left = images_of(&id);
        assert_eq!(left.len(), if force { 2 } else { 0 }, "{left:?}");
        assert!(left.iter().all(|name| name.starts_with("pilothouse/")), "{left:?}");
        for image in left {
            docker(&["rmi", "-f", &image]);
        }
    }
}

/// A registry of small images, by what their names say.
struct Registry {
    address: String,
    busy: Arc<Mutex<(BTreeSet<String>, usize)>>,
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

/// Layer, config and manifest of an image.
fn parts(name: &str) -> [Vec<u8>; 3] {
    let mut layer = tar::Builder::new(Vec::new());
    let text = format!("{name} {}", std::process::id());
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    layer.append_data(&mut header, "file", text.as_bytes()).unwrap();
    let layer = layer.into_inner().unwrap();
    let machine = if name == "other-machine" { "s390x" } else { "amd64" };
    let config = format!(
        r#"{{"architecture":"{machine}","os":"linux","config":{{}},"rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
        digest(&layer)
    )
    .into_bytes();
    let kind = "application/vnd.docker";
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{kind}.distribution.manifest.v2+json","config":{{"mediaType":"{kind}.container.image.v1+json","size":{},"digest":"{}"}},"layers":[{{"mediaType":"{kind}.image.rootfs.diff.tar.gzip","size":{},"digest":"{}"}}]}}"#,
        config.len(),
        digest(&config),
        layer.len(),
        digest(&layer)
    )
    .into_bytes();
    [layer, config, manifest]
}

impl Registry {
    fn open() -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let busy = Arc::new(Mutex::new((BTreeSet::new(), 0)));
        let shared = Arc::clone(&busy);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Registry { address, busy }
    }
}

fn serve(stream: TcpStream, busy: &Mutex<(BTreeSet<String>, usize)>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut out = stream;
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
        }
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_string());
        let (status, kind, body) = answer(&path, busy);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\r\n",
            body.len(),
            digest(&body)
        );
        let body: &[u8] = if method == "HEAD" { &[] } else { &body };
        if out.write_all(head.as_bytes()).and_then(|()| out.write_all(body)).is_err() {
            return;
        }
    }
}

fn answer(path: &str, busy: &Mutex<(BTreeSet<String>, usize)>) -> (&'static str, &'static str, Vec<u8>) {
    let plain = "application/json";
    let parts_of: Vec<&str> = path.trim_start_matches("/v2/").split('/').collect();
    let [name, what, reference] = parts_of[..] else { return ("200 OK", plain, b"{}".to_vec()) };
    match name {
        "limited" => {
            let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit."}]}"#;
            return ("429 Too Many Requests", plain, body.as_bytes().to_vec());
        }
        "missing" => {
            let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
            return ("404 Not Found", plain, body.as_bytes().to_vec());
        }
        _ => {}
    }
    let [layer, config, manifest] = parts(name);
    if what == "manifests" {
        {
            let mut busy = busy.lock().unwrap();
            busy.0.insert(name.to_string());
            busy.1 = busy.1.max(busy.0.len());
        }
        return ("200 OK", "application/vnd.docker.distribution.manifest.v2+json", manifest);
    }
    if reference == digest(&layer) {
        std::thread::sleep(Duration::from_millis(400));
        busy.lock().unwrap().0.remove(name);
        return ("200 OK", "application/octet-stream", layer);
    }
    ("200 OK", plain, config)
}

/// Removes images when a test is over.
struct Images(Vec<String>);

impl Drop for Images {
    fn drop(&mut self) {
        for image in &self.0 {
            let _ = std::process::Command::new("docker").args(["rmi", "-f", image]).output();
        }
    }
}

fn outcome<'a>(needed: &'a [NeededImage], name: &str) -> &'a Result<Pulled, EnvError> {
    &needed.iter().find(|n| n.image.contains(name)).unwrap_or_else(|| panic!("no {name}: {needed:?}")).outcome
}

#[test]
fn images_are_pulled_before_any_trial_and_what_is_not_to_be_had_is_named() {
    let registry = Registry::open();
    let names = ["one", "two", "three", "four", "five", "limited", "missing", "other-machine"];
    let mut yard = Yard::new();
    let mut images = Vec::new();
    for name in names {
        let image = format!("{}/{name}:1", registry.address);
        yard = yard.task(name, "true", PASS, &format!("[environment]\ndocker_image = \"{image}\""));
        images.push(image);
    }
    yard = yard.task("here", "true", PASS, "[environment]\ndocker_image = \"tb-base:1\"");
    let _images = Images(images);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let plan = yard.plan(yard.config("oracle", 2)).unwrap();
    let said = Mutex::new(Vec::new());
    let prepared = runtime.block_on(async {
        let engine = DockerEngine::connect().await.map_err(|e| e.to_string())?;
        engine.image("tb-base:1").await.map_err(|e| e.to_string())?.ok_or("no image tb-base:1")?;
        let news = |image: &str, news: &ImageNews| {
            let word = match news {
                ImageNews::Begun => "begun",
                ImageNews::Progress(_) => return,
                ImageNews::Done(_) => "done",
            };
            said.lock().unwrap().push(format!("{} {word}", image.rsplit('/').next().unwrap()));
        };
        let begin = Instant::now();
        let needed = DockerPlaces::prepare(&engine, &plan, &news).await;
        let again = Instant::now();
        // What failed a moment ago is not asked for again.
        let same = DockerPlaces::prepare(&engine, &plan, &|_, _| {}).await;
        Ok::<_, String>((needed, same, again - begin, again.elapsed()))
    });
    let (needed, same, _, took) = match prepared {
        Ok(done) => done,
        Err(why) => return support::skipped(&format!("pulls: {why}")),
    };
    assert_eq!(needed.len(), 9);
    for name in ["one", "two", "three", "four", "five"] {
        assert_eq!(outcome(&needed, name).clone().unwrap(), Pulled::Now, "{name}");
        assert_eq!(outcome(&same, name).clone().unwrap(), Pulled::Here, "{name}");
    }
    assert_eq!(outcome(&needed, "tb-base").clone().unwrap(), Pulled::Here);
    let failed = |name: &str| outcome(&needed, name).clone().unwrap_err();
    let limited = failed("limited");
    assert_eq!(limited.trouble, Trouble::RateLimit, "{limited}");
    assert!(limited.remedy.contains("docker login"), "{limited}");
    assert_eq!(failed("missing").trouble, Trouble::Image);
    let other = failed("other-machine");
    assert_eq!(other.trouble, Trouble::Architecture, "{other}");
    assert!(other.detail.contains("s390x"), "{other}");
    let most = registry.busy.lock().unwrap().1;
    assert!((2..=PULLS).contains(&most), "{most} pulls at a time");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let said = said.into_inner().unwrap();
    assert!(said.contains(&"one:1 begun".to_string()) && !said.contains(&"tb-base:1 begun".to_string()), "{said:?}");
    assert_eq!(said.iter().filter(|line| line.ends_with("done")).count(), 9, "{said:?}");
}

#[test]
fn trials_of_a_missing_image_end_with_the_reason_and_harm_no_other() {
    let missing = "[environment]\ndocker_image = \"127.0.0.1:9/pilothouse/no-such:1\"";
    let here = "[environment]\ndocker_image = \"tb-base:1\"";
    let yard = Yard::new().task("missing", "true", PASS, missing).task("here", "true", PASS, here);
    let mut config = yard.config("oracle", 2);
    config.n_attempts = 2;
    let Some((done, id)) = in_containers(&yard, config, nothing) else { return };
    assert!(done.complete);
    let read = yard.read();
    assert_eq!((read.end("missing"), read.end("here")), ((None, Some("RuntimeError")), (Some(1.0), None)));
    let result = json(&find(&yard, &read, "missing").join("result.json"));
    let message = result["exception_info"]["exception_message"].as_str().unwrap();
    assert!(message.contains("no-such:1"), "{message}");
    assert_eq!(class_of(&yard.dir(), "missing"), ("infra".into(), Some("image".into())));
    assert_eq!(left_of(&id), "");
}
