//! Discrete Fourier transforms, with the names of `torch.fft`.
//!
//! Integers are transformed as `f32`. `n`, or `s` for several dimensions, is the length of the
//! transform. Longer signals are cut, and shorter ones padded with zeros. Transforms of several
//! dimensions use the last ones by default.

use rustorch_ir::ops::{Fft, FftKind};
use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::shape::padding::PadMode;
use crate::args::setting::setters;
use crate::error::{RusTorchResult, require};

/// Normalisation of transforms of length `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FftNorm {
    /// Divides the inverse transform by `n`.
    #[default]
    Backward,
    /// Divides both directions by `√n`.
    Ortho,
    /// Divides the forward transform by `n`.
    Forward,
}

impl FftNorm {
    /// The scale of a transform of `n` numbers.
    fn factor(self, forward: bool, n: usize) -> f64 {
        match (self, forward) {
            (Self::Ortho, _) => 1.0 / (n as f64).sqrt(),
            (Self::Backward, false) | (Self::Forward, true) => 1.0 / n as f64,
            (Self::Backward, true) | (Self::Forward, false) => 1.0,
        }
    }
}

/// A call of a transform: its name, which way it goes, and how it is normalised.
#[derive(Clone, Copy)]
struct Call {
    name: &'static str,
    forward: bool,
    norm: FftNorm,
}

impl Call {
    /// Along one dimension, without normalising.
    fn raw(self, x: &Tensor, dim: usize, kind: FftKind) -> RusTorchResult<Tensor> {
        Tensor::apply(self.name, Fft { dim, kind }, &[x])
    }

    /// Normalised, after `n` numbers were transformed.
    fn scale(self, y: &Tensor, n: usize) -> RusTorchResult<Tensor> {
        match self.norm.factor(self.forward, n) {
            1.0 => Ok(y.clone()),
            factor => y.mul(factor),
        }
    }

    /// A transform of complex numbers along dimensions of these sizes.
    fn complex(self, x: &Tensor, dims: &[usize], sizes: &[usize]) -> RusTorchResult<Tensor> {
        let mut y = as_complex(self.name, x)?;
        let kind = if self.forward {
            FftKind::Forward
        } else {
            FftKind::Inverse
        };
        for (&dim, &n) in dims.iter().zip(sizes) {
            y = self.raw(&resized(self.name, &y, dim, n)?, dim, kind)?;
        }
        self.scale(&y, sizes.iter().product())
    }

    /// From real numbers: the last dimension to half as many complex ones, then the others.
    fn of_real(self, x: &Tensor, dims: &[usize], sizes: &[usize]) -> RusTorchResult<Tensor> {
        let got = x.ty();
        require(self.name, !x.dtype().is_complex(), "a real tensor", got)?;
        let (Some((&last, others)), Some((&n, rest))) = (dims.split_last(), sizes.split_last())
        else {
            return Err(OpError::new(self.name, "at least one dimension", "none").into());
        };
        let mut y = as_float(self.name, x)?;
        for (&dim, &n) in dims.iter().zip(sizes) {
            y = resized(self.name, &y, dim, n)?;
        }
        y = self.raw(&y, last, FftKind::RealToComplex)?;
        // Of real numbers the transform backwards is the conjugate of that forwards.
        let kind = if self.forward {
            FftKind::Forward
        } else {
            FftKind::Inverse
        };
        if !self.forward {
            y = y.conj()?;
        }
        for &dim in others {
            y = self.raw(&y, dim, kind)?;
        }
        self.scale(&y, n * rest.iter().product::<usize>())
    }

