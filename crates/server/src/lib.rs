//! Language models over HTTP: the interfaces of OpenAI, Anthropic, ollama and llama-server.
//!
//! Each part uses the parts below it:
//!
//! ```text
//! batch         requests of a file, without a socket
//! server        listens, and ends cleanly
//! connections   how many there are, and how long heads take
//! routes        paths, and the outermost layer: guard, errors' forms
//! openai/ …     an interface a file: its requests as structures, its responses, its streams
//! embeddings    vectors and scores, in all interfaces' forms
//! speak         streams: parts of answers become events
//! conversation  messages and tools become prompts
//! prompts       texts and token ids become prompts
//! form          samplers, grammars, limits, as all interfaces have them
//! answers       the engine's tokens become text, reasoning, calls
//! page          the page's files, and the devices that it shows
//! times         times and progress, as llama-server tells them
//! model         a model, with what answers need of it
//! guard/ …      hosts, origins, keys, sizes
//! fields        bodies as JSON, with errors that name the field
//! error         errors, in each interface's form
//! ```
//!
//! A request that this server cannot fulfil is refused. A field is never ignored silently: hints, which
//! change no answer, are listed in the response's header `x-rustorch-ignored`.

mod answers;
mod anthropic;
mod batch;
mod connections;
mod conversation;
mod embeddings;
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
mod prompts;
mod respond;
mod routes;
mod server;
mod slot_fields;
mod speak;
mod times;

pub use batch::{BatchRequest, Batches};
pub use connections::Limits;
pub use guard::Keys;
pub use guard::origins::Origins;
pub use model::{RequestDefaults, ServedAdapters, ServedModel};
pub use routes::Features;
pub use server::{ServeError, ServeOptions, Server, Stopper};
