//! `pilothouse resume-preview <job dir>`: what `harbor job resume` would do.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{FINE, NEEDS_PERSON, USAGE, load};
use crate::harbor::run_config::HarborVersion;
use crate::job::text::{clean, mask_secrets};
use crate::requeue::classic;
use crate::requeue::preview::{Ending, Preview, Previews, preview, words};

/// Names of a kind that are printed.
const SHOWN: usize = 40;

/// Tell what `harbor job resume` would delete, keep and run again, and why it would refuse; change nothing.
///
/// Harbor deletes first and checks then: what is listed as deleted is gone even where it refuses. The
/// safer way is a requeue, which touches nothing of the old job. Of a run of classic terminal-bench it tells
/// what `tb runs resume` would do, which goes by whole tasks.
///
/// Exit code: 0 a resume would run what is missing and delete nothing but cancelled or unfinished trials;
/// 1 it would refuse, begin another job, delete a graded trial or a foreign directory, or keep a result
/// without reward and exception; 2 wrong arguments, or no job that Harbor could resume.
#[derive(Debug, Clone, Args)]
pub struct ResumePreviewArgs {
    /// The job dir
    #[arg(value_name = "JOB_DIR")]
    pub dir: PathBuf,
    /// As -f of `harbor job resume`: exception types whose trials it deletes first (repeatable; takes the
    /// place of CancelledError)
    #[arg(short = 'f', long, value_name = "TYPE")]
    pub filter_error_type: Vec<String>,
    /// The directory that the resume is started in; this one if not given
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Only for this version; else for the one that ran the job, and the other in a line
    #[arg(long, value_enum, value_name = "VERSION")]
    pub harbor_version: Option<VersionArg>,
    /// Print one JSON document (schema_version 1)
    #[arg(long)]
    pub json: bool,
}

/// The versions whose behaviour is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VersionArg {
    /// 0.21
    #[value(name = "0.21")]
    V0_21,
    /// 0.26
    #[value(name = "0.26")]
    V0_26,
}

impl From<VersionArg> for HarborVersion {
    fn from(arg: VersionArg) -> HarborVersion {
        match arg {
            VersionArg::V0_21 => HarborVersion::V0_21,
            VersionArg::V0_26 => HarborVersion::V0_26,
        }
    }
}

/// Runs the command; the exit code.
pub fn run(args: &ResumePreviewArgs) -> u8 {
    let here = match args.cwd.clone().map_or_else(std::env::current_dir, Ok).and_then(std::path::absolute) {
        Ok(here) => here,
        Err(error) => {
            load::complain("resume-preview", &[format!("no directory to start in: {error}")]);
            return USAGE;
        }
    };
    if classic::is_run(&args.dir) {
        return run_classic(args);
    }
    let filter = (!args.filter_error_type.is_empty()).then_some(args.filter_error_type.as_slice());
    let mut all = match preview(&args.dir, &here, filter) {
        Ok(all) => all,
        Err(error) => {
            load::complain("resume-preview", &[error.to_string()]);
            return USAGE;
        }
    };
    if let Some(version) = args.harbor_version.map(HarborVersion::from) {
        all.of.retain(|one| one.version == version);
    }
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&all.json()).unwrap_or_default()),
        false => plain(&all),
    };
    load::print(&text);
    if all.main().is_some_and(harmless) { FINE } else { NEEDS_PERSON }
}

/// The same for a run of classic terminal-bench, whose own resume goes by whole tasks.
fn run_classic(args: &ResumePreviewArgs) -> u8 {
    let resume = match classic::resume(&args.dir) {
        Ok(resume) => resume,
        Err(error) => {
            load::complain("resume-preview", &[format!("{}: {error}", args.dir.display())]);
            return USAGE;
        }
    };
    load::print(&match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&resume.json()).unwrap_or_default()),
        false => resume.plain(),
    });
    if resume.harmless() { FINE } else { NEEDS_PERSON }
}

/// Nothing gets lost and what is missing is run.
fn harmless(one: &Preview) -> bool {
    one.ending == Ending::Runs
        && one.deletes.iter().all(|d| !d.foreign && d.reward.is_none())
        && one.keeps.iter().all(|k| !k.phantom)
}

fn safe(text: &str) -> String {
    clean(&mask_secrets(text)).into_owned()
}

