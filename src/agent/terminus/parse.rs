//! A model's answer as commands: what is tolerated, what is warned of, what is mended.
//!
//! The rules are Terminus-2's, the order of its checks too, so that the same answer is accepted or
//! refused here and there. What is said about it is in [`super::prompts`]; here it has names
//! ([`Notice`]). What differs is in the table of [`super`].

use regex::Regex;
use std::sync::LazyLock;

use super::json::{self, Fault, Json};

/// Most bytes of an answer that are looked at: a field of it is never so long.
const LONGEST: usize = 16 << 20;
/// A content longer than this (in characters) is shown by its beginning.
const SHOWN_WHOLE: usize = 200;
/// So much of it.
const SHOWN: usize = 100;
/// Seconds for a command that names none.
const DURATION: f64 = 1.0;
/// Field names that are shown in a notice.
const NAMES: usize = 20;
/// Fields that must be there, in the order in which they are expected.
const REQUIRED: [&str; 3] = ["analysis", "plan", "commands"];

/// One command.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// What is typed.
    pub keystrokes: String,
    /// Seconds that it is given, as asked.
    pub duration: f64,
}

/// Something to tell the model. Numbers of commands count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The texts say it: `assets/prompts/*/notices.txt`.
pub enum Notice {
    // What keeps an answer from being carried out.
    NoJson,
    InvalidJson { fault: Fault, content: Content },
    Missing { fields: String },
    CommandsNoList,
    CommandNoObject { n: usize },
    CommandNoKeys { n: usize },
    CommandKeysNoText { n: usize },
    // What is only remarked.
    NoObject,
    TextBefore,
    TextAfter,
    AnalysisNoText,
    PlanNoText,
    CompleteNoBool,
    Order { found: String, expected: String },
    DurationInvalid { n: usize },
    DurationMissing { n: usize },
    UnknownFields { n: usize, fields: String },
    NoEndOfLine { n: usize },
    // What was mended.
    BracesAdded,
    Extracted,
}

/// The text that could not be read, or its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// All of it.
    Whole(String),
    /// Its beginning.
    Begin(String),
}

/// What an answer comes to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parsed {
    /// What is to be typed; empty with an error.
    pub commands: Vec<Command>,
    /// The model says that it is done.
    pub complete: bool,
    /// Why nothing is carried out.
    pub error: Option<Notice>,
    /// What it should know.
    pub warnings: Vec<Notice>,
    /// What it says of the state of things; empty with most errors.
    pub analysis: String,
    /// What it says it will do.
    pub plan: String,
}

/// Reads an answer.
pub fn parse(answer: &str) -> Parsed {
    let answer = head(answer, LONGEST);
    let first = attempt(answer);
    let Some(error) = &first.error else { return first };
    let mut mended = Vec::new();
    if matches!(error, Notice::NoJson | Notice::InvalidJson { .. }) {
        let open = answer.matches('{').count();
        let missing = open.saturating_sub(answer.matches('}').count());
        // More than a megabyte of braces is no slip.
        if (1..=1 << 20).contains(&missing) {
            mended.push((Notice::BracesAdded, format!("{answer}{}", "}".repeat(missing))));
        }
    }
    if let Some(found) = extracted(answer) {
        mended.push((Notice::Extracted, found.to_string()));
    }
    for (notice, text) in mended {
        let mut second = attempt(&text);
        if second.error.is_none() {
            second.warnings.insert(0, notice);
            return second;
        }
    }
    first
}

fn head(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

/// The first object, with at most one level of objects in it, that can be read.
fn extracted(answer: &str) -> Option<&str> {
    // A constant that compiles: tests read answers by it.
    static OBJECT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}").ok());
    OBJECT.as_ref()?.find_iter(answer).map(|found| found.as_str()).find(|found| json::read(found).is_ok())
}

/// Where the first object is: from its brace to the one that closes it. Quotes count from the very
/// beginning of the answer.
fn object(answer: &str) -> Option<(usize, usize)> {
    let (mut begin, mut depth, mut quoted, mut escaped) = (None, 0_i64, false, false);
    for (at, byte) in answer.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => {
                if depth == 0 {
                    begin = Some(at);
                }
                depth += 1;
            }
            b'}' if !quoted => {
                depth -= 1;
                if let (0, Some(begin)) = (depth, begin) {
                    return Some((begin, at + 1));
                }
            }
            _ => {}
        }
    }
    None
}

