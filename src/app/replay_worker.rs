//! The thread that plays casts: it owns the player, reads the file and sends pictures.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

mod files;
mod wishes;

use self::files::{find_casts, open_file, open_player, runs, trajectory_beside};
use self::wishes::Awaited;
use super::inbox::{Asker, Inbox, Put, Wish as _, inbox};
use super::replay::{Picture, Reply, Request, Source};
use crate::cast::{self, Player, Screen, SearchStep, Target, Work, episodes};
use crate::harbor::trajectory::{Source as StepSource, StepPlace, TrajectoryIndex};
use crate::job::{Stamp, text};

/// Time between two pictures.
const PICTURE: Duration = Duration::from_millis(33);
/// Work between two looks at the requests.
const SLICE: Duration = Duration::from_millis(12);
/// How often a recording is looked at for growth, while it is shown.
const GROWTH: Duration = Duration::from_millis(500);
/// The same for the terminal of a running trial that is followed: as live as it gets.
const LIVE: Duration = Duration::from_millis(40);
/// Time between two pictures in a pane, and between two looks at its recording.
const CALM: Duration = Duration::from_millis(100);
/// Behind the end for so long, a pane shows the end as its last output alone shows it.
const BEHIND: Duration = Duration::from_millis(250);
/// Bytes of a trajectory indexed between two looks at the requests.
const EPISODE_SLICE: u64 = 4 << 20;
/// Bytes searched between two looks at the requests.
const SEARCH_SLICE: u64 = 8 << 20;

/// Talks to the thread.
#[derive(Debug)]
pub struct Handle {
    requests: Asker<Request>,
}

impl Handle {
    /// Asks for something; never waits. A thread that ended (it never should) is said in the log.
    pub fn ask(&self, request: Request) {
        match self.requests.put(request) {
            Put::Taken => {}
            Put::Crowded => tracing::warn!("the player does not keep up: a wish was given up"),
            Put::Gone => tracing::error!("the player has ended"),
        }
    }
}

/// Starts the thread; `reply` takes its answers and returns false when nobody listens any more.
pub fn spawn(reply: impl FnMut(Reply) -> bool + Send + 'static) -> Handle {
    let (requests, inbox) = inbox();
    let started = thread::Builder::new().name("replay".into()).spawn(move || run(&inbox, reply));
    if let Err(error) = started {
        tracing::error!(%error, "no thread for the player");
    }
    Handle { requests }
}

fn run(inbox: &Inbox<Request>, mut reply: impl FnMut(Reply) -> bool) {
    let mut session: Option<Session> = None;
    let mut awaited: Option<Awaited> = None;
    let born = Instant::now();
    let mut shown: Option<Instant> = None;
    let mut dirty = false;
    loop {
        let wait = session.as_ref().and_then(|s| s.wait(dirty, shown));
        let wait = wait.or(awaited.as_ref().map(|a| GROWTH.saturating_sub(a.looked.elapsed())));
        let Some(requests) = inbox.take(wait) else { return };
        let mut looks = awaited.as_ref().is_some_and(|a| a.looked.elapsed() >= GROWTH);
        for request in requests {
            if !request.may_go() {
                awaited = None;
                looks = false;
            }
            match request {
                Request::Close => session = None,
                Request::Pane { serial, dir, episode } => {
                    session = None;
                    awaited = Some(Awaited { serial, dir, episode, looked: born });
                    looks = true;
                }
                // Of two recordings that are not there yet the wish is the newer one's.
                Request::At(n) if session.is_none() => {
                    if let Some(pane) = &mut awaited {
                        pane.episode = Some(n);
                    }
                }
                Request::End if session.is_none() => {
                    if let Some(pane) = &mut awaited {
                        pane.episode = None;
                    }
                }
                Request::Open(source) => match Session::open(source, None) {
                    Ok(opened) => {
                        session = Some(opened);
                        shown = None;
                    }
                    Err(why) => {
                        session = None;
                        if !reply(Reply::Refused(why)) {
                            return;
                        }
                    }
                },
                other => {
                    if let Some(s) = &mut session
                        && let Err(why) = s.command(other)
                    {
                        s.note = Some(why);
                    }
                }
            }
            dirty = true;
        }
        if looks && let Some(pane) = awaited.take() {
            let (serial, first) = (pane.serial, pane.looked == born);
            match pane.look() {
                Ok(opened) => {
                    session = Some(opened);
                    (shown, dirty) = (None, true);
                }
                Err((again, why)) => {
                    awaited = again;
                    // Once, and when there is no hope any more.
                    if (first || awaited.is_none()) && !reply(Reply::Pane { serial, what: Err(why) }) {
                        return;
                    }
                }
            }
        }
        let Some(s) = &mut session else {
            dirty = false;
            continue;
        };
        dirty |= s.advance(born.elapsed());
        if dirty && shown.is_none_or(|at| at.elapsed() >= s.pace()) {
            s.look_ahead();
            let picture = Arc::new(s.picture());
            let answer = match s.pane {
                Some(serial) => Reply::Pane { serial, what: Ok(picture) },
                None => Reply::Picture(picture),
            };
            if !reply(answer) {
                return;
            }
            shown = Some(Instant::now());
            dirty = false;
        }
    }
}

