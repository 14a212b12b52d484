//! The server as its clients meet it: over a socket, with the bundled model.

mod anthropic;
mod chat;
mod client;
mod completions;
mod guarding;
mod native;
mod ollama;
mod page;
mod responses;
