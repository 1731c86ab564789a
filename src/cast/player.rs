//! Plays a cast: the clock is an argument, work is done in slices, nothing blocks for long.

use std::time::Duration;

use super::format::{CastError, Depth, Header, Kind, parse_event, parse_size, short};
use super::index::{Index, Marker, Oddities, Reader};
use super::keyframe::Keyframes;
use super::screen::Screen;
use super::search::Search;
use super::source::Source;
use super::timeline::Timeline;

mod clock;
mod growth;

/// The speeds that [`Player::faster`] and [`Player::slower`] go through.
pub const SPEEDS: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];
/// The caps that [`Player::next_idle_cap`] goes through, in seconds; None is off.
pub const IDLE_CAPS: [Option<u64>; 4] = [None, Some(1), Some(2), Some(5)];
/// Cap of silences where the header has no `idle_time_limit`.
pub const DEFAULT_IDLE_CAP: Duration = Duration::from_secs(2);

/// Emulation work that a seek or tick does at once: about 15 ms. The rest is left to [`Player::work`].
const AT_ONCE: u64 = 1 << 20;
/// Work of one step inside [`Player::work_while`]: a few milliseconds.
const STEP: u64 = 256 << 10;
/// Bytes that are indexed in the time of one unit of emulation.
const INDEX_FACTOR: u64 = 8;

/// Where to go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// Time since the start of the recording, silences included.
    Time(Duration),
    /// Time on the scrubber, where silences are cut.
    Playback(Duration),
    /// Per cent of the playback duration, 0 to 100.
    Percent(f64),
    /// Right after the event with this number, from 0.
    Event(usize),
    /// The marker with this number, from 0.
    Marker(usize),
    /// After the last event.
    End,
}

/// Whether there is more for [`Player::work`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// All is read, shown and prepared.
    Idle,
    /// Call again.
    More,
}

/// How far reading and seeking are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file that are indexed.
    pub bytes: u64,
    /// Bytes of the file.
    pub of: u64,
    /// Events known so far.
    pub events: usize,
    /// True when the end of the file was reached.
    pub indexed: bool,
    /// True while the screen is not yet what was asked for.
    pub seeking: bool,
}

/// What [`Player::refresh`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing new.
    Same,
    /// More bytes at the end.
    Grew,
    /// Another file or other content; read anew, the position in time is kept.
    Restarted,
    /// It cannot be read now, see [`Player::fault`]; what is known stays, the next refresh tries again.
    Unreadable,
}

/// A recording being played. See the [module](super) for how to drive it.
pub struct Player {
    source: Box<dyn Source>,
    index: Index,
    timeline: Timeline,
    keys: Keyframes,
    reader: Reader,
    screen: Screen,
    /// Events that the screen has seen.
    applied: usize,
    /// Events that it should have seen.
    goal: usize,
    /// Position in recorded time, microseconds.
    at: u64,
    /// A target that waits for the index.
    pending: Option<Target>,
    /// Prepares keyframes ahead of what was shown: a screen and the events it has seen.
    builder: Option<(Screen, usize)>,
    playing: bool,
    clock: Option<Duration>,
    speed: f64,
    following: bool,
    search: Option<Search>,
    fault: Option<CastError>,
    /// Bytes of the file when it was last looked at.
    size: u64,
    /// The file changed under us and has to be read anew.
    stale: bool,
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let p = self.progress();
        f.debug_struct("Player").field("name", &self.index.name).field("at", &self.at).field("progress", &p).finish()
    }
}

impl Player {
    /// Reads the header. `name` is what errors call the file.
    pub fn open(source: impl Source + 'static, name: &str) -> Result<Player, CastError> {
        Player::open_boxed(Box::new(source), name)
    }

