//! Linear algebra against known values and its own definitions.

use rustorch_ir::DType;
use rustorch_tensor::autograd::{grad, grad_with};
use rustorch_tensor::linalg::{self, MatrixNorm, QrMode, Tolerance};
use rustorch_tensor::{GradOptions, RusTorchResult, Tensor, tensor};

use crate::Outcome;

#[track_caller]
fn close(a: &Tensor, b: &Tensor) -> Outcome {
    assert_eq!(a.shape(), b.shape());
    assert!(a.allclose(b, 1e-5, 1e-5)?, "{a} is not {b}");
    Ok(())
}

/// Square matrices that are far from singular, of a batch.
fn matrices(n: usize, dtype: DType) -> RusTorchResult<Tensor> {
    let noise = Tensor::randn_seeded([2, 3, n, n], dtype, n as u64)?;
    noise.mul(0.3)?.add(&Tensor::eye(n, dtype)?.mul(2)?)
}

const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::Complex64, DType::Complex128];

#[test]
fn factors_give_the_matrix_back() -> Outcome {
    for dtype in DTYPES {
        let a = matrices(4, dtype)?;
        let (q, r) = linalg::qr(&a, QrMode::Reduced)?;
        close(&q.matmul(&r)?, &a)?;
        let (u, s, vh) = linalg::svd(&a, false)?;
        close(&u.mul(&s.unsqueeze(-2)?)?.matmul(&vh)?, &a)?;
        close(&linalg::svdvals(&a)?, &s)?;
        let (p, l, upper) = linalg::lu(&a)?;
        close(&p.matmul(&l)?.matmul(&upper)?, &a)?;
        let square = a.matmul(&a.transpose(-2, -1)?.conj()?)?;
        for upper in [false, true] {
            let factor = linalg::cholesky(&square, upper)?;
            let other = factor.transpose(-2, -1)?.conj()?;
            let product = if upper {
                other.matmul(&factor)?
            } else {
                factor.matmul(&other)?
            };
            close(&product, &square)?;
            close(
                &square.cholesky_solve(&factor, upper)?,
                &Tensor::eye(4, dtype)?.expand(a.shape())?,
            )?;
            let (w, v) = linalg::eigh(&square, upper)?;
            close(&square.matmul(&v)?, &v.mul(&w.unsqueeze(-2)?)?)?;
        }
        let (w, v) = linalg::eig(&a)?;
        close(
            &a.to_dtype(w.dtype())?.matmul(&v)?,
            &v.mul(&w.unsqueeze(-2)?)?,
        )?;
        let (reflections, tau) = a.geqrf()?;
        close(&linalg::householder_product(&reflections, &tau)?, &q)?;
        for (left, transpose) in [(true, false), (true, true), (false, false), (false, true)] {
            let turned = if transpose {
                q.transpose(-2, -1)?.conj()?
            } else {
                q.clone()
            };
            let expected = if left {
                turned.matmul(&a)?
            } else {
                a.matmul(&turned)?
            };
            close(&reflections.ormqr(&tau, &a, left, transpose)?, &expected)?;
        }
    }
    Ok(())
}

