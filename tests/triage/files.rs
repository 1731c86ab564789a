//! Files of rules, hostile trials, several steps, and classes while a job is watched.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use pilothouse::app::class_worker;
use pilothouse::job::{Fleet, JobEvent};
use pilothouse::triage::{Classifier, Rules, rules::SHIPPED};
use serde_json::json;

use crate::labels::{classified, classified_by};
use crate::stage::{At, PYTEST_FAILED, Trial, job};
use crate::support;

fn wrong(text: &str) -> String {
    Rules::of_texts(&[("own.toml".to_string(), text.to_string())]).unwrap_err().to_string()
}

#[test]
fn a_wrong_file_is_told_by_line_with_what_is_allowed() {
    let rule = |rest: &str| format!("# mine\n[rules.x]\nexception = [\"any\"]\nwhy = \"w\"\n{rest}\n");
    let cases = [
        (rule("class = \"infr\""), "own.toml:5: class \"infr\": allowed is config, infra,"),
        (
            rule("class = \"infra\"\nphase = [\"agent\"]"),
            "own.toml:6: phase \"agent\": allowed is starting, environment_setup,",
        ),
        (
            rule("class = \"infra\"\nmatch = [{ in = [\"stdout\"], any = ['x'] }]"),
            "own.toml:6: source \"stdout\": allowed is message, output,",
        ),
        (rule("class = \"infra\"\nmatch = [{ in = [\"message\"], any = ['(x'] }]"), "own.toml:6: not a pattern:"),
        (
            rule("class = \"infra\"\nmatch = [{ in = [\"message\"], any = ['@nowhere'] }]"),
            "own.toml:6: no [patterns] are called nowhere; there are address-pools,",
        ),
        (
            rule("class = \"infra\"\nmatch = [{ in = [\"message\"], any = ['(?:a{1000}){1000}'] }]"),
            "own.toml:6: not a pattern:",
        ),
        (
            rule("class = \"infra\"\nwhen = { minutes = { max = 1 } }"),
            "own.toml:6: number \"minutes\": allowed is exit_code,",
        ),
        (rule("class = \"infra\"\nharbor = \"new\""), "own.toml:6: harbor \"new\": give versions such as"),
        (rule("class = \"infra\"\nsuggest = \"rerun\""), "own.toml:6: suggest \"rerun\": allowed is counts_as_passed,"),
        (rule("class = \"infra\"\nflags = [\"odd\"]"), "own.toml:6: flag \"odd\": allowed is thin_pass,"),
        (rule("class = \"infra\"\nexceptions = []"), "own.toml:6: unknown field `exceptions`, expected one of"),
        (rule(""), "own.toml:2: rule x has no class"),
        ("[rules.x]\nclass = \"infra\"\nwhy = \"w\"\n".to_string(), "own.toml:1: rule x has no condition"),
        ("\nschema_version = 7\n".to_string(), "own.toml:2: schema_version 7: only 1 is known"),
        ("\n\nrules = [\n".to_string(), "own.toml:"),
    ];
    for (text, begins) in cases {
        let said = wrong(&text);
        assert!(said.starts_with(begins), "{said}\nwanted {begins}");
    }
}

#[test]
fn own_rules_are_asked_first_and_take_the_place_of_shipped_ones() {
    let temp = tempfile::tempdir().unwrap();
    let dir = job(temp.path(), "own", &[Trial::new("gate").raised(At::Agent, "InternalServerError", "504")]);
    let of = |text: &str| {
        let path = temp.path().join("own.toml");
        fs::write(&path, text).unwrap();
        let fleet = classified_by(&Classifier::load(&[path]).unwrap(), &dir);
        let job = &fleet.jobs()[0];
        let class = job.class_of(job.trials.values().next().unwrap()).unwrap();
        (class.class.word(), class.rule.to_string())
    };
    assert_eq!(of(""), ("infra", "model-api".into()));
    assert_eq!(
        of("[rules.mine]\nexception = [\"InternalServerError\"]\nclass = \"config\"\nwhy = \"w\"\n"),
        ("config", "mine".into())
    );
    assert_eq!(of("[rules.model-api]\nenabled = false\n"), ("unclassified", "nothing".into()));
    assert_eq!(
        of("[rules.model-api]\nexception = [\"Nothing\"]\nclass = \"config\"\nwhy = \"w\"\n"),
        ("unclassified", "nothing".into())
    );
    let limits = Rules::of_texts(&[("a".into(), "[alarms]\nburst_errors = 40\n".into())]).unwrap().alarms;
    assert_eq!((limits.burst_errors, limits.systemic_trials), (40, 5));
}

