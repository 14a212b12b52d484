//! The server as its clients meet it: over a socket, with the bundled model.

mod anthropic;
mod chat;
mod client;
mod completions;
mod embeddings;
mod guarding;
mod llama;
mod native;
mod ollama;
mod page;
mod responses;
