//! Calls that are seldom made: PyTorch's answers.

use rustorch_ir::DType;
use rustorch_runtime::{DeviceType, Routing, Runtime};
use rustorch_tensor::nn::{EmbeddingBagOptions, InterpolateOptions, InterpolateSize, Reduction};
use rustorch_tensor::{Indexing, Interpolation, Tensor, backends, tensor, with_runtime};

use crate::{Outcome, assert_close, error};

#[test]
fn operands_of_several_dtypes() -> Outcome {
    // The sum is one of floats, and factors are not cut.
    let sum = Tensor::full([2, 2], 1, DType::I64)?.addr(
        &tensor![0.5, 1.5],
        &tensor![1.0, 2.0],
        0.5,
        0.25,
    )?;
    assert_close(&sum, &[0.625, 0.75, 0.875, 1.25]);
    assert!(tensor![1.0, 2.0].equal(&tensor![1, 2])?);
    assert!(!tensor![1.5].equal(&tensor![1])?);
    assert!(!tensor![1.0].equal(&tensor![[1.0]])?);
    let (x, doubles) = (
        tensor![[0.5, 1.0]],
        tensor![[0.25, 2.0]].to_dtype(DType::F64)?,
    );
    let mean = Reduction::Mean;
    for loss in [
        x.gaussian_nll_loss(&x, &doubles, false, 1e-6, mean)?,
        x.cosine_embedding_loss(&doubles, &Tensor::ones([1], DType::F32)?, 0.0, mean)?,
        x.triplet_margin_loss(&x, &doubles, &Default::default())?,
    ] {
        assert_eq!(loss.dtype(), DType::F64);
    }
    let grid = Tensor::meshgrid(&[&tensor![1.0], &tensor![1]], Indexing::Ij);
    assert!(error(grid).contains("one dtype"));
    Ok(())
}

#[test]
fn numbers_that_are_none_or_far_outside() -> Outcome {
    let x = tensor![-2.0, 0.5];
    let all = x.hardtanh(f64::NAN, 1.0)?;
    assert!(all.isnan()?.all(None, false)?.to_scalar::<bool>()?);
    assert!(x.hardtanh(1.0, -1.0).is_err());
    for q in [f32::NAN, 1.5] {
        let quantile = x.quantile(&tensor![q], None, false, Interpolation::Linear)?;
        assert!(quantile.to_vec::<f32>().is_err(), "{q}");
    }
    assert!(x.diff(0, 0, Some(&tensor![[1.0]]), None).is_err());
    let table = Tensor::ones([3, 2], DType::F32)?;
    let bag = |padding_idx| {
        let options = EmbeddingBagOptions {
            padding_idx: Some(padding_idx),
            ..Default::default()
        };
        table.embedding_bag(&tensor![[0, 2]], &options)
    };
    assert!(bag(-3).is_ok());
    for padding_idx in [3, -4] {
        assert!(error(bag(padding_idx)).contains("padding_idx of one of 3 rows"));
    }
    // Neither is begun.
    let image = Tensor::ones([1, 1, 2, 2], DType::F32)?;
    for scale in [1e15, 1e30, f64::INFINITY] {
        let size = InterpolateSize::Scale(vec![scale]);
        assert!(
            image
                .interpolate(size, &InterpolateOptions::default())
                .is_err(),
            "{scale}"
        );
    }
    Ok(())
}

#[test]
fn what_has_no_room_is_told_with_its_bytes_and_indices_with_their_place() -> Outcome {
    let runtime = Runtime::new(backends(1));
    let is_asked = |device| matches!(device, DeviceType::Cpu | DeviceType::OpenCL(_));
    for device in runtime
        .devices()
        .map(|info| info.device)
        .filter(|&device| is_asked(device))
    {
        let routing = Routing {
            device,
            strict: true,
            ..Routing::default()
        };
        with_runtime(&runtime, routing, || -> Outcome {
            // More bytes than processes have addresses.
            let sum = tensor![1.0].expand([1usize << 45])?.add(1)?;
            let text = error(sum.eval());
            assert!(
                text.contains("memory") && text.contains("140737488355328"),
                "{device}: {text}"
            );
            let row = tensor![[1.0], [2.0]].index_select(0, &tensor![0i64, 2])?;
            let text = error(row.to_vec::<f32>());
            assert!(text.contains("index 2 at [1]"), "{device}: {text}");
            Ok(())
        })?;
    }
    Ok(())
}
