//! Names that are called by numbers.

use foldhash::fast::RandomState;
use indexmap::IndexSet;

/// Names, with their numbers from 0 on in the order in which they came.
#[derive(Default)]
pub(crate) struct Names(IndexSet<String, RandomState>);

impl Names {
    /// The number of a name, and whether it is new.
    pub(crate) fn number(&mut self, name: &str) -> (usize, bool) {
        match self.0.get_index_of(name) {
            Some(number) => (number, false),
            None => self.0.insert_full(name.to_owned()),
        }
    }
}
