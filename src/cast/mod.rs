//! Recordings of terminals (asciicast v1, v2, v3): read, index, play.
//!
//! | file | what it does |
//! |---|---|
//! | `format` | header and events; sources of the format named there |
//! | `source` | bytes by position, from a file or from memory |
//! | `index` | where each event is and when: 16 bytes per event, no text |
//! | `timeline` | recorded time and playback time, with silences cut |
//! | `screen` | the emulated screen, and the one of a live terminal with its history; the only place that knows `avt` |
//! | `keyframe` | kept screens, so that a seek emulates a short stretch only |
//! | `preview` | the end of a huge recording at once, not yet exact |
//! | `search` | search in the output text |
//! | [`episodes`] | episodes of the agent on the recording's time line |
//! | [`writer`] | a recording as it is made |
//! | `player` | all of it together |
//!
//! # How to drive a player
//! Opening reads the header only. Everything that takes longer waits for [`Player::work`], which a
//! user interface calls in slices; the clock is an argument. Nothing of a recording can reach the
//! terminal other than as a [`Cell`].
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use pilothouse::cast::{Player, Target, Work};
//!
//! let bytes = b"{\"version\": 2, \"width\": 20, \"height\": 2}\n[0.5, \"o\", \"hello\"]\n[9, \"m\", \"here\"]\n";
//! let mut player = Player::open(Arc::<[u8]>::from(&bytes[..]), "demo.cast")?; // or a std::fs::File
//!
//! // A worker or the idle loop: index, then keyframes. `progress()` feeds a progress bar.
//! while player.work(500_000) == Work::More {}
//! assert_eq!(player.duration(), Duration::from_secs(9));
//! assert_eq!(player.playback_duration(), Duration::from_millis(2500)); // silences are cut to 2 s
//!
//! player.play();
//! player.tick(Duration::from_millis(100)); // the first tick takes the time
//! player.tick(Duration::from_millis(700)); // 0.6 s later
//! assert_eq!(player.screen().text(), ["hello", ""]);
//! let due = player.next_due(); // when to wake up for the next event
//! assert_eq!(due, Some(Duration::from_millis(1900)));
//!
//! player.seek(Target::Percent(0.0));
//! let hit = player.search("HELLO".to_lowercase().as_str(), true).map(|hit| hit.event);
//! player.seek(Target::Event(hit.unwrap_or_default()));
//! for row in player.screen().rows() {
//!     for cell in row {
//!         let _ = (cell.ch, cell.width, cell.style.fg, cell.style.bold);
//!     }
//! }
//! # Ok::<(), pilothouse::cast::CastError>(())
//! ```
//!
//! A player can live in a worker; [`Screen::frame`] is a copy for views that are drawn elsewhere.
//! Reading happens in `open`, `work`, `seek` and its relatives, `tick`, `refresh` and `search`, never
//! in the questions (`screen`, `progress`, `position`, …).
//!
//! # A growing recording
//! [`Player::follow`] stays at the end; [`Player::refresh`] looks for more after a file event. Hand it
//! the file opened anew where the path may name another one by now: a recorder that adds markers
//! replaces the file by renaming, and the player then starts over and keeps its place in time.
//!
//! # Rules for files that are not as they should be
//! A bad header refuses the file ([`CastError`] names file and line). A bad line is skipped, counted
//! and listed ([`Player::oddities`]); a cut last line is normal. Time never runs backwards. Sizes are
//! clamped, and so is the work that one event can ask for.

pub mod episodes;
mod format;
mod index;
mod keyframe;
mod player;
mod preview;
mod screen;
mod search;
mod source;
mod timeline;
pub mod writer;

pub use format::{CastError, Header, Kind, MAX_COLS, MAX_GAP_US, MAX_LINE, MAX_ROWS, MAX_V1, Version};
pub use index::{BadLine, MAX_EVENTS, MAX_MARKERS, Marker, Oddities};
pub use player::{Change, DEFAULT_IDLE_CAP, IDLE_CAPS, Player, Progress, SPEEDS, Target, Work};
pub use screen::{Cell, Color, Frame, LiveScreen, Saved, Screen, Style};
pub use search::{Hit, SearchStep};
pub use source::Source;
