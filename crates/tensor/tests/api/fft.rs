//! Fourier transforms against known values and their inverses.

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_tensor::fft::{self, FftNorm, Stft};
use rustorch_tensor::{RusTorchResult, Tensor, tensor};

use crate::{Outcome, assert_close, error};

const NORMS: [FftNorm; 3] = [FftNorm::Backward, FftNorm::Ortho, FftNorm::Forward];

#[track_caller]
fn close(a: &Tensor, b: &Tensor) -> RusTorchResult<()> {
    assert_eq!(a.shape(), b.shape());
    assert!(a.allclose(b, 1e-5, 1e-5)?, "{a} is not {b}");
    Ok(())
}

#[test]
fn known_values() -> Outcome {
    let y = fft::fft(&tensor![1.0, 2.0, 3.0, 4.0], None, -1, FftNorm::Backward)?;
    let expected = [(10.0, 0.0), (-2.0, 2.0), (-2.0, 0.0), (-2.0, -2.0)];
    let expected = expected.map(|(re, im)| Complex::new(re, im));
    close(&y, &Tensor::from_slice::<Complex<f32>>(&expected, [4])?)?;
    let half = fft::rfft(&tensor![1, 2, 3, 4], None, -1, FftNorm::Backward)?;
    close(&half, &y.narrow(0, 0, 3)?)?;
    assert_close(
        &fft::irfft(&half, None, -1, FftNorm::Backward)?,
        &[1.0, 2.0, 3.0, 4.0],
    );
    assert_close(
        &fft::fftfreq(5, 0.5, DType::F32)?,
        &[0.0, 0.4, 0.8, -0.8, -0.4],
    );
    assert_close(&fft::rfftfreq(5, 0.5, DType::F32)?, &[0.0, 0.4, 0.8]);
    assert_close(
        &fft::fftshift(&tensor![0.0, 1.0, 2.0, -2.0, -1.0], None)?,
        &[-2.0, -1.0, 0.0, 1.0, 2.0],
    );
    assert_close(
        &fft::ifftshift(&tensor![-2.0, -1.0, 0.0, 1.0, 2.0], None)?,
        &[0.0, 1.0, 2.0, -2.0, -1.0],
    );
    Ok(())
}

#[test]
fn inverses() -> Outcome {
    for norm in NORMS {
        for n in [1, 5, 8] {
            let x = Tensor::randn_seeded([3, n, 6], DType::Complex128, n as u64)?;
            close(
                &fft::ifft(&fft::fft(&x, None, 1, norm)?, None, 1, norm)?,
                &x,
            )?;
            close(
                &fft::ifftn(&fft::fftn(&x, None, None, norm)?, None, None, norm)?,
                &x,
            )?;
            close(
                &fft::ifft2(&fft::fft2(&x, None, &[0, 1], norm)?, None, &[0, 1], norm)?,
                &x,
            )?;
            let real = x.real()?;
            let s = [3, n, 6];
            close(
                &fft::irfftn(&fft::rfftn(&real, None, None, norm)?, Some(&s), None, norm)?,
                &real,
            )?;
            close(
                &fft::hfft(&fft::ihfft(&real, None, 1, norm)?, n, 1, norm)?,
                &real,
            )?;
            close(
                &fft::hfftn(&fft::ihfftn(&real, None, None, norm)?, Some(&s), None, norm)?,
                &real,
            )?;
            let whole = fft::fftn(&real, None, None, norm)?;
            close(
                &fft::rfftn(&real, None, None, norm)?,
                &whole.narrow(-1, 0, 4)?,
            )?;
        }
    }
    Ok(())
}

#[test]
fn numbers_are_cut_off_or_zeros() -> Outcome {
    let x = Tensor::randn_seeded([4, 6], DType::F32, 1)?;
    let norm = FftNorm::Backward;
    close(
        &fft::fft(&x, 3, 0, norm)?,
        &fft::fft(&x.narrow(0, 0, 3)?, None, 0, norm)?,
    )?;
    close(
        &fft::rfft(&x, 9, 1, norm)?,
        &fft::rfft(&x.pad([0, 3], 0)?, None, 1, norm)?,
    )?;
    Ok(())
}

#[test]
fn signals_come_back_from_their_parts() -> Outcome {
    let x = Tensor::randn_seeded([2, 50], DType::F64, 3)?;
    let window = Tensor::rand_seeded([8], DType::F64, 4)?.add(0.5)?;
    for center in [false, true] {
        for onesided in [false, true] {
            let parameters = Stft {
                hop_length: Some(2),
                win_length: Some(8),
                center,
                onesided,
                ..Stft::new(10)
            };
            let y = x.stft(&parameters, Some(&window))?;
            let parts = if center { 26 } else { 21 };
            assert_eq!(y.shape(), [2, if onesided { 6 } else { 10 }, parts]);
            if center {
                close(&y.istft(&parameters, Some(&window), Some(50), false)?, &x)?;
            }
        }
    }
    Ok(())
}

#[test]
fn what_cannot_be_transformed_is_told() -> Outcome {
    let norm = FftNorm::Backward;
    let x = tensor![1.0, 2.0];
    assert_eq!(
        error(fft::fft(&x, 0, 0, norm)),
        "fft.fft: expected at least one number to transform, got 0"
    );
    assert!(
        error(fft::rfft(&x.to_dtype(DType::Complex64)?, None, 0, norm)).contains("a real tensor")
    );
    assert!(
        error(fft::fft(&x.to_dtype(DType::F16)?, None, 0, norm))
            .contains("fft.fft: expected f32, f64")
    );
    assert!(
        error(fft::fftn(&x, None, Some(&[0, 0]), norm)).contains("each dimension at most once")
    );
    assert!(fft::fft(&x, None, 1, norm).is_err());
    assert!(x.stft(&Stft::new(16), None).is_err());
    Ok(())
}