fn names(list: &[String]) -> String {
    let more = list.len().saturating_sub(SHOWN);
    let shown = list.iter().take(SHOWN).map(|n| safe(n)).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// The preview in words.
pub fn plain(all: &Previews) -> String {
    let mut out = format!("{}\n", safe(&all.job_dir.to_string_lossy()));
    if all.own {
        out.push_str("  a job of pilothouse: `pilothouse run --resume` goes on with it and deletes nothing\n");
    }
    let filter: Vec<&str> = all.filter.iter().map(String::as_str).collect();
    let ran = all.ran.as_deref().map_or_else(|| "-".to_string(), safe);
    out.push_str(&format!("  run by harbor {ran}; filter: {}\n", safe(&filter.join(", "))));
    let main = all.main();
    for one in &all.of {
        let is_main = main.is_some_and(|m| m.version == one.version);
        out.push_str(&if is_main || all.of.len() == 1 { whole(one) } else { line(one) });
    }
    match &all.needs_cwd {
        Some(cwd) if *cwd != all.cwd => {
            let (cwd, here) = (safe(&cwd.to_string_lossy()), safe(&all.cwd.to_string_lossy()));
            out.push_str(&format!("relative paths: they hold in {cwd}, and this is for {here}\n"));
        }
        Some(cwd) => out.push_str(&format!("relative paths: they hold in {}\n", safe(&cwd.to_string_lossy()))),
        None => out.push_str("relative paths: nothing tells where the job was started\n"),
    }
    for hazard in &all.hazards {
        out.push_str(&format!("warning: {}\n", safe(hazard)));
    }
    out.push_str(&format!("to resume: {}\n", safe(&all.resume_command())));
    out.push_str(&format!("safer, deletes nothing: {}\n", safe(&all.requeue_command())));
    out
}

fn ending(one: &Preview) -> String {
    match &one.ending {
        Ending::Runs if one.reruns.is_empty() => "runs nothing: all planned trials are done".to_string(),
        Ending::Runs => format!("runs {} of {} planned trials", one.reruns.len(), one.planned),
        Ending::Refuses(kind, why) => format!("REFUSES ({}): {}", safe(kind), safe(why)),
        Ending::Elsewhere(dir) => {
            format!("leaves this job alone and BEGINS A NEW ONE in {}", safe(&dir.to_string_lossy()))
        }
    }
}

fn line(one: &Preview) -> String {
    let n = one.deletes.len();
    format!("harbor {}: {}; deletes {n} directories\n", words(one.version), ending(one))
}

fn whole(one: &Preview) -> String {
    let mut out = format!("harbor {}: {}\n", words(one.version), ending(one));
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for deleted in &one.deletes {
        let mut why = deleted.why.words();
        if deleted.foreign {
            why.push_str(", NOT HARBOR'S");
        }
        let name = match &deleted.reward {
            Some(reward) => format!("{} (graded: {reward})", deleted.name),
            None => deleted.name.clone(),
        };
        match groups.iter_mut().find(|(w, _)| *w == why) {
            Some((_, list)) => list.push(name),
            None => groups.push((why, vec![name])),
        }
    }
    out.push_str(&format!("  deletes {}\n", one.deletes.len()));
    for (why, list) in groups {
        out.push_str(&format!("    {}: {}\n", safe(&why), names(&list)));
    }
    let done: Vec<String> = one.keeps.iter().filter(|k| !k.phantom).map(|k| k.name.clone()).collect();
    let phantoms: Vec<String> = one.keeps.iter().filter(|k| k.phantom).map(|k| k.name.clone()).collect();
    out.push_str(&format!(
        "  keeps {} as done{}{}\n",
        one.keeps.len(),
        if done.is_empty() { "" } else { ": " },
        names(&done)
    ));
    if !phantoms.is_empty() {
        out.push_str(&format!("    without reward or exception, and yet never run again: {}\n", names(&phantoms)));
    }
    for (name, why) in one.stale.iter().take(SHOWN) {
        out.push_str(&format!("  leaves {} and runs its task again beside it: {why}\n", safe(name)));
    }
    if !one.reruns.is_empty() && one.ending == Ending::Runs {
        out.push_str(&format!("  runs again: {}\n", names(&one.reruns)));
    }
    if !one.fields.is_empty() {
        out.push_str("  not as it was:\n");
        for field in one.fields.iter().take(SHOWN) {
            out.push_str(&format!("    {}: {} → {}\n", safe(&field.field), safe(&field.was), safe(&field.now)));
        }
    }
    for note in &one.notes {
        out.push_str(&format!("  {}\n", safe(note)));
    }
    out
}
