//! Random tensors: moments and quantiles of fixed seeds.

use rustorch_ir::DType;
use rustorch_tensor::{Generator, RusTorchResult, Tensor, fork_rng, tensor};

use crate::{Outcome, error};

/// Numbers that each distribution is tried with.
const COUNT: usize = 20_000;

fn generator() -> Generator {
    Generator::new(11)
}

/// `COUNT` times the same parameter.
fn many(value: f64) -> RusTorchResult<Tensor> {
    Tensor::full([COUNT], value, DType::F32)
}

/// The mean and the variance are these, within five standard errors.
#[track_caller]
fn assert_moments(name: &str, x: RusTorchResult<Tensor>, mean: f64, variance: f64) {
    let x = x
        .and_then(|x| x.to_dtype(DType::F64)?.to_vec::<f64>())
        .expect(name);
    assert_eq!(x.len(), COUNT, "{name}");
    let n = COUNT as f64;
    let moment = |k| x.iter().map(|x| (x - mean).powi(k)).sum::<f64>() / n;
    let (first, second, fourth) = (moment(1), moment(2), moment(4));
    let close = |got: f64, error: f64| got.abs() <= 5.0 * error;
    assert!(
        close(first, (variance / n).sqrt()),
        "{name}: mean {}",
        mean + first
    );
    let error = ((fourth - second * second).max(0.0) / n).sqrt();
    assert!(
        close(second - variance, error),
        "{name}: variance {second}, not {variance}"
    );
}

/// A share of `probability` of the numbers is at most `at`, within five standard errors.
#[track_caller]
fn assert_quantile(name: &str, x: RusTorchResult<Tensor>, at: f64, probability: f64) {
    let below = x
        .and_then(|x| x.le(at)?.sum(None, false)?.to_scalar::<i64>())
        .expect(name);
    let error = (probability * (1.0 - probability) / COUNT as f64).sqrt();
    let got = below as f64 / COUNT as f64;
    assert!(
        (got - probability).abs() <= 5.0 * error,
        "{name}: {got}, not {probability}"
    );
}

#[test]
fn distributions() -> Outcome {
    let (g, f32) = (generator(), DType::F32);
    let e = std::f64::consts::E;
    assert_moments("uniform", g.uniform(-1, 3, [COUNT], f32), 1.0, 16.0 / 12.0);
    assert_moments("normal", g.normal(&many(2.0)?, 3), 2.0, 9.0);
    assert_moments("randint", g.randint(-3, 4, [COUNT], DType::I16), 0.0, 4.0);
    let wide = g.randint(i64::MIN / 2, i64::MAX / 2, [COUNT], DType::I64)?;
    let bound = (1u64 << 62) as f64;
    let scaled = wide.to_dtype(DType::F64)?.div(bound);
    assert_moments("wide randint", scaled, 0.0, 1.0 / 3.0);
    assert_moments("exponential", g.exponential(2, [COUNT], f32), 0.5, 0.25);
    assert_moments(
        "geometric",
        g.geometric(0.25, [COUNT], DType::I64),
        4.0,
        12.0,
    );
    assert_moments("bernoulli", g.bernoulli(&many(0.3)?), 0.3, 0.21);
    let spread = 0.25f64.exp();
    let log_normal = g.log_normal(0.0, 0.5, [COUNT], DType::F64);
    assert_moments(
        "log_normal",
        log_normal,
        spread.sqrt(),
        spread * (spread - 1.0),
    );
    assert_quantile("cauchy", g.cauchy(1, 2, [COUNT], f32), 3.0, 0.75);
    assert_quantile("cauchy", g.cauchy(1, 2, [COUNT], f32), -1.0, 0.25);
    let cut = g.truncated_normal([0.0, 1.0], [-1.0, 1.0], [COUNT], f32);
    assert_moments("truncated_normal", cut, 0.0, 0.291_125_10);
    for shape in [0.3, 1.0, 7.5] {
        assert_moments("gamma", g.gamma(&many(shape)?, 2), shape / 2.0, shape / 4.0);
    }
    assert_quantile("gamma", g.gamma(&many(1.0)?, 1), 1.0, 1.0 - 1.0 / e);
    assert_moments("beta", g.beta(&many(2.0)?, 3), 0.4, 0.04);
    for rate in [0.0, 0.2, 3.0, 9.9, 10.1, 400.0] {
        assert_moments("poisson", g.poisson(&many(rate)?), rate, rate);
    }
    assert_quantile("poisson", g.poisson(&many(12.0)?), 12.0, 0.575_965_25);
    for (n, p) in [
        (8.0, 0.25),
        (8.0, 0.9),
        (300.0, 0.01),
        (100.0, 0.3),
        (1e4, 0.75),
    ] {
        assert_moments(
            "binomial",
            g.binomial(&many(n)?, p),
            n * p,
            n * p * (1.0 - p),
        );
    }
    assert_quantile(
        "binomial",
        g.binomial(&many(40.0)?, 0.5),
        20.0,
        0.562_685_33,
    );
    Ok(())
}

