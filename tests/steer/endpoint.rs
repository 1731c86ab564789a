//! The model's endpoint: it goes, comes back, is found elsewhere; trials that have not begun wait for it.

use std::time::Duration;

use crate::bench::{Bench, until};
use crate::support::servers::Fake;

/// How long it is away.
fn away() -> Duration {
    Duration::from_secs(if std::env::var_os("PILOTHOUSE_LONG_FAULTS").is_some() { 90 } else { 3 })
}

fn gate(bench: &Bench) -> Option<String> {
    let gates = bench.status()["gates"].clone();
    let gate = gates.as_array().unwrap().iter().find(|g| g["gate"] == "endpoint")?;
    Some(gate["why"].as_str().unwrap().to_string())
}

#[test]
fn nothing_begins_while_the_endpoint_is_away() {
    let bench = Bench::new(&["a", "b", "c"]);
    let server = Fake::sglang();
    let named = format!("gpu={}", server.url());
    let mut run = bench.run("1", &["--serving", &named]);
    bench.wait(1, 2, 0);
    assert_eq!(gate(&bench), None);

    server.kill();
    until("a closed gate", || gate(&bench).is_some());
    let why = gate(&bench).unwrap();
    assert_eq!(why, "model server gpu is gone");
    bench.go("a");
    bench.wait(0, 2, 1);
    std::thread::sleep(away());
    bench.wait(0, 2, 1);
    server.revive();
    bench.wait(1, 1, 1);
    assert_eq!(gate(&bench), None);

    // It takes connections and answers nothing: away, too.
    server.hang();
    until("a closed gate again", || gate(&bench).is_some_and(|why| why.contains("gpu")));
    bench.go("b");
    bench.wait(0, 1, 2);
    server.unhang();
    bench.wait(1, 0, 2);
    bench.go("c");
    assert_eq!(run.end(), 0, "{}", bench.output());
    assert!(bench.results().iter().all(|(_, end)| end == "1.0"), "{:?}", bench.results());

    let said = bench.output();
    assert!(said.contains("endpoint: nothing begins: model server gpu is gone"), "{said}");
    assert!(said.contains("endpoint: well again, after "), "{said}");
    let notes = bench.journal();
    let of = |act: &str| notes.iter().filter(|n| n["act"] == act).collect::<Vec<_>>();
    assert_eq!((of("gate").len(), of("outage").len()), (4, 2), "{notes:?}");
    assert!(of("gate")[0]["subject"] == "endpoint" && of("gate")[0]["result"].as_str().unwrap().starts_with("closed"));
    // In the form that `overlaps:outage` understands.
    let outage = of("outage")[0];
    let (from, to) = outage["subject"].as_str().unwrap().split_once('/').unwrap();
    let read = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
    let lasted = read(to).duration_since(read(from));
    assert!(lasted.as_secs() >= away().as_secs() as i64, "{outage}");
    assert!(outage["why"].as_str().unwrap().contains("model server gpu is gone"), "{outage}");
}

#[test]
fn trials_begin_whatever_servers_do_where_the_operator_says_so() {
    let bench = Bench::new(&["a", "b"]);
    let server = Fake::sglang();
    let named = format!("gpu={}", server.url());
    server.kill();
    let mut run = bench.run("1", &["--serving", &named, "--no-endpoint-gate"]);
    bench.go("a");
    bench.wait(1, 0, 1);
    assert_eq!(gate(&bench), None);
    bench.go("b");
    assert_eq!(run.end(), 0, "{}", bench.output());
}