    /// [`Player::open`] for a boxed source.
    pub fn open_boxed(source: Box<dyn Source>, name: &str) -> Result<Player, CastError> {
        let index = Index::open(&*source, name)?;
        let cap =
            index.header.idle_time_limit.map_or(DEFAULT_IDLE_CAP.as_micros() as u64, |s| (s.min(1e9) * 1e6) as u64);
        let mut player = Player {
            source,
            timeline: Timeline::new(Some(cap)),
            keys: Keyframes::new(),
            reader: Reader::default(),
            screen: Screen::new(index.header.cols, index.header.rows),
            index,
            applied: 0,
            goal: 0,
            at: 0,
            pending: Some(Target::Time(Duration::ZERO)),
            builder: None,
            playing: false,
            clock: None,
            speed: 1.0,
            following: false,
            search: None,
            fault: None,
            size: 0,
            stale: false,
        };
        player.size = player.source.len().unwrap_or_default();
        player.indexed();
        Ok(player)
    }

    /// What the header tells.
    pub fn header(&self) -> &Header {
        &self.index.header
    }

    /// The name given when it was opened, safe to show.
    pub fn name(&self) -> &str {
        &self.index.name
    }

    /// What was odd about the file: skipped lines, times that went back, a cut last line.
    pub fn oddities(&self) -> Oddities {
        self.index.oddities()
    }

    /// The last error of reading the file, until a refresh succeeds.
    pub fn fault(&self) -> Option<&CastError> {
        self.fault.as_ref()
    }

    /// The markers, in the order of time (at most [`super::MAX_MARKERS`]).
    pub fn markers(&self) -> &[Marker] {
        self.index.markers()
    }

    /// The screen now.
    pub fn screen(&self) -> &Screen {
        &self.screen
    }

    // ------------------------------------------------------------------ work

    /// Does about `units` of waiting work (a unit is about one emulated character or eight indexed
    /// bytes; a million take some 15 ms): first what the wanted position needs, then the rest of the
    /// index, then keyframes.
    pub fn work(&mut self, units: u64) -> Work {
        let mut left = units.max(1);
        while self.fault.is_none() && left > 0 {
            let used = if self.applied != self.goal {
                self.feed(left)
            } else if !self.index.complete() {
                let used = self.index.slice(&*self.source, left.saturating_mul(INDEX_FACTOR).min(4 << 20));
                let used = self.noted(used).unwrap_or_default() / INDEX_FACTOR;
                self.indexed();
                used
            } else if self.keys.frontier() < self.index.entries().len() {
                self.build(left)
            } else {
                self.builder = None;
                return Work::Idle;
            };
            left = left.saturating_sub(used.max(1));
        }
        if self.fault.is_some() { Work::Idle } else { Work::More }
    }

    /// Works in steps of a few milliseconds as long as `go_on` says so, for instance until a deadline.
    pub fn work_while(&mut self, mut go_on: impl FnMut() -> bool) -> Work {
        while go_on() {
            if self.work(STEP) == Work::Idle {
                return Work::Idle;
            }
        }
        Work::More
    }

    /// Works until all is read, shown and prepared. Takes a second per 60 MB: for tools and tests.
    pub fn work_to_end(&mut self) {
        self.work_while(|| true);
    }

    /// How far reading and seeking are.
    pub fn progress(&self) -> Progress {
        Progress {
            bytes: self.index.read(),
            of: self.size.max(self.index.read()),
            events: self.index.entries().len(),
            indexed: self.index.complete(),
            seeking: self.is_seeking(),
        }
    }

    /// True while the screen is not yet what was asked for.
    pub fn is_seeking(&self) -> bool {
        self.pending.is_some() || self.applied != self.goal
    }

    /// Memory of index, cuts and keyframes in bytes: what grows with the recording.
    pub fn memory(&self) -> usize {
        self.index.memory() + self.timeline.memory() + self.keys.memory()
    }

    /// Number of kept screens.
    pub fn keyframes(&self) -> usize {
        self.keys.len()
    }

    /// After the index went on: takes in the new events, and goes where that was waited for.
    fn indexed(&mut self) {
        self.timeline.extend(self.index.entries(), self.index.settled());
        if let Some(target) = self.pending {
            self.resolve(target);
        } else if self.following && self.index.complete() {
            self.resolve(Target::End);
        }
    }

