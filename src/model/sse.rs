//! Server-sent events, as model servers and the gateways before them really send them: any line end, parts
//! cut anywhere, comments, data over several lines, no blank line between events, bare JSON.

use serde_json::Value;

/// Longest line. A gateway that collects answers may send a whole one in one event.
const LINE: usize = 16 << 20;
/// Most lines of one event.
const LINES: usize = 4096;
/// Bytes kept of what is no event.
const STRAY: usize = 4096;

/// What an event says.
#[derive(Debug)]
pub(super) enum Event {
    /// A document; true when its event was called an error.
    Json(Value, bool),
    /// `[DONE]`.
    Done,
}

/// Why a stream can not be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Garbage {
    /// An event that is no JSON.
    NoJson,
    /// A line, or an event, without end.
    Endless,
}

/// Takes bytes, gives events.
#[derive(Debug, Default)]
pub(super) struct Events {
    buffer: Vec<u8>,
    /// As far as the buffer was searched for a line end.
    searched: usize,
    /// A carriage return was a line end: a line feed after it is none.
    after_return: bool,
    /// Anything but a comment or a blank line was there.
    begun: bool,
    /// Data of an event that goes on, with the number of its lines.
    pending: Vec<u8>,
    lines: usize,
    is_error: bool,
    /// The first bytes that are no field of an event, to say what came instead.
    stray: Vec<u8>,
    strayed: usize,
}

impl Events {
    /// Takes what came and gives the events that are whole.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<Event>) -> Result<(), Garbage> {
        self.buffer.extend_from_slice(bytes);
        let mut start = 0;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut outcome = Ok(());
        while let Some(at) = buffer.get(self.searched..).and_then(|rest| memchr::memchr2(b'\n', b'\r', rest)) {
            let end = self.searched + at;
            self.searched = end + 1;
            let is_return = buffer.get(end) == Some(&b'\r');
            let line = buffer.get(start..end).unwrap_or_default();
            let is_second_half = self.after_return && !is_return && line.is_empty();
            start = end + 1;
            self.after_return = is_return;
            if is_second_half {
                continue;
            }
            outcome = self.line(line, out);
            if outcome.is_err() {
                break;
            }
        }
        buffer.drain(..start.min(buffer.len()));
        self.searched = buffer.len();
        self.buffer = buffer;
        if outcome.is_ok() && self.buffer.len() > LINE {
            return Err(Garbage::Endless);
        }
        outcome
    }

    /// The stream is over: what its last line and event still give. An event that is cut off is left out.
    pub(super) fn end(&mut self, out: &mut Vec<Event>) {
        let last = std::mem::take(&mut self.buffer);
        let _ = self.line(&last, out);
        let _ = self.dispatch(out);
    }

    /// What came instead of events, if nothing else did.
    pub(super) fn stray(&self) -> Option<&[u8]> {
        (!self.begun && !self.stray.is_empty()).then_some(&*self.stray)
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<Event>) -> Result<(), Garbage> {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        if line.is_empty() {
            return self.dispatch(out);
        }
        if let Some(rest) = line.strip_prefix(b"data:") {
            return self.data(rest.strip_prefix(b" ").unwrap_or(rest), out);
        }
        // llama.cpp once named the field so.
        if let Some(rest) = line.strip_prefix(b"error:") {
            self.is_error = true;
            return self.data(rest.strip_prefix(b" ").unwrap_or(rest), out);
        }
        if let Some(name) = line.strip_prefix(b"event:") {
            self.is_error = name.trim_ascii() == b"error";
            return Ok(());
        }
        if line.starts_with(b"{") && self.pending.is_empty() {
            return self.data(line, out);
        }
        let known = [&b":"[..], b"id:", b"retry:"].iter().any(|field| line.starts_with(field));
        if known || self.begun {
            return Ok(());
        }
        if self.stray.len() < STRAY {
            self.stray.extend_from_slice(line.get(..STRAY).unwrap_or(line));
            self.stray.push(b'\n');
        }
        self.strayed += line.len();
        // Somebody's endless page.
        if self.strayed > LINE { Err(Garbage::Endless) } else { Ok(()) }
    }

    /// A document on one line is taken at once: some servers leave out the blank line after it.
    fn data(&mut self, data: &[u8], out: &mut Vec<Event>) -> Result<(), Garbage> {
        self.begun = true;
        if self.pending.is_empty() {
            if data.trim_ascii() == b"[DONE]" {
                out.push(Event::Done);
                return Ok(());
            }
            if data.trim_ascii().is_empty() {
                return Ok(());
            }
            if let Some(value) = parse(data) {
                out.push(Event::Json(value, self.is_error));
                return Ok(());
            }
        }
        self.pending.extend_from_slice(data);
        self.pending.push(b'\n');
        self.lines += 1;
        if self.pending.len() > LINE || self.lines > LINES { Err(Garbage::Endless) } else { Ok(()) }
    }

    fn dispatch(&mut self, out: &mut Vec<Event>) -> Result<(), Garbage> {
        let is_error = std::mem::take(&mut self.is_error);
        if self.pending.is_empty() {
            return Ok(());
        }
        self.lines = 0;
        match parse(&std::mem::take(&mut self.pending)) {
            Some(value) => {
                out.push(Event::Json(value, is_error));
                Ok(())
            }
            None => Err(Garbage::NoJson),
        }
    }
}

