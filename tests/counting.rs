//! The rules of counting, on hand-built fleets: slots, identity, passes and samples, totals, scores.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::float_cmp, missing_docs)]

#[path = "support/fleet.rs"]
mod build;

use build::{J, T, at, fleet, now};
use pilothouse::job::merge::{How, Refusal};
use pilothouse::job::slots::Rule;
use pilothouse::job::tally::{self, Options, Place, Row, Tally};
use pilothouse::job::warnings::WarningKind;
use pilothouse::job::{Fleet, Phase, Planned, eta};
use proptest::prelude::*;

fn count(jobs: &[J], options: Options) -> Result<Tally, Refusal> {
    tally::count(&fleet(jobs), &options, now())
}

fn plain(jobs: &[J]) -> Tally {
    count(jobs, Options::default()).unwrap()
}

fn asked(jobs: &[J], how: How, rule: Rule) -> Tally {
    count(jobs, Options { how: Some(how), rule, ..Options::default() }).unwrap()
}

fn kinds(tally: &Tally, kind: WarningKind) -> usize {
    tally.warnings.iter().filter(|w| w.kind == kind).count()
}

fn row<'a>(tally: &'a Tally, job: usize, name: &str) -> &'a Row {
    tally.rows.iter().find(|r| r.job == job && r.trial.as_deref() == Some(name)).unwrap()
}

fn score<'a>(tally: &'a Tally, name: &str) -> &'a pilothouse::job::scores::Score {
    tally.scores.iter().find(|s| s.name == name).unwrap()
}

#[test]
fn slots_come_from_the_plan_and_are_numbered_by_start() {
    let job = J::new("a", "A", &[("x", 2), ("y", 1)])
        .with([T::done("x", "late", 50, 60, Some(1.0)), T::done("x", "early", 10, 20, Some(0.0))])
        .alive();
    let t = plain(&[job]);
    assert_eq!(t.totals.planned, 3);
    assert_eq!(row(&t, 0, "x__early").slot.as_ref().unwrap().to_string(), "x#1");
    assert_eq!(row(&t, 0, "x__late").slot.as_ref().unwrap().to_string(), "x#2");
    let queued: Vec<_> = t.rows.iter().filter(|r| r.trial.is_none()).collect();
    assert_eq!(queued.len(), 1);
    assert_eq!((queued[0].slot.as_ref().unwrap().to_string(), queued[0].phase), ("y#1".to_string(), Phase::Queued));
    // Running: a missing trial is queued, not missing.
    assert_eq!(kinds(&t, WarningKind::Missing), 0);
    assert!(score(&t, "raw").rule.starts_with("partial: 2 of 3 planned have ended"));
    assert!(!t.needs_person());
}

#[test]
fn agents_are_named_only_where_there_are_several() {
    let mut job = J::new("a", "A", &[("x", 1)]).with([T::done("x", "one", 1, 2, Some(1.0))]).finished(9);
    assert_eq!(plain(&[job.clone()]).rows[0].slot.as_ref().unwrap().to_string(), "x#1");
    let mut other: Planned = job.facts.planned.as_ref().unwrap()[0].clone();
    other.agent = Some("oracle".into());
    other.model = None;
    job.facts.planned.as_mut().unwrap().push(other);
    let mut oracle = T::done("x", "two", 1, 2, Some(1.0)).by("oracle", "");
    oracle.0.model = None;
    let t = plain(&[job.with([oracle])]);
    let slots: Vec<String> = t.rows.iter().map(|r| r.slot.as_ref().unwrap().to_string()).collect();
    assert_eq!(slots, ["x@oracle#1", "x@terminus-2/lab/m#1"]);
}

#[test]
fn a_trial_outside_the_plan_is_listed_and_not_counted() {
    let job =
        J::new("a", "A", &[("x", 1)]).with([T::done("x", "a", 1, 2, Some(1.0)), T::done("z", "a", 1, 2, Some(1.0))]);
    let t = plain(&[job.finished(9)]);
    assert_eq!((t.totals.planned, t.totals.passed), (1, 1));
    assert_eq!(row(&t, 0, "z__a").place, Place::Unplanned);
    assert_eq!(kinds(&t, WarningKind::Foreign), 1);
}