    fn noted(&mut self, result: std::io::Result<u64>) -> Option<u64> {
        match result {
            Ok(n) => Some(n),
            Err(error) => {
                self.fault = Some(CastError::Io { file: self.index.name.clone(), error });
                None
            }
        }
    }

    /// Brings the screen towards the goal; gives the work done.
    fn feed(&mut self, most: u64) -> u64 {
        let mut used = 0;
        let kept = self.keys.before(self.goal);
        let ahead = kept.is_some_and(|(events, _)| events > self.applied && self.goal - self.applied > 64);
        if self.applied > self.goal || ahead {
            let (cols, rows) = (self.index.header.cols, self.index.header.rows);
            let (events, screen) = kept.map_or((0, Screen::new(cols, rows)), |(n, saved)| (n, Screen::restore(saved)));
            (self.applied, self.screen) = (events, screen);
            used += u64::from(cols) * u64::from(rows) / 2;
        }
        while self.applied < self.goal && used < most {
            match apply(&*self.source, &self.index, &mut self.reader, self.applied, &mut self.screen) {
                Ok(cost) => {
                    self.applied += 1;
                    self.keys.note(self.applied, cost, &self.screen);
                    used += cost;
                }
                Err(error) => {
                    self.noted(Err(error));
                    break;
                }
            }
        }
        used
    }

    /// Prepares keyframes beyond what was shown so far.
    fn build(&mut self, most: u64) -> u64 {
        let kept = self.keys.before(self.keys.frontier());
        let from = kept.map_or(0, |(events, _)| events);
        let (mut screen, mut events) = match self.builder.take() {
            Some((screen, events)) if events >= from && events <= self.keys.frontier() => (screen, events),
            // Where the shown screen made the way itself, it is ahead of all.
            _ => {
                let (cols, rows) = (self.index.header.cols, self.index.header.rows);
                (kept.map_or_else(|| Screen::new(cols, rows), |(_, saved)| Screen::restore(saved)), from)
            }
        };
        let mut used = 0;
        while events < self.index.entries().len() && used < most {
            match apply(&*self.source, &self.index, &mut self.reader, events, &mut screen) {
                Ok(cost) => {
                    events += 1;
                    self.keys.note(events, cost, &screen);
                    used += cost;
                }
                Err(error) => {
                    self.noted(Err(error));
                    break;
                }
            }
        }
        self.builder = Some((screen, events));
        used
    }

    // ------------------------------------------------------------- positions

    /// Position in recorded time, silences included.
    pub fn position(&self) -> Duration {
        Duration::from_micros(self.at)
    }

    /// Position on the scrubber, where silences are cut.
    pub fn playback_position(&self) -> Duration {
        Duration::from_micros(self.timeline.playback(self.at))
    }

    /// Duration of the recording as far as it is known: the time of its last event.
    pub fn duration(&self) -> Duration {
        Duration::from_micros(self.index.last_time())
    }

    /// The same as [`Player::duration`], for callers that follow a growing cast.
    pub fn last_event_time(&self) -> Duration {
        self.duration()
    }

    /// Duration on the scrubber, where silences are cut.
    pub fn playback_duration(&self) -> Duration {
        Duration::from_micros(self.timeline.playback(self.index.last_time()))
    }

    /// Position in per cent of the playback duration; 100 for a recording without duration.
    pub fn percent(&self) -> f64 {
        let all = self.playback_duration().as_secs_f64();
        if all > 0.0 { (self.playback_position().as_secs_f64() / all * 100.0).min(100.0) } else { 100.0 }
    }

    /// Scrubber time of a recorded time, such as a marker's. Never runs backwards.
    pub fn playback_of(&self, recorded: Duration) -> Duration {
        Duration::from_micros(self.timeline.playback(micros(recorded)))
    }