/// JSON, with bytes that are no text replaced.
pub(super) fn parse(bytes: &[u8]) -> Option<Value> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Some(value),
        Err(_) if std::str::from_utf8(bytes).is_ok() => None,
        Err(_) => serde_json::from_str(&String::from_utf8_lossy(bytes)).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `n` fields of the events, `-1` for the end; whatever pieces the bytes come in.
    fn read(bytes: &[u8], piece: usize) -> (Vec<i64>, Option<Garbage>) {
        let (mut events, mut out) = (Events::default(), Vec::new());
        let mut garbage = None;
        for piece in bytes.chunks(piece.max(1)) {
            if let Err(error) = events.feed(piece, &mut out) {
                garbage = Some(error);
                break;
            }
        }
        if garbage.is_none() {
            events.end(&mut out);
        }
        let numbers = out.iter().map(|event| match event {
            Event::Done => -1,
            Event::Json(value, _) => value.get("n").and_then(Value::as_i64).unwrap_or(-2),
        });
        (numbers.collect(), garbage)
    }

    #[test]
    fn events_are_read_whatever_their_ends_and_pieces() {
        let texts: &[(&[u8], &[i64])] = &[
            (b"data: {\"n\":1}\n\ndata: {\"n\":2}\n\ndata: [DONE]\n\n", &[1, 2, -1]),
            (b"data: {\"n\":1}\r\n\r\ndata:{\"n\":2}\r\n\r\ndata: [DONE]\r\n\r\n", &[1, 2, -1]),
            (b"data: {\"n\":1}\r\rdata: {\"n\":2}\r\r", &[1, 2]),
            (b": hello\n\n: keep-alive\nid: 4\nevent: message\ndata: {\"n\":1}\n\n", &[1]),
            // Over several lines, in each of the line ends.
            (b"data: {\ndata: \"n\":\ndata: 7}\n\n", &[7]),
            (b"data: {\r\ndata: \"n\":\r\ndata: 7}\r\n\r\n", &[7]),
            (b"data: {\rdata: \"n\":\rdata: 7}\r\r", &[7]),
            // No blank lines; no line end at the end.
            (b"data: {\"n\":1}\ndata: {\"n\":2}\ndata: [DONE]", &[1, 2, -1]),
            (b"{\"n\":1}\n{\"n\":2}\n", &[1, 2]),
            (b"\xef\xbb\xbfdata: {\"n\":1}\n\ndata:\n\n", &[1]),
            // Not UTF-8.
            (b"data: {\"n\":1,\"x\":\"\xff\xfe\"}\n\n", &[1]),
            // Cut off.
            (b"data: {\"n\":1}\n\ndata: {\"n\":", &[1]),
        ];
        for (text, expected) in texts {
            for piece in [1, 2, 3, 7, 4096] {
                let (numbers, garbage) = read(text, piece);
                assert_eq!((&*numbers, garbage), (*expected, None), "{} by {piece}", String::from_utf8_lossy(text));
            }
        }
    }

    proptest::proptest! {
        /// Anything can be read, and pieces change nothing.
        #[test]
        fn pieces_change_nothing(words in proptest::collection::vec(0_usize..12, 0..40), piece in 1_usize..40) {
            let parts: [&[u8]; 12] = [b"data: ", b"\n", b"\r", b"\r\n", b"{\"n\":1}", b"{", b"}", b": x", b"\"n\":2", b"[DONE]", b"\xff", b"event: error"];
            let bytes: Vec<u8> = words.iter().filter_map(|word| parts.get(*word)).flat_map(|part| part.to_vec()).collect();
            let whole = read(&bytes, bytes.len());
            proptest::prop_assert_eq!(read(&bytes, piece), whole.clone());
            proptest::prop_assert_eq!(read(&bytes, 1), whole);
        }
    }

    #[test]
    fn what_is_no_event_is_told_apart() {
        assert_eq!(
            read(b"data: {\"n\":1}\n\ndata: {\"n\"\n\ndata: {\"n\":3}\n\n", 5),
            (vec![1], Some(Garbage::NoJson))
        );
        let endless = vec![b'x'; LINE + 2];
        assert_eq!(read(&endless, 1 << 20).1, Some(Garbage::Endless));
        assert_eq!(read(&b"<p>hello</p>\n".repeat(LINE / 8), 1 << 20).1, Some(Garbage::Endless));
        let many = b"data: [\n".repeat(LINES + 2);
        assert_eq!(read(&many, 1 << 20).1, Some(Garbage::Endless));
        let (mut events, mut out) = (Events::default(), Vec::new());
        assert_eq!(events.feed(b"<html>\n<title>504</title>\n", &mut out), Ok(()));
        assert!(events.stray().is_some_and(|stray| stray.starts_with(b"<html>")));
    }
}
