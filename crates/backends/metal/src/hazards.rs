//! Order of launches: some have to wait for those before.

use std::ops::Range;

/// Ranges that are kept since the last barrier. Beyond it there is a barrier: it costs next to
/// nothing after so many launches, and the lists stay short.
const MOST: usize = 256;

/// The addresses that launches of one encoder use since its last barrier.
///
/// Addresses are the host's, so that memory is the same through whatever buffers.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    reads: Vec<Range<usize>>,
    writes: Vec<Range<usize>>,
}

/// Access of a launch to a range of addresses.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub(crate) addresses: Range<usize>,
    pub(crate) is_written: bool,
}

fn overlap(ranges: &[Range<usize>], with: &Range<usize>) -> bool {
    let shares = |range: &Range<usize>| range.start.max(with.start) < range.end.min(with.end);
    ranges.iter().any(shares)
}

impl Hazards {
    /// Notes a launch: does it need a barrier before it? It does if, since the last barrier, its
    /// operands were written, or its results were read or written.
    pub(crate) fn needs_barrier(&mut self, launch: &[Use]) -> bool {
        let waits = |u: &Use| {
            overlap(&self.writes, &u.addresses)
                || u.is_written && overlap(&self.reads, &u.addresses)
        };
        let kept = self.reads.len() + self.writes.len();
        let needed = kept + launch.len() > MOST && kept > 0 || launch.iter().any(waits);
        if needed {
            self.reads.clear();
            self.writes.clear();
        }
        for Use {
            addresses,
            is_written,
        } in launch
        {
            let list = match is_written {
                true => &mut self.writes,
                false => &mut self.reads,
            };
            // The same weights, or the same activation, are read again and again.
            if !list.contains(addresses) {
                list.push(addresses.clone());
            }
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(addresses: Range<usize>) -> Use {
        Use {
            addresses,
            is_written: false,
        }
    }

    fn write(addresses: Range<usize>) -> Use {
        Use {
            addresses,
            is_written: true,
        }
    }

    #[test]
    fn independent_launches_overlap() {
        let mut hazards = Hazards::default();
        assert!(!hazards.needs_barrier(&[read(0..10), write(10..20)]));
        // The same is read, neighbours are written.
        assert!(!hazards.needs_barrier(&[read(0..10), write(20..30)]));
        assert!(!hazards.needs_barrier(&[read(5..10), write(30..31)]));
        assert!(!hazards.needs_barrier(&[]));
    }

    #[test]
    fn a_launch_waits_for_what_it_depends_on() {
        for (first, second) in [
            (write(0..10), read(9..12)),
            (write(5..6), read(0..100)),
            (read(0..10), write(9..10)),
            (write(0..10), write(0..1)),
        ] {
            let mut hazards = Hazards::default();
            assert!(!hazards.needs_barrier(&[first]));
            assert!(hazards.needs_barrier(&[second]));
        }
    }

    #[test]
    fn a_barrier_ends_what_was_before_it() {
        let mut hazards = Hazards::default();
        assert!(!hazards.needs_barrier(&[write(0..10)]));
        assert!(hazards.needs_barrier(&[read(0..10), write(10..20)]));
        // Writes before that barrier are complete; a write after it is not.
        assert!(!hazards.needs_barrier(&[read(0..10)]));
        assert!(hazards.needs_barrier(&[read(10..20)]));
    }

    #[test]
    fn a_launch_is_no_hazard_to_itself() {
        let mut hazards = Hazards::default();
        assert!(!hazards.needs_barrier(&[read(0..10), write(0..10)]));
        assert!(hazards.needs_barrier(&[read(0..10), write(0..10)]));
    }

    #[test]
    fn empty_ranges_are_no_hazards() {
        let mut hazards = Hazards::default();
        assert!(!hazards.needs_barrier(&[write(5..5), write(0..10)]));
        assert!(!hazards.needs_barrier(&[read(5..5), write(20..20)]));
    }

    #[test]
    fn lists_stay_short() {
        let mut hazards = Hazards::default();
        let barriers = (0..1000)
            .filter(|i| hazards.needs_barrier(&[write(10 * i..10 * i + 10)]))
            .count();
        assert_eq!(barriers, 1000 / MOST);
        assert!(hazards.writes.len() <= MOST);
        // One launch alone may use as many.
        let many: Vec<Use> = (0..2 * MOST).map(|i| read(i..i + 1)).collect();
        assert!(!Hazards::default().needs_barrier(&many));
    }
}
