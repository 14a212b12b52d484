//! Covariance of variables, and derivatives along a dimension.

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::promote::result_dtype;
use crate::args::dims::IntoDims;
use crate::error::{RusTorchResult, require};

/// The positions of the values of [`Tensor::gradient`].
#[derive(Clone)]
pub enum Spacing {
    /// One distance for all dimensions.
    Step(f64),
    /// One distance for each dimension.
    Steps(Vec<f64>),
    /// Coordinates, a vector for each dimension.
    Places(Vec<Tensor>),
}

impl From<f64> for Spacing {
    fn from(step: f64) -> Self {
        Self::Step(step)
    }
}

impl<const N: usize> From<[f64; N]> for Spacing {
    fn from(steps: [f64; N]) -> Self {
        Self::Steps(steps.to_vec())
    }
}

impl From<&[&Tensor]> for Spacing {
    fn from(places: &[&Tensor]) -> Self {
        Self::Places(places.iter().map(|&t| t.clone()).collect())
    }
}

impl<const N: usize> From<[&Tensor; N]> for Spacing {
    fn from(places: [&Tensor; N]) -> Self {
        places[..].into()
    }
}

#[track_calls]
impl Tensor {
    /// The covariance matrix of variables, which are the rows of `[variables, observations]`. A
    /// vector or number is one variable, and gives its variance. `fweights` are integers, the
    /// counts of each observation. `aweights` are floats, their weights. Integers become `f32`.
    ///
    /// # Errors
    /// Fails for rank above 2, or booleans. Also fails for weights that are not vectors of the
    /// observations, or of an unsupported dtype. Weights that are negative or add up to 0 fail too;
    /// this check computes them.
    pub fn cov(
        &self,
        correction: i64,
        fweights: Option<&Self>,
        aweights: Option<&Self>,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "cov";
        let legal = self.rank() <= 2 && self.dtype() != DType::Bool;
        require(NAME, legal, "numbers of rank 2 or less", self.ty())?;
        let dtype = if self.dtype().is_int() {
            DType::F32
        } else {
            self.dtype()
        };
        let x = self.cast(NAME, dtype)?;
        let x = if self.rank() < 2 {
            x.reshape([1, self.numel()])?
        } else {
            x
        };
        let count = x.shape()[1];
        let is_whole = fweights.is_none_or(|w| w.dtype().is_int());
        let is_real = aweights.is_none_or(|w| w.dtype().is_float());
        let expected = "frequencies that are integers, and other weights that are floats";
        require(NAME, is_whole && is_real, expected, "other weights")?;
        for weights in [fweights, aweights].into_iter().flatten() {
            let expected = format_args!("weights [{count}]");
            require(NAME, weights.shape() == [count], expected, weights.ty())?;
            if !weights.is_traced() && count > 0 {
                let are_legal = weights.ge(0)?.all(None, false)?.to_scalar::<bool>()?;
                require(NAME, are_legal, "weights that are not negative", "others")?;
            }
        }
        let weights = match (&fweights, &aweights) {
            (Some(f), Some(a)) => Some(f.mul(*a)?),
            (f, a) => f.or(*a).cloned(),
        };
        let weighted = |x: &Self| match &weights {
            Some(weights) => x.mul(weights),
            None => Ok(x.clone()),
        };
        let total = match &weights {
            Some(weights) => {
                let total = weights.sum(0, false)?;
                if !weights.is_traced() && count > 0 {
                    let is_there = total.ne(0)?.to_scalar::<bool>()?;
                    require(NAME, is_there, "weights whose sum is not 0", "a sum of 0")?;
                }
                total
            }
            None => Self::full([], count as f64, dtype.real())?,
        };
        let mean = weighted(&x)?.sum(1, true)?.div(&total)?;
        let corrected = match (&weights, &aweights) {
            (Some(weights), Some(aweights)) => {
                let squares = weights.mul(*aweights)?.sum(0, false)?.div(&total)?;
                total.sub(&squares.mul(correction)?)?
            }
            _ => total.sub(correction)?,
        };
        let away = x.sub(&mean)?;
        let product = away.matmul(&weighted(&away)?.t()?.conj()?)?;
        let cov = product.div(&corrected.maximum(0)?)?;
        match x.shape()[0] {
            1 => cov.reshape([0usize; 0]),
            _ => Ok(cov),
        }
    }

