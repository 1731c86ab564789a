//! The loop: ask, read, type, look, tell; until it is done, or cannot go on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Terminus;
use super::diary::{Diary, Done, Said};
use super::parse::{Command, parse};
use super::recover::Compacted;
use super::sums::{Beside, Sums};
use super::talk::Talk;
use super::tell::{self, Cut, Cuts, Heard, Purpose, ask, safe};
use crate::agent::{Stage, of_environment};
use crate::harbor::write::atif::Step;
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::AgentResult;
use crate::job::Stamp;
use crate::job::work::{Doing, Work};
use crate::model::chat::{Finish, Reply};
use crate::model::client::Client;
use crate::model::error::{Kind, ModelError};
use crate::model::meter::Meter;
use crate::terminal::{Session, Standing};

/// Said of a failure.
pub(super) const DURING: &str = "the agent's run";
/// Longest wait for one command, in seconds.
const LONGEST: f64 = 60.0;
/// Answers of one episode that may reach their longest length, one after the other.
const TOO_LONG: u32 = 10;
/// Answers in a row that are made up since none can be had.
const MADE_UP: u32 = 3;
/// For the first prompt of the shell: silence …
const QUIET: Duration = Duration::from_millis(150);
/// … and the most that is waited for it.
const PROMPT: Duration = Duration::from_secs(5);
/// While it waits, how often it looks whether the shell is there.
const LOOK: Duration = Duration::from_secs(1);
/// Characters of keystrokes that are shown.
const KEYS: usize = 300;

/// An agent at work on one step. Whatever ends it, what it has used is reported.
pub(super) struct Run<'a> {
    pub agent: &'a Terminus,
    pub stage: &'a Stage<'a>,
    pub client: Client,
    pub meter: Meter,
    pub work: Arc<Mutex<Work>>,
    pub talk: Talk,
    pub sums: Sums,
    pub diary: Diary,
    pub beside: Beside,
    pub session: String,
    /// The longest conversation, in tokens.
    pub limit: Option<u64>,
    /// What a summary left for the trajectory.
    pub compacted: Option<Compacted>,
    /// Episode of the last summary.
    pub last_summary: Option<u64>,
    /// It said once that it is done.
    pub pending: bool,
    /// Answers made up in a row.
    pub made_up: u32,
    /// Shells that have ended.
    pub ends: u32,
}

/// An answer to go on with.
pub(super) struct Turn {
    pub content: String,
    pub reply: Option<Reply>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.diary.end(&self.sums);
        self.sums.notes.extend(self.diary.faults());
        self.stage.desk.report(self.result());
        self.stage.desk.tell(|work| work.doing = Doing::Done);
    }
}

