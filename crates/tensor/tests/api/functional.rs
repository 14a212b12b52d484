//! Functions of `torch.nn.functional` with PyTorch's answers.

use rustorch_ir::DType;
use rustorch_tensor::autograd::grad;
use rustorch_tensor::nn::{
    AvgPoolOptions, BatchNormOptions, CdistMode, ConvOptions, ConvPadding, ConvTransposeOptions,
    CrossEntropyOptions, CtcOptions, EmbeddingBagMode, EmbeddingBagOptions, FractionalSize,
    GridSampleMode, GridSampleOptions, GridSamplePadding, InterpolateMode, InterpolateOptions,
    MaxPoolOptions, MultiHeadOptions, Projections, Reduction, TripletOptions,
};
use rustorch_tensor::{AttentionOptions, RusTorchResult, Tensor, tensor};

use crate::{Outcome, assert_close, error};

/// 0, 1, 2, … as `f32` of a shape.
fn ramp<const N: usize>(shape: [usize; N]) -> RusTorchResult<Tensor> {
    let count = shape.iter().product::<usize>() as i64;
    Tensor::arange_with(0, count, 1, DType::F32)?.reshape(shape)
}

#[track_caller]
fn assert_is(x: &Tensor, shape: &[usize], expected: &[f32]) {
    assert_eq!(x.shape(), shape);
    assert_close(x, expected);
}

#[test]
fn convolutions() -> Outcome {
    let (x, w) = (ramp([1, 2, 6])?.sin()?, ramp([2, 2, 3])?.cos()?);
    let same = ConvOptions {
        padding: ConvPadding::Same,
        ..Default::default()
    };
    assert_is(
        &x.conv1d(&w, None, &same)?,
        &[1, 2, 6],
        &[
            0.018825, 0.204075, 0.093843, -0.102668, -0.204787, -0.082697, 0.114923, 0.209788,
            0.046025, -0.160053, -0.218979, -0.114857,
        ],
    );
    let sparse = ConvOptions {
        stride: [2],
        padding: [2].into(),
        dilation: [2],
        groups: 1,
    };
    let bias = tensor![1.0, -1.0];
    let expected = [1.08488, 1.28185, 0.876534, -0.893475, -0.78233, -1.142436];
    assert_is(&x.conv1d(&w, Some(&bias), &sparse)?, &[1, 2, 3], &expected);
    // Without a batch, and with integers.
    let line = x.squeeze(0)?.conv1d(&w, Some(&bias), &sparse)?;
    assert_is(&line, &[2, 3], &expected);
    let whole = |x: &Tensor| x.to_dtype(DType::I64);
    let (ints, weight) = (whole(&ramp([1, 2, 6])?)?, whole(&ramp([2, 1, 3])?)?);
    let grouped = ConvOptions {
        groups: 2,
        ..sparse
    };
    let y = ints.conv1d(&weight, None, &grouped)?;
    let floats =
        (ints.to_dtype(DType::F32)?).conv1d(&weight.to_dtype(DType::F32)?, None, &grouped)?;
    assert_eq!(y.dtype(), DType::I64);
    assert!(y.to_dtype(DType::F32)?.equal(&floats)?);

    let (x, w) = (ramp([1, 1, 4, 2, 2])?.sin()?, ramp([1, 1, 2, 2, 2])?.cos()?);
    let deep = ConvOptions {
        stride: [2, 1, 1],
        padding: [1, 0, 0].into(),
        ..Default::default()
    };
    let y = x.conv3d(&w, None, &deep)?;
    assert_is(&y, &[1, 1, 3, 1, 1], &[1.218165, -3.615079, -1.365574]);
    let spread = ConvTransposeOptions {
        stride: [2, 1, 1],
        padding: [1, 0, 0],
        output_padding: [1, 0, 0],
        ..Default::default()
    };
    let y = (x.narrow(2, 0, 2)?).conv_transpose3d(&w.narrow(3, 0, 1)?, None, &spread)?;
    assert_is(
        &y,
        &[1, 1, 3, 2, 3],
        &[
            0.0, -0.550022, 0.238694, -0.594356, 0.165691, 0.04003, -0.756802, -1.367826,
            -0.518109, -0.279415, 0.506018, 0.354971, 0.494679, 0.412118, -0.272011, 0.182638,
            -0.508695, 0.186362,
        ],
    );
    Ok(())
}