    /// To real numbers: all dimensions but the last, then that from half as many complex ones.
    fn to_real(self, x: &Tensor, dims: &[usize], sizes: &[usize]) -> RusTorchResult<Tensor> {
        let (Some((&last, others)), Some((&n, rest))) = (dims.split_last(), sizes.split_last())
        else {
            return Err(OpError::new(self.name, "at least one dimension", "none").into());
        };
        let mut y = as_complex(self.name, x)?;
        let kind = if self.forward {
            FftKind::Forward
        } else {
            FftKind::Inverse
        };
        for (&dim, &n) in others.iter().zip(rest) {
            y = self.raw(&resized(self.name, &y, dim, n)?, dim, kind)?;
        }
        require(self.name, n > 0, "at least one number to transform", n)?;
        y = resized(self.name, &y, last, n / 2 + 1)?;
        if self.forward {
            y = y.conj()?;
        }
        y = self.raw(&y, last, FftKind::ComplexToReal { n })?;
        self.scale(&y, n * rest.iter().product::<usize>())
    }
}

/// The tensor as floats that transforms take; complex numbers as they are.
fn as_float(name: &'static str, x: &Tensor) -> RusTorchResult<Tensor> {
    match x.dtype() {
        d if d.is_int() || d == DType::Bool => x.cast(name, DType::F32),
        DType::F32 | DType::F64 | DType::Complex64 | DType::Complex128 => Ok(x.clone()),
        _ => Err(OpError::new(name, "f32, f64, complex numbers or integers", x.ty()).into()),
    }
}

fn as_complex(name: &'static str, x: &Tensor) -> RusTorchResult<Tensor> {
    let x = as_float(name, x)?;
    match x.dtype().complex() {
        Some(complex) => x.cast(name, complex),
        None => Ok(x),
    }
}

/// The first `n` numbers along a dimension, zeros behind where there are fewer.
fn resized(name: &'static str, x: &Tensor, dim: usize, n: usize) -> RusTorchResult<Tensor> {
    require(name, n > 0, "at least one number to transform", n)?;
    let size = x.shape()[dim];
    match n.cmp(&size) {
        std::cmp::Ordering::Equal => Ok(x.clone()),
        std::cmp::Ordering::Less => x.narrow(dim as isize, 0, n),
        std::cmp::Ordering::Greater => {
            let mut padding = vec![0; 2 * (x.rank() - dim)];
            padding[2 * (x.rank() - dim) - 1] = n - size;
            x.pad(padding, 0)
        }
    }
}

/// The dimensions that are meant, and how many numbers of each: those of `s`, or all. The last dimension of a
/// real result has nearly twice as many numbers as the input.
fn resolve(
    name: &'static str,
    x: &Tensor,
    s: Option<&[usize]>,
    dims: Option<&[isize]>,
    to_real: bool,
) -> RusTorchResult<(Vec<usize>, Vec<usize>)> {
    let dims: Vec<usize> = match (dims, s) {
        (Some(dims), _) => (dims.iter().map(|&d| x.dim(name, d))).collect::<RusTorchResult<_>>()?,
        (None, Some(s)) => {
            let first = x.rank().checked_sub(s.len());
            let expected = format_args!("at most {} sizes", x.rank());
            let first = first.ok_or_else(|| OpError::new(name, expected, s.len()))?;
            (first..x.rank()).collect()
        }
        (None, None) => (0..x.rank()).collect(),
    };
    let once = (1..dims.len()).all(|i| !dims[..i].contains(&dims[i]));
    require(
        name,
        once,
        "each dimension at most once",
        format!("{dims:?}"),
    )?;
    let sizes: Vec<usize> = match s {
        Some(s) => {
            let expected = "one size for each dimension";
            require(
                name,
                s.len() == dims.len(),
                expected,
                format!("{s:?} of {dims:?}"),
            )?;
            s.to_vec()
        }
        None => {
            let given = |(i, &dim): (usize, &usize)| match to_real && i + 1 == dims.len() {
                true => 2 * x.shape()[dim].saturating_sub(1),
                false => x.shape()[dim],
            };
            dims.iter().enumerate().map(given).collect()
        }
    };
    Ok((dims, sizes))
}

