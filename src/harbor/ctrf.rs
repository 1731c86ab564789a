//! `verifier/ctrf.json`: test results in the Common Test Report Format.

use super::json::{self, FileProblem, List, Object, Scalar, object};

/// Cases that are kept.
const CASES: usize = 10_000;
/// Characters kept of a case's message and of its trace.
const TEXT: usize = 16 * 1024;

object!(RawSummary<'a> {
    tests: Scalar<'a> = "tests",
    passed: Scalar<'a> = "passed",
    failed: Scalar<'a> = "failed",
    skipped: Scalar<'a> = "skipped",
    pending: Scalar<'a> = "pending",
    other: Scalar<'a> = "other",
});

object!(RawCase<'a> {
    name: Scalar<'a> = "name",
    status: Scalar<'a> = "status",
    duration: Scalar<'a> = "duration",
    message: Scalar<'a> = "message",
    trace: Scalar<'a> = "trace",
});

object!(RawTool<'a> {
    name: Scalar<'a> = "name",
});

object!(RawResults<'a> {
    tool: Object<'a, RawTool<'a>> = "tool",
    summary: Object<'a, RawSummary<'a>> = "summary",
    tests: List<Object<'a, RawCase<'a>>, CASES> = "tests",
});

object!(RawReport<'a> {
    results: Object<'a, RawResults<'a>> = "results",
});

/// How a test case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaseStatus {
    /// Passed.
    Passed,
    /// Failed.
    Failed,
    /// Left out.
    Skipped,
    /// Not run yet.
    Pending,
    /// Anything else, such as an error before the test.
    Other,
}

impl CaseStatus {
    /// The word on the screen.
    pub fn word(self) -> &'static str {
        match self {
            CaseStatus::Passed => "passed",
            CaseStatus::Failed => "failed",
            CaseStatus::Skipped => "skipped",
            CaseStatus::Pending => "pending",
            CaseStatus::Other => "other",
        }
    }

    fn of(word: Option<&str>) -> CaseStatus {
        match word {
            Some("passed") => CaseStatus::Passed,
            Some("failed") => CaseStatus::Failed,
            Some("skipped") => CaseStatus::Skipped,
            Some("pending") => CaseStatus::Pending,
            _ => CaseStatus::Other,
        }
    }
}

/// One test case. Texts are as in the file; clean and mask them before they are shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Name, for pytest `file.py::test`.
    pub name: String,
    /// How it ended.
    pub status: CaseStatus,
    /// Duration in milliseconds, as the format has it.
    pub duration_ms: Option<f64>,
    /// Message, at most 16 Ki characters.
    pub message: Option<String>,
    /// Trace, at most 16 Ki characters.
    pub trace: Option<String>,
}

/// Counts of cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CaseCounts {
    /// All.
    pub tests: u64,
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    /// Skipped.
    pub skipped: u64,
    /// Pending.
    pub pending: u64,
    /// Other.
    pub other: u64,
}

/// A test report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ctrf {
    /// The tool that ran the tests, `pytest`.
    pub tool: Option<String>,
    /// Counts from the summary; counted from the cases where there is none.
    pub counts: CaseCounts,
    /// The first 10,000 cases.
    pub cases: Vec<Case>,
    /// Cases beyond those.
    pub beyond: usize,
}

/// Reads a test report.
///
/// # Errors
/// See [`FileProblem`]; `Foreign` for an object without `results`.
pub fn ctrf(bytes: &[u8]) -> Result<Ctrf, FileProblem> {
    let (report, _) = json::lenient(bytes, |body| {
        json::document::<Object<'_, RawReport<'_>>>(body)
            .map(|root| root.get().and_then(|report| report.results.get()).map(read))
    })?;
    report.ok_or_else(|| FileProblem::foreign("not a test report: no object results"))
}

fn read(raw: &RawResults<'_>) -> Ctrf {
    let text = |value: &Scalar<'_>| value.text().map(|t| t.chars().take(TEXT).collect::<String>());
    let cases: Vec<Case> = raw
        .tests
        .items
        .iter()
        .filter_map(Object::get)
        .map(|case| Case {
            name: text(&case.name).unwrap_or_else(|| "-".to_string()),
            status: CaseStatus::of(case.status.str()),
            duration_ms: case.duration.f64(),
            message: text(&case.message),
            trace: text(&case.trace),
        })
        .collect();
    let counted = |status: CaseStatus| cases.iter().filter(|c| c.status == status).count() as u64;
    let summary = raw.summary.get();
    let count =
        |of: fn(&RawSummary<'_>) -> Option<u64>, status| summary.and_then(of).unwrap_or_else(|| counted(status));
    let counts = CaseCounts {
        tests: summary.and_then(|s| s.tests.u64()).unwrap_or(raw.tests.count as u64),
        passed: count(|s| s.passed.u64(), CaseStatus::Passed),
        failed: count(|s| s.failed.u64(), CaseStatus::Failed),
        skipped: count(|s| s.skipped.u64(), CaseStatus::Skipped),
        pending: count(|s| s.pending.u64(), CaseStatus::Pending),
        other: count(|s| s.other.u64(), CaseStatus::Other),
    };
    let beyond = raw.tests.count - raw.tests.items.len();
    Ctrf { tool: raw.tool.get().and_then(|t| text(&t.name)), counts, cases, beyond }
}
