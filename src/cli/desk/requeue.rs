//! Running trials again on the screen's word: the plan, its start, and what becomes of the new job.

use std::path::Path;
use std::time::Duration;

use super::Shared;
use crate::app::helm::{Ask, News, Plan, Prepared, Progress, Wish};
use crate::cli::resume_preview::plain;
use crate::job::{JobKey, Stamp};
use crate::requeue::classic;
use crate::requeue::preview::preview;
use crate::requeue::{Surroundings, prepare, select, start};

/// Time between two looks at a job that was started.
const LOOK: Duration = Duration::from_millis(500);

/// All plans of a wish; jobs of one lineage are planned together.
pub(super) fn planned(wish: &Wish) -> Prepared {
    let mut out = Prepared::default();
    let Some(state_dir) = crate::cli::state_dir() else {
        out.notes.push("no place for the config of the new job: set HOME or PILOTHOUSE_STATE_DIR".to_string());
        return out;
    };
    let around = Surroundings::of(&state_dir, None);
    let mut done: Vec<JobKey> = Vec::new();
    for (job, wanted) in &wish.wanted {
        let sweeping = wanted.infra || wanted.unscored;
        if sweeping && done.contains(job) {
            continue;
        }
        if sweeping {
            done.extend(select::family(&wish.fleet, *job));
        }
        let reserved = out.plans.iter().map(|plan| plan.name.clone()).collect();
        let ask = Ask { reserved, ..wish.ask.clone() };
        let mut part = prepare(&wish.fleet, *job, wanted, &wish.terms, &ask, &around, Stamp::now());
        out.plans.append(&mut part.plans);
        out.refused.append(&mut part.refused);
        out.notes.append(&mut part.notes);
    }
    out
}

impl Shared {
    /// Starts a plan and tells what becomes of it until its end.
    pub(super) fn requeue(&self, plan: &Plan) {
        let name = plan.name.clone();
        let tell = |progress| self.tell(News::Requeue(progress));
        let started = match crate::cli::state_dir() {
            Some(state_dir) => start(plan, &state_dir).map_err(|e| e.to_string()),
            None => Err("no place for its config: set HOME or PILOTHOUSE_STATE_DIR".to_string()),
        };
        let mut started = match started {
            Ok(started) => started,
            Err(why) => return tell(Progress::Failed { name, why }),
        };
        let log = started.log.clone();
        tell(Progress::Started { name: name.clone(), log: log.clone(), pid: started.pid });
        let mut begun = false;
        loop {
            let looked = started.look();
            if !begun && started.begun() {
                begun = true;
                tell(Progress::Begun { name: name.clone(), dir: started.dir.clone() });
            }
            match looked {
                Ok(None) => {}
                Ok(Some(status)) => {
                    let words = if begun { status.to_string() } else { format!("before it began, {status}") };
                    return tell(Progress::Ended { name, words, log, fine: status.success() && begun });
                }
                Err(error) => self.tell(News::Refused(format!("{name}: {error}"))),
            }
            if self.news.is_closed() {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// What Harbor's resume would do to a job, as the command tells it; for a resume from the directory in
/// which the job's relative paths hold.
pub(super) fn preview_of(dir: &Path) -> Result<String, String> {
    if classic::is_run(dir) {
        return classic::resume(dir).map(|resume| resume.plain()).map_err(|e| format!("{}: {e}", dir.display()));
    }
    let here = std::env::current_dir().map_err(|e| format!("no directory to start in: {e}"))?;
    let all = preview(dir, &here, None).map_err(|e| e.to_string())?;
    let there = all.needs_cwd.clone().filter(|cwd| *cwd != here);
    let all = match there {
        Some(cwd) => preview(dir, &cwd, None).map_err(|e| e.to_string())?,
        None => all,
    };
    Ok(plain(&all))
}
