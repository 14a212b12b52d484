//! Fourier transforms.

use rustorch_tensor::fft::{self, FftNorm, Stft};

use crate::call::{Call, Called, missing};

/// A line for each function of one, of two and of several dimensions.
macro_rules! transforms {
    ($($one:ident $two:ident $many:ident,)*) => {
        table! {
            $(concat!("fft.", stringify!($one)), "input, n=None, dim=-1, norm=None", |c| {
                fft::$one(c.input()?, c.maybe_int("n")?, c.int::<isize>("dim")?, norm(c)?)?
            };
            concat!("fft.", stringify!($two)), "input, s=None, dim=(-2,-1), norm=None", |c| {
                let dims = dims(c)?.unwrap_or(vec![-2, -1]);
                fft::$two(c.input()?, sizes(c)?.as_deref(), &dims, norm(c)?)?
            };
            concat!("fft.", stringify!($many)), "input, s=None, dim=None, norm=None", |c| {
                fft::$many(c.input()?, sizes(c)?.as_deref(), dims(c)?.as_deref(), norm(c)?)?
            };)*
            "fft.fftshift", "input, dim=None", |c| fft::fftshift(c.input()?, dims(c)?.as_deref())?;
            "fft.ifftshift", "input, dim=None", |c| {
                fft::ifftshift(c.input()?, dims(c)?.as_deref())?
            };
            "istft", "input, n_fft, hop_length=None, win_length=None, window=None, center=True, \
                      normalized=False, onesided=None, length=None, return_complex=False", |c| {
                let parameters = Stft {
                    onesided: onesided(c)?,
                    ..parameters(c)?
                };
                let (length, complex) = (c.maybe_int("length")?, c.bool("return_complex")?);
                c.input()?.istft(&parameters, c.optional("window")?, length, complex)?
            };
            "stft", "input, n_fft, hop_length=None, win_length=None, window=None, center=True, \
                     pad_mode='reflect', normalized=False, onesided=None, return_complex=None", |c| {
                let reflect = match c.text("pad_mode")? {
                    "reflect" => true,
                    "constant" => false,
                    other => return missing(other),
                };
                let is_complex = c.input()?.dtype().is_complex();
                let view = c.has("return_complex") && !c.bool("return_complex")?;
                let parameters = Stft {
                    reflect,
                    onesided: if c.has("onesided") { c.bool("onesided")? } else { !is_complex },
                    ..parameters(c)?
                };
                let y = c.input()?.stft(&parameters, c.optional("window")?)?;
                if view { y.view_as_real()? } else { y }
            };
        }
    };
}

transforms! {
    fft fft2 fftn,
    ifft ifft2 ifftn,
    rfft rfft2 rfftn,
    irfft irfft2 irfftn,
    hfft hfft2 hfftn,
    ihfft ihfft2 ihfftn,
}

fn norm(c: &Call) -> Called<FftNorm> {
    if !c.has("norm") {
        return Ok(FftNorm::Backward);
    }
    match c.text("norm")? {
        "backward" => Ok(FftNorm::Backward),
        "ortho" => Ok(FftNorm::Ortho),
        "forward" => Ok(FftNorm::Forward),
        other => Err(crate::call::CallError::Untyped(format!("norm={other}"))),
    }
}

fn sizes(c: &Call) -> Called<Option<Vec<usize>>> {
    c.has("s").then(|| c.ints("s")).transpose()
}

fn dims(c: &Call) -> Called<Option<Vec<isize>>> {
    match c.value("dim")? {
        crate::value::Value::None | crate::value::Value::Other(_) => Ok(None),
        _ => c.ints("dim").map(Some),
    }
}

fn parameters(c: &Call) -> Called<Stft> {
    Ok(Stft {
        hop_length: c.maybe_int("hop_length")?,
        win_length: c.maybe_int("win_length")?,
        center: c.bool("center")?,
        normalized: c.bool("normalized")?,
        ..Stft::new(c.int("n_fft")?)
    })
}

/// Are half of the frequencies given? If it is not said, their number says it.
fn onesided(c: &Call) -> Called<bool> {
    if c.has("onesided") {
        return c.bool("onesided");
    }
    let n: usize = c.int("n_fft")?;
    Ok(c.input()?.size(-2)? != n)
}
