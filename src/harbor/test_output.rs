//! What a verifier's output shows of tests: wordings of test runners. Regular expressions; case does not
//! matter where they do not say so, `^` and `$` are those of a line.

/// What runners print once a test has begun or ended.
pub const RUNNERS_PRINT: [&str; 27] = [
    // pytest
    r"^=+ test session starts =+",
    r"^collecting \.\.\.",
    r"^collected [1-9]\d* items?",
    r"^(?:=+ )?\d+ (?:passed|failed|errors?)\b.* in [\d.]+ ?s",
    r"(?-i:^(?:FAILED|PASSED|ERROR|XFAIL|SKIPPED) [\w./-]*[_:./][\w./:\[\]-]*)",
    r"(?-i:::test\w*\S* (?:PASSED|FAILED|ERROR))",
    // unittest, Rust
    r"^Ran [1-9]\d* tests? in ",
    r"(?-i:^(?:FAIL|ERROR): test\w*)",
    r"^\s*test\w* .*\.\.\. (?:ok|FAIL|ERROR|FAILED|ignored)\s*$",
    r"^running [1-9]\d* tests?\s*$",
    r"^test result: ",
    // Go, JavaScript, Java, C, Ruby, shell
    r"^\s*--- (?:FAIL|PASS): ",
    r"(?-i:^(?:ok|FAIL)\s+\S+\s+[\d.]+s\b)",
    r"^\s*Tests:\s+\d+ (?:failed|passed|skipped|total)",
    r"^\s*Test Files\s+\d+ ",
    r"^\s*\d+ (?:passing|failing)\b",
    r"^(?:\[\w+\] )?Tests run: [1-9]\d*, ",
    r"^\d+% tests passed",
    r"(?-i:^\[\s*RUN\s*\] )",
    r"(?-i:^(?:not )?ok [1-9]\d*(?: |$))",
    r"^1\.\.[1-9]\d*\s*$",
    r"^\d+ examples?, \d+ failures?",
    // A script's own verdict
    r"(?-i:^\s*\[?(?:PASS|FAIL)(?:ED)?\]?(?:\s*$|[:.]\s|\s+-))",
    r"\b\d+ (?:of \d+ )?(?:tests?|checks?) (?:passed|failed)\b",
    r"\ball (?:tests|checks) passed\b",
    r#"^\s*\{.*"[\w-]*(?:reward|score|pass|correct|accuracy)[\w-]*"\s*:\s*(?:-?[\d.]+|true|false).*\}\s*$"#,
    r"^\s*(?:final )?(?:reward|score)\s*[:=]\s*-?[\d.]+",
];

/// What pytest says where it found nothing to run.
pub const NOTHING_RAN: &str = r"\bno tests ran\b";
