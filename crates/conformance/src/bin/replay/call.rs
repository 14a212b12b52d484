//! A call: arguments by the names that a signature gives them.

use rustorch_ir::{DType, Scalar};
use rustorch_tensor::{Dims, IntoDims, Operand, RusTorchError, Tensor};

use crate::value::{Output, Value};

/// Why a call gave no result.
#[derive(Debug)]
pub(crate) enum Stop {
    /// RusTorch refused it, or failed.
    Refused(RusTorchError),
    /// There is no such function here, or none that takes this argument.
    Missing(String),
    /// The type of the parameter has no such value, such as a negative size.
    Untyped(String),
    /// The registry is wrong.
    Mistake(String),
}

impl From<RusTorchError> for Stop {
    fn from(e: RusTorchError) -> Self {
        Self::Refused(e)
    }
}

/// The result of looking at arguments.
pub(crate) type Found<T> = Result<T, Stop>;

/// What is not implemented.
pub(crate) fn missing<T>(what: impl ToString) -> Found<T> {
    Err(Stop::Missing(what.to_string()))
}

/// What the type of a parameter has no value for.
pub(crate) fn untyped<T>(what: impl ToString) -> Found<T> {
    Err(Stop::Untyped(what.to_string()))
}

/// A function of the registry.
pub(crate) struct Entry {
    /// The name that the original has, with its variant behind a point where only that is meant.
    pub(crate) name: &'static str,
    /// The original's parameters, separated by comma and space: `input, dim=None, *, out=None`.
    /// `*dims` takes all the rest, or the parts of a list.
    pub(crate) signature: &'static str,
    /// Calls RusTorch.
    pub(crate) call: fn(&Call) -> Found<Output>,
}

/// A table of functions. A line of it is a name, the parameters, and the call.
macro_rules! table {
    ($($name:expr, $signature:expr, |$c:ident| $call:expr;)*) => {
        pub(super) const TABLE: &[crate::call::Entry] = &[$(crate::call::Entry {
            name: $name,
            signature: $signature,
            call: |$c| Ok(crate::value::Output::from($call)),
        }),*];
    };
}

/// Keywords that say where, not what: a call is on the device that is replayed on.
const PLACES: [&str; 4] = ["device", "layout", "pin_memory", "requires_grad"];