/// One function of each number of dimensions for each line: documentation, names, transform.
macro_rules! transforms {
    ($($doc:literal $one:ident $two:ident $many:ident = $method:ident($forward:literal, $real:literal);)*) => {
        $(#[doc = $doc]
        ///
        /// # Errors
        /// Fails if the dimension does not exist, or for an empty signal or half precision.
        #[rustorch_macros::track_calls(fft)]
        pub fn $one(
            x: &Tensor,
            n: impl Into<Option<usize>>,
            dim: impl crate::Integer,
            norm: FftNorm,
        ) -> RusTorchResult<Tensor> {
            let call = Call { name: concat!("fft.", stringify!($one)), forward: $forward, norm };
            let n: Option<usize> = n.into();
            let s = n.as_ref().map(std::slice::from_ref);
            let (dims, sizes) = resolve(call.name, x, s, Some(&[dim.to_isize()]), $real)?;
            call.$method(x, &dims, &sizes)
        }

        #[doc = concat!("[`", stringify!($one), "`] along several dimensions; PyTorch's default is the last two.")]
        ///
        /// # Errors
        #[doc = concat!("The same errors as [`", stringify!($one), "`].")]
        #[rustorch_macros::track_calls(fft)]
        pub fn $two(
            x: &Tensor,
            s: Option<&[usize]>,
            dims: &[isize],
            norm: FftNorm,
        ) -> RusTorchResult<Tensor> {
            let call = Call { name: concat!("fft.", stringify!($two)), forward: $forward, norm };
            let (dims, sizes) = resolve(call.name, x, s, Some(dims), $real)?;
            call.$method(x, &dims, &sizes)
        }

        #[doc = concat!("[`", stringify!($one), "`] along several dimensions, all if neither they nor `s` are given.")]
        ///
        /// # Errors
        #[doc = concat!("The same errors as [`", stringify!($one), "`].")]
        #[rustorch_macros::track_calls(fft)]
        pub fn $many(
            x: &Tensor,
            s: Option<&[usize]>,
            dims: Option<&[isize]>,
            norm: FftNorm,
        ) -> RusTorchResult<Tensor> {
            let call = Call { name: concat!("fft.", stringify!($many)), forward: $forward, norm };
            let (dims, sizes) = resolve(call.name, x, s, dims, $real)?;
            call.$method(x, &dims, &sizes)
        })*
    };
}

transforms! {
    "`y[k] = Σ x[j]·e^(−2πi·jk/n)` of real or complex numbers."
    fft fft2 fftn = complex(true, false);
    "`y[k] = Σ x[j]·e^(+2πi·jk/n) / n` of real or complex numbers."
    ifft ifft2 ifftn = complex(false, false);
    "The first `n/2 + 1` results of [`fft`] of real numbers; the others are their conjugates."
    rfft rfft2 rfftn = of_real(true, false);
    "The real results of [`ifft`] from the first `n/2 + 1` numbers, whose conjugates are the others: the inverse of [`rfft`]."
    irfft irfft2 irfftn = to_real(false, true);
    "The real results of [`fft`] from the first `n/2 + 1` numbers, whose conjugates are the others."
    hfft hfft2 hfftn = to_real(true, true);
    "The first `n/2 + 1` results of [`ifft`] of real numbers: the inverse of [`hfft`]."
    ihfft ihfft2 ihfftn = of_real(false, false);
}

/// The frequencies of [`fft`]'s results for samples `d` apart, `[n]`: `[0, 1, …, −2, −1] / (d·n)`.
///
/// # Errors
/// Fails for dtypes other than floats.
#[track_calls(fft)]
pub fn fftfreq(n: usize, d: f64, dtype: DType) -> RusTorchResult<Tensor> {
    let index = Tensor::arange_with(0, n as i64, 1, DType::F64)?;
    let above = index.ge(n.div_ceil(2) as f64)?;
    let place = Tensor::where_(&above, &index.sub(n as f64)?, &index)?;
    frequencies("fft.fftfreq", &place, n, d, dtype)
}