    /// The correlation coefficients of variables, the rows of `[variables, observations]`. A single
    /// variable gives 1.
    ///
    /// # Errors
    /// The same errors as [`Tensor::cov`].
    pub fn corrcoef(&self) -> RusTorchResult<Self> {
        let cov = self.cov(1, None, None)?;
        if cov.rank() == 0 {
            return cov.div(&cov);
        }
        let deviation = cov.diagonal(0, 0, 1)?.real()?.sqrt()?;
        let scaled = cov.div(&deviation.unsqueeze(1)?)?.div(&deviation)?;
        let clipped = |x: Self| x.clamp(-1.0, 1.0);
        match scaled.dtype().is_complex() {
            true => Self::complex(&clipped(scaled.real()?)?, &clipped(scaled.imag()?)?),
            false => clipped(scaled),
        }
    }

    /// Estimates of the derivative along each of `dims` (`None`: all), of this shape. Inner points
    /// use differences of second order, edges those of `edge_order`, 1 or 2. Integers become `f32`.
    ///
    /// # Errors
    /// Fails for booleans, or if a dimension does not exist or has fewer than `edge_order + 1`
    /// indices. Also fails for a spacing that does not fit the dimensions.
    pub fn gradient(
        &self,
        spacing: impl Into<Spacing>,
        dims: impl IntoDims,
        edge_order: usize,
    ) -> RusTorchResult<Vec<Self>> {
        const NAME: &str = "gradient";
        let legal = self.dtype() != DType::Bool && !self.dtype().is_block();
        require(NAME, legal, "a tensor of numbers", self.ty())?;
        require(
            NAME,
            matches!(edge_order, 1 | 2),
            "an edge order of 1 or 2",
            edge_order,
        )?;
        let (spacing, dims) = (spacing.into(), dims.into_dims().listed(NAME, self.rank())?);
        let given = match &spacing {
            Spacing::Step(_) => dims.len(),
            Spacing::Steps(steps) => steps.len(),
            Spacing::Places(places) => places.len(),
        };
        let expected = format_args!("{} spacings", dims.len());
        require(NAME, given == dims.len(), expected, given)?;
        let along = |(i, &dim): (usize, &usize)| {
            let expected = format_args!("more than {edge_order} indices of dimension {dim}");
            require(NAME, self.shape()[dim] > edge_order, expected, self.ty())?;
            // Halves are rounded once.
            let (x, mut dtype) = (self.widened(NAME)?, self.dtype());
            let slope = match &spacing {
                Spacing::Step(step) => x.even_slope(dim, *step, edge_order)?,
                Spacing::Steps(steps) => x.even_slope(dim, steps[i], edge_order)?,
                Spacing::Places(places) => {
                    let apart = distances(NAME, &places[i].widened(NAME)?, self.shape()[dim])?;
                    dtype = result_dtype(NAME, &[self.into(), (&places[i]).into()])?;
                    x.slope(dim, &apart, edge_order)?
                }
            };
            match dtype {
                DType::F16 | DType::BF16 => slope.cast(NAME, dtype),
                _ => Ok(slope),
            }
        };
        dims.iter().enumerate().map(along).collect()
    }

