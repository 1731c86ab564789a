//! `pilothouse agents [NAME]`: which agents there are, and the file of one.

use clap::Args;

use super::{FINE, USAGE, load};
use crate::agent::installed::spec::{self, Origin};
use crate::agent::{NAMES, installed};
use crate::job::text::clean;

/// List the agents that `run -a` knows, or print the file that describes one.
///
/// An agent by a file is a program that is installed where a trial happens and runs there to its end. Any
/// program becomes one by a file NAME.toml in $XDG_CONFIG_HOME/pilothouse/agents (else
/// ~/.config/pilothouse/agents); `pilothouse agents example` prints one that explains all that can stand
/// there. A file of the name of a shipped one takes its place.
///
/// Exit code: 0, or 2 where a file is wrong or there is none.
#[derive(Debug, Clone, Args)]
pub struct AgentsArgs {
    /// The agent whose file is printed; `example` for the one that explains
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// Runs the command; the exit code.
pub fn run(args: &AgentsArgs) -> u8 {
    match args.name.as_deref() {
        None => list(),
        Some("example") => {
            load::print(spec::EXAMPLE);
            FINE
        }
        Some(name) => match spec::find(name) {
            Ok(Some(found)) => {
                // As it is, but for what a terminal would act on.
                let lines: Vec<_> = found.text.lines().map(clean).collect();
                load::print(&format!("{}\n", lines.join("\n")));
                FINE
            }
            Ok(None) => {
                let what = if NAMES.contains(&name) { "is built in and has no file" } else { "there is no such agent" };
                load::complain("agents", &[format!("{}: {what}", clean(name))]);
                USAGE
            }
            Err(problem) => {
                load::complain("agents", &[problem.to_string()]);
                USAGE
            }
        },
    }
}

fn list() -> u8 {
    let (mut code, mut rows) = (FINE, Vec::new());
    for name in NAMES {
        rows.push((name.to_string(), "built in".to_string(), String::new()));
    }
    for name in installed::names() {
        match spec::find(&name) {
            Ok(Some(found)) => {
                let from = match &found.origin {
                    Origin::Shipped => "shipped file".to_string(),
                    own => own.to_string(),
                };
                rows.push((name, from, clean(&found.spec.about).into_owned()));
            }
            Ok(None) => {}
            Err(problem) => {
                code = USAGE;
                rows.push((name, "wrong".to_string(), problem.to_string()));
            }
        }
    }
    let widest = |of: &dyn Fn(&(String, String, String)) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let (one, two) = (widest(&|row| row.0.chars().count()), widest(&|row| row.1.chars().count()));
    let line = |(name, from, about): &(String, String, String)| format!("{name:one$}  {from:two$}  {about}");
    let text: Vec<String> = rows.iter().map(|row| line(row).trim_end().to_string()).collect();
    load::print(&format!("{}\n", text.join("\n")));
    code
}
