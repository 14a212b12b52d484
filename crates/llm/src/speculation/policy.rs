//! The number of tokens to draft at a time, by measured times and acceptance.

use std::time::Duration;

use crate::step::FEW;

/// Possible numbers of drafted tokens: with the token before them they are a batch whose program
/// sessions keep.
pub(super) const LENGTHS: [usize; FEW.len()] = {
    let mut lengths = FEW;
    let mut i = 0;
    while i < lengths.len() {
        lengths[i] -= 1;
        i += 1;
    }
    lengths
};

const LONGEST: usize = LENGTHS[LENGTHS.len() - 1];

/// Guessing has to promise so much more speed.
const WORTH: f64 = 1.05;

/// Passes with guesses that are made without asking whether they pay: at the beginning, and after each
/// rest. The first of a kind prepares its program, and does not count.
const TRIES: usize = 5;

/// Ratio of the rest to the time that was lost by drafts.
const REST: f64 = 20.0;

/// Limits of a rest, in passes, before it is doubled for having been in vain.
const RESTS: [f64; 2] = [8.0, 256.0];

/// Number of times that a rest is doubled.
const DOUBLINGS: u32 = 4;

/// Passes with drafts after which measurements are old: a pass without drafts is measured again,
/// and longer drafts are tried.
const OLD: usize = 128;

/// Passes without drafts that are enough to know the time of one.
const SURE: usize = 3;

/// Share of a pass below which vain drafting does not count as a loss.
const FREE: f64 = 0.02;

/// The most tokens that may be drafted in the given room.
pub(super) fn at_most(room: usize) -> usize {
    let lengths = LENGTHS.iter().rev();
    lengths.copied().find(|&n| n <= room).unwrap_or(0)
}

/// A pass over the last token and some guesses, or none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pass {
    /// Tokens that were to be guessed.
    pub(super) asked: usize,
    /// Drafted tokens that went through the pass.
    pub(super) drafted: usize,
    /// Number of accepted tokens, from the first on.
    pub(super) accepted: usize,
    /// Time for drafting.
    pub(super) drafting: Duration,
    /// Time of the pass.
    pub(super) time: Duration,
}

/// A mean that forgets.
#[derive(Clone, Copy, Default)]
struct Mean {
    value: f64,
    count: u32,
}

impl Mean {
    /// Older passes count little.
    const MEMORY: u32 = 16;

    fn add(&mut self, x: f64) {
        self.count = (self.count + 1).min(Self::MEMORY);
        self.value += (x - self.value) / f64::from(self.count);
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0).then_some(self.value)
    }

    /// Lets the next measurements count for much.
    fn doubt(&mut self) {
        self.count = self.count.min(1);
    }
}

/// Seconds that something takes: the median of the last times, for on a busy machine some take many times
/// as long. The first time does not count, for much is prepared then.
#[derive(Clone, Copy, Default)]
struct Seconds {
    began: bool,
    times: [f64; 7],
    count: usize,
}

impl Seconds {
    /// Does it count?
    fn add(&mut self, seconds: f64) -> bool {
        if !std::mem::replace(&mut self.began, true) {
            return false;
        }
        self.times[self.count % self.times.len()] = seconds;
        self.count += 1;
        true
    }

    fn get(&self) -> Option<f64> {
        let mut times = self.times;
        let times = &mut times[..self.count.min(self.times.len())];
        times.sort_unstable_by(f64::total_cmp);
        times.get(times.len().checked_sub(1)? / 2).copied()
    }

    /// Forgets how long it took.
    fn forget(&mut self) {
        self.count = 0;
    }
}

/// Chooses how many tokens are guessed.
pub(super) struct Policy {
    /// The allowed draft lengths, from the least on.
    lengths: Vec<usize>,
    /// A pass without guesses.
    plain: Seconds,
    /// Passes with as many guesses as [`LENGTHS`] has in this place.
    checks: [Seconds; LENGTHS.len()],
    /// Guessing a token.
    drafting: Seconds,
    /// Rate at which the draft in this place was right, with all before it.
    right: [Mean; LONGEST],
    /// Passes with guesses that are made in any case.
    tries: usize,
    /// Seconds won since these began.
    won: f64,
    /// Passes until the next tries.
    rest: usize,
    /// Rests, one after the other, that won nothing.
    in_vain: u32,
    /// Passes with guesses since the last one without.
    since_plain: usize,
    /// Passes with guesses since longer ones were hoped for.
    since_hope: usize,
}

