//! The file that makes a program an agent: how it is installed, run and understood.
//!
//! Shipped ones are in the program; a file `NAME.toml` below `$XDG_CONFIG_HOME/pilothouse/agents` (else
//! `~/.config/pilothouse/agents`) adds one, or takes the place of a shipped one. `configs/agents/example.toml`
//! names everything that can stand in one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Deserializer};

use crate::harbor::{Dir, OpenError};
use crate::job::text::clean;

/// Those that are in the program, by name.
const SHIPPED: [(&str, &str); 1] = [("mini-swe-agent", include_str!("../../../configs/agents/mini-swe-agent.toml"))];
/// The one that explains.
pub const EXAMPLE: &str = include_str!("../../../configs/agents/example.toml");
/// Longest file: 1 MiB.
const LONGEST: u64 = 1 << 20;
/// Most files that are listed.
const MOST: usize = 256;
/// Largest compiled pattern, in bytes: a slip in a file must not take the memory.
const PATTERN: usize = 1 << 20;

/// Whether it asks a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelUse {
    /// It can not do without, by `provider/name`.
    Required,
    /// It takes one where one is named.
    #[default]
    Optional,
    /// It has its own way to one, or none.
    None,
}

/// As whom something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// As root.
    Root,
    /// As the user that the task has for agents.
    #[default]
    Agent,
}

/// Which shell reads a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shell {
    /// What every image has.
    #[default]
    Sh,
    /// Where it needs more; an image without it is an error.
    Bash,
}

impl Shell {
    /// Its name as a program.
    pub fn word(self) -> &'static str {
        match self {
            Shell::Sh => "sh",
            Shell::Bash => "bash",
        }
    }
}

/// An agent by its file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Its name, that of the file.
    pub name: String,
    /// What it is, in a line.
    #[serde(default)]
    pub about: String,
    /// Whether it asks a model.
    #[serde(default)]
    pub model: ModelUse,
    /// How it comes to be there.
    #[serde(default)]
    pub setup: Setup,
    /// How it works.
    pub run: Run,
    /// Variables with keys, by the model's provider (`any`: of whichever). Of each list the first that is
    /// there is given to the run, from `--ae` or this machine; none is an error.
    #[serde(default)]
    pub keys: BTreeMap<String, Vec<String>>,
    /// What can be set with `--ak`.
    #[serde(default)]
    pub options: BTreeMap<String, Choice>,
    /// Where its tokens are, if the trajectory does not tell.
    #[serde(default)]
    pub tokens: Option<Tokens>,
    /// Its own record of what it did.
    #[serde(default)]
    pub trajectory: Option<Trajectory>,
    /// What its last words mean when it fails.
    #[serde(default)]
    pub errors: Vec<ErrorRule>,
}

/// How it comes to be there.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// Nothing is installed where this ends with 0.
    pub check: Option<String>,
    /// Programs of the system that are installed by its package manager where they are missing, as root.
    pub needs: Vec<Need>,
    /// Installs it.
    pub install: Option<String>,
    /// As whom.
    pub user: Who,
    /// What reads the scripts.
    pub shell: Shell,
    /// Prints its version.
    pub version: Option<String>,
    /// Variables for the scripts above.
    pub env: BTreeMap<String, String>,
}

/// A program of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// By which one knows that it is there.
    pub command: String,
    /// Packages for `apt-get`, `dnf`, `yum` and `apk`.
    pub packages: BTreeMap<String, String>,
}

/// Package managers that are known.
pub const MANAGERS: [&str; 4] = ["apt-get", "dnf", "yum", "apk"];

impl Need {
    /// What a package manager is to install.
    pub fn package(&self, manager: &str) -> &str {
        let own = self.packages.get(manager).or_else(|| self.packages.get("dnf").filter(|_| manager == "yum"));
        own.map_or(&*self.command, |p| p)
    }
}

impl<'de> Deserialize<'de> for Need {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Need, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Word(String),
            Table(BTreeMap<String, String>),
        }
        let wrong = |why: String| Err(serde::de::Error::custom(why));
        let need = match Raw::deserialize(from)? {
            Raw::Word(command) => Need { command, packages: BTreeMap::new() },
            Raw::Table(mut packages) => match packages.remove("command") {
                Some(command) => Need { command, packages },
                None => return wrong("a need without its command".to_string()),
            },
        };
        if let Some(other) = need.packages.keys().find(|name| !MANAGERS.contains(&name.as_str())) {
            return wrong(format!("a need for {other}: there are {}", MANAGERS.join(", ")));
        }
        let mut words = need.packages.values().flat_map(|p| p.split_whitespace()).chain([&*need.command]);
        let plain = |word: &str| {
            let ok = |c: char| c.is_ascii_alphanumeric() || "+-._:@".contains(c);
            !word.is_empty() && !word.starts_with('-') && word.chars().all(ok)
        };
        if let Some(word) = words.find(|word| !plain(word)) {
            return wrong(format!("{word:?} is no name of a program or package"));
        }
        drop(words);
        Ok(need)
    }
}

