//! Distributions, built from uniform and normal numbers.
//!
//! Parameters are numbers, or tensors that broadcast to the shape. Numbers outside a distribution's
//! range are an error. Elements of tensors are not checked, and give the formula's result.

use std::f64::consts::SQRT_2;

use rustorch_ir::{DType, OpError, Scalar};
use rustorch_macros::track_calls;

use super::{Generator, default_generator};
use crate::Tensor;
use crate::api::promote::AsOperand;
use crate::api::promote::{Operand, result_dtype};
use crate::args::dims::IntoShape;
use crate::args::numbers::is_inside;
use crate::error::{RusTorchResult, require};

/// Proposals for each number of a rejection method: the chance that none is accepted is below
/// 2⁻³².
const GAMMA_PROPOSALS: usize = 8;

/// The dtype that numbers of a float dtype are drawn in.
pub(crate) fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// A float dtype for numbers drawn by parameters.
pub(super) fn drawn_dtype(name: &'static str, parameters: &[Operand]) -> RusTorchResult<DType> {
    let dtype = result_dtype(name, parameters)?;
    let legal = dtype.is_float() || dtype.is_int();
    require(name, legal, "parameters that are real numbers", dtype)?;
    Ok(if dtype.is_float() { dtype } else { DType::F32 })
}

/// Fails if a parameter is a number other than these.
fn check(
    name: &'static str,
    parameter: Operand,
    is_legal: impl Fn(f64) -> bool,
    expected: &str,
) -> RusTorchResult<()> {
    match parameter {
        Operand::Scalar(value) => require(name, is_legal(value.as_f64()), expected, value),
        Operand::Tensor(_) => Ok(()),
    }
}

/// The shape that operands broadcast to.
pub(super) fn common(
    name: &'static str,
    operands: &[Operand],
) -> RusTorchResult<rustorch_ir::Shape> {
    let both = |shape: rustorch_ir::Shape, operand: &Operand| match operand {
        Operand::Tensor(t) => rustorch_ir::broadcast_shapes(name, &shape, t.shape()),
        Operand::Scalar(_) => Ok(shape),
    };
    Ok(operands
        .iter()
        .try_fold(rustorch_ir::Shape::default(), both)?)
}

#[track_calls]
impl Generator {
    /// Uniform numbers from `[0, 1)`, see [`Tensor::rand`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::rand`].
    pub fn rand(&self, shape: impl IntoShape, dtype: DType) -> RusTorchResult<Tensor> {
        Tensor::rand_seeded(shape, dtype, self.draw_seed())
    }

    /// Standard normal numbers, see [`Tensor::randn`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::randn`].
    pub fn randn(&self, shape: impl IntoShape, dtype: DType) -> RusTorchResult<Tensor> {
        Tensor::randn_seeded(shape, dtype, self.draw_seed())
    }

    /// Uniform integers from `low..high`, see [`Tensor::randint`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::randint`].
    pub fn randint(
        &self,
        low: i64,
        high: i64,
        shape: impl IntoShape,
        dtype: DType,
    ) -> RusTorchResult<Tensor> {
        Tensor::randint_seeded(low, high, shape, dtype, self.draw_seed())
    }

    /// Numbers drawn evenly from between 0 and 1, without either.
    pub(super) fn open(
        &self,
        name: &'static str,
        shape: &[usize],
        dtype: DType,
    ) -> RusTorchResult<Tensor> {
        require(name, dtype.is_float(), "a floating-point dtype", dtype)?;
        let dtype = wide(dtype);
        // A quarter of the grid's step: less than what would round the largest number to 1.
        let quarter = if dtype == DType::F64 { -34 } else { -26 };
        self.rand(shape, dtype)?.add(f64::from(quarter).exp2())
    }

