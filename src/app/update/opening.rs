//! What opens over the lists: a trial, its recording.

use super::super::detail::TrialView;
use super::super::effect::Effect;
use super::super::model::{Model, View};
use super::super::replay::{ReplayView, Source};
use crate::job::{Stamp, TrialKey};

/// Opens the trial view.
pub fn open_trial(model: &mut Model, key: TrialKey) -> Vec<Effect> {
    let Some(job) = model.fleet.job(key.job) else { return Vec::new() };
    let Some(trial) = job.trials.get(&key.trial) else { return Vec::new() };
    let dir = job.facts.dir.join(&*key.trial);
    let (mut view, mut effects) = TrialView::open(key.clone(), dir, trial);
    view.resize(model.size);
    view.judge(job, trial);
    // From trial to trial the tab stays: the same question is asked of each.
    let before = model.trial.as_ref().map(|before| (before.tab, before.has_player()));
    if let Some((tab, _)) = before {
        effects.extend(view.show(tab));
    }
    view.await_terminal(trial.result.is_none());
    let wanted = view.want_terminal();
    if wanted.is_empty() && before.is_some_and(|(_, player)| player) {
        effects.push(Effect::Replay(super::super::replay::Request::Close));
    }
    effects.extend(wanted);
    model.trial = Some(view);
    if model.view() != View::Trial {
        model.views.push(View::Trial);
    }
    effects.push(Effect::Watch(Some(key)));
    effects
}

/// Opens the recording of a trial at an episode, from 0, or at its beginning.
pub(super) fn open_replay(model: &mut Model, key: &TrialKey, episode: Option<usize>) -> Vec<Effect> {
    replay_from(model, key, episode, None)
}

/// Opens the recording of a trial at a moment; at its end where none is known.
pub fn open_replay_at(model: &mut Model, key: &TrialKey, moment: Option<Stamp>) -> Vec<Effect> {
    replay_from(model, key, None, Some(moment))
}

fn replay_from(
    model: &mut Model,
    key: &TrialKey,
    episode: Option<usize>,
    moment: Option<Option<Stamp>>,
) -> Vec<Effect> {
    let Some(job) = model.fleet.job(key.job) else { return Vec::new() };
    let path = job.facts.dir.join(&*key.trial);
    let (view, effects) = ReplayView::open(Source { path, title: key.trial.to_string(), episode, moment });
    if let Some(below) = &mut model.trial {
        below.lose_player();
    }
    model.replay = Some(view);
    model.views.push(View::Replay);
    effects
}

/// Opens the replay of one file or trial dir and nothing else.
pub fn replay_only(model: &mut Model, source: Source) -> Vec<Effect> {
    let (view, effects) = ReplayView::open(source);
    model.replay = Some(view);
    model.replay_only = true;
    model.views = vec![View::Trials, View::Replay];
    effects
}