/// The frequencies of [`rfft`]'s results, `[n/2 + 1]`.
///
/// # Errors
/// The same errors as [`fftfreq`].
#[track_calls(fft)]
pub fn rfftfreq(n: usize, d: f64, dtype: DType) -> RusTorchResult<Tensor> {
    let place = Tensor::arange_with(0, (n / 2 + 1) as i64, 1, DType::F64)?;
    frequencies("fft.rfftfreq", &place, n, d, dtype)
}

fn frequencies(
    name: &'static str,
    place: &Tensor,
    n: usize,
    d: f64,
    dtype: DType,
) -> RusTorchResult<Tensor> {
    require(name, dtype.is_float(), "a floating-point dtype", dtype)?;
    place.mul(1.0 / (n as f64 * d))?.cast(name, dtype)
}

/// Moves the frequency 0 to the middle of dimensions, by default of all.
///
/// # Errors
/// Fails if a dimension does not exist.
#[track_calls(fft)]
pub fn fftshift(x: &Tensor, dims: Option<&[isize]>) -> RusTorchResult<Tensor> {
    shifted("fft.fftshift", x, dims, |size| size / 2)
}

/// The inverse of [`fftshift`].
///
/// # Errors
/// Fails if a dimension does not exist.
#[track_calls(fft)]
pub fn ifftshift(x: &Tensor, dims: Option<&[isize]>) -> RusTorchResult<Tensor> {
    shifted("fft.ifftshift", x, dims, |size| -(size / 2))
}

/// Each dimension moved on by `shift` of its size.
fn shifted(
    name: &'static str,
    x: &Tensor,
    dims: Option<&[isize]>,
    shift: fn(isize) -> isize,
) -> RusTorchResult<Tensor> {
    let dims: Vec<usize> = match dims {
        Some(dims) => (dims.iter().map(|&dim| x.dim(name, dim))).collect::<RusTorchResult<_>>()?,
        None => (0..x.rank()).collect(),
    };
    let shifts: Vec<isize> = (dims.iter().map(|&dim| shift(x.shape()[dim] as isize))).collect();
    let dims: Vec<isize> = dims.into_iter().map(|dim| dim as isize).collect();
    x.roll(shifts, &dims[..])
}

/// Parameters of [`Tensor::stft`] and [`Tensor::istft`] beside the window.
#[derive(Clone, Debug)]
pub struct Stft {
    /// Length of each transform.
    pub n_fft: usize,
    /// Distance between transforms (hop length); by default a quarter of `n_fft`.
    pub hop_length: Option<usize>,
    /// Length of the window, which lies in the middle of `n_fft`; by default `n_fft`.
    pub win_length: Option<usize>,
    /// Pads the signal at both ends, so that transform `t` is centred at index `t · hop`.
    pub center: bool,
    /// The padding around the signal: its reflection, or zeros.
    pub reflect: bool,
    /// Divides results by `√n_fft`.
    pub normalized: bool,
    /// Returns only the first `n_fft/2 + 1` frequencies. PyTorch's default is yes for real signals.
    pub onesided: bool,
}

setters!(Stft {
    hop_length: Option<usize>, win_length: Option<usize>, center: bool, reflect: bool,
    normalized: bool, onesided: bool,
});

impl Stft {
    /// PyTorch's defaults for a real signal.
    pub fn new(n_fft: usize) -> Self {
        Self {
            n_fft,
            hop_length: None,
            win_length: None,
            center: true,
            reflect: true,
            normalized: false,
            onesided: true,
        }
    }