    /// Uniform numbers from `[low, high)`. They are floats, or complex numbers with uniform parts.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or a shape that parameters do not broadcast to. Also fails for bounds in falling
    /// order, or whose distance the dtype cannot hold.
    pub fn uniform(
        &self,
        low: impl AsOperand,
        high: impl AsOperand,
        shape: impl IntoShape,
        dtype: DType,
    ) -> RusTorchResult<Tensor> {
        const NAME: &str = "uniform";
        let (low, high) = (low.as_operand()?, high.as_operand()?);
        if let (Operand::Scalar(low), Operand::Scalar(high)) = (low, high) {
            let got = format_args!("{low} and {high}");
            require(NAME, low.as_f64() <= high.as_f64(), "low <= high", got)?;
            let width = Scalar::from(high.as_f64() - low.as_f64());
            let is_finite = |x: &Scalar| x.as_f64().is_finite() && is_inside(*x, dtype);
            let expected = format_args!("bounds that {dtype} holds, and whose difference it holds");
            require(
                NAME,
                [low, high, width].iter().all(is_finite),
                expected,
                got,
            )?;
        }
        if dtype.is_complex() {
            let shape = &shape.into_shape()[..];
            let part = || self.uniform(low, high, shape, dtype.real());
            return Tensor::complex(&part()?, &part()?);
        }
        require(
            NAME,
            dtype.is_float(),
            "a floating-point or complex dtype",
            dtype,
        )?;
        let kind = wide(dtype);
        let [low, high] = [low.to_tensor(NAME, kind)?, high.to_tensor(NAME, kind)?];
        let even = self.rand(shape, kind)?;
        kept_shape(NAME, &even, even.mul(&high.sub(&low)?)?.add(&low)?)?.cast(NAME, dtype)
    }

    /// Normal numbers with these means and standard deviations, in their broadcast shape. The dtype
    /// is that of the means, or of the deviations if the means are a number. Takes floats.
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, complex parameters, or a negative number as `std`.
    /// Evaluation fails for a negative element of `std`.
    pub fn normal(&self, mean: impl AsOperand, std: impl AsOperand) -> RusTorchResult<Tensor> {
        const NAME: &str = "normal";
        let (mean, std) = (mean.as_operand()?, std.as_operand()?);
        check(
            NAME,
            std,
            |std| std >= 0.0,
            "a deviation that is not negative",
        )?;
        let given = std;
        // The means say it where they are a tensor.
        let all = [mean, std];
        let dtype = match mean {
            Operand::Tensor(_) => drawn_dtype(NAME, &all[..1])?,
            Operand::Scalar(_) => drawn_dtype(NAME, &all)?,
        };
        let shape = common(NAME, &[mean, std])?;
        let [mean, mut std] = [mean.to_tensor(NAME, dtype)?, std.to_tensor(NAME, dtype)?];
        if let Operand::Tensor(_) = given {
            std = std.within(NAME, 0.0, f64::INFINITY, false)?;
        }
        self.randn(&shape[..], dtype)?.mul(&std)?.add(&mean)
    }

    /// `exp` of normal numbers of this mean and standard deviation. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or a shape that parameters do not broadcast to. Also fails
    /// for a number as `std` that is not positive.
    pub fn log_normal(
        &self,
        mean: impl AsOperand,
        std: impl AsOperand,
        shape: impl IntoShape,
        dtype: DType,
    ) -> RusTorchResult<Tensor> {
        const NAME: &str = "log_normal";
        let (mean, std) = (mean.as_operand()?, std.as_operand()?);
        check(NAME, std, |std| std > 0.0, "a positive deviation")?;
        require(NAME, dtype.is_float(), "a floating-point dtype", dtype)?;
        let normal = self.randn(shape, wide(dtype))?;
        let scaled = normal.mul(&std.to_tensor(NAME, wide(dtype))?)?;
        let moved = scaled.add(&mean.to_tensor(NAME, wide(dtype))?)?;
        kept_shape(NAME, &normal, moved.exp()?)?.cast(NAME, dtype)
    }

