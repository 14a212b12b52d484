//! A function of a table.

use crate::call::{Call, CallError, Called};
use crate::value::{Output, Value};

/// A function by its name, with the parameters of its original.
pub struct Function {
    name: &'static str,
    signature: &'static str,
    module: &'static str,
    run: fn(&Call) -> Called<Output>,
}

impl Function {
    /// A function of the name `name`, which `run` computes. The macro [`table!`](crate::table) calls this.
    pub const fn new(
        name: &'static str,
        signature: &'static str,
        module: &'static str,
        run: fn(&Call) -> Called<Output>,
    ) -> Self {
        Self {
            name,
            signature,
            module,
            run,
        }
    }

    /// The name in the original, without `torch.`. A variant for certain arguments follows after a point.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The original's parameters, separated by comma and space: `input, dim=None, *, dtype=None`. A parameter
    /// `*dims` takes all remaining arguments, or the parts of one list.
    pub fn signature(&self) -> &'static str {
        self.signature
    }

    /// The family of the function, such as `linalg`.
    pub fn family(&self) -> &'static str {
        self.module.rsplit("::").next().unwrap_or_default()
    }

    /// Calls the function, with arguments by position and by name.
    ///
    /// # Errors
    /// Fails if an argument is missing, unknown or of another type. Also fails if the computation
    /// cannot be recorded.
    pub fn call(&self, positional: Vec<Value>, keywords: Vec<(String, Value)>) -> Called<Output> {
        let bound = Call::bind(self.signature, positional, keywords);
        let call = bound.map_err(|e| self.named(e))?;
        self.run(&call)
    }

    /// Calls the function with arguments that have its parameters' names already.
    ///
    /// # Errors
    /// The same errors as [`Function::call`].
    pub fn run(&self, call: &Call) -> Called<Output> {
        (self.run)(call).map_err(|e| self.named(e))
    }

    /// The error, with the function's name and parameters.
    fn named(&self, error: CallError) -> CallError {
        let Self {
            name, signature, ..
        } = self;
        let text = |what| format!("{name} does not take {what}; its parameters are ({signature})");
        match error {
            CallError::Missing(what) => CallError::Missing(text(what)),
            CallError::Untyped(what) => CallError::Untyped(text(what)),
            other => other,
        }
    }
}

/// A table of functions, `TABLE`. A line is a name, the original's parameters, and the call of RusTorch.
///
/// ```
/// mod tables {
///     rustorch_dispatch::table! {
///         "double", "input", |c| c.input()?.mul(2.0)?;
///     }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! table {
    ($($name:expr, $signature:expr, |$c:ident| $call:expr;)*) => {
        pub(super) const TABLE: &[$crate::Function] = &[$($crate::Function::new(
            $name,
            $signature,
            ::std::module_path!(),
            |$c| Ok($crate::Output::from($call)),
        )),*];
    };
}
