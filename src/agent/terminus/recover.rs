//! A full context: the conversation is summed up by three calls and goes on with the summary, before it
//! is full by the measured usage, or when the server says that it is.

use super::diary::{Helper, Said};
use super::run::{Run, Turn, raised};
use super::sums::Tokens;
use super::talk::message;
use super::tell::{Cuts, Heard, Purpose};
use crate::harbor::write::atif::{Step, SubagentRef};
use crate::harbor::write::raised::Raised;
use crate::model::chat::{Finish, Message, Reply, Role};
use crate::model::error::{Kind, ModelError};

/// Tokens that a summary needs.
const FREE: u64 = 4000;
/// Characters of the screen that a short summary gets.
const SCREEN: usize = 1000;
/// How often a summary is tried with less of the conversation.
const AGAIN: u32 = 3;
/// Episodes between two summaries that nobody has asked for.
const APART: u64 = 2;

/// What a summary leaves for the trajectory.
pub(super) struct Compacted {
    helpers: Vec<SubagentRef>,
    handoff: String,
}

impl Compacted {
    pub(super) fn steps(self) -> [Step; 2] {
        let said = "The conversation was summed up; the work goes on with the summary.";
        [Step::compaction(said, self.helpers), Step::user(self.handoff)]
    }
}

/// Why there is no summary.
enum NoSummary {
    /// Nothing can be done about it.
    Fatal(Raised),
    /// This time.
    Failed(ModelError),
}

/// The end of a screen.
fn end_of(screen: &str) -> &str {
    let skipped = screen.chars().count().saturating_sub(SCREEN);
    screen.char_indices().nth(skipped).and_then(|(at, _)| screen.get(at..)).unwrap_or_default()
}

