//! Gradients where functions have kinks, ties, poles and limits. Values are PyTorch's 2.15, or mathematics' where PyTorch
//! has NaN.

use std::f64::consts::PI;

use rustorch_ir::DType;
use rustorch_tensor::autograd::{grad, grad_with};
use rustorch_tensor::nn::{CdistMode, Reduction, TripletOptions};
use rustorch_tensor::{GradOptions, RusTorchResult, Tensor};

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
