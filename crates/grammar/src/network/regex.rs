//! Regular expressions as networks.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

use super::{Builder, Network, NodeId};
use crate::GrammarError;

/// Nodes and edges that a regular expression may have.
const MAX_SIZE: usize = 2_000_000;

/// The texts that match `pattern` as a whole, in the syntax of Rust's `regex`.
///
/// # Errors
/// [`GrammarError::Refused`] for a regular expression that is invalid, is too large, matches
/// nothing, or looks around inside a text.
pub(crate) fn of_regex(pattern: &str) -> Result<Network, GrammarError> {
    if pattern.is_empty() {
        return Err(refused("it is empty".to_owned()));
    }
    let hir = regex_syntax::parse(pattern).map_err(|error| refused(reason(&error)))?;
    let mut builder = Builder::default();
    let rule = builder.new_rule();
    let (start, end) = builder.begin(rule);
    let whole = Sides {
        first: true,
        last: true,
    };
    add(&mut builder, &hir, start, end, whole)?;
    let network = builder.finish();
    network.ok_or_else(|| refused("no text matches it".to_owned()))
}

/// Is a part at the beginning of a text, and at its end?
#[derive(Clone, Copy)]
struct Sides {
    first: bool,
    last: bool,
}

/// Adds the texts that match `hir` between two nodes.
fn add(
    builder: &mut Builder,
    hir: &Hir,
    from: NodeId,
    to: NodeId,
    sides: Sides,
) -> Result<(), GrammarError> {
    if builder.size() > MAX_SIZE {
        return Err(refused("it is too large; repeat less".to_owned()));
    }
    match hir.kind() {
        HirKind::Empty => builder.empty(from, to),
        HirKind::Literal(literal) => builder.bytes(from, &literal.0, to),
        HirKind::Class(Class::Unicode(class)) => builder.character(from, class, to),
        HirKind::Class(Class::Bytes(class)) => {
            for range in class.ranges() {
                builder.byte(from, range.start(), range.end(), to);
            }
        }
        HirKind::Look(look) if is_there(*look, sides) => builder.empty(from, to),
        HirKind::Look(_) => {
            let reason = "it uses look-around, or ^ or $ inside the text; remove these, since \
                the pattern matches the whole text";
            return Err(refused(reason.to_owned()));
        }
        HirKind::Repetition(repetition) => {
            let times = (repetition.min, repetition.max);
            let inside = Sides {
                first: false,
                last: false,
            };
            if repetition.max.unwrap_or(repetition.min) as usize > MAX_SIZE {
                return Err(refused("it is too large; repeat less".to_owned()));
            }
            let pairs = builder.repetition(from, times, to);
            let mut sizes = vec![builder.sizes()];
            for &(from, to) in &pairs {
                add(builder, &repetition.sub, from, to, inside)?;
                sizes.push(builder.sizes());
            }
            if repetition.sub.properties().minimum_len() > Some(0) {
                builder.mark_twins(times, &pairs, &sizes);
            }
        }
        HirKind::Capture(capture) => add(builder, &capture.sub, from, to, sides)?,
        HirKind::Concat(parts) => sequence(builder, parts, from, to, sides)?,
        HirKind::Alternation(parts) => {
            for part in parts {
                add(builder, part, from, to, sides)?;
            }
        }
    }
    Ok(())
}

/// Adds parts that come one after the other.
fn sequence(
    builder: &mut Builder,
    parts: &[Hir],
    mut from: NodeId,
    to: NodeId,
    sides: Sides,
) -> Result<(), GrammarError> {
    let is = |part: &Hir, look| *part.kind() == HirKind::Look(look);
    let first = parts.iter().position(|part| !is(part, Look::Start));
    let last = parts.iter().rposition(|part| !is(part, Look::End));
    for (i, part) in parts.iter().enumerate() {
        let next = if i + 1 < parts.len() {
            builder.node()
        } else {
            to
        };
        let inner = Sides {
            first: sides.first && first.is_none_or(|first| i <= first),
            last: sides.last && last.is_none_or(|last| i >= last),
        };
        add(builder, part, from, next, inner)?;
        from = next;
    }
    Ok(())
}

/// Does the assertion hold at a side of the text?
fn is_there(look: Look, sides: Sides) -> bool {
    match look {
        Look::Start => sides.first,
        Look::End => sides.last,
        _ => false,
    }
}

/// The problem, and its place.
fn reason(error: &regex_syntax::Error) -> String {
    let (what, span) = match error {
        regex_syntax::Error::Parse(error) => (error.kind().to_string(), error.span()),
        regex_syntax::Error::Translate(error) => (error.kind().to_string(), error.span()),
        other => return GrammarError::reason(other),
    };
    let (line, column) = (span.start.line, span.start.column);
    format!("{what}, at line {line}, column {column}")
}

fn refused(reason: String) -> GrammarError {
    GrammarError::Refused {
        what: "regular expression",
        reason,
    }
}