    /// Recorded time of a scrubber time. Never runs backwards.
    pub fn recorded_of(&self, playback: Duration) -> Duration {
        Duration::from_micros(self.timeline.recorded(micros(playback)))
    }

    /// Number of events known.
    pub fn events(&self) -> usize {
        self.index.entries().len()
    }

    /// Number of events that the position has behind it.
    pub fn event(&self) -> usize {
        self.goal
    }

    /// Time and kind of an event. Times never run backwards.
    pub fn event_info(&self, event: usize) -> Option<(Duration, Kind)> {
        self.index.entries().get(event).map(|e| (Duration::from_micros(e.time), e.kind()))
    }

    /// The silences that are cut from the scrubber are longer than this; None when nothing is cut.
    pub fn idle_cap(&self) -> Option<Duration> {
        self.timeline.cap().map(Duration::from_micros)
    }

    /// Cuts silences to `cap`, or none. The position in recorded time stays.
    pub fn set_idle_cap(&mut self, cap: Option<Duration>) {
        self.timeline = Timeline::new(cap.map(micros));
        self.timeline.extend(self.index.entries(), 0);
    }

    /// The next of [`IDLE_CAPS`]; from a cap of the header's own, off.
    pub fn next_idle_cap(&mut self) {
        let now = IDLE_CAPS.iter().position(|c| c.map(Duration::from_secs) == self.idle_cap());
        let next = now.map_or(0, |i| (i + 1) % IDLE_CAPS.len());
        self.set_idle_cap(IDLE_CAPS.get(next).copied().flatten().map(Duration::from_secs));
    }

    /// What the end most likely looks like, from the last output alone: to show while a seek to the
    /// end of a huge recording is still on its way. It lacks what was drawn long before the end.
    /// Reads 256 KiB; None when that tells nothing.
    pub fn preview_end(&self) -> Option<Screen> {
        super::preview::end_of(&*self.source, &self.index.header, super::preview::TAIL).ok().flatten()
    }

    /// The same from less of it, for a screen that is drawn anew many times a second.
    pub fn glimpse_end(&self) -> Option<Screen> {
        super::preview::end_of(&*self.source, &self.index.header, super::preview::SHORT_TAIL).ok().flatten()
    }

    // ------------------------------------------------------------------ seek

    /// Goes to a place. What takes no more than some 15 ms is done at once; otherwise (or when the
    /// place is not indexed yet) [`Player::is_seeking`] is true until [`Player::work`] got there.
    pub fn seek(&mut self, target: Target) {
        if target != Target::End {
            self.following = false;
        }
        self.pending = Some(target);
        self.resolve(target);
        self.feed_at_once(AT_ONCE);
    }

    /// Goes forward or back by seconds of playback time.
    pub fn skip(&mut self, seconds: f64) {
        let by = Duration::try_from_secs_f64(seconds.abs()).unwrap_or(Duration::MAX);
        let now = self.playback_position();
        let to =
            if seconds < 0.0 { now.saturating_sub(by) } else { now.saturating_add(by).min(self.playback_duration()) };
        self.seek(Target::Playback(to));
    }

    /// Steps forward or back by events that show (output and size changes); pauses.
    pub fn step(&mut self, by: isize) {
        self.playing = false;
        let entries = self.index.entries();
        let shows = |i: &usize| entries.get(*i).is_some_and(|e| matches!(e.kind(), Kind::Output | Kind::Resize));
        let n = by.unsigned_abs();
        let to = match by {
            0 => return,
            1.. => (self.goal..entries.len()).filter(shows).take(n).last(),
            // The event before the one that shows now.
            _ => (0..self.goal).rev().filter(shows).nth(n),
        };
        match to {
            Some(event) => self.seek(Target::Event(event)),
            None if by > 0 => self.seek(Target::End),
            None => {
                self.seek(Target::Time(Duration::ZERO));
                self.goal = 0;
                self.feed_at_once(AT_ONCE);
            }
        }
    }

