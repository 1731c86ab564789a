//! A scanner for JSON files of any size: bytes go in block by block, places come out.
//!
//! Only the outer levels are looked at; what lies deeper is passed over with nothing kept, so that
//! memory stays the same for a file of 300 MB with token ids in it. Grammar is not checked beyond
//! what the places need: a file is known to be whole when its outermost object closes.

/// Levels whose keys and values are reported; the root object's contents are level 1.
pub(super) const LEVELS: usize = 4;
/// Bytes kept of a reported string or number.
const CAPTURE: usize = 256;

/// What the scanner reports. `level` is that of the container in which the thing lies, 0 for the
/// root itself.
pub(super) trait Sink {
    /// A key of an object.
    fn key(&mut self, level: usize, key: &[u8]);
    /// A string (`text` without quotes, escapes untouched), number or literal; the first bytes of it.
    fn value(&mut self, level: usize, text: &[u8], is_string: bool);
    /// An object or list begins at this offset.
    fn open(&mut self, level: usize, is_object: bool, offset: u64);
    /// The object or list ended before this offset.
    fn close(&mut self, level: usize, end: u64);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Between,
    Text { escaped: bool },
    Scalar,
}

/// What became of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    /// Nothing but white space so far.
    Blank,
    /// The outermost object is open.
    Open,
    /// The outermost object closed, followed by nothing but white space.
    Closed,
    /// Something follows the outermost object.
    Trailing,
    /// The outermost value is no object.
    Other,
}

/// The scanner's state between two blocks.
#[derive(Debug)]
pub(super) struct Scanner {
    offset: u64,
    depth: usize,
    /// Whether the containers of the reported levels are objects.
    objects: [bool; LEVELS + 2],
    mode: Mode,
    want_key: bool,
    capture: Vec<u8>,
    root: Root,
}

/// Bytes that matter below the reported levels.
const STRUCTURE: [bool; 256] = {
    let mut table = [false; 256];
    table[b'"' as usize] = true;
    table[b'{' as usize] = true;
    table[b'}' as usize] = true;
    table[b'[' as usize] = true;
    table[b']' as usize] = true;
    table
};

impl Scanner {
    pub(super) fn new() -> Scanner {
        Scanner {
            offset: 0,
            depth: 0,
            objects: [false; LEVELS + 2],
            mode: Mode::Between,
            want_key: false,
            capture: Vec::new(),
            root: Root::Blank,
        }
    }

    /// Offset of the next byte to feed.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn root(&self) -> Root {
        self.root
    }

    /// Takes the bytes at [`Scanner::offset`].
    pub(super) fn feed(&mut self, block: &[u8], sink: &mut impl Sink) {
        let begin = self.offset;
        self.offset += block.len() as u64;
        let mut at = 0;
        if begin == 0 && block.starts_with(b"\xef\xbb\xbf") {
            at = 3;
        }
        while let Some(rest) = block.get(at..).filter(|r| !r.is_empty()) {
            at += match self.mode {
                Mode::Text { escaped: true } => {
                    self.keep(rest.get(..1).unwrap_or_default());
                    self.mode = Mode::Text { escaped: false };
                    1
                }
                Mode::Text { escaped: false } => match memchr::memchr2(b'"', b'\\', rest) {
                    None => {
                        self.keep(rest);
                        rest.len()
                    }
                    Some(n) => {
                        if rest.get(n) == Some(&b'\\') {
                            self.keep(rest.get(..=n).unwrap_or_default());
                            self.mode = Mode::Text { escaped: true };
                        } else {
                            self.keep(rest.get(..n).unwrap_or_default());
                            self.mode = Mode::Between;
                            self.end_string(sink);
                        }
                        n + 1
                    }
                },
                Mode::Scalar => {
                    let end = rest.iter().position(|b| {
                        matches!(b, b',' | b']' | b'}' | b':' | b'"' | b'[' | b'{') || b.is_ascii_whitespace()
                    });
                    self.keep(rest.get(..end.unwrap_or(rest.len())).unwrap_or_default());
                    if end.is_some() {
                        self.mode = Mode::Between;
                        sink.value(self.depth, &self.capture, false);
                    }
                    end.unwrap_or(rest.len())
                }
                Mode::Between => self.between(rest, begin + at as u64, sink),
            };
            if matches!(self.root, Root::Other | Root::Trailing) {
                return;
            }
        }
    }

    /// Bytes consumed, at least one.
    fn between(&mut self, rest: &[u8], offset: u64, sink: &mut impl Sink) -> usize {
        let skipped = if self.depth > LEVELS {
            match rest.iter().position(|b| STRUCTURE[usize::from(*b)]) {
                Some(n) => n,
                None => return rest.len(),
            }
        } else {
            0
        };
        let byte = rest.get(skipped).copied().unwrap_or(b' ');
        if self.depth == 0 && !byte.is_ascii_whitespace() {
            self.root = match (self.root, byte) {
                (Root::Blank, b'{') => Root::Open,
                (Root::Blank, _) => Root::Other,
                _ => Root::Trailing,
            };
            if self.root != Root::Open {
                return rest.len();
            }
        }
        let end = offset + skipped as u64 + 1;
        match byte {
            b'"' => {
                self.capture.clear();
                self.mode = Mode::Text { escaped: false };
            }
            b'{' | b'[' => {
                if self.depth <= LEVELS {
                    sink.open(self.depth, byte == b'{', end - 1);
                }
                self.depth += 1;
                if let Some(is_object) = self.objects.get_mut(self.depth) {
                    *is_object = byte == b'{';
                }
                self.want_key = byte == b'{';
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.want_key = false;
                if self.depth <= LEVELS {
                    sink.close(self.depth, end);
                }
                if self.depth == 0 {
                    self.root = Root::Closed;
                }
            }
            b':' => self.want_key = false,
            b',' => self.want_key = self.objects.get(self.depth).copied().unwrap_or(false),
            b if b.is_ascii_whitespace() => {}
            _ => {
                self.capture.clear();
                self.mode = Mode::Scalar;
                return skipped;
            }
        }
        skipped + 1
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.depth <= LEVELS && self.capture.len() < CAPTURE {
            let room = CAPTURE - self.capture.len();
            self.capture.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        }
    }

    fn end_string(&mut self, sink: &mut impl Sink) {
        if self.depth > LEVELS {
            return;
        }
        if self.want_key {
            sink.key(self.depth, &self.capture);
        } else {
            sink.value(self.depth, &self.capture, true);
        }
    }
}