/// Arguments by their names.
pub(crate) struct Call {
    arguments: Vec<(&'static str, Value)>,
    /// How many results are wanted, where a call says that.
    pub(crate) results: usize,
}

impl Call {
    /// Gives arguments the names of a signature.
    pub(crate) fn bind(
        signature: &'static str,
        positional: Vec<Value>,
        mut keywords: Vec<(String, Value)>,
    ) -> Found<Self> {
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
    pub(crate) fn value(&self, name: &str) -> Found<&Value> {
        let found = self.arguments.iter().find(|(n, _)| *n == name);
        let mistake = || Stop::Mistake(format!("the signature has no {name}"));
        found.map(|(_, value)| value).ok_or_else(mistake)
    }

    /// Was it given, and not `None`?
    pub(crate) fn has(&self, name: &str) -> bool {
        !matches!(self.value(name), Ok(Value::None) | Err(_))
    }

    /// Stops unless an argument that RusTorch has no parameter for was left out, or says what
    /// leaving it out says.
    pub(crate) fn only(&self, name: &'static str, value: &str) -> Found<()> {
        match self.value(name)? {
            given if given.is(&Value::of_default(value)) => Ok(()),
            given => missing(format!("{name}={given}")),
        }
    }

    fn unlike<T>(&self, name: &str) -> Found<T> {
        let value = self.value(name)?;
        missing(format!("{name}={value}"))
    }

    /// A copy of the input, which may be written over although the input is a leaf that wants a gradient.
    pub(crate) fn copied(&self) -> Found<Tensor> {
        let input = self.input()?;
        let mut copy = input.empty_like()?;
        Ok(copy.copy_(input)?.clone())
    }

    /// The first argument, a tensor.
    pub(crate) fn input(&self) -> Found<&Tensor> {
        match self.arguments.first() {
            Some((name, _)) => self.tensor(name),
            None => Err(Stop::Mistake("the signature is empty".into())),
        }
    }

    pub(crate) fn tensor(&self, name: &str) -> Found<&Tensor> {
        match self.value(name)? {
            Value::Tensor(tensor) => Ok(tensor),
            _ => self.unlike(name),
        }
    }

    /// A tensor, or nothing.
    pub(crate) fn optional(&self, name: &str) -> Found<Option<&Tensor>> {
        match self.has(name) {
            true => self.tensor(name).map(Some),
            false => Ok(None),
        }
    }

    pub(crate) fn tensors<'a>(&'a self, name: &str) -> Found<Vec<&'a Tensor>> {
        let tensor = |value: &'a Value| match value {
            Value::Tensor(tensor) => Ok(tensor),
            _ => self.unlike(name),
        };
        match self.value(name)?.parts() {
            Some(parts) => parts.iter().map(tensor).collect(),
            None => self.unlike(name),
        }
    }

    /// A tensor or a number.
    pub(crate) fn operand(&self, name: &str) -> Found<Operand<'_>> {
        match self.value(name)? {
            Value::Tensor(tensor) => Ok(tensor.into()),
            _ => Ok(Operand::Scalar(self.scalar(name)?)),
        }
    }

    /// A number.
    pub(crate) fn scalar(&self, name: &str) -> Found<Scalar> {
        match *self.value(name)? {
            Value::Bool(x) => Ok(x.into()),
            Value::Int(x) => Ok(x.into()),
            Value::Float(x) => Ok(x.into()),
            Value::Complex(re, im) => Ok(Scalar::Complex(re.into(), im.into())),
            _ => self.unlike(name),
        }
    }

    pub(crate) fn bool(&self, name: &str) -> Found<bool> {
        match *self.value(name)? {
            Value::Bool(x) => Ok(x),
            Value::Int(x) => Ok(x != 0),
            _ => self.unlike(name),
        }
    }

    /// A real number.
    pub(crate) fn float(&self, name: &str) -> Found<f64> {
        match *self.value(name)? {
            Value::Float(x) => Ok(x),
            Value::Int(x) => Ok(x as f64),
            Value::Bool(x) => Ok(f64::from(u8::from(x))),
            Value::Tensor(ref tensor) => Ok(tensor.to_dtype(DType::F64)?.to_scalar()?),
            _ => self.unlike(name),
        }
    }

    /// A whole number, of any type that holds it.
    pub(crate) fn int<T: TryFrom<i64>>(&self, name: &str) -> Found<T> {
        self.int_of(name, self.value(name)?)
    }

    fn int_of<T: TryFrom<i64>>(&self, name: &str, value: &Value) -> Found<T> {
        match *value {
            Value::Tensor(ref tensor) if tensor.numel() == 1 => {
                self.int_of(name, &Value::Int(tensor.to_dtype(DType::I64)?.to_scalar()?))
            }
            Value::Int(x) => T::try_from(x).map_err(|_| Stop::Untyped(format!("{name}={x}"))),
            _ => self.unlike(name),
        }
    }

    /// A whole number, or nothing.
    pub(crate) fn maybe_int<T: TryFrom<i64>>(&self, name: &str) -> Found<Option<T>> {
        match self.has(name) {
            true => self.int(name).map(Some),
            false => Ok(None),
        }
    }

    /// A real number, or nothing.
    pub(crate) fn maybe_float(&self, name: &str) -> Found<Option<f64>> {
        match self.has(name) {
            true => self.float(name).map(Some),
            false => Ok(None),
        }
    }

    /// A list of whole numbers; a single one is a list of one.
    pub(crate) fn ints<T: TryFrom<i64>>(&self, name: &str) -> Found<Vec<T>> {
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
    pub(crate) fn floats(&self, name: &str) -> Found<Vec<f64>> {
        let float = |value: &Value| match *value {
            Value::Float(x) => Ok(x),
            Value::Int(x) => Ok(x as f64),
            _ => self.unlike(name),
        };
        match self.value(name)? {
            value @ (Value::Float(_) | Value::Int(_)) => Ok(vec![float(value)?]),
            value => match value.parts() {
                Some(parts) => parts.iter().map(float).collect(),
                None => self.unlike(name),
            },
        }
    }

    /// `N` whole numbers, or one that stands for all.
    pub(crate) fn each<const N: usize>(&self, name: &str) -> Found<[usize; N]> {
        let numbers: Vec<usize> = self.ints(name)?;
        match numbers[..] {
            [one] => Ok([one; N]),
            _ => <[usize; N]>::try_from(numbers).or_else(|_| self.unlike(name)),
        }
    }

    /// Dimensions: one, several, or all (`None`).
    pub(crate) fn dims(&self, name: &str) -> Found<Dims> {
        match self.value(name)? {
            Value::None => Ok(None.into_dims()),
            _ => Ok(self.ints::<isize>(name)?.into_dims()),
        }
    }

    /// Dimensions of a reduction, of which an empty list means all, too.
    pub(crate) fn dims_or_all(&self, name: &str) -> Found<Dims> {
        match self.value(name)?.parts() {
            Some([]) => Ok(None.into_dims()),
            _ => self.dims(name),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Found<&str> {
        match self.value(name)? {
            Value::Text(text) => Ok(text),
            _ => self.unlike(name),
        }
    }

    /// A dtype, or what it is where none is given.
    pub(crate) fn dtype_or(&self, name: &str, default: DType) -> Found<DType> {
        match *self.value(name)? {
            Value::DType(dtype) => Ok(dtype),
            Value::None => Ok(default),
            _ => self.unlike(name),
        }
    }

    /// The first argument, converted to the `dtype` that another argument asks for.
    pub(crate) fn input_as(&self, dtype: &str) -> Found<Tensor> {
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

    fn bind(positional: &[i64], keywords: &[(&str, i64)]) -> Found<Call> {
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
        assert!(matches!(call.int::<i64>("other"), Err(Stop::Mistake(_))));
        assert!(matches!(call.tensor("input"), Err(Stop::Missing(_))));
        let call = bind(&[-7], &[]).unwrap();
        assert!(matches!(call.int::<usize>("input"), Err(Stop::Untyped(_))));
    }

    #[test]
    fn what_has_no_parameter_is_missing() {
        for call in [
            bind(&[], &[]),
            bind(&[1; 5], &[]),
            bind(&[1], &[("other", 2)]),
        ] {
            assert!(matches!(call, Err(Stop::Missing(_))));
        }
        assert!(matches!(bind(&[1], &[("out", 2)]), Err(Stop::Untyped(_))));
        let call = bind(&[1], &[]).unwrap();
        assert!(call.only("keepdim", "False").is_ok());
        assert!(matches!(call.only("input", "2"), Err(Stop::Missing(_))));
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
