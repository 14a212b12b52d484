//! Input for everything that reads some from outside: files, texts, and nodes of graphs. Whatever it is, it is taken or
//! refused with one line. A panic, a hang, or memory beyond what follows from the input's size is a mistake of the reader.
//!
//! A [`Target`] is such a reader, with inputs that it takes. A [`Fuzzer`] damages these, and goes on from what a
//! reader had not answered before. The tests do so for a moment, the program for as long as it is let, and libFuzzer
//! (the folder `fuzz`) for the same targets.

mod fuzzer;
mod targets;

pub use fuzzer::Fuzzer;
pub use targets::TARGETS;

/// Something that reads.
pub struct Target {
    /// What it is called.
    pub name: &'static str,
    /// Inputs that it takes.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads, and uses what was read as a program would. An error is the line that refuses the input.
    pub read: fn(&[u8]) -> Result<(), String>,
    /// Inputs that an ordinary test tries: about a second's.
    pub rounds: usize,
}

impl Target {
    /// The target of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Reads, and holds the line of an error to be one.
    ///
    /// # Errors
    /// The input is refused.
    ///
    /// # Panics
    /// The reader does, or refuses by more than a line.
    pub fn try_input(&self, input: &[u8]) -> Result<(), String> {
        let result = (self.read)(input);
        if let Err(line) = &result {
            assert!(!line.contains('\n'), "an error of several lines: {line}");
        }
        result
    }
}