#[test]
fn a_long_task_is_found_by_its_cut_directory_name() {
    let task = "a-task-with-a-name-of-more-than-thirty-two-characters";
    let mut unreadable = T::open(task, "AAAAAAA", 1);
    unreadable.0.name = "a-task-with-a-name-of-more-than__AAAAAAA".into();
    unreadable.0.task = "a-task-with-a-name-of-more-than".into();
    unreadable.0.unreadable = true;
    unreadable.0.evidence = None;
    let t = plain(&[J::new("a", "A", &[(task, 1)]).with([unreadable]).finished(9)]);
    assert_eq!((t.totals.planned, t.totals.unreadable), (1, 1));
    assert_eq!(t.rows.len(), 1);
    assert!(t.needs_person());
}

#[test]
fn without_a_lock_the_total_is_that_of_the_job() {
    let trials = [T::done("x", "a", 1, 2, Some(1.0)), T::done("y", "a", 1, 2, Some(0.0))];
    let job = J::new("a", "A", &[]).with(trials.clone()).finished(9).no_lock(Some(5));
    let t = plain(std::slice::from_ref(&job));
    assert_eq!((t.totals.planned, t.totals.finished, t.rows.len()), (5, 2, 2));
    assert_eq!((score(&t, "raw").numerator, score(&t, "raw").denominator), (Some(1.0), 5));
    assert_eq!(kinds(&t, WarningKind::Missing), 1);
    let t = plain(&[J::new("a", "A", &[]).with(trials).finished(9).no_lock(None)]);
    assert_eq!(t.totals.planned, 2);
}

#[test]
fn without_a_lock_what_a_resume_left_lying_gives_way() {
    let job = J::new("a", "A", &[])
        .with([T::open("x", "stale", 1), T::done("x", "new", 10, 20, Some(1.0))])
        .finished(30)
        .no_lock(Some(1));
    let t = plain(&[job]);
    assert_eq!((t.totals.planned, t.totals.passed, t.totals.orphaned, t.totals.superseded), (1, 1, 0, 1));
}

#[test]
fn the_same_id_is_one_trial_in_one_job() {
    let original = T::done("x", "AAA", 1, 2, Some(1.0));
    let mut copy = original.clone();
    copy.0.name = "x__AAA.bak".into();
    let t = plain(&[J::new("a", "A", &[("x", 1)]).with([original, copy]).finished(9)]);
    assert_eq!((t.totals.passed, t.totals.duplicate, t.totals.planned), (1, 1, 1));
    assert_eq!(row(&t, 0, "x__AAA").place, Place::Chosen);
    assert_eq!(row(&t, 0, "x__AAA.bak").superseded_by, Some((0, "x__AAA".into())));
    assert!(!t.needs_person());
}

#[test]
fn the_same_id_under_two_names_with_two_records_loses_nothing() {
    let a = T::done("x", "AAA", 1, 2, Some(1.0)).id(Some("same"));
    let b = T::done("x", "BBB", 5, 9, Some(0.0)).id(Some("same"));
    let t = plain(&[J::new("a", "A", &[("x", 2)]).with([a, b]).finished(9)]);
    assert_eq!((t.totals.graded, t.totals.duplicate), (2, 0));
    assert_eq!(kinds(&t, WarningKind::Conflict), 1);
}