    /// Numbers of Cauchy's distribution with this median and half width at half maximum. Takes
    /// floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or a shape that parameters do not broadcast to. Also fails
    /// for a number as `sigma` that is not positive.
    pub fn cauchy(
        &self,
        median: impl AsOperand,
        sigma: impl AsOperand,
        shape: impl IntoShape,
        dtype: DType,
    ) -> RusTorchResult<Tensor> {
        const NAME: &str = "cauchy";
        let (median, sigma) = (median.as_operand()?, sigma.as_operand()?);
        check(NAME, sigma, |sigma| sigma > 0.0, "a positive sigma")?;
        let even = self.open(NAME, &shape.into_shape()[..], dtype)?;
        let standard = even.sub(0.5)?.mul(std::f64::consts::PI)?.tan()?;
        let scaled = standard.mul(&sigma.to_tensor(NAME, wide(dtype))?)?;
        let moved = scaled.add(&median.to_tensor(NAME, wide(dtype))?)?;
        kept_shape(NAME, &even, moved)?.cast(NAME, dtype)
    }

    /// Waiting times of events with this rate: the exponential distribution. Floats, above 0.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or a shape that parameters do not broadcast to. Also fails
    /// for a number as rate that is not positive.
    pub fn exponential(
        &self,
        rate: impl AsOperand,
        shape: impl IntoShape,
        dtype: DType,
    ) -> RusTorchResult<Tensor> {
        const NAME: &str = "exponential";
        let rate = rate.as_operand()?;
        check(NAME, rate, |rate| rate > 0.0, "a positive rate")?;
        let even = self.open(NAME, &shape.into_shape()[..], dtype)?;
        let times = even
            .log()?
            .neg()?
            .div(&rate.to_tensor(NAME, wide(dtype))?)?;
        kept_shape(NAME, &even, times)?.cast(NAME, dtype)
    }

    /// Number of trials up to the first success of this probability, from 1: the geometric
    /// distribution.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or a shape that parameters do not broadcast to. Also fails
    /// for a number as probability that is not between 0 and 1.
    pub fn geometric(
        &self,
        probability: impl AsOperand,
        shape: impl IntoShape,
        dtype: DType,
    ) -> RusTorchResult<Tensor> {
        const NAME: &str = "geometric";
        let p = probability.as_operand()?;
        check(
            NAME,
            p,
            |p| p > 0.0 && p < 1.0,
            "a probability between 0 and 1",
        )?;
        let legal = dtype.is_float() || dtype.is_int();
        require(NAME, legal, "an integer or floating-point dtype", dtype)?;
        let kind = wide(if dtype.is_int() { DType::F64 } else { dtype });
        let even = self.open(NAME, &shape.into_shape()[..], kind)?;
        let failure = p.to_tensor(NAME, kind)?.neg()?.add(1)?.log()?;
        let trials = even.log()?.div(&failure)?.ceil()?.maximum(1)?;
        kept_shape(NAME, &even, trials)?.cast(NAME, dtype)
    }

    /// 1 with the probability in each element, else 0, in the same dtype. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype. Evaluation fails for numbers outside 0 to 1.
    pub fn bernoulli(&self, probabilities: &Tensor) -> RusTorchResult<Tensor> {
        const NAME: &str = "bernoulli";
        probabilities.require_float(NAME)?;
        let dtype = probabilities.dtype();
        self.rand(probabilities.shape(), wide(dtype))?
            .lt(&probabilities.probabilities(NAME)?)?
            .cast(NAME, dtype)
    }

    /// Normal numbers of this mean and standard deviation within `low..=high`, by the inverse of their
    /// distribution: `torch.nn.init.trunc_normal_`. Takes floats.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, a deviation that is not positive, or bounds that are not in
    /// order.
    pub fn truncated_normal(
        &self,
        [mean, std]: [f64; 2],
        [low, high]: [f64; 2],
        shape: impl IntoShape,
        dtype: DType,
    ) -> RusTorchResult<Tensor> {
        const NAME: &str = "truncated_normal";
        require(NAME, std > 0.0, "a positive deviation", std)?;
        require(
            NAME,
            low <= high,
            "low <= high",
            format!("{low} and {high}"),
        )?;
        let even = self.open(NAME, &shape.into_shape()[..], dtype)?;
        // Between these values of the error function.
        let ends = [low, high].map(|end| libm::erf((end - mean) / (std * SQRT_2)));
        let error = even.mul(ends[1] - ends[0])?.add(ends[0])?;
        let normal = error.erfinv()?.mul(std * SQRT_2)?.add(mean)?;
        normal.clamp(low, high)?.cast(NAME, dtype)
    }

