//! What a start over an old job would do, in few lines: by the resume preview.

use std::path::Path;

use super::asked::Asked;
use super::remarks::Remark;
use crate::harbor::run_config::HarborVersion;
use crate::requeue::preview::{Ending, Preview, Previews, preview, words};

/// Looks ahead; None where there is no old job.
pub fn look(asked: &Asked) -> Option<Remark> {
    let filter = (!asked.filter.is_empty()).then_some(asked.filter.as_slice());
    let dir = asked.dir();
    let there = |dir: &Path| dir.join("config.json").is_file();
    if asked.resumes {
        let told = asked.from_job.as_deref()?;
        return match preview(told, &asked.cwd, filter) {
            Ok(all) => Some(resume(&all, asked)),
            Err(error) => {
                Some(Remark::asks("job_exists", format!("{error}"), "give the job dir that is to be resumed: -p DIR"))
            }
        };
    }
    if let Some(dir) = dir.filter(|dir| there(dir)) {
        return Some(match preview(&dir, &asked.cwd, None) {
            Ok(all) => over(&all, asked, &dir),
            Err(error) => Remark::asks("job_exists", format!("the job dir exists: {error}"), OTHER_NAME),
        });
    }
    // A start from an old job's config, in another directory: the same job once more.
    let from = asked.from_job.as_deref().filter(|dir| there(dir))?;
    let all = preview(from, &asked.cwd, None).ok()?;
    let done = chosen(&all, asked)?.keeps.len();
    let into = asked.dir().map_or_else(|| asked.jobs_dir.display().to_string(), |d| d.display().to_string());
    let what = format!(
        "this config is of the job in {}, and the new one goes to {into}: {done} finished {} of it would be run again",
        from.display(),
        if done == 1 { "trial" } else { "trials" },
    );
    Some(Remark::asks("job_exists", what, format!("to run only what is missing: {}", all.requeue_command())))
}

const OTHER_NAME: &str = "choose another --job-name";

fn chosen<'a>(all: &'a Previews, asked: &Asked) -> Option<&'a Preview> {
    let version = asked.version.or(Some(HarborVersion::V0_26));
    all.of.iter().find(|p| Some(p.version) == version).or_else(|| all.main())
}

/// What is deleted, kept and run again.
fn sums(one: &Preview) -> String {
    let graded = one.deletes.iter().filter(|d| d.reward.is_some()).count();
    let foreign = one.deletes.iter().filter(|d| d.foreign).count();
    let mut out = format!("deletes {} directories", one.deletes.len());
    if graded > 0 {
        out.push_str(&format!(" ({graded} with a reward)"));
    }
    if foreign > 0 {
        out.push_str(&format!(" ({foreign} not Harbor's)"));
    }
    out.push_str(&format!(", keeps {} as done, runs {} of {} again", one.keeps.len(), one.reruns.len(), one.planned));
    out
}

fn resume(all: &Previews, asked: &Asked) -> Remark {
    let Some(one) = chosen(all, asked) else {
        return Remark::note("resume", "what it would do is not known for this version".to_string(), "");
    };
    let number = words(one.version);
    let fields: Vec<String> =
        one.fields.iter().take(3).map(|f| format!("{}: {} → {}", f.field, f.was, f.now)).collect();
    let fields = if fields.is_empty() { String::new() } else { format!(" ({})", fields.join("; ")) };
    let remedy = format!("see {}; safer, deletes nothing: {}", preview_command(all), all.requeue_command());
    match &one.ending {
        Ending::Elsewhere(dir) => {
            let n = one.keeps.len();
            let what = format!(
                "harbor {number} leaves {} alone, begins a NEW job in {} and runs all {} trials, {n} of them finished \
                 already",
                all.job_dir.display(),
                dir.display(),
                one.planned
            );
            let cwd = all.needs_cwd.as_ref().map(|cwd| format!("start it in {}; ", cwd.display()));
            Remark::asks("resume", what, format!("{}{remedy}", cwd.unwrap_or_default()))
        }
        Ending::Refuses(kind, why) => {
            let what = format!("harbor {number} {}, then refuses: {kind}: {why}{fields}", sums(one));
            Remark::asks("resume", what, remedy)
        }
        Ending::Runs => {
            let lost = one.deletes.iter().any(|d| d.reward.is_some() || d.foreign);
            let stuck = one.keeps.iter().filter(|k| k.phantom).count();
            let mut what = format!("harbor {number} {}", sums(one));
            if stuck > 0 {
                what.push_str(&format!("; {stuck} without reward or exception count as done"));
            }
            Remark { asks: lost || stuck > 0, ..Remark::note("resume", what, remedy) }
        }
    }
}

/// `run` over a job dir that is there.
fn over(all: &Previews, asked: &Asked, dir: &Path) -> Remark {
    let what = match chosen(all, asked) {
        Some(one) => format!(
            "the job dir {} exists: with the same config harbor resumes it without a word ({}), with another it refuses \
             (FileExistsError)",
            dir.display(),
            sums(one)
        ),
        None => format!("the job dir {} exists: with the same config harbor resumes it without a word", dir.display()),
    };
    Remark::asks("job_exists", what, format!("{OTHER_NAME}, or see {}", preview_command(all)))
}

fn preview_command(all: &Previews) -> String {
    format!("pilothouse resume-preview {}", crate::requeue::quoted(&all.job_dir.to_string_lossy()))
}
