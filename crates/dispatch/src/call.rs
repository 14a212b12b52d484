//! A call with named arguments.

use rustorch_errors::ErrorKind;
use rustorch_ir::{DType, Scalar};
use rustorch_tensor::{Dims, IntoDims, Operand, RusTorchError, Tensor};
use thiserror::Error;

use crate::value::Value;

/// A call without a result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// RusTorch rejected it, or failed.
    #[error(transparent)]
    Refused(Box<RusTorchError>),
    /// There is no such function, or none for this argument.
    #[error("{0}")]
    Missing(String),
    /// The parameter's type has no such value, such as a negative size.
    #[error("{0}")]
    Untyped(String),
    /// The table of functions is invalid.
    #[error("{0}; this is a bug of RusTorch, please report it")]
    Mistake(String),
}

impl CallError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(error) => error.kind(),
            Self::Missing(_) | Self::Mistake(_) => ErrorKind::Unsupported,
            Self::Untyped(_) => ErrorKind::Argument,
        }
    }
}

impl From<RusTorchError> for CallError {
    fn from(e: RusTorchError) -> Self {
        Self::Refused(Box::new(e))
    }
}

/// The result of a call, or of a look at its arguments.
pub type Called<T> = Result<T, CallError>;

/// The error for functions that are not implemented.
///
/// # Errors
/// Always fails.
pub fn missing<T>(what: impl ToString) -> Called<T> {
    Err(CallError::Missing(what.to_string()))
}

/// The error for values outside a parameter's type.
///
/// # Errors
/// Always fails.
pub fn untyped<T>(what: impl ToString) -> Called<T> {
    Err(CallError::Untyped(what.to_string()))
}

/// Keywords that say where, not what: a call runs on the device that is chosen around it.
const PLACES: [&str; 4] = ["device", "layout", "pin_memory", "requires_grad"];

/// The arguments of a call by their names.
pub struct Call {
    arguments: Vec<(&'static str, Value)>,
    /// Number of requested results, if the call has one.
    pub results: usize,
}

impl Call {
    /// Names the arguments by a signature.
    ///
    /// # Errors
    /// Fails if an argument has no parameter, or if a parameter has no argument.
    pub fn bind(
        signature: &'static str,
        positional: Vec<Value>,
        mut keywords: Vec<(String, Value)>,
    ) -> Called<Self> {
        let mut positional = positional.into_iter();
        let mut arguments = Vec::new();
        for parameter in signature.split(", ").filter(|p| !p.is_empty() && *p != "*") {
            if let Some(name) = parameter.strip_prefix('*') {
                let rest: Vec<Value> = positional.by_ref().collect();
                let is_list = rest.len() == 1 && rest[0].parts().is_some();
                let rest = match is_list {
                    true => rest[0].parts().unwrap_or_default().to_vec(),
                    false => rest,
                };
                let by_name = take(&mut keywords, name).filter(|_| rest.is_empty());
                let value = by_name.unwrap_or(Value::List(rest));
                arguments.push((name, value));
                continue;
            }
            let (name, default) = match parameter.split_once('=') {
                Some((name, default)) => (name, Some(default)),
                None => (parameter, None),
            };
            let given = positional.next().or_else(|| take(&mut keywords, name));
            arguments.push(match (given, default) {
                (Some(value), _) => (name, value),
                (None, Some(default)) => (name, Value::of_default(default)),
                (None, None) => return missing(format!("a call without {name}")),
            });
        }
        // Results are returned, never written into a tensor that is given for them, and there are
        // no tensors but of elements with strides.
        let has_type = |(name, value): &&(String, Value)| match (name.as_str(), value) {
            (_, Value::None) => true,
            ("layout", Value::Other(layout)) => layout == "layout \"strided\"",
            (name, _) => name != "out",
        };
        if let Some((name, value)) = keywords.iter().find(|keyword| !has_type(keyword)) {
            return untyped(format!("{name}={value}"));
        }
        keywords.retain(|(name, value)| {
            !PLACES.contains(&name.as_str()) && !matches!(value, Value::None)
        });
        if let Some((name, value)) = keywords.first() {
            return missing(format!("argument {name}={value}"));
        }
        match positional.next() {
            Some(value) => missing(format!("a further argument {value}")),
            None => Ok(Self {
                arguments,
                results: 1,
            }),
        }
    }

    /// The argument of this name.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn value(&self, name: &str) -> Called<&Value> {
        let found = self.arguments.iter().find(|(n, _)| *n == name);
        let mistake = || CallError::Mistake(format!("the signature has no {name}"));
        found.map(|(_, value)| value).ok_or_else(mistake)
    }

    /// Returns whether the argument is given, and not `None`.
    pub fn has(&self, name: &str) -> bool {
        !matches!(self.value(name), Ok(Value::None) | Err(_))
    }

