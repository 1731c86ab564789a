//! The trial view: driven by keys, loaded without a thread, drawn into a buffer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "support/screen.rs"]
mod screen;
#[path = "support/stage.rs"]
mod stage;
mod support;

use stage::Stage;

/// Prints screens for a person: `LOOK=<trial prefix> KEYS=… SIZE=120x40`.
#[test]
fn look() {
    let (Some(shared), Ok(prefix)) = (support::shared(), std::env::var("LOOK")) else { return };
    let job = std::env::var("JOB").unwrap_or("data/jobs/b-terminus2-mix-0.21.0".into());
    let size = std::env::var("SIZE").unwrap_or("120x40".into());
    let (columns, rows) = size.split_once('x').unwrap();
    let mut stage = Stage::new(&[&shared.join(job)], (columns.parse().unwrap(), rows.parse().unwrap()));
    stage.open(&prefix);
    println!("{}", stage.text());
    for keys in std::env::var("KEYS").unwrap_or_default().split('~').filter(|k| !k.is_empty()) {
        stage.keys(keys);
        println!("==== {keys}\n{}", stage.text());
    }
}
