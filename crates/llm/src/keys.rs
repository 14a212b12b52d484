//! Hyper-parameters by their keys, checked.

use std::cell::RefCell;
use std::rc::Rc;

use rustorch_gguf::{Array, Gguf, GgufError, Value};

use crate::LlmError;

/// Sizes beyond these are mistakes, or attacks: they keep sums and products in range.
pub(crate) const MAX_SIZE: usize = 1 << 30;

/// More layers than this are a mistake, or an attack.
pub(crate) const MAX_LAYERS: usize = 4096;

/// The value of a size whose key makes no sense. Products of it are larger, so that nothing takes them for sizes of a
/// tensor.
pub(crate) const UNKNOWN: usize = 1 << 18;

/// Reads the keys of one architecture. It collects mistakes: a key without sense has a harmless value, so that the
/// others are read, too.
pub(crate) struct Keys<'a> {
    pub(crate) gguf: &'a Gguf,
    pub(crate) prefix: &'a str,
    architecture: &'a str,
    /// The first mistake of each key.
    problems: Rc<RefCell<Vec<(String, LlmError)>>>,
}

impl<'a> Keys<'a> {
    /// The keys of a file.
    ///
    /// # Errors
    /// The file names no architecture.
    pub(crate) fn new(gguf: &'a Gguf) -> Result<Self, LlmError> {
        let architecture = gguf.metadata.str("general.architecture")?;
        Ok(Self {
            gguf,
            prefix: architecture,
            architecture,
            problems: Rc::default(),
        })
    }

    /// The keys of the same file with another prefix.
    pub(crate) fn with_prefix(&self, prefix: &'a str) -> Self {
        Self {
            gguf: self.gguf,
            prefix,
            architecture: self.architecture,
            problems: Rc::clone(&self.problems),
        }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    /// The mistakes so far.
    pub(crate) fn problems(&self) -> Vec<LlmError> {
        let problems = self.problems.take();
        problems.into_iter().map(|(_, problem)| problem).collect()
    }

    /// Returns whether there has been a mistake.
    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    /// Collects a mistake.
    pub(crate) fn wrong(&self, name: &str, problem: impl ToString) {
        let (key, problem) = (self.key(name), problem.to_string());
        self.note(name, LlmError::Key { key, problem });
    }

    /// Collects the mistake of a key, whatever kind of error it is.
    pub(crate) fn note(&self, name: &str, problem: LlmError) {
        let (key, mut problems) = (self.key(name), self.problems.borrow_mut());
        if problems.iter().all(|(known, _)| *known != key) {
            problems.push((key, problem));
        }
    }

    /// A value that was read; `None` for one of another type.
    fn read<T>(&self, name: &str, value: Result<Option<T>, GgufError>) -> Option<T> {
        value.unwrap_or_else(|problem| {
            self.note(name, problem.into());
            None
        })
    }

    /// Do these sizes contradict each other, as far as they are known?
    pub(crate) fn contradict(&self, sizes: &[usize], is_sound: bool) -> bool {
        let is_unknown = self.has_problems() && sizes.iter().any(|size| *size >= UNKNOWN);
        !is_sound && !is_unknown
    }

    pub(crate) fn size(&self, name: &str) -> usize {
        let value = self.gguf.metadata.u64(&self.key(name));
        let value = self.read(name, value.map(Some));
        let size = value.and_then(|value| self.check(name, value));
        size.unwrap_or(UNKNOWN)
    }

    /// The number of layers from one of a kind to the next. Without sense each layer is of the kind.
    pub(crate) fn period(&self, name: &str) -> usize {
        let period = self.size(name);
        if period < UNKNOWN { period } else { 1 }
    }

    /// The whole number at `name`, of any size.
    pub(crate) fn opt_number(&self, name: &str) -> Option<u64> {
        self.read(name, self.gguf.metadata.opt_u64(&self.key(name)))
    }

    pub(crate) fn opt_size(&self, name: &str) -> Option<usize> {
        let value = self.opt_number(name)?;
        Some(self.check(name, value).unwrap_or(UNKNOWN))
    }

    /// The size, if it is one.
    pub(crate) fn check(&self, name: &str, value: u64) -> Option<usize> {
        let size = usize::try_from(value).ok();
        let size = size.filter(|s| (1..=MAX_SIZE).contains(s));
        if size.is_none() {
            self.wrong(name, format!("expected 1 to {MAX_SIZE}, got {value}"));
        }
        size
    }

    pub(crate) fn opt_f64(&self, name: &str) -> Option<f64> {
        let value = self.gguf.metadata.opt_f32(&self.key(name));
        let value = self.read(name, value).map(f64::from);
        if let Some(v) = value.filter(|v| !v.is_finite()) {
            self.wrong(name, format!("{v} is not finite"));
        }
        value.filter(|v| v.is_finite())
    }

    pub(crate) fn positive(&self, name: &str, default: f64) -> f64 {
        let value = self.opt_f64(name).unwrap_or(default);
        if value > 0.0 {
            return value;
        }
        self.wrong(name, format!("expected more than 0, got {value}"));
        default
    }

    /// The addend of a norm, which every file has.
    pub(crate) fn epsilon(&self, name: &str) -> f64 {
        match self.opt_f64(name) {
            Some(value) if value >= 0.0 => return value,
            Some(value) => self.wrong(name, format!("expected at least 0, got {value}")),
            None => self.wrong(name, "missing"),
        }
        0.0
    }

    /// The text at `name`.
    pub(crate) fn opt_text(&self, name: &str) -> Option<&'a str> {
        self.read(name, self.gguf.metadata.opt_str(&self.key(name)))
    }