    /// Fails for an argument without a parameter here, unless it has the default's value.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn only(&self, name: &'static str, value: &str) -> Called<()> {
        match self.value(name)? {
            given if given.is(&Value::of_default(value)) => Ok(()),
            given => missing(format!("{name}={given}")),
        }
    }

    /// Refuses an argument that is not what is expected.
    fn unlike<T>(&self, name: &str, expected: &str) -> Called<T> {
        let value = self.value(name)?;
        missing(format!("{name}={value}, only {expected}"))
    }

    /// A copy of the input, which may be written over although the input is a leaf that wants a gradient.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn copied(&self) -> Called<Tensor> {
        let input = self.input()?;
        let mut copy = input.empty_like()?;
        Ok(copy.copy_(input)?.clone())
    }

    /// The first argument, a tensor.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn input(&self) -> Called<&Tensor> {
        match self.arguments.first() {
            Some((name, _)) => self.tensor(name),
            None => Err(CallError::Mistake("the signature is empty".into())),
        }
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn tensor(&self, name: &str) -> Called<&Tensor> {
        match self.value(name)? {
            Value::Tensor(tensor) => Ok(tensor),
            _ => self.unlike(name, "a tensor"),
        }
    }

    /// A tensor, or nothing.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn optional(&self, name: &str) -> Called<Option<&Tensor>> {
        match self.has(name) {
            true => self.tensor(name).map(Some),
            false => Ok(None),
        }
    }

    /// The list of tensors of this name.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn tensors<'a>(&'a self, name: &str) -> Called<Vec<&'a Tensor>> {
        let tensor = |value: &'a Value| match value {
            Value::Tensor(tensor) => Ok(tensor),
            _ => self.unlike(name, "a list of tensors"),
        };
        match self.value(name)?.parts() {
            Some(parts) => parts.iter().map(tensor).collect(),
            None => self.unlike(name, "a list of tensors"),
        }
    }

    /// A tensor or a number.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn operand(&self, name: &str) -> Called<Operand<'_>> {
        match self.value(name)? {
            Value::Tensor(tensor) => Ok(tensor.into()),
            _ => Ok(Operand::Scalar(self.scalar(name)?)),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn scalar(&self, name: &str) -> Called<Scalar> {
        match *self.value(name)? {
            Value::Bool(x) => Ok(x.into()),
            Value::Int(x) => Ok(x.into()),
            Value::Float(x) => Ok(x.into()),
            Value::Complex(re, im) => Ok(Scalar::Complex(re.into(), im.into())),
            _ => self.unlike(name, "a number"),
        }
    }

    /// A boolean; an integer is true unless it is 0.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn bool(&self, name: &str) -> Called<bool> {
        match *self.value(name)? {
            Value::Bool(x) => Ok(x),
            Value::Int(x) => Ok(x != 0),
            _ => self.unlike(name, "True or False"),
        }
    }

    /// A real number.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn float(&self, name: &str) -> Called<f64> {
        match *self.value(name)? {
            Value::Float(x) => Ok(x),
            Value::Int(x) => Ok(x as f64),
            Value::Bool(x) => Ok(f64::from(u8::from(x))),
            Value::Tensor(ref tensor) => Ok(tensor.to_dtype(DType::F64)?.to_scalar()?),
            _ => self.unlike(name, "a number"),
        }
    }

    /// An integer of any type that holds it.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn int<T: TryFrom<i64>>(&self, name: &str) -> Called<T> {
        self.int_of(name, self.value(name)?)
    }

    fn int_of<T: TryFrom<i64>>(&self, name: &str, value: &Value) -> Called<T> {
        match *value {
            Value::Tensor(ref tensor) if tensor.numel() == 1 => {
                self.int_of(name, &Value::Int(tensor.to_dtype(DType::I64)?.to_scalar()?))
            }
            Value::Int(x) => T::try_from(x).map_err(|_| CallError::Untyped(format!("{name}={x}"))),
            _ => self.unlike(name, "a whole number"),
        }
    }

    /// An integer, or nothing.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn maybe_int<T: TryFrom<i64>>(&self, name: &str) -> Called<Option<T>> {
        match self.has(name) {
            true => self.int(name).map(Some),
            false => Ok(None),
        }
    }

    /// A real number, or nothing.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn maybe_float(&self, name: &str) -> Called<Option<f64>> {
        match self.has(name) {
            true => self.float(name).map(Some),
            false => Ok(None),
        }
    }

    /// A list of integers; a single one is a list of one.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn ints<T: TryFrom<i64>>(&self, name: &str) -> Called<Vec<T>> {
        let value = self.value(name)?;
        if let Value::Tensor(tensor) = value {
            let int = |x: i64| self.int_of(name, &Value::Int(x));
            return tensor
                .to_dtype(DType::I64)?
                .to_vec()?
                .into_iter()
                .map(int)
                .collect();
        }
        let values = value.parts().unwrap_or(std::slice::from_ref(value));
        values
            .iter()
            .map(|value| self.int_of(name, value))
            .collect()
    }

    /// A list of real numbers; a single one is a list of one.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn floats(&self, name: &str) -> Called<Vec<f64>> {
        let float = |value: &Value| match *value {
            Value::Float(x) => Ok(x),
            Value::Int(x) => Ok(x as f64),
            _ => self.unlike(name, "a list of numbers"),
        };
        match self.value(name)? {
            value @ (Value::Float(_) | Value::Int(_)) => Ok(vec![float(value)?]),
            value => match value.parts() {
                Some(parts) => parts.iter().map(float).collect(),
                None => self.unlike(name, "a list of numbers"),
            },
        }
    }

    /// `N` integers, or one for all.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn each<const N: usize>(&self, name: &str) -> Called<[usize; N]> {
        let numbers: Vec<usize> = self.ints(name)?;
        match numbers[..] {
            [one] => Ok([one; N]),
            _ => <[usize; N]>::try_from(numbers)
                .or_else(|_| self.unlike(name, "a whole number or one for each dimension")),
        }
    }

    /// Dimensions: one, several, or all (`None`).
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn dims(&self, name: &str) -> Called<Dims> {
        match self.value(name)? {
            Value::None => Ok(None.into_dims()),
            _ => Ok(self.ints::<isize>(name)?.into_dims()),
        }
    }

    /// Dimensions of a reduction; an empty list means all, too.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn dims_or_all(&self, name: &str) -> Called<Dims> {
        match self.value(name)?.parts() {
            Some([]) => Ok(None.into_dims()),
            _ => self.dims(name),
        }
    }

    /// The string of this name.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn text(&self, name: &str) -> Called<&str> {
        match self.value(name)? {
            Value::Text(text) => Ok(text),
            _ => self.unlike(name, "a string"),
        }
    }

    /// A dtype, or the default.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn dtype_or(&self, name: &str, default: DType) -> Called<DType> {
        match *self.value(name)? {
            Value::DType(dtype) => Ok(dtype),
            Value::None => Ok(default),
            _ => self.unlike(name, "a dtype"),
        }
    }

    /// The first argument, converted to the `dtype` that another argument asks for.
    ///
    /// # Errors
    /// Fails if the call has no such argument.
    pub fn input_as(&self, dtype: &str) -> Called<Tensor> {
        let input = self.input()?;
        Ok(input.to_dtype(self.dtype_or(dtype, input.dtype())?)?)
    }
}

