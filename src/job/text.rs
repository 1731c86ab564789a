//! Text that came from somebody's files, made safe to show and to keep.
//!
//! Every string of a job dir may hold escape sequences, NULs, direction overrides or a key that
//! somebody pasted into a command line. [`clean`] is applied where text becomes a screen cell or a
//! printed line; [`mask_secrets`] where text is taken from a file into a summary or a view.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// True for characters that must never reach a terminal as they are: C0 and C1 controls, DEL,
/// direction overrides and isolates, zero-width joiners and other invisible format characters.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// One line of text with nothing in it that a terminal would act on.
///
/// Tabs and line ends become one space; other controls become `␛`-like pictures (C0) or `�`;
/// invisible and direction-changing characters are dropped. Borrowed when nothing had to change.
pub fn clean(text: &str) -> Cow<'_, str> {
    // Most text is plain ASCII, which bytes tell fast.
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) || !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' | '\n' | '\r' => out.push(' '),
            '\u{0}'..='\u{1f}' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}')),
            '\u{7f}' => out.push('\u{2421}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c if is_unsafe(c) => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Escape sequences taken out of terminal output, for text views (logs, verifier output).
///
/// CSI, OSC, DCS/APC/PM/SOS strings and two-byte escapes vanish, a carriage return before the end
/// of a line keeps only what follows it (as a terminal would show a progress bar). The result still
/// has to go through [`clean`].
pub fn strip_ansi(line: &str) -> Cow<'_, str> {
    if !line.contains(['\u{1b}', '\r', '\u{9b}', '\u{9d}', '\u{90}']) {
        return Cow::Borrowed(line);
    }
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let kind = match c {
            '\u{1b}' => chars.next(),
            '\u{9b}' => Some('['),
            '\u{9d}' | '\u{90}' => Some(']'),
            '\r' => {
                if chars.peek().is_some_and(|n| *n != '\n' && *n != '\r') {
                    out.clear();
                }
                continue;
            }
            c => {
                out.push(c);
                continue;
            }
        };
        match kind {
            Some('[') => {
                for p in chars.by_ref() {
                    if ('\u{40}'..='\u{7e}').contains(&p) {
                        break;
                    }
                }
            }
            Some(']' | 'P' | 'X' | '^' | '_') => {
                while let Some(p) = chars.next() {
                    if p == '\u{7}' || p == '\u{9c}' {
                        break;
                    }
                    if p == '\u{1b}' {
                        chars.next();
                        break;
                    }
                }
            }
            Some('(' | ')' | '*' | '+' | '#' | '%') => {
                chars.next();
            }
            _ => {}
        }
    }
    Cow::Owned(out)
}

/// What a masked secret is replaced with.
pub const MASK: &str = "[masked]";

static SECRET: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        // NAME_KEY=value, "api_key": "value", --token value
        r#"(?i)((?:[a-z0-9_-]*(?:api[_-]?key|secret|passw(?:or)?d|access[_-]?key|auth[_-]?token|_token|_key))["']?\s*(?:=|:)\s*["']?)([^\s"',;&]{6,})"#,
        r#"|(?i)(bearer\s+)([a-z0-9._~+/=-]{8,})"#,
        r#"|(?i)(://[^\s/:@]+:)([^\s/@]{3,})@"#,
        r#"|()\b((?:sk|rk|pk)-[A-Za-z0-9_-]{8,}|hf_[A-Za-z0-9]{16,}|gh[opsu]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abp]-[A-Za-z0-9-]{10,}|AKIA[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,})"#,
    ))
    .ok()
});

/// The text with everything that looks like a key, token or password replaced by [`MASK`].
///
/// Harbor masks what it knows; command lines inside exception messages, container logs and configs
/// written by hand still carry keys. Templates such as `${NAME}` are left readable.
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    let Some(re) = SECRET.as_ref() else { return Cow::Borrowed(text) };
    if !re.is_match(text) {
        return Cow::Borrowed(text);
    }
    re.replace_all(text, |c: &regex::Captures<'_>| {
        let group = |i: usize| c.get(i).map(|m| m.as_str());
        for (head, secret) in [(1, 2), (3, 4), (5, 6), (7, 8)] {
            if let (Some(head), Some(value)) = (group(head), group(secret)) {
                if value.starts_with("${") || value == MASK {
                    return c.get(0).map_or(String::new(), |m| m.as_str().to_string());
                }
                let tail = if secret == 6 { "@" } else { "" };
                return format!("{head}{MASK}{tail}");
            }
        }
        MASK.to_string()
    })
}

/// A path for a JSON document, which knows only UTF-8; what is not gets replacement characters.
pub fn path_text(path: &std::path::Path) -> Cow<'_, str> {
    path.to_string_lossy()
}

/// Text for one JSON document that may be printed on a terminal: serialised JSON with the
/// characters that [`is_unsafe`] names written as `\u` escapes. The value stays the same.
pub fn json_for_terminal(json: &str) -> Cow<'_, str> {
    // Nearly every document is plain ASCII, which bytes tell fast.
    if json.bytes().all(|b| (0x20..0x7f).contains(&b) || b == b'\n') || !json.chars().any(|c| c != '\n' && is_unsafe(c))
    {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if c != '\n' && is_unsafe(c) {
            let mut units = [0u16; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_and_direction_marks_never_survive() {
        assert_eq!(clean("a\u{1b}[2Jb\tc\u{202e}d\u{9b}e\u{0}"), "a␛[2Jb cd\u{fffd}e␀");
        assert!(matches!(clean("plain – ünï 任务"), Cow::Borrowed(_)));
    }

    #[test]
    fn ansi_is_taken_out_whole() {
        assert_eq!(strip_ansi("\u{1b}]0;owned\u{7}\u{1b}[31mred\u{1b}[0m ok"), "red ok");
        assert_eq!(strip_ansi(" 10 %\r 99 %\rdone"), "done");
        assert_eq!(strip_ansi("\u{1b}Pq#0\u{1b}\\x"), "x");
    }

    #[test]
    fn keys_are_masked_and_templates_kept() {
        for (text, gone) in [
            ("-e OPENAI_API_KEY=sk-test-not-a-real-key-000 x", "sk-test"),
            (r#"{"api_key": "abcdef123456"}"#, "abcdef"),
            ("Authorization: Bearer abcdefgh12345", "abcdefgh"),
            ("https://user:hunter22@host/x", "hunter22"),
            ("token hf_ABCDEFGHIJKLMNOPQRST here", "hf_ABC"),
        ] {
            let masked = mask_secrets(text);
            assert!(!masked.contains(gone), "{masked}");
            assert!(masked.contains(MASK), "{masked}");
        }
        assert_eq!(mask_secrets("A_KEY=${A_KEY_FROM_ENV}"), "A_KEY=${A_KEY_FROM_ENV}");
        assert_eq!(mask_secrets("n_output_tokens: 123456789"), "n_output_tokens: 123456789");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({"a": "x\u{202e}\u{9b}\u{1b}y\u{e0001}"});
        let text = serde_json::to_string_pretty(&value).unwrap_or_default();
        let safe = json_for_terminal(&text);
        assert!(!safe.chars().any(|c| c != '\n' && is_unsafe(c)));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).ok(), Some(value));
    }
}