#[test]
fn what_is_solved_fits() -> Outcome {
    for dtype in DTYPES {
        let a = matrices(4, dtype)?;
        let b = Tensor::randn_seeded([3, 4, 2], dtype, 7)?;
        let wide = b.transpose(-2, -1)?;
        let whole = b.expand([2, 3, 4, 2])?;
        close(&a.matmul(&linalg::solve(&a, &b, true)?)?, &whole)?;
        close(
            &linalg::solve(&a, &wide, false)?.matmul(&a)?,
            &wide.expand([2, 3, 2, 4])?,
        )?;
        let vector = Tensor::randn_seeded([2, 3, 4], dtype, 8)?;
        let x = linalg::solve(&a, &vector, true)?;
        close(&a.matmul(&x.unsqueeze(-1)?)?.squeeze(-1)?, &vector)?;
        close(
            &linalg::inv(&a)?.matmul(&a)?,
            &Tensor::eye(4, dtype)?.expand(a.shape())?,
        )?;
        let (lu, pivots) = linalg::lu_factor(&a)?;
        let adjoint = a.transpose(-2, -1)?.conj()?;
        close(
            &a.matmul(&linalg::lu_solve(&lu, &pivots, &whole, true, false)?)?,
            &whole,
        )?;
        close(
            &adjoint.matmul(&linalg::lu_solve(&lu, &pivots, &whole, true, true)?)?,
            &whole,
        )?;
        let wide = whole.transpose(-2, -1)?.contiguous()?;
        close(
            &linalg::lu_solve(&lu, &pivots, &wide, false, false)?.matmul(&a)?,
            &wide,
        )?;
        close(
            &linalg::lu_solve(&lu, &pivots, &wide, false, true)?.matmul(&adjoint)?,
            &wide,
        )?;
        let tall = Tensor::randn_seeded([5, 3], dtype, 9)?;
        let right = Tensor::randn_seeded([5, 2], dtype, 10)?;
        let found = linalg::lstsq(&tall, &right)?;
        close(
            &found.solution,
            &linalg::pinv(&tall, &Tolerance::default())?.matmul(&right)?,
        )?;
        assert_eq!(found.rank.to_scalar::<i64>()?, 3);
        assert_eq!(found.residuals.shape(), [2]);
    }
    Ok(())
}

#[test]
fn determinants_powers_and_exponentials() -> Outcome {
    let a = tensor![[0.0, 2.0], [3.0, 4.0]];
    assert_eq!(linalg::det(&a)?.to_scalar::<f32>()?, -6.0);
    let (sign, log) = linalg::slogdet(&a)?;
    assert_eq!(sign.to_scalar::<f32>()?, -1.0);
    assert!((log.to_scalar::<f32>()? - 6f32.ln()).abs() < 1e-6);
    assert!(a.logdet()?.to_scalar::<f32>()?.is_nan());
    close(&linalg::matrix_power(&a, 3)?, &a.matmul(&a)?.matmul(&a)?)?;
    close(
        &linalg::matrix_power(&a, -2)?.matmul(&a)?.matmul(&a)?,
        &Tensor::eye(2, DType::F32)?,
    )?;
    close(&linalg::matrix_power(&a, 0)?, &Tensor::eye(2, DType::F32)?)?;
    let turn = tensor![[0.0, -1.0], [1.0, 0.0]];
    let (sin, cos) = 1f32.sin_cos();
    close(
        &linalg::matrix_exp(&turn)?,
        &Tensor::from_slice(&[cos, -sin, sin, cos], [2, 2])?,
    )?;
    assert_eq!(
        linalg::det(&Tensor::zeros([0, 0], DType::F32)?)?.to_scalar::<f32>()?,
        1.0
    );
    Ok(())
}

/// Singular matrices with their adjugates, transposed, which are the gradients of their determinants.
fn singular(dtype: DType) -> RusTorchResult<Vec<[Tensor; 2]>> {
    let given = [
        (tensor![[1., 2.], [2., 4.]], tensor![[4., -2.], [-2., 1.]]),
        (tensor![[0., 0.], [0., 1.]], tensor![[1., 0.], [0., 0.]]),
        (tensor![[0., 1.], [0., 0.]], tensor![[0., 0.], [-1., 0.]]),
        (tensor![[0., 0.], [0., 0.]], tensor![[0., 0.], [0., 0.]]),
        (tensor![[0.]], tensor![[1.]]),
        // Rank 2 of 3.
        (
            tensor![[1., 2., 3.], [4., 5., 6.], [7., 8., 9.]],
            tensor![[-3., 6., -3.], [6., -12., 6.], [-3., 6., -3.]],
        ),
        (
            tensor![[1., 0., 2.], [3., 0., 4.], [5., 0., 7.]],
            tensor![[0., -1., 0.], [0., -3., 0.], [0., 2., 0.]],
        ),
        // Rank 1 of 3.
        (
            Tensor::full([3, 3], 7.0, DType::F32)?,
            Tensor::zeros([3, 3], DType::F32)?,
        ),
    ];
    let of = |(a, adjugate): (Tensor, Tensor)| Ok([a.to_dtype(dtype)?, adjugate.to_dtype(dtype)?]);
    given.into_iter().map(of).collect()
}