fn attempt(answer: &str) -> Parsed {
    let failed = |error, warnings| Parsed { error: Some(error), warnings, ..Parsed::default() };
    let Some((begin, end)) = object(answer) else { return failed(Notice::NoJson, vec![Notice::NoObject]) };
    let part = |from: usize, to: usize| answer.get(from..to).unwrap_or_default();
    let content = part(begin, end);
    let mut warnings = Vec::new();
    if !part(0, begin).trim().is_empty() {
        warnings.push(Notice::TextBefore);
    }
    if !part(end, answer.len()).trim().is_empty() {
        warnings.push(Notice::TextAfter);
    }
    let data = match json::read(content) {
        Ok(data) => data,
        Err(fault) => {
            let content = match content.chars().nth(SHOWN_WHOLE - 1) {
                None => Content::Whole(content.to_string()),
                Some(_) => Content::Begin(content.chars().take(SHOWN).collect()),
            };
            return failed(Notice::InvalidJson { fault, content }, warnings);
        }
    };
    let missing: Vec<&str> = REQUIRED.into_iter().filter(|name| data.field(name).is_none()).collect();
    let (Some(analysis), Some(plan), Some(commands)) =
        (data.field("analysis"), data.field("plan"), data.field("commands"))
    else {
        return failed(Notice::Missing { fields: missing.join(", ") }, warnings);
    };
    if !matches!(analysis, Json::Text(_)) {
        warnings.push(Notice::AnalysisNoText);
    }
    if !matches!(plan, Json::Text(_)) {
        warnings.push(Notice::PlanNoText);
    }
    let Json::List(commands) = commands else { return failed(Notice::CommandsNoList, warnings) };
    warnings.extend(order(content));
    let flag = data.field("task_complete").unwrap_or(&Json::Null);
    if !matches!(flag, Json::Null | Json::Bool(_) | Json::Text(_)) {
        warnings.push(Notice::CompleteNoBool);
    }
    let complete = match flag {
        Json::Text(word) => ["true", "1", "yes"].contains(&word.to_lowercase().as_str()),
        other => other.is_truthy(),
    };
    let (analysis, plan) = (text_of(analysis), text_of(plan));
    match read_commands(commands, &mut warnings) {
        Ok(commands) => Parsed { commands, complete, error: None, warnings, analysis, plan },
        Err(error) if complete => {
            warnings.push(error);
            Parsed { commands: Vec::new(), complete, error: None, warnings, analysis, plan }
        }
        Err(error) => Parsed { commands: Vec::new(), complete, error: Some(error), warnings, analysis, plan },
    }
}

/// What is no text where text is meant: as JSON; nothing where Python has nothing.
fn text_of(value: &Json) -> String {
    match value {
        Json::Text(text) => text.clone(),
        other if !other.is_truthy() => String::new(),
        other => plain(other).to_string(),
    }
}

fn plain(value: &Json) -> serde_json::Value {
    match value {
        Json::Null => serde_json::Value::Null,
        Json::Bool(is) => (*is).into(),
        Json::Number(n) => {
            let whole = *n as i64;
            if whole as f64 == *n && whole.unsigned_abs() < 1 << 53 { whole.into() } else { (*n).into() }
        }
        Json::Text(text) => text.clone().into(),
        Json::List(items) => items.iter().map(plain).collect(),
        Json::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect(),
    }
}

/// Whether the three fields come in another order, by where each is named first.
fn order(content: &str) -> Option<Notice> {
    let place = |field: &str| {
        let quoted = format!("\"{field}\"");
        let named = |(at, found): &(usize, &str)| {
            content.get(at + found.len()..).is_some_and(|rest| rest.trim_start().starts_with(':'))
        };
        content.match_indices(&quoted).find(named).map(|(at, _)| at)
    };
    let expected: Vec<(usize, &str)> = REQUIRED.iter().filter_map(|field| Some((place(field)?, *field))).collect();
    if expected.len() < 2 || expected.is_sorted_by_key(|(at, _)| *at) {
        return None;
    }
    let mut found = expected.clone();
    found.sort_unstable();
    let words =
        |fields: &[(usize, &str)]| fields.iter().map(|(_, field)| *field).collect::<Vec<_>>().join(" \u{2192} ");
    Some(Notice::Order { found: words(&found), expected: words(&expected) })
}

