//! Histograms, covariance, slopes, patches of images, windows.

use rustorch_ir::DType;
use rustorch_tensor::{Patches, Tensor, tensor, windows};

use crate::{Outcome, assert_close_rows, error};

#[test]
fn as_in_pytorch() -> Outcome {
    let f = tensor![1.0, 2.0, 1.0, f64::NAN, 5.0];
    let image = Tensor::arange_with(0, 24, 1, DType::F32)?.reshape([1, 2, 3, 4])?;
    let patches = Patches {
        kernel: [2, 2],
        dilation: [1, 2],
        padding: [1, 0],
        stride: [2, 1],
    };
    assert_close_rows(&[
        (
            "torch.histc(f, 4, 0, 3)",
            f.histc(4, 0.0, 3.0)?,
            &[4],
            &[0.0, 2.0, 1.0, 0.0],
        ),
        (
            "torch.histc(torch.tensor([2.0, 2.0]), 4)",
            tensor![2.0, 2.0].histc(4, 0.0, 0.0)?,
            &[4],
            &[0.0, 0.0, 2.0, 0.0],
        ),
        (
            "torch.histogram(f, 4, range=(0.0, 3.0)).hist",
            f.histogram(4, Some([0.0, 3.0]), None, false)?.0,
            &[4],
            &[0.0, 2.0, 1.0, 0.0],
        ),
        (
            "torch.histogram(torch.tensor([1.0, 2, 1, 5]), 3).bin_edges",
            tensor![1.0, 2.0, 1.0, 5.0]
                .histogram(3, None, None, false)?
                .1,
            &[4],
            &[1.0, 2.3333335, 3.6666665, 5.0],
        ),
        (
            "torch.histogram(torch.tensor([1.0, 2, 1, 5]), torch.tensor([0.0, 1, 4]), weight=torch.tensor([1.0, 2, 3, 4]), density=True).hist",
            tensor![1.0, 2.0, 1.0, 5.0]
                .histogram(
                    &tensor![0.0, 1.0, 4.0],
                    None,
                    Some(&tensor![1.0, 2.0, 3.0, 4.0]),
                    true,
                )?
                .0,
            &[2],
            &[0.0, 0.3333333],
        ),
        (
            "torch.histogramdd(torch.tensor([[0.0, 1], [1, 0], [2, 0], [2, 2]]), [2, 3]).hist",
            tensor![[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [2.0, 2.0]]
                .histogramdd(&[2.into(), 3.into()], None, None, false)?
                .0,
            &[2, 3],
            &[0.0, 1.0, 0.0, 2.0, 0.0, 1.0],
        ),
        (
            "torch.bincount(torch.tensor([1, 3, 1]), torch.tensor([0.5, 1, 2]))",
            tensor![1, 3, 1].bincount(Some(&tensor![0.5, 1.0, 2.0]), 0)?,
            &[4],
            &[0.0, 2.5, 0.0, 1.0],
        ),
        (
            "torch.cov(torch.tensor([[0.0, 1, 2], [2, 1, 1]]), correction=0, fweights=torch.tensor([1, 2, 1]), aweights=torch.tensor([0.5, 1, 2]))",
            tensor![[0.0, 1.0, 2.0], [2.0, 1.0, 1.0]].cov(
                0,
                Some(&tensor![1, 2, 1]),
                Some(&tensor![0.5, 1.0, 2.0]),
            )?,
            &[2, 2],
            &[0.4444444, -0.1481481, -0.1481481, 0.0987654],
        ),
        (
            "torch.cov(torch.tensor([1, 2, 4]))",
            tensor![1, 2, 4].cov(1, None, None)?,
            &[],
            &[2.3333335],
        ),
        (
            "torch.corrcoef(torch.tensor([[0.0, 1, 2], [2, 1, 1]]))",
            tensor![[0.0, 1.0, 2.0], [2.0, 1.0, 1.0]].corrcoef()?,
            &[2, 2],
            &[1.0, -0.8660254, -0.8660254, 1.0],
        ),
        (
            "torch.gradient(torch.tensor([1.0, 2, 4, 8]), spacing=2.0, edge_order=2)[0]",
            tensor![1.0, 2.0, 4.0, 8.0].gradient(2.0, None, 2)?[0].clone(),
            &[4],
            &[0.25, 0.75, 1.5, 2.5],
        ),
        (
            "torch.gradient(torch.tensor([1.0, 2, 4, 8]), spacing=(torch.tensor([0.0, 1, 3, 4]),))[0]",
            tensor![1.0, 2.0, 4.0, 8.0].gradient([&tensor![0.0, 1.0, 3.0, 4.0]], 0, 1)?[0].clone(),
            &[4],
            &[1.0, 1.0, 3.0000002, 4.0],
        ),
        (
            "torch.gradient(torch.tensor([1.0, 2, 4, 8]), spacing=(torch.tensor([0.0, 1, 3, 4]),), edge_order=2)[0]",
            tensor![1.0, 2.0, 4.0, 8.0].gradient([&tensor![0.0, 1.0, 3.0, 4.0]], 0, 2)?[0].clone(),
            &[4],
            &[0.9999999, 1.0, 3.0000002, 5.0000005],
        ),
        (
            "torch.gradient(torch.tensor([[1, 2, 4], [1, 5, 6]]))[1]",
            tensor![[1, 2, 4], [1, 5, 6]].gradient(1.0, None, 1)?[1].clone(),
            &[2, 3],
            &[1.0, 1.5, 2.0, 4.0, 2.5, 1.0],
        ),
        (
            "torch.logspace(0, 3, 4, base=2)",
            Tensor::logspace(0, 3, 4, 2.0, DType::F32)?,
            &[4],
            &[1.0, 2.0, 4.0, 8.0],
        ),
        (
            "torch.polar(torch.tensor([2.0]), torch.tensor([0.5])).imag",
            Tensor::polar(&tensor![2.0,], &tensor![0.5,])?.imag()?,
            &[1],
            &[0.9588511],
        ),
        (
            "F.unfold(torch.arange(24.0).reshape(1, 2, 3, 4), (2, 2), padding=(1, 0), stride=(2, 1), dilation=(1, 2))",
            image.im2col(patches)?,
            &[1, 8, 4],
            &[
                0.0, 0.0, 4.0, 5.0, 0.0, 0.0, 6.0, 7.0, 0.0, 1.0, 8.0, 9.0, 2.0, 3.0, 10.0, 11.0,
                0.0, 0.0, 16.0, 17.0, 0.0, 0.0, 18.0, 19.0, 12.0, 13.0, 20.0, 21.0, 14.0, 15.0,
                22.0, 23.0,
            ],
        ),
        (
            "F.fold(F.unfold(torch.arange(24.0).reshape(1, 2, 3, 4), (2, 2), padding=(1, 0), stride=(2, 1), dilation=(1, 2)), (3, 4), (2, 2), padding=(1, 0), stride=(2, 1), dilation=(1, 2))",
            image.im2col(patches)?.col2im([3, 4], patches)?,
            &[1, 2, 3, 4],
            &[
                0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0,
                15.0, 16.0, 17.0, 18.0, 19.0, 20.0, 21.0, 22.0, 23.0,
            ],
        ),
        (
            "torch.hann_window(5)",
            Tensor::hann_window(5, true, DType::F32)?,
            &[5],
            &[0.0, 0.3454915, 0.9045085, 0.9045085, 0.3454914],
        ),
        (
            "torch.hamming_window(5, True, 0.5, 0.4)",
            Tensor::hamming_window(5, true, 0.5, 0.4, DType::F32)?,
            &[5],
            &[0.1, 0.3763932, 0.8236068, 0.8236068, 0.3763931],
        ),
        (
            "torch.blackman_window(4, False)",
            Tensor::blackman_window(4, false, DType::F32)?,
            &[4],
            &[-0.0, 0.63, 0.6299999, -0.0],
        ),
        (
            "torch.bartlett_window(5)",
            Tensor::bartlett_window(5, true, DType::F32)?,
            &[5],
            &[0.0, 0.4, 0.8, 0.8, 0.4],
        ),
        (
            "torch.kaiser_window(5)",
            Tensor::kaiser_window(5, true, 12.0, DType::F32)?,
            &[5],
            &[5.28e-05, 0.1017197, 0.7929394, 0.7929394, 0.1017197],
        ),
        (
            "torch.signal.windows.exponential(5, tau=2.0)",
            windows::exponential(5, None, 2.0, true, DType::F32)?,
            &[5],
            &[0.3678795, 0.6065307, 1.0, 0.6065307, 0.3678795],
        ),
        (
            "torch.signal.windows.gaussian(4, std=1.5, sym=False)",
            windows::gaussian(4, 1.5, false, DType::F32)?,
            &[4],
            &[0.4111123, 0.8007374, 1.0, 0.8007374],
        ),
        (
            "torch.signal.windows.nuttall(4)",
            windows::nuttall(4, true, DType::F32)?,
            &[4],
            &[0.0003628, 0.5292299, 0.5292298, 0.0003628],
        ),
        (
            "torch.signal.windows.cosine(3, sym=False)",
            windows::cosine(3, false, DType::F32)?,
            &[3],
            &[0.3826835, 0.9238796, 0.9238796],
        ),
        (
            "torch.signal.windows.hann(1)",
            windows::hann(1, true, DType::F32)?,
            &[1],
            &[1.0],
        ),
        (
            "torch.signal.windows.hann(0)",
            windows::hann(0, true, DType::F32)?,
            &[0],
            &[],
        ),
    ]);
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Outcome {
    let m = Tensor::zeros([3, 4], DType::F32)?;
    assert!(error(m.cov(1, Some(&tensor![1, 2]), None)).contains("weights [4]"));
    assert!(error(m.gradient(1.0, 0, 3)).contains("edge order"));
    assert!(
        error(
            m.gradient(1.0, 0, 1)
                .and(m.narrow(0, 0, 1)?.gradient(1.0, 0, 1))
        )
        .contains("more than 1")
    );
    assert!(error(m.gradient([1.0, 2.0, 3.0], None, 1)).contains("2 spacings"));
    assert!(m.cross(&m, 0)?.eval().is_ok() && m.cross(&m, 1).is_err());
    let patches = Patches {
        kernel: [2, 2],
        dilation: [1, 1],
        padding: [0, 0],
        stride: [1, 1],
    };
    let image = m.reshape([1, 3, 4])?;
    assert_eq!(image.im2col(patches)?.shape(), [4, 6], "without a batch");
    let none = Patches {
        stride: [0, 1],
        ..patches
    };
    assert!(image.im2col(none).is_err() && m.im2col(patches).is_err());
    let large = Patches {
        kernel: [4, 4],
        ..patches
    };
    assert!(error(image.im2col(large)).contains("windows that fit"));
    assert!(error(m.col2im([3, 4], patches)).contains("columns"));
    assert!(windows::kaiser(4, -1.0, true, DType::F32).is_err());
    assert!(windows::hann(4, true, DType::F16).is_err());
    assert!(windows::hann(usize::MAX, true, DType::F32).is_err());
    Ok(())
}
