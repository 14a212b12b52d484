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
    elementwise,
    reduce,
    shape,
    index,
    creation,
    linalg,
    fft,
    images,
    losses,
    nn,
    random,
    special,
    statistics
);

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

    #[test]
    fn every_function_is_there_once() {
        let mut names = HashSet::new();
        for (family, table) in FAMILIES {
            for entry in *table {
                assert!(names.insert(entry.name), "{} in {family}", entry.name);
            }
        }
    }
}