/// How it works.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Runs it to its end; its exit code tells how that was.
    pub command: String,
    /// What reads it.
    #[serde(default)]
    pub shell: Shell,
    /// File of `agent/` that takes what it prints; `<name>.txt`.
    #[serde(default)]
    pub output: Option<String>,
    /// Variables for it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables of this machine that it is given where they are set, and no keys.
    #[serde(default)]
    pub pass: Vec<String>,
    /// Variables that mean the same: where one is set, so are the others.
    #[serde(default)]
    pub same: Vec<Vec<String>>,
    /// Seconds between two short questions to the place where it works, lest that take it for idle; 0:
    /// none.
    #[serde(default = "keep_alive")]
    pub keep_alive_sec: u32,
    /// Whether its processes are ended when its time is over, before the tests.
    #[serde(default = "yes")]
    pub end_after_timeout: bool,
}

fn keep_alive() -> u32 {
    60
}

fn yes() -> bool {
    true
}

/// Something that can be set.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// What it does.
    #[serde(default)]
    pub about: String,
    /// What it can be.
    #[serde(default)]
    pub kind: Kind,
    /// What it is where nothing is set.
    #[serde(default)]
    pub default: Option<String>,
    /// The words that it can be.
    #[serde(default)]
    pub choices: Vec<String>,
    /// Variables that hold it, besides `$opt_<name>`.
    #[serde(default)]
    pub env: Vec<String>,
}

/// What a setting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Any text.
    #[default]
    Text,
    /// A number.
    Number,
    /// `true` or `false`; the script sees `true` or nothing.
    Flag,
}

/// How a file with tokens is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenForm {
    /// One document.
    Json,
    /// A document in each line; those without a number are passed over.
    Jsonl,
    /// A text with a pattern in it, at its last place.
    Text,
}

/// Where its tokens are.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// File of `agent/`.
    pub file: String,
    /// How it is read.
    pub form: TokenForm,
    /// Lines count together; else the last one counts.
    #[serde(default)]
    pub sum: bool,
    /// Prompt tokens, as a JSON pointer.
    #[serde(default)]
    pub input: Option<String>,
    /// Of those, from the cache.
    #[serde(default)]
    pub cached: Option<String>,
    /// Completion tokens.
    #[serde(default)]
    pub output: Option<String>,
    /// US dollars.
    #[serde(default)]
    pub cost: Option<String>,
    /// Of a text: a pattern with the groups `input`, `cached`, `output`, `cost`.
    #[serde(default, deserialize_with = "pattern")]
    pub pattern: Option<Regex>,
}

/// A format of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordForm {
    /// That of mini-swe-agent 2.
    MiniSweAgent,
    /// The interchange format itself, under another name than `trajectory.json`.
    Atif,
}

/// Its own record.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trajectory {
    /// File of `agent/`.
    pub file: String,
    /// What is in it.
    pub form: RecordForm,
}

/// What last words mean.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorRule {
    /// A pattern, in whichever case.
    #[serde(deserialize_with = "needed_pattern")]
    pub pattern: Regex,
    /// The type, as Harbor names it.
    pub kind: String,
}

fn pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Regex>, D::Error> {
    needed_pattern(from).map(Some)
}

fn needed_pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Regex, D::Error> {
    let text = String::deserialize(from)?;
    compiled(&text).map_err(serde::de::Error::custom)
}

/// A pattern, in whichever case.
pub fn compiled(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).case_insensitive(true).size_limit(PATTERN).build()
}

/// Where a file came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It is in the program.
    Shipped,
    /// The operator's own.
    Own(PathBuf),
}

/// Why a file is none: safe to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub struct SpecProblem {
    /// File, with its line where there is one.
    at: String,
    why: String,
}

/// An agent's file, read.
#[derive(Debug, Clone)]
pub struct Found {
    /// What it says.
    pub spec: Spec,
    /// Where it came from.
    pub origin: Origin,
    /// Of its text.
    pub sha256: String,
    /// Its text.
    pub text: String,
}

/// Where the operator's own are.
pub fn own_folder() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home = var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|d| d.join(".config")))?;
    Some(home.join("pilothouse/agents"))
}

/// The agent of a name; None where there is no such file.
///
/// # Errors
/// See [`SpecProblem`].
pub fn find(name: &str) -> Result<Option<Found>, SpecProblem> {
    find_in(own_folder().as_deref(), name)
}