#[test]
fn simplices_and_complex_numbers() -> Outcome {
    let g = generator();
    let parts = g.dirichlet(&tensor![1.0, 2.0, 5.0].expand([COUNT, 3])?)?;
    let sums = parts.sum(1, false)?.sub(1)?.abs()?.max(None, false)?;
    assert!(sums.to_scalar::<f32>()? < 1e-5);
    assert_moments("dirichlet", parts.select(1, 2), 0.625, 0.625 * 0.375 / 9.0);
    let z = g.rand([COUNT], DType::Complex64)?;
    assert_moments("complex rand", z.imag(), 0.5, 1.0 / 12.0);
    Ok(())
}

#[test]
fn choices() -> Outcome {
    let g = generator();
    let weights = tensor![0.0, 1.0, 3.0, 0.0];
    let drawn = g.multinomial(&weights, COUNT, true)?;
    assert_moments("multinomial", Ok(drawn), 1.75, 0.1875);
    let rows = tensor![[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]];
    assert_eq!(
        g.multinomial(&rows, 2, true)?
            .select(0, 1)?
            .to_vec::<i64>()?,
        [2, 2]
    );
    let all = g.multinomial(&tensor![0.1, 5.0, 0.2], 3, false)?;
    assert_eq!(all.sort(0, false)?.0.to_vec::<i64>()?, [0, 1, 2]);
    // Without replacement the first is drawn by the weights.
    let first = g.multinomial(&weights.expand([COUNT, 4])?, 1, false)?;
    assert_moments("multinomial", first.ravel(), 1.75, 0.1875);
    let chosen = g.categorical(&weights.expand([COUNT, 4])?);
    assert_moments("categorical", chosen, 1.75, 0.1875);
    let order = g.randperm(1000, DType::I64)?;
    assert_ne!(order.to_vec::<i64>()?[..5], [0, 1, 2, 3, 4]);
    let sorted = order.sort(0, false)?.0.to_vec::<i64>()?;
    assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    assert_eq!(g.randperm(0, DType::I64)?.shape(), [0]);
    Ok(())
}

#[test]
fn generators() -> Outcome {
    let g = generator();
    let draw = |g: &Generator| g.rand([3], DType::F32)?.to_vec::<f32>();
    let (state, first) = (g.state(), draw(&g)?);
    assert_ne!(draw(&g)?, first);
    g.set_state(state);
    let fork = g.fork();
    assert_ne!(draw(&fork)?, first);
    g.manual_seed(11);
    assert_eq!((draw(&g)?, g.initial_seed()), (first, 11));
    assert_eq!(draw(&g.fork())?.len(), 3);
    assert_eq!(g.seed(), g.initial_seed());
    assert_eq!(g.key()?.shape(), [2]);
    assert_eq!(fork_rng(|| 3), 3);
    Ok(())
}

#[test]
fn written_over() -> Outcome {
    let mut x = Tensor::zeros([COUNT], DType::F32)?;
    x.eval()?;
    let memory = x.storage()?;
    assert_moments(
        "uniform_",
        x.uniform_(0, 2).map(|x| x.clone()),
        1.0,
        1.0 / 3.0,
    );
    assert_moments("normal_", x.normal_(1, 2).map(|x| x.clone()), 1.0, 4.0);
    assert_moments(
        "bernoulli_",
        x.bernoulli_(0.5).map(|x| x.clone()),
        0.5,
        0.25,
    );
    assert_moments(
        "exponential_",
        x.exponential_(1).map(|x| x.clone()),
        1.0,
        1.0,
    );
    assert!(x.storage()?.same_as(&memory));
    let mut n = Tensor::zeros([COUNT], DType::I64)?;
    assert_moments("random_", n.random_(0, 10).map(|n| n.clone()), 4.5, 8.25);
    assert_eq!(x.randn_like()?.shape(), [COUNT]);
    assert_eq!(n.randint_like(0, 2)?.dtype(), DType::I64);
    Ok(())
}

#[test]
fn what_is_no_distribution_is_refused() -> Outcome {
    let (g, f32) = (generator(), DType::F32);
    assert!(error(g.exponential(-1, [2], f32)).contains("positive rate, got -1"));
    assert!(error(g.uniform(1, 0, [2], f32)).contains("low <= high"));
    assert!(g.geometric(1.0, [2], f32).is_err() && g.cauchy(0, 0, [2], f32).is_err());
    assert!(g.gamma(0.0, 1).is_err() && g.normal(0.0, -1.0).is_err());
    assert!(g.randint(0, 0, [2], DType::I64).is_err());
    assert!(g.randint(i64::MIN, i64::MAX, [2], DType::I64).is_err());
    assert!(error(g.multinomial(&tensor![1.0, -1.0], 1, true)).contains("not negative"));
    assert!(error(g.multinomial(&tensor![0.0, 0.0], 1, true)).contains("above 0"));
    assert!(error(g.multinomial(&tensor![1.0, 0.0], 3, false)).contains("1 to 2 samples"));
    assert!(g.multinomial(&tensor![1, 2], 1, true).is_err());
    assert!(error(g.exponential(tensor![1.0, 2.0], [3], f32)).contains("broadcast"));
    assert!(error(g.poisson(&tensor![-1.0, 1.0])?.eval()).contains("is -1, not 0 or more"));
    assert!(g.bernoulli(&tensor![1, 0]).is_err() && g.rand([1], DType::I64).is_err());
    Ok(())
}
