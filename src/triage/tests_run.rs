//! Did the verifier's tests run at all? By the test report, by what test runners print, or by a
//! verdict that the script itself printed.

use std::sync::{Arc, LazyLock};

use super::evidence::{Gathered, Source};
use super::pattern::Pattern;
use crate::harbor::ctrf::Ctrf;
use crate::harbor::test_output::{NOTHING_RAN, RUNNERS_PRINT};
use crate::job::Excerpt;

/// What the verifier's files show of tests.
#[derive(Debug, Clone, PartialEq)]
pub enum Tests {
    /// At least one test began.
    Ran(Excerpt),
    /// The verifier printed something, but nothing that looks like a test.
    Unseen,
    /// It printed nothing at all.
    Silent,
    /// The verifier was not reached.
    NotReached,
}

/// What the conditions of rules call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestsWord {
    /// At least one test began.
    Ran,
    /// No test can be seen, whatever was printed.
    NotSeen,
    /// The verifier printed nothing.
    Silent,
}

impl TestsWord {
    /// All of them.
    pub const ALL: [TestsWord; 3] = [TestsWord::Ran, TestsWord::NotSeen, TestsWord::Silent];

    /// The word in `error-classes.toml`.
    pub fn word(self) -> &'static str {
        match self {
            TestsWord::Ran => "ran",
            TestsWord::NotSeen => "not_seen",
            TestsWord::Silent => "silent",
        }
    }

    /// Whether it holds.
    pub fn fits(self, tests: &Tests) -> bool {
        match self {
            TestsWord::Ran => matches!(tests, Tests::Ran(_)),
            TestsWord::NotSeen => matches!(tests, Tests::Unseen | Tests::Silent),
            TestsWord::Silent => *tests == Tests::Silent,
        }
    }
}

/// What runners print once a test has begun or ended.
static RUNNERS: LazyLock<Arc<Pattern>> = LazyLock::new(|| {
    let list: Vec<String> = RUNNERS_PRINT.iter().map(|s| (*s).to_string()).collect();
    Arc::new(Pattern::of(&list))
});

/// What pytest says where it found nothing to run.
static NOTHING: LazyLock<Arc<Pattern>> = LazyLock::new(|| Arc::new(Pattern::of(&[NOTHING_RAN.to_string()])));

/// What a trial's verifier files show.
pub(super) fn of(reached: bool, gathered: &mut Gathered<'_>) -> Tests {
    if let Some((path, report)) = gathered.ctrf()
        && began(report) > 0
    {
        let counts = &report.counts;
        let text = format!("{} tests, {} passed, {} failed", counts.tests, counts.passed, counts.failed);
        return Tests::Ran(Excerpt { path: path.clone(), line: None, text: text.into() });
    }
    let search = |pattern: &LazyLock<Arc<Pattern>>| super::evidence::Search {
        sources: vec![Source::VerifierLog],
        pattern: Arc::clone(pattern),
        but: None,
        tail: None,
        count: 1,
    };
    if let Some(found) = gathered.find(&search(&RUNNERS)).and_then(|f| f.into_iter().next()) {
        // A session that found nothing to run is none, unless it broke off on an error.
        let empty = gathered.find(&search(&NOTHING)).is_some();
        if !empty {
            return Tests::Ran(found);
        }
    }
    let silent = gathered.texts(Source::VerifierLog).iter().all(|t| t.body.trim().is_empty());
    match (silent, reached) {
        (false, _) => Tests::Unseen,
        (true, true) => Tests::Silent,
        (true, false) => Tests::NotReached,
    }
}

/// Tests of a report that began.
fn began(report: &Ctrf) -> u64 {
    let c = &report.counts;
    c.passed.saturating_add(c.failed).saturating_add(c.other)
}