#[test]
fn moments_of_one_job_are_one_job() {
    // Mid-run; stopped, with a cancelled trial; resumed, with a new trial in the cancelled one's slot.
    let done = T::done("x", "AAA", 1, 20, Some(1.0));
    let mid = J::new("mid", "A", &[("x", 1), ("y", 1), ("z", 1)]).with([done.clone(), T::open("y", "AAA", 5)]);
    let cancelled = T::done("y", "AAA", 5, 40, None).err("CancelledError");
    let stopped = J { facts: J::new("stopped", "A", &[("x", 1), ("y", 1), ("z", 1)]).facts, ..mid.clone() };
    let stopped = J { trials: vec![done.clone(), cancelled], ..stopped };
    let resumed = J::new("resumed", "A", &[("x", 1), ("y", 1), ("z", 1)])
        .with([done, T::done("y", "BBB", 60, 70, Some(0.0)), T::done("z", "AAA", 60, 80, Some(0.5))])
        .finished(90);
    let jobs = [mid, stopped, resumed];
    let orders = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]];
    for order in orders {
        let jobs: Vec<J> = order.iter().map(|i| jobs[*i].clone()).collect();
        let t = plain(&jobs);
        assert_eq!(t.merge.how, None);
        assert!(t.merge.why.contains("3 moments"));
        let totals = t.totals;
        assert_eq!((totals.planned, totals.finished, totals.graded), (3, 3, 3));
        assert_eq!((totals.passed, totals.partial, totals.failed, totals.cancelled), (1, 1, 1, 0));
        assert_eq!((totals.duplicate, totals.superseded), (3, 1));
        let stopped = order.iter().position(|i| *i == 1).unwrap();
        let resumed = order.iter().position(|i| *i == 2).unwrap();
        assert_eq!(row(&t, stopped, "y__AAA").superseded_by, Some((resumed, "y__BBB".into())));
        assert!(!t.needs_person(), "{:?}", t.warnings);
    }
}

#[test]
fn a_running_rerun_beats_what_a_resume_deleted() {
    let before = J::new("before", "A", &[("x", 1)]).with([T::done("x", "AAA", 1, 9, None).err("CancelledError")]);
    let mut resumed = J::new("resumed", "A", &[("x", 1)]).with([T::open("x", "BBB", 20)]).alive();
    resumed.facts.summary = Some(Default::default());
    resumed.facts.summary.as_mut().unwrap().updated = Some(at(21));
    let t = plain(&[resumed, before]);
    assert_eq!((t.totals.running, t.totals.cancelled, t.totals.superseded), (1, 0, 1));
}

#[test]
fn two_scored_trials_in_one_slot_are_a_conflict() {
    let job = J::new("a", "A", &[("x", 1)])
        .with([T::done("x", "AAA", 1, 9, Some(0.0)), T::done("x", "BBB", 20, 29, Some(1.0))])
        .finished(30);
    for (rule, passed) in [(Rule::Earlier, 0), (Rule::Latest, 1), (Rule::Best, 1)] {
        let t = count(std::slice::from_ref(&job), Options { rule, ..Options::default() }).unwrap();
        assert_eq!((t.totals.passed, t.totals.planned, t.totals.superseded), (passed, 1, 1), "{rule:?}");
        assert_eq!(kinds(&t, WarningKind::Conflict), 1);
        assert_eq!(t.merge.caveat().is_some(), rule == Rule::Best);
        assert!(t.needs_person());
    }
}

/// A full job with an error in `y`, and a small one that ran `y` again.
fn main_and_rerun() -> [J; 2] {
    let main = J::new("main", "A", &[("x", 1), ("y", 1)])
        .with([T::done("x", "AAA", 1, 9, Some(1.0)), T::done("y", "AAA", 1, 9, None).err("RuntimeError")])
        .finished(10);
    let rerun =
        J::new("rerun", "B", &[("y", 1)]).with([T::done("y", "BBB", 50, 60, Some(1.0))]).finished(70).created(40);
    [main, rerun]
}

#[test]
fn a_part_of_the_plan_is_a_pass() {
    let [main, rerun] = main_and_rerun();
    for jobs in [[main.clone(), rerun.clone()], [rerun, main]] {
        let t = plain(&jobs);
        assert_eq!(t.merge.how, Some(How::Passes));
        assert!(t.merge.why.contains("/jobs/rerun plans a part of its tasks"), "{}", t.merge.why);
        assert_eq!((t.totals.planned, t.totals.passed, t.totals.errored, t.totals.superseded), (2, 2, 0, 1));
        assert!(!t.needs_person(), "{:?}", t.warnings);
    }
}