    /// The number at `name` for layer `layer`: one for all, or a list with one for each. 0 is a number.
    pub(crate) fn count_of(&self, name: &str, layer: usize) -> Option<usize> {
        let key = self.key(name);
        let metadata = &self.gguf.metadata;
        let scalar = match metadata.opt_u64(&key) {
            Ok(value) => return Some(self.limited(name, usize::try_from(value?).ok())),
            Err(scalar) => scalar,
        };
        let Ok(list) = metadata.i32_array(&key) else {
            self.note(name, scalar.into());
            return Some(UNKNOWN);
        };
        self.check_length(name, list.len());
        let value = list.get(layer).copied();
        if let Some(value) = value.filter(|value| *value < 0) {
            self.wrong(name, format!("expected at least 0, got {value}"));
        }
        let value = value.and_then(|value| usize::try_from(value).ok());
        Some(value.map_or(UNKNOWN, |value| self.limited(name, Some(value))))
    }

    /// Collects the mistake of a list that has not one number for each layer.
    fn check_length(&self, name: &str, length: usize) {
        let layers = self.with_prefix(self.architecture).size("block_count");
        if self.contradict(&[layers], length == layers) {
            let problem = format!("expected {layers} numbers, one for each layer, got {length}");
            self.wrong(name, problem);
        }
    }

    /// A number that is not too large.
    fn limited(&self, name: &str, value: Option<usize>) -> usize {
        let value = value.filter(|value| *value <= MAX_SIZE);
        if value.is_none() {
            self.wrong(name, format!("expected at most {MAX_SIZE}"));
        }
        value.unwrap_or(UNKNOWN)
    }

    /// The same as [`Self::count_of`], more than 0.
    pub(crate) fn size_of(&self, name: &str, layer: usize) -> usize {
        match self.count_of(name, layer) {
            Some(0) => {
                let problem = format!("expected more than 0, got 0 for layer {layer}");
                self.wrong(name, problem);
            }
            Some(value) => return value,
            None => self.wrong(name, "missing"),
        }
        UNKNOWN
    }

    /// The float at `name` for layer `layer`: one for all, or a list with one for each.
    pub(crate) fn number_of(&self, name: &str, layer: usize) -> Option<f64> {
        let key = self.key(name);
        let Err(scalar) = self.gguf.metadata.opt_f32(&key) else {
            return self.opt_f64(name);
        };
        match self.gguf.metadata.f32_array(&key) {
            Err(_) => self.note(name, scalar.into()),
            Ok(list) => {
                self.check_length(name, list.len());
                match list.get(layer) {
                    Some(value) if value.is_finite() => return Some(f64::from(*value)),
                    _ => self.wrong(name, format!("layer {layer} has no finite number")),
                }
            }
        }
        Some(1.0)
    }

    /// The float at `name`, or the architecture's own.
    pub(crate) fn number_or(&self, name: &str, default: f64) -> f64 {
        self.opt_f64(name).unwrap_or(default)
    }

    /// The truth value at `name`.
    pub(crate) fn opt_flag(&self, name: &str) -> Option<bool> {
        self.read(name, self.gguf.metadata.opt_bool(&self.key(name)))
    }

    /// The truth value at `name`; false if there is none.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.opt_flag(name).unwrap_or(false)
    }

    /// One truth value a layer, if the file lists them.
    pub(crate) fn flags(&self, name: &str) -> Option<Vec<bool>> {
        let key = self.key(name);
        match self.gguf.metadata.get(&key) {
            Some(Value::Array(Array::Bool(flags))) => Some(flags.to_vec()),
            Some(Value::Array(_)) => {
                let numbers = self.gguf.metadata.i32_array(&key);
                let numbers = self.read(name, numbers.map(Some));
                numbers.map(|numbers| numbers.iter().map(|n| *n != 0).collect())
            }
            _ => None,
        }
    }
}