fn leaf(a: &Tensor) -> RusTorchResult<Tensor> {
    let mut a = a.detach();
    a.requires_grad_(true)?;
    Ok(a)
}

/// A number of a real or a complex tensor, which can be differentiated.
fn number(x: &Tensor) -> RusTorchResult<Tensor> {
    match x.dtype().is_complex() {
        true => x.real()?.sum_all(),
        false => x.sum_all(),
    }
}

#[test]
fn determinants_of_singular_matrices() -> Outcome {
    for dtype in DTYPES {
        for [a, adjugate] in singular(dtype)? {
            let a = leaf(&a)?;
            let det = linalg::det(&a)?;
            close(&det, &Tensor::zeros([], dtype)?)?;
            close(&grad(&[&number(&det)?], &[&a])?[0], &adjugate)?;
            let (p, l, u) = linalg::lu(&a)?;
            close(&p.matmul(&l)?.matmul(&u)?, &a)?;
        }
        let sevens = Tensor::full([2, 3, 3], 7.0, dtype)?;
        let (sign, log) = linalg::slogdet(&sevens)?;
        assert_eq!(sign.abs()?.to_dtype(DType::F64)?.to_vec::<f64>()?, [0.0; 2]);
        assert_eq!(
            log.to_dtype(DType::F64)?.to_vec::<f64>()?,
            [f64::NEG_INFINITY; 2]
        );
        let log = sevens.logdet()?;
        let log = if dtype.is_complex() { log.real()? } else { log };
        assert_eq!(
            log.to_dtype(DType::F64)?.to_vec::<f64>()?,
            [f64::NEG_INFINITY; 2]
        );
        let (_, pivots, info) = linalg::lu_factor_ex(&sevens, false)?;
        assert_eq!(info.to_vec::<i32>()?, [2; 2]);
        assert_eq!(pivots.to_vec::<i32>()?, [1, 2, 3, 1, 2, 3]);
        assert!(linalg::lu_factor(&sevens)?.0.eval().is_err());
        assert!(linalg::inv(&sevens)?.eval().is_err());
        assert!(linalg::solve(&sevens, &sevens, true)?.eval().is_err());
    }
    Ok(())
}

#[test]
fn a_singular_matrix_of_a_batch_leaves_the_others() -> Outcome {
    for dtype in DTYPES {
        let [one, two] =
            [0, 1].map(|i| -> RusTorchResult<Tensor> { matrices(2, dtype)?.i(i)?.i(0) });
        let (one, two) = (one?, two?);
        let singular = &singular(dtype)?[0];
        let a = leaf(&Tensor::stack(&[&one, &singular[0], &two], 0)?)?;
        let weights = tensor![2., 3., -1.].to_dtype(dtype)?;
        let loss = number(&linalg::det(&a)?.mul(&weights)?)?;
        let found = grad(&[&loss], &[&a])?;
        let regular = |a: &Tensor, weight: f64| {
            let cofactors = linalg::inv(a)?.transpose(-2, -1)?.mul(&linalg::det(a)?)?;
            cofactors.conj()?.mul(weight)
        };
        let wanted = [
            regular(&one, 2.0)?,
            singular[1].mul(3.0)?,
            regular(&two, -1.0)?,
        ];
        close(&found[0], &Tensor::stack(&wanted.each_ref(), 0)?)?;
    }
    Ok(())
}