#[test]
fn complex_and_transposed_convolutions() -> Outcome {
    let (x, w) = (ramp([1, 2, 6])?, ramp([2, 2, 3])?);
    let x = Tensor::complex(&x.sin()?, &x.sin()?.cos()?)?;
    let w = Tensor::complex(&w.cos()?, &w.cos()?.sin()?)?;
    let y = x
        .conv1d(&w, None, &ConvOptions::default())?
        .narrow(2, 0, 2)?;
    assert_close(&y.real()?, &[0.399539, 0.356869, 0.369708, 0.25343]);
    assert_close(&y.imag()?, &[-0.032716, -0.213493, 0.015895, -0.181436]);
    let twice = ConvTransposeOptions {
        stride: [2],
        ..Default::default()
    };
    let y = x.conv_transpose1d(&w, None, &twice)?.narrow(2, 0, 2)?;
    assert_close(&y.real()?, &[-1.897272, -1.382989, 1.850156, 1.5577]);
    assert_close(&y.imag()?, &[1.69401, 1.073709, -1.644993, -1.252282]);
    let spread = ConvTransposeOptions {
        stride: [2],
        padding: [1],
        output_padding: [1],
        ..Default::default()
    };
    let (x, w) = (ramp([1, 2, 6])?.sin()?, ramp([2, 1, 4])?.cos()?);
    let y = x.conv_transpose1d(&w, None, &spread)?;
    let expected = [
        -0.07926, 0.143749, 0.430359, 0.543253, 0.434193, 0.443292, 0.038832, -0.064229, -0.392231,
        -0.512699, -0.462678, -0.561108, 0.195433,
    ];
    assert_is(&y, &[1, 1, 13], &expected);
    let strided = ConvOptions {
        stride: [2],
        padding: ConvPadding::Same,
        ..Default::default()
    };
    assert!(error(x.conv1d(&w, None, &strided)).starts_with("conv1d: expected stride 1"));
    Ok(())
}

#[test]
fn pooling() -> Outcome {
    let image = ramp([1, 4, 5])?;
    let averaged = AvgPoolOptions {
        padding: [1, 1],
        ceil_mode: true,
        count_include_pad: false,
        ..Default::default()
    };
    let expected = [0.0, 1.5, 3.5, 7.5, 9.0, 11.0, 15.0, 16.5, 18.5];
    assert_is(&image.avg_pool2d([2, 2], &averaged)?, &[1, 3, 3], &expected);
    let ceil = MaxPoolOptions {
        ceil_mode: true,
        ..Default::default()
    };
    let integers = image.to_dtype(DType::I32)?;
    for x in [image, integers] {
        let (largest, places) = x.max_pool2d_with_indices([2, 3], &ceil)?;
        assert_eq!(largest.dtype(), x.dtype());
        assert_close(&largest.to_dtype(DType::F32)?, &[7.0, 9.0, 17.0, 19.0]);
        assert_eq!(places.to_vec::<i64>()?, [7, 9, 17, 19]);
    }
    let volume = ramp([1, 2, 3, 4])?.sin()?;
    let dense = MaxPoolOptions {
        stride: Some([1; 3]),
        ..Default::default()
    };
    let (largest, places) = volume.max_pool3d_with_indices([2; 3], &dense)?;
    let expected = [0.841471, 0.990607, 0.990607, 0.989358, 0.836656, 0.656987];
    assert_is(&largest, &[1, 1, 2, 3], &expected);
    assert_eq!(places.to_vec::<i64>()?, [1, 14, 14, 8, 21, 7]);
    let back = largest.max_unpool3d(&places, [2; 3], &dense, None)?;
    assert_eq!(back.shape(), [1, 2, 3, 4]);
    assert_close(&back.select(3, 1)?.select(2, 0)?.select(1, 0)?, &[0.841471]);

    assert_close(
        &ramp([1, 7])?.adaptive_avg_pool1d([Some(3)])?,
        &[1.0, 3.0, 5.0],
    );
    let plane = ramp([1, 3, 4])?.sin()?;
    let (largest, places) = plane.adaptive_max_pool2d_with_indices([Some(2), Some(3)])?;
    let expected = [0.841471, 0.909297, 0.909297, 0.989358, 0.412118, 0.656987];
    assert_is(&largest, &[1, 2, 3], &expected);
    assert_eq!(places.to_vec::<i64>()?, [1, 2, 2, 8, 9, 7]);
    assert_close(
        &ramp([1, 6])?.lp_pool1d(2.0, [3], None, false)?,
        &[2.236068, 7.071068],
    );
    let samples = tensor![[[0.3, 0.7]]];
    let size = FractionalSize::Size([3, 3]);
    let (_, places) =
        ramp([1, 5, 5])?
            .sin()?
            .fractional_max_pool2d([2, 2], size, Some(&samples))?;
    assert_eq!(places.to_vec::<i64>()?, [1, 2, 8, 6, 7, 14, 20, 21, 19]);
    Ok(())
}

