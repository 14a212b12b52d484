//! The facts of launches that are reported together.

use std::sync::Arc;

use crate::Map;

/// Most launches that are kept.
const MOST: usize = 1 << 12;

/// A value for each list of launches that was seen. Steps make the same launches again and again, and hand on the same
/// list of them: by it they are all found at once.
pub(crate) struct PerList<T, V> {
    /// By addresses: a list that is kept here shares its own with no other, and does not change.
    known: Map<usize, (Arc<T>, V)>,
    /// Number of launches in the lists.
    launches: usize,
}

impl<T, V> Default for PerList<T, V> {
    fn default() -> Self {
        Self {
            known: Map::default(),
            launches: 0,
        }
    }
}

fn address<T>(list: &Arc<T>) -> usize {
    Arc::as_ptr(list).addr()
}

impl<T, V> PerList<T, V> {
    /// The value of a list; `None` if it was not seen yet.
    pub(crate) fn get(&mut self, list: &Arc<T>) -> Option<&mut V> {
        self.known.get_mut(&address(list)).map(|(_, value)| value)
    }

    /// Adds a list of `launches` new launches, and forgets the others if they are too many.
    pub(crate) fn insert(&mut self, list: &Arc<T>, launches: usize, value: V) -> &mut V {
        if self.is_full() {
            self.clear();
        }
        self.launches += launches;
        let place = self.known.entry(address(list));
        &mut place.insert_entry((list.clone(), value)).into_mut().1
    }

    /// Returns whether there are too many to keep when another one comes.
    pub(crate) fn is_full(&self) -> bool {
        self.launches.max(self.known.len()) >= MOST
    }

    /// The lists and their values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Arc<T>, V)> {
        self.known.values()
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_has_a_value_until_there_are_too_many() {
        // Two of them are alike, and not the same.
        let all = ["a", "b", "b"].map(Arc::new);
        let mut counts = PerList::default();
        for at in [0, 1, 2, 0, 2, 1, 1, 0] {
            match counts.get(&all[at]) {
                Some(count) => *count += 1,
                None => {
                    counts.insert(&all[at], MOST / 4, 1);
                }
            }
        }
        let mut seen: Vec<(&str, i32)> = counts.iter().map(|(list, n)| (**list, *n)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [("a", 3), ("b", 2), ("b", 3)]);
        assert!(!counts.is_full());
        counts.insert(&Arc::new("c"), MOST / 4, 1);
        assert!(counts.is_full());
        counts.clear();
        assert_eq!(counts.get(&all[2]), None);
        assert!(!counts.is_full());
    }
}
