use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

use rustorch_coreml::proto::mil::DataType;

use crate::arguments::Arguments;
use crate::tensor::{Data, Tensor, common};

pub(super) type Unary = fn(f64) -> f64;
pub(super) type Binary = fn(f64, f64) -> f64;
pub(super) type Comparison = fn(f64, f64) -> bool;
pub(super) type Logical = fn(bool, bool) -> bool;

/// Functions of one float.
pub(super) fn unary(kind: &str) -> Option<Unary> {
    Some(match kind {
        "abs" => f64::abs,
        "exp" => f64::exp,
        "exp2" => f64::exp2,
        "sqrt" => f64::sqrt,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tan" => f64::tan,
        "sinh" => f64::sinh,
        "cosh" => f64::cosh,
        "tanh" => f64::tanh,
        "asin" => f64::asin,
        "acos" => f64::acos,
        "atan" => f64::atan,
        "atanh" => libm::atanh,
        "erf" => libm::erf,
        "floor" => f64::floor,
        "ceil" => f64::ceil,
        "relu" => |x| maximum(x, 0.0),
        "sigmoid" => sigmoid,
        "silu" => |x| x * sigmoid(x),
        _ => return None,
    })
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Functions of two floats.
pub(super) fn binary(kind: &str) -> Option<Binary> {
    Some(match kind {
        "add" => |x, y| x + y,
        "sub" => |x, y| x - y,
        "mul" => |x, y| x * y,
        "real_div" => |x, y| x / y,
        "pow" => f64::powf,
        "maximum" => maximum,
        "minimum" => |x, y| -maximum(-x, -y),
        _ => return None,
    })
}

/// NumPy's: NaN where one is NaN.
pub(super) fn maximum(x: f64, y: f64) -> f64 {
    if x.is_nan() || x > y { x } else { y }
}

/// Comparisons of two numbers.
pub(super) fn comparison(kind: &str) -> Option<Comparison> {
    Some(match kind {
        "equal" => |x, y| x == y,
        "not_equal" => |x, y| x != y,
        "less" => |x, y| x < y,
        "less_equal" => |x, y| x <= y,
        "greater" => |x, y| x > y,
        "greater_equal" => |x, y| x >= y,
        _ => return None,
    })
}

/// Functions of two booleans.
pub(super) fn logical(kind: &str) -> Option<Logical> {
    Some(match kind {
        "logical_and" => |x, y| x & y,
        "logical_or" => |x, y| x | y,
        "logical_xor" => |x, y| x ^ y,
        _ => return None,
    })
}

pub(super) fn map(args: &Arguments, f: impl Fn(f64) -> f64) -> Result<Tensor, String> {
    let x = args.get("x")?;
    let y = x.as_floats()?.iter().map(|&x| f(x)).collect();
    Ok(Tensor::floats(x.data_type, &x.shape, y))
}

/// Two operands of one type, broadcast against each other.
fn both(args: &Arguments) -> Result<(Tensor, Tensor), String> {
    let (x, y) = (args.get("x")?, args.get("y")?);
    if x.data_type != y.data_type {
        return Err(format!("{:?} with {:?}", x.data_type, y.data_type));
    }
    let shape = common(&x.shape, &y.shape)?;
    Ok((x.broadcast(&shape)?, y.broadcast(&shape)?))
}

/// Sums, differences and the like of integers are computed in double precision. This holds as long as
/// 32 bits hold the result. Apple leaves other results open. So are quotients and powers.
pub(super) fn zip(args: &Arguments, kind: &str, f: Binary) -> Result<Tensor, String> {
    let (x, y) = both(args)?;
    if x.data_type != DataType::Int32 {
        let pairs = x.as_floats()?.iter().zip(y.as_floats()?);
        let z = pairs.map(|(&x, &y)| f(x, y)).collect();
        return Ok(Tensor::floats(x.data_type, &x.shape, z));
    }
    if !matches!(kind, "add" | "sub" | "mul" | "maximum" | "minimum") {
        return Err(format!("{kind} of integers"));
    }
    let pairs = x.as_ints()?.iter().zip(y.as_ints()?);
    let z = pairs.map(|(&x, &y)| f(x as f64, y as f64) as i64);
    let z: Vec<i64> = z.collect();
    match z.iter().find(|z| i32::try_from(**z).is_err()) {
        Some(large) => Err(format!("{kind} gives {large}, of more than 32 bits")),
        None => Ok(Tensor::ints(x.data_type, &x.shape, z)),
    }
}

pub(super) fn compare(args: &Arguments, f: Comparison) -> Result<Tensor, String> {
    let (x, y) = both(args)?;
    let z = match (&x.data, &y.data) {
        (Data::Int(a), Data::Int(b)) => {
            let pairs = a.iter().zip(b);
            pairs.map(|(&x, &y)| f(x as f64, y as f64).into()).collect()
        }
        _ => {
            let pairs = x.as_floats()?.iter().zip(y.as_floats()?);
            pairs.map(|(&x, &y)| f(x, y).into()).collect()
        }
    };
    Ok(Tensor::ints(DataType::Bool, &x.shape, z))
}

pub(super) fn combine(args: &Arguments, f: Logical) -> Result<Tensor, String> {
    let (x, y) = both(args)?;
    let pairs = bools(&x)?.iter().zip(bools(&y)?);
    let z = pairs.map(|(&x, &y)| f(x != 0, y != 0).into()).collect();
    Ok(Tensor::ints(DataType::Bool, &x.shape, z))
}

fn bools(x: &Tensor) -> Result<&[i64], String> {
    match x.data_type {
        DataType::Bool => x.as_ints(),
        other => Err(format!("booleans expected, not {other:?}")),
    }
}

pub(super) fn not(args: &Arguments) -> Result<Tensor, String> {
    let x = args.get("x")?;
    let y = bools(x)?.iter().map(|&x| 1 - x).collect();
    Ok(Tensor::ints(DataType::Bool, &x.shape, y))
}

/// `ln(x + epsilon)`.
pub(super) fn log(args: &Arguments) -> Result<Tensor, String> {
    let epsilon = args.number("epsilon", 1e-45)?;
    map(args, |x| (x + epsilon).ln())
}

pub(super) fn gelu(args: &Arguments) -> Result<Tensor, String> {
    match args.text("mode")? {
        "EXACT" => map(args, |x| 0.5 * x * (1.0 + libm::erf(x * FRAC_1_SQRT_2))),
        "TANH_APPROXIMATION" => map(args, |x| {
            let inner = FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }),
        other => Err(format!("mode {other:?}")),
    }
}

pub(super) fn cast(args: &Arguments) -> Result<Tensor, String> {
    let x = args.get("x")?;
    let data_type = match args.text("dtype")? {
        "fp16" => DataType::Float16,
        "fp32" => DataType::Float32,
        "int32" => DataType::Int32,
        "bool" => DataType::Bool,
        other => return Err(format!("dtype {other:?}")),
    };
    match (&x.data, data_type) {
        (Data::Float(values), DataType::Float16 | DataType::Float32) => {
            Ok(Tensor::floats(data_type, &x.shape, values.clone()))
        }
        (Data::Int(values), DataType::Float16 | DataType::Float32) => {
            let values = values.iter().map(|&x| x as f64).collect();
            Ok(Tensor::floats(data_type, &x.shape, values))
        }
        (Data::Int(values), DataType::Int32) => {
            Ok(Tensor::ints(data_type, &x.shape, values.clone()))
        }
        (Data::Int(values), DataType::Bool) => {
            let values = values.iter().map(|&x| (x != 0).into()).collect();
            Ok(Tensor::ints(data_type, &x.shape, values))
        }
        _ => Err("floats to integers: Apple leaves open what does not fit".to_owned()),
    }
}

pub(super) fn select(args: &Arguments) -> Result<Tensor, String> {
    let (condition, a, b) = (args.get("cond")?, args.get("a")?, args.get("b")?);
    if a.data_type != b.data_type {
        return Err(format!("{:?} or {:?}", a.data_type, b.data_type));
    }
    let shape = common(&common(&condition.shape, &a.shape)?, &b.shape)?;
    let [condition, a, b] = [condition, a, b].map(|x| x.broadcast(&shape));
    let (condition, a, b) = (condition?, a?, b?);
    let chosen = bools(&condition)?;
    let data = match (&a.data, &b.data) {
        (Data::Float(a), Data::Float(b)) => Data::Float(choose(chosen, a, b)),
        (Data::Int(a), Data::Int(b)) => Data::Int(choose(chosen, a, b)),
        _ => return Err("no elements to select".to_owned()),
    };
    Ok(Tensor { data, ..a })
}

fn choose<T: Copy>(condition: &[i64], a: &[T], b: &[T]) -> Vec<T> {
    let choices = condition.iter().zip(a.iter().zip(b));
    let choose = |(&c, (&a, &b))| if c != 0 { a } else { b };
    choices.map(choose).collect()
}
