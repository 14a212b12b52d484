//! Gradients where functions have kinks, ties, poles and limits. Values are PyTorch's 2.15, or mathematics' where PyTorch
//! has NaN.

use std::f64::consts::{LN_2, PI};

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_tensor::autograd::{grad, grad_with};
use rustorch_tensor::nn::{CdistMode, Reduction, TripletOptions};
use rustorch_tensor::{GradOptions, RusTorchResult, ScatterReduce, Tensor, tensor};

use crate::Outcome;

const INF: f64 = f64::INFINITY;

type Function<'a> = &'a dyn Fn(&Tensor) -> RusTorchResult<Tensor>;

fn leaf(values: &[f64]) -> RusTorchResult<Tensor> {
    Tensor::from_slice(values, [values.len()])?.requires_grad_(true)
}

fn fixed(values: &[f64]) -> RusTorchResult<Tensor> {
    Tensor::from_slice(values, [values.len()])
}

/// The gradient of the sum of what a function gives.
fn gradient(f: Function, at: &[f64]) -> RusTorchResult<Vec<f64>> {
    let x = leaf(at)?;
    grad(&[&f(&x)?.sum_all()?], &[&x])?[0].to_vec()
}

/// The gradient of the sum of the gradient.
fn second(f: Function, at: &[f64]) -> RusTorchResult<Vec<f64>> {
    let x = leaf(at)?;
    let once = GradOptions::default().create_graph(true);
    let first = grad_with(&[&f(&x)?.sum_all()?], &[&x], &once)?.remove(0);
    let first = first.expect("the sum follows from x").sum_all()?;
    // A sum that follows from x no more is level.
    match first.requires_grad() {
        true => grad(&[&first], &[&x])?[0].to_vec(),
        false => Ok(vec![0.0; at.len()]),
    }
}

fn assert_near(name: &str, found: &[f64], expected: &[f64]) {
    let near = |(a, b): (&f64, &f64)| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * b.abs().max(1.0)
    };
    let all = found.len() == expected.len() && found.iter().zip(expected).all(near);
    assert!(all, "{name}: {found:?}, should be {expected:?}");
}

#[test]
fn functions_that_are_smooth_at_0_have_second_derivatives_there() -> Outcome {
    let (zero, one) = (fixed(&[0.0])?, fixed(&[1.0])?);
    let sum = Reduction::Sum;
    let cases: [(&str, Function, f64); 9] = [
        (
            "binary_cross_entropy_with_logits",
            &|x| x.binary_cross_entropy_with_logits(&zero, None, None, sum),
            0.25,
        ),
        ("logsigmoid", &Tensor::logsigmoid, -0.25),
        ("softplus", &|x| x.softplus(1.0, 20.0), 0.25),
        ("mish", &Tensor::mish, 0.64),
        ("soft_margin_loss", &|x| x.soft_margin_loss(&one, sum), 0.25),
        (
            "multilabel_soft_margin_loss",
            &|x| x.multilabel_soft_margin_loss(&one, None, sum),
            0.25,
        ),
        ("huber_loss", &|x| x.huber_loss(&zero, 1.0, None, sum), 1.0),
        (
            "smooth_l1_loss",
            &|x| x.smooth_l1_loss(&zero, 0.5, sum),
            2.0,
        ),
        ("sinc", &Tensor::sinc, -PI * PI / 3.0),
    ];
    for (name, f, expected) in cases {
        for at in [0.0, -0.0] {
            assert_near(name, &second(f, &[at])?, &[expected]);
        }
    }
    assert_near("sinc", &gradient(&Tensor::sinc, &[0.0, 1.0])?, &[0.0, -1.0]);
    Ok(())
}

#[test]
fn a_deviation_of_equal_elements_has_the_gradient_0() -> Outcome {
    for correction in [0.0, 1.0] {
        let std = |x: &Tensor| x.std(None, correction, false);
        let both = |x: &Tensor| Ok(x.std_mean(None, correction, false)?.0);
        let rows = |x: &Tensor| x.reshape([2usize, 3])?.std(1, correction, false);
        let forms: [Function; 2] = [&std, &both];
        for f in forms {
            assert_eq!(gradient(f, &[1.0; 3])?, [0.0; 3]);
            assert_eq!(second(f, &[1.0; 3])?, [0.0; 3]);
        }
        let scale = f64::sqrt(2.0 * (3.0 - correction));
        let expected = [0.0, 0.0, 0.0, -1.0 / scale, 0.0, 1.0 / scale];
        let found = gradient(&rows, &[1.0, 1.0, 1.0, 1.0, 2.0, 3.0])?;
        assert_near("std", &found, &expected);
    }
    // One element has a deviation of 0, or none.
    assert_eq!(gradient(&|x| x.std(None, 0.0, false), &[5.0])?, [0.0]);
    assert!(gradient(&|x| x.std(None, 1.0, false), &[5.0])?[0].is_nan());
    let z = |x: &Tensor| Tensor::complex(x, x)?.std(None, 1.0, false);
    assert_eq!(gradient(&z, &[1.0; 3])?, [0.0; 3]);
    Ok(())
}

