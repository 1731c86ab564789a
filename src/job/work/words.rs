//! What an agent does, in few words: `model 42 s, 1.9k reasoning`, `command 3 s: make -j4`.

use super::{Call, Doing, Work};
use crate::job::text::clean;
use crate::job::{Stamp, time};

/// A call that was heard from before is worth a word when it is silent for so many seconds.
const SILENT: f64 = 5.0;

/// Words for a place of a width that is known only there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// The same thing, from the longest wording to the shortest; never empty.
    pub leads: Vec<String>,
    /// What follows behind a colon where there is room: the command, the reason.
    pub tail: Option<String>,
}

impl Words {
    /// All of it.
    pub fn whole(&self) -> String {
        let lead = self.leads.first().map(String::as_str).unwrap_or_default();
        match &self.tail {
            Some(tail) => format!("{lead}: {tail}"),
            None => lead.to_string(),
        }
    }
}

/// A duration in one unit: `42 s`, `38 m`, `2 h 5 m`.
pub fn brief(seconds: f64) -> String {
    if seconds < 60.0 { time::words(seconds.floor()) } else { time::words((seconds / 60.0).floor() * 60.0) }
}

/// Tokens in few characters: `850`, `1.9k`, `61k`, `1.2M`.
pub fn tokens(n: u64) -> String {
    let tenths = |unit: u64, sign: char| {
        let tenths = n / (unit / 10);
        match (tenths / 10, tenths % 10) {
            (whole @ 0..10, rest) if rest > 0 => format!("{whole}.{rest}{sign}"),
            (whole, _) => format!("{whole}{sign}"),
        }
    };
    match n {
        0..1000 => n.to_string(),
        1000..1_000_000 => tenths(1000, 'k'),
        _ => tenths(1_000_000, 'M'),
    }
}

/// The first line of some keys that says anything.
pub fn first_line(keys: &str) -> Option<String> {
    let line = keys.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(clean(&line.replace('\t', " ")).into_owned())
}

/// What it does at `now`; None where only the trial's files can say.
pub fn of(work: &Work, now: Stamp) -> Option<Words> {
    if !work.is_exact() {
        return None;
    }
    let took = brief(work.seconds(now).unwrap_or(0.0));
    let (leads, tail) = match &work.doing {
        Doing::Model(call) => (of_call("model", call, &took), None),
        Doing::Summary(call) => (of_call("summary", call, &took), None),
        Doing::Command { keys, .. } => match first_line(keys) {
            Some(line) => (vec![format!("command {took}"), format!("cmd {took}"), "cmd".to_string()], Some(line)),
            None => (vec![format!("pause {took}"), "pause".to_string()], None),
        },
        Doing::Retry { why, attempt, at: Some(at), .. } => {
            let left = match time::seconds_between(now, *at).map(f64::ceil) {
                Some(left) if left > 0.0 => format!("in {}", time::words(left)),
                _ => "now".to_string(),
            };
            (
                vec![format!("retry {attempt} {left}"), format!("retry {attempt}"), "retry".to_string()],
                Some(why.clone()),
            )
        }
        Doing::Retry { why, at: None, .. } => {
            let leads =
                [format!("waiting for the endpoint {took}"), format!("endpoint {took}"), "endpoint".to_string()];
            (leads.to_vec(), Some(why.clone()))
        }
        Doing::Slot { .. } => {
            (vec![format!("waiting for an agent slot {took}"), format!("agent slot {took}"), "slot".to_string()], None)
        }
        Doing::Verifying { .. } => (vec![format!("verifying {took}"), "verifying".to_string()], None),
        Doing::Setup | Doing::Done => return None,
    };
    Some(Words { leads, tail: tail.map(|tail| clean(&tail).into_owned()).filter(|tail| !tail.is_empty()) })
}

/// Tokens, context, speed, retries; empty for an agent that has asked no model.
pub fn facts(work: &Work) -> Vec<String> {
    let t = &work.tokens;
    let asks = work.call().is_some() || work.retries > 0 || !t.is_unknown() || work.context != (None, None);
    if !asks {
        return Vec::new();
    }
    let mut out = Vec::new();
    if t.is_unknown() {
        out.push("tokens -".to_string());
    } else {
        out.push(format!("{} in, {} cached, {} out", tokens(t.input), tokens(t.cached), tokens(t.output)));
        if t.reasoning > 0 {
            out.push(format!("{} of it reasoning", tokens(t.reasoning)));
        }
        if t.lost > 0 {
            out.push(format!("at least {} lost", tokens(t.lost)));
        }
    }
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_string(), tokens);
    let share = work.context_share().map_or(String::new(), |share| format!(" ({:.0} %)", share * 100.0));
    out.push(format!("context {} of {}{share}", number(work.context.0), number(work.context.1)));
    let rate = work.rate.filter(|rate| rate.is_finite());
    out.push(rate.map_or_else(|| "- tokens/s".to_string(), |rate| format!("{rate:.0} tokens/s")));
    if work.retries > 0 {
        out.push(format!("{} retr{}", work.retries, if work.retries == 1 { "y" } else { "ies" }));
    }
    out
}