fn read_commands(list: &[Json], warnings: &mut Vec<Notice>) -> Result<Vec<Command>, Notice> {
    let mut out = Vec::new();
    for (at, item) in list.iter().enumerate() {
        let n = at + 1;
        let Json::Object(fields) = item else { return Err(Notice::CommandNoObject { n }) };
        let keystrokes = match item.field("keystrokes") {
            None => return Err(Notice::CommandNoKeys { n }),
            Some(Json::Text(keys)) => keys.clone(),
            Some(_) => return Err(Notice::CommandKeysNoText { n }),
        };
        let duration = match item.field("duration") {
            Some(Json::Number(seconds)) if !seconds.is_nan() => *seconds,
            // Python's booleans are numbers.
            Some(Json::Bool(is)) => f64::from(u8::from(*is)),
            Some(_) => {
                warnings.push(Notice::DurationInvalid { n });
                DURATION
            }
            None => {
                warnings.push(Notice::DurationMissing { n });
                DURATION
            }
        };
        let unknown = fields.iter().map(|(name, _)| name.as_str());
        let unknown: Vec<&str> =
            unknown.filter(|name| !["keystrokes", "duration"].contains(name)).take(NAMES).collect();
        if !unknown.is_empty() {
            warnings.push(Notice::UnknownFields { n, fields: unknown.join(", ") });
        }
        if n < list.len() && !keystrokes.is_empty() && !keystrokes.ends_with('\n') {
            warnings.push(Notice::NoEndOfLine { n });
        }
        out.push(Command { keystrokes, duration });
    }
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = r#"{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "ls\n", "duration": 0.1}]}"#;

    fn with(rest: &str) -> Parsed {
        parse(&format!(r#"{{"analysis": "a", "plan": "p", "commands": {rest}}}"#))
    }

    fn clean(answer: &Parsed) -> bool {
        answer.error.is_none() && answer.warnings.is_empty()
    }

    #[test]
    fn text_around_an_object_is_remarked() {
        assert!(clean(&parse(GOOD)));
        let fenced = parse(&format!("```json\n{GOOD}\n```"));
        assert_eq!((fenced.error, fenced.warnings), (None, vec![Notice::TextBefore, Notice::TextAfter]));
        assert_eq!(parse(&format!("{GOOD}{GOOD}")).warnings, [Notice::TextAfter]);
        assert_eq!(parse(&format!("\n {GOOD}\n")).warnings, []);
        // Quotes in prose count: an odd one hides the object, and it is found by its form.
        let hidden = parse(&format!("a 3.5\" disk. {GOOD}"));
        assert_eq!((hidden.commands.len(), hidden.warnings.first()), (1, Some(&Notice::Extracted)));
    }

    #[test]
    fn slips_are_mended_where_the_original_mends_them() {
        let with_braces = parse(&format!("look at {{x}} first: {GOOD}"));
        assert_eq!((with_braces.commands.len(), with_braces.error), (1, None));
        assert_eq!(with_braces.warnings, [Notice::Extracted]);
        let open = parse(GOOD.strip_suffix('}').unwrap());
        assert_eq!((open.commands.len(), open.warnings), (1, vec![Notice::BracesAdded]));
        let thought = parse(&format!("<think>{{\"a\":1}}</think>{GOOD}"));
        assert_eq!(thought.error, Some(Notice::Missing { fields: "analysis, plan, commands".into() }));
        for broken in [
            r#"{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "ls"#,
            r#"{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "ls\n"},"#,
            "{'analysis': 'a', 'plan': 'p', 'commands': []}",
            "{\"analysis\": \"a\nb\", \"plan\": \"p\", \"commands\": []}",
            r#"{"analysis": "a", "plan": "p", "commands": [],}"#,
        ] {
            let parsed = parse(broken);
            assert!(parsed.error.is_some() && parsed.commands.is_empty(), "{broken}: {parsed:?}");
        }
        for none in ["", "no braces at all", "}{", "\"{\""] {
            let parsed = parse(none);
            assert_eq!((parsed.error, parsed.warnings), (Some(Notice::NoJson), vec![Notice::NoObject]), "{none}");
        }
    }

    #[test]
    fn fields_have_their_types() {
        for bad in ["null", "\"ls\"", "{}", "3"] {
            assert_eq!(with(bad).error, Some(Notice::CommandsNoList), "{bad}");
        }
        let odd = parse(r#"{"analysis": null, "plan": ["x", 1], "commands": []}"#);
        assert_eq!(odd.warnings, [Notice::AnalysisNoText, Notice::PlanNoText]);
        assert_eq!((odd.analysis.as_str(), odd.plan.as_str()), ("", "[\"x\",1]"));
        let plan_first = parse(r#"{"plan": "p", "commands": [], "analysis": "a"}"#);
        let (found, expected) =
            ("plan \u{2192} commands \u{2192} analysis", "analysis \u{2192} plan \u{2192} commands");
        assert_eq!(plan_first.warnings, [Notice::Order { found: found.into(), expected: expected.into() }]);
        assert!(clean(&parse(r#"{"analysis": "a", "plan": "p", "commands": [], "other": 1}"#)));
        assert_eq!(parse(r#"{"plan": "p"}"#).error, Some(Notice::Missing { fields: "analysis, commands".into() }));
        let invalid = parse("{\"analysis\": nothing}");
        let Some(Notice::InvalidJson { content: Content::Whole(whole), .. }) = &invalid.error else {
            unreachable!("{invalid:?}")
        };
        assert_eq!(whole, "{\"analysis\": nothing}");
        let long = parse(&format!("{{\"analysis\": nothing, \"é\": \"{}\"}}", "é".repeat(300)));
        assert!(
            matches!(&long.error, Some(Notice::InvalidJson { content: Content::Begin(b), .. }) if b.chars().count() == 100)
        );
    }

    #[test]
    fn completion_is_taken_as_python_would() {
        for (value, done, warned) in [
            ("true", true, false),
            ("false", false, false),
            ("null", false, false),
            ("\"Yes\"", true, false),
            ("\"TRUE\"", true, false),
            ("\"1\"", true, false),
            ("\"no\"", false, false),
            ("\"maybe\"", false, false),
            ("1", true, true),
            ("0", false, true),
            ("[0]", true, true),
            ("{}", false, true),
        ] {
            let parsed = with(&format!("[], \"task_complete\": {value}"));
            assert_eq!((parsed.complete, !parsed.warnings.is_empty()), (done, warned), "{value}");
        }
    }

    #[test]
    fn one_bad_command_voids_the_batch_unless_the_task_is_complete() {
        let good = r#"{"keystrokes": "ls\n", "duration": 1}"#;
        for (bad, notice) in [
            ("\"ls\"", Notice::CommandNoObject { n: 2 }),
            ("{\"duration\": 1}", Notice::CommandNoKeys { n: 2 }),
            ("{\"keystrokes\": 1}", Notice::CommandKeysNoText { n: 2 }),
        ] {
            let parsed = with(&format!("[{good}, {bad}]"));
            assert_eq!((parsed.error, parsed.commands.len()), (Some(notice.clone()), 0));
            assert_eq!(parsed.analysis, "a");
            let done = with(&format!("[{good}, {bad}], \"task_complete\": true"));
            assert_eq!((done.error, done.commands.len(), done.complete), (None, 0, true));
            assert_eq!(done.warnings, [notice]);
        }
    }

    #[test]
    fn durations_and_ends_of_lines() {
        let parsed = with(
            r#"[{"keystrokes": "a"}, {"keystrokes": "", "duration": "2"}, {"keystrokes": "b\n", "duration": true, "is_blocking": 1, "x": 2},
               {"keystrokes": "c", "duration": -3}, {"keystrokes": "d", "duration": 1e999}, {"keystrokes": "e", "duration": NaN}]"#,
        );
        let durations: Vec<f64> = parsed.commands.iter().map(|c| c.duration).collect();
        assert_eq!(durations, [1.0, 1.0, 1.0, -3.0, f64::INFINITY, 1.0]);
        let expected = [
            Notice::DurationMissing { n: 1 },
            Notice::NoEndOfLine { n: 1 },
            Notice::DurationInvalid { n: 2 },
            Notice::UnknownFields { n: 3, fields: "is_blocking, x".into() },
            Notice::NoEndOfLine { n: 4 },
            Notice::NoEndOfLine { n: 5 },
            Notice::DurationInvalid { n: 6 },
        ];
        assert_eq!((parsed.error, parsed.warnings), (None, expected.to_vec()));
    }

    #[test]
    fn large_answers_take_no_long_time() {
        let begun = std::time::Instant::now();
        for piece in ["{", "}", "{\"", "{\"a\":", "{{}", "{}}", "\\\"", "[{"] {
            parse(&piece.repeat(200_000 / piece.len()));
        }
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }

    proptest! {
        #[test]
        fn nothing_makes_it_fail(answer in "[{}\\[\\]\",:\\\\ a-z\n\u{e9}]{0,60}") {
            let parsed = parse(&answer);
            prop_assert!(parsed.error.is_none() || parsed.commands.is_empty());
        }

        #[test]
        fn what_is_written_properly_is_read_as_it_was_meant(
            analysis in any::<String>(), plan in any::<String>(),
            keys in proptest::collection::vec(any::<String>(), 0..5), before in "[a-z ]{0,9}",
        ) {
            let commands: Vec<_> = keys.iter().map(|k| serde_json::json!({"keystrokes": k, "duration": 0.5})).collect();
            let answer = serde_json::json!({"analysis": analysis, "plan": plan, "commands": commands});
            // Not sorted: the order is warned of.
            let text = format!("{before}{{\"analysis\": {}, \"plan\": {}, \"commands\": {}}}", answer["analysis"], answer["plan"], answer["commands"]);
            let parsed = parse(&text);
            prop_assert!(parsed.error.is_none(), "{:?}", parsed.error);
            prop_assert_eq!(parsed.analysis, analysis);
            prop_assert_eq!(parsed.commands.iter().map(|c| c.keystrokes.clone()).collect::<Vec<_>>(), keys);
        }
    }
}
