//! The server as its clients meet it: over a socket, with the bundled model.

mod adapters;
mod anthropic;
mod chat;
mod client;
mod completions;
mod embeddings;
mod guarding;
mod llama;
mod native;
mod ollama;
mod options;
mod page;
mod responses;
mod slots;