/// One opened trial dir or file.
struct Session {
    /// For a pane of the view with this serial; None: for the replay view.
    pane: Option<u64>,
    /// Since when the screen is not the end that is wanted.
    behind: Option<Instant>,
    dir: Option<PathBuf>,
    casts: Vec<String>,
    at: usize,
    player: Player,
    /// What the end most likely looks like, until the exact screen is there.
    preview: Option<Screen>,
    /// The trajectory being indexed for the times of its episodes.
    trajectory: Option<TrajectoryIndex>,
    stamps: Vec<Option<Stamp>>,
    offsets: Option<Vec<Option<Duration>>>,
    offsets_for: Duration,
    working: bool,
    searching: bool,
    found: Option<Duration>,
    searched: Option<String>,
    looked: Instant,
    note: Option<String>,
    wanted_episode: Option<usize>,
    wanted_moment: Option<Option<Stamp>>,
    /// The end is what is wanted.
    to_end: bool,
}

impl Session {
    fn open(source: Source, pane: Option<u64>) -> Result<Session, String> {
        let meta = std::fs::metadata(&source.path).map_err(|e| format!("{}: {e}", source.path.display()))?;
        let (dir, casts) = if meta.is_dir() {
            let casts = find_casts(&source.path)?;
            (Some(source.path.clone()), casts)
        } else {
            (None, vec![source.path.display().to_string()])
        };
        // A pane shows the end: of several steps the last.
        let last = casts.iter().rposition(|name| name.starts_with("steps/"));
        let at = match casts.first() {
            Some(first) if pane.is_some() && !first.starts_with("agent/") => last.unwrap_or(0),
            _ => 0,
        };
        let Some(first) = casts.get(at).cloned() else {
            return Err(format!(
                "{}: no recording in agent/ or steps/*/agent/: Harbor 0.26 copies it out only after the agent ended \
                 (live with --ek auto_mounting=true), and agents without a terminal make none",
                source.path.display()
            ));
        };
        let player = open_player(dir.as_deref(), &first)?;
        let mut session = Session {
            pane,
            behind: None,
            dir,
            casts,
            at,
            player,
            preview: None,
            trajectory: None,
            stamps: Vec::new(),
            offsets: None,
            offsets_for: Duration::MAX,
            working: true,
            searching: false,
            found: None,
            searched: None,
            looked: Instant::now(),
            note: None,
            to_end: source.episode.is_none(),
            wanted_episode: source.episode,
            wanted_moment: source.moment,
        };
        session.opened();
        Ok(session)
    }

    /// After a recording was opened: its episodes, then play.
    fn opened(&mut self) {
        self.stamps = Vec::new();
        self.look_for_episodes();
        self.offsets_for = Duration::MAX;
        self.working = true;
        self.found = None;
        match (self.wanted_episode, self.wanted_moment) {
            // What runs is looked at as it is now.
            (None, None) if self.runs() => self.player.follow(true),
            (None, None) if self.pane.is_some() => {
                self.player.pause();
                self.player.seek(Target::Percent(100.0));
            }
            (None, None) => self.player.play(),
            _ => self.player.pause(),
        }
    }

