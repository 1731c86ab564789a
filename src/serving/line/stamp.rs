//! Where a message begins in a line, when it was written and by which rank.
//!
//! Nothing is expected at a fixed column: containers, schedulers and mail put their own words before
//! a line, and two processes may write into one. Times that carry a zone (Kubernetes, `docker logs -t`)
//! are the wrapper's, not the server's; they would spoil the placing of the others and are passed over.

use memchr::memchr_iter;

use super::super::{LineTime, Ranks, Severity};

/// What a time stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `[2026-11-29 12:00:00 DP0 TP1] `, also without date, milliseconds, tags or the first bracket.
    Bracket,
    /// `INFO 11-29 12:00:00 [file.py:1] `: vLLM.
    Level,
    /// `2026-11-29 12:00:00 …`: the router and logging configs of one's own.
    Date,
    /// `12:00:00 …` where the line begins.
    Bare,
    /// `[TP0] `: tags whose time was cut off.
    Tags,
}

/// The head of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Head {
    pub time: Option<LineTime>,
    pub ranks: Ranks,
    pub shape: Shape,
    /// The level on it, where one is written in it.
    pub level: Option<Severity>,
    /// Where it begins.
    pub start: usize,
    /// Where the message begins.
    pub end: usize,
}

/// All heads of a line, in order.
pub(super) fn heads(line: &[u8]) -> impl Iterator<Item = Head> + '_ {
    memchr_iter(b':', line).filter_map(|colon| head_at(line, colon))
}

/// The last head of what stands before a message; tags without a time count, too.
pub(super) fn last(prefix: &[u8]) -> Option<Head> {
    // The common case first: `…hh:mm:ss tags] ` at the end of the prefix.
    let mut found = None;
    for head in heads(prefix) {
        found = Some(head);
    }
    found.or_else(|| tags_only(prefix))
}

fn digit(line: &[u8], at: usize) -> Option<u32> {
    let byte = line.get(at)?;
    byte.is_ascii_digit().then(|| u32::from(byte - b'0'))
}

fn two(line: &[u8], at: usize) -> Option<u32> {
    Some(digit(line, at)? * 10 + digit(line, at + 1)?)
}

fn month_and_day(line: &[u8], at: usize) -> Option<(i8, i8)> {
    let (month, day) = (two(line, at)?, two(line, at + 3)?);
    let fits = line.get(at + 2) == Some(&b'-') && (1..=12).contains(&month) && (1..=31).contains(&day);
    fits.then_some((month as i8, day as i8))
}

fn head_at(line: &[u8], colon: usize) -> Option<Head> {
    let at = colon.checked_sub(2)?;
    let (hour, minute) = (two(line, at)?, two(line, colon + 1)?);
    if line.get(colon + 3) != Some(&b':') {
        return None;
    }
    let second = two(line, colon + 4)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut end = colon + 6;
    let mut millis = (hour * 3600 + minute * 60 + second.min(59)) * 1000;
    if matches!(line.get(end), Some(b'.' | b',')) && digit(line, end + 1).is_some() {
        let mut scale = 100;
        end += 1;
        while let Some(value) = digit(line, end) {
            millis += value * scale;
            scale /= 10;
            end += 1;
        }
    }
    match line.get(end) {
        Some(b':' | b'Z' | b'0'..=b'9') => return None,
        Some(b'+' | b'-') if digit(line, end + 1).is_some() => return None,
        _ => {}
    }
    let before = |back: usize| at.checked_sub(back).and_then(|i| line.get(i)).copied();
    let mut time = LineTime { year: None, date: None, millis };
    let mut level = None;
    let mut start = at;
    let mut shape = Shape::Bare;
    match before(1) {
        None => {}
        Some(b'[') => {
            start = at - 1;
            shape = Shape::Bracket;
        }
        Some(b' ' | b'T') if full_date(line, at).is_some() => {
            let (year, date) = full_date(line, at)?;
            (time.year, time.date) = (Some(year), Some(date));
            (start, shape) = (at - 11, Shape::Date);
            if start > 0 && line.get(start - 1) == Some(&b'[') {
                (start, shape) = (start - 1, Shape::Bracket);
            }
        }
        Some(b' ') => {
            let date_at = at.checked_sub(6)?;
            time.date = Some(month_and_day(line, date_at)?);
            let (word, severity) = level_before(line, date_at)?;
            (start, shape, level) = (word, Shape::Level, Some(severity));
        }
        Some(_) => return None,
    }
    let mut ranks = Ranks::default();
    let after_tags = tags(line, end, &mut ranks);
    match shape {
        // A bracket that somebody's own format closes elsewhere, or that was cut off.
        Shape::Bracket | Shape::Date | Shape::Bare if line.get(after_tags) == Some(&b']') => {
            shape = Shape::Bracket;
            end = after_tags + 1;
            end += usize::from(line.get(end) == Some(&b' '));
        }
        Shape::Bracket if time.date.is_some() => shape = Shape::Date,
        // `[00:03<03:17`: a progress bar.
        Shape::Bracket => return None,
        Shape::Level => {
            end = after_place(line, end);
            process_ranks(line.get(..start)?, &mut ranks);
        }
        _ => {}
    }
    Some(Head { time: Some(time), ranks, shape, level, start, end })
}

fn full_date(line: &[u8], at: usize) -> Option<(i16, (i8, i8))> {
    let start = at.checked_sub(11)?;
    if start > 0 && line.get(start - 1).is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let year = two(line, start)? * 100 + two(line, start + 2)?;
    if line.get(start + 4) != Some(&b'-') || !(1970..=9998).contains(&year) {
        return None;
    }
    Some((year as i16, month_and_day(line, start + 5)?))
}

