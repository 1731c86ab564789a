//! The part of the player that lets time go on.

use std::time::Duration;

use super::{AT_ONCE, Player, SPEEDS, Target, micros};

impl Player {
    /// True while time goes on.
    pub fn is_playing(&self) -> bool {
        self.playing
    }

    /// Starts playing; at the end, from the start.
    pub fn play(&mut self) {
        let at_end = self.index.complete() && self.goal == self.events() && self.at >= self.index.last_time();
        if at_end && !self.following {
            self.seek(Target::Time(Duration::ZERO));
        }
        self.playing = true;
        self.clock = None;
    }

    /// Stops the clock where it is.
    pub fn pause(&mut self) {
        self.playing = false;
    }

    /// Plays or pauses.
    pub fn toggle(&mut self) {
        if self.playing { self.pause() } else { self.play() }
    }

    /// Speed, 1 is the recording's own.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// Sets the speed, clamped to 0.25 to 16.
    pub fn set_speed(&mut self, speed: f64) {
        if speed.is_finite() {
            self.speed = speed.clamp(0.25, 16.0);
        }
    }

    /// The next higher of [`SPEEDS`].
    pub fn faster(&mut self) {
        self.speed = SPEEDS.into_iter().find(|s| *s > self.speed).unwrap_or(self.speed);
    }

    /// The next lower of [`SPEEDS`].
    pub fn slower(&mut self) {
        self.speed = SPEEDS.into_iter().rev().find(|s| *s < self.speed).unwrap_or(self.speed);
    }

    /// Lets time go on to `now`, a time on any clock that never goes back. The first tick after
    /// [`Player::play`] only takes the time. True when position or screen changed.
    pub fn tick(&mut self, now: Duration) -> bool {
        let before = (self.at, self.applied, self.playing);
        let passed = now.saturating_sub(self.clock.unwrap_or(now));
        self.clock = Some(now);
        if self.playing && self.pending.is_none() {
            let step = micros(passed) as f64 * self.speed;
            let to = self.timeline.playback(self.at).saturating_add(step as u64);
            let last = self.index.last_time();
            self.at = self.timeline.recorded(to).clamp(self.at.min(last), last);
            self.goal = self.goal.max(self.index.count_at(self.at));
            if self.index.complete() && self.at >= last && !self.following {
                self.goal = self.events();
                self.playing = false;
            }
        }
        self.feed_at_once(AT_ONCE);
        before != (self.at, self.applied, self.playing)
    }

    /// How long until the next event is due at the present speed; None when paused or at the end.
    pub fn next_due(&self) -> Option<Duration> {
        if !self.playing {
            return None;
        }
        let next = self.index.entries().get(self.goal)?;
        let wait = self.timeline.playback(next.time).saturating_sub(self.timeline.playback(self.at));
        Some(Duration::from_micros((wait as f64 / self.speed).ceil() as u64))
    }
}