    fn look_for_episodes(&mut self) {
        self.trajectory = match (&self.dir, self.casts.get(self.at)) {
            (Some(dir), Some(cast)) => trajectory_beside(dir, cast),
            _ => None,
        };
    }

    /// Reads a slice of the trajectory; the episodes are known when it is through.
    fn index_episodes(&mut self) {
        let Some(index) = &mut self.trajectory else { return };
        let through = index.build_slice(EPISODE_SLICE).unwrap_or(true);
        if !through {
            return;
        }
        // A torn trajectory of a running trial still tells the episodes that it holds.
        let of_agent = |s: &&StepPlace| s.source == StepSource::Agent && !s.is_copied_context;
        let stamps: Vec<Option<Stamp>> = index.steps().iter().filter(of_agent).map(|s| s.timestamp).collect();
        if stamps.len() >= self.stamps.len() {
            self.stamps = stamps;
        }
        self.trajectory = None;
        self.offsets_for = Duration::MAX;
    }

    fn wait(&self, dirty: bool, shown: Option<Instant>) -> Option<Duration> {
        let until_picture = shown.map_or(Duration::ZERO, |at| self.pace().saturating_sub(at.elapsed()));
        if self.working || self.searching || self.trajectory.is_some() {
            // A pane is no reason to keep a processor busy: a third of it, at most.
            return Some(if self.pane.is_some() && shown.is_some() { 2 * SLICE } else { Duration::ZERO });
        }
        if dirty {
            return Some(until_picture);
        }
        if self.player.is_playing() {
            let due = self.player.next_due().unwrap_or(PICTURE);
            // The scrubber moves on through silences, but not 30 times a second.
            return Some(due.clamp(until_picture.max(Duration::from_millis(5)), Duration::from_millis(250)));
        }
        Some(self.growth())
    }

    /// Time between two pictures.
    fn pace(&self) -> Duration {
        if self.pane.is_some() { CALM } else { PICTURE }
    }

    /// In a pane: the end from its last output, while the exact screen does not keep up with it.
    fn look_ahead(&mut self) {
        if self.pane.is_none() || !self.to_end {
            return;
        }
        if !self.player.is_seeking() && self.player.progress().indexed {
            (self.behind, self.preview) = (None, None);
        } else if self.behind.get_or_insert_with(Instant::now).elapsed() > BEHIND || self.player.position().is_zero() {
            self.preview = self.player.glimpse_end();
        }
    }

    fn growth(&self) -> Duration {
        if self.pane.is_some() && self.runs() {
            return CALM;
        }
        if self.player.is_following() && self.runs() { LIVE } else { GROWTH }
    }

    /// Whether this is a trial that has no end yet.
    fn runs(&self) -> bool {
        self.dir.as_deref().is_some_and(runs)
    }

    /// Lets time go on, works and looks for growth; true when the picture changed.
    fn advance(&mut self, now: Duration) -> bool {
        let mut changed = self.player.tick(now);
        if self.working {
            let until = Instant::now() + SLICE;
            self.working = self.player.work_while(|| Instant::now() < until) == Work::More;
            changed = true;
        }
        if self.trajectory.is_some() {
            self.index_episodes();
            changed = true;
        }
        self.find_offsets();
        if self.player.progress().indexed
            && self.trajectory.is_none()
            && let Some(n) = self.wanted_episode.take()
        {
            let to = self.offsets.as_ref().and_then(|o| o.get(n).copied().flatten());
            match to {
                Some(to) => self.player.seek(Target::Time(to)),
                None => self.note = Some(self.no_episodes()),
            }
            self.working = true;
        }
        if self.player.progress().indexed
            && let Some(moment) = self.wanted_moment.take()
        {
            self.go_to_moment(moment);
        }
        if self.searching {
            match self.player.search_work(SEARCH_SLICE) {
                SearchStep::More { .. } => {}
                SearchStep::Found(hit) => {
                    self.searching = false;
                    self.found = Some(hit.time);
                    self.note =
                        Some(format!("found at {}: {}", crate::job::time::clock(hit.time.as_secs_f64()), hit.line));
                    self.player.pause();
                    self.player.seek(Target::Event(hit.event));
                    self.working = true;
                }
                SearchStep::NotFound => {
                    self.searching = false;
                    self.note = Some("no further match in this direction".to_string());
                }
            }
            changed = true;
        }
        if !self.working && !self.searching && self.looked.elapsed() >= self.growth() {
            self.looked = Instant::now();
            changed |= self.look_for_growth();
        }
        changed
    }