#[test]
fn at_bounds_that_are_numbers_the_gradient_is_0() -> Outcome {
    let at = [-1.0, 0.0, 0.5, 1.0, 2.0, INF, -INF];
    let cases: [(&str, Function, [f64; 7]); 8] = [
        (
            "clamp",
            &|x| x.clamp(0, 1),
            [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        ),
        (
            "clamp up to infinity",
            &|x| x.clamp(0.0, INF),
            [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0],
        ),
        (
            "clamp_min",
            &|x| x.clamp_min(0),
            [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0],
        ),
        (
            "clamp_max",
            &|x| x.clamp_max(1.0),
            [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        ),
        (
            "hardtanh",
            &|x| x.hardtanh(-1.0, 1.0),
            [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        ),
        ("relu6", &Tensor::relu6, [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]),
        (
            "hinge_embedding_loss",
            &|x| x.hinge_embedding_loss(&fixed(&[-1.0])?, 1.0, Reduction::Sum),
            [-1.0, -1.0, -1.0, 0.0, 0.0, 0.0, -1.0],
        ),
        (
            "margin_ranking_loss",
            &|x| x.margin_ranking_loss(&fixed(&[0.0])?, &fixed(&[1.0])?, 1.0, Reduction::Sum),
            [-1.0, -1.0, -1.0, 0.0, 0.0, 0.0, -1.0],
        ),
    ];
    for (name, f, expected) in cases {
        assert_near(name, &gradient(f, &at)?, &expected);
    }
    let ends = [-3.0, 3.0, 0.0, 6.0];
    let found = gradient(&Tensor::hardsigmoid, &ends)?;
    assert_near("hardsigmoid", &found, &[0.0, 0.0, 1.0 / 6.0, 0.0]);
    let found = gradient(&Tensor::hardswish, &ends)?;
    assert_near("hardswish", &found, &[0.0, 1.0, 0.5, 1.0]);
    assert_eq!(gradient(&Tensor::relu6, &[6.0, f64::NAN])?, [0.0, 1.0]);
    assert_eq!(gradient(&|x| x.clamp(0, 1), &[f64::NAN])?, [0.0]);
    // Halves are bounded in their own dtype.
    let x = Tensor::from_slice(&[0.0, 0.5, 1.0], [3])?.requires_grad_(true)?;
    let y = x.to_dtype(DType::BF16)?.clamp(0, 1)?;
    assert_eq!(y.dtype(), DType::BF16);
    assert_eq!(
        grad(&[&y.sum_all()?], &[&x])?[0].to_vec::<f64>()?,
        [0.0, 1.0, 0.0]
    );
    Ok(())
}

#[test]
fn losses_have_no_gradient_at_their_margins() -> Outcome {
    let sum = Reduction::Sum;
    let class = Tensor::from_slice(&[0i64], ())?;
    let margin = |x: &Tensor| x.multi_margin_loss(&class, 1, 1.0, None, sum);
    assert_eq!(gradient(&margin, &[1.0, 0.0])?, [0.0, 0.0]);
    let classes = Tensor::from_slice(&[0i64, -1], [2])?;
    let margin = |x: &Tensor| x.multilabel_margin_loss(&classes, sum);
    assert_eq!(gradient(&margin, &[1.0, 0.0])?, [0.0, 0.0]);
    let options = TripletOptions::default().eps(0.0);
    let triplet = |x: &Tensor| x.triplet_margin_loss(&fixed(&[1.0])?, &fixed(&[2.0])?, &options);
    assert_eq!(gradient(&triplet, &[0.0])?, [0.0]);
    let (away, target) = (fixed(&[0.0, 1.0])?, Tensor::from_slice(&[-1.0], ())?);
    let cosine = |x: &Tensor| x.cosine_embedding_loss(&away, &target, 0.0, sum);
    assert_eq!(gradient(&cosine, &[1.0, 0.0])?, [0.0, 0.0]);
    Ok(())
}

#[test]
fn a_bound_that_is_a_tensor_shares_the_gradient() -> Outcome {
    // x, low, high, and the gradient of each.
    let rows = [
        ([0.0, 0.0, 1.0], [0.5, 0.5, 0.0]),
        ([1.0, 0.0, 1.0], [0.5, 0.0, 0.5]),
        ([0.5, 0.0, 1.0], [1.0, 0.0, 0.0]),
        ([-1.0, 0.0, 1.0], [0.0, 1.0, 0.0]),
        ([2.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
        ([1.0, 1.0, 1.0], [1.0, 0.0, 0.0]),
        ([0.0, 1.0, 1.0], [0.0, 1.0, 0.0]),
        ([2.0, 1.0, 1.0], [0.0, 0.0, 1.0]),
        ([0.5, 1.0, 0.0], [0.0, 0.0, 1.0]),
    ];
    for (at, expected) in rows {
        let [x, low, high] = at.map(|v| leaf(&[v]));
        let (x, low, high) = (x?, low?, high?);
        let found = grad(&[&x.clamp(&low, &high)?.sum_all()?], &[&x, &low, &high])?;
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.to_vec::<f64>()?, [expected], "{at:?}");
        }
    }
    let zero = fixed(&[0.0])?;
    assert_eq!(gradient(&|x| x.clamp_min(&zero), &[0.0])?, [0.5]);
    assert_eq!(gradient(&|x| x.clamp_max(&zero), &[0.0])?, [0.5]);
    assert_eq!(gradient(&|x| x.maximum(&zero), &[0.0])?, [0.5]);
    Ok(())
}

#[test]
fn equal_medians_share_the_gradient() -> Outcome {
    let third = 1.0 / 3.0;
    let nan = f64::NAN;
    for (at, expected) in [
        (&[1.0, 1.0, 1.0][..], &[third; 3][..]),
        (&[2.0, 1.0, 2.0, 1.0], &[0.0, 0.5, 0.0, 0.5]),
        (&[1.0, -INF, -INF], &[0.0, 0.5, 0.5]),
        (&[1.0, INF, INF], &[0.0, 0.5, 0.5]),
        (&[1.0, nan, nan], &[0.0, 0.5, 0.5]),
        (&[3.0, 0.0, 4.0], &[1.0, 0.0, 0.0]),
    ] {
        assert_eq!(gradient(&Tensor::median, at)?, expected, "{at:?}");
    }
    let found = gradient(&Tensor::nanmedian, &[2.0, nan, 2.0, 2.0])?;
    assert_eq!(found, [third, 0.0, third, third]);
    // Along a dimension one element is named, which has it all.
    let named = |x: &Tensor| Ok(x.median_dim(0, false)?.0);
    assert_eq!(gradient(&named, &[1.0, 1.0, 1.0])?, [0.0, 1.0, 0.0]);
    let x = leaf(&[1.0, 1.0, 3.0])?;
    assert_eq!(x.median()?.item()?, 1.0);
    Ok(())
}

#[test]
fn equal_scattered_elements_share_the_gradient() -> Outcome {
    let index = tensor![0i64, 0, 1, 1, 2];
    for (reduce, base, at, shares) in [
        (
            ScatterReduce::Amax,
            [5.0, 2.0, 0.0, 1.0],
            [1.0, 1.0, 0.0, 0.0, 5.0],
            [0.5, 0.5, 0.5, 0.5, 1.0],
        ),
        (
            ScatterReduce::Amax,
            [1.0, 0.0, 5.0, 1.0],
            [1.0, 1.0, 0.0, 0.0, 5.0],
            [0.5, 0.5, 0.5, 0.5, 1.0],
        ),
        (
            ScatterReduce::Amax,
            [0.0; 4],
            [0.0, -1.0, INF, INF, -2.0],
            [1.0, 0.0, 0.5, 0.5, 1.0],
        ),
        (
            ScatterReduce::Amin,
            [-5.0, 2.0, 9.0, 1.0],
            [1.0, 1.0, 0.0, -0.0, 5.0],
            [0.5, 0.5, 0.5, 0.5, 1.0],
        ),
    ] {
        let base = fixed(&base)?;
        let scattered = |x: &Tensor| base.scatter_reduce(0, &index, x, reduce, false);
        let by_index = |x: &Tensor| base.index_reduce(0, &index, x, reduce, false);
        assert_eq!(gradient(&scattered, &at)?, shares, "{at:?}");
        assert_eq!(gradient(&by_index, &at)?, shares, "{at:?}");
    }
    Ok(())
}

/// Complex functions are made of real ones, which have kinks on the axes.
#[test]
fn complex_functions_have_derivatives_on_the_axes() -> Outcome {
    let (zero, one, i) = (
        Complex::new(0.0, 0.0),
        Complex::new(1.0, 0.0),
        Complex::new(0.0, 1.0),
    );
    let eighth = 0.125f64.sqrt();
    let rows: [(&str, Function, Complex<f64>, Complex<f64>); 13] = [
        ("sqrt", &Tensor::sqrt, zero - one, i * 0.5),
        ("sqrt", &Tensor::sqrt, i, Complex::new(eighth, eighth)),
        ("rsqrt", &Tensor::rsqrt, i, Complex::new(eighth, -eighth)),
        ("log", &Tensor::log, i, i),
        ("log2", &Tensor::log2, -one, -one / LN_2),
        ("log1p", &Tensor::log1p, i, Complex::new(0.5, 0.5)),
        ("asin", &Tensor::asin, zero, one),
        (
            "asinh",
            &Tensor::asinh,
            Complex::new(2.0, -1.0),
            Complex::new(0.388_443_493_507_509_3, -0.160_898_563_226_395_65),
        ),
        ("acos", &Tensor::acos, zero, -one),
        ("acosh", &Tensor::acosh, zero, i),
        ("asinh", &Tensor::asinh, zero, one),
        ("atanh", &Tensor::atanh, i, one * 0.5),
        ("sgn", &Tensor::sgn, zero, zero),
    ];
    let ones = Tensor::from_slice(&[one], [1])?;
    for (name, f, at, expected) in rows {
        let x = Tensor::from_slice(&[at], [1])?.requires_grad_(true)?;
        f(&x)?.backward_with(&GradOptions::default().gradient(&ones))?;
        let found = x.grad().expect("a gradient").to_vec::<Complex<f64>>()?;
        assert!(
            (found[0] - expected).norm() < 1e-12,
            "{name} at {at}: {found:?}"
        );
    }
    Ok(())
}

#[test]
fn powers_of_complex_0_have_the_derivatives_of_polynomials() -> Outcome {
    let number = Complex::<f64>::new;
    let (zero, one) = (number(0.0, 0.0), number(1.0, 0.0));
    let ones = Tensor::from_slice(&[one], [1])?;
    // Each derivative from the first one on, of numbers and of tensors as exponents.
    for (exponent, expected) in [
        (0.0, [zero; 3]),
        (1.0, [one, zero, zero]),
        (2.0, [zero, number(2.0, 0.0), zero]),
        (3.0, [zero, zero, number(6.0, 0.0)]),
    ] {
        let whole = Tensor::from_slice(&[number(exponent, 0.0)], [1])?;
        for is_tensor in [false, true] {
            let x = Tensor::from_slice(&[zero], [1])?.requires_grad_(true)?;
            let mut y = match is_tensor {
                true => x.pow(&whole)?,
                false => x.pow(exponent)?,
            };
            for (order, expected) in expected.into_iter().enumerate() {
                let again = GradOptions::default().create_graph(true).gradient(&ones);
                y = grad_with(&[&y], &[&x], &again)?
                    .remove(0)
                    .expect("a gradient");
                let found = y.to_vec::<Complex<f64>>()?[0];
                assert_eq!(found, expected, "order {} of {exponent}", order + 1);
            }
        }
    }
    // By the exponent a power of 0 does not change; elsewhere it does.
    for (base, expected) in [(zero, zero), (number(0.0, 1.0), number(0.0, PI / 2.0))] {
        let e = Tensor::from_slice(&[number(2.0, 0.0)], [1])?.requires_grad_(true)?;
        let y = Tensor::from_slice(&[base], [1])?.pow(&e)?;
        let from = GradOptions::default().gradient(&ones);
        let found = grad_with(&[&y], &[&e], &from)?
            .remove(0)
            .expect("a gradient");
        let found = found.to_vec::<Complex<f64>>()?[0];
        assert!((found - expected).norm() < 1e-12, "{base}: {found}");
    }
    Ok(())
}

/// Each zero has a sign, which is that of a side of a branch cut.
#[test]
fn complex_functions_have_the_values_of_a_side_of_their_cuts() -> Outcome {
    let number = Complex::<f64>::new;
    let rows: [(&str, Function, Complex<f64>, Complex<f64>); 6] = [
        (
            "acos",
            &Tensor::acos,
            number(30.0, 0.0),
            number(0.0, -4.094_066_668_632_085),
        ),
        (
            "acos",
            &Tensor::acos,
            number(-2.0, -0.0),
            number(PI, 1.316_957_896_924_816_6),
        ),
        (
            "asin",
            &Tensor::asin,
            number(30.0, 0.0),
            number(PI / 2.0, 4.094_066_668_632_085),
        ),
        ("log2", &Tensor::log2, number(0.0, 0.0), number(-INF, 0.0)),
        ("log10", &Tensor::log10, number(INF, 0.0), number(INF, 0.0)),
        ("sqrt", &Tensor::sqrt, number(0.0, -INF), number(INF, -INF)),
    ];
    for (name, f, at, expected) in rows {
        let found = f(&tensor![at])?.to_vec::<Complex<f64>>()?[0];
        let near = |a: f64, b: f64| a == b || (a - b).abs() < 1e-14;
        let is_near = near(found.re, expected.re) && near(found.im, expected.im);
        assert!(is_near, "{name} of {at}: {found}");
    }
    Ok(())
}

#[test]
fn sums_of_powers_have_derivatives_at_0() -> Outcome {
    let polynomial = |x: &Tensor| {
        let terms = [x.pow(0)?, x.pow(1)?, x.pow(2)?.mul(3)?, x.pow(3)?];
        terms[0].add(&terms[1])?.add(&terms[2])?.add(&terms[3])
    };
    assert_eq!(gradient(&polynomial, &[0.0, 1.0])?, [1.0, 10.0]);
    assert_eq!(second(&polynomial, &[0.0, 1.0])?, [6.0, 12.0]);
    for power in [0.0, 1.0] {
        let powers = fixed(&[power; 4])?;
        let at = [0.0, INF, -INF, 1e-320];
        assert_eq!(second(&|x| x.pow(power), &at)?, [0.0; 4]);
        assert_eq!(second(&|x| x.pow(&powers), &at)?, [0.0; 4]);
    }
    Ok(())
}

#[test]
fn a_branch_that_is_not_taken_has_no_say() -> Outcome {
    let zero = fixed(&[0.0])?;
    let weight = fixed(&[INF])?;
    let scale = 1.050_700_987_355_480_5;
    let sum = Reduction::Sum;
    let cases: [(&str, Function, f64); 13] = [
        ("elu", &|x| x.elu(0.5), 1.0),
        ("celu", &|x| x.celu(2.0), 1.0),
        ("selu", &Tensor::selu, scale),
        ("softplus", &|x| x.softplus(1.0, 20.0), 1.0),
        ("softplus up to infinity", &|x| x.softplus(1.0, INF), 1.0),
        ("softshrink", &|x| x.softshrink(0.5), 1.0),
        ("hardshrink", &|x| x.hardshrink(0.5), 1.0),
        ("hardswish", &Tensor::hardswish, 1.0),
        ("mish", &Tensor::mish, 1.0),
        ("prelu", &|x| x.prelu(&weight), 1.0),
        ("huber_loss", &|x| x.huber_loss(&zero, 2.0, None, sum), 2.0),
        (
            "smooth_l1_loss",
            &|x| x.smooth_l1_loss(&zero, 2.0, sum),
            1.0,
        ),
        (
            "binary_cross_entropy_with_logits",
            &|x| x.binary_cross_entropy_with_logits(&zero, None, None, sum),
            1.0,
        ),
    ];
    for (name, f, expected) in cases {
        for at in [1e3, 1e300, INF] {
            assert_near(name, &gradient(f, &[at])?, &[expected]);
            assert_near(name, &second(f, &[at])?, &[0.0]);
        }
    }
    let far = [-1e3, -1e300];
    assert_eq!(second(&Tensor::silu, &far)?, [0.0; 2]);
    assert_eq!(gradient(&|x| x.softshrink(0.5), &[-INF])?, [1.0]);
    // The kink of the exponential units: the slope is that of the side below, which bends nowhere.
    assert_eq!(gradient(&|x| x.elu(0.5), &[0.0])?, [0.5]);
    assert_eq!(second(&|x| x.elu(0.5), &[0.0])?, [0.0]);
    assert_eq!(gradient(&|x| x.rrelu(0.25, 0.75, false), &[0.0])?, [0.5]);
    Ok(())
}

#[test]
fn at_the_ends_of_their_domains_functions_have_the_slopes_that_they_have() -> Outcome {
    assert_eq!(gradient(&|x| x.logit(None), &[0.0, 1.0])?, [INF, INF]);
    let found = gradient(&Tensor::entr, &[0.0, 1.0, INF])?;
    assert_eq!(found, [INF, -1.0, -INF]);
    let found = second(&Tensor::entr, &[0.0, -0.0, 0.5, INF])?;
    assert_eq!(found, [-INF, INF, -2.0, 0.0]);
    // The slope at a factor of 0 is the logarithm.
    let y = fixed(&[2.0, 0.0, INF])?;
    let found = gradient(&|x| x.xlogy(&y), &[0.0; 3])?;
    assert_near("xlogy", &found, &[2f64.ln(), 0.0, INF]);
    let found = gradient(&|x| x.xlog1py(&y), &[0.0; 3])?;
    assert_near("xlog1py", &found, &[3f64.ln(), 0.0, INF]);
    let zero = fixed(&[0.0; 3])?;
    let found = gradient(&|y| zero.xlogy(y), &[2.0, 0.0, INF])?;
    assert_eq!(found, [0.0; 3]);
    // The trigamma function beside what its reflection has poles at.
    let found = gradient(&|x| x.polygamma(1), &[1.0, 2.0])?;
    assert_near(
        "polygamma",
        &found,
        &[-2.404_113_806_319_188, -0.404_113_806_319_188_6],
    );
    assert_eq!(second(&Tensor::lgamma, &[INF])?, [0.0]);
    Ok(())
}

#[test]
fn losses_of_certain_predictions_have_finite_gradients() -> Outcome {
    let target = fixed(&[1.0, 0.0, 1.0, 0.0])?;
    let loss = |x: &Tensor| x.binary_cross_entropy(&target, None, Reduction::Sum);
    let found = gradient(&loss, &[0.0, 1.0, 0.5, 0.5])?;
    assert_near("binary_cross_entropy", &found, &[-1e12, 1e12, -2.0, 2.0]);
    // Below the least variance the gradient is that at it.
    let zero = fixed(&[0.0; 3])?;
    let loss = |v: &Tensor| zero.gaussian_nll_loss(&zero, v, false, 1e-6, Reduction::Sum);
    let found = gradient(&loss, &[0.0, 1e-6, 1.0])?;
    assert_near("gaussian_nll_loss", &found, &[5e5, 5e5, 0.5]);
    Ok(())
}

#[test]
fn distances_of_0_have_the_gradient_0() -> Outcome {
    let rows = fixed(&[1.0, 2.0, 3.0, 4.0])?.reshape([2usize, 2])?;
    for p in [0.5, 1.0, 1.5, 2.0, 3.0] {
        for mode in [
            CdistMode::UseMmForEuclidDist,
            CdistMode::DontUseMmForEuclidDist,
        ] {
            let f = |x: &Tensor| {
                let distances = x.reshape([2usize, 2])?.cdist(&rows, p, mode)?;
                distances.mul(&Tensor::eye(2, DType::F64)?)
            };
            assert_eq!(gradient(&f, &[1.0, 2.0, 3.0, 4.0])?, [0.0; 4], "{p}");
        }
        let norm = |x: &Tensor| x.norm(p, None, false);
        assert_eq!(gradient(&norm, &[0.0; 2])?, [0.0; 2], "{p}");
        assert_eq!(second(&norm, &[0.0; 2])?, [0.0; 2], "{p}");
    }
    let unit = |x: &Tensor| x.normalize(2.0, 0, 1e-12);
    assert_near("normalize", &gradient(&unit, &[0.0])?, &[1e12]);
    Ok(())
}

#[test]
fn products_have_second_derivatives_at_several_zeros() -> Outcome {
    let scan = |x: &Tensor| x.cumprod(0);
    let product = |x: &Tensor| x.prod(None, false);
    let cases: [(&[f64], &[f64], &[f64]); 4] = [
        (
            &[0.0, 0.0, 2.0, 3.0],
            &[9.0, 9.0, 0.0, 0.0],
            &[6.0, 6.0, 0.0, 0.0],
        ),
        (
            &[1.0, 2.0, 0.0, 3.0, 0.0, 4.0],
            &[9.0, 5.0, 44.0, 2.0, 30.0, 0.0],
            &[0.0, 0.0, 24.0, 0.0, 24.0, 0.0],
        ),
        (&[0.0, 1.0, 0.0], &[2.0, 1.0, 1.0], &[1.0, 0.0, 1.0]),
        (&[-1.0, -0.0, 2.0], &[3.0, 2.0, -1.0], &[2.0, 1.0, -1.0]),
    ];
    for (at, of_scan, of_product) in cases {
        assert_near("cumprod", &second(&scan, at)?, of_scan);
        assert_near("prod", &second(&product, at)?, of_product);
    }
    let rows = |x: &Tensor| x.reshape([2usize, 3])?.cumprod(0);
    let at = [0.0, 2.0, 0.0, 0.0, 0.0, 5.0];
    assert_near(
        "rows",
        &gradient(&rows, &at)?,
        &[1.0, 1.0, 6.0, 0.0, 2.0, 0.0],
    );
    assert_near("rows", &second(&rows, &at)?, &[1.0; 6]);
    for at in [&[0.0][..], &[f64::NAN], &[3.0]] {
        assert_eq!(gradient(&scan, at)?, [1.0]);
    }
    assert_eq!(gradient(&scan, &[])?, [0.0; 0]);
    // The products overflow, the gradient does not divide by what is infinite.
    assert_eq!(gradient(&scan, &[1e200, 1e200, 0.0])?, [1e200, 1e200, INF]);
    Ok(())
}

#[test]
fn elements_that_are_nan_share_the_gradient_of_the_extreme_one() -> Outcome {
    let nan = f64::NAN;
    let largest = |x: &Tensor| x.max(None, false);
    let smallest = |x: &Tensor| x.min(None, true);
    for f in [&largest as Function, &smallest] {
        assert_eq!(gradient(f, &[1.0, nan, 2.0])?, [0.0, 1.0, 0.0]);
        assert_eq!(gradient(f, &[nan, nan, 1.0, INF])?, [0.5, 0.5, 0.0, 0.0]);
        assert_eq!(gradient(f, &[nan])?, [1.0]);
        assert_eq!(gradient(f, &[2.0, 2.0])?, [0.5; 2]);
        assert!(f(&leaf(&[1.0, nan])?)?.item()?.is_nan());
    }
    let among = |x: &Tensor| x.amax(None, false);
    assert!(gradient(&among, &[1.0, nan])?.iter().all(|x| x.is_nan()));
    for p in [INF, -INF] {
        let norm = |x: &Tensor| x.norm(p, None, false);
        assert_eq!(gradient(&norm, &[1.0, nan, 2.0])?, [0.0; 3]);
    }
    Ok(())
}

#[test]
fn one_element_has_its_length_as_the_norm() -> Outcome {
    for p in [0.5, 1.0, 2.0, 3.0, -1.0, INF] {
        for size in [1e30f32, -1e30, 1e-30, 0.0] {
            let x = Tensor::from_slice(&[size], [1, 1])?.requires_grad_(true)?;
            let norm = x.norm(p, 1, false)?;
            assert_eq!(norm.to_vec::<f32>()?, [size.abs()], "{p}");
            let slope = grad(&[&norm.sum_all()?], &[&x])?[0].to_vec::<f32>()?;
            assert_eq!(
                slope,
                [if size == 0.0 { 0.0 } else { size.signum() }],
                "{p}"
            );
        }
    }
    let x = Tensor::from_slice(&[1e30f32, 2.0], [2, 1])?;
    assert_eq!(x.norm(0.0, 1, false)?.to_vec::<f32>()?, [1.0; 2]);
    Ok(())
}

#[test]
fn the_step_of_nan_is_0() -> Outcome {
    let x = fixed(&[f64::NAN, -0.0, INF])?;
    let steps = x.heaviside(&fixed(&[0.5; 3])?)?;
    assert_eq!(steps.to_vec::<f64>()?, [0.0, 0.5, 1.0]);
    Ok(())
}

#[test]
fn a_gate_beside_infinity_has_a_second_derivative() -> Outcome {
    let gated = |x: &Tensor| x.glu(0);
    let sigmoid = 1.0 / (1.0 + f64::exp(-1.0));
    let slope = sigmoid * (1.0 - sigmoid);
    for infinity in [INF, -INF] {
        assert_near(
            "glu",
            &gradient(&gated, &[infinity, 1.0])?,
            &[sigmoid, infinity],
        );
        for gate in [1.0, -1.0] {
            let bend = -gate * infinity;
            assert_near("glu", &second(&gated, &[infinity, gate])?, &[slope, bend]);
        }
    }
    let bend = slope + 2.0 * slope * (1.0 - 2.0 * sigmoid);
    assert_near("glu", &second(&gated, &[2.0, 1.0])?, &[slope, bend]);
    Ok(())
}

/// The gradient of the sum of `f`, and that of the gradient's sum, in single precision.
fn in_single(f: Function, at: &[f32]) -> RusTorchResult<[Vec<f32>; 2]> {
    let x = Tensor::from_slice(at, [at.len()])?.requires_grad_(true)?;
    let once = GradOptions::default().create_graph(true);
    let slope = grad_with(&[&f(&x)?.sum_all()?], &[&x], &once)?
        .remove(0)
        .unwrap();
    let bend = grad(&[&slope.sum_all()?], &[&x])?.remove(0);
    Ok([slope.to_vec()?, bend.to_vec()?])
}

#[test]
fn norms_have_derivatives_where_powers_overflow() -> Outcome {
    // The vector [3, 4], of which all sizes have the same gradient. PyTorch has NaN or infinity for some sizes.
    let cases = [
        (0.5, [2.154_700_5, 1.866_025_4], [-0.048_112_5, 0.036_084_4]),
        (1.5, [0.732_956_5, 0.846_345_2], [0.018_514_4, -0.013_885_8]),
        (
            -1.0,
            [0.326_530_6, 0.183_673_5],
            [-0.023_323_6, 0.017_492_7],
        ),
        (2.0, [0.6, 0.8], [0.032, -0.024]),
    ];
    for (p, slope, bend) in cases {
        let norm = |x: &Tensor| x.norm(p, None, false);
        let sizes = match p {
            2.0 => [1.0, 1e-18, 1e18],
            1.5 => [1.0, 1e-18, 1e20],
            _ => [1.0, 1e-30, 1e30],
        };
        for size in sizes {
            let [found, bends] = in_single(&norm, &[3.0 * size, 4.0 * size])?;
            let bends: Vec<f32> = bends.iter().map(|x| x * size).collect();
            let expected = [slope, bend].concat();
            for (found, expected) in [found, bends].concat().iter().zip(expected) {
                let fits = (found - expected).abs() <= 2e-5;
                assert!(fits, "p = {p}, {size}: {found}, {expected}");
            }
        }
    }
    Ok(())
}

#[test]
fn norms_that_overflow_or_vanish_have_no_second_derivative() -> Outcome {
    let norm = |x: &Tensor| x.norm(2.0, None, false);
    let unit = |x: &Tensor| x.normalize(2.0, 0, 1e-12);
    let other = Tensor::from_slice(&[1f32, 2.0], [2])?;
    let cosine = |x: &Tensor| x.cosine_similarity(&other, 0, 1e-8);
    // PyTorch has NaN for the norms of the small ones.
    for size in [1e30, 1e-30] {
        for f in [&norm as Function, &unit, &cosine] {
            let [_, bends] = in_single(f, &[3.0 * size, 4.0 * size])?;
            assert_eq!(bends, [0.0; 2], "{size}");
        }
        let sum = |x: &Tensor| x.pairwise_distance(&x.detach().mul(0)?, 2.0, 0.0, false);
        let [_, bends] = in_single(&sum, &[1e-20, 0.0])?;
        assert!(bends.iter().all(|x| x.is_finite()), "{bends:?}");
    }
    Ok(())
}

#[test]
fn a_norm_of_nan_has_the_gradient_nan() -> Outcome {
    for p in [0.5, 1.5, 2.0, 3.0, -1.0, -2.0] {
        let norm = |x: &Tensor| x.norm(p, None, false);
        for at in [&[f64::NAN][..], &[f64::NAN, 1.0]] {
            assert!(gradient(&norm, at)?.iter().all(|x| x.is_nan()), "{p}");
        }
    }
    // The sign of NaN is 0, in PyTorch, too.
    for p in [1.0, INF, -INF] {
        assert_eq!(gradient(&|x| x.norm(p, None, false), &[f64::NAN])?, [0.0]);
    }
    Ok(())
}

#[test]
fn distances_of_infinities_are_those_of_pytorch() -> Outcome {
    let nan = f64::NAN;
    let x = fixed(&[INF, 0.0, INF, 1.0, nan, 0.0, INF, 5.0])?.reshape([4usize, 2])?;
    let y = fixed(&[INF, 0.0, -INF, 2.0])?.reshape([2usize, 2])?;
    let cases = [
        (0.0, [nan, 2.0, nan, 2.0, nan, nan, nan, 2.0]),
        (1.0, [nan, INF, nan, INF, nan, nan, nan, INF]),
        (2.0, [nan, INF, nan, INF, nan, nan, nan, INF]),
        (INF, [0.0, INF, 1.0, INF, 0.0, 2.0, 5.0, INF]),
    ];
    for (p, expected) in cases {
        let found = x.cdist(&y, p, CdistMode::default())?.to_vec::<f64>()?;
        for (found, expected) in found.iter().zip(expected) {
            let is_same = *found == expected || found.is_nan() && expected.is_nan();
            assert!(is_same, "p = {p}: {found}, {expected}");
        }
        let pairs = x.pdist(p)?.to_vec::<f64>()?;
        assert!(pairs.iter().all(|x| x.is_nan()), "p = {p}: {pairs:?}");
    }
    let none = |x: &Tensor| x.reshape([1usize, 2])?.cdist(&y, 0.0, CdistMode::default());
    assert_eq!(gradient(&none, &[1.0, 2.0])?, [0.0; 2]);
    Ok(())
}

#[test]
fn the_last_nan_of_a_window_is_its_largest_element() -> Outcome {
    let nan = f64::NAN;
    let cases: [(&[f64], usize, &[i64]); 6] = [
        (&[1.0, nan, 2.0, nan, 3.0, nan], 1, &[5]),
        (&[1.0, nan, 2.0, nan, 3.0, nan], 2, &[1, 5]),
        (&[nan, nan, nan, 1.0], 2, &[1, 2]),
        (&[5.0, nan, nan, 6.0, nan], 1, &[4]),
        (&[5.0, nan, nan, 6.0, nan], 2, &[2, 4]),
        (&[3.0, 1.0, 3.0, 3.0, 2.0], 2, &[0, 2]),
    ];
    for (at, windows, expected) in cases {
        let x = fixed(at)?.reshape([1, 1, at.len()])?;
        let (_, indices) = x.adaptive_max_pool1d_with_indices(windows)?;
        assert_eq!(indices.to_vec::<i64>()?, expected, "{at:?}");
    }
    let plane = [1.0, nan, 2.0, nan, nan, 3.0, nan, 1.0, nan];
    let x = fixed(&plane)?.reshape([1usize, 1, 3, 3])?;
    for (windows, expected) in [(1, &[8i64][..]), (2, &[4, 4, 6, 8])] {
        let (_, indices) = x.adaptive_max_pool2d_with_indices((windows, windows))?;
        assert_eq!(indices.to_vec::<i64>()?, expected);
    }
    let pool = |x: &Tensor| x.reshape([1usize, 1, 3, 3])?.adaptive_max_pool2d(1);
    assert_eq!(
        gradient(&pool, &plane)?,
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    );
    Ok(())
}