    /// The window `[n_fft]`: ones if not given, in the middle of zeros.
    fn window(
        &self,
        name: &'static str,
        window: Option<&Tensor>,
        dtype: DType,
    ) -> RusTorchResult<Tensor> {
        let length = self.win_length.unwrap_or(self.n_fft);
        let fits = (1..=self.n_fft).contains(&length);
        let expected = format_args!("a win_length of 1 to {}", self.n_fft);
        require(name, fits, expected, length)?;
        let window = match window {
            Some(window) => {
                let expected = format_args!("a window [{length}]");
                require(name, window.shape() == [length], expected, window.ty())?;
                window.clone()
            }
            None => Tensor::ones([length], dtype)?,
        };
        let before = (self.n_fft - length) / 2;
        window.pad([before, self.n_fft - length - before], 0)
    }

    fn hop(&self, name: &'static str) -> RusTorchResult<usize> {
        let hop = self.hop_length.unwrap_or(self.n_fft / 4);
        require(name, hop > 0, "a hop_length of at least 1", hop)?;
        Ok(hop)
    }
}

#[track_calls]
impl Tensor {
    /// Short-time Fourier transform of a signal `[n]` or `[b, n]` with a window:
    /// `[…, frequencies, frames]`, complex.
    ///
    /// ```
    /// use rustorch_ir::DType;
    /// use rustorch_tensor::fft::Stft;
    /// use rustorch_tensor::{Tensor, assert_close};
    ///
    /// // A tone of 1000 Hz at 8000 numbers a second.
    /// let steps = Tensor::arange_with(0, 8000, 1, DType::F32)?;
    /// let tone = steps.mul(std::f64::consts::TAU * 1000.0 / 8000.0)?.sin()?;
    /// let window = Tensor::hann_window(256, true, DType::F32)?;
    /// let options = Stft::new(256).hop_length(64);
    /// let spectrum = tone.stft(&options, Some(&window))?;
    /// assert_eq!(spectrum.shape(), [129, 126]);
    /// // Frequencies are 8000 / 256 Hz apart.
    /// let loudest = spectrum.abs()?.mean(1, false)?.argmax(None, false)?;
    /// assert_eq!(loudest.item()?, 1000.0 / (8000.0 / 256.0));
    /// let again = spectrum.istft(&options, Some(&window), None, false)?;
    /// assert_close!(again, tone, 0.0, 1e-4);
    /// # Ok::<(), rustorch_tensor::RusTorchError>(())
    /// ```
    ///
    /// # Errors
    /// Fails for an unsupported shape or dtype, or sizes that do not fit. Also fails for a signal
    /// shorter than one window.
    pub fn stft(&self, parameters: &Stft, window: Option<&Self>) -> RusTorchResult<Self> {
        const NAME: &str = "stft";
        let rank = self.rank();
        require(
            NAME,
            rank == 1 || rank == 2,
            "a signal [n] or [b, n]",
            self.ty(),
        )?;
        let n_fft = parameters.n_fft;
        let hop = parameters.hop(NAME)?;
        let window = parameters.window(NAME, window, self.dtype().real())?;
        let mut x = if rank == 1 {
            self.unsqueeze(0)?
        } else {
            self.clone()
        };
        if parameters.center {
            x = around(&x, n_fft / 2, parameters.reflect)?;
        }
        let size = x.shape()[1];
        let expected = format_args!("an n_fft of 1 to {size}");
        require(NAME, (1..=size).contains(&n_fft), expected, n_fft)?;
        let parts = x.unfold(1, n_fft, hop)?.mul(&window)?;
        let call = Call {
            name: NAME,
            forward: true,
            norm: if parameters.normalized {
                FftNorm::Ortho
            } else {
                FftNorm::Backward
            },
        };
        let y = match parameters.onesided {
            true => call.of_real(&parts, &[2], &[n_fft])?,
            false => call.complex(&parts, &[2], &[n_fft])?,
        };
        let y = y.transpose(1, 2)?;
        if rank == 1 { y.squeeze(0) } else { Ok(y) }
    }

