//! ONNX's operators as calls of RusTorch, by families.

mod attention;
mod layers;
mod lines;
mod lists;
mod older;
mod places;
mod plain;
mod quantized;
mod recurrent;
mod sequences;
mod vision;

use rustorch_dispatch::{Call, Called, Function, missing};

use crate::data::dtype;

/// The last version of ONNX's operators that is known.
pub(crate) const LATEST: i64 = 27;

const FAMILIES: &[&[Function]] = &[
    attention::TABLE,
    layers::TABLE,
    lines::TABLE,
    lists::TABLE,
    places::TABLE,
    plain::TABLE,
    quantized::TABLE,
    recurrent::TABLE,
    sequences::TABLE,
    vision::TABLE,
];

/// The operator of this name, in a version of ONNX's operators.
pub(crate) fn find(name: &str, opset: i64) -> Option<&'static Function> {
    let is_older = |function: &&Function| {
        let bound = function.name().split_once('<');
        bound.is_some_and(|(older, before)| {
            older == name && before.parse().is_ok_and(|b: i64| opset < b)
        })
    };
    let older = older::TABLE.iter().find(is_older);
    let mut all = FAMILIES.iter().copied().flatten();
    older.or_else(|| all.find(|function| function.name() == name))
}

/// The dimension that `axis` is, which may count from the end.
fn counted(axis: isize, rank: usize) -> Called<usize> {
    let from_start = match axis < 0 {
        true => rank.checked_add_signed(axis),
        false => usize::try_from(axis).ok(),
    };
    match from_start.filter(|&axis| axis < rank) {
        Some(axis) => Ok(axis),
        None => missing(format!("axis {axis} of {rank} dimensions")),
    }
}

/// The dimension that the argument `axis` is.
fn axis(c: &Call, rank: usize) -> Called<usize> {
    counted(c.int("axis")?, rank)
}

/// The dimension before which the argument `axis` splits a shape; it may be behind the last.
fn split(c: &Call, rank: usize) -> Called<usize> {
    match c.int::<isize>("axis")? {
        last if last == rank as isize => Ok(rank),
        axis => counted(axis, rank),
    }
}

/// The dimensions that the argument `axes` lists; without it all.
fn axes(c: &Call, rank: usize) -> Called<Vec<usize>> {
    match c.has("axes") {
        true => (c.ints("axes")?.into_iter())
            .map(|axis| counted(axis, rank))
            .collect(),
        false => Ok((0..rank).collect()),
    }
}

/// A whole number above 0.
fn positive(c: &Call, name: &str) -> Called<usize> {
    match c.int(name)? {
        0 => missing(format!("{name}=0")),
        number => Ok(number),
    }
}

/// `N` whole numbers above 0, or one that stands for all.
fn positives<const N: usize>(c: &Call, name: &str) -> Called<[usize; N]> {
    let numbers = c.each::<N>(name)?;
    match numbers.contains(&0) {
        true => missing(format!("{name}={numbers:?}")),
        false => Ok(numbers),
    }
}

/// One whole number above 0 for each dimension, or one that stands for all.
fn positive_each(c: &Call, name: &str, count: usize) -> Called<Vec<usize>> {
    let given: Vec<usize> = c.ints(name)?;
    let all = match given[..] {
        [one] => vec![one; count],
        _ => given,
    };
    match all.len() == count && !all.contains(&0) {
        true => Ok(all),
        false => missing(format!("{name}={all:?} for {count} dimensions")),
    }
}
