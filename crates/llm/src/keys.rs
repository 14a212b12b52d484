//! Hyper-parameters by their keys, checked.

use rustorch_gguf::Gguf;

use crate::LlmError;

/// Sizes beyond these are mistakes, or attacks: they keep sums and products in range.
pub(crate) const MAX_SIZE: usize = 1 << 30;

/// Reads the keys of one architecture.
pub(crate) struct Keys<'a> {
    pub(crate) gguf: &'a Gguf,
    pub(crate) prefix: &'a str,
}

impl Keys<'_> {
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    pub(crate) fn wrong(&self, name: &str, problem: impl ToString) -> LlmError {
        LlmError::Key {
            key: self.key(name),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn size(&self, name: &str) -> Result<usize, LlmError> {
        let value = self.gguf.metadata.u64(&self.key(name))?;
        self.check(name, value)
    }

    pub(crate) fn opt_size(&self, name: &str) -> Result<Option<usize>, LlmError> {
        let value = self.gguf.metadata.opt_u64(&self.key(name))?;
        value.map(|v| self.check(name, v)).transpose()
    }

    pub(crate) fn check(&self, name: &str, value: u64) -> Result<usize, LlmError> {
        let size = usize::try_from(value).ok();
        size.filter(|s| (1..=MAX_SIZE).contains(s))
            .ok_or_else(|| self.wrong(name, format!("expected 1 to {MAX_SIZE}, got {value}")))
    }

    pub(crate) fn opt_f64(&self, name: &str) -> Result<Option<f64>, LlmError> {
        let value = self.gguf.metadata.opt_f32(&self.key(name))?.map(f64::from);
        match value {
            Some(v) if !v.is_finite() => Err(self.wrong(name, format!("{v} is not finite"))),
            _ => Ok(value),
        }
    }

    pub(crate) fn positive(&self, name: &str, default: f64) -> Result<f64, LlmError> {
        let value = self.opt_f64(name)?.unwrap_or(default);
        if value > 0.0 {
            Ok(value)
        } else {
            Err(self.wrong(name, format!("expected more than 0, got {value}")))
        }
    }

    /// A number of heads; some files list one for each layer, which have to agree.
    pub(crate) fn heads(&self, name: &str) -> Result<Option<usize>, LlmError> {
        let key = self.key(name);
        match self.gguf.metadata.opt_u64(&key) {
            Ok(value) => value.map(|v| self.check(name, v)).transpose(),
            Err(scalar) => {
                let list = self.gguf.metadata.i32_array(&key).map_err(|_| scalar)?;
                match &*list {
                    [first, rest @ ..] if rest.iter().all(|n| n == first) => {
                        let first = u64::try_from(*first).unwrap_or(0);
                        self.check(name, first).map(Some)
                    }
                    _ => Err(self.wrong(
                        name,
                        "layers with different numbers of heads are not supported",
                    )),
                }
            }
        }
    }
}
