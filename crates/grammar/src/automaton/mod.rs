//! Texts on their way through a network.
//!
//! A text's state is a set of items of Earley's algorithm ("An efficient context-free parsing algorithm", 1970). It is
//! made byte by byte. An item has the state in which its rule began, in place of the position, and equal
//! states are one: so there is an automaton, made as far as texts get, that needs each step to be found once
//! ([`states`]). Masks are made of parts that depend on a rule alone, whatever called it, and are found once,
//! too ([`masks`]).

mod masks;
mod states;
mod text;

pub(crate) use text::Text;