fn find_in(folder: Option<&Path>, name: &str) -> Result<Option<Found>, SpecProblem> {
    if !is_name(name) {
        return Ok(None);
    }
    if let Some(folder) = folder {
        let (file, path) = (format!("{name}.toml"), folder.join(format!("{name}.toml")));
        let problem = |why: String| SpecProblem { at: clean(&path.to_string_lossy()).into_owned(), why };
        match Dir::open(folder).map(|dir| dir.read_all(&file, LONGEST)) {
            Ok(Ok(bytes)) => {
                let text = String::from_utf8(bytes.data).map_err(|_| problem("no text".to_string()))?;
                return read(&text, name, Origin::Own(path)).map(Some);
            }
            Ok(Err(OpenError::Missing)) | Err(_) => {}
            Ok(Err(e)) => return Err(problem(clean(&e.to_string()).into_owned())),
        }
    }
    let shipped = SHIPPED.iter().find(|(shipped, _)| *shipped == name);
    shipped.map(|(_, text)| read(text, name, Origin::Shipped)).transpose()
}

/// Names of all that there are, sorted.
pub fn names() -> Vec<String> {
    let mut out: Vec<String> = SHIPPED.iter().map(|(name, _)| (*name).to_string()).collect();
    let own = own_folder().and_then(|folder| Dir::open(&folder).ok()).and_then(|dir| dir.list().ok());
    for entry in own.into_iter().flatten().take(MOST) {
        if let Some(name) = entry.name.to_str().and_then(|n| n.strip_suffix(".toml")).filter(|n| is_name(n)) {
            out.push(name.to_string());
        }
    }
    out.sort();
    out.dedup();
    out
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    (1..=64).contains(&name.len()) && !name.starts_with(['.', '-']) && name.chars().all(plain)
}

/// Reads a file.
///
/// # Errors
/// See [`SpecProblem`].
pub fn read(text: &str, name: &str, origin: Origin) -> Result<Found, SpecProblem> {
    let shown = match &origin {
        Origin::Shipped => format!("configs/agents/{name}.toml"),
        Origin::Own(path) => clean(&path.to_string_lossy()).into_owned(),
    };
    let spec: Spec = toml::from_str(text).map_err(|e| {
        let line = e.span().map(|span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1);
        let at = line.map_or(shown.clone(), |line| format!("{shown}:{line}"));
        SpecProblem { at, why: clean(e.message()).into_owned() }
    })?;
    let wrong = faults(&spec, name);
    if wrong.is_empty() {
        let sha256 = crate::harbor::task::sha256_hex(text.as_bytes());
        Ok(Found { spec, origin, sha256, text: text.to_string() })
    } else {
        Err(SpecProblem { at: shown, why: clean(&wrong.join("; ")).into_owned() })
    }
}

/// What can not be in a file that could be read.
fn faults(spec: &Spec, name: &str) -> Vec<String> {
    let mut out = Vec::new();
    if spec.name != name {
        out.push(format!("its name is {:?}, that of the file {name:?}", spec.name));
    }
    if crate::agent::NAMES.contains(&name) {
        out.push("an agent of this name is built in".to_string());
    }
    let mut file = |what: &str, name: &str| {
        let plain = !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && !name.contains(['/', '\0']);
        if !plain || [crate::harbor::write::atif::FILE, "setup"].contains(&name) {
            out.push(format!("{what} = {name:?}: a name of a file in agent/, and none that is taken"));
        }
    };
    file("run.output", &spec.output());
    spec.tokens.iter().for_each(|t| file("tokens.file", &t.file));
    spec.trajectory.iter().for_each(|t| file("trajectory.file", &t.file));
    let variables = spec.setup.env.keys().chain(spec.run.env.keys()).chain(&spec.run.pass);
    let variables = variables.chain(spec.run.same.iter().flatten()).chain(spec.keys.values().flatten());
    let variables = variables.chain(spec.options.values().flat_map(|o| &o.env));
    out.extend(variables.filter(|v| !is_variable(v)).map(|v| format!("{v:?} is no name of a variable")));
    for (name, option) in &spec.options {
        if !is_variable(name) || super::options::COMMON.iter().any(|(common, _)| common == name) {
            out.push(format!("option {name:?}: letters, digits and _, and none of those that all agents have"));
        }
        if let Some(default) = &option.default
            && let Err(why) = super::options::fits(option, default)
        {
            out.push(format!("option {name}: its default {why}"));
        }
    }
    if let Some(tokens) = &spec.tokens {
        let pointers = [&tokens.input, &tokens.cached, &tokens.output, &tokens.cost];
        for pointer in pointers.into_iter().flatten().filter(|p| !p.starts_with('/')) {
            out.push(format!("tokens: {pointer:?} is no JSON pointer (/usage/prompt_tokens)"));
        }
        if (tokens.form == TokenForm::Text) != tokens.pattern.is_some() {
            out.push("tokens: a pattern for a text, and for nothing else".to_string());
        }
    }
    for rule in &spec.errors {
        let word = rule.kind.chars().all(|c| c.is_ascii_alphanumeric()) && rule.kind.ends_with("Error");
        if !word || !rule.kind.starts_with(|c: char| c.is_ascii_uppercase()) {
            out.push(format!("{:?} is no type of an error (ContextWindowExceededError)", rule.kind));
        }
    }
    out
}

fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(plain)
}

impl Spec {
    /// File of `agent/` that takes what it prints.
    pub fn output(&self) -> String {
        self.run.output.clone().unwrap_or_else(|| format!("{}.txt", self.name))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Shipped => f.write_str("shipped"),
            Origin::Own(path) => f.write_str(&clean(&path.to_string_lossy())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn shipped_ones_and_the_example_are_read() {
        for (name, text) in SHIPPED {
            assert_eq!(read(text, name, Origin::Shipped).unwrap().spec.name, name);
        }
        let example = read(EXAMPLE, "example", Origin::Shipped).unwrap().spec;
        assert_eq!((example.errors.len(), example.output().as_str()), (2, "example.txt"));
        assert_eq!(example.setup.needs[1].package("yum"), "python3");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let head = "name = \"a\"\n";
        for (text, why) in [
            ("[run]\ncommand = 3", "a.toml:3: invalid type: integer"),
            ("[run]\ncommand = \"x\"\ncomand = \"x\"", "a.toml:4: unknown field `comand`"),
            ("x", "a.toml:2:"),
            ("model = \"some\"\n[run]\ncommand=\"x\"", "a.toml:2: unknown variant `some`"),
            ("[run]\ncommand=\"x\"\noutput=\"../x\"", "run.output"),
            ("[run]\ncommand=\"x\"\noutput=\"trajectory.json\"", "run.output"),
            ("[run]\ncommand=\"x\"\npass=[\"A B\"]", "no name of a variable"),
            ("[setup]\nneeds=[\"a;b\"]\n[run]\ncommand=\"x\"", "no name of a program"),
            ("[setup]\nneeds=[{command=\"a\", brew=\"b\"}]\n[run]\ncommand=\"x\"", "there are apt-get"),
            ("[run]\ncommand=\"x\"\n[options.version]", "all agents have"),
            ("[run]\ncommand=\"x\"\n[options.n]\nkind=\"number\"\ndefault=\"many\"", "option n: its default"),
            ("[run]\ncommand=\"x\"\n[[errors]]\npattern=\"(\"\nkind=\"ApiError\"", "regex parse error"),
            ("[run]\ncommand=\"x\"\n[[errors]]\npattern=\"a\"\nkind=\"oops\"", "no type of an error"),
            ("[run]\ncommand=\"x\"\n[tokens]\nfile=\"u\"\nform=\"text\"", "a pattern for a text"),
            ("[run]\ncommand=\"x\"\n[tokens]\nfile=\"u\"\nform=\"json\"\ninput=\"usage\"", "no JSON pointer"),
        ] {
            let wrong = read(&format!("{head}{text}"), "a", Origin::Own("a.toml".into())).unwrap_err().to_string();
            assert!(wrong.contains(why), "{text}: {wrong}");
        }
        let wrong = read("name = \"oracle\"\n[run]\ncommand=\"x\"", "oracle", Origin::Shipped).unwrap_err();
        assert!(wrong.to_string().contains("built in"), "{wrong}");
    }

    #[test]
    fn the_operators_own_file_comes_first() {
        let temp = tempfile::tempdir().unwrap();
        let found = |name: &str| find_in(Some(temp.path()), name);
        assert_eq!(found("mini-swe-agent").unwrap().unwrap().origin, Origin::Shipped);
        assert!(found("other").unwrap().is_none() && found("../other").unwrap().is_none());
        let text = "name = \"mini-swe-agent\"\nabout = \"mine\"\n[run]\ncommand = \"true\"";
        std::fs::write(temp.path().join("mini-swe-agent.toml"), text).unwrap();
        let own = found("mini-swe-agent").unwrap().unwrap();
        assert_eq!((own.spec.about.as_str(), own.origin == Origin::Shipped), ("mine", false));
        std::fs::write(temp.path().join("odd.toml"), [0xff_u8, 0xfe]).unwrap();
        assert!(found("odd").is_err());
    }
}
