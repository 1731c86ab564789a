//! Which trials may be run again: class by class, verdict by verdict, job by job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use pilothouse::job::{Class, Classification, Fleet, JobEvent, JobKey, Notebook, Verdict, Word};
use pilothouse::requeue::select::{Known, Past, select};
use pilothouse::requeue::{Selection, Terms, Wanted, Way};

use super::fleet::{J, T, at, fleet, now};

fn classify(fleet: &mut Fleet, job: u32, trial: &T, class: Class) {
    let class = Classification {
        result_id: trial.0.result.as_ref().and_then(|r| r.id.clone()),
        class,
        sub: (class == Class::Infra).then(|| "docker".into()),
        rule: "rule".into(),
        why: "it says so".into(),
        evidence: Vec::new(),
        flags: Vec::new(),
        suggested: None,
        harbor_differs: None,
    };
    fleet.apply(JobEvent::Class(JobKey(job), trial.0.name.clone(), Some(Arc::new(class))));
}

fn say(fleet: &mut Fleet, trial: &T, verdict: Verdict) {
    let mut notebook = Notebook::default();
    notebook.add(Word {
        trial: trial.0.name.clone(),
        result_id: trial.0.result.as_ref().and_then(|r| r.id.clone()),
        verdict: Some(verdict),
        note_only: false,
        note: "".into(),
        operator: "tester".into(),
        time: at(500),
        class: None,
        rule: None,
    });
    fleet.apply(JobEvent::Notebook(JobKey(0), Box::new(notebook)));
}

fn of(fleet: &Fleet, wanted: &Wanted, terms: &Terms) -> Selection {
    select(fleet, JobKey(0), wanted, terms, &Known::default(), now())
}

fn infra() -> Wanted {
    Wanted { infra: true, ..Wanted::default() }
}

fn named(names: &[&str]) -> Wanted {
    Wanted { trials: names.iter().map(|n| Arc::from(*n)).collect(), ..Wanted::default() }
}

/// Classes whose trials run again without a word, by whether they have a reward; None is free.
fn way(class: Class, reward: bool) -> Option<Way> {
    match class {
        Class::Infra | Class::Cancelled | Class::Phantom | Class::Orphaned => None,
        Class::Config => Some(Way::ConfigFixed),
        Class::Unclassified | Class::VerifierError if !reward => None,
        _ => Some(Way::Force),
    }
}

#[test]
fn every_class_has_its_seal() {
    for class in Class::ALL {
        for reward in [None, Some(0.0)] {
            // Graded on the merits without a reward there is none.
            if reward.is_none() && matches!(class, Class::Passed | Class::Partial | Class::Failed) {
                continue;
            }
            let trial = T::done("a", "1", 10, 20, reward).err("RuntimeError");
            let mut fleet = fleet(&[J::new("j", "j", &[("a", 1)]).with([trial.clone()]).finished(100)]);
            classify(&mut fleet, 0, &trial, class);
            let about = format!("{} {reward:?}", class.word());
            let got = of(&fleet, &named(&["a__1"]), &Terms::default());
            match way(class, reward.is_some()) {
                None => assert_eq!((got.picks.len(), got.picks[0].forced), (1, false), "{about}"),
                Some(way) => assert_eq!((got.picks.len(), got.refused[0].way), (0, way), "{about}"),
            }
            let forced = Terms { force: Some("why not".into()), ..Terms::default() };
            let got = of(&fleet, &named(&["a"]), &forced);
            assert_eq!(got.picks.len(), usize::from(class != Class::Config), "{about}");
            let fixed = Terms { config_fixed: true, ..Terms::default() };
            let free = class == Class::Config || way(class, reward.is_some()).is_none();
            assert_eq!(of(&fleet, &named(&["a"]), &fixed).picks.len(), usize::from(free), "{about}");
            // A sweep takes its class and no other.
            assert_eq!(of(&fleet, &infra(), &forced).picks.len(), usize::from(class == Class::Infra), "{about}");
            let unscored = Wanted { unscored: true, ..Wanted::default() };
            let swept = class.is_excluded() && reward.is_none();
            assert_eq!(of(&fleet, &unscored, &forced).picks.len(), usize::from(swept), "{about}");
        }
    }
}