    /// Goes to the next marker; false when there is none.
    pub fn next_marker(&mut self) -> bool {
        let to = self.index.markers().iter().position(|m| m.event >= self.goal && m.time_us > self.at);
        to.inspect(|n| self.seek(Target::Marker(*n))).is_some()
    }

    /// Goes to the marker before the position; false when there is none.
    pub fn previous_marker(&mut self) -> bool {
        let to = self.index.markers().iter().rposition(|m| m.time_us < self.at);
        to.inspect(|n| self.seek(Target::Marker(*n))).is_some()
    }

    /// Sets position and goal for a target, or leaves it pending until more is indexed.
    fn resolve(&mut self, target: Target) {
        let (last, all) = (self.index.last_time(), self.index.entries().len());
        let complete = self.index.complete();
        let (at, goal) = match target {
            Target::Time(t) if complete || micros(t) < last => {
                let at = micros(t).min(last);
                (at, self.index.count_at(at))
            }
            Target::Playback(t) if complete || micros(t) < self.timeline.playback(last) => {
                let at = self.timeline.recorded(micros(t)).min(last);
                (at, self.index.count_at(at))
            }
            Target::Percent(p) if complete => {
                let p = if p.is_nan() { 0.0 } else { p.clamp(0.0, 100.0) };
                let at = self.timeline.recorded((self.timeline.playback(last) as f64 * p / 100.0) as u64).min(last);
                if p >= 100.0 { (last, all) } else { (at, self.index.count_at(at)) }
            }
            Target::Event(n) if n < self.index.settled() || complete => {
                let goal = (n.saturating_add(1)).min(all);
                (goal.checked_sub(1).and_then(|i| self.index.entries().get(i)).map_or(0, |e| e.time), goal)
            }
            Target::Marker(n) if n < self.index.markers().len() || complete => {
                match self.index.markers().get(n).or(self.index.markers().last()) {
                    Some(marker) => (marker.time_us, self.index.count_at(marker.time_us)),
                    None => (self.at, self.goal),
                }
            }
            Target::End if complete => (last, all),
            _ => return,
        };
        (self.at, self.goal, self.pending) = (at, goal, None);
    }

    fn feed_at_once(&mut self, most: u64) {
        if self.fault.is_none() && self.applied != self.goal {
            self.feed(most);
        }
    }
}

/// Lets a screen act on one event; gives the work it took.
fn apply(
    source: &dyn Source,
    index: &Index,
    reader: &mut Reader,
    event: usize,
    screen: &mut Screen,
) -> std::io::Result<u64> {
    let Some(entry) = index.entries().get(event) else { return Ok(1) };
    if !matches!(entry.kind(), Kind::Output | Kind::Resize) {
        return Ok(1);
    }
    let bytes = reader.bytes(source, index, event)?;
    let reading = bytes.len() as u64 / 8 + 1;
    // A line that is no event any more was overwritten in place; the next refresh tells.
    let Ok(raw) = parse_event(bytes, index.header.version, Depth::Full, false) else { return Ok(reading) };
    Ok(reading
        + match raw.kind {
            Kind::Output => screen.feed(&raw.data),
            Kind::Resize => parse_size(&raw.data).map_or(0, |(cols, rows)| screen.resize(cols, rows)),
            _ => 0,
        })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The text of an event, for searches.
pub(crate) fn output_of<'a>(
    source: &dyn Source,
    index: &Index,
    reader: &'a mut Reader,
    event: usize,
) -> std::io::Result<std::borrow::Cow<'a, str>> {
    if index.entries().get(event).is_none_or(|e| e.kind() != Kind::Output) {
        return Ok("".into());
    }
    let bytes = reader.bytes(source, index, event)?;
    Ok(parse_event(bytes, index.header.version, Depth::Full, false).map_or("".into(), |raw| raw.data))
}

/// A line of text around a hit, safe to show.
pub(crate) fn excerpt(line: &str) -> String {
    short(line.trim(), 160)
}
