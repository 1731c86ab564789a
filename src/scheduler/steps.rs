//! Trials of several steps: one environment, one agent, step by step (Harbor 0.26).

use std::sync::Arc;

use serde_json::Number;

use super::limits::{Limit, os_error, phase, runtime_error};
use super::part::Part;
use super::start::{healthy, workdir};
use super::trial::{Attempt, Sheet};
use crate::environment::{Command, Ended, Environment, Upload, quoted};
use crate::harbor::task::{RewardStrategy, Rewards, TaskStep};
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::{RewardMap, VerifierResult};
use crate::harbor::write::{Folder, Modes};
use crate::verifier::clear;

impl Attempt {
    /// All steps, until one fails without a reward or misses its minimum. What a step fails of is the
    /// step's; what is returned is the trial's.
    pub(super) async fn steps(&mut self, environment: &Arc<dyn Environment>, sheet: &mut Sheet) -> Result<(), Raised> {
        let planned = Arc::clone(&self.planned);
        let task = &*planned.task;
        let total = task.steps.len();
        let mut dirty = false;
        for (index, step) in task.steps.iter().enumerate() {
            let name = step.name.clone().unwrap_or_default();
            self.say(format!("Starting step {}/{total}: {name}", index + 1));
            sheet.steps.push(Part { step: Some(name.clone()), ..Part::default() });
            let Some(part) = sheet.steps.last_mut() else { break };
            let begun = self.disk.work(move |folder| folder.begin_step(&name, Modes::default()));
            let folder = Arc::new(begun.await.map_err(os_error("a step's begin"))?);
            self.step(environment, step, part, &mut dirty).await?;
            // Its recording is of this step, and moved with it; the terminal goes on into the next one.
            self.rest_desk().await;
            self.archive(&**environment, Arc::clone(&folder)).await?;
            if let Some(why) = self.ends_here(step, part) {
                self.say(why);
                break;
            }
        }
        sheet.verdict = together(task.config.strategy(), &sheet.steps);
        Ok(())
    }

    async fn step(
        &mut self,
        environment: &Arc<dyn Environment>,
        step: &TaskStep,
        part: &mut Part,
        dirty: &mut bool,
    ) -> Result<(), Raised> {
        let what = "a step's setup";
        let limit = || Limit { seconds: None, kind: "RuntimeError", what };
        if std::mem::take(dirty) {
            // The tests of the step before, and what they left, are not for this one to see.
            phase(&mut self.cancel.clone(), limit(), clear(&**environment, what)).await?;
        }
        let ready = self.prepare(&**environment, step, part);
        phase(&mut self.cancel.clone(), limit(), ready).await?;
        if part.exception.is_some() {
            return Ok(());
        }
        self.agent_phase(environment, step, part).await?;
        self.collect(Some(&**environment), Some(step)).await;
        if !self.graded(part) {
            return Ok(());
        }
        *dirty = true;
        let cleared = phase(&mut self.cancel.clone(), limit(), clear(&**environment, what)).await;
        let done = match cleared {
            Ok(()) => self.grade(&**environment, step, part).await,
            Err(raised) => Err(raised),
        };
        match done {
            Err(raised) if !raised.is_cancelled() => self.note(part, &raised).await,
            other => other?,
        }
        Ok(())
    }