#[test]
fn a_persons_word_counts_more_than_a_rule() {
    for verdict in Verdict::ALL {
        let trial = T::done("a", "1", 10, 20, Some(0.0));
        let mut fleet = fleet(&[J::new("j", "j", &[("a", 1)]).with([trial.clone()]).finished(100)]);
        classify(&mut fleet, 0, &trial, Class::Failed);
        say(&mut fleet, &trial, verdict);
        let confirmed = verdict == Verdict::InfraConfirmed;
        assert_eq!(of(&fleet, &infra(), &Terms::default()).picks.len(), usize::from(confirmed), "{verdict:?}");
        // What somebody accepted as it is stays, though a rule calls it infra.
        classify(&mut fleet, 0, &trial, Class::Infra);
        let accepted = !matches!(verdict, Verdict::InfraConfirmed | Verdict::Inconclusive);
        let got = of(&fleet, &infra(), &Terms::default());
        assert_eq!(
            (got.picks.len(), got.refused.len()),
            (usize::from(!accepted), usize::from(accepted)),
            "{verdict:?}"
        );
    }
}

fn child(dir: &str, id: &str, trials: Vec<T>) -> J {
    let mut child = J::new(dir, id, &[("a", 1)]).with(trials).created(200);
    child.facts.lineage = vec!["root".into()];
    child
}

#[test]
fn a_slot_that_another_job_fills_or_works_on_is_left_alone() {
    let lost = T::done("a", "1", 10, 20, None).err("RuntimeError");
    let root = J::new("root", "root", &[("a", 1), ("b", 1)])
        .with([lost.clone(), T::done("b", "1", 10, 20, Some(1.0))])
        .finished(100);
    // Solved there.
    let solved = child("later", "later", vec![T::done("a", "2", 210, 220, Some(1.0))]).finished(300);
    let mut one = fleet(&[root.clone(), solved]);
    classify(&mut one, 0, &lost, Class::Infra);
    assert_eq!(of(&one, &infra(), &Terms::default()), Selection::default());
    let got = of(&one, &named(&["a__1"]), &Terms { force: Some("x".into()), ..Terms::default() });
    assert_eq!((got.refused[0].way, got.refused[0].why.as_str()), (Way::No, "a__2 of later stands in its slot"));
    // Begun there, or only planned.
    for trials in [vec![T::open("a", "2", 210)], Vec::new()] {
        let mut one = fleet(&[root.clone(), child("later", "later", trials).alive()]);
        classify(&mut one, 0, &lost, Class::Infra);
        let got = of(&one, &infra(), &Terms::default());
        assert_eq!((got.picks.len(), got.refused[0].way), (0, Way::Wait), "{got:#?}");
    }
    // Failed there in another way: that one is run again, and both count as attempts.
    let again = T::done("a", "2", 210, 220, None).err("OSError");
    let mut one = fleet(&[root, child("later", "later", vec![again.clone()]).finished(300)]);
    classify(&mut one, 0, &lost, Class::Infra);
    classify(&mut one, 1, &again, Class::Infra);
    let got = of(&one, &infra(), &Terms::default());
    let pick = &got.picks[0];
    assert_eq!((&*pick.trial, pick.attempts, pick.alike), ("a__2", 2, 1), "{got:#?}");
}

#[test]
fn what_was_just_requeued_is_not_requeued_again() {
    let lost = T::done("a", "1", 10, 20, None).err("RuntimeError");
    let mut one = fleet(&[J::new("root", "root", &[("a", 1)]).with([lost.clone()]).finished(100)]);
    classify(&mut one, 0, &lost, Class::Infra);
    let past = |ago: i64, there| Past {
        trial: "a__1".into(),
        into: "/jobs/root-requeue-1".into(),
        there,
        at: Some(at(1_000_000 - ago)),
    };
    for (ago, there, free) in [(20, false, false), (600, false, true), (20, true, true)] {
        let known = Known { past: vec![past(ago, there)], retries: BTreeMap::new() };
        let got = select(&one, JobKey(0), &infra(), &Terms::default(), &known, now());
        assert_eq!(got.picks.len(), usize::from(free), "{ago} {there} {got:#?}");
    }
}

#[test]
fn five_thousand_trials_are_gone_through_at_once() {
    let names: Vec<String> = (0..5000).map(|n| format!("t{n}")).collect();
    let plan: Vec<(&str, u32)> = names.iter().map(|n| (n.as_str(), 1)).collect();
    let trials: Vec<T> = names.iter().map(|n| T::done(n, "1", 10, 20, None).err("RuntimeError")).collect();
    let mut one = fleet(&[J::new("root", "root", &plan).with(trials.clone()).finished(100)]);
    trials.iter().for_each(|trial| classify(&mut one, 0, trial, Class::Infra));
    let began = Instant::now();
    let got = of(&one, &infra(), &Terms::default());
    assert_eq!(got.picks.len(), 5000);
    assert!(began.elapsed().as_secs_f64() < 5.0, "{:?}", began.elapsed());
}
