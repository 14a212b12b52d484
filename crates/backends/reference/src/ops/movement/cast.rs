use num_complex::Complex64;
use rustorch_ir::DType;
use rustorch_ir::ops::Cast;

use crate::Values;
use crate::operand::{Call, Misuse, Operand};

pub(crate) fn evaluate(op: &Cast, call: &Call) -> Result<Values, Misuse> {
    let x = &call.inputs[0];
    Ok(match op.dtype {
        DType::Bool => Values::Int(non_zero(&x.values)),
        d if d.is_float() || d.is_float8() => Values::Float(floats(x, d)).rounded(d),
        d if d.is_complex() => {
            let real = |re| Complex64::new(re, 0.0);
            let z = match &*x.values {
                Values::Complex(z) => z.clone(),
                _ => floats(x, d.real()).into_iter().map(real).collect(),
            };
            Values::Complex(z).rounded(d)
        }
        d => Values::Int(match &*x.values {
            // The program drops the upper bits.
            Values::Int(i) => i.clone(),
            _ => floats(x, DType::F64)
                .into_iter()
                .map(|v| saturate(v, d))
                .collect(),
        }),
    })
}

fn non_zero(values: &Values) -> Vec<i128> {
    let zero = Complex64::new(0.0, 0.0);
    match values {
        Values::Float(x) => x.iter().map(|&x| i128::from(x != 0.0)).collect(),
        Values::Int(x) => x.iter().map(|&x| i128::from(x != 0)).collect(),
        Values::Complex(x) => x.iter().map(|&x| i128::from(x != zero)).collect(),
        Values::Blocks(_) => unreachable!("inference admits no blocks as booleans"),
    }
}

/// The values as real numbers that are yet to be rounded to `dtype`.
fn floats(x: &Operand, dtype: DType) -> Vec<f64> {
    match (&*x.values, x.dtype()) {
        (Values::Float(x), _) => x.clone(),
        (Values::Int(x), _) if dtype == DType::F64 => x.iter().map(|&i| i as f64).collect(),
        (Values::Int(x), _) => x.iter().map(|&i| to_odd(i)).collect(),
        (Values::Complex(x), _) => x.iter().map(|z| z.re).collect(),
        (Values::Blocks(bytes), DType::Block(format)) => {
            let mut row = vec![0.0; x.shape().elements()];
            let whole = format.dequantize(bytes, &mut row);
            whole.expect("a graph's types are whole blocks");
            row.into_iter().map(f64::from).collect()
        }
        (Values::Blocks(_), other) => unreachable!("blocks as {other}"),
    }
}

/// An integer in double precision, for a second rounding to fewer digits with the result of a
/// single one. Lost bits leave an odd last bit.
fn to_odd(i: i128) -> f64 {
    if i.unsigned_abs() >> f64::MANTISSA_DIGITS == 0 {
        return i as f64;
    }
    let lost = u64::BITS - f64::MANTISSA_DIGITS;
    let odd = i128::from(i & ((1 << lost) - 1) != 0);
    (i >> lost | odd) as f64 * f64::from(1 << lost)
}

/// A number cut towards zero and to the range of the integer type `dtype`; 0 for NaN.
fn saturate(x: f64, dtype: DType) -> i128 {
    match dtype {
        DType::I32 => (x as i32).into(),
        DType::I16 => (x as i16).into(),
        DType::I8 => (x as i8).into(),
        DType::U8 => (x as u8).into(),
        DType::U16 => (x as u16).into(),
        DType::U32 => (x as u32).into(),
        DType::U64 => (x as u64).into(),
        _ => (x as i64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_rounded_once() {
        for i in [
            (1 << 60) + (1 << 36) + 1,
            (1 << 60) + (1 << 36),
            (1 << 60) + (1 << 36) - 1,
            -(1 << 60) - (1 << 36) - 1,
            (1 << 53) + 1,
            i64::MAX.into(),
            i64::MIN.into(),
            u64::MAX.into(),
            (1 << 63) + (1 << 39) + 1,
            -3,
        ] {
            assert_eq!(to_odd(i) as f32, i as f32, "{i}");
        }
    }
}