/// No rule may know a task: every word of a recorded task or trial name is looked for.
#[test]
fn no_rule_names_a_task_or_a_trial() {
    let Some(shared) = support::shared() else { return };
    let mut names = Vec::new();
    for file in ["data/jobs/classes.json", "data/labelled/labels.json"] {
        let labels: serde_json::Value = serde_json::from_slice(&fs::read(shared.join(file)).unwrap()).unwrap();
        let mut add = |labels: &serde_json::Value| names.extend(labels.as_object().unwrap().keys().cloned());
        if file.contains("labelled") { add(&labels) } else { labels.as_object().unwrap().values().for_each(add) }
    }
    for entry in fs::read_dir(shared.join("data/tasks")).unwrap() {
        names.push(entry.unwrap().file_name().into_string().unwrap());
    }
    names.extend(
        [
            "pytorch-model-recovery",
            "prove-plus-comm",
            "tune-mjcf",
            "build-pov-ray",
            "make-doom-for-mips",
            "query-optimize",
            "qemu-startup",
            "circuit-fibsqrt",
        ]
        .map(String::from),
    );
    assert!(names.len() > 60);
    let rules = SHIPPED.to_lowercase();
    for name in &names {
        let (task, suffix) = name.split_once("__").unwrap_or((name, ""));
        assert!(!rules.contains(&task.to_lowercase()) || !task.contains('-'), "a rule names {task}");
        assert!(suffix.is_empty() || !SHIPPED.contains(suffix), "a rule names {name}");
    }
    for key in ["\ntask", "\ntrial"] {
        assert!(!SHIPPED.contains(key));
    }
}

#[test]
fn links_fifos_and_huge_files_cost_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let outside = temp.path().join("outside.txt");
    fs::write(&outside, "E: Failed to fetch http://x\nuvx: command not found\n").unwrap();
    let dir =
        job(temp.path(), "hostile", &[Trial::new("links"), Trial::new("pipes"), Trial::new("huge"), Trial::new("nul")]);
    let stdout = |task: &str| dir.join(format!("{task}__AbCdEfG/verifier/test-stdout.txt"));
    fs::remove_file(stdout("links")).unwrap();
    symlink(&outside, stdout("links")).unwrap();
    fs::remove_file(stdout("pipes")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(stdout("pipes")).status().unwrap();
    assert!(made.success());
    // Sparse: 3 GB of nothing, with an installer's failure at its end.
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(stdout("huge")).unwrap();
    file.write_all_at(b"first line\n", 0).unwrap();
    file.write_all_at(b"\nE: Failed to fetch http://x  502\nuvx: command not found\n", 3 << 30).unwrap();
    fs::write(stdout("nul"), b"\0\0\xff\xfe\x1b[2J\nE: Failed to fetch http://x\n").unwrap();
    let began = Instant::now();
    let fleet = classified(&dir);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let job = &fleet.jobs()[0];
    let class = |task: &str| job.class_of(&job.trials[format!("{task}__AbCdEfG").as_str()]).unwrap();
    assert_eq!(class("links").class.word(), "unclassified", "a link was followed");
    assert_eq!(class("pipes").class.word(), "unclassified");
    assert_eq!(class("huge").class.word(), "infra");
    assert_eq!(class("nul").class.word(), "infra");
}

#[test]
fn a_line_far_into_a_large_file_has_its_number() {
    let noise: String = (0..40_000).map(|i| format!("quiet line {i} of the log\n")).collect();
    let temp = tempfile::tempdir().unwrap();
    let text = format!("{noise}E: Failed to fetch http://x  502\n");
    let fleet = classified(&job(temp.path(), "long", &[Trial::new("long").stdout(&text)]));
    let job = &fleet.jobs()[0];
    let class = job.class_of(job.trials.values().next().unwrap()).unwrap();
    assert_eq!(class.evidence[0].place(), "verifier/test-stdout.txt:40001");
}