const LEVELS: [(&[u8], Severity); 9] = [
    (b"INFO", Severity::Info),
    (b"WARNING", Severity::Warning),
    (b"ERROR", Severity::Error),
    (b"WARN", Severity::Warning),
    (b"DEBUG", Severity::Info),
    (b"TRACE", Severity::Info),
    (b"CRITICAL", Severity::Fatal),
    (b"FATAL", Severity::Fatal),
    (b"NOTICE", Severity::Info),
];

/// The severity that a word of a log level stands for.
pub(super) fn level_word(word: &[u8]) -> Option<Severity> {
    LEVELS.iter().find(|(name, _)| *name == word).map(|(_, severity)| *severity)
}

/// The level word that stands, with one space, before `at`: where it begins, and what it says.
fn level_before(line: &[u8], at: usize) -> Option<(usize, Severity)> {
    let text = line.get(..at)?.strip_suffix(b" ")?;
    LEVELS.iter().find_map(|(name, severity)| {
        let rest = text.strip_suffix(*name)?;
        let alone = !rest.last().is_some_and(u8::is_ascii_alphanumeric);
        alone.then_some((rest.len(), *severity))
    })
}

/// ` DP1 TP3 …` from `at`; where they end.
fn tags(line: &[u8], mut at: usize, ranks: &mut Ranks) -> usize {
    while line.get(at) == Some(&b' ') {
        let mut name_end = at + 1;
        while line.get(name_end).is_some_and(|b| b.is_ascii_uppercase() || *b == b'_') {
            name_end += 1;
        }
        let Some((number, end)) = small(line, name_end) else { break };
        match line.get(at + 1..name_end) {
            Some(b"DP") => ranks.dp = Some(number),
            Some(b"TP") => ranks.tp = Some(number),
            Some(b"PP") => ranks.pp = Some(number),
            Some(b"EP") => ranks.ep = Some(number),
            Some(b"ATTN_CP" | b"MOE_DP" | b"MOE_EP" | b"ATTN_TP" | b"ATTN_DP" | b"CP") => {}
            _ => break,
        }
        at = end;
    }
    at
}

/// A number of at most five digits, and where it ends.
pub(super) fn small(line: &[u8], at: usize) -> Option<(u16, usize)> {
    let mut end = at;
    let mut value = 0u32;
    while let Some(digit) = digit(line, end) {
        value = value * 10 + digit;
        end += 1;
        if end - at > 5 {
            return None;
        }
    }
    (end > at).then_some((u16::try_from(value).ok()?, end))
}

/// ` [file.py:12] ` or ` file.py:12] ` after vLLM's time: where the message begins.
fn after_place(line: &[u8], at: usize) -> usize {
    let from = at + usize::from(line.get(at) == Some(&b' '));
    let place = line.get(from..).unwrap_or_default();
    let close = place.iter().take(96).position(|b| *b == b']' || *b == b' ');
    match close {
        Some(close) if place.get(close) == Some(&b']') => {
            let end = from + close + 1;
            end + usize::from(line.get(end) == Some(&b' '))
        }
        _ => from,
    }
}

/// `(EngineCore_DP1 pid=7)`: ranks in the name of vLLM's process.
fn process_ranks(before: &[u8], ranks: &mut Ranks) {
    let tail = before.get(before.len().saturating_sub(64)..).unwrap_or_default();
    let Some(open) = memchr::memrchr(b'(', tail) else { return };
    let name = tail.get(open + 1..).unwrap_or_default();
    let name = name.split(|b| *b == b' ' || *b == b')').next().unwrap_or_default();
    for part in name.split(|b| *b == b'_') {
        let digits = part.iter().position(u8::is_ascii_digit).unwrap_or(part.len());
        let Some((number, _)) = small(part, digits) else { continue };
        match part.get(..digits) {
            Some(b"DP") => ranks.dp = Some(number),
            Some(b"TP") => ranks.tp = Some(number),
            Some(b"PP") => ranks.pp = Some(number),
            Some(b"EP") => ranks.ep = Some(number),
            _ => {}
        }
    }
}

/// `[TP0] ` at the end of a prefix.
fn tags_only(prefix: &[u8]) -> Option<Head> {
    let closed = prefix.strip_suffix(b" ").unwrap_or(prefix).strip_suffix(b"]")?;
    let open = memchr::memrchr(b'[', closed)?;
    let mut spaced = [b' '; 33];
    let inner = closed.get(open + 1..)?;
    spaced.get_mut(1..=inner.len())?.copy_from_slice(inner);
    let mut ranks = Ranks::default();
    let end = tags(spaced.get(..=inner.len())?, 0, &mut ranks);
    let all = end == inner.len() + 1 && !inner.is_empty();
    all.then_some(Head { time: None, ranks, shape: Shape::Tags, level: None, start: open, end: prefix.len() })
}

/// The level that a message begins with: `INFO:     `, `[INFO] `, ` INFO `, ` - name - INFO - `.
pub(super) fn level(message: &[u8]) -> Option<Severity> {
    let words = message.get(..message.len().min(96)).unwrap_or_default();
    words
        .split(|b| *b == b' ')
        .filter(|word| !word.is_empty())
        .take(4)
        .find_map(|word| level_word(word).or_else(|| level_word(word.strip_suffix(b":")?)).or_else(|| bracketed(word)))
}

fn bracketed(word: &[u8]) -> Option<Severity> {
    level_word(word.strip_prefix(b"[")?.strip_suffix(b"]")?)
}

/// A time of day, `05:42:53`, after a word of a message.
pub(super) fn time_of_day(text: &[u8]) -> Option<LineTime> {
    let text = text.get(..8)?;
    head_at(text, 2)?.time.filter(|time| time.date.is_none())
}