/// What one trial does now, in full: with the time that a command has, and since when a call is silent.
pub fn in_full(work: &Work, now: Stamp) -> Option<String> {
    let said = of(work, now)?;
    let lead = said.leads.first().cloned().unwrap_or_default();
    Some(match (&work.doing, said.tail) {
        (Doing::Command { wait, .. }, Some(tail)) => format!("{lead} of {}: {tail}", time::words(*wait)),
        (Doing::Command { wait, .. }, None) => format!("{lead} of {}", time::words(*wait)),
        (_, Some(tail)) => format!("{lead}: {tail}"),
        (_, None) => match work.call().and_then(|call| call.heard).map(|heard| time::age(heard, now).as_secs_f64()) {
            Some(silent) if silent >= SILENT => format!("{lead}, silent for {}", brief(silent)),
            _ => lead,
        },
    })
}

fn of_call(what: &str, call: &Call, took: &str) -> Vec<String> {
    let Call { reasoning, answer, .. } = *call;
    let whole = format!("{what} {took}");
    match (reasoning, answer) {
        (0, 0) if call.heard.is_none() => vec![format!("{whole}, no token yet"), whole, what.to_string()],
        (0, 0) => vec![whole, what.to_string()],
        (_, 0) => {
            let so_far = tokens(reasoning);
            vec![
                format!("{whole}, {so_far} reasoning"),
                format!("think {took}, {so_far}"),
                format!("think {took}"),
                "think".to_string(),
            ]
        }
        (0, _) => {
            let so_far = tokens(answer);
            vec![
                format!("{whole}, {so_far} answered"),
                format!("answer {took}, {so_far}"),
                format!("answer {took}"),
                "answer".to_string(),
            ]
        }
        (_, _) => {
            let (thought, said) = (tokens(reasoning), tokens(answer));
            vec![
                format!("{whole}, {thought} reasoning, {said} answered"),
                format!("{whole}, {said} answered"),
                format!("answer {took}, {said}"),
                format!("answer {took}"),
                "answer".to_string(),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Stamp {
        Stamp::from_second(1_800_000_000 + seconds).unwrap_or_default()
    }

    fn said(doing: Doing) -> String {
        let work = Work { doing, told: Some(at(0)), ..Work::default() };
        of(&work, at(100)).map_or("-".to_string(), |words| words.whole())
    }

    fn call(age: i64, reasoning: u64, answer: u64) -> Call {
        Call { since: at(100 - age), heard: (reasoning + answer > 0).then(|| at(99)), reasoning, answer }
    }

    #[test]
    fn each_doing_has_its_words() {
        let command = |keys: &str| Doing::Command { keys: keys.to_string(), wait: 60.0, since: at(97) };
        let retry = |when| Doing::Retry { why: "overloaded".to_string(), attempt: 2, at: when, since: at(90) };
        for (doing, words) in [
            (Doing::Model(call(42, 0, 0)), "model 42 s, no token yet"),
            (Doing::Model(call(42, 1_900, 0)), "model 42 s, 1.9k reasoning"),
            (Doing::Model(call(42, 0, 230)), "model 42 s, 230 answered"),
            (Doing::Summary(call(90, 1_900, 230)), "summary 1 m, 1.9k reasoning, 230 answered"),
            (command("make -j4\n"), "command 3 s: make -j4"),
            (command("\n\n  cat > x <<'E'\nsecret\nE\n"), "command 3 s: cat > x <<'E'"),
            (command("\u{1b}[2Jls\t-l"), "command 3 s: \u{241b}[2Jls -l"),
            (command(""), "pause 3 s"),
            (retry(Some(at(104))), "retry 2 in 4 s: overloaded"),
            (retry(Some(at(50))), "retry 2 now: overloaded"),
            (retry(None), "waiting for the endpoint 10 s: overloaded"),
            (Doing::Slot { since: at(20) }, "waiting for an agent slot 1 m"),
            // The clock was set back.
            (Doing::Verifying { since: at(5000) }, "verifying 0 s"),
            (Doing::Setup, "-"),
            (Doing::Done, "-"),
        ] {
            assert_eq!(said(doing), words);
        }
        let untold = Work { doing: Doing::Model(call(42, 0, 0)), ..Work::default() };
        assert_eq!(of(&untold, at(100)), None);
    }

    #[test]
    fn tokens_are_short() {
        let all = [0, 999, 1000, 1_950, 9_999, 61_400, 999_999, 1_000_000, 1_250_000].map(tokens);
        assert_eq!(all, ["0", "999", "1k", "1.9k", "9.9k", "61k", "999k", "1M", "1.2M"]);
    }
}