fn rows() -> Tensor {
    tensor![[1.0, 2.0, 4.0], [3.0, -1.0, 0.5]]
}

#[test]
fn norms() -> Outcome {
    let training = BatchNormOptions {
        training: true,
        eps: 0.1,
        ..Default::default()
    };
    let y = rows().batch_norm(None, None, &training)?;
    let expected = [
        -0.953463, 0.978492, 0.984063, 0.953463, -0.978492, -0.984063,
    ];
    assert_close(&y, &expected);
    let (mut mean, mut var) = (
        Tensor::zeros([3], DType::F32)?,
        Tensor::ones([3], DType::F32)?,
    );
    let y = rows().batch_norm_(&mut mean, &mut var, &training)?;
    assert_close(&y, &expected);
    assert_close(&mean, &[0.2, 0.05, 0.225]);
    assert_close(&var, &[1.1, 1.35, 1.5125]);
    let weight = ramp([4])?;
    let y = ramp([1, 4, 2])?.group_norm(2, Some(&weight), Some(&weight.ones_like()?), 1e-5)?;
    let expected = [
        1.0, 1.0, 1.447212, 2.341635, -1.68327, 0.105577, 2.341636, 5.024907,
    ];
    assert_is(&y, &[1, 4, 2], &expected);
    let y = ramp([1, 3, 2])?.local_response_norm(2, 1.0, 0.75, 1.0)?;
    assert_close(&y, &[0.0, 0.737788, 0.877383, 0.782542, 0.66224, 0.572158]);
    let y = ramp([1, 2, 2])?.instance_norm(None, None, None, 1e-5)?;
    assert_close(&y, &[-0.99998, 0.99998, -0.99998, 0.99998]);
    Ok(())
}

#[test]
fn interpolation_and_sampling() -> Outcome {
    let image = ramp([1, 1, 3, 3])?;
    let bilinear = [0.75, 1.375, 2.125, 2.75, 5.25, 5.875, 6.625, 7.25];
    let bicubic = [
        0.502441, 1.104004, 2.044434, 2.645996, 5.354004, 5.955566, 6.895996, 7.497559,
    ];
    for (mode, expected) in [
        (
            InterpolateMode::Nearest,
            [0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0],
        ),
        (InterpolateMode::Linear, bilinear),
        (InterpolateMode::Bicubic, bicubic),
        (
            InterpolateMode::Area,
            [1.5, 2.0, 3.0, 3.5, 4.5, 5.0, 6.0, 6.5],
        ),
    ] {
        let options = InterpolateOptions {
            mode,
            ..Default::default()
        };
        assert_is(
            &image.interpolate([2usize, 4], &options)?,
            &[1, 1, 2, 4],
            &expected,
        );
    }
    let smooth = InterpolateOptions {
        mode: InterpolateMode::Linear,
        antialias: true,
        ..Default::default()
    };
    let y = ramp([1, 1, 5, 5])?
        .sin()?
        .interpolate([2usize, 2], &smooth)?;
    assert_close(&y, &[-0.077895, 0.345111, -0.04436, -0.28806]);

    use GridSampleMode::{Bicubic, Bilinear, Nearest};
    use GridSamplePadding::{Border, Reflection, Zeros};
    let grid = tensor![[[[-1.0, -1.0], [0.3, 0.2]], [[1.5, 0.0], [-0.4, 2.0]]]];
    for (mode, padding, expected) in [
        (Bilinear, Zeros, [0.0, 5.35, 0.0, 0.0]),
        (Bilinear, Border, [0.0, 5.35, 5.0, 6.4]),
        (Bilinear, Reflection, [0.0, 5.35, 4.75, 3.4]),
        (Nearest, Zeros, [0.0, 4.0, 0.0, 0.0]),
        (Nearest, Border, [0.0, 4.0, 5.0, 6.0]),
        (Bicubic, Zeros, [-0.1875, 6.616975, -0.527344, 0.0]),
        (Bicubic, Reflection, [-0.75, 5.713653, 4.808594, 3.315999]),
    ] {
        let options = GridSampleOptions {
            mode,
            padding,
            align_corners: false,
        };
        assert_is(
            &image.grid_sample(&grid, &options)?,
            &[1, 1, 2, 2],
            &expected,
        );
    }
    let map = tensor![[[1.0, 0.5, 0.0], [0.0, 2.0, 1.0]]];
    let grid = map.affine_grid([1, 1, 2, 2], false)?;
    assert_is(
        &grid,
        &[1, 2, 2, 2],
        &[-0.75, 0.0, 0.25, 0.0, -0.25, 2.0, 0.75, 2.0],
    );
    Ok(())
}

