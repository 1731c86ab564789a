//! What the screen says of the jobs as a whole: counts, scores, attention, errors by type.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rows::{Outcome, Row};
use super::servers::alarms::Point;
use crate::job::eta::{self, Eta};
use crate::job::fleet::StateKind;
use crate::job::tally::{self, Tally};
use crate::job::text::mask_secrets;
use crate::job::warnings::WarningKind;
use crate::job::{Class, Fleet, JobKey, JobState, Stamp, TrialKey};
use crate::serving::Severity;

/// How several jobs are counted together; where no default applies the screen counts them side by
/// side and says so.
pub type Counting = tally::Options;

/// Something that needs a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// What tells it from all others, whatever its figures say meanwhile.
    pub id: String,
    /// Kind, as in the headless JSON.
    pub kind: String,
    /// How bad: what is worse stands before what is less so.
    pub severity: Severity,
    /// What, in words.
    pub text: String,
    /// The trial that it is about.
    pub target: Option<TrialKey>,
    /// The diagnosis of a model server that it is about.
    pub serving: Option<Point>,
}

/// One line of the warnings view.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    /// Kind, as in the headless JSON.
    pub kind: String,
    /// What, where, next step.
    pub message: String,
    /// Path, possibly with line; empty when there is none.
    pub path: String,
    /// The trial that it is about.
    pub target: Option<TrialKey>,
}

/// One line of the errors pane.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorGroup {
    /// Exception type, or the outcome's word for what ended without one.
    pub kind: Arc<str>,
    /// Trials.
    pub n: usize,
    /// Of these solved all the same.
    pub solved: usize,
    /// Of these with a reward.
    pub graded: usize,
    /// Filter that shows them.
    pub filter: String,
    /// True for exception types, false for other odd ends and for classes.
    pub is_exception: bool,
    /// The class, in lines that count by class.
    pub class: Option<Class>,
    /// What it means for the count, or what can be done.
    pub hint: String,
}

/// Everything derived.
#[derive(Debug, Clone, Default)]
pub struct Derived {
    /// The count that headless reports print, too; None before the first job was found.
    pub tally: Option<Tally>,
    /// States of the jobs.
    pub states: Vec<(JobKey, JobState)>,
    /// Rows by outcome, copies and superseded trials left out, in the order of [`Outcome::ALL`].
    pub counts: [usize; Outcome::ALL.len()],
    /// What needs a person, worst first.
    pub attention: Vec<Attention>,
    /// Of these what the jobs themselves say.
    pub of_jobs: Vec<Attention>,
    /// Everything odd.
    pub warnings: Vec<Warning>,
    /// Errors by type.
    pub errors: Vec<ErrorGroup>,
    /// Time left.
    pub eta: Option<Eta>,
}

impl Derived {
    /// State of a job.
    pub fn state(&self, key: JobKey) -> Option<&JobState> {
        self.states.iter().find(|(k, _)| *k == key).map(|(_, s)| s)
    }

    /// The count of one outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        Outcome::ALL.iter().position(|o| *o == outcome).and_then(|i| self.counts.get(i).copied()).unwrap_or(0)
    }
}

/// Derives what does not need the rows.
pub fn derive(fleet: &Fleet, now: Stamp, counting: &Counting) -> Derived {
    if fleet.jobs().is_empty() {
        return Derived { warnings: fleet_problems(fleet), ..Derived::default() };
    }
    let mut derived = Derived { eta: eta::of_fleet(fleet, now), ..Derived::default() };
    let tally =
        tally::count(fleet, counting, now).unwrap_or_else(|_| tally::count_side_by_side(fleet, counting.rule, now));
    derived.states = fleet.jobs().iter().zip(&tally.jobs).map(|(j, line)| (j.key, line.state.clone())).collect();
    derived.of_jobs = jobs_that_stand_still(fleet, &derived.states);
    // What is not there yet may only not have been read yet.
    let reading = fleet.jobs().iter().any(|j| !j.settled);
    let too_early = |kind| reading && matches!(kind, WarningKind::Missing | WarningKind::SummaryDisagrees);
    for w in tally.warnings.iter().filter(|w| !too_early(w.kind)) {
        let warning = Warning {
            kind: w.kind.word().to_string(),
            message: mask_secrets(&w.message).into_owned(),
            path: w.path.clone(),
            target: target(fleet, &w.path),
        };
        if w.kind.needs_person() {
            let kind = warning.kind.replace('_', " ");
            let text = match &warning.target {
                Some(key) => format!("{kind}: {}: {}", key.trial, warning.message),
                None => format!("{kind}: {}", warning.message),
            };
            let about = warning.target.as_ref().map_or(&*warning.path, |key| &*key.trial);
            derived.of_jobs.push(Attention {
                id: format!("{} {about}", warning.kind),
                kind: warning.kind.clone(),
                severity: severity(w.kind),
                text,
                target: warning.target.clone(),
                serving: None,
            });
        }
        derived.warnings.push(warning);
    }
    derived.tally = Some(tally);
    derived
}

/// What makes all trials fail alike is as bad as a server that fails.
fn severity(kind: WarningKind) -> Severity {
    match kind {
        WarningKind::Systemic | WarningKind::Config | WarningKind::Rerun => Severity::Error,
        _ => Severity::Warning,
    }
}

fn fleet_problems(fleet: &Fleet) -> Vec<Warning> {
    let warning = |p: &crate::job::Problem| Warning {
        kind: p.kind.word().to_string(),
        message: mask_secrets(&p.message).into_owned(),
        path: p.path.to_string(),
        target: None,
    };
    fleet.problems.iter().map(warning).collect()
}