#[test]
fn a_later_error_does_not_shadow_a_score_and_a_later_score_is_a_conflict() {
    let [main, _] = main_and_rerun();
    let error = T::done("x", "BBB", 50, 60, None).err("RuntimeError");
    let t = plain(&[main.clone(), J::new("rerun", "B", &[("x", 1)]).with([error]).finished(70).created(40)]);
    assert_eq!((t.totals.passed, t.totals.errored, kinds(&t, WarningKind::Conflict)), (1, 1, 0));
    assert_eq!(row(&t, 1, "x__BBB").superseded_by, Some((0, "x__AAA".into())));

    let worse =
        J::new("rerun", "B", &[("x", 1)]).with([T::done("x", "BBB", 50, 60, Some(0.0))]).finished(70).created(40);
    for (rule, passed) in [(Rule::Earlier, 1), (Rule::Latest, 0), (Rule::Best, 1)] {
        for jobs in [[main.clone(), worse.clone()], [worse.clone(), main.clone()]] {
            let t = asked(&jobs, How::Passes, rule);
            assert_eq!((t.totals.passed, kinds(&t, WarningKind::Conflict)), (passed, 1), "{rule:?}");
        }
    }
}

#[test]
fn a_dead_rerun_does_not_replace_an_ended_trial_but_a_running_one_does() {
    let [main, rerun] = main_and_rerun();
    let open = J { trials: vec![T::open("y", "BBB", 50)], ..rerun };
    let mut dead = open.clone();
    dead.facts.summary = None;
    let t = plain(&[main.clone(), dead]);
    assert_eq!((t.totals.errored, t.totals.orphaned), (1, 0));
    let mut alive = open.alive();
    alive.facts.summary = None;
    let t = plain(&[main, alive]);
    assert_eq!((t.totals.errored, t.totals.running), (0, 1));
}

#[test]
fn a_pass_fills_the_slot_that_needs_it() {
    let main = J::new("main", "A", &[("x", 2)])
        .with([T::done("x", "AAA", 1, 9, Some(0.0)), T::done("x", "BBB", 2, 9, None).err("RuntimeError")])
        .finished(10);
    let rerun =
        J::new("rerun", "B", &[("x", 1)]).with([T::done("x", "CCC", 50, 60, Some(1.0))]).finished(70).created(40);
    let t = plain(&[main, rerun]);
    assert_eq!((t.totals.planned, t.totals.passed, t.totals.failed, t.totals.superseded), (2, 1, 1, 1));
    assert_eq!(row(&t, 1, "x__CCC").slot.as_ref().unwrap().k, 2);
    assert_eq!(kinds(&t, WarningKind::Conflict), 0);
}

#[test]
fn equal_and_disjoint_plans_are_samples() {
    let a = J::new("a", "A", &[("x", 1)]).with([T::done("x", "AAA", 1, 9, Some(1.0))]).finished(10);
    let b = J::new("b", "B", &[("x", 1)]).with([T::done("x", "BBB", 1, 9, Some(0.0))]).finished(10);
    let c = J::new("c", "C", &[("y", 1)]).with([T::done("y", "AAA", 1, 9, Some(1.0))]).finished(10);
    let t = plain(&[a.clone(), b.clone()]);
    assert_eq!((t.merge.how, t.totals.planned, t.totals.graded), (Some(How::Samples), 2, 2));
    assert_eq!(score(&t, "pass@2").value, Some(1.0));
    let t = plain(&[a, b, c]);
    assert_eq!((t.merge.how, t.totals.planned, t.totals.passed), (Some(How::Samples), 3, 2));
    assert!(t.scores.iter().all(|s| s.name != "pass@2"), "y has one slot only");
}