#[test]
fn losses_of_classes() -> Outcome {
    let (y, classes) = (rows(), tensor![2i64, 0]);
    let weight = tensor![1.0, 2.0, 3.0];
    let smoothed = CrossEntropyOptions {
        weight: Some(&weight),
        label_smoothing: 0.1,
        ..Default::default()
    };
    assert_close(&y.cross_entropy(&classes, &smoothed)?, &[0.336949]);
    let ignoring = CrossEntropyOptions {
        ignore_index: 0,
        ..Default::default()
    };
    assert_close(&y.cross_entropy(&classes, &ignoring)?, &[0.169846]);
    let even = CrossEntropyOptions::default();
    assert_close(&y.cross_entropy(&y.softmax(1)?, &even)?, &[0.436504]);
    assert_close(
        &y.multi_margin_loss(&classes, 2, 1.0, None, Reduction::Mean)?,
        &[0.0],
    );
    let x = tensor![0.1, 0.2, 0.4, 0.8];
    let loss = x.multilabel_margin_loss(&tensor![3i64, 0, -1, 1], Reduction::Mean)?;
    assert_is(&loss, &[], &[0.85]);
    let logs = ramp([4, 2, 3])?.sin()?.log_softmax(2)?;
    let (inputs, lengths) = (tensor![4i64, 3], tensor![2i64, 1]);
    let each = CtcOptions {
        reduction: Reduction::None,
        ..Default::default()
    };
    let loss = logs.ctc_loss(&tensor![[1i64, 2], [2, 0]], &inputs, &lengths, &each)?;
    assert_close(&loss, &[1.378001, 1.586974]);
    let mean = CtcOptions::default();
    let loss = logs.ctc_loss(&tensor![1i64, 2, 2], &inputs, &lengths, &mean)?;
    assert_is(&loss, &[], &[1.137987]);
    Ok(())
}

#[test]
fn losses_of_numbers() -> Outcome {
    let y = rows();
    let other = tensor![[3.0, -1.0, 0.5], [1.0, 2.0, 4.0]];
    let weight = tensor![1.0, 2.0, 3.0];
    let labels = y.gt(1)?.to_dtype(DType::F32)?;
    let mean = Reduction::Mean;
    let losses = [
        y.binary_cross_entropy_with_logits(&labels, None, Some(&weight), mean)?,
        y.log_softmax(1)?
            .kl_div_batchmean(&other.softmax(1)?, false)?,
        y.huber_loss(&other, 1.5, None, mean)?,
        y.gaussian_nll_loss(&other, &tensor![0.5, 2.0], true, 1e-6, mean)?,
        y.poisson_nll_loss(&y.abs()?.mul(2.0)?, true, true, 1e-8, mean)?,
    ];
    let expected = [0.492916, 2.359174, 3.125, 6.179355, 8.321344];
    for (loss, expected) in losses.iter().zip(expected) {
        assert_is(loss, &[], &[expected]);
    }
    let swapping = TripletOptions {
        swap: true,
        ..Default::default()
    };
    let loss = y.triplet_margin_loss(&other, &y.mul(0.5)?, &swapping)?;
    assert_close(&loss, &[4.078902]);
    assert_close(
        &y.mse_loss(&other, None, Reduction::Sum)?,
        &[2.0 * (4.0 + 9.0 + 12.25)],
    );
    let none = TripletOptions {
        margin: 0.0,
        ..Default::default()
    };
    assert!(error(y.triplet_margin_loss(&other, &y, &none)).contains("margin above 0"));
    Ok(())
}

#[test]
fn bags_and_distances() -> Outcome {
    let table = tensor![[1.0, 2.0], [3.0, -4.0], [5.0, 0.5]];
    let (ids, offsets) = (tensor![0i64, 1, 2, 1], tensor![0i64, 2, 2, 3]);
    for (mode, first) in [
        (EmbeddingBagMode::Sum, [4.0, -2.0]),
        (EmbeddingBagMode::Mean, [2.0, -1.0]),
        (EmbeddingBagMode::Max, [3.0, 2.0]),
    ] {
        let options = EmbeddingBagOptions {
            mode,
            offsets: Some(&offsets),
            ..Default::default()
        };
        let rest = [0.0, 0.0, 5.0, 0.5, 3.0, -4.0];
        let expected = [&first[..], &rest].concat();
        assert_is(&table.embedding_bag(&ids, &options)?, &[4, 2], &expected);
    }
    let one = table.narrow(0, 0, 1)?;
    assert_is(
        &table.cdist(&one, 1.0, CdistMode::default())?,
        &[3, 1],
        &[0.0, 8.0, 5.5],
    );
    assert_close(&table.pdist(2.0)?, &[6.324555, 4.272002, 4.924429]);
    let turned = tensor![[5.0, 0.5], [3.0, -4.0], [1.0, 2.0]];
    assert_close(
        &table.cosine_similarity(&turned, 1, 1e-8)?,
        &[0.533993, 1.0, 0.533993],
    );
    Ok(())
}

