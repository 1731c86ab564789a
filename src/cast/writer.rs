//! Writing a recording: asciicast v2, as the format's description by the asciinema project has it. One
//! JSON document a line: the header, then `[seconds, code, data]`.

use std::time::Duration;

use serde_json::json;

/// The first line of a recording that began at `timestamp` (seconds since 1970).
pub fn header(cols: u16, rows: u16, timestamp: i64, env: &[(&str, &str)]) -> Vec<u8> {
    let env: serde_json::Map<String, serde_json::Value> =
        env.iter().map(|(name, value)| ((*name).to_string(), json!(value))).collect();
    line(&json!({"version": 2, "width": cols, "height": rows, "timestamp": timestamp, "env": env}).to_string())
}

/// A line for output, `at` after the beginning.
pub fn output(at: Duration, text: &str) -> Vec<u8> {
    event(at, "o", text)
}

/// A line for a marker.
pub fn marker(at: Duration, label: &str) -> Vec<u8> {
    event(at, "m", label)
}

fn event(at: Duration, code: &str, data: &str) -> Vec<u8> {
    line(&format!("[{}.{:06}, \"{code}\", {}]", at.as_secs(), at.subsec_micros(), json!(data)))
}

fn line(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(b'\n');
    bytes
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cast::{Player, Target, Work};

    #[test]
    fn what_is_written_can_be_played() {
        let mut file = header(160, 40, 1_700_000_000, &[("TERM", "xterm-256color")]);
        file.extend(marker(Duration::ZERO, "episode 0"));
        file.extend(output(Duration::from_micros(1_000_001), "\u{1b}[1mhello\u{0}\u{1f} \u{4efb}\"\\\r\n"));
        file.extend(marker(Duration::from_secs(7), "episode 1"));
        let mut player = Player::open(Arc::<[u8]>::from(&file[..]), "w.cast").unwrap();
        while player.work(500_000) == Work::More {}
        assert_eq!(player.duration(), Duration::from_secs(7));
        assert_eq!(player.markers().iter().map(|m| m.label.as_str()).collect::<Vec<_>>(), ["episode 0", "episode 1"]);
        player.seek(Target::Percent(100.0));
        assert_eq!(player.screen().text()[0], "hello \u{4efb}\"\\");
        assert_eq!(player.screen().size(), (160, 40));
    }
}