impl Run<'_> {
    /// Sums up before the context is full; gives the prompt to go on with.
    pub(super) async fn beforehand(&mut self) -> Result<Option<String>, Raised> {
        let options = &self.agent.options;
        let (Some(limit), true, true) = (self.limit, options.summarize, options.threshold > 0) else {
            return Ok(None);
        };
        // With a context that is not much larger than the threshold it would never end.
        let threshold = options.threshold.min(limit / 4);
        let full = limit.saturating_sub(self.talk.tokens()) < threshold;
        let lately = self.last_summary.is_some_and(|last| self.sums.episodes < last + APART);
        if !full || lately || self.talk.messages().is_empty() {
            return Ok(None);
        }
        match self.summarize().await {
            Ok(handoff) => Ok(Some(handoff)),
            Err(NoSummary::Failed(_)) => Ok(None),
            Err(NoSummary::Fatal(raised)) => Err(raised),
        }
    }

    /// Goes on after the server has said that the conversation is too long for it.
    pub(super) async fn recover(
        &mut self,
        error: &ModelError,
        told: Option<u64>,
        prompt: &str,
    ) -> Result<Turn, Raised> {
        // Without a conversation it is the task itself that does not fit.
        if !self.agent.options.summarize || self.talk.messages().is_empty() {
            return Err(raised(error));
        }
        let tried = self.talk.tokens() + self.talk.estimate(&[message(Role::User, prompt)]);
        // What it is by the server's word; else what was tried is more than it.
        let limit = [told, self.limit].into_iter().flatten().min().unwrap_or(tried);
        if told.is_some() && self.limit.is_none() {
            self.limit = told;
            self.sums.limit = told.map(|limit| (limit, "the server's refusal"));
        }
        self.talk.unwind(limit, FREE);
        let mut handoff = None;
        for _ in 0..AGAIN {
            match self.summarize().await {
                Ok(prompt) => {
                    handoff = Some(prompt);
                    break;
                }
                Err(NoSummary::Failed(error)) => {
                    let shorter = matches!(error.kind, Kind::ContextExceeded { .. }) && self.talk.pop();
                    if !shorter {
                        break;
                    }
                }
                Err(NoSummary::Fatal(raised)) => return Err(raised),
            }
        }
        let prompt = match handoff {
            Some(handoff) => handoff,
            None => self.makeshift().await?,
        };
        let messages = self.talk.with(&prompt);
        match self.call(&messages, Purpose::Turn, Cuts::default()).await {
            Heard::Reply(reply) if reply.finish == Finish::Length => {
                self.sums.truncated.add(reply.usage);
                self.talk.answered(&prompt, &reply);
                self.made_up = 0;
                // Read as far as it goes, and most often refused.
                Ok(Turn { content: reply.content.clone(), reply: Some(reply) })
            }
            Heard::Reply(reply) => {
                self.sums.answered(&reply);
                self.talk.answered(&prompt, &reply);
                self.made_up = 0;
                Ok(Turn { content: reply.content.clone(), reply: Some(reply) })
            }
            Heard::Failed(error) if matches!(error.kind, Kind::ContextExceeded { .. }) => self.make_up(&error),
            Heard::Failed(error) => Err(self.fatal(&error)),
            Heard::Cut(_) => Err(raised(error)),
        }
    }

    /// A prompt to go on with where a summary could not be had: what a short call without the
    /// conversation says, else the task and the end of the screen.
    async fn makeshift(&mut self) -> Result<String, Raised> {
        let prompts = std::sync::Arc::clone(&self.agent.prompts);
        let instruction = self.stage.instruction;
        let screen = self.screen().await?;
        let screen = end_of(&screen);
        let parts = [("instruction", instruction), ("screen", screen)];
        match self.summary_call(&[], &prompts.fill("short", &parts)).await {
            Ok(reply) => {
                let parts = [("instruction", instruction), ("summary", reply.content.as_str())];
                Ok(prompts.fill("short-handoff", &parts))
            }
            Err(NoSummary::Failed(_)) => Ok(prompts.fill("bare-handoff", &parts)),
            Err(NoSummary::Fatal(raised)) => Err(raised),
        }
    }

    async fn screen(&self) -> Result<String, Raised> {
        self.terminal(async |session| Ok(session.screen())).await
    }

    /// One call that serves to sum up.
    async fn summary_call(&mut self, history: &[Message], prompt: &str) -> Result<Reply, NoSummary> {
        let mut messages = history.to_vec();
        messages.push(message(Role::User, prompt));
        let heard = self.call(&messages, Purpose::Summary, Cuts::default()).await;
        let done = match heard {
            Heard::Reply(reply) if reply.finish == Finish::Length => {
                // What there is of it is better than nothing.
                self.sums.truncated.add(reply.usage);
                Ok(reply)
            }
            Heard::Reply(reply) => {
                self.sums.summed_up(&reply);
                Ok(reply)
            }
            // A server that is away, or a key that is wrong, is no matter of summaries.
            Heard::Failed(error) if error.kind.is_config() || error.kind.is_away() => {
                Err(NoSummary::Fatal(self.fatal(&error)))
            }
            Heard::Failed(error) => Err(NoSummary::Failed(error)),
            Heard::Cut(_) => Err(NoSummary::Fatal(Raised::cancelled(super::run::DURING))),
        };
        self.account();
        done
    }

    /// Sums the conversation up in three calls; gives the prompt to go on with.
    async fn summarize(&mut self) -> Result<String, NoSummary> {
        let prompts = std::sync::Arc::clone(&self.agent.prompts);
        let instruction = self.stage.instruction;
        let history = self.talk.messages().to_vec();
        self.sums.summarized += 1;
        self.last_summary = Some(self.sums.episodes);
        let number = self.sums.summarized;
        // Steps of the trajectory: the first message, and one for each answer.
        let knows = 1 + history.len().saturating_sub(1) / 2;
        let mut helpers = Vec::new();

        let asked = prompts.fill("summary", &[("instruction", instruction)]);
        let summary = self.summary_call(&history, &asked).await?;
        let helper = Helper {
            kind: "summary",
            number,
            knows,
            before: None,
            prompt: &asked,
            answer: &summary.content,
            said: said(&summary),
        };
        helpers.push(self.diary.helper(helper, &format!("Summary {number}: what was done so far")).await);

        let screen = self.screen().await.map_err(NoSummary::Fatal)?;
        let parts = [("instruction", instruction), ("summary", summary.content.as_str()), ("screen", screen.as_str())];
        let wonder = prompts.fill("questions", &parts);
        let questions = self.summary_call(&[], &wonder).await?;
        let helper = Helper {
            kind: "questions",
            number,
            knows: 0,
            before: None,
            prompt: &wonder,
            answer: &questions.content,
            said: said(&questions),
        };
        helpers.push(self.diary.helper(helper, &format!("Summary {number}: what it leaves open")).await);

        let mut known = history.clone();
        known.push(message(Role::User, &asked));
        known.push(message(Role::Assistant, &summary.content));
        let request = prompts.fill("answers", &[("questions", &questions.content)]);
        let answers = self.summary_call(&known, &request).await?;
        let helper = Helper {
            kind: "answers",
            number,
            knows,
            before: Some((&asked, &summary.content)),
            prompt: &request,
            answer: &answers.content,
            said: said(&answers),
        };
        helpers.push(self.diary.helper(helper, &format!("Summary {number}: the answers")).await);

        let first = history.into_iter().next().unwrap_or_else(|| message(Role::User, instruction));
        let questions = message(Role::Assistant, &questions.content);
        self.talk.replace(vec![first, message(Role::User, &wonder), questions]);
        let handoff = prompts.fill("handoff", &[("answers", &answers.content)]);
        self.compacted = Some(Compacted { helpers, handoff: handoff.clone() });
        Ok(handoff)
    }
}

fn said(reply: &Reply) -> Said {
    let mut tokens = Tokens::default();
    tokens.add(reply.usage);
    Said { model: reply.model.clone(), reasoning: reply.reasoning.clone(), tokens }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_screen_has_whole_characters() {
        assert_eq!(end_of("abc"), "abc");
        assert_eq!(end_of(""), "");
        let long = format!("x{}", "é".repeat(SCREEN));
        assert_eq!(end_of(&long), "é".repeat(SCREEN));
    }
}
