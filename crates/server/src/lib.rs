//! Language models over HTTP: the interfaces of OpenAI, Anthropic, ollama and llama-server.
//!
//! Each part uses the parts below it:
//!
//! ```text
//! server        listens, and ends cleanly
//! routes        paths, and the outermost layer: guard, errors' forms
//! openai/ …     an interface a file: its requests as structures, its responses, its streams
//! speak         streams: parts of answers become events
//! conversation  messages and tools become prompts
//! form          samplers, grammars, limits, as all interfaces have them
//! answers       the engine's tokens become text, reasoning, calls
//! page          the page's files, and the devices that it shows
//! model         a model, with what answers need of it
//! guard         hosts, origins, keys, sizes
//! fields        bodies as JSON, with errors that name the field
//! error         errors, in each interface's form
//! ```
//!
//! A request that this server cannot fulfil is refused. A field is never ignored silently: hints, which
//! change no answer, are listed in the response's header `x-rustorch-ignored`.

mod answers;
mod anthropic;
mod conversation;
mod error;
mod fields;
mod form;
mod guard;
mod histogram;
mod interface;
mod llama;
mod metrics;
mod model;
mod ollama;
mod openai;
mod page;
mod respond;
mod routes;
mod server;
mod speak;

pub use guard::Keys;
pub use model::ServedModel;
pub use server::{ServeError, ServeOptions, Server, Stopper};
