//! The order of work: which request begins next, and in which slot. It knows no device and no clock.

use std::cmp::Reverse;
use std::time::Instant;

use crate::LlmError;

/// A request in the queue.
struct Waiting<T> {
    priority: i32,
    deadline: Option<Instant>,
    job: T,
}

/// Requests that wait, at most so many.
pub(super) struct Scheduler<T> {
    most: usize,
    /// In the order of their submission.
    waiting: Vec<Waiting<T>>,
}

/// A slot that no request has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) slot: usize,
    /// Tokens of the prompt that its cache holds.
    pub(super) shared: usize,
    /// The number of the request that used it last; 0 for none.
    pub(super) last: u64,
}

impl<T> Scheduler<T> {
    /// An empty queue for `most` requests.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            waiting: Vec::new(),
        }
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a request, if there is room for it beside `free` slots that are going to take others.
    ///
    /// # Errors
    /// Fails with [`LlmError::Busy`] if the queue is full.
    pub(super) fn push(
        &mut self,
        priority: i32,
        deadline: Option<Instant>,
        job: T,
        free: usize,
    ) -> Result<(), LlmError> {
        let waiting = self.waiting.len();
        if waiting >= self.most.saturating_add(free) {
            return Err(LlmError::Busy { waiting });
        }
        self.waiting.push(Waiting {
            priority,
            deadline,
            job,
        });
        Ok(())
    }

    /// Takes the request that begins next: the first of those of the highest priority among those that `can_begin`.
    pub(super) fn pop(&mut self, can_begin: impl Fn(&T) -> bool) -> Option<T> {
        let able = self.waiting.iter().enumerate();
        let able = able.filter(|(_, waiting)| can_begin(&waiting.job));
        // Among equals the first is the least.
        let (index, _) = able.min_by_key(|(_, waiting)| Reverse(waiting.priority))?;
        Some(self.waiting.remove(index).job)
    }

    /// Takes the requests that are given up: those whose deadline has passed, and those that `is_wanted` refuses.
    pub(super) fn give_up(
        &mut self,
        now: Instant,
        mut is_wanted: impl FnMut(&T) -> bool,
    ) -> Vec<(T, bool)> {
        let is_late = |waiting: &Waiting<T>| waiting.deadline.is_some_and(|at| at <= now);
        let gone = |waiting: &mut Waiting<T>| is_late(waiting) || !is_wanted(&waiting.job);
        let gone = self.waiting.extract_if(.., gone);
        gone.map(|waiting| {
            let late = is_late(&waiting);
            (waiting.job, late)
        })
        .collect()
    }
}

/// A slot's beginning is worth keeping for a prompt, if it is at least this share of the prompt.
const WORTH: usize = 10;

/// The slot for a prompt of this many tokens: that with the longest common beginning. If none has much of it, the
/// slot that was not used for the longest time.
pub(super) fn choose_slot(free: &[Free], prompt: usize) -> Option<usize> {
    let best = free.iter().max_by_key(|free| (free.shared, free.slot));
    let best = best.filter(|free| free.shared > 0 && free.shared * WORTH >= prompt);
    let oldest = || free.iter().min_by_key(|free| (free.last, free.slot));
    best.or_else(oldest).map(|free| free.slot)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use rustorch_testing::random::Random;

    use super::*;

    /// Each request leaves the queue once, by priority, then in order; none beyond the bound gets in.
    #[test]
    fn random_queues_lose_no_request() {
        let begin = Instant::now();
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let most = random.below(6);
            let mut queue = Scheduler::new(most);
            // The model: priority, deadline and order of all that wait.
            let mut known: BTreeMap<u64, (i32, Option<u64>)> = BTreeMap::new();
            let mut now = 0;
            for job in 0..60_u64 {
                match random.below(4) {
                    0 | 1 => {
                        let free = random.below(2);
                        let priority = random.below(3) as i32 - 1;
                        let deadline = (random.below(3) == 0).then(|| now + random.below(5) as u64);
                        let at = deadline.map(|at| begin + Duration::from_secs(at));
                        let pushed = queue.push(priority, at, job, free);
                        assert_eq!(pushed.is_ok(), known.len() < most + free);
                        if pushed.is_ok() {
                            known.insert(job, (priority, deadline));
                        }
                    }
                    2 => {
                        let expected = known
                            .iter()
                            .max_by_key(|(job, (p, _))| (*p, u64::MAX - *job));
                        let expected = expected.map(|(job, _)| *job);
                        assert_eq!(queue.pop(|_| true), expected);
                        expected.map(|job| known.remove(&job));
                    }
                    _ => {
                        now += random.below(3) as u64;
                        let unwanted = random.below(60) as u64;
                        let at = begin + Duration::from_secs(now);
                        let gone = queue.give_up(at, |job| *job != unwanted);
                        for (job, late) in &gone {
                            let (_, deadline) = known.remove(job).unwrap();
                            assert_eq!(*late, deadline.is_some_and(|at| at <= now));
                            assert!(*late || *job == unwanted);
                        }
                        let stays = |(_, d): &(i32, Option<u64>)| d.is_none_or(|d| d > now);
                        assert!(known.values().all(stays) && !known.contains_key(&unwanted));
                    }
                }
                assert_eq!(queue.len(), known.len());
            }
        }
    }

    #[test]
    fn a_request_that_cannot_begin_lets_others_pass() {
        let mut queue = Scheduler::new(4);
        for (priority, job) in [(0, 1), (2, 2), (0, 3), (2, 4)] {
            queue.push(priority, None, job, 0).unwrap();
        }
        assert_eq!(queue.pop(|job| job % 2 == 1), Some(1));
        assert_eq!(queue.pop(|&job| job > 9), None);
        assert_eq!(queue.pop(|&job| job != 2), Some(4));
        assert_eq!(queue.pop(|_| true), Some(2));
        assert_eq!(queue.pop(|_| true), Some(3));
    }

    #[test]
    fn a_slot_is_chosen_by_its_beginning_or_its_age() {
        let free = |slot, shared, last| Free { slot, shared, last };
        let slots = [free(0, 1, 9), free(1, 40, 7), free(2, 0, 3)];
        assert_eq!(choose_slot(&slots, 100), Some(1));
        // One token of a hundred is no reason to give up what a slot holds.
        assert_eq!(choose_slot(&[slots[0], slots[2]], 100), Some(2));
        assert_eq!(choose_slot(&[], 100), None);
    }
}
