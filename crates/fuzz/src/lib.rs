//! Damaged input for readers of outside data: files, texts, and nodes of graphs. Every input is taken or refused with
//! one line. A panic, a hang, or memory out of proportion to the input is a bug of the reader.
//!
//! A [`Target`] is such a reader, with inputs that it takes. A [`Fuzzer`] damages these, and continues from
//! inputs with new answers. The tests do so for a moment. The program does so for the given time, and libFuzzer
//! (the folder `fuzz`) for the same targets.

mod fuzzer;
mod targets;

pub use fuzzer::Fuzzer;
pub use targets::TARGETS;

/// A reader to test.
pub struct Target {
    /// Name of the target.
    pub name: &'static str,
    /// Valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads input, and uses the result as a program would.
    pub read: fn(&[u8]) -> Result<(), String>,
    /// Number of inputs in an ordinary test: about a second's work.
    pub rounds: usize,
}

impl Target {
    /// The target of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Reads the input, and checks that an error has one line.
    ///
    /// # Errors
    /// Fails if the reader rejects the input.
    ///
    /// # Panics
    /// Panics if the reader panics, or if its error has more than one line.
    pub fn try_input(&self, input: &[u8]) -> Result<(), String> {
        let result = (self.read)(input);
        if let Err(line) = &result {
            assert!(!line.contains('\n'), "an error of several lines: {line}");
        }
        result
    }

    /// Tries the target's own inputs and as many damaged ones as an ordinary test does, the same in every run. With
    /// `RUSTORCH_TEST_FULL` they are twenty times as many.
    ///
    /// # Panics
    /// Panics if the reader panics, rejects its own samples, or accepts nearly all or nearly no
    /// damaged ones.
    pub fn stand(&'static self) {
        let is_sound = |seed: &Vec<u8>| self.try_input(seed).is_ok();
        assert!(
            (self.seeds)().iter().any(is_sound),
            "sound inputs are refused"
        );
        let rounds = match std::env::var_os("RUSTORCH_TEST_FULL") {
            Some(_) => 20 * self.rounds,
            None => self.rounds,
        };
        let mut fuzzer = Fuzzer::new(self, 3);
        let mut taken = 0;
        for _ in 0..rounds {
            let input = fuzzer.input();
            let answer = self.try_input(&input);
            taken += usize::from(answer.is_ok());
            fuzzer.answered(input, &answer);
        }
        // Both ways out must have been taken, or the test tests nothing.
        assert!(
            (rounds / 500..rounds).contains(&taken),
            "{taken} of {rounds} were taken"
        );
    }
}