    /// Numbers of the gamma distribution of these shapes (`concentration`) and rates, which are floats. They have
    /// their broadcast shape and dtype. Source: [Marsaglia and Tsang 2000](https://doi.org/10.1145/358407.358414).
    ///
    /// # Errors
    /// Fails for shapes that do not broadcast, complex parameters, or numbers that are not
    /// positive.
    pub fn gamma(
        &self,
        concentration: impl AsOperand,
        rate: impl AsOperand,
    ) -> RusTorchResult<Tensor> {
        const NAME: &str = "gamma";
        let (concentration, rate) = (concentration.as_operand()?, rate.as_operand()?);
        for parameter in [concentration, rate] {
            check(NAME, parameter, |x| x > 0.0, "positive parameters")?;
        }
        let dtype = drawn_dtype(NAME, &[concentration, rate])?;
        let shape = common(NAME, &[concentration, rate])?;
        let shapes = concentration.to_tensor(NAME, wide(dtype))?.expand(&shape)?;
        let standard = self.standard_gamma(&shapes)?;
        standard
            .div(&rate.to_tensor(NAME, wide(dtype))?)?
            .cast(NAME, dtype)
    }

    /// [`Generator::gamma`] of rate 1, in single or double precision.
    fn standard_gamma(&self, concentration: &Tensor) -> RusTorchResult<Tensor> {
        const NAME: &str = "gamma";
        let dtype = concentration.dtype();
        // A shape below 1 is had from the one above it.
        let is_low = concentration.lt(1)?;
        let raised = Tensor::where_(&is_low, &concentration.add(1)?, concentration)?;
        let d = raised.sub(1.0 / 3.0)?;
        let c = d.mul(9)?.rsqrt()?;
        let shape = concentration.shape();
        let many = [&[GAMMA_PROPOSALS], shape].concat();
        let (normal, even) = (self.randn(&many, dtype)?, self.open(NAME, &many, dtype)?);
        let root = normal.mul(&c)?.add(1)?;
        let cube = root.square()?.mul(&root)?;
        let bound = normal.square()?.mul(0.5)?.add(&d)?.sub(&cube.mul(&d)?)?;
        // Of a cube that is not positive there is no logarithm, and it is not accepted.
        let bound = bound.add(&cube.log()?.mul(&d)?)?;
        let is_accepted = even.log()?.lt(&bound)?.logical_and(&root.gt(0)?)?;
        // The first that is accepted, or the last one.
        let last = GAMMA_PROPOSALS as isize - 1;
        let at = |x: &Tensor, i| x.select(0, i);
        let found = (0..last).rev().try_fold(at(&cube, last)?, |found, i| {
            Tensor::where_(&at(&is_accepted, i)?, &at(&cube, i)?, &found)
        })?;
        let power = self
            .open(NAME, shape, dtype)?
            .log()?
            .div(concentration)?
            .exp()?;
        let lowered = Tensor::where_(&is_low, &power, 1.0)?;
        found.mul(&d)?.mul(&lowered)
    }