impl Policy {
    /// Chooses among these, which are of [`LENGTHS`].
    pub(super) fn new(lengths: impl IntoIterator<Item = usize>) -> Self {
        Self {
            lengths: lengths.into_iter().collect(),
            plain: Seconds::default(),
            checks: [Seconds::default(); LENGTHS.len()],
            drafting: Seconds::default(),
            right: [Mean::default(); LONGEST],
            tries: TRIES,
            won: 0.0,
            rest: 0,
            in_vain: 0,
            since_plain: 0,
            since_hope: 0,
        }
    }

    /// Number of tokens to draft now, within the given room; 0 for none.
    pub(super) fn length(&mut self, room: usize) -> usize {
        if self.since_plain >= OLD {
            self.since_plain = 0;
            self.plain.forget();
        }
        let plain = self.plain.get().filter(|_| self.plain.count >= SURE);
        let Some(plain) = plain.filter(|_| self.rest == 0) else {
            return 0;
        };
        // No program is made for the last few tokens.
        let has_room = self.lengths.last().is_some_and(|&longest| longest <= room);
        let fits = |&n: &usize| n <= room && (has_room || self.check(n).is_some());
        let rates = self.lengths.iter().copied().filter(fits);
        let rates = rates.map(|n| (n, self.rate(n, plain)));
        let Some((best, rate)) = rates.reduce(|a, b| if b.1 > a.1 { b } else { a }) else {
            return 0;
        };
        if self.tries > 0 || rate * plain > WORTH {
            return best;
        }
        self.begin_rest(plain);
        0
    }

    /// Learns of a pass.
    pub(super) fn learn(&mut self, pass: &Pass) {
        let (time, drafting) = (pass.time.as_secs_f64(), pass.drafting.as_secs_f64());
        let counts = match LENGTHS.iter().position(|&n| n == pass.drafted) {
            Some(at) => {
                self.since_plain += 1;
                self.checks[at].add(time)
            }
            None => {
                self.since_plain = 0;
                self.plain.add(time);
                self.rest_for_a_pass();
                true
            }
        };
        let plain = self.plain.get().unwrap_or(0.0);
        if pass.asked == 0 || (pass.drafted == 0 && drafting < FREE * plain) {
            return;
        }
        let counts = self.drafting.add(drafting / pass.asked as f64) && counts;
        for (place, right) in self.right.iter_mut().enumerate().take(pass.asked) {
            right.add(f64::from(u8::from(place < pass.accepted)));
        }
        if counts {
            let check = self.check(pass.drafted).unwrap_or(plain);
            let drafting = self.drafting.get().unwrap_or(0.0) * pass.asked as f64;
            self.won += (pass.accepted + 1) as f64 * plain - check - drafting;
        }
        self.tries = self.tries.saturating_sub(1);
        self.since_hope += 1;
        if self.since_hope >= OLD {
            self.hope();
        }
    }

    /// Forgets the acceptance of positions beyond the first, and times with few samples.
    fn hope(&mut self) {
        self.since_hope = 0;
        self.right[1..].fill(Mean::default());
        let checks = self.checks.iter_mut();
        let few = checks.filter(|check| check.count < check.times.len() / 2);
        few.for_each(Seconds::forget);
    }

    /// Seconds of a pass with this number of drafted tokens, if known.
    fn check(&self, length: usize) -> Option<f64> {
        let at = LENGTHS.iter().position(|&n| n == length)?;
        self.checks[at].get()
    }

