//! Windows of signals: `torch.signal.windows`, and the older names beside it.
//!
//! They are computed by the host in double precision. `sym` makes a symmetric window, for filters. Otherwise the window
//! is periodic, for spectra: a symmetric window of `m + 1` elements without its last.

use std::f64::consts::{PI, SQRT_2};

use rustorch_ir::DType;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::random::wide;
use crate::error::{RusTorchResult, require, with_room};

/// A window of `m` elements by their positions; the only one of a window of one is 1.
fn window(
    name: &'static str,
    m: usize,
    dtype: DType,
    element: impl Fn(f64) -> f64,
) -> RusTorchResult<Tensor> {
    let legal = matches!(dtype, DType::F32 | DType::F64);
    require(name, legal, "f32 or f64", dtype)?;
    let value = |i: usize| if m == 1 { 1.0 } else { element(i as f64) };
    if dtype == DType::F64 {
        let mut elements = with_room(name, m)?;
        elements.extend((0..m).map(value));
        return Tensor::from_vec(elements, [m]);
    }
    let mut elements = with_room(name, m)?;
    elements.extend((0..m).map(|i| value(i) as f32));
    Tensor::from_vec(elements, [m])
}

/// Steps from the first element of a window to its last.
fn steps(m: usize, sym: bool) -> f64 {
    m as f64 - if sym { 1.0 } else { 0.0 }
}

fn cosines(
    name: &'static str,
    m: usize,
    weights: &[f64],
    sym: bool,
    dtype: DType,
) -> RusTorchResult<Tensor> {
    let step = 2.0 * PI / steps(m, sym);
    window(name, m, dtype, |i| {
        let signed = weights.iter().enumerate().map(|(k, &weight)| match k % 2 {
            0 => weight * (k as f64 * i * step).cos(),
            _ => -weight * (k as f64 * i * step).cos(),
        });
        signed.sum()
    })
}

/// `Σ (−1)ᵏ weights[k] · cos(2πkn / steps)`.
///
/// # Errors
/// Fails for a dtype other than `f32` and `f64`, no weights, or too little memory. The errors of
/// the other windows are the same.
#[track_calls]
pub fn general_cosine(
    m: usize,
    weights: &[f64],
    sym: bool,
    dtype: DType,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "general_cosine";
    require(NAME, !weights.is_empty(), "at least one weight", "none")?;
    cosines(NAME, m, weights, sym, dtype)
}

/// `alpha − (1 − alpha) · cos(2πn / steps)`.
///
/// # Errors
/// The same errors as [`general_cosine`].
#[track_calls]
pub fn general_hamming(m: usize, alpha: f64, sym: bool, dtype: DType) -> RusTorchResult<Tensor> {
    cosines("general_hamming", m, &[alpha, 1.0 - alpha], sym, dtype)
}

/// Hann's window: [`general_hamming`] of 0.5.
///
/// # Errors
/// The same errors as [`general_cosine`].
#[track_calls]
pub fn hann(m: usize, sym: bool, dtype: DType) -> RusTorchResult<Tensor> {
    cosines("hann", m, &[0.5, 0.5], sym, dtype)
}

/// Hamming's window: [`general_hamming`], with an `alpha` of 0.54 by PyTorch's default.
///
/// # Errors
/// The same errors as [`general_cosine`].
#[track_calls]
pub fn hamming(m: usize, alpha: f64, sym: bool, dtype: DType) -> RusTorchResult<Tensor> {
    cosines("hamming", m, &[alpha, 1.0 - alpha], sym, dtype)
}

/// Blackman's window: [`general_cosine`] of 0.42, 0.5 and 0.08.
///
/// # Errors
/// The same errors as [`general_cosine`].
#[track_calls]
pub fn blackman(m: usize, sym: bool, dtype: DType) -> RusTorchResult<Tensor> {
    cosines("blackman", m, &[0.42, 0.5, 0.08], sym, dtype)
}

/// The Blackman–Harris window of Nuttall's paper with the fastest fall:
/// [`general_cosine`] of 0.3635819, 0.4891775, 0.1365995 and 0.0106411.
///
/// # Errors
/// The same errors as [`general_cosine`].
#[track_calls]
pub fn nuttall(m: usize, sym: bool, dtype: DType) -> RusTorchResult<Tensor> {
    let weights = [0.363_581_9, 0.489_177_5, 0.136_599_5, 0.010_641_1];
    cosines("nuttall", m, &weights, sym, dtype)
}

/// Bartlett's triangle, which ends with 0.
///
/// # Errors
/// The same errors as [`general_cosine`].
#[track_calls]
pub fn bartlett(m: usize, sym: bool, dtype: DType) -> RusTorchResult<Tensor> {
    let step = 2.0 / steps(m, sym);
    window("bartlett", m, dtype, |i| 1.0 - (i * step - 1.0).abs())
}

