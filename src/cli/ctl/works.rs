//! What trials at work do, over the control socket: all of it once, or what changed, now and then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::time::timeout;

use super::wire::{self, Answer};
use crate::app::helm::News;
use crate::job::Stamp;
use crate::report::work::{self, WorkJson};
use crate::scheduler::Board;
use crate::scheduler::board::{Change, Reader};
use crate::serving::{Thinking, thinking};

/// Between two looks at the board: changes in between are told together.
pub const PACE: Duration = Duration::from_millis(250);
/// Trials in one line: texts are short enough that it stays far below the longest line.
const TOGETHER: usize = 60;
/// Trials in the answer to one question.
const ALL: usize = 200;

/// What changed, as lines.
fn answers(changes: &[Change]) -> Vec<Answer> {
    let answer = |changes: &[Change]| {
        let gone = changes.iter().filter(|(_, work)| work.is_none()).map(|(name, _)| name.to_string());
        let work = changes.iter().filter_map(|(name, work)| Some(WorkJson::of(name, work.as_ref()?)));
        Answer { work: work.collect(), gone: gone.collect(), ..Answer::done(Vec::new()) }
    };
    changes.chunks(TOGETHER).map(answer).collect()
}

/// Tells one who watches what changed; false: the other end does not take it in time.
pub async fn tell(writer: &mut OwnedWriteHalf, board: &mut Reader, patience: Duration) -> bool {
    for answer in answers(&board.changes()) {
        if !matches!(timeout(patience, writer.write_all(&wire::line(&answer))).await, Ok(Ok(()))) {
            return false;
        }
    }
    true
}

/// What all do.
pub fn all(board: &Board) -> Vec<WorkJson> {
    board.read().iter().take(ALL).map(|(name, work)| WorkJson::of(name, work)).collect()
}

/// What a line says of trials at work, for a screen; None: nothing.
pub fn news(answer: &Answer) -> Option<News> {
    let at_work = answer.work.iter().filter_map(|told| Some((name(&told.trial)?, told.work())));
    let gone = answer.gone.iter().filter_map(|told| Some((name(told)?, None)));
    let changes: BTreeMap<Arc<str>, _> = at_work.chain(gone).collect();
    (!changes.is_empty()).then(|| News::Work(changes.into_iter().collect()))
}

fn name(text: &str) -> Option<Arc<str>> {
    work::name(text).map(Arc::from)
}

/// Those that are meant: by the trial's name or its task's; all where none is named.
pub fn wanted(mut told: Vec<WorkJson>, words: &[String]) -> Vec<WorkJson> {
    let meant = |name: &str| {
        let task = name.rsplit_once("__").map_or(name, |(task, _)| task);
        words.iter().any(|word| word == name || word == task)
    };
    told.retain(|one| words.is_empty() || meant(&one.trial));
    told
}

/// Says of each whether its present call goes on unusually long.
pub fn judge(told: &mut [WorkJson], limits: &Thinking, now: Stamp) {
    for one in told {
        one.long = one.work().and_then(|work| thinking::long(&work, None, limits, now)).map(|long| long.text());
    }
}

/// For people: a trial after the other.
pub fn words(told: &[WorkJson], now: Stamp) -> Vec<String> {
    let of = |one: &WorkJson| match (work::name(&one.trial), one.work()) {
        (Some(name), Some(work)) => work::lines(&name, &work, one.long.as_deref(), now),
        _ => Vec::new(),
    };
    told.iter().flat_map(of).collect()
}
