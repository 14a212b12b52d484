//! Results that are unique up to signs, phases or order: their products are compared.

use num_complex::Complex64;
use rustorch_dispatch::Output;
use rustorch_ir::DType;
use rustorch_tensor::linalg::inv;
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::replay::compare::{Elements, Expected, How};

/// Fails with a description of the first difference between the products of the factors of `name` and
/// the expected ones.
pub(crate) fn compare(name: &str, expected: &Expected, got: &Output) -> Result<(), String> {
    expected.compare(got, How::ShapeOnly)?;
    let (Expected::List(parts), Output::List(results)) = (expected, got) else {
        return expected.compare(got, How::Close);
    };
    let (mut bounds, mut wanted) = ((0.0, 0.0), Vec::new());
    for part in parts {
        let Expected::Tensor {
            shape,
            elements,
            rtol,
            atol,
            ..
        } = part
        else {
            return Err("a factor that is not a tensor".to_owned());
        };
        bounds = (*rtol, *atol);
        wanted.push(tensor(elements, shape).map_err(|e| e.to_string())?);
    }
    let found: Vec<Tensor> = (results.iter())
        .filter_map(|result| match result {
            Output::Tensor(tensor) => Some(tensor.to_dtype(DType::Complex128)),
            _ => None,
        })
        .collect::<RusTorchResult<_>>()
        .map_err(|e| e.to_string())?;
    let wanted = wholes(name, &wanted).map_err(|e| e.to_string())?;
    let found = wholes(name, &found).map_err(|e| e.to_string())?;
    for (i, (wanted, found)) in wanted.iter().zip(found).enumerate() {
        let whole = Expected::Tensor {
            dtype: wanted.dtype(),
            shape: wanted.shape().to_vec(),
            elements: Elements::of(wanted)?,
            truth: None,
            rtol: bounds.0,
            atol: bounds.1,
        };
        let named = |e| format!("what the factors stand for ({i}): {e}");
        whole
            .compare(&Output::Tensor(found), How::Close)
            .map_err(named)?;
    }
    Ok(())
}

fn tensor(elements: &Elements, shape: &[usize]) -> RusTorchResult<Tensor> {
    Tensor::from_slice::<Complex64>(&elements.as_complex(), shape)
}

/// Products of factors: with values, the matrix that they were made of; without, their moduli.
fn wholes(name: &str, factors: &[Tensor]) -> RusTorchResult<Vec<Tensor>> {
    let adjoint = |x: &Tensor| x.transpose(-2, -1)?.conj();
    let columns = |x: &Tensor, k: usize| x.narrow(-1, 0, k);
    match (name, factors) {
        ("linalg.qr" | "qr", [q, r]) if q.rank() == r.rank() => {
            Ok(vec![q.matmul(r)?, adjoint(q)?.matmul(q)?])
        }
        ("svd", [u, s, v]) => {
            let k = s.shape()[s.rank() - 1];
            let scaled = columns(u, k)?.mul(&s.unsqueeze(-2)?)?;
            Ok(vec![s.clone(), scaled.matmul(&adjoint(&columns(v, k)?)?)?])
        }
        ("linalg.svd", [u, s, vh]) => wholes("svd", &[u.clone(), s.clone(), adjoint(vh)?]),
        ("linalg.eigh", [w, v]) => {
            let whole = v.mul(&w.unsqueeze(-2)?)?.matmul(&adjoint(v)?)?;
            Ok(vec![w.clone(), whole])
        }
        ("linalg.eig", [w, v]) => Ok(vec![v.mul(&w.unsqueeze(-2)?)?.matmul(&inv(v)?)?]),
        (_, factors) => factors.iter().map(Tensor::abs).collect(),
    }
}