    fn look_for_growth(&mut self) -> bool {
        let Some(name) = self.casts.get(self.at) else { return false };
        let reopened: Option<Box<dyn cast::Source>> =
            open_file(self.dir.as_deref(), name).ok().map(|f| Box::new(f) as Box<dyn cast::Source>);
        match self.player.refresh(reopened) {
            cast::Change::Same => false,
            cast::Change::Unreadable => {
                let why = self.player.fault().map(|e| e.to_string());
                let new = why != self.note;
                self.note = why;
                new
            }
            cast::Change::Grew | cast::Change::Restarted => {
                self.working = true;
                self.offsets_for = Duration::MAX;
                self.look_for_episodes();
                true
            }
        }
    }

    fn find_offsets(&mut self) {
        let length = self.player.duration();
        if self.offsets_for != length {
            self.offsets_for = length;
            self.offsets = episodes::offsets(self.player.header(), &self.stamps, length);
        }
    }

    /// Where the recording was at a moment; its last activity where it had ended by then, or where its
    /// beginning is not known.
    fn go_to_moment(&mut self, moment: Option<Stamp>) {
        let length = self.player.duration();
        let at = moment.and_then(|at| {
            let offset = episodes::offsets(self.player.header(), &[Some(at)], length)?;
            offset.first().copied().flatten()
        });
        self.player.seek(match at {
            Some(at) if at < length => Target::Time(at),
            _ => Target::Percent(100.0),
        });
        self.working = true;
    }

    fn no_episodes(&self) -> String {
        match (self.stamps.is_empty(), self.player.header().timestamp) {
            (true, _) => "no episode index: no trajectory beside this recording".to_string(),
            (false, None) => "no episode index: the recording does not say when it began".to_string(),
            _ => "no episode index: this episode has no time stamp".to_string(),
        }
    }

    fn command(&mut self, request: Request) -> Result<(), String> {
        self.note = None;
        self.working = true;
        self.preview = None;
        // Where it was to open is older than the operator's word.
        if !matches!(request, Request::Toggle | Request::Faster(_) | Request::IdleCap) {
            (self.wanted_episode, self.wanted_moment) = (None, None);
        }
        match request {
            Request::Open(_) | Request::Pane { .. } | Request::Close => {}
            Request::Toggle => self.player.toggle(),
            Request::Skip(seconds) => self.player.skip(seconds),
            Request::Step(by) => self.player.step(by),
            Request::Percent(p) => self.player.seek(Target::Percent(p)),
            Request::At(n) => {
                self.player.pause();
                (self.wanted_episode, self.to_end) = (Some(n), false);
                // Of a running trial there are more than there were.
                if self.trajectory.is_none() && self.stamps.get(n).is_none() {
                    self.look_for_episodes();
                }
            }
            Request::End if self.pane.is_some() && !self.runs() => {
                self.to_end = true;
                self.player.seek(Target::Percent(100.0));
            }
            Request::End => {
                self.to_end = true;
                self.player.follow(true);
                self.preview = self.player.is_seeking().then(|| self.player.preview_end()).flatten();
            }
            Request::Faster(true) => self.player.faster(),
            Request::Faster(false) => self.player.slower(),
            Request::IdleCap => self.player.next_idle_cap(),
            Request::Episode(forward) => return self.episode(forward),
            Request::Search(text) => {
                self.player.search_start(&text, true);
                self.searched = Some(text);
                self.searching = true;
            }
            Request::Match(forward) => match &self.searched {
                Some(text) => {
                    self.player.search_start(text, forward);
                    self.searching = true;
                }
                None => return Err("nothing searched yet: / searches".to_string()),
            },
            Request::NextCast => {
                if self.casts.len() < 2 {
                    return Err("this is the only recording".to_string());
                }
                let next = (self.at + 1) % self.casts.len();
                let name = self.casts.get(next).cloned().unwrap_or_default();
                self.player = open_player(self.dir.as_deref(), &name)?;
                self.at = next;
                self.opened();
            }
        }
        Ok(())
    }

