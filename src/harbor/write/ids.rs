//! Names that nobody else has: ids, and the directories of trials.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};

/// Digits and letters that are not mistaken for one another, as Harbor uses them.
const ALPHABET: &[u8] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// Characters of a task's name in a trial's.
const TASK_CHARS: usize = 32;
/// Characters after it.
const SUFFIX_CHARS: usize = 7;

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut out = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut out)?;
    Ok(out)
}

/// A random UUID (version 4) in its usual writing.
///
/// # Errors
/// When the system gives no random numbers.
pub fn uuid() -> io::Result<String> {
    let raw = u128::from_be_bytes(random::<16>()?);
    let versioned = (raw & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{versioned:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    Ok([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

/// A name for a trial's directory as Harbor makes them: the task's last path segment, cut at 32
/// characters, and seven random ones. Unlike Harbor's, it differs from every name in `taken` (which
/// grows by it) in more than case, because container names come of it in lower case.
///
/// # Errors
/// When the system gives no random numbers.
pub fn trial_name(task: &str, taken: &mut HashSet<String>) -> io::Result<String> {
    let short = task.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let cut: String = short.chars().take(TASK_CHARS).collect();
    let stem = cut.trim_end_matches(['_', '-']);
    loop {
        let suffix = suffix()?;
        let name = format!("{stem}__{suffix}");
        if taken.insert(name.to_lowercase()) {
            return Ok(name);
        }
    }
}

/// True for a name that [`trial_name`] could have made.
pub fn is_trial_name(name: &str) -> bool {
    name.rsplit_once("__").is_some_and(|(stem, suffix)| {
        !stem.is_empty() && suffix.len() == SUFFIX_CHARS && suffix.bytes().all(|b| ALPHABET.contains(&b))
    })
}

fn suffix() -> io::Result<String> {
    let mut out = String::new();
    while out.len() < SUFFIX_CHARS {
        // Bytes beyond the last whole multiple would make some letters likelier than others.
        let fair = (256 / ALPHABET.len()) * ALPHABET.len();
        for byte in random::<16>()? {
            let at = usize::from(byte);
            if at < fair && out.len() < SUFFIX_CHARS {
                out.extend(ALPHABET.get(at % ALPHABET.len()).map(|c| char::from(*c)));
            }
        }
    }
    Ok(out)
}
