//! The reward that tests leave: `reward.json`, else `reward.txt` (rules of Harbor 0.26).

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Number, Value};

use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::RewardMap;
use crate::harbor::{Dir, OpenError};
use crate::job::text::clean;

const DURING: &str = "the reading of the reward";
/// Longest reward file that is read, in bytes.
pub const REWARD_BYTES: u64 = 1 << 20;

/// Reads the reward out of a `verifier/` directory.
///
/// # Errors
/// `RewardFileNotFoundError` without a file, `RewardFileEmptyError` for one of no bytes,
/// `VerifierOutputParseError` for all else that is no map of finite numbers, or no finite number; a link,
/// a FIFO or a file of more than [`REWARD_BYTES`] is such a thing, too.
pub fn read_reward(logs: &Dir) -> Result<RewardMap, Raised> {
    if let Some(bytes) = take(logs, "reward.json")? {
        return of_json(&bytes);
    }
    if let Some(bytes) = take(logs, "reward.txt")? {
        return of_text(&bytes);
    }
    let message = "No reward file found: the tests left neither verifier/reward.json nor verifier/reward.txt";
    Err(Raised::new("RewardFileNotFoundError", message, DURING))
}

fn unparsed(message: &str) -> Raised {
    Raised::new("VerifierOutputParseError", &clean(message), DURING)
}

fn take(logs: &Dir, name: &str) -> Result<Option<Vec<u8>>, Raised> {
    match logs.read_all(name, REWARD_BYTES) {
        Ok(read) if read.data.is_empty() => {
            Err(Raised::new("RewardFileEmptyError", &format!("verifier/{name} is empty"), DURING))
        }
        Ok(read) => Ok(Some(read.data)),
        Err(OpenError::Missing) => Ok(None),
        Err(e) => Err(unparsed(&format!("verifier/{name}: {}", e))),
    }
}

/// A JSON object in the order of the file; of a name that comes twice the last value.
struct Ordered(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Ordered, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut out: Vec<(String, Value)> = Vec::new();
                let mut at = std::collections::HashMap::new();
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    match at.get(&key).and_then(|i: &usize| out.get_mut(*i)) {
                        Some(entry) => entry.1 = value,
                        None => {
                            at.insert(key.clone(), out.len());
                            out.push((key, value));
                        }
                    }
                }
                Ok(Ordered(out))
            }
        }
        from.deserialize_map(Reader)
    }
}

fn of_json(bytes: &[u8]) -> Result<RewardMap, Raised> {
    let read: Result<Ordered, _> = serde_json::from_slice(bytes);
    let Ordered(entries) = read.map_err(|e| unparsed(&format!("verifier/reward.json: {e}")))?;
    let number = |(key, value): (String, Value)| match value {
        Value::Number(number) => Ok((key, number)),
        _ => {
            let key: String = key.chars().take(80).collect();
            Err(unparsed(&format!("verifier/reward.json: {key:?} is not a number")))
        }
    };
    entries.into_iter().map(number).collect()
}

fn of_text(bytes: &[u8]) -> Result<RewardMap, Raised> {
    let text = std::str::from_utf8(bytes).map_err(|_| unparsed("verifier/reward.txt is not UTF-8"))?;
    let text = text.trim();
    let number = text.parse::<f64>().ok().filter(|n| n.is_finite()).and_then(Number::from_f64);
    let number = number.ok_or_else(|| {
        let start: String = text.chars().take(80).collect();
        unparsed(&format!("verifier/reward.txt: {start:?} is not a finite number"))
    })?;
    Ok(vec![("reward".to_string(), number)])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &[u8])]) -> Result<String, String> {
        let temp = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(temp.path().join(name), bytes).unwrap();
        }
        let read = read_reward(&Dir::open(temp.path()).unwrap());
        read.map(|r| r.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")).map_err(|e| e.kind)
    }

    #[test]
    fn rewards_are_read_as_harbor_reads_them() {
        assert_eq!(of(&[("reward.txt", b" 1\n")]).as_deref(), Ok("reward=1.0"));
        let both: &[(&str, &[u8])] = &[("reward.txt", b"1"), ("reward.json", br#"{"z": 1, "a": 0.5}"#)];
        assert_eq!(of(both).as_deref(), Ok("z=1 a=0.5"));
        assert_eq!(of(&[]), Err("RewardFileNotFoundError".into()));
        assert_eq!(of(&[("reward.txt", b"")]), Err("RewardFileEmptyError".into()));
        assert_eq!(of(&[("reward.json", b""), ("reward.txt", b"1")]), Err("RewardFileEmptyError".into()));
        let bad: &[&[u8]] = &[b"nan", b"inf", b"1e999", b"one", b" ", b"\xff"];
        for text in bad {
            assert_eq!(of(&[("reward.txt", text)]), Err("VerifierOutputParseError".into()), "{text:?}");
        }
        let bad: &[&[u8]] = &[b"{", b"1", br#"{"reward": "1"}"#, br#"{"reward": NaN}"#, br#"{"r": 1e999}"#];
        for json in bad {
            assert_eq!(of(&[("reward.json", json)]), Err("VerifierOutputParseError".into()), "{json:?}");
        }
    }

    #[test]
    fn a_link_or_a_giant_is_no_reward() {
        let temp = tempfile::tempdir().unwrap();
        let (outside, logs) = (temp.path().join("outside"), temp.path().join("verifier"));
        std::fs::create_dir(&logs).unwrap();
        std::fs::write(&outside, "1").unwrap();
        std::os::unix::fs::symlink(&outside, logs.join("reward.txt")).unwrap();
        let dir = Dir::open(&logs).unwrap();
        assert_eq!(read_reward(&dir).unwrap_err().kind, "VerifierOutputParseError");
        let big = std::fs::File::create(logs.join("reward.json")).unwrap();
        big.set_len(300 << 20).unwrap();
        assert_eq!(read_reward(&dir).unwrap_err().kind, "VerifierOutputParseError");
    }
}