/// Takes the keyword of this name out.
fn take(keywords: &mut Vec<(String, Value)>, name: &str) -> Option<Value> {
    let at = keywords.iter().position(|(n, _)| n == name)?;
    Some(keywords.remove(at).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &str = "input, dim=None, keepdim=False, *, dtype=None";

    fn bind(positional: &[i64], keywords: &[(&str, i64)]) -> Called<Call> {
        let positional = positional.iter().map(|&x| Value::Int(x)).collect();
        let keywords = keywords
            .iter()
            .map(|&(name, x)| (name.to_owned(), Value::Int(x)));
        Call::bind(SIGNATURE, positional, keywords.collect())
    }

    #[test]
    fn arguments_are_found_by_name_and_default() {
        let call = bind(&[7, 1], &[("keepdim", 1)]).unwrap();
        assert_eq!(call.int::<i64>("input").unwrap(), 7);
        assert_eq!(call.ints::<usize>("dim").unwrap(), [1]);
        assert!(call.bool("keepdim").unwrap() && !call.has("dtype"));
        let call = bind(&[7], &[("device", 0)]).unwrap();
        assert!(!call.bool("keepdim").unwrap() && !call.has("dim"));
        assert!(matches!(
            call.int::<i64>("other"),
            Err(CallError::Mistake(_))
        ));
        assert!(matches!(call.tensor("input"), Err(CallError::Missing(_))));
        let call = bind(&[-7], &[]).unwrap();
        assert!(matches!(
            call.int::<usize>("input"),
            Err(CallError::Untyped(_))
        ));
    }

    #[test]
    fn what_has_no_parameter_is_missing() {
        for call in [
            bind(&[], &[]),
            bind(&[1; 5], &[]),
            bind(&[1], &[("other", 2)]),
        ] {
            assert!(matches!(call, Err(CallError::Missing(_))));
        }
        assert!(matches!(
            bind(&[1], &[("out", 2)]),
            Err(CallError::Untyped(_))
        ));
        let call = bind(&[1], &[]).unwrap();
        assert!(call.only("keepdim", "False").is_ok());
        assert!(matches!(
            call.only("input", "2"),
            Err(CallError::Missing(_))
        ));
    }

    #[test]
    fn rests_are_lists() {
        let sizes = |values: Vec<Value>| {
            let call = Call::bind("input, *size", values, Vec::new()).unwrap();
            call.ints::<i64>("size").unwrap()
        };
        let ints = || vec![Value::Int(2), Value::Int(3)];
        assert_eq!(sizes([vec![Value::None], ints()].concat()), [2, 3]);
        assert_eq!(sizes(vec![Value::None, Value::Tuple(ints())]), [2, 3]);
        assert_eq!(sizes(vec![Value::None]), [0i64; 0]);
    }
}
