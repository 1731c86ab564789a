//! The ordinary screen on the job dir of a child, with the question when it is left.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc::{Sender, channel};

use super::say;
use crate::app::derived::Counting;
use crate::app::helm::{News, Side};
use crate::app::runtime::{Left, Steering};
use crate::cli::attach::{self, Watched};
use crate::cli::desk::Desk;
use crate::cli::run::detach;
use crate::cli::servers::ServingArgs;
use crate::cli::{Common, FINE, USAGE, load, screen};
use crate::supervise::{Record, State};

/// News that may wait for the screen.
const QUEUE: usize = 64;
/// Between two looks at the note.
const LOOK: Duration = Duration::from_secs(1);

/// Shows it until the screen is left; gives the exit code.
pub fn show(serving: &ServingArgs, common: &Common, record: &Record, state_dir: &Path) -> u8 {
    let Some(dir) = record.job_dir.clone() else { return USAGE };
    let servers = match serving.prepare() {
        Ok(servers) => servers,
        Err(why) => {
            load::complain(
                "harbor",
                &[format!("{why}; harbor goes on: pilothouse harbor attach {}", record.child.pid)],
            );
            return USAGE;
        }
    };
    let (news, heard) = channel(QUEUE);
    let desk = Desk::new(news.clone()).with_servers(servers.remote.clone());
    tell_end(record, state_dir.to_path_buf(), news);
    let notice = record.unexpected().then(|| format!("harbor writes into {}", dir.display()));
    let runs = record.state() == State::Runs;
    let prepare: screen::Prepare = Box::new(move |model| {
        model.steer.supervises = runs;
        model.steer.logout = detach::logout();
        if let Some(notice) = notice {
            crate::app::update::notice(model, notice);
        }
        Vec::new()
    });
    let left = attach::watch(
        common,
        Watched {
            dirs: vec![dir],
            poll: None,
            counting: Counting::default(),
            prepare,
            leave: None,
            steering: Some((Side::Attached, Steering { helm: Box::new(desk), news: heard })),
            deadline: None,
            servers: Some(servers),
        },
    );
    let fell = matches!(left, Ok(Left::Fell));
    let code = match left {
        Ok(Left::Quit | Left::Detached | Left::Gone) => FINE,
        other => screen::code(other),
    };
    if fell {
        say("the screen fell over; harbor goes on without it");
    }
    let mut record = record.clone();
    match record.look(state_dir) {
        State::Runs => say(&format!("harbor goes on as pid {0}: pilothouse harbor attach {0}", record.child.pid)),
        state => say(&format!("harbor {}; its output: {}", state.words(), record.log.display())),
    }
    code
}

/// Tells the screen when the child has ended, and how.
fn tell_end(record: &Record, state_dir: PathBuf, news: Sender<News>) {
    if record.state() != State::Runs {
        return;
    }
    let mut record = record.clone();
    let work = move || {
        while !news.is_closed() {
            std::thread::sleep(LOOK);
            let state = record.look(&state_dir);
            if state != State::Runs {
                let _ = news.blocking_send(News::ChildEnded(format!("harbor {}", state.words())));
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("harbor".into()).spawn(work) {
        tracing::warn!(%error, "the screen is not told when harbor ends");
    }
}
