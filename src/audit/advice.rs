//! How to stop an owner: which signal, and what it costs.

use rustix::process::Signal;

use super::owner::{Owner, Program, Verb};
use super::process::Disposition;

/// A signal that ends a job in good order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopSignal {
    /// SIGTERM.
    Term,
    /// SIGINT, as Ctrl-C sends it.
    Int,
}

impl StopSignal {
    /// As `kill` names it.
    pub fn name(self) -> &'static str {
        match self {
            StopSignal::Term => "SIGTERM",
            StopSignal::Int => "SIGINT",
        }
    }

    pub(super) fn raw(self) -> Signal {
        match self {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
        }
    }

    fn of(self, owner: &Owner) -> Disposition {
        match self {
            StopSignal::Term => owner.term,
            StopSignal::Int => owner.int,
        }
    }
}

/// What to send, and what to know beforehand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The signal to send unless the operator chooses another.
    pub signal: StopSignal,
    /// Why this one.
    pub why: String,
    /// The other one, where it is of use, and when.
    pub other: Option<(StopSignal, String)>,
    /// What an operator has to know.
    pub warnings: Vec<String>,
}

/// True for versions of Harbor whose handler of SIGTERM is known to leave results without reward or
/// exception at times: it raises KeyboardInterrupt wherever the program happens to be. Seen with 0.21.0
/// and 0.26.0; the versions between have the same handler, others were not looked at.
pub fn term_leaves_phantoms(version: &str) -> bool {
    let mut parts = version.split('.').map(|p| p.parse::<u32>().ok());
    matches!((parts.next().flatten(), parts.next().flatten()), (Some(0), Some(21..=26)))
}

/// Which signal to send to an owner. `harbor_version` is that of the job's `lock.json`.
pub fn advice(owner: &Owner, harbor_version: Option<&str>) -> Advice {
    let mut warnings: Vec<String> = owner.doubts.clone();
    if !owner.pipes.is_empty() {
        let which = owner.pipes.join(" and ");
        warnings.push(format!(
            "its {which} go into a pipe (tee?): leave that program alone until the job has ended, or Harbor dies of a \
             broken pipe without cleaning up"
        ));
    }
    let (signal, why, other) = match owner.program {
        Program::Pilothouse => (
            StopSignal::Term,
            "pilothouse starts nothing new, cancels what runs in order and records it; a second signal shortens the \
             wait, a third aborts"
                .to_string(),
            None,
        ),
        Program::Harbor | Program::Other => of_harbor(owner, harbor_version, &mut warnings),
    };
    Advice { signal, why, other, warnings }
}

fn of_harbor(
    owner: &Owner,
    version: Option<&str>,
    warnings: &mut Vec<String>,
) -> (StopSignal, String, Option<(StopSignal, String)>) {
    let what =
        if owner.program == Program::Harbor { format!("harbor {}", owner.verb.words()) } else { "it".to_string() };
    let what = what.trim_end();
    // What the kernel says comes before what is known of the verb.
    let term = match owner.term {
        Disposition::Unknown if owner.verb == Verb::Run => Disposition::Handled,
        Disposition::Unknown if owner.program == Program::Harbor => Disposition::Default,
        known => known,
    };
    // Python's own handler stands from the start, unless the signal was ignored when it began.
    let int = if owner.int == Disposition::Unknown { Disposition::Handled } else { owner.int };
    match (term, int) {
        (Disposition::Handled, int) => {
            let known = match version {
                Some(v) if term_leaves_phantoms(v) => format!("Harbor {v} can"),
                Some(v) => format!("Harbor {v} may (0.21 and 0.26 can)"),
                None => "this version of Harbor may (0.21 and 0.26 can)".to_string(),
            };
            warnings.push(format!(
                "{known} leave a phantom after SIGTERM: a result without reward or exception of a trial that was just \
                 starting, which `harbor job resume` keeps as done; the audit finds it"
            ));
            let instead = match int {
                Disposition::Handled => "ends the same way and is not known to leave phantoms",
                _ => "without effect here: it ignores SIGINT (started in the background of a script)",
            };
            let other = Some((StopSignal::Int, instead.to_string()));
            (
                StopSignal::Term,
                format!("{what} handles it: running trials are cancelled, cleaned up and recorded"),
                other,
            )
        }
        (_, Disposition::Handled) => {
            let why = format!(
                "{what} has no handler for SIGTERM, which would end it at once and leave containers and trials without \
                 result; SIGINT cancels in order"
            );
            (StopSignal::Int, why, None)
        }
        _ => {
            warnings.push(format!(
                "{what} ignores SIGINT (started in the background of a script) and has no handler for SIGTERM: it ends \
                 at once and leaves containers, networks, temporary files and trials without result; the audit finds \
                 them"
            ));
            (StopSignal::Term, "nothing ends it in order".to_string(), None)
        }
    }
}

