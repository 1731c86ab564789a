//! Which job dir a Harbor was told by its command line, where it writes into another one.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a command line that are looked at.
const ARGV_BYTES: u64 = 64 * 1024;
/// Words among which the program is named: the interpreter and its flags come before it.
const HEAD: usize = 6;

/// The sub-command of a process and the job dir that it was told, absolute, if that is another one than
/// the one that it writes into.
pub(super) fn by_process(pid: u32, writes: &Path) -> Option<(Arc<str>, PathBuf)> {
    let mut bytes = Vec::new();
    fs::File::open(format!("/proc/{pid}/cmdline")).ok()?.take(ARGV_BYTES).read_to_end(&mut bytes).ok()?;
    let words: Vec<String> = bytes.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let (command, told) = of_words(&words)?;
    let told = fs::canonicalize(cwd.join(told.dir())).ok()?;
    match command {
        // A start from an old job's config under another name is a new job on purpose.
        Command::Start if told.file_name() != writes.file_name() || !told.join("lock.json").is_file() => None,
        _ if told == writes => None,
        Command::Start => Some((Arc::from("harbor run"), told)),
        Command::Resume => Some((Arc::from("harbor job resume"), told)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Start,
    Resume,
}

/// A job dir, or a config of one.
#[derive(Debug, PartialEq, Eq)]
enum Told<'a> {
    Dir(&'a str),
    Config(&'a str),
}

impl Told<'_> {
    fn dir(&self) -> &Path {
        match self {
            Told::Dir(dir) => Path::new(dir),
            Told::Config(path) => Path::new(path).parent().unwrap_or(Path::new(".")),
        }
    }
}

/// What a command line says: `python …/harbor job resume -p DIR`, `… run -c DIR/config.json`.
fn of_words(words: &[String]) -> Option<(Command, Told<'_>)> {
    let named = |word: &String| Path::new(word).file_name().is_some_and(|name| name == "harbor" || name == "hb");
    let at = words.iter().take(HEAD).position(named)?;
    let rest = words.get(at + 1..)?;
    let mut verbs = rest.iter().map(String::as_str).filter(|word| !word.starts_with('-'));
    match (verbs.next()?, verbs.next()) {
        ("job" | "jobs", Some("resume")) => Some((Command::Resume, Told::Dir(value(rest, &["-p", "--job-path"])?))),
        ("run", _) | ("job" | "jobs", Some("start")) => {
            let config = value(rest, &["-c", "--config"]).filter(|path| Path::new(path).ends_with("config.json"))?;
            Some((Command::Start, Told::Config(config)))
        }
        _ => None,
    }
}

/// The value of an option, in one word with it or in the next.
fn value<'a>(words: &'a [String], names: &[&str]) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if names.contains(&word.as_str()) {
            return words.next().map(String::as_str);
        }
        if let Some((name, value)) = word.split_once('=').filter(|(name, _)| name.starts_with("--"))
            && names.contains(&name)
        {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_tells_the_job_dir() {
        let words = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
        let told = |line: &str| of_words(&words(line)).map(|(command, told)| (command, told.dir().to_path_buf()));
        let resume = |dir: &str| Some((Command::Resume, PathBuf::from(dir)));
        assert_eq!(told("/x/python /x/harbor job resume -p runs/a"), resume("runs/a"));
        assert_eq!(told("/x/python /x/harbor jobs resume -f Oops --job-path=/runs/a"), resume("/runs/a"));
        let start = Some((Command::Start, PathBuf::from("jobs/a")));
        assert_eq!(told("/x/python /x/harbor run -c jobs/a/config.json -y"), start);
        assert_eq!(told("/x/python /x/harbor job start --config jobs/a/config.json"), start);
        assert_eq!(told("/x/python /x/harbor run -c mine.yaml"), None);
        assert_eq!(told("/x/python /x/harbor run -p tasks"), None);
        assert_eq!(told("tail -f job.log"), None);
    }
}
