//! Sorting that is compiled once, for lists of nodes, devices and dimensions: the standard library's is compiled for each type
//! and each order, 8 kB and more at a time.

use std::cmp::Ordering;

/// Lists up to this length are sorted in place.
const SHORT: usize = 20;

/// Sorts a list by its elements' keys; elements of one key keep their order.
pub fn sort_by_key<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(list, |a, b| key(a).cmp(&key(b)));
}

/// Sorts a list; elements that are equal stay as they are to each other.
pub fn sort_by<T>(list: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    if list.len() <= SHORT {
        for end in 1..list.len() {
            let mut at = end;
            while at > 0 && compare(&list[at], &list[at - 1]) == Ordering::Less {
                list.swap(at, at - 1);
                at -= 1;
            }
        }
        return;
    }
    let mut from = order(list.len(), &|a, b| compare(&list[a], &list[b]));
    // An element may have gone to the place at which an earlier one was found.
    for at in 0..list.len() {
        let mut found = from[at];
        while found < at {
            found = from[found];
        }
        from[at] = found;
        list.swap(at, found);
    }
}

/// The numbers below `count` in the order of `compare`; equal ones keep their order.
pub fn order(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| compare(a, b));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_lists_are_sorted_and_stay_in_order_where_equal() {
        for len in [0, 1, 2, 19, 20, 21, 100, 1000] {
            let mut list: Vec<(usize, usize)> = (0..len).map(|at| (at * 7919 % 13, at)).collect();
            let mut expected = list.clone();
            expected.sort_by_key(|(key, _)| *key);
            sort_by_key(&mut list, |(key, _)| *key);
            assert_eq!(list, expected, "{len}");
            sort_by(&mut list, |a, b| b.1.cmp(&a.1));
            expected.sort_by_key(|&(_, at)| std::cmp::Reverse(at));
            assert_eq!(list, expected, "{len}");
        }
    }
}