/// The second derivatives of a determinant of rank 1 of 3, where PyTorch's are NaN: those of a polynomial, whose
/// first ones are 0.
#[test]
fn second_derivatives_of_singular_determinants() -> Outcome {
    for dtype in DTYPES {
        let a = leaf(&tensor![[2., 0., 0.], [0., 0., 0.], [0., 0., 0.]].to_dtype(dtype)?)?;
        let once = GradOptions::default().create_graph(true);
        let first = grad_with(&[&number(&linalg::det(&a)?)?], &[&a], &once)?.remove(0);
        let first = first.expect("it depends on the matrix");
        close(&first, &Tensor::zeros([3, 3], dtype)?)?;
        // Twice the determinant of the last two rows and columns.
        let weights = tensor![[0., 0., 0.], [0., 3., 4.], [0., 5., 6.]].to_dtype(dtype)?;
        let second = grad(&[&number(&first.mul(&weights)?)?], &[&a])?;
        let wanted = tensor![[0., 0., 0.], [0., 12., -10.], [0., -8., 6.]];
        close(&second[0], &wanted.to_dtype(dtype)?)?;
    }
    Ok(())
}

/// Minors do not overflow where the determinant does not, nor become 0.
#[test]
fn determinants_of_huge_and_tiny_numbers() -> Outcome {
    for (dtype, scale) in [
        (DType::F32, 1e-30),
        (DType::F64, 1e-200),
        (DType::F64, 1e200),
    ] {
        let a = leaf(&Tensor::eye(2, dtype)?.mul(scale)?)?;
        let found = grad(&[&linalg::det(&a)?], &[&a])?;
        assert!(found[0].allclose(&a, 1e-6, 0.0)?);
    }
    // Pivots of 100, then as many of 1/100.
    let sizes = Tensor::cat(
        &[
            &Tensor::full([40], 100.0, DType::F32)?,
            &Tensor::full([40], 0.01, DType::F32)?,
        ],
        0,
    )?;
    for sizes in [sizes.clone(), sizes.flip([0])?] {
        let a = leaf(&sizes.diag(0)?)?;
        let log = linalg::slogdet(&a)?.1;
        assert!(log.to_scalar::<f32>()?.abs() < 1e-3);
        close(&grad(&[&log], &[&a])?[0], &sizes.reciprocal()?.diag(0)?)?;
    }
    Ok(())
}

/// `−1` has the logarithm `πi`, not `−πi`.
#[test]
fn logarithms_of_negative_determinants() -> Outcome {
    let a = tensor![[0., 1.], [1., 0.]].to_dtype(DType::Complex64)?;
    assert!((a.logdet()?.imag()?.to_scalar::<f32>()? - std::f32::consts::PI).abs() < 1e-6);
    Ok(())
}

#[test]
fn conditions_of_singular_matrices() -> Outcome {
    let a = tensor![[[1., 2.], [2., 4.]], [[2., 0.], [0., 2.]]];
    for ord in [
        MatrixNorm::Nuclear,
        MatrixNorm::Frobenius,
        MatrixNorm::P(1.0),
        MatrixNorm::P(f64::INFINITY),
    ] {
        let found = linalg::cond(&a, ord)?.to_vec::<f32>()?;
        assert_eq!(found[0], f32::INFINITY, "{ord:?}");
        assert!((1.0..4.1).contains(&found[1]), "{ord:?}");
    }
    let none = Tensor::zeros([2, 0, 0], DType::F32)?;
    for ord in [MatrixNorm::Nuclear, MatrixNorm::P(-1.0), MatrixNorm::P(2.0)] {
        assert_eq!(
            linalg::cond(&none, ord)?.to_vec::<f32>()?,
            [0.0; 2],
            "{ord:?}"
        );
    }
    Ok(())
}

#[test]
fn norms_ranks_and_conditions() -> Outcome {
    let a = tensor![[3.0, 0.0], [0.0, -4.0]];
    let norm = |ord| linalg::matrix_norm(&a, ord, [-2, -1], false)?.to_scalar::<f32>();
    assert_eq!(norm(MatrixNorm::Frobenius)?, 5.0);
    assert!((norm(MatrixNorm::Nuclear)? - 7.0).abs() < 1e-6);
    for (p, expected) in [
        (1.0, 4.0),
        (-1.0, 3.0),
        (2.0, 4.0),
        (-2.0, 3.0),
        (f64::INFINITY, 4.0),
    ] {
        assert!((norm(MatrixNorm::P(p))? - expected).abs() < 1e-6);
    }
    assert!(linalg::matrix_norm(&a, MatrixNorm::P(3.0), [-2, -1], false).is_err());
    assert!((linalg::cond(&a, MatrixNorm::P(2.0))?.to_scalar::<f32>()? - 4.0 / 3.0).abs() < 1e-6);
    let singular = tensor![[1.0, 2.0], [2.0, 4.0]];
    assert_eq!(
        linalg::cond(&singular, MatrixNorm::Frobenius)?.to_scalar::<f32>()?,
        f32::INFINITY
    );
    assert_eq!(
        linalg::matrix_rank(&singular, &Tolerance::default())?.to_scalar::<i64>()?,
        1
    );
    assert_eq!(
        linalg::matrix_rank_hermitian(&a, &Tolerance::default())?.to_scalar::<i64>()?,
        2
    );
    Ok(())
}