    /// Tokens a second with this number of drafted tokens.
    fn rate(&self, length: usize, plain: f64) -> f64 {
        let mut likely = 1.0_f64;
        let tokens = self.right[..length].iter().map(|right| {
            likely = right.get().unwrap_or(1.0).min(likely);
            likely
        });
        let tokens = 1.0 + tokens.sum::<f64>();
        let shorter = LENGTHS.iter().rev().filter(|&&n| n <= length);
        let check = shorter.filter_map(|&n| self.check(n)).next();
        let drafting = self.drafting.get().unwrap_or(0.0) * length as f64;
        tokens / (check.unwrap_or(plain) + drafting)
    }

    fn begin_rest(&mut self, plain: f64) {
        self.in_vain = match self.won < 0.0 {
            true => (self.in_vain + 1).min(DOUBLINGS),
            false => 0,
        };
        let lost = (-self.won / plain * REST).clamp(RESTS[0], RESTS[1]);
        self.rest = lost as usize * (1 << self.in_vain);
    }

    fn rest_for_a_pass(&mut self) {
        if self.rest == 0 {
            return;
        }
        self.rest -= 1;
        if self.rest == 0 {
            (self.tries, self.won) = (TRIES, 0.0);
            self.right[0].doubt();
            self.hope();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with a clock that only this turns.
    struct Machine {
        /// Milliseconds of a pass over one token, and the addition for each drafted token.
        pass: [u64; 2],
        /// Milliseconds of guessing a token.
        draft: u64,
        /// Numbers of right drafts, in turn.
        right: Vec<usize>,
        /// Interval of passes of which one takes many times as long.
        hiccups: usize,
        now: Duration,
        passes: usize,
        tokens: usize,
    }

    impl Machine {
        fn new(pass: [u64; 2], draft: u64, right: &[usize]) -> Self {
            Self {
                pass,
                draft,
                right: right.to_vec(),
                hiccups: usize::MAX,
                now: Duration::ZERO,
                passes: 0,
                tokens: 0,
            }
        }

        /// Generates this number of tokens, and returns the lengths of drafts.
        fn run(&mut self, policy: &mut Policy, tokens: usize) -> Vec<usize> {
            let mut lengths = Vec::new();
            let end = self.tokens + tokens;
            while self.tokens < end {
                let asked = policy.length(usize::MAX);
                let accepted = self.right[self.passes % self.right.len()].min(asked);
                let [one, more] = self.pass;
                let drafting = Duration::from_millis(self.draft * asked as u64);
                let mut time = Duration::from_millis(one + more * asked as u64);
                if self.passes % self.hiccups == self.hiccups - 1 {
                    time *= 50;
                }
                policy.learn(&Pass {
                    asked,
                    drafted: asked,
                    accepted,
                    drafting,
                    time,
                });
                self.now += drafting + time;
                self.passes += 1;
                self.tokens += accepted + 1;
                lengths.push(asked);
            }
            lengths
        }

        /// Speed as a multiple of that without drafts.
        fn gain(&self) -> f64 {
            let plain = Duration::from_millis(self.pass[0]) * self.tokens as u32;
            plain.as_secs_f64() / self.now.as_secs_f64()
        }
    }

    fn three() -> Policy {
        Policy::new([1, 2, 3])
    }

    #[test]
    fn right_guesses_are_made_as_long_as_may_be() {
        let mut machine = Machine::new([100, 5], 10, &[9]);
        let lengths = machine.run(&mut three(), 1000);
        assert_eq!(lengths[..4], [0; 4], "first it is measured without");
        assert!(lengths[4..].iter().filter(|&&n| n == 3).count() > 240);
        assert!(machine.gain() > 2.7, "{}", machine.gain());
        let mut machine = Machine::new([100, 2], 1, &[20]);
        let lengths = machine.run(&mut Policy::new(LENGTHS), 1000);
        assert_eq!(lengths.iter().max(), Some(&LONGEST));
        assert!(machine.gain() > 8.0, "{}", machine.gain());
    }

    #[test]
    fn wrong_guesses_cost_next_to_nothing() {
        for draft in [0, 10, 100] {
            let mut machine = Machine::new([100, 30], draft, &[0]);
            machine.run(&mut three(), 2000);
            assert!(machine.gain() > 0.98, "{draft} ms: {}", machine.gain());
        }
    }

    #[test]
    fn a_draft_that_is_too_slow_is_left_alone() {
        let mut machine = Machine::new([100, 30], 100, &[3]);
        machine.run(&mut three(), 2000);
        assert!(machine.gain() > 0.98, "{}", machine.gain());
    }

    #[test]
    fn the_length_is_the_one_that_pays() {
        // The first guess is right, the others never, and each costs.
        let mut machine = Machine::new([100, 20], 0, &[1]);
        let mut policy = three();
        let lengths = machine.run(&mut policy, 1000);
        let late = &lengths[lengths.len() / 2..];
        assert!(late.iter().filter(|&&n| n == 1).count() > late.len() * 9 / 10);
        assert!(machine.gain() > 1.6, "{}", machine.gain());
        // They become right.
        machine.right = vec![3];
        let lengths = machine.run(&mut policy, 1000);
        let late = &lengths[lengths.len() / 2..];
        assert!(late.iter().filter(|&&n| n == 3).count() > late.len() * 9 / 10);
    }

    #[test]
    fn what_begins_to_pay_is_found_and_what_ends_to_is_left() {
        let mut policy = three();
        let mut machine = Machine::new([100, 20], 5, &[0]);
        machine.run(&mut policy, 1000);
        machine.right = vec![3];
        let lengths = machine.run(&mut policy, 8000);
        assert_eq!(lengths[lengths.len() - 2], 3);
        machine.right = vec![0];
        machine.run(&mut policy, 500);
        let lengths = machine.run(&mut policy, 500);
        let tries = lengths.iter().filter(|&&n| n > 0).count();
        assert!(tries < 40, "{tries} of 500");
    }

    #[test]
    fn a_machine_that_becomes_faster_without_guesses_is_noticed() {
        let mut policy = three();
        let mut machine = Machine::new([100, 5], 10, &[1]);
        assert!(machine.run(&mut policy, 400).ends_with(&[1]));
        // Passes with guesses take as long as before.
        machine.pass = [20, 85];
        machine.run(&mut policy, 400);
        let lengths = machine.run(&mut policy, 400);
        let guesses = lengths.iter().filter(|&&n| n > 0).count();
        assert!(guesses < 40, "{guesses} of 400");
    }

    #[test]
    fn a_busy_machine_is_judged_by_its_usual_times() {
        for hiccups in [3, 4, 5, 7] {
            let mut machine = Machine::new([100, 5], 10, &[3]);
            machine.hiccups = hiccups;
            let lengths = machine.run(&mut three(), 2000);
            let guesses = lengths.iter().filter(|&&n| n == 3).count();
            assert!(guesses > lengths.len() * 7 / 10, "{hiccups}: {guesses}");
            let mut machine = Machine::new([100, 30], 100, &[3]);
            machine.hiccups = hiccups;
            let lengths = machine.run(&mut three(), 2000);
            let guesses = lengths.iter().filter(|&&n| n > 0).count();
            assert!(guesses < lengths.len() / 20, "{hiccups}: {guesses}");
        }
    }

    #[test]
    fn guesses_fit_where_there_is_room() {
        let mut policy = three();
        let mut machine = Machine::new([100, 5], 0, &[3]);
        machine.run(&mut policy, 400);
        assert_eq!(policy.length(3), 3);
        // No program was made for these lengths yet.
        assert_eq!(policy.length(2), 0);
        assert_eq!(policy.length(0), 0);
        assert_eq!(Policy::new([]).length(9), 0);
        assert_eq!([0, 1, 2, 3, 5, 14, 99].map(at_most), [0, 1, 2, 3, 3, 7, 15]);
    }

    /// The result if nothing like the last tokens came before.
    #[test]
    fn what_makes_no_guess_costs_nothing_and_is_asked_on() {
        let mut policy = three();
        for _ in 0..200 {
            let asked = policy.length(9);
            policy.learn(&Pass {
                asked,
                time: Duration::from_millis(10),
                ..Pass::default()
            });
        }
        assert_eq!(policy.length(9), 3);
    }
}