    fn episode(&mut self, forward: bool) -> Result<(), String> {
        self.find_offsets();
        let at = self.player.position();
        let Some(offsets) = &self.offsets else {
            let moved = if forward { self.player.next_marker() } else { self.player.previous_marker() };
            return if moved { Ok(()) } else { Err(format!("{}; no marker in this direction", self.no_episodes())) };
        };
        let slack = Duration::from_millis(50);
        let known = offsets.iter().flatten().copied();
        let to =
            if forward { known.filter(|o| *o > at + slack).min() } else { known.filter(|o| *o + slack < at).max() };
        match to {
            Some(to) => {
                self.player.seek(Target::Time(to));
                Ok(())
            }
            None if forward => Err("this is the last episode".to_string()),
            None => {
                self.player.seek(Target::Time(Duration::ZERO));
                Ok(())
            }
        }
    }

    fn picture(&self) -> Picture {
        let p = &self.player;
        let preview = self.preview.as_ref().filter(|_| p.is_seeking() || self.pane.is_some());
        let screen = preview.unwrap_or_else(|| p.screen());
        let length = p.playback_duration();
        let share = |recorded: Duration| {
            let total = length.as_secs_f64();
            if total <= 0.0 { 0.0 } else { (p.playback_of(recorded).as_secs_f64() / total).clamp(0.0, 1.0) }
        };
        let progress = p.progress();
        let name = self.casts.get(self.at).cloned().unwrap_or_default();
        Picture {
            cast: (self.at + 1, self.casts.len(), text::clean(&name).into_owned()),
            rows: screen.rows().map(|row| row.collect()).collect(),
            size: screen.size(),
            cursor: screen.cursor(),
            at: p.playback_position(),
            length,
            recorded: p.position(),
            playing: p.is_playing(),
            speed: p.speed(),
            idle_cap: p.idle_cap(),
            following: p.is_following(),
            indexing: (!progress.indexed).then(|| progress.bytes as f64 / progress.of.max(1) as f64),
            seeking: p.is_seeking(),
            preview: preview.is_some(),
            markers: p
                .markers()
                .iter()
                .filter_map(|m| p.event_info(m.event).map(|(at, _)| (share(at), m.label.clone())))
                .collect(),
            episodes: self.offsets.as_ref().map(|list| list.iter().map(|o| o.map(share)).collect()),
            episode: self.offsets.as_ref().and_then(|o| episodes::episode_at(o, p.position())),
            found: self.found.map(share),
            oddities: odd_words(p),
            note: if self.searching { Some("searching".to_string()) } else { self.note.clone() },
        }
    }
}

fn odd_words(player: &Player) -> Option<String> {
    let odd = player.oddities();
    let mut words = Vec::new();
    if odd.bad_lines > 0 {
        let first = odd.first_bad.first().map(|b| format!(", first in line {}", b.line)).unwrap_or_default();
        words.push(format!("{} bad lines skipped{first}", odd.bad_lines));
    }
    if odd.backward_steps > 0 {
        words.push(format!("clock went back {} times", odd.backward_steps));
    }
    if odd.odd_times > 0 {
        words.push(format!("{} odd times", odd.odd_times));
    }
    if odd.truncated {
        words.push("last line cut".to_string());
    }
    if odd.too_many_events {
        words.push("the rest is left out: too many events".to_string());
    }
    (!words.is_empty()).then(|| words.join(", "))
}
