//! Classes by rules over evidence.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "triage/cases.rs"]
mod cases;
#[path = "triage/files.rs"]
mod files;
#[path = "triage/labels.rs"]
mod labels;
#[path = "triage/rows.rs"]
mod rows;
#[path = "triage/stage.rs"]
mod stage;
mod support;

#[test]
fn the_shipped_rules_are_whole() {
    let rules = pilothouse::triage::Rules::of_texts(&[]).unwrap();
    assert!(rules.list().len() > 40);
    assert_eq!(rules.broken(), Vec::<std::sync::Arc<str>>::new());
}

#[test]
fn labels_are_met() {
    let Some(measured) = labels::all() else { return };
    let table = labels::table(&measured);
    println!("{table}");
    for class in ["infra", "config"] {
        let (right, labelled, said) = labels::counts(&measured, class);
        assert!(right == labelled && right == said, "{class}\n{table}");
    }
    let wrong = measured.iter().filter(|m| m.said == "unclassified" && m.class != "unclassified").count();
    assert_eq!(wrong, 0, "{table}");
    let wrong = measured.iter().filter(|m| m.said != m.class).count();
    assert_eq!(wrong, 0, "{table}");
}