    /// Numbers of the beta distribution, in the common shape and dtype of its parameters. Takes
    /// floats.
    ///
    /// # Errors
    /// The same errors as [`Generator::gamma`].
    pub fn beta(&self, a: impl AsOperand, b: impl AsOperand) -> RusTorchResult<Tensor> {
        const NAME: &str = "beta";
        let (a, b) = (a.as_operand()?, b.as_operand()?);
        let dtype = drawn_dtype(NAME, &[a, b])?;
        let shape = common(NAME, &[a, b])?;
        for parameter in [a, b] {
            check(NAME, parameter, |x| x > 0.0, "positive parameters")?;
        }
        let wide = wide(dtype);
        let [a, b] = [a.to_tensor(NAME, wide)?, b.to_tensor(NAME, wide)?];
        let [a, b] = [a.expand(&shape)?, b.expand(&shape)?];
        let (a, b) = (self.standard_gamma(&a)?, self.standard_gamma(&b)?);
        a.div(&a.add(&b)?)?.cast(NAME, dtype)
    }

    /// Samples Dirichlet's distribution: probabilities that add up to 1 along the last dimension.
    /// Floats, in the shape and dtype of the `concentration`.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, or rank 0.
    pub fn dirichlet(&self, concentration: &Tensor) -> RusTorchResult<Tensor> {
        const NAME: &str = "dirichlet";
        concentration.require_float(NAME)?;
        let dtype = concentration.dtype();
        let ranked = concentration.rank() > 0;
        require(NAME, ranked, "rank 1 or more", concentration.ty())?;
        let drawn = self.standard_gamma(&concentration.cast(NAME, wide(dtype))?)?;
        drawn.div(&drawn.sum(-1, true)?)?.cast(NAME, dtype)
    }
}

/// The result, which parameters must not have enlarged.
fn kept_shape(name: &'static str, drawn: &Tensor, result: Tensor) -> RusTorchResult<Tensor> {
    let expected = format_args!("parameters that broadcast to {}", drawn.ty().shape);
    let got = || OpError::new(name, expected, result.ty());
    match drawn.shape() == result.shape() {
        true => Ok(result),
        false => Err(got().into()),
    }
}

/// The functions of the default generator: each line names one, its arguments and its results.
macro_rules! drawn_by_default {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = concat!(
                "[`Generator::", stringify!($name), "`] of the [default one](default_generator)."
            )]
            ///
            /// # Errors
            /// The errors of the generator's function.
            pub fn $name($($argument: $type),*) -> RusTorchResult<Self> {
                default_generator().$name($($argument),*)
            })*
        }
    };
}

drawn_by_default! {
    uniform(
        low: impl AsOperand, high: impl AsOperand,
        shape: impl IntoShape, dtype: DType
    );
    normal(mean: impl AsOperand, std: impl AsOperand);
    log_normal(
        mean: impl AsOperand, std: impl AsOperand,
        shape: impl IntoShape, dtype: DType
    );
    cauchy(
        median: impl AsOperand, sigma: impl AsOperand,
        shape: impl IntoShape, dtype: DType
    );
    exponential(rate: impl AsOperand, shape: impl IntoShape, dtype: DType);
    geometric(probability: impl AsOperand, shape: impl IntoShape, dtype: DType);
    gamma(concentration: impl AsOperand, rate: impl AsOperand);
    beta(a: impl AsOperand, b: impl AsOperand);
    dirichlet(concentration: &Tensor);
    truncated_normal(
        parameters: [f64; 2], bounds: [f64; 2], shape: impl IntoShape, dtype: DType
    );
    poisson(rates: &Tensor);
    binomial(count: impl AsOperand, probability: impl AsOperand);
    randperm(n: usize, dtype: DType);
    categorical(weights: &Tensor);
}

#[rustorch_macros::track_calls]
impl Tensor {
    /// [`Generator::bernoulli`] of the [default one](default_generator), of these probabilities.
    ///
    /// # Errors
    /// The errors of the generator's function.
    pub fn bernoulli(&self) -> RusTorchResult<Self> {
        default_generator().bernoulli(self)
    }

    /// [`Generator::multinomial`] of the [default one](default_generator), of these weights.
    ///
    /// # Errors
    /// The errors of the generator's function.
    pub fn multinomial(&self, samples: usize, replacement: bool) -> RusTorchResult<Self> {
        default_generator().multinomial(self, samples, replacement)
    }
}