#[test]
fn several_steps_speak_for_their_trial() {
    let temp = tempfile::tempdir().unwrap();
    let span = json!({"started_at": "2026-09-21T14:14:00Z", "finished_at": "2026-09-21T14:20:00Z"});
    let mut trial = Trial::new("two-parts").raised(At::Setup, "x", "x");
    trial.exception = None;
    trial.steps = Some(json!([
        {"step_name": "one", "agent_execution": span, "verifier": span, "verifier_result": {"rewards": {"reward": 1}}},
        {"step_name": "two", "agent_execution": span, "verifier": null, "verifier_result": null,
            "exception_info": {"exception_type": "InternalServerError", "exception_message": "504 Gateway Time-out"}},
    ]));
    let mut graded = Trial::new("two-graded");
    graded.at = At::Setup;
    graded.steps = Some(json!([{"step_name": "one", "agent_execution": span, "verifier": span,
        "verifier_result": {"rewards": {"reward": 0}}}]));
    let graded = graded.file("steps/one/verifier/test-stdout.txt", PYTEST_FAILED);
    let mut net = Trial::new("two-net");
    net.at = At::Setup;
    net.steps = graded.steps.clone();
    let net =
        net.file("steps/one/verifier/test-stdout.txt", "E: Failed to fetch http://x  502\nuvx: command not found\n");
    let fleet = classified(&job(temp.path(), "steps", &[trial, graded, net]));
    let job = &fleet.jobs()[0];
    let class = |task: &str| job.class_of(&job.trials[format!("{task}__AbCdEfG").as_str()]).unwrap();
    assert_eq!((class("two-parts").class.word(), class("two-parts").sub.as_deref()), ("infra", Some("model-api")));
    assert_eq!(class("two-graded").class.word(), "failed");
    assert_eq!(class("two-net").class.word(), "infra");
    assert_eq!(class("two-net").evidence[0].path.as_ref(), "steps/one/verifier/test-stdout.txt");
}

/// The thread beside the screen: newest first, nothing before the job has been read, a new attempt anew.
#[test]
fn classes_come_while_a_job_is_watched() {
    let temp = tempfile::tempdir().unwrap();
    let trials: Vec<Trial> = (0..40)
        .map(|i| {
            let mut trial = Trial::new(&format!("t-{i:02}")).stdout(PYTEST_FAILED);
            trial.start = i * 100;
            trial
        })
        .collect();
    let dir = job(temp.path(), "live", &trials);
    let options = pilothouse::follow::Options::default();
    let mut batches: Vec<Vec<JobEvent>> = Vec::new();
    pilothouse::follow::Follower::new(vec![dir.clone()], options).scan_once(&mut |events| {
        batches.push(events);
        true
    });
    let (tell, told) = std::sync::mpsc::sync_channel::<Vec<JobEvent>>(64);
    let worker = class_worker::spawn(Classifier::shipped(), move |events| tell.send(events).is_ok());
    let all: Vec<JobEvent> = batches.into_iter().flatten().collect();
    let (settled, before): (Vec<JobEvent>, Vec<JobEvent>) =
        all.into_iter().partition(|e| matches!(e, JobEvent::Settled(_)));
    worker.show(&before);
    assert!(told.recv_timeout(Duration::from_millis(300)).is_err(), "a class came before the job was read");
    worker.show(&settled);
    let mut fleet = Fleet::default();
    before.into_iter().for_each(|e| fleet.apply(e));
    let mut order = Vec::new();
    while order.len() < 40 {
        for event in told.recv_timeout(Duration::from_secs(20)).unwrap() {
            if let JobEvent::Class(_, name, Some(_)) = &event {
                order.push(name.to_string());
            }
            fleet.apply(event);
        }
    }
    let mut newest_first = order.clone();
    newest_first.sort();
    newest_first.reverse();
    assert_eq!(order, newest_first);
    let job = &fleet.jobs()[0];
    assert!(job.trials.values().all(|t| job.class_of(t).is_some_and(|c| c.class.word() == "failed")));
    // Another attempt in the same directory: the old class does not hold for it.
    let mut again = trials[0].clone();
    again.start = 9_000;
    again.exception = Some(("InternalServerError".into(), "504".into()));
    again.reward = None;
    again.at = At::Agent;
    again.write(&dir);
    let mut news = Vec::new();
    pilothouse::follow::Follower::new(vec![dir], pilothouse::follow::Options::default()).scan_once(&mut |events| {
        news.extend(events.into_iter().filter(|e| matches!(e, JobEvent::Trial(_, t) if &*t.name == "t-00__AbCdEfG")));
        true
    });
    news.iter().cloned().for_each(|e| fleet.apply(e));
    assert!(fleet.jobs()[0].class_of(&fleet.jobs()[0].trials["t-00__AbCdEfG"]).is_none());
    worker.show(&news);
    for event in told.recv_timeout(Duration::from_secs(20)).unwrap() {
        fleet.apply(event);
    }
    let job = &fleet.jobs()[0];
    assert_eq!(job.class_of(&job.trials["t-00__AbCdEfG"]).unwrap().class.word(), "infra");
}
