//! Offsets of intermediate values: bytes of a few buffers, shared by values that are not alive at the same
//! time.

use rustorch_ir::order::order as sorted_by;

/// Alignment of values: a cache line, which is best for vector loads.
const ALIGNMENT: usize = 64;

/// Number of rounds in which each order of placement is tried and mended, before the smallest
/// result is taken.
const MENDING_ROUNDS: usize = 8;

/// A value's need of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lifetime {
    /// Number of bytes.
    pub(crate) bytes: usize,
    /// The step that writes it.
    pub(crate) first: usize,
    /// The last step that reads it.
    pub(crate) last: usize,
}

impl Lifetime {
    fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Places for values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Arrangement {
    /// For each value, the buffer and the offset in it.
    pub(crate) places: Vec<(usize, usize)>,
    /// Bytes of each buffer.
    pub(crate) buffers: Vec<usize>,
}

impl Arrangement {
    fn bytes(&self) -> usize {
        self.buffers.iter().sum()
    }
}

/// The sum of values that are alive at each step.
fn alive(values: &[Lifetime]) -> Vec<usize> {
    let steps = values.iter().map(|value| value.last + 1).max().unwrap_or(0);
    let mut changes = vec![(0, 0); steps + 1];
    for value in values {
        changes[value.first].0 += aligned(value.bytes);
        changes[value.last + 1].1 += aligned(value.bytes);
    }
    let mut sum = 0;
    let sums = changes[..steps].iter().map(|(born, dead)| {
        sum = sum + born - dead;
        sum
    });
    sums.collect()
}

/// Places `values` in buffers of at most `largest` bytes; a larger value has one of its own.
///
/// Values are placed one after another at the lowest place that is free while they live, as
/// [Pisarchyk and Lee](https://arxiv.org/abs/2001.03288) do it. The order decides how well that
/// goes: several are tried, and mended by moving the value that ends up highest to the front.
pub(crate) fn arrange(values: &[Lifetime], largest: usize) -> Arrangement {
    if values.is_empty() {
        return Arrangement::default();
    }
    let alive = alive(values);
    // No arrangement is smaller than what is alive at one time.
    let bound = alive.iter().max().map_or(0, |&bytes| bytes);
    let enough = bound + bound / 20;
    let length = |i: usize| values[i].last - values[i].first;
    let crowd = |i: usize| alive[values[i].first..=values[i].last].iter().max();
    let crowd = |i: usize| crowd(i).copied().unwrap_or(0);
    let keys: [&dyn Fn(usize) -> [usize; 3]; 4] = [
        &|i| [values[i].bytes, length(i), 0],
        &|i| [length(i), values[i].bytes, 0],
        &|i| [values[i].bytes.saturating_mul(1 + length(i)), 0, 0],
        &|i| [crowd(i), length(i), values[i].bytes],
    ];
    let mut orders: [Vec<usize>; 5] = std::array::from_fn(|_| (0..values.len()).collect());
    for (order, key) in orders[1..].iter_mut().zip(keys) {
        let keys: Vec<[usize; 3]> = (0..values.len()).map(key).collect();
        *order = sorted_by(values.len(), &|a, b| keys[b].cmp(&keys[a]));
    }
    let mut best: Option<Arrangement> = None;
    for _ in 0..MENDING_ROUNDS {
        for order in &mut orders {
            let made = place(values, order, largest);
            let end = |i: usize| (made.places[i].0, made.places[i].1 + values[i].bytes);
            if let Some(highest) = (0..order.len()).max_by_key(|&at| end(order[at])) {
                order[..=highest].rotate_right(1);
            }
            if best.as_ref().is_none_or(|best| made.bytes() < best.bytes()) {
                best = Some(made);
            }
            if let Some(best) = best.take_if(|best| best.bytes() <= enough) {
                return best;
            }
        }
    }
    best.unwrap_or_default()
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Places values in this order.
fn place(values: &[Lifetime], order: &[usize], largest: usize) -> Arrangement {
    let mut placed: Vec<Vec<usize>> = Vec::new();
    let mut out = Arrangement {
        places: vec![(0, 0); values.len()],
        buffers: Vec::new(),
    };
    for &i in order {
        let bytes = aligned(values[i].bytes);
        let mut found = None;
        for (buffer, others) in placed.iter().enumerate() {
            let start = lowest_gap(values, &out.places, others, i);
            if start + bytes <= largest.max(out.buffers[buffer]) {
                found = Some((buffer, start));
                break;
            }
        }
        let (buffer, start) = found.unwrap_or_else(|| {
            placed.push(Vec::new());
            out.buffers.push(0);
            (placed.len() - 1, 0)
        });
        out.places[i] = (buffer, start);
        out.buffers[buffer] = out.buffers[buffer].max(start + bytes);
        // Sorted by their places, for the next search.
        let at = placed[buffer].partition_point(|&other| out.places[other].1 <= start);
        placed[buffer].insert(at, i);
    }
    out
}

/// The lowest offset where value `i` overlaps none of `others` that live when it does.
fn lowest_gap(values: &[Lifetime], places: &[(usize, usize)], others: &[usize], i: usize) -> usize {
    let bytes = aligned(values[i].bytes);
    let mut start = 0;
    for &other in others {
        if !values[i].meets(&values[other]) {
            continue;
        }
        let from = places[other].1;
        if from >= start + bytes {
            break;
        }
        start = start.max(from + aligned(values[other].bytes));
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime((bytes, first, last): (usize, usize, usize)) -> Lifetime {
        Lifetime { bytes, first, last }
    }

    fn check(values: &[Lifetime], largest: usize) -> Arrangement {
        let made = arrange(values, largest);
        for (i, a) in values.iter().enumerate() {
            let (buffer, start) = made.places[i];
            assert!(start + a.bytes <= made.buffers[buffer]);
            for (j, b) in values[..i].iter().enumerate() {
                let (other, at) = made.places[j];
                let apart = start + a.bytes <= at || at + b.bytes <= start;
                assert!(buffer != other || !a.meets(b) || apart, "{a:?} {b:?}");
            }
        }
        made
    }

    fn near_the_bound(values: &[Lifetime]) {
        let made = check(values, usize::MAX);
        let bound = alive(values).into_iter().max().unwrap();
        assert!(
            made.bytes() as f64 <= 1.1 * bound as f64,
            "{} of {bound} bytes",
            made.bytes()
        );
    }

    /// Numbers without a pattern.
    fn random(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed;
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        }
    }

    #[test]
    fn layers_of_networks_come_near_the_bound() {
        // Residual blocks: a long value over several short ones of different sizes.
        let mut transformer = Vec::new();
        for layer in 0..24 {
            let t = 9 * layer;
            let sizes = [
                (768, 0, 8),
                (768, 0, 1),
                (2304, 1, 3),
                (1200, 3, 4),
                (768, 4, 5),
                (768, 5, 8),
                (768, 5, 6),
                (3072, 6, 7),
                (3072, 7, 8),
            ];
            transformer.extend(sizes.map(|(b, f, l)| lifetime((64 * b, t + f, t + l))));
        }
        near_the_bound(&transformer);
        let mut pyramid = Vec::new();
        for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
            for _ in 0..blocks {
                let t = pyramid.len();
                let wide = 802_816 >> stage;
                let sizes = [
                    (wide, 0, 3),
                    (wide / 4, 0, 1),
                    (wide / 4, 1, 2),
                    (wide, 2, 3),
                ];
                pyramid.extend(sizes.map(|(b, f, l)| lifetime((b, t + f, t + l))));
            }
        }
        near_the_bound(&pyramid);
    }

    #[test]
    fn values_without_a_pattern_come_near_the_bound() {
        for seed in 0..50 {
            let mut random = random(seed);
            let values: Vec<Lifetime> = (0..200)
                .map(|first| lifetime((64 << random(6), first, first + 1 + random(12))))
                .collect();
            near_the_bound(&values);
        }
    }

    #[test]
    fn what_a_buffer_cannot_hold_gets_another() {
        let values: Vec<Lifetime> = (0..10).map(|i| lifetime((1000, i, 20))).collect();
        let made = check(&values, 4096);
        assert_eq!(made.buffers, [4096, 4096, 2048]);
        // One that is larger than any buffer is the device's to refuse.
        let made = check(&[lifetime((5000, 0, 1))], 4096);
        assert_eq!(made.buffers, [5056]);
        assert_eq!(arrange(&[], 4096), Arrangement::default());
    }
}
