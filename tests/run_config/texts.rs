//! YAML and JSON as text: what unquoted words mean, where an error stands, what can't be smuggled in.

use pilothouse::harbor::run_config::{Format, HarborVersion, read_config};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::no_env;

fn kwargs(text: &str, name: &str) -> Result<Value, String> {
    let config = read_config(text.as_bytes(), name, HarborVersion::V0_26).map_err(|e| e.to_string())?;
    Ok(config.to_json(&no_env)["agents"][0]["kwargs"].clone())
}

#[test]
fn unquoted_words_mean_what_they_mean_to_harbor() {
    for (word, value) in [
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("y", json!("y")),
        ("~", json!(null)),
        ("", json!(null)),
        ("010", json!(8)),
        ("08", json!("08")),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("0o17", json!("0o17")),
        ("1_000", json!(1000)),
        ("+5", json!(5)),
        ("-0", json!(0)),
        ("1:30", json!(90)),
        ("1:30.5", json!(90.5)),
        ("1:60", json!("1:60")),
        ("1e-6", json!("1e-6")),
        ("1.0e-6", json!(1e-6)),
        ("1.0e+3", json!(1000.0)),
        ("1.5", json!(1.5)),
        ("1.", json!(1.0)),
        (".5", json!(0.5)),
        ("-.5", json!("-.5")),
        (".", json!(".")),
        ("1.2.3", json!("1.2.3")),
        ("2026-08-30", json!("2026-08-30")),
        ("'5'", json!("5")),
        ("\"\\x41\"", json!("A")),
        ("!!str 5", json!("5")),
        ("!!float 5", json!(5.0)),
        ("nan", json!("nan")),
    ] {
        let text = format!("agents: [{{kwargs: {{v: {word} }}}}]");
        assert_eq!(kwargs(&text, "c.yaml").unwrap()["v"], value, "{word}");
    }
}

#[test]
fn anchors_and_merges() {
    let text = "agents:\n- kwargs: &a {x: 1, y: [1, 2]}\n- kwargs: {<<: *a, x: 2, z: *a}\n";
    let config = read_config(text.as_bytes(), "c.yaml", HarborVersion::V0_26).unwrap();
    let second = &config.to_json(&no_env)["agents"][1]["kwargs"];
    assert_eq!(*second, json!({"x": 2, "y": [1, 2], "z": {"x": 1, "y": [1, 2]}}));
}

#[test]
fn broken_texts_are_refused_by_line() {
    let laughs = {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_string();
        for i in 1..12 {
            let alias = format!("*a{}", i - 1);
            text.push_str(&format!("a{i}: &a{i} [{}]\n", vec![alias; 10].join(", ")));
        }
        text
    };
    let deep = "[".repeat(5000);
    let deep_json = format!("{{\"a\": {}{}}}", "[".repeat(100), "]".repeat(100));
    for (name, text, wanted) in [
        ("c.yaml", "a: [1\nb: 2\n", "c.yaml:"),
        ("c.yaml", "quiet: true\nquiet: false", "c.yaml:2: the key quiet comes twice, first at c.yaml:1"),
        ("c.yaml", "", "c.yaml: a config is a map of keys, and there is nothing"),
        ("c.yaml", "# only a note", "there is nothing in this file"),
        ("c.yaml", "- a", "a config is a map of keys, and this is a list"),
        ("c.yaml", "--- {}\n--- {}", "c.yaml:2: a second YAML document"),
        ("c.yaml", "a: !!python/object:x.Y {}", "c.yaml:1: the tag"),
        ("c.yaml", "a: !x 1", "c.yaml:1: the tag"),
        ("c.yaml", "1: x", "a number as a key, not text"),
        ("c.yaml", "? [a]\n: x", "a key that is not plain text"),
        ("c.yaml", "a: &a [*a]", "an alias of a value that is not complete"),
        ("c.yaml", "a: *b", "c.yaml:1:"),
        ("c.yaml", "<<: 5", "<< wants a map"),
        ("c.yaml", &laughs, "more than 100000 values"),
        ("c.yaml", &deep, "c.yaml:1:"),
        ("c.json", &deep_json, "c.json:1: nested deeper than 64"),
        ("c.json", "{\"a\": 1,\n\n \"a\": 2}", "c.json:3: the key a comes twice, first at c.json:1"),
        ("c.json", "{\"a\": NaN}", "c.json:1: not JSON"),
        ("c.json", "{\n\"a\": 1,\n}", "c.json:3: not JSON"),
        ("c.json", "{\"a\": 1e400}", "c.json:1:"),
        ("c.json", "", "c.json:1: not JSON"),
        ("c.json", "{\n\n\"a\\u001b[2J\": 1}", "c.json:3: unknown key a␛[2J"),
    ] {
        match read_config(text.as_bytes(), name, HarborVersion::V0_26) {
            Ok(_) => panic!("{text}: accepted"),
            Err(e) => {
                let said = e.to_string();
                assert!(said.contains(wanted), "{text:.80}: {said}");
                assert!(!said.contains('\u{1b}'), "{said:?}");
            }
        }
    }
    let error = read_config(b"a: 1\nb: \xff", "c.yaml", HarborVersion::V0_26).unwrap_err();
    assert_eq!(error.to_string(), "c.yaml:2: not UTF-8 text");
    // A byte order mark is none of it.
    assert!(read_config("\u{feff}quiet: true".as_bytes(), "c.yml", HarborVersion::V0_26).unwrap().quiet);
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[-+0-9.:_xeEyYnNoO~ #'\"!&*<{}\\[\\],]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z<~:# -]{0,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever is in the settings comes back from both printed forms.
    #[test]
    fn printed_forms_lose_nothing(value in anything()) {
        let text = json!({"job_name": "j", "agents": [{"kwargs": {"v": value}}]}).to_string();
        let config = read_config(text.as_bytes(), "c.json", HarborVersion::V0_26).unwrap();
        for (format, name) in [(Format::Json, "p.json"), (Format::Yaml, "p.yaml")] {
            let printed = config.print_config(format, &no_env);
            if printed.masked.is_empty() {
                let again = read_config(printed.text.as_bytes(), name, HarborVersion::V0_26);
                prop_assert_eq!(&again.unwrap_or_else(|e| panic!("{e}\n{}", printed.text)), &config);
            }
        }
    }

    /// Any bytes give an answer, under either name.
    #[test]
    fn no_text_brings_it_down(text in "[ \\n\\t:,\\[\\]{}&*!|>'\"#%@`?<~a-c0-2.\u{feff}é-]{0,60}") {
        for name in ["c.yaml", "c.json"] {
            let _ = read_config(text.as_bytes(), name, HarborVersion::V0_26);
        }
    }
}