fn jobs_that_stand_still(fleet: &Fleet, states: &[(JobKey, JobState)]) -> Vec<Attention> {
    let mut out = Vec::new();
    for (job, (_, state)) in fleet.jobs().iter().zip(states) {
        let next = match state.kind {
            StateKind::Dead => "nobody works on it any more",
            StateKind::Interrupted => "it was stopped before its end",
            StateKind::Unreachable => "tried again and again",
            _ => continue,
        };
        out.push(Attention {
            id: format!("{} {}", state.kind.word(), job.facts.dir.display()),
            kind: state.kind.word().to_string(),
            severity: Severity::Fatal,
            serving: None,
            text: format!("{} {}: {next} ({})", job.facts.name, state.kind.word(), state.evidence),
            target: None,
        });
    }
    out
}

/// The trial that a path lies in.
fn target(fleet: &Fleet, path: &str) -> Option<TrialKey> {
    let path = std::path::Path::new(path);
    fleet.jobs().iter().find_map(|job| {
        let rest = path.strip_prefix(&job.facts.dir).ok()?;
        let name = rest.components().next()?.as_os_str().to_str()?;
        // The path may end in `:line`.
        let known = job.trials.get_key_value(name).or_else(|| job.trials.get_key_value(name.split(':').next()?));
        known.map(|(name, _)| TrialKey { job: job.key, trial: name.clone() })
    })
}

/// What a class means for whoever reads the errors, in few words.
fn meaning(class: Class) -> &'static str {
    match class {
        Class::Infra => "R requeue",
        Class::Config => "mend it first",
        Class::AgentTimeout | Class::AgentError | Class::ContextExceeded | Class::Failed | Class::Partial => "valid",
        Class::VerifierTimeout | Class::VerifierError | Class::Unclassified | Class::Phantom | Class::Orphaned => {
            "t look"
        }
        Class::Cancelled => "stopped",
        Class::Passed => "solved",
    }
}

/// A group with the classes of its rows.
struct Gathered {
    group: ErrorGroup,
    classes: Spread,
}

/// Of each class, in order of triage: how many, and their sub-class where it is the same of all.
type Spread = BTreeMap<(usize, Class), (usize, Option<Arc<str>>)>;

/// `docker  infra → R requeue`, `2 infra, 1 failed`.
fn hint(gathered: &Gathered) -> String {
    let mut classes = gathered.classes.iter();
    match (classes.next(), classes.next()) {
        (None, _) => String::new(),
        (Some(((_, class), (n, sub))), None) if *n == gathered.group.n => {
            let sub = sub.as_ref().map(|sub| format!("{sub} ")).unwrap_or_default();
            format!("{sub}{} → {}", class.word(), meaning(*class))
        }
        _ => {
            let each = gathered.classes.iter().map(|((_, class), (n, _))| format!("{n} {}", class.word()));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Adds what is counted over the rows.
pub fn finish(derived: &mut Derived, rows: &[Row]) {
    let mut groups: BTreeMap<(bool, Arc<str>), Gathered> = BTreeMap::new();
    let mut classes: BTreeMap<(usize, Option<Arc<str>>), ErrorGroup> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.superseded.is_none()) {
        if let Some(slot) = Outcome::ALL.iter().position(|o| *o == row.outcome).and_then(|i| derived.counts.get_mut(i))
        {
            *slot += 1;
        }
        let count = |group: &mut ErrorGroup| {
            group.n += 1;
            group.graded += usize::from(row.reward.is_some());
            group.solved += usize::from(row.reward == Some(1.0));
        };
        let of_class = row.class.as_ref().filter(|c| c.class != Class::Passed);
        if let Some(class) = of_class {
            let whole = super::triage::class_words(class);
            let exact = class.sub.as_ref().map(|sub| format!(" sub:={sub}")).unwrap_or_default();
            let group = classes.entry((class.class.turn(), class.sub.clone())).or_insert_with(|| ErrorGroup {
                kind: format!("class {whole}").into(),
                n: 0,
                solved: 0,
                graded: 0,
                filter: format!("class:={}{exact}", class.class.word()),
                is_exception: false,
                class: Some(class.class),
                hint: format!("→ {}", meaning(class.class)),
            });
            count(group);
        }
        let (is_exception, kind, filter) = match (&row.exception, row.outcome) {
            (Some(kind), _) => (true, kind.clone(), format!("exception:{kind}")),
            (None, o @ (Outcome::Phantom | Outcome::Orphaned | Outcome::Unreadable | Outcome::NoReward)) => {
                (false, Arc::from(o.word()), format!("outcome:{}", o.word().replace(' ', "_")))
            }
            _ => continue,
        };
        let gathered = groups.entry((is_exception, kind.clone())).or_insert_with(|| Gathered {
            group: ErrorGroup {
                kind,
                n: 0,
                solved: 0,
                graded: 0,
                filter,
                is_exception,
                class: None,
                hint: String::new(),
            },
            classes: BTreeMap::new(),
        });
        count(&mut gathered.group);
        if let Some(class) = &row.class {
            let of = gathered.classes.entry((class.class.turn(), class.class)).or_insert((0, class.sub.clone()));
            of.0 += 1;
            if of.1 != class.sub {
                of.1 = None;
            }
        }
    }
    let told = |gathered: Gathered| ErrorGroup { hint: hint(&gathered), ..gathered.group };
    derived.errors = groups.into_values().map(told).collect();
    derived.errors.sort_by(|a, b| b.n.cmp(&a.n).then_with(|| a.kind.cmp(&b.kind)));
    derived.errors.extend(classes.into_values());
}
