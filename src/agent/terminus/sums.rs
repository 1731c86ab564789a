//! What an agent has used and done so far, and its report of that.

use serde_json::{Map, Value, json};

use super::options::Prices;
use crate::harbor::write::result::AgentResult;
use crate::model::chat::{Message, Reply, Usage};
use crate::model::meter::Totals;

/// Tokens of calls.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tokens {
    /// Calls.
    pub calls: u64,
    /// Of these, those whose tokens the server told.
    pub told: u64,
    /// Prompt tokens.
    pub input: u64,
    /// Of these, from the server's cache; None: no server ever told.
    pub cached: Option<u64>,
    /// Generated.
    pub output: u64,
    /// Of these, reasoning; None: no server ever told.
    pub reasoning: Option<u64>,
}

impl Tokens {
    /// One more call.
    pub fn add(&mut self, usage: Option<Usage>) {
        self.calls += 1;
        let Some(usage) = usage else { return };
        self.told += 1;
        self.input += usage.prompt;
        self.output += usage.completion;
        let more = |sum: Option<u64>, new: Option<u64>| new.map(|n| n + sum.unwrap_or(0)).or(sum);
        self.cached = more(self.cached, usage.cached);
        self.reasoning = more(self.reasoning, usage.reasoning);
    }

    /// What they cost.
    pub fn cost(&self, prices: &Prices) -> f64 {
        let cached = self.cached.unwrap_or(0).min(self.input);
        let plain = self.input - cached;
        plain as f64 * prices.input
            + cached as f64 * prices.cached.unwrap_or(prices.input)
            + self.output as f64 * prices.output
    }
}

/// Everything that is counted.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    /// Answered calls of the conversation.
    pub talk: Tokens,
    /// Answered calls that served to sum it up.
    pub summaries: Tokens,
    /// Calls whose answer reached its longest length: Harbor counts nothing of them.
    pub truncated: Tokens,
    /// Episodes that were begun.
    pub episodes: u64,
    /// Wall times of answered calls, in milliseconds.
    pub times: Vec<f64>,
    /// Conversations that were summed up.
    pub summarized: u32,
    /// Calls that were cut by a limit of ours.
    pub cut: u32,
    /// Answers that were made up, since none could be had.
    pub made_up: u32,
    /// Shells that were opened after the first had ended.
    pub reopened: u32,
    /// What was not written, and why.
    pub notes: Vec<String>,
    /// The longest prompt and answer together, in tokens, and whose word it is.
    pub limit: Option<(u64, &'static str)>,
}

/// What stands in a report beside the counts.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// Prices of tokens.
    pub prices: Prices,
    /// Which prompts, and what makes it another agent.
    pub about: Map<String, Value>,
}

impl Sums {
    /// An answer of the conversation.
    pub fn answered(&mut self, reply: &Reply) {
        self.talk.add(reply.usage);
        self.times.push(milliseconds(reply));
    }

    /// An answer that served to sum it up.
    pub fn summed_up(&mut self, reply: &Reply) {
        self.summaries.add(reply.usage);
        self.times.push(milliseconds(reply));
    }

    /// Sums over answered calls.
    pub fn all(&self) -> Tokens {
        let (a, b) = (&self.talk, &self.summaries);
        let sum = |a: Option<u64>, b: Option<u64>| a.map(|a| a + b.unwrap_or(0)).or(b);
        Tokens {
            calls: a.calls + b.calls,
            told: a.told + b.told,
            input: a.input + b.input,
            cached: sum(a.cached, b.cached),
            output: a.output + b.output,
            reasoning: sum(a.reasoning, b.reasoning),
        }
    }

    /// What was generated for nothing: in calls that failed or were cut, at least, and in those that
    /// reached their longest length.
    pub fn lost(&self, totals: &Totals) -> u64 {
        self.truncated.output + at_least(totals)
    }

    /// The report. The counts of Harbor's are Harbor's; what it loses stands apart.
    pub fn report(&self, totals: &Totals, beside: &Beside, messages: Option<&[Message]>) -> AgentResult {
        let all = self.all();
        // Nothing told of nothing asked is 0; nothing told of what was answered is not known.
        let known = all.calls == 0 || all.told > 0;
        let cost = all.cost(&beside.prices);
        let mut metadata = Map::new();
        metadata.insert("n_episodes".into(), self.episodes.into());
        metadata.insert("api_request_times_msec".into(), self.times.clone().into());
        metadata.insert("summarization_count".into(), self.summarized.into());
        if let Some(messages) = messages {
            metadata.insert("all_messages".into(), serde_json::to_value(messages).unwrap_or_default());
        }
        let lost = &totals.lost;
        let mut own = beside.about.clone();
        let apart = json!({
            "truncated": {"calls": self.truncated.calls, "input_tokens": self.truncated.input,
                "output_tokens": self.truncated.output},
            "failed": {"requests": totals.requests.saturating_sub(totals.answered),
                "input_tokens": lost.usage.map(|u| u.prompt), "output_tokens_at_least": at_least(totals),
                "output_tokens_estimated": lost.usage.map_or(0, |u| u.completion) + lost.estimated},
        });
        own.insert("tokens_apart".into(), apart);
        own.insert("reasoning_tokens".into(), all.reasoning.into());
        own.insert("requests".into(), totals.requests.into());
        own.insert("retries".into(), totals.retries.into());
        own.insert("waited_sec".into(), seconds(totals.waited).into());
        own.insert("endpoint_away_sec".into(), seconds(totals.away).into());
        own.insert("context_limit".into(), json!(self.limit.map(|(limit, _)| limit)));
        own.insert("context_limit_by".into(), json!(self.limit.map(|(_, by)| by)));
        let counts = [
            ("usage_not_told", all.calls - all.told),
            ("calls_cut", self.cut.into()),
            ("answers_made_up", self.made_up.into()),
            ("shells_reopened", self.reopened.into()),
        ];
        own.extend(counts.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_string(), n.into())));
        if !self.notes.is_empty() {
            own.insert("notes".into(), self.notes.clone().into());
        }
        metadata.insert("pilothouse".into(), own.into());
        AgentResult {
            n_input_tokens: known.then_some(all.input),
            n_cache_tokens: if all.calls == 0 { Some(0) } else { all.cached },
            n_output_tokens: known.then_some(all.output),
            cost_usd: (cost > 0.0).then_some(cost),
            model_usage: None,
            rollout_details: Some(Vec::new()),
            metadata: Some(metadata),
        }
    }
}

fn at_least(totals: &Totals) -> u64 {
    totals.lost.tokens()
}

fn milliseconds(reply: &Reply) -> f64 {
    reply.took.as_secs_f64() * 1000.0
}

fn seconds(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}