#[test]
fn attention_in_a_window_sees_the_latest_keys() -> Outcome {
    let x = |heads: i64, seed: f64| ramp([heads as usize, 6, 4])?.add(seed)?.sin();
    let (q, k, v) = (x(4, 0.5)?, x(2, 1.0)?, x(2, 2.0)?);
    let options = AttentionOptions::default().is_causal(true);
    let key = Tensor::arange_with(0, 6, 1, DType::I32)?;
    let query = key.unsqueeze(1)?;
    for window in [1, 2, 5, 6, 9] {
        let near = key.gt(&query.sub(window as i64)?)?;
        let masked = options.mask(&near);
        let windowed = options.window(window);
        let computed = |options: AttentionOptions| -> RusTorchResult<Vec<Tensor>> {
            let inputs = [&q, &k, &v].map(|x| x.detach().requires_grad_(true));
            let [q, k, v] = inputs;
            let (q, k, v) = (&q?, &k?, &v?);
            let y = q.scaled_dot_product_attention(k, v, options)?;
            let mut results = grad(&[&y.square()?.sum_all()?], &[q, k, v])?;
            results.push(y);
            Ok(results)
        };
        let expected = computed(masked)?;
        for (x, expected) in computed(windowed)?.iter().zip(&expected) {
            assert_close(x, &expected.to_vec::<f32>()?);
        }
        // A mask hides keys of the window, too.
        let odd = key.remainder(2)?.ne(0)?;
        let both =
            q.scaled_dot_product_attention(&k, &v, options.mask(&near.logical_and(&odd)?))?;
        let y = q.scaled_dot_product_attention(&k, &v, options.window(window).mask(&odd))?;
        assert_close(&y, &both.to_vec::<f32>()?);
    }
    let plain = AttentionOptions::default();
    for refused in [options.window(0), plain.window(2)] {
        let error = q.scaled_dot_product_attention(&k, &v, refused).unwrap_err();
        let expected = "a window of at least one key, with causal and a key for each query";
        assert!(error.to_string().contains(expected), "{error}");
    }
    Ok(())
}

#[test]
fn attention_with_masks_and_heads() -> Outcome {
    let (q, k) = (ramp([1, 2, 4])?.sin()?, ramp([1, 3, 4])?.cos()?);
    let seen = tensor![[true, false, true], [false, false, false]];
    let masked = AttentionOptions {
        mask: Some(&seen),
        ..Default::default()
    };
    let expected = [0.628189, 0.069191, -0.553421, -0.66722, 0.0, 0.0, 0.0, 0.0];
    let y = q.scaled_dot_product_attention(&k, &k, masked)?;
    assert_is(&y, &[1, 2, 4], &expected);
    let flat = |x: &Tensor| x.squeeze(0);
    let y = flat(&q)?.scaled_dot_product_attention(&flat(&k)?, &flat(&k)?, masked)?;
    assert_is(&y, &[2, 4], &expected);

    let x = ramp([2, 1, 4])?.sin()?;
    let (weight, out) = (ramp([12, 4])?.cos()?, ramp([4, 4])?.sin()?);
    let (ones, hidden) = (
        Tensor::ones([4], DType::F32)?,
        tensor![[false, true], [false, false]],
    );
    let options = MultiHeadOptions {
        out_proj_bias: Some(&ones),
        attn_mask: Some(&hidden),
        need_weights: true,
        average_attn_weights: true,
        ..Default::default()
    };
    let packed = Projections::Packed(&weight);
    let (y, weights) = x.multi_head_attention_forward(&x, &x, 2, packed, &out, &options)?;
    let expected = [
        1.276622, 0.454556, 1.436429, 0.974905, 0.647749, 1.189661, 1.10431, 0.673976,
    ];
    assert_is(&y, &[2, 1, 4], &expected);
    assert_is(
        &weights.expect("asked for"),
        &[1, 2, 2],
        &[1.0, 0.0, 0.833258, 0.166742],
    );
    Ok(())
}