    /// Files of the step, its `setup.sh`, its healthcheck.
    async fn prepare(&self, environment: &dyn Environment, step: &TaskStep, part: &mut Part) -> Result<(), Raised> {
        let planned = &*self.planned;
        let spec = planned.task.spec(step);
        let user = planned.task.config.agent_user(spec).map(ToString::to_string);
        let failed = runtime_error("a step's setup");
        let workdir = workdir(environment, planned).await.map_err(&failed)?;
        if let Some(files) = &step.workdir {
            let files = planned.task.dir.join(files);
            environment.upload(Upload::Dir(files.clone()), &workdir).await.map_err(&failed)?;
            let there = tokio::task::spawn_blocking(move || files.join("setup.sh").is_file()).await;
            if there.unwrap_or(false) {
                let name = step.name.clone().unwrap_or_default();
                let script = environment.locate(&format!("{}/setup.sh", workdir.trim_end_matches('/')));
                let start_in = planned.task.config.environment.workdir.clone();
                let setup = Command::new(&format!("bash {}", quoted(&script)));
                let setup = Command { user: user.clone(), workdir: start_in, ..setup };
                let why = match environment.exec(&setup).await {
                    Ok(end) if end.ended == Ended::Exited(0) => None,
                    Ok(end) => Some(match end.ended {
                        Ended::Exited(code) => format!("Step '{name}' setup.sh exited with code {code}"),
                        Ended::TimedOut => format!("Step '{name}' setup.sh did not end"),
                    }),
                    Err(e) => Some(e.to_string()),
                };
                if let Some(why) = why {
                    self.note(part, &Raised::new("RuntimeError", &why, "a step's setup.sh")).await;
                    return Ok(());
                }
            }
        }
        if let Some(check) = spec.and_then(|s| s.healthcheck.as_ref()) {
            match healthy(environment, check, user).await {
                Err(raised) if raised.kind == "HealthcheckError" => self.note(part, &raised).await,
                other => other?,
            }
        }
        Ok(())
    }

    /// Moves what the step left to its own directories.
    async fn archive(&self, environment: &dyn Environment, step: Arc<Folder>) -> Result<(), Raised> {
        if let Err(e) = environment.hand_over().await {
            self.say(format!("Step: {e}"));
        }
        self.disk.work(move |folder| folder.archive(&step)).await.map_err(os_error("a step's end"))
    }

    /// Without a container: the directories that are empty now. What a step that was stopped left stays
    /// where it is, as under Harbor.
    pub(super) async fn drop_empty(&self) {
        if let Err(e) = self.disk.work(|folder| folder.drop_empty()).await {
            self.say(format!("Steps: {e}"));
        }
    }

    /// Why no further step is run; None when it goes on.
    fn ends_here(&self, step: &TaskStep, part: &Part) -> Option<String> {
        let name = step.name.as_deref().unwrap_or_default();
        if part.exception.is_some() && part.verdict.is_none() {
            return Some(format!("Step '{name}' failed, aborting remaining steps"));
        }
        let minimum = self.planned.task.spec(step)?.min_reward.as_ref()?;
        if self.planned.config.verifier.disable {
            return None;
        }
        let rewards = part.verdict.as_ref().and_then(|v| v.rewards.as_ref()).map(numbers);
        let (key, reached, minimum) = minimum.unmet(rewards.as_ref())?;
        let reached = reached.map_or("-".to_string(), |r| r.to_string());
        Some(format!("Step '{name}' {key}={reached} below min_reward {minimum}, aborting remaining steps"))
    }
}

fn numbers(rewards: &RewardMap) -> Rewards {
    rewards.iter().filter_map(|(key, number)| Some((key.clone(), number.as_f64()?))).collect()
}

/// The reward of the trial from those of its steps, as the task wants it.
fn together(strategy: RewardStrategy, steps: &[Part]) -> Option<VerifierResult> {
    if strategy == RewardStrategy::Final {
        return steps.last().and_then(|part| part.verdict.clone());
    }
    let rewards: Vec<Option<Rewards>> = steps
        .iter()
        .map(|part| part.verdict.as_ref().map(|v| v.rewards.as_ref().map(numbers).unwrap_or_default()))
        .collect();
    let mean = strategy.combine(&rewards).filter(|mean| !mean.is_empty())?;
    let mean = mean.into_iter().filter_map(|(key, value)| Some((key, Number::from_f64(value)?)));
    Some(VerifierResult { rewards: Some(mean.collect()) })
}