/// False when a signal would have no effect at all.
pub fn works(owner: &Owner, signal: StopSignal) -> bool {
    signal.of(owner) != Disposition::Ignored
}

/// Why a chosen signal is a bad idea or of no use, where it is.
pub fn objection(owner: &Owner, signal: StopSignal) -> Option<String> {
    match (signal.of(owner), owner.program) {
        (Disposition::Ignored, _) => Some(format!("{} ignores {}: nothing would happen", owner.name(), signal.name())),
        (Disposition::Default, Program::Harbor) => {
            let why = "without a handler it dies at once and leaves containers and trials without result";
            Some(format!("{} has no handler for {}: {why}", owner.name(), signal.name()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::owner::Owner;

    fn owner(verb: Verb, term: Disposition, int: Disposition) -> Owner {
        Owner {
            pid: 1,
            started: 1,
            began: None,
            program: Program::Harbor,
            verb,
            command: "harbor".into(),
            cwd: None,
            uid: None,
            pipes: Vec::new(),
            term,
            int,
            evidence: String::new(),
            doubts: Vec::new(),
        }
    }

    #[test]
    fn signals_are_chosen_by_what_the_process_handles() {
        use Disposition::{Default, Handled, Ignored, Unknown};
        let run = advice(&owner(Verb::Run, Handled, Handled), Some("0.21.0"));
        assert_eq!(run.signal, StopSignal::Term);
        assert_eq!(run.other.map(|(s, _)| s), Some(StopSignal::Int));
        assert!(run.warnings.iter().any(|w| w.contains("phantom")), "{:?}", run.warnings);
        assert_eq!(advice(&owner(Verb::Resume, Default, Handled), Some("0.21.0")).signal, StopSignal::Int);
        assert_eq!(advice(&owner(Verb::TrialStart, Unknown, Unknown), None).signal, StopSignal::Int);
        assert_eq!(advice(&owner(Verb::Run, Unknown, Unknown), None).signal, StopSignal::Term);
        let stuck = advice(&owner(Verb::Resume, Default, Ignored), Some("0.26.0"));
        assert_eq!(stuck.signal, StopSignal::Term);
        assert!(stuck.warnings.iter().any(|w| w.contains("leaves containers")), "{:?}", stuck.warnings);
        assert!(objection(&owner(Verb::Run, Handled, Ignored), StopSignal::Int).is_some());
        assert!(objection(&owner(Verb::Resume, Default, Handled), StopSignal::Term).is_some());
        assert_eq!(objection(&owner(Verb::Run, Handled, Handled), StopSignal::Term), None);
        let mut piped = owner(Verb::Run, Handled, Handled);
        piped.pipes = vec!["stdout"];
        assert!(advice(&piped, Some("0.26.0")).warnings.iter().any(|w| w.contains("pipe")));
        assert!(term_leaves_phantoms("0.26.0") && !term_leaves_phantoms("0.12.1"));
    }
}
