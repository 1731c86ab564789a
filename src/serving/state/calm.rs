//! What can be said of servers of which nothing is wrong.

use crate::serving::State;

/// What can be said where no diagnosis is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calm {
    /// Servers are known, and all is well.
    Well,
    /// One of them stands badly, and has not for long enough to be told.
    TooSoon,
    /// Nothing is known of any of them now.
    Unknown,
}

impl Calm {
    /// Of how replicas stand.
    pub fn of(states: impl Iterator<Item = State>) -> Calm {
        states.fold(Calm::Unknown, |calm, state| match state {
            State::Saturated | State::Retracting | State::Hung | State::Dead => Calm::TooSoon,
            State::Unknown => calm,
            _ if calm == Calm::Unknown => Calm::Well,
            _ => calm,
        })
    }

    /// As a sentence's end.
    pub fn words(self) -> &'static str {
        match self {
            Calm::Well => "nothing is wrong now",
            Calm::TooSoon => "nothing has held for long enough to be told",
            Calm::Unknown => "nothing is known now",
        }
    }
}