/// Half a period of a sine, `sin(π(n + ½) / m)`.
///
/// # Errors
/// The same errors as [`general_cosine`].
#[track_calls]
pub fn cosine(m: usize, sym: bool, dtype: DType) -> RusTorchResult<Tensor> {
    let step = PI / (steps(m, sym) + 1.0);
    window("cosine", m, dtype, |i| ((i + 0.5) * step).sin())
}

/// `exp(−|n − center| / tau)`; by default (`None`) the center is that of the window.
///
/// # Errors
/// The same errors as [`general_cosine`]. Also fails for a `tau` that is not positive, or a
/// `center` of a symmetric window.
#[track_calls]
pub fn exponential(
    m: usize,
    center: impl Into<Option<f64>>,
    tau: f64,
    sym: bool,
    dtype: DType,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "exponential";
    let center = center.into();
    require(NAME, tau > 0.0, "a positive tau", tau)?;
    let own = "no center of a symmetric window";
    require(
        NAME,
        !sym || center.is_none(),
        own,
        center.unwrap_or_default(),
    )?;
    let center = center.unwrap_or(steps(m, sym) / 2.0);
    window(NAME, m, dtype, |i| (-(i - center).abs() / tau).exp())
}

/// Gauss's bell of this standard deviation in elements.
///
/// # Errors
/// The same errors as [`general_cosine`]. Also fails for a deviation that is not positive.
#[track_calls]
pub fn gaussian(m: usize, std: f64, sym: bool, dtype: DType) -> RusTorchResult<Tensor> {
    const NAME: &str = "gaussian";
    require(NAME, std > 0.0, "a positive standard deviation", std)?;
    let (middle, scale) = (steps(m, sym) / 2.0, 1.0 / (std * SQRT_2));
    window(NAME, m, dtype, |i| (-((i - middle) * scale).powi(2)).exp())
}

/// Kaiser's window, `I₀(β √(1 − x²)) / I₀(β)` for `x` from −1 to 1.
///
/// # Errors
/// The same errors as [`general_cosine`]. Also fails for a negative `beta`.
#[track_calls]
pub fn kaiser(m: usize, beta: f64, sym: bool, dtype: DType) -> RusTorchResult<Tensor> {
    const NAME: &str = "kaiser";
    require(NAME, beta >= 0.0, "a beta that is not negative", beta)?;
    let step = 2.0 / steps(m, sym);
    window(NAME, m, dtype, |i| {
        let x = (i * step - 1.0).min(1.0);
        bessel_i0(beta * (1.0 - x * x).max(0.0).sqrt()) / bessel_i0(beta)
    })
}

/// The modified Bessel function of the first kind of order 0, by its power series `Σ ((x/2)ⁿ / n!)²`. All of
/// its terms are positive.
fn bessel_i0(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut sum, mut term, mut n) = (1.0, 1.0, 1.0);
    while term > sum * f64::EPSILON && sum.is_finite() {
        term *= quarter / (n * n);
        sum += term;
        n += 1.0;
    }
    sum
}

#[track_calls]
impl Tensor {
    /// [`hann`], periodic or symmetric.
    ///
    /// # Errors
    /// Fails for a block format, or too little memory.
    pub fn hann_window(length: usize, periodic: bool, dtype: DType) -> RusTorchResult<Self> {
        hann(length, !periodic, wide(dtype))?.to_dtype(dtype)
    }

    /// `alpha − beta · cos(2πn / steps)`, periodic or symmetric. PyTorch's defaults are 0.54 and
    /// 0.46.
    ///
    /// # Errors
    /// Fails for a block format, or too little memory.
    pub fn hamming_window(
        length: usize,
        periodic: bool,
        alpha: f64,
        beta: f64,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        let name = "hamming_window";
        cosines(name, length, &[alpha, beta], !periodic, wide(dtype))?.to_dtype(dtype)
    }

    /// [`blackman`], periodic or symmetric.
    ///
    /// # Errors
    /// Fails for a block format, or too little memory.
    pub fn blackman_window(length: usize, periodic: bool, dtype: DType) -> RusTorchResult<Self> {
        blackman(length, !periodic, wide(dtype))?.to_dtype(dtype)
    }

    /// [`bartlett`], periodic or symmetric.
    ///
    /// # Errors
    /// Fails for a block format, or too little memory.
    pub fn bartlett_window(length: usize, periodic: bool, dtype: DType) -> RusTorchResult<Self> {
        bartlett(length, !periodic, wide(dtype))?.to_dtype(dtype)
    }

    /// [`kaiser`], periodic or symmetric. PyTorch's default beta is 12.
    ///
    /// # Errors
    /// Fails for a block format, too little memory, or a negative `beta`.
    pub fn kaiser_window(
        length: usize,
        periodic: bool,
        beta: f64,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        kaiser(length, beta, !periodic, wide(dtype))?.to_dtype(dtype)
    }
}
