//! The model, as an agent asks it: chat completions of a server that speaks OpenAI's protocol.
//!
//! | part | what it does |
//! |---|---|
//! | [`chat`] | what is asked and answered: messages, sampling, usage, why an answer ended |
//! | [`error`] | what can go wrong, by kind and never by its words |
//! | [`endpoint`] | where the model is served; it can be moved, and closed, while trials run |
//!
//! A call is one question; whoever asks again does it through the one layer of retries. The key is read
//! from the environment variable that the configuration names, when the client is made, and goes nowhere
//! but into the header of a request.

pub mod chat;
pub mod endpoint;
pub mod error;