/// A chain of more matrices than are compared at a time, its ends named or not.
#[test]
fn sums_of_many_operands() -> Outcome {
    let letters: Vec<char> = ('a'..='z').chain('A'..='E').collect();
    let terms: Vec<String> = letters.windows(2).map(String::from_iter).collect();
    let each: Vec<Tensor> = (0..terms.len() as u64)
        .map(|seed| Tensor::randn_seeded([2, 2], DType::F64, seed))
        .collect::<Result<_, _>>()?;
    let all: Vec<&Tensor> = each.iter().collect();
    let product = linalg::multi_dot(&all)?;
    let named = Tensor::einsum(&format!("{}->aE", terms.join(",")), &all)?;
    close(&named, &product)?;
    // Capitals come first.
    let unnamed = Tensor::einsum(&terms.join(","), &all)?;
    close(&unnamed, &named.transpose(0, 1)?)?;
    // A name that is needed again far behind stays.
    let factors = vec!["a"; 30].join(",");
    let halves = Tensor::full([3], 0.5, DType::F64)?;
    let power = Tensor::einsum(&format!("{factors}->a"), &[&halves; 30])?;
    assert_eq!(power.to_vec::<f64>()?, [0.5f64.powi(30); 3]);
    let sum = Tensor::einsum(&format!("{factors}->"), &[&halves; 30])?;
    assert_eq!(sum.to_scalar::<f64>()?, 3.0 * 0.5f64.powi(30));
    Ok(())
}

#[test]
fn sums_by_names() -> Outcome {
    let a = Tensor::randn_seeded([2, 3, 4], DType::F64, 1)?;
    let b = Tensor::randn_seeded([2, 4, 5], DType::F64, 2)?;
    close(&Tensor::einsum("bij,bjk->bik", &[&a, &b])?, &a.matmul(&b)?)?;
    close(
        &Tensor::einsum("bij,bjk", &[&a, &b])?,
        &a.matmul(&b)?
            .sum(0, false)?
            .mul(0)?
            .add(&Tensor::einsum("bij,bjk->ik", &[&a, &b])?)?,
    )?;
    close(
        &Tensor::einsum("...ij->...ji", &[&a])?,
        &a.transpose(-2, -1)?,
    )?;
    close(&Tensor::einsum("bij->", &[&a])?, &a.sum(None, false)?)?;
    let square = Tensor::randn_seeded([3, 3], DType::F64, 3)?;
    let eye = Tensor::eye(3, DType::F64)?;
    close(
        &Tensor::einsum("ii", &[&square])?,
        &square.mul(&eye)?.sum(None, false)?,
    )?;
    close(
        &Tensor::einsum("ii->i", &[&square])?,
        &square.mul(&eye)?.sum(0, false)?,
    )?;
    let v = Tensor::randn_seeded([4], DType::F64, 4)?;
    close(&Tensor::einsum("...i,i->...", &[&a, &v])?, &a.matmul(&v)?)?;
    let chain = Tensor::einsum("ij,jk,kl->il", &[&square, &square, &square])?;
    close(&chain, &square.matmul(&square)?.matmul(&square)?)?;
    close(&chain, &linalg::multi_dot(&[&square, &square, &square])?)?;
    close(
        &Tensor::einsum("bij,bjk->kib", &[&a, &b])?,
        &a.matmul(&b)?.permute([2, 1, 0])?,
    )?;
    close(
        &a.tensordot(&b, &[0, 2], &[0, 1])?,
        &Tensor::einsum("bij,bjk->ik", &[&a, &b])?,
    )?;
    close(&a.inner(&v)?, &a.matmul(&v)?)?;
    assert_eq!(
        tensor![1, 2].kron(&tensor![1, 10])?.to_vec::<i64>()?,
        [1, 10, 2, 20]
    );
    for (equation, operands) in [
        ("ij", 1),
        ("bij,bij", 1),
        ("bij->bb", 1),
        ("bij->c", 1),
        ("b?j", 1),
    ] {
        assert!(
            Tensor::einsum(equation, &vec![&a; operands]).is_err(),
            "{equation}"
        );
    }
    assert!(
        Tensor::einsum("bij,bik->b", &[&a, &b]).is_err(),
        "sizes differ"
    );
    Ok(())
}

