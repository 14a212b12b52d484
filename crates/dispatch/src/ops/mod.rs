//! PyTorch's functions as calls of RusTorch, by families.
//!
//! A line of a family's table is a function: PyTorch's name of it, PyTorch's parameters, and the
//! call that a user would write. An argument that the call has no place for is named by
//! [`Call::only`](crate::Call::only), with the only value that it may have.

use crate::call::{CallError, Called};
use crate::function::Function;

macro_rules! families {
    ($($family:ident),*) => {
        $(mod $family;)*
        const FAMILIES: &[&[Function]] = &[$($family::TABLE),*];
    };
}

families!(
    aten,
    elementwise,
    reduce,
    shape,
    index,
    creation,
    linalg,
    fft,
    images,
    losses,
    masked,
    nn,
    random,
    special,
    statistics
);

/// Arguments that modules have, too.
pub(crate) mod options {
    pub use super::images::{
        averaged, conv_options, conv_transpose_options, fractional, largest, sizes, stride,
    };
    pub use super::losses::{lengths, reduction};
}

/// How many similar names an error lists.
const SIMILAR: usize = 3;

/// All functions, family by family.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    FAMILIES.iter().copied().flatten()
}

/// The function of this name, with `torch.` before it or without; `None` if there is none.
pub fn find(name: &str) -> Option<&'static Function> {
    let name = bare(name);
    functions().find(|function| bare(function.name()) == name)
}

/// The function of this name, with `torch.` before it or without.
///
/// # Errors
/// Fails if there is no such function. The message lists similar names.
pub fn function(name: &str) -> Called<&'static Function> {
    let unknown = || {
        let similar = similar(bare(name)).join(", ");
        let text = format!(
            "there is no function {:?}; similar names are {similar}",
            bare(name)
        );
        CallError::Missing(text)
    };
    find(name).ok_or_else(unknown)
}

fn bare(name: &str) -> &str {
    name.strip_prefix("torch.").unwrap_or(name)
}

/// The names that the fewest changes lead to.
fn similar(name: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = functions().map(Function::name).collect();
    names.sort_by_key(|known| changes(known, name));
    names.truncate(SIMILAR);
    names
}

/// How many letters have to be put in, taken out or replaced to get from one word to the other.
fn changes(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use rustorch_ir::DType;
    use rustorch_tensor::Tensor;
    use std::collections::HashSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_function_is_there_once() {
        let mut names = HashSet::new();
        for function in functions() {
            let (name, family) = (function.name(), function.family());
            assert!(names.insert(name), "{name} in {family}");
            assert!(
                find(name).is_some_and(|found| found.name() == name),
                "{name}"
            );
        }
    }

    /// `docs/core-aten.md` names each operator once, the function that is called for it, and where
    /// that is checked.
    #[test]
    fn core_operators_are_called_where_the_table_says() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
        let table = read("../../docs/core-aten.md");
        let rows: Vec<Vec<&str>> = (table.lines())
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.split('`').skip(1).step_by(2).collect())
            .collect();
        let names: HashSet<&str> = rows.iter().map(|row| row[0]).collect();
        assert_eq!((rows.len(), names.len()), (164, 164));
        for row in &rows {
            let [name, function, place] = row[..] else {
                panic!("{row:?}")
            };
            let method = function.rsplit("::").next().unwrap();
            let text = match (find(place), place.strip_suffix(".rs")) {
                (Some(found), _) => read(&format!("src/ops/{}.rs", found.family())),
                (None, Some(_)) => read(&format!("../tensor/tests/api/{place}")),
                (None, None) => panic!("{name}: no function {place} in the registry"),
            };
            let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            assert!(
                words.any(|word| word == method),
                "{name}: {place} has no {method}"
            );
        }
    }

    fn error(name: &str, positional: Vec<Value>, keywords: &[(&str, Value)]) -> String {
        let keywords = keywords.iter();
        let keywords = keywords.map(|(name, value)| ((*name).to_owned(), value.clone()));
        let called = function(name).and_then(|f| f.call(positional, keywords.collect()));
        called.err().unwrap().to_string()
    }

    #[test]
    fn errors_name_the_function_the_argument_and_the_parameters() {
        let x = || vec![Value::from(Tensor::scalar(1.0, DType::F32).unwrap())];
        let rest = "; its parameters are (input, dim, dtype=None)";
        let softmax = "torch.softmax";
        for (positional, keywords, what) in [
            (vec![], vec![], "a call without input"),
            (x(), vec![], "a call without dim"),
            (x(), vec![("axis", Value::Int(0))], "a call without dim"),
            (
                x(),
                vec![("dim", Value::Int(0)), ("keep", Value::Bool(true))],
                "argument keep=true",
            ),
            (
                x(),
                vec![("dim", "x".into())],
                "dim='x', only a whole number",
            ),
            (
                vec![Value::Int(1), Value::Int(0)],
                vec![],
                "input=1, only a tensor",
            ),
        ] {
            let expected = format!("softmax does not take {what}{rest}");
            assert_eq!(error(softmax, positional, &keywords), expected);
        }
        let unknown = error("torch.linalg.solv", vec![], &[]);
        let expected = "there is no function \"linalg.solv\"; similar names are linalg.solve, ";
        assert!(unknown.starts_with(expected), "{unknown}");
        let refused = error(softmax, x(), &[("dim", Value::Int(7))]);
        assert!(refused.contains("dim"), "{refused}");
    }

    #[test]
    fn changes_count_letters() {
        let all = ["", "sum", "summ", "sun", "mus"].map(|word| changes(word, "sum"));
        assert_eq!(all, [3, 0, 1, 1, 2]);
    }
}