impl Run<'_> {
    /// What it has to report now.
    pub(super) fn result(&self) -> AgentResult {
        let messages = self.agent.options.store_messages.then(|| self.talk.messages());
        self.sums.report(&self.meter.totals(), &self.beside, messages)
    }

    /// The same without the conversation, which only its end has to tell.
    fn so_far(&self) -> AgentResult {
        self.sums.report(&self.meter.totals(), &self.beside, None)
    }

    /// Tells what has been used so far, to those who watch and to the trial.
    pub(super) fn account(&mut self) {
        self.sums.notes.extend(self.diary.faults());
        let lost = self.sums.lost(&self.meter.totals());
        let (tokens, context) = (tell::tokens(&self.sums.all(), lost), (self.context(), self.limit));
        self.stage.desk.tell(|work| {
            work.tokens = tokens;
            work.context = context;
        });
        self.stage.desk.report(self.so_far());
    }

    fn context(&self) -> Option<u64> {
        Some(self.talk.tokens()).filter(|tokens| *tokens > 0)
    }

    /// Works until it is done.
    pub(super) async fn work(&mut self) -> Result<AgentResult, Raised> {
        self.terminal(async |session| {
            session.settle(QUIET, PROMPT).await;
            Ok(())
        })
        .await?;
        let screen = self.look().await?;
        let prompts = Arc::clone(&self.agent.prompts);
        let instruction = self.stage.instruction;
        let mut prompt = prompts.fill("first", &[("instruction", instruction), ("terminal", &screen)]);
        self.diary.write(vec![Step::user(prompt.as_str())], &self.sums).await;
        let most = self.agent.options.max_turns.unwrap_or(u64::MAX);
        while self.sums.episodes < most {
            match self.episode(prompt).await? {
                Some(next) => prompt = next,
                None => break,
            }
        }
        Ok(self.result())
    }

    /// One episode; gives the next prompt, or None when there is no more to do.
    async fn episode(&mut self, prompt: String) -> Result<Option<String>, Raised> {
        let episode = self.sums.episodes;
        self.sums.episodes += 1;
        self.stage.desk.tell(|work| work.episode = u32::try_from(episode + 1).ok());
        if !self.alive().await? {
            return Ok(None);
        }
        self.terminal(async |session| {
            session.mark(episode);
            Ok(())
        })
        .await?;
        let prompt = self.beforehand().await?.unwrap_or(prompt);
        let before = self.sums.talk;
        let turn = self.query(prompt).await?;
        let said = self.said(&turn, &before);
        let mut steps: Vec<Step> = self.compacted.take().map(Compacted::steps).into_iter().flatten().collect();
        let parsed = parse(&turn.content);
        let feedback = self.agent.prompts.feedback(&parsed);
        self.account();
        if parsed.error.is_some() {
            let feedback = feedback.unwrap_or_default();
            let next = self.agent.prompts.fill("parse-error", &[("feedback", &feedback)]);
            steps.push(self.diary.refused(&turn.content, &said, &next));
            self.diary.write(steps, &self.sums).await;
            return Ok(Some(next));
        }
        self.stage.desk.tell(|work| {
            work.analysis = Some(safe(&parsed.analysis)).filter(|text| !text.is_empty());
            work.plan = Some(safe(&parsed.plan)).filter(|text| !text.is_empty());
        });
        let capped = |c: &Command| Command { keystrokes: c.keystrokes.clone(), duration: c.duration.min(LONGEST) };
        let commands: Vec<Command> = parsed.commands.iter().map(capped).collect();
        let alive = self.carry_out(&commands).await?;
        let output = self.look().await?;
        let done = parsed.complete && self.pending;
        let observation = match (parsed.complete, feedback) {
            (true, _) if done => output,
            (true, _) => self.agent.prompts.fill("confirm", &[("terminal", &output)]),
            (false, Some(feedback)) => {
                self.agent.prompts.fill("warned", &[("feedback", &feedback), ("terminal", &output)])
            }
            (false, None) => output,
        };
        self.pending = parsed.complete;
        let (analysis, plan) = (&*parsed.analysis, &*parsed.plan);
        let whole = Done { analysis, plan, commands: &commands, complete: parsed.complete, observation: &observation };
        steps.push(self.diary.episode(episode, &whole, &said));
        self.diary.write(steps, &self.sums).await;
        Ok((alive && !done).then_some(observation))
    }

    fn said(&self, turn: &Turn, before: &super::sums::Tokens) -> Said {
        let now = &self.sums.talk;
        let less = |now: Option<u64>, before: Option<u64>| now.map(|n| n - before.unwrap_or(0).min(n));
        let mut tokens = *now;
        tokens.calls -= before.calls;
        tokens.told -= before.told;
        tokens.input -= before.input;
        tokens.output -= before.output;
        tokens.cached = less(now.cached, before.cached);
        tokens.reasoning = less(now.reasoning, before.reasoning);
        let reply = turn.reply.as_ref();
        Said { model: reply.and_then(|r| r.model.clone()), reasoning: reply.and_then(|r| r.reasoning.clone()), tokens }
    }

    /// A call of the model.
    pub(super) async fn call(
        &mut self,
        messages: &[crate::model::chat::Message],
        purpose: Purpose,
        cuts: Cuts,
    ) -> Heard {
        let rid = format!("{}-{}-{}", self.session, self.sums.episodes, self.meter.totals().requests + 1);
        let heard = ask(&self.client, &self.meter, &self.work, messages, (purpose, cuts, &rid)).await;
        if let Heard::Reply(reply) = &heard {
            self.agent.trust.answered();
            // By the server's count, where there is one.
            let seconds = reply.took.saturating_sub(reply.first.unwrap_or_default()).as_secs_f64();
            if let (Some(usage), Some(_), true) = (reply.usage, reply.first, seconds >= 0.2) {
                self.stage.desk.tell(|work| work.rate = Some(usage.completion as f64 / seconds));
            }
        }
        heard
    }

    /// Asks for the next step until there is an answer that was not cut.
    async fn query(&mut self, prompt: String) -> Result<Turn, Raised> {
        let options = &self.agent.options;
        let cuts = Cuts { seconds: options.episode_timeout, thinking: options.max_thinking };
        let mut prompt = prompt;
        let mut sent = prompt.clone();
        let mut too_long = 0;
        loop {
            let messages = self.talk.with(&sent);
            match self.call(&messages, Purpose::Turn, cuts).await {
                Heard::Reply(reply) if reply.finish == Finish::Length => {
                    too_long += 1;
                    prompt = self.was_cut(&sent, &reply, too_long)?;
                    sent.clone_from(&prompt);
                }
                Heard::Reply(reply) => {
                    self.sums.answered(&reply);
                    self.talk.answered(&sent, &reply);
                    self.made_up = 0;
                    return Ok(Turn { content: reply.content.clone(), reply: Some(reply) });
                }
                Heard::Cut(cut) => {
                    self.sums.cut += 1;
                    let seconds = cuts.seconds.unwrap_or_default().to_string();
                    let tokens = cuts.thinking.unwrap_or_default().to_string();
                    let name = if cut == Cut::Time { "cut-time" } else { "cut-thinking" };
                    let parts = [("pending", prompt.as_str()), ("seconds", &seconds), ("tokens", &tokens)];
                    sent = self.agent.prompts.fill(name, &parts);
                    self.account();
                }
                Heard::Failed(error) => {
                    let Kind::ContextExceeded { limit } = error.kind else { return Err(self.fatal(&error)) };
                    return self.recover(&error, limit, &sent).await;
                }
            }
        }
    }

    /// An answer reached its longest length: it becomes part of the conversation, and this is asked next.
    fn was_cut(&mut self, prompt: &str, reply: &Reply, times: u32) -> Result<String, Raised> {
        self.sums.truncated.add(reply.usage);
        self.talk.answered(prompt, reply);
        self.account();
        if times > TOO_LONG {
            let message = format!("{times} answers one after the other reached the longest length of an answer");
            return Err(Raised::new("OutputLengthExceededError", &message, DURING));
        }
        let limit = self.agent.options.max_output.or(self.agent.options.sampling.max_tokens);
        Ok(self.agent.prompts.too_long(limit, &parse(&reply.content).warnings))
    }

    /// An answer in the place of one that cannot be had.
    pub(super) fn make_up(&mut self, error: &ModelError) -> Result<Turn, Raised> {
        self.sums.made_up += 1;
        self.made_up += 1;
        if self.made_up >= MADE_UP {
            return Err(raised(error));
        }
        Ok(Turn { content: self.agent.prompts.fill("lost", &[]), reply: None })
    }

    /// The failure that ends the run. The operator's own mistake holds the other trials.
    pub(super) fn fatal(&self, error: &ModelError) -> Raised {
        if error.kind.is_config()
            && let Some(why) = self.agent.trust.refused(error)
        {
            self.client.options().endpoint.close(Some(&why));
        }
        raised(error)
    }

    /// Does something with the terminal.
    pub(super) async fn terminal<T>(
        &self,
        what: impl AsyncFnOnce(&mut Session) -> Result<T, crate::environment::EnvError>,
    ) -> Result<T, Raised> {
        let mut desk = self.stage.desk.terminal().await;
        let Some(session) = &mut *desk else {
            return Err(Raised::new("RuntimeError", "the terminal is closed", DURING));
        };
        what(session).await.map_err(|e| of_environment(&e, DURING))
    }

    /// What the terminal has to say since the last time.
    async fn look(&self) -> Result<String, Raised> {
        let news = self.terminal(async |session| Ok(session.incremental().to_string())).await?;
        Ok(self.agent.prompts.limited(&news))
    }

    /// How many shells may end: under Harbor the recording runs in a shell within the first.
    fn lives(&self) -> u32 {
        if self.agent.options.record { 2 } else { 1 }
    }

    /// Whether there is a shell to go on with.
    async fn alive(&mut self) -> Result<bool, Raised> {
        match self.terminal(async |session| session.standing().await).await? {
            Standing::Open => return Ok(true),
            Standing::Ended(Some(_)) => {
                self.ends += 1;
                if self.ends >= self.lives() {
                    return Ok(false);
                }
            }
            // The connection was lost, and the shell may live.
            Standing::Ended(None) => {}
        }
        self.terminal(async |session| session.send("").await).await?;
        self.sums.reopened += 1;
        Ok(true)
    }

    /// Types what is to be typed; false when no shell is left.
    async fn carry_out(&mut self, commands: &[Command]) -> Result<bool, Raised> {
        for Command { keystrokes, duration } in commands {
            let wait = Duration::try_from_secs_f64(duration.max(0.0)).unwrap_or_default();
            if !self.alive().await? {
                return Ok(false);
            }
            let shown: String = keystrokes.chars().take(KEYS).collect();
            let doing = Doing::Command { keys: safe(&shown), wait: wait.as_secs_f64(), since: Stamp::now() };
            self.stage.desk.tell(|work| work.doing = doing);
            let until = Instant::now() + wait;
            self.terminal(async |session| session.send(keystrokes).await).await?;
            loop {
                let left = until.saturating_duration_since(Instant::now());
                sleep(left.min(LOOK)).await;
                if left <= LOOK {
                    break;
                }
                // A container that is gone is told of at once; without a shell there is nothing to wait for.
                let standing = self.terminal(async |session| session.standing().await).await?;
                if matches!(standing, Standing::Ended(Some(_))) && self.ends + 1 >= self.lives() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// A failure of the model under the name that Harbor has for it.
pub(super) fn raised(error: &ModelError) -> Raised {
    let kind = match &error.kind {
        // So they are named where connections fail, by the library that Harbor asks models with.
        Kind::Connect | Kind::Dns | Kind::Broken | Kind::Aborted => "InternalServerError",
        Kind::Tls => "APIConnectionError",
        Kind::Timeout(_) | Kind::Overloaded(504 | 408) => "Timeout",
        Kind::Overloaded(503) => "ServiceUnavailableError",
        Kind::Overloaded(_) => "InternalServerError",
        Kind::RateLimit(_) => "RateLimitError",
        Kind::Auth => "AuthenticationError",
        Kind::ModelNotFound | Kind::Refused(404) => "NotFoundError",
        Kind::ContextExceeded { .. } => "ContextLengthExceededError",
        Kind::ContentPolicy => "ContentPolicyViolationError",
        Kind::Unsupported(_) => "UnsupportedParamsError",
        Kind::Refused(422) => "UnprocessableEntityError",
        Kind::Refused(_) => "BadRequestError",
        Kind::Malformed | Kind::Cancelled => "APIError",
    };
    let tries = if error.tries > 1 { format!(" (after {} tries)", error.tries) } else { String::new() };
    Raised::new(kind, &format!("model API, {}: {}{tries}", error.kind.word(), error.detail), DURING)
}