/// Copies JSON text without what nobody looks at: the values of some keys become null, and of each
/// long string the first `cap` bytes are kept, with a word of how many more there were.
pub(super) struct Condenser {
    cap: usize,
    skip: &'static [&'static str],
    out: Vec<u8>,
    mode: Copying,
    escaped: bool,
    /// Bytes of the current string kept so far, and dropped so far.
    kept: usize,
    dropped: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copying {
    Plain,
    Text,
    /// Right after a string, which is a key if a colon follows.
    AfterText,
    /// Inside a value that is left out.
    Skipping {
        depth: u64,
        in_string: bool,
        begun: bool,
    },
}

impl Condenser {
    /// Leaves out the values of the keys in `skip`, wherever they are.
    pub(super) fn new(cap: usize, skip: &'static [&'static str]) -> Condenser {
        Condenser { cap, skip, out: Vec::new(), mode: Copying::Plain, escaped: false, kept: 0, dropped: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    pub(super) fn feed(&mut self, block: &[u8]) {
        let mut at = 0;
        while let Some(rest) = block.get(at..).filter(|r| !r.is_empty()) {
            at += match self.mode {
                Copying::Plain => {
                    let n = memchr::memchr(b'"', rest).map_or(rest.len(), |n| n + 1);
                    self.out.extend_from_slice(rest.get(..n).unwrap_or(rest));
                    if rest.get(n - 1) == Some(&b'"') {
                        self.mode = Copying::Text;
                        (self.kept, self.dropped) = (0, 0);
                    }
                    n
                }
                Copying::AfterText => {
                    let byte = rest.first().copied().unwrap_or(b' ');
                    self.mode = match byte {
                        b':' if self.ends_with_skipped_key() => {
                            Copying::Skipping { depth: 0, in_string: false, begun: false }
                        }
                        b if b.is_ascii_whitespace() => Copying::AfterText,
                        _ => Copying::Plain,
                    };
                    // A quote is left for the plain mode to open the string.
                    let taken = usize::from(byte != b'"');
                    self.out.extend_from_slice(rest.get(..taken).unwrap_or_default());
                    taken
                }
                Copying::Text if self.escaped => {
                    self.text(rest.get(..1).unwrap_or(rest));
                    self.escaped = false;
                    1
                }
                Copying::Text => match memchr::memchr2(b'"', b'\\', rest) {
                    None => {
                        self.text(rest);
                        rest.len()
                    }
                    Some(n) => {
                        self.text(rest.get(..n).unwrap_or_default());
                        if rest.get(n) == Some(&b'\\') {
                            self.text(b"\\");
                            self.escaped = true;
                        } else {
                            self.end_string();
                        }
                        n + 1
                    }
                },
                Copying::Skipping { depth, in_string, begun } => self.skip(rest, depth, in_string, begun),
            };
        }
    }

    /// The string that just ended, white space after it aside, is one of the keys to skip.
    fn ends_with_skipped_key(&self) -> bool {
        let text = self.out.trim_ascii_end();
        self.skip.iter().any(|key| {
            text.strip_suffix(b"\"")
                .and_then(|t| t.strip_suffix(key.as_bytes()))
                .is_some_and(|t| t.ends_with(b"\"") && !t.ends_with(b"\\\""))
        })
    }

    /// Bytes of a left-out value that were passed over.
    fn skip(&mut self, rest: &[u8], depth: u64, in_string: bool, begun: bool) -> usize {
        let stay = |depth, in_string| Copying::Skipping { depth, in_string, begun: true };
        if in_string {
            if self.escaped {
                self.escaped = false;
                return 1;
            }
            return match memchr::memchr2(b'"', b'\\', rest) {
                None => rest.len(),
                Some(n) => {
                    if rest.get(n) == Some(&b'\\') {
                        self.escaped = true;
                    } else if depth == 0 {
                        self.end_skip();
                    } else {
                        self.mode = stay(depth, false);
                    }
                    n + 1
                }
            };
        }
        let marks = |b: &u8| STRUCTURE[usize::from(*b)] || (depth == 0 && *b == b',');
        let n = rest.iter().position(marks);
        let passed = rest.get(..n.unwrap_or(rest.len())).unwrap_or_default();
        let begun = begun || passed.iter().any(|b| !b.is_ascii_whitespace());
        let Some(n) = n else {
            self.mode = Copying::Skipping { depth, in_string, begun };
            return rest.len();
        };
        match rest.get(n) {
            Some(b'"') => self.mode = stay(depth, true),
            Some(b'{' | b'[') => self.mode = stay(depth + 1, false),
            // The end of what holds the value: a number or word ended.
            Some(b'}' | b']' | b',') if depth == 0 => {
                if begun {
                    self.end_skip();
                } else {
                    self.mode = Copying::Plain;
                }
                return n;
            }
            _ if depth == 1 => self.end_skip(),
            _ => self.mode = stay(depth - 1, false),
        }
        n + 1
    }

    fn end_skip(&mut self) {
        self.out.extend_from_slice(b"null");
        self.mode = Copying::Plain;
    }

    fn text(&mut self, bytes: &[u8]) {
        let room = if self.dropped > 0 { 0 } else { self.cap.saturating_sub(self.kept).min(bytes.len()) };
        self.out.extend_from_slice(bytes.get(..room).unwrap_or_default());
        self.kept += room;
        self.dropped += (bytes.len() - room) as u64;
    }

    fn end_string(&mut self) {
        self.mode = Copying::AfterText;
        if self.dropped > 0 {
            // The cut may lie inside an escape (`\u` and four digits, `\` and one) or inside a
            // character of several bytes; what is left of either goes, too.
            let start = self.out.len() - self.kept.min(self.out.len());
            let string = self.out.get(start..).unwrap_or_default();
            let whole = whole_prefix(string);
            self.dropped += (string.len() - whole) as u64;
            self.out.truncate(start + whole);
            self.out.extend_from_slice(format!("… {} more bytes", self.dropped).as_bytes());
        }
        self.out.push(b'"');
    }
}

/// Length of the longest beginning of a string's inside that ends neither in an escape nor in a
/// character.
fn whole_prefix(string: &[u8]) -> usize {
    let mut len = string.len();
    // An escape is at most 6 bytes, a pair of surrogates 12.
    let tail = len.saturating_sub(12);
    let mut at = tail;
    while let Some(n) = string.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)).map(|n| at + n) {
        let before = string.get(..n).unwrap_or_default().iter().rev().take_while(|b| **b == b'\\').count();
        if before % 2 == 1 {
            // The second half of `\\`.
            at = n + 1;
            continue;
        }
        let (long, high) = match string.get(n + 1) {
            Some(b'u') => {
                let digits = string.get(n + 2..n + 6).and_then(|d| std::str::from_utf8(d).ok());
                let unit = digits.and_then(|d| u16::from_str_radix(d, 16).ok());
                (6, unit.is_some_and(|u| (0xd800..0xdc00).contains(&u)))
            }
            _ => (2, false),
        };
        // Of a pair both halves must be there.
        if n + if high { 12 } else { long } > len {
            len = n;
            break;
        }
        at = n + if high { 12 } else { long };
    }
    let kept = string.get(..len).unwrap_or(string);
    let from = kept.len().saturating_sub(4);
    match kept.get(from..).map(|end| end.iter().rposition(|b| *b & 0xc0 != 0x80)) {
        Some(Some(lead)) => {
            let first = kept.get(from + lead).copied().unwrap_or(0);
            let wanted = match first {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xff => 4,
                _ => 1,
            };
            if from + lead + wanted > kept.len() { from + lead } else { kept.len() }
        }
        _ => kept.len(),
    }
}