#[test]
fn neither_default_is_refused_with_both_named() {
    let a = J::new("a", "A", &[("x", 1), ("y", 1)]);
    let b = J::new("b", "B", &[("y", 1), ("z", 1)]);
    let refusal = count(&[a.clone(), b.clone()], Options::default()).unwrap_err().to_string();
    for part in ["/jobs/a", "/jobs/b", "--as passes", "--as samples"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    // A pass of one of two samples: no single origin.
    let twin = J::new("twin", "C", &[("x", 1), ("y", 1)]);
    let part = J::new("part", "D", &[("x", 1)]);
    assert!(count(&[a.clone(), twin, part], Options::default()).is_err());
    // Asked for, both ways count.
    assert_eq!(asked(&[a.clone(), b.clone()], How::Samples, Rule::Earlier).totals.planned, 4);
    assert_eq!(asked(&[a.clone(), b.clone()], How::Passes, Rule::Earlier).totals.planned, 3);
    let t = tally::count_side_by_side(&fleet(&[a, b]), Rule::Earlier, now());
    assert_eq!((t.merge.how, t.totals.planned), (None, 4));
}

#[test]
fn lineage_makes_a_pass_of_an_equal_plan() {
    let [main, _] = main_and_rerun();
    let again = J::new("again", "B", &[("x", 1), ("y", 1)]).with([T::done("y", "BBB", 50, 60, Some(0.0))]).finished(70);
    for lineage in ["A", "/jobs/main", "jobs/main/", "./main"] {
        let mut again = again.clone().created(40);
        again.facts.lineage = vec![lineage.into()];
        let t = plain(&[again, main.clone()]);
        assert_eq!((t.merge.how, t.totals.planned, t.totals.graded), (Some(How::Passes), 2, 2), "{lineage}");
    }
    let t = plain(&[again, main]);
    assert_eq!(t.merge.how, Some(How::Samples));
}

#[test]
fn passes_of_passes_have_one_root() {
    let [main, rerun] = main_and_rerun();
    let mut third = J::new("third", "C", &[("y", 1)]).with([T::done("y", "CCC", 90, 95, Some(0.0))]).finished(99);
    third.facts.lineage = vec!["B".into()];
    let t = plain(&[third, rerun, main]);
    assert_eq!((t.merge.how, t.totals.planned, t.totals.passed), (Some(How::Passes), 2, 2));
    assert_eq!(kinds(&t, WarningKind::Conflict), 1);
}

#[test]
fn a_trial_copied_into_another_job_counts_once() {
    let trial = T::done("x", "AAA", 1, 9, Some(1.0));
    let a = J::new("a", "A", &[("x", 1)]).with([trial.clone()]).finished(10);
    let b = J::new("b", "B", &[("x", 1)]).with([trial.clone()]).finished(10);
    let t = plain(&[a.clone(), b]);
    assert_eq!((t.totals.passed, t.totals.duplicate, t.totals.planned), (1, 1, 2));
    // A copy of the directory that lost its result.json is the same job.
    let mut copy = J::new("copy", "", &[("x", 1)]).with([trial]);
    copy.facts.id = None;
    let t = plain(&[copy, a]);
    assert_eq!((t.totals.passed, t.totals.duplicate, t.totals.planned, t.merge.how), (1, 1, 1, None));
}

#[test]
fn phantoms_orphans_and_cancels_are_kept_apart() {
    let job = J::new("a", "A", &[("p", 1), ("o", 1), ("c", 1), ("t", 1), ("m", 1)]).with([
        T::done("p", "A", 1, 2, None),
        T::open("o", "A", 1),
        T::done("c", "A", 1, 2, None).err("CancelledError"),
        T::done("t", "A", 1, 2, Some(1.0)).err("AgentTimeoutError"),
    ]);
    let t = plain(&[job]);
    let n = t.totals;
    assert_eq!((n.planned, n.finished, n.graded, n.passed), (5, 2, 1, 1));
    assert_eq!((n.errored, n.no_reward, n.cancelled, n.phantom, n.orphaned), (2, 1, 1, 1, 1));
    for kind in [WarningKind::Phantom, WarningKind::Orphaned, WarningKind::Missing] {
        assert_eq!(kinds(&t, kind), 1, "{kind:?}");
    }
    assert!(t.needs_person());
    // A timeout that was solved is passed, with an exception.
    assert_eq!(score(&t, "without_exceptions").denominator, 0);
    assert_eq!(score(&t, "without_exceptions").value, None);
}

#[test]
fn scores_by_name() {
    let mut invalid = T::done("v", "A", 1, 2, Some(1.0)).err("RateLimitError");
    invalid.result().reward_valid = Some(false);
    let job = J::new("a", "A", &[("p", 1), ("q", 1), ("h", 1), ("n", 1), ("v", 1), ("k", 1)])
        .with([
            T::done("p", "A", 1, 2, Some(1.0)),
            T::done("q", "A", 1, 2, Some(0.0)).err("AgentTimeoutError"),
            T::done("h", "A", 1, 2, Some(0.5)),
            T::done("n", "A", 1, 2, None).err("RewardFileNotFoundError"),
            invalid,
            T::done("k", "A", 1, 2, None).rewards(&[("tests", 0.5), ("style", 1.0)]),
        ])
        .finished(9);
    let t = plain(&[job]);
    let fraction = |name: &str| (score(&t, name).numerator.unwrap(), score(&t, name).denominator);
    assert_eq!(fraction("raw"), (2.0, 6));
    assert_eq!(fraction("graded"), (2.0, 4));
    assert_eq!(fraction("without_exceptions"), (1.0, 3));
    // 0.21: 1 + 0 + 0.5 + 0 + 1 + 0 (no key `reward`) over all six.
    assert_eq!(fraction("harbor_021"), (2.5, 6));
    // 0.26: p, q, h and k have a valid reward.
    assert_eq!(fraction("harbor_026"), (1.5, 4));
    assert_eq!(score(&t, "harbor_021").ci95, None);
    assert_eq!(kinds(&t, WarningKind::NoPrimaryReward), 1);
    assert_eq!(kinds(&t, WarningKind::RewardInvalid), 1);
    assert_eq!(score(&t, "raw").rule.find("partial"), None);
}

#[test]
fn sums_that_are_no_number_are_unknown() {
    let trials = [T::done("x", "A", 1, 2, Some(f64::MAX)), T::done("x", "B", 1, 2, Some(f64::MAX))];
    let t = plain(&[J::new("a", "A", &[("x", 2)]).with(trials).finished(9)]);
    assert_eq!((score(&t, "harbor_021").numerator, score(&t, "harbor_021").value), (None, None));
    let text = pilothouse::report::json::document(&Fleet::default(), &t, None, pilothouse::report::json::Style::Line);
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
}

#[test]
fn tokens_are_known_for_some() {
    let mut silent = T::done("y", "A", 1, 2, Some(0.0));
    silent.result().tokens = Default::default();
    let t = plain(&[J::new("a", "A", &[("x", 1), ("y", 1)])
        .with([T::done("x", "A", 1, 2, Some(1.0)), silent])
        .finished(9)]);
    assert_eq!((t.tokens.sum.input, t.tokens.sum.cache, t.tokens.sum.output), (Some(100), None, Some(10)));
    assert_eq!((t.tokens.known, t.tokens.of), (1, 2));
}

#[test]
fn the_summary_is_compared_with_the_files() {
    let mut job = J::new("a", "A", &[("x", 1)]).with([T::done("x", "A", 1, 2, Some(1.0))]).finished(9);
    let summary = job.facts.summary.as_mut().unwrap();
    summary.n_total = Some(1);
    summary.n_completed = Some(1);
    summary.n_errored = Some(0);
    summary.means = [("e".into(), 1.0)].into();
    assert_eq!(kinds(&plain(std::slice::from_ref(&job)), WarningKind::SummaryDisagrees), 0);
    let mut wrong = job.clone();
    wrong.facts.summary.as_mut().unwrap().n_completed = Some(178);
    wrong.facts.summary.as_mut().unwrap().means = [("e".into(), 0.5)].into();
    let t = plain(&[wrong]);
    let warning = t.warnings.iter().find(|w| w.kind == WarningKind::SummaryDisagrees).unwrap();
    assert!(warning.message.contains("job says 178 trials ended, files say 1"), "{}", warning.message);
    assert!(warning.message.contains("job says mean 0.5000, files give 1.0000"), "{}", warning.message);
    assert!(t.needs_person());
}

#[test]
fn drift_between_merged_jobs_is_named() {
    let a = J::new("a", "A", &[("x", 1)]).with([T::done("x", "A", 1, 2, Some(1.0))]).finished(9);
    let mut b = J::new("b", "B", &[("x", 1)]).with([T::done("x", "B", 1, 2, Some(1.0))]).finished(9);
    assert_eq!(kinds(&plain(&[a.clone(), b.clone()]), WarningKind::Drift), 0);
    // Another agent at work than the config's name says.
    let by = |job: &str, id: &str, agent: &str| {
        J::new(job, id, &[("x", 1)]).with([T::done("x", id, 1, 2, Some(1.0)).agent(agent)]).finished(9)
    };
    let c = by("c", "C", "terminus-2");
    assert_eq!(kinds(&plain(&[c.clone(), b.clone()]), WarningKind::Drift), 0, "not known of the other one");
    let t = plain(&[c, by("d", "D", "pilothouse-terminus (prompts 0123abcd)")]);
    let drift = t.warnings.iter().find(|w| w.kind == WarningKind::Drift).unwrap();
    assert!(drift.message.contains("agent pilothouse-terminus (prompts 0123abcd) here, terminus-2 in"), "{drift:?}");
    b.facts.planned.as_mut().unwrap()[0].digest = Some("sha256:other".into());
    b.facts.models = vec!["lab/n".into()];
    let t = plain(&[a, b]);
    let drift: Vec<&str> =
        t.warnings.iter().filter(|w| w.kind == WarningKind::Drift).map(|w| w.message.as_str()).collect();
    assert_eq!(drift.len(), 2);
    assert!(drift[0].contains("1 tasks have other content") && drift[0].contains("x"), "{drift:?}");
    assert!(drift[1].contains("model lab/n here, lab/m in /jobs/a"), "{drift:?}");
}

#[test]
fn the_eta_is_a_range_from_durations_and_limits() {
    let mut job = J::new("a", "A", &[("x", 6)])
        .with([
            T::done("x", "A", 0, 100, Some(1.0)).limits(900.0, 600.0),
            T::done("x", "B", 0, 200, Some(1.0)).limits(900.0, 600.0),
            T::open("x", "C", 1_000_000 - 50).limits(900.0, 600.0),
        ])
        .alive();
    job.facts.n_concurrent = Some(2);
    let eta = eta::of_fleet(&fleet(std::slice::from_ref(&job)), now()).unwrap();
    // Median 150: one running for another 100, three queued of 150 each, two at a time.
    assert_eq!(eta.low_s, Some((100.0 + 450.0) / 2.0));
    // 1512 s per trial: the running one has 1462 left, lanes end at 1512, 1462 + 1512, 3024.
    assert_eq!(eta.high_s, Some(3024.0));
    assert!(eta.basis.contains("1 running, 3 queued") && eta.basis.contains("2 at a time"), "{}", eta.basis);
    let finished = J { liveness: Default::default(), ..job.finished(9) };
    assert_eq!(eta::of_fleet(&fleet(&[finished]), now()), None);
    let fresh = J::new("b", "B", &[("x", 1)]).with([T::open("x", "A", 1)]).alive();
    let eta = eta::of_fleet(&fleet(&[fresh]), now()).unwrap();
    assert_eq!((eta.low_s, eta.high_s), (None, None));
}

/// Which job, its trials (task, suffix, kind of end, jitter of the start), finished or not, lock file or not.
type Directory = (usize, Vec<(usize, u32, u8, i64)>, bool, u8);

/// A world of trials over three tasks, scattered over directories that are copies and moments of up
/// to three jobs.
fn world() -> impl Strategy<Value = Vec<J>> {
    let trial = (0..3usize, 0..12u32, 0..6u8, 1..500i64);
    let dir = (0..3usize, prop::collection::vec(trial, 0..10), prop::bool::ANY, 0..3u8);
    prop::collection::vec(dir, 1..5).prop_map(|dirs| {
        let tasks = ["x", "y", "z"];
        let build = |(n, (job, trials, finished, plan)): (usize, Directory)| {
            let plans: [&[(&str, u32)]; 3] = [&[("x", 1), ("y", 2)], &[("x", 2), ("y", 1), ("z", 3)], &[("y", 1)]];
            // One plan per job: a job's directories are the same job.
            let mut j = J::new(&format!("dir{n}"), &format!("job{job}"), plans[job]);
            for (task, suffix, kind, start) in trials {
                // The record of a result follows from its name: results do not change.
                let (task, start) = (tasks[task], i64::from(suffix) * 40 + start % 7);
                let suffix_text = format!("s{suffix}");
                let reward = f64::from(suffix % 3) / 2.0;
                let end = i64::from(suffix) * 40 + 30;
                let t = match kind {
                    0 => T::open(task, &suffix_text, start),
                    1 => T::done(task, &suffix_text, i64::from(suffix) * 40, end, None),
                    2 => T::done(task, &suffix_text, i64::from(suffix) * 40, end, None).err("RuntimeError"),
                    _ => T::done(task, &suffix_text, i64::from(suffix) * 40, end, Some(reward)),
                };
                j.trials.push(t);
            }
            if plan == 0 {
                j = j.no_lock(Some(4));
            }
            if finished { j.finished(1000 + i64::try_from(n).unwrap()) } else { j }
        };
        dirs.into_iter().enumerate().map(build).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_for_any_set_of_directories(jobs in world(), how in 0..3u8, rule in 0..3u8, turn in 0..4usize) {
        let rule = [Rule::Earlier, Rule::Latest, Rule::Best][rule as usize];
        let how = [None, Some(How::Passes), Some(How::Samples)][how as usize];
        let count = |jobs: &[J]| match how {
            None => tally::count_side_by_side(&fleet(jobs), rule, now()),
            Some(how) => asked(jobs, how, rule),
        };
        let t = count(&jobs);
        let n = t.totals;

        // Each slot is taken at most once, and never more than are planned.
        let chosen: Vec<&Row> = t.rows.iter().filter(|r| r.place == Place::Chosen).collect();
        prop_assert!(chosen.len() as u64 <= n.planned);
        let mut slots: Vec<_> = chosen.iter().map(|r| (r.job, r.slot.clone().unwrap())).collect();
        slots.sort();
        let before = slots.len();
        slots.dedup();
        prop_assert_eq!(slots.len(), before);

        // Every directory is there exactly once, and whoever is left out says for whom.
        let directories: usize = fleet(&jobs).jobs().iter().map(|j| j.trials.len()).sum();
        prop_assert_eq!(t.rows.iter().filter(|r| r.trial.is_some()).count(), directories);
        for row in &t.rows {
            let left_out = matches!(row.place, Place::Duplicate | Place::Superseded);
            prop_assert_eq!(row.superseded_by.is_some(), left_out);
            if row.place == Place::Superseded {
                let (job, name) = row.superseded_by.clone().unwrap();
                let by = t.rows.iter().find(|r| r.job == job && r.trial.as_ref() == Some(&name)).unwrap();
                prop_assert_eq!(by.place, Place::Chosen);
                prop_assert_eq!(&by.slot, &row.slot);
            }
        }

        // The totals add up.
        prop_assert_eq!(n.graded, n.passed + n.partial + n.failed);
        prop_assert_eq!(n.finished, n.graded + n.no_reward);
        prop_assert!(n.finished + n.phantom + n.orphaned + n.unreadable + n.running <= n.planned);
        prop_assert!(n.cancelled <= n.errored && n.errored <= n.finished);
        prop_assert_eq!(n.duplicate, t.rows.iter().filter(|r| r.place == Place::Duplicate).count() as u64);
        prop_assert_eq!(score(&t, "raw").denominator, n.planned);
        for s in &t.scores {
            if let (Some(v), Some((low, high))) = (s.value, s.ci95) {
                prop_assert!(low <= v && v <= high, "{:?}", s);
            }
        }

        // Order of arguments and repeated arguments change no total.
        let mut turned = jobs.clone();
        turned.rotate_left(turn % jobs.len());
        turned.reverse();
        let other = count(&turned);
        prop_assert_eq!(other.totals, n);
        prop_assert_eq!(other.scores, t.scores);
        let mut twice = jobs.clone();
        let mut copy = jobs[turn % jobs.len()].clone();
        copy.facts.dir = format!("{}-copy", copy.facts.dir.display()).into();
        let copied = fleet(std::slice::from_ref(&copy)).jobs()[0].trials.len() as u64;
        twice.push(copy);
        let twice = count(&twice);
        prop_assert_eq!(twice.totals.duplicate, n.duplicate + copied);
        prop_assert_eq!(tally::Totals { duplicate: n.duplicate, ..twice.totals }, n);
    }
}
