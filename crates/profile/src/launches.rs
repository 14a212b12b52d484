//! What is known of each launch.

use std::sync::Arc;

use rustorch_runtime::LaunchInfo;

use crate::Map;

/// Launches that are told apart, at most.
const MOST: usize = 1 << 12;

/// A value for each launch that was seen. Steps make the same launches in the same order, so the one that came next
/// the last time is tried first, which takes no hash.
pub(crate) struct PerLaunch<V> {
    known: Vec<Known<V>>,
    /// Places in `known` by addresses: a launch that is kept there shares its own with no other.
    places: Map<usize, usize>,
    /// The place of the launch that was asked for last, and of the one that came next then.
    last: usize,
    next: usize,
}

struct Known<V> {
    launch: Arc<LaunchInfo>,
    value: V,
    /// The place of the launch that came next the last time.
    next: usize,
}

impl<V> Default for PerLaunch<V> {
    fn default() -> Self {
        Self {
            known: Vec::new(),
            places: Map::default(),
            last: 0,
            next: 0,
        }
    }
}

impl<V> PerLaunch<V> {
    /// The value of a launch; `None` if it was not seen yet.
    pub(crate) fn get(&mut self, launch: &Arc<LaunchInfo>) -> Option<&mut V> {
        let place = match self.known.get(self.next) {
            Some(known) if Arc::ptr_eq(&known.launch, launch) => self.next,
            _ => self.find(launch)?,
        };
        let known = &mut self.known[place];
        (self.last, self.next) = (place, known.next);
        Some(&mut known.value)
    }

    /// The place of a launch, which did not come next the last time.
    #[cold]
    fn find(&mut self, launch: &Arc<LaunchInfo>) -> Option<usize> {
        let place = *self.places.get(&Arc::as_ptr(launch).addr())?;
        self.known[self.last].next = place;
        Some(place)
    }

    /// Adds a launch that was not seen yet.
    pub(crate) fn insert(&mut self, launch: &Arc<LaunchInfo>, value: V) {
        let place = self.known.len();
        self.places.insert(Arc::as_ptr(launch).addr(), place);
        self.known.push(Known {
            launch: launch.clone(),
            value,
            next: 0,
        });
        self.known[self.last].next = place;
        (self.last, self.next) = (place, 0);
    }

    /// Are there so many that they have to be [forgotten](Self::clear) before another one comes?
    pub(crate) fn is_full(&self) -> bool {
        self.known.len() >= MOST
    }

    /// All launches and their values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&LaunchInfo, &V)> {
        self.known
            .iter()
            .map(|known| (&*known.launch, &known.value))
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use rustorch_runtime::DeviceType;

    use super::*;

    #[test]
    fn each_launch_has_a_value_in_whatever_order_they_come() {
        let launch = |name: &str| {
            Arc::new(LaunchInfo {
                name: name.to_owned(),
                device: DeviceType::Cpu,
                bytes: 0,
                flops: 0,
            })
        };
        // Two of them are alike, and not the same.
        let all = ["a", "b", "b"].map(launch);
        let mut counts = PerLaunch::default();
        for at in [0, 1, 2, 0, 1, 2, 0, 2, 1, 1, 0] {
            match counts.get(&all[at]) {
                Some(count) => *count += 1,
                None => counts.insert(&all[at], 1),
            }
        }
        let seen: Vec<(&str, i32)> = counts.iter().map(|(l, &n)| (&*l.name, n)).collect();
        assert_eq!(seen, [("a", 4), ("b", 4), ("b", 3)]);
        counts.clear();
        assert_eq!(counts.get(&all[2]), None);
        while !counts.is_full() {
            counts.insert(&launch("c"), 0);
        }
        assert_eq!(counts.iter().count(), MOST);
    }
}
