//! Texts on their way through a network.
//!
//! A text's state is a set of items as Earley's algorithm has them ("An efficient context-free
//! parsing algorithm", 1970), made byte by byte. In place of the position at which a rule began, an
//! item has the state in which it began, and equal states are one: so there is an automaton, made
//! as far as texts get, that needs each step to be found once ([`states`]). Masks are made of parts
//! that depend on a rule alone, whatever called it, and are found once, too ([`masks`]).

mod masks;
mod states;
mod text;

pub(crate) use text::Text;
