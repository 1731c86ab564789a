//! The words for Harbor. They are passed on as they are; here is only read what they ask for.

use std::ffi::OsString;

use crate::harbor::run_config::{is_sensitive_name, template_name};
use crate::job::text::{clean, mask_secrets};

/// What stands in place of a secret.
const MASK: &str = "****";
/// Options whose value is a secret by itself, or names one: `NAME=value`.
const SECRETS: [&str; 3] = ["--one-off-secret", "--registry-secret", "--stored-secret"];

/// Which of Harbor's commands it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `run`, `job start`.
    Run,
    /// `job resume`.
    Resume,
}

/// A command for Harbor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Which.
    pub verb: Verb,
    /// All words after the program's name, as they were given.
    pub words: Vec<OsString>,
    /// The options, as text; what is not UTF-8 gets replacement characters and is only looked at.
    options: Vec<String>,
}

impl Command {
    /// None where the words begin with none of the commands that can be supervised.
    pub fn read(words: &[OsString]) -> Option<Command> {
        let text: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        let word = |at: usize| text.get(at).map_or("", String::as_str);
        let (verb, length) = match (word(0), word(1)) {
            ("run", _) => (Verb::Run, 1),
            ("job" | "jobs", "start") => (Verb::Run, 2),
            ("job" | "jobs", "resume") => (Verb::Resume, 2),
            _ => return None,
        };
        let options = text.get(length..).unwrap_or_default().to_vec();
        Some(Command { verb, words: words.to_vec(), options })
    }

    /// With more words at the end: a remedy that the operator chose.
    #[must_use]
    pub fn and(&self, more: &[String]) -> Command {
        let mut out = self.clone();
        out.words.extend(more.iter().map(OsString::from));
        out.options.extend(more.iter().cloned());
        out
    }

    /// All values of an option, in their order: `--name value`, `--name=value`, `-n value`, `-nvalue`.
    pub fn values(&self, names: &[&str]) -> Vec<&str> {
        let mut out = Vec::new();
        let mut words = self.options.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if names.contains(&word) {
                out.extend(words.next());
            } else if let Some((name, value)) = word.split_once('=').filter(|(name, _)| name.starts_with("--")) {
                out.extend(names.contains(&name).then_some(value));
            } else if let Some((short, value)) = word.split_at_checked(2).filter(|(short, _)| is_short(short)) {
                out.extend((names.contains(&short) && !value.is_empty()).then_some(value));
            }
        }
        out
    }

    /// The last value of an option, which is the one that counts.
    pub fn value(&self, names: &[&str]) -> Option<&str> {
        self.values(names).pop()
    }

    /// Whether a flag is given; `-y` also within `-qy`.
    pub fn flag(&self, names: &[&str]) -> bool {
        let bundled = |word: &str| {
            let letters = word.strip_prefix('-').filter(|l| l.len() > 1 && l.chars().all(|c| "qyh".contains(c)));
            letters.is_some_and(|l| l.chars().any(|c| names.contains(&format!("-{c}").as_str())))
        };
        self.options.iter().any(|word| names.contains(&word.as_str()) || bundled(word))
    }

    /// `NAME=value` pairs of an option.
    pub fn pairs(&self, names: &[&str]) -> Vec<(&str, &str)> {
        self.values(names).into_iter().filter_map(|pair| pair.split_once('=')).collect()
    }

    /// The words as they may be shown and kept: safe for a terminal, without secrets.
    pub fn shown(&self) -> Vec<String> {
        let words: Vec<String> = self.words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        let mut out = Vec::with_capacity(words.len());
        let mut before = "";
        for word in &words {
            out.push(clean(&masked(before, word)).into_owned());
            before = word;
        }
        out
    }

    /// The secrets among the words, to be taken out of whatever is shown of the child's output.
    pub fn secrets(&self) -> Vec<String> {
        let value = |pair: &str| pair.split_once('=').map(|(_, value)| value.to_string());
        let mut out: Vec<String> = self.values(&SECRETS).into_iter().filter_map(value).collect();
        out.extend(self.options.iter().filter_map(|word| Some(secret_pair(word)?.1.to_string())));
        out
    }
}

fn is_short(word: &str) -> bool {
    word.starts_with('-') && word.chars().nth(1).is_some_and(|c| c.is_ascii_alphabetic())
}

/// `NAME=value`, also behind `--option=`, where the name is one of a secret and the value no template.
fn secret_pair(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let (name, value) = match name.starts_with("--") {
        true if is_sensitive_name(name.trim_start_matches('-')) && name != "--api-key-name" => (name, value),
        true => value.split_once('=')?,
        false => (name, value),
    };
    let secret = is_sensitive_name(name.trim_start_matches('-')) && !value.is_empty() && template_name(value).is_none();
    (secret && name != "--api-key-name").then_some((name, value))
}

fn masked(before: &str, word: &str) -> String {
    if SECRETS.contains(&before)
        && let Some((name, _)) = word.split_once('=')
    {
        return format!("{name}={MASK}");
    }
    if let Some((name, value)) = word.split_once('=')
        && SECRETS.contains(&name)
        && let Some((inner, _)) = value.split_once('=')
    {
        return format!("{name}={inner}={MASK}");
    }
    match secret_pair(word) {
        Some((_, value)) => format!("{}{MASK}", word.strip_suffix(value).unwrap_or_default()),
        None => mask_secrets(word).into_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Command::read(&words).unwrap()
    }

    #[test]
    fn options_are_read_in_every_form() {
        let c = command("run -ojobs --job-name=a -n 3 --ak x=1 --ak=y=2 -c a.yaml -c b.json -qy");
        assert_eq!(c.value(&["-o", "--jobs-dir"]), Some("jobs"));
        assert_eq!(c.value(&["--job-name"]), Some("a"));
        assert_eq!(c.value(&["-n", "--n-concurrent"]), Some("3"));
        assert_eq!(c.pairs(&["--ak"]), [("x", "1"), ("y", "2")]);
        assert_eq!(c.values(&["-c"]), ["a.yaml", "b.json"]);
        assert!(c.flag(&["-y", "--yes"]) && !c.flag(&["--debug"]));
        assert_eq!(command("jobs resume -p d").verb, Verb::Resume);
        assert_eq!(Command::read(&["view".into()]), None);
    }

    #[test]
    fn secrets_are_masked_and_known() {
        let c = command(
            "run --ae OPENAI_API_KEY=sk-abcdefgh12345678 --ak api_key=zzzz9999zzzz --ae=FOO_TOKEN=tok-tok-tok \
             --ae KEEP=me --ae HF_TOKEN=${HF_TOKEN} --api-key-name MY_KEY --one-off-secret X=yyyyyyyyyyyy",
        );
        let shown = c.shown().join(" ");
        for secret in ["sk-abcdefgh12345678", "zzzz9999zzzz", "tok-tok-tok", "yyyyyyyyyyyy"] {
            assert!(!shown.contains(secret), "{shown}");
            assert!(c.secrets().iter().any(|s| s == secret), "{:?}", c.secrets());
        }
        for plain in ["KEEP=me", "HF_TOKEN=${HF_TOKEN}", "--api-key-name MY_KEY", "OPENAI_API_KEY=****"] {
            assert!(shown.contains(plain), "{plain}: {shown}");
        }
    }
}