    /// The inverse of [`Tensor::stft`] with the same parameters, by least squares: the signal for
    /// `[…, frequencies, frames]`. Frames are added up and divided by the sum of squared windows.
    ///
    /// # Errors
    /// Fails for an unsupported shape or dtype, or sizes that do not fit. Also fails for a window
    /// whose squares add up to 0 somewhere.
    pub fn istft(
        &self,
        parameters: &Stft,
        window: Option<&Self>,
        length: Option<usize>,
        return_complex: bool,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "istft";
        let rank = self.rank();
        let fits = (rank == 2 || rank == 3) && self.dtype().is_complex();
        let expected = "complex numbers [frequencies, parts] or [b, frequencies, parts]";
        require(NAME, fits, expected, self.ty())?;
        let n_fft = parameters.n_fft;
        let hop = parameters.hop(NAME)?;
        let x = if rank == 2 {
            self.unsqueeze(0)?
        } else {
            self.clone()
        };
        let frequencies = if parameters.onesided {
            n_fft / 2 + 1
        } else {
            n_fft
        };
        let expected = format_args!("{frequencies} frequencies, at least one part");
        let is_whole = x.shape()[1] == frequencies && x.shape()[2] > 0;
        require(NAME, is_whole, expected, self.ty())?;
        let window = parameters.window(NAME, window, self.dtype().real())?;
        let call = Call {
            name: NAME,
            forward: false,
            norm: if parameters.normalized {
                FftNorm::Ortho
            } else {
                FftNorm::Backward
            },
        };
        let turned = x.transpose(1, 2)?;
        let parts = match return_complex {
            true => call.complex(&turned, &[2], &[n_fft])?,
            false => {
                let half = turned.narrow(-1, 0, n_fft / 2 + 1)?;
                call.to_real(&half, &[2], &[n_fft])?
            }
        };
        let count = parts.shape()[1];
        let signal = overlapped(&parts.mul(&window)?, hop)?;
        let squares = window.square()?.expand([1, count, n_fft])?;
        let weight = overlapped(&squares, hop)?;
        let whole = signal.shape()[1];
        let start = if parameters.center { n_fft / 2 } else { 0 };
        let end = match length {
            Some(length) => start + length,
            None => whole - start,
        };
        let kept = end.min(whole).saturating_sub(start);
        let weight = weight.narrow(1, start, kept)?;
        let smallest = match kept {
            0 => 1.0,
            _ => weight
                .abs()?
                .min(None, false)?
                .cast(NAME, DType::F64)?
                .to_scalar::<f64>()?,
        };
        let expected =
            "windows that overlap, so that their squares add up to more than 0 everywhere";
        require(NAME, smallest > 1e-11, expected, smallest)?;
        let y = signal
            .narrow(1, start, kept)?
            .div(&weight)?
            .pad([0, end - start - kept], 0)?;
        if rank == 2 { y.squeeze(0) } else { Ok(y) }
    }
}

/// A signal `[b, n]` with its reflection, or zeros, at both ends.
fn around(x: &Tensor, count: usize, reflect: bool) -> RusTorchResult<Tensor> {
    if !reflect {
        return x.pad([count, count], 0);
    }
    let size = x.shape()[1];
    let expected = format_args!("more than {count} numbers, for the reflection");
    require("stft", count < size, expected, x.ty())?;
    x.pad([count, count], PadMode::Reflect)
}

/// The sum of parts `[b, count, n]`, each `hop` behind the one before: `[b, n + hop · (count − 1)]`.
fn overlapped(parts: &Tensor, hop: usize) -> RusTorchResult<Tensor> {
    let [b, count, n] = [0, 1, 2].map(|d| parts.shape()[d]);
    let place = |size: usize, step: usize| {
        Tensor::arange_with(0, (size * step) as i64, step as i64, DType::I64)
    };
    let index = place(count, hop)?
        .unsqueeze(1)?
        .add(&place(n, 1)?)?
        .flatten(0, 1)?;
    let zeros = Tensor::zeros([b, n + hop * (count - 1)], parts.dtype())?;
    let index = index.expand([b, count * n])?;
    zeros.scatter_add(1, &index, &parts.flatten(1, 2)?)
}