    /// The derivative along `dim`, whose places are `step` apart.
    fn even_slope(&self, dim: usize, step: f64, edge_order: usize) -> RusTorchResult<Self> {
        let (size, along) = (self.shape()[dim], dim as isize);
        let at = |start: usize, count: usize| self.narrow(along, start, count);
        let line = |start| at(start + 1, 1)?.sub(&at(start, 1)?)?.div(step);
        // At an edge: the neighbours behind it in the direction away from it.
        let parabola = |edge: usize, near: usize, far: usize, step: f64| {
            let sum = at(near, 1)?.mul(2)?.sub(&at(edge, 1)?.mul(1.5)?)?;
            sum.sub(&at(far, 1)?.mul(0.5)?)?.div(step)
        };
        let [first, last] = match edge_order {
            1 => [line(0)?, line(size - 2)?],
            _ => [
                parabola(0, 1, 2, step)?,
                parabola(size - 1, size - 2, size - 3, -step)?,
            ],
        };
        let inside = at(2, size - 2)?.sub(&at(0, size - 2)?)?.div(2.0 * step)?;
        Self::cat(&[&first, &inside, &last], along)
    }

    /// The derivative along `dim`, with distances `apart` between its places. Each is that of the
    /// parabola through three neighbours. At the edges an `edge_order` of 1 takes the line through two.
    fn slope(&self, dim: usize, apart: &Self, edge_order: usize) -> RusTorchResult<Self> {
        let (size, along) = (self.shape()[dim], dim as isize);
        let behind = self.rank() - 1 - dim;
        let spread = |t: &Self| t.reshape(&[&[t.numel()], &vec![1; behind][..]].concat()[..]);
        let at = |start: usize, count: usize| self.narrow(along, start, count);
        let step = |start: usize, count: usize| spread(&apart.narrow(0, start, count)?);
        let line = |start: usize| at(start + 1, 1)?.sub(&at(start, 1)?)?.div(&step(start, 1)?);
        // Three neighbours from `start` on, `count` times; weights of each by the distances.
        let parabola = |start: usize, count: usize, weights: Weights| {
            let (near, far) = (step(start, count)?, step(start + 1, count)?);
            let [a, b, c] = weights(&near, &far)?;
            let sum = a
                .mul(&at(start, count)?)?
                .add(&b.mul(&at(start + 1, count)?)?)?;
            sum.add(&c.mul(&at(start + 2, count)?)?)
        };
        let mut parts = Vec::with_capacity(3);
        parts.push(match edge_order {
            1 => line(0)?,
            _ => parabola(0, 1, first_of_three)?,
        });
        if size > 2 {
            parts.push(parabola(0, size - 2, middle_of_three)?);
        }
        parts.push(match edge_order {
            1 => line(size - 2)?,
            _ => parabola(size - 3, 1, last_of_three)?,
        });
        Self::cat(&parts.iter().collect::<Vec<_>>(), along)
    }
}

/// Distances between the places of a dimension of `size`.
fn distances(name: &'static str, places: &Tensor, size: usize) -> RusTorchResult<Tensor> {
    let expected = format_args!("{size} places");
    require(name, places.shape() == [size], expected, places.ty())?;
    places
        .narrow(0, 1, size - 1)?
        .sub(&places.narrow(0, 0, size - 1)?)
}

/// The weights of three neighbours in a derivative, by the distances between them: those of Lagrange's
/// polynomial of degree 2.
type Weights = fn(&Tensor, &Tensor) -> RusTorchResult<[Tensor; 3]>;

fn first_of_three(near: &Tensor, far: &Tensor) -> RusTorchResult<[Tensor; 3]> {
    let both = near.add(far)?;
    Ok([
        near.add(&both)?.div(&near.mul(&both)?)?.neg()?,
        both.div(&near.mul(far)?)?,
        near.div(&far.mul(&both)?)?.neg()?,
    ])
}

fn middle_of_three(near: &Tensor, far: &Tensor) -> RusTorchResult<[Tensor; 3]> {
    let both = near.add(far)?;
    Ok([
        far.div(&near.mul(&both)?)?.neg()?,
        far.sub(near)?.div(&near.mul(far)?)?,
        near.div(&far.mul(&both)?)?,
    ])
}

fn last_of_three(near: &Tensor, far: &Tensor) -> RusTorchResult<[Tensor; 3]> {
    let both = near.add(far)?;
    Ok([
        far.div(&near.mul(&both)?)?,
        both.div(&near.mul(far)?)?.neg()?,
        far.add(&both)?.div(&far.mul(&both)?)?,
    ])
}
