//! The model, as an agent asks it: chat completions of a server that speaks OpenAI's protocol.
//!
//! | part | what it does |
//! |---|---|
//! | [`chat`] | what is asked and answered: messages, sampling, usage, why an answer ended |
//! | [`error`] | what can go wrong, by kind and never by its words |
//! | [`endpoint`] | where the model is served; it can be moved, and closed, while trials run |
//! | [`client`] | one request, in parts or in one piece |
//! | [`options`] | what a client is made from, how long it waits |
//! | [`retry`] | [`Client::ask`]: the one layer that asks again |
//! | [`meter`] | [`Meter`] and [`Watch`]: what calls cost and what is heard of them, also of those given up |
//! | [`limits`] | what the server tells of itself, and one completion to see that it works |
//! | [`key`] | the key, which can not be printed |
//!
//! ```ignore
//! let options = Options { key: Key::from_env("OPENAI_API_KEY"), ..Options::new(&endpoint, "openai/qwen3") };
//! let client = Client::new(options)?;
//! let meter = Meter::default();                           // one for a trial
//! let watch = Watch::new(&meter).telling(|doing| …);      // one for a call
//! let reply = client.ask(&messages, &watch).await?;
//! ```
//!
//! A call is one question; whoever asks again does it through the one layer of retries. The key is read
//! from the environment variable that the configuration names, when the client is made, and goes nowhere
//! but into the header of a request. No limit of time ends an answer that grows, unless the operator sets one.

pub mod chat;
pub mod client;
pub mod endpoint;
pub mod error;
pub mod key;
pub mod limits;
pub mod meter;
pub mod options;
pub mod retry;

mod answer;
mod sse;
mod transport;
mod wording;

pub use client::Client;
pub use key::Key;
pub use limits::{Engine, Probe, Served};
pub use meter::{Meter, Totals, Watch};
pub use options::{Clocks, Options};
pub use retry::Policy;
