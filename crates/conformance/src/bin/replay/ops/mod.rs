//! PyTorch's functions as calls of RusTorch, by families.
//!
//! A line of a family's table is a function: PyTorch's name of it, PyTorch's parameters, and the
//! call that a user would write. An argument that the call has no place for is named by
//! [`Call::only`](crate::call::Call::only), with the only value that it may have.

use crate::call::Entry;

macro_rules! families {
    ($($family:ident),*) => {
        $(mod $family;)*
        const FAMILIES: &[(&str, &[Entry])] = &[$((stringify!($family), $family::TABLE)),*];
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
pub(crate) use images::{
    averaged, conv_options, conv_transpose_options, fractional, largest, sizes, stride,
};
pub(crate) use losses::{lengths, reduction};

/// The function of this name, with its variant or without, and its family.
pub(crate) fn find(full_name: &str, name: &str) -> Option<(&'static str, &'static Entry)> {
    let by_name = |wanted: &str| {
        let mut all = (FAMILIES.iter()).flat_map(|(family, table)| {
            let with_family = |entry| (*family, entry);
            table.iter().map(with_family)
        });
        all.find(|(_, entry)| entry.name == wanted)
    };
    by_name(full_name).or_else(|| by_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_function_is_there_once() {
        let mut names = HashSet::new();
        for (family, table) in FAMILIES {
            for entry in *table {
                assert!(names.insert(entry.name), "{} in {family}", entry.name);
            }
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
            let text = match (find(place, place), place.strip_suffix(".rs")) {
                (Some((family, _)), _) => read(&format!("src/bin/replay/ops/{family}.rs")),
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
}