#[test]
fn what_has_no_answer_is_told() -> Outcome {
    let singular = tensor![[1.0, 2.0], [2.0, 4.0]];
    let error = linalg::inv(&singular)?.eval().unwrap_err().to_string();
    assert!(
        error.contains("f32[2, 2] is singular: its pivot 2 is 0"),
        "{error}"
    );
    let (_, info) = linalg::inv_ex(&singular, false)?;
    assert_eq!(info.to_scalar::<i32>()?, 2);
    let batch = Tensor::stack(&[&Tensor::eye(2, DType::F32)?, &singular.neg()?], 0)?;
    let error = linalg::cholesky(&batch, false)?
        .eval()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("matrix [1] of f32[2, 2, 2] is not positive definite"),
        "{error}"
    );
    let error = linalg::svdvals(&singular.div(0.0)?)?
        .eval()
        .unwrap_err()
        .to_string();
    assert!(error.contains("not finite"), "{error}");
    let mistake = linalg::solve(&singular.narrow(0, 0, 1)?, &singular, true);
    assert_eq!(
        crate::error(mistake),
        "linalg.solve: expected square matrices, got f32[1, 2]"
    );
    assert!(linalg::qr(&tensor![[1, 2], [3, 4]], QrMode::Reduced).is_err());
    assert!(linalg::cholesky(&tensor![1.0], false).is_err());
    Ok(())
}

#[test]
fn symmetric_systems_by_their_factors() -> Outcome {
    for dtype in DTYPES {
        for hermitian in [false, true] {
            let a = Tensor::randn_seeded([2, 3, 5, 5], dtype, 7)?;
            let turned = a.transpose(-2, -1)?;
            let a = a.add(&if hermitian { turned.conj()? } else { turned })?;
            let (factors, pivots) = linalg::ldl_factor(&a, hermitian)?;
            assert!(
                factors
                    .triu(1)?
                    .eq(0)?
                    .all(None, false)?
                    .to_scalar::<bool>()?
            );
            assert_eq!(
                (pivots.shape(), pivots.dtype()),
                (&[2, 3, 5][..], DType::I32)
            );
            // Broadcast to the matrices.
            let b = Tensor::randn_seeded([3, 5, 2], dtype, 8)?;
            let x = linalg::ldl_solve(&factors, &pivots, &b, hermitian)?;
            close(&a.matmul(&x)?, &b.expand([2, 3, 5, 2])?)?;
        }
    }
    let zeros = Tensor::zeros([2, 2], DType::F32)?;
    let (_, pivots, info) = linalg::ldl_factor_ex(&zeros, false, false)?;
    assert_eq!(
        (pivots.to_vec::<i32>()?, info.to_scalar::<i32>()?),
        (vec![1, 2], 1)
    );
    assert!(linalg::ldl_factor(&zeros, false)?.0.eval().is_err());
    let pivots = Tensor::from_slice(&[1i32, 3], [2])?;
    let wrong = linalg::ldl_solve(&tensor![[1.0, 0.0], [0.0, 1.0]], &pivots, &zeros, false)?;
    assert!(wrong.eval().is_err());
    Ok(())
}
