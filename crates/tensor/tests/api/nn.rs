//! Layers.

use half::f16;
use rustorch_ir::ops::{Rope, RopeLayout, RopeScaling};
use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::autograd::grad;
use rustorch_tensor::nn::{
    AttentionOptions, AvgPoolOptions, BatchNormOptions, ConvOptions, ConvTransposeOptions,
    MaxPoolOptions,
};
use rustorch_tensor::{RusTorchResult, Tensor, tensor};

use crate::{Outcome, assert_close, error};

#[test]
fn softmax() -> Outcome {
    let x = tensor![[0.0, 2f64.ln()], [1000.0, 1000.0]];
    assert_close(&x.softmax(-1)?, &[1.0 / 3.0, 2.0 / 3.0, 0.5, 0.5]);
    assert_close(&x.log_softmax(1)?.exp()?, &[1.0 / 3.0, 2.0 / 3.0, 0.5, 0.5]);
    let far = tensor![0.0, 200.0].log_softmax(0)?;
    assert_close(&far, &[-200.0, 0.0]);
    assert!(tensor![1, 2].softmax(0).is_err());
    Ok(())
}

#[test]
fn linear_and_embedding() -> Outcome {
    let x = tensor![[[1.0, 2.0]], [[3.0, 4.0]]];
    let w = tensor![[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]];
    let b = tensor![0.0, 10.0, 20.0];
    let y = x.linear(&w, Some(&b))?;
    assert_eq!(y.shape(), [2, 1, 3]);
    assert_close(&y, &[1.0, 12.0, 23.0, 3.0, 14.0, 27.0]);
    assert_close(
        &x.linear(&w.to_dtype(DType::F16)?, None)?,
        &[1.0, 2.0, 3.0, 3.0, 4.0, 7.0],
    );
    assert!(error(x.linear(&b, None)).starts_with("linear: expected x [.., k] and w [n, k]"));
    let ids = Tensor::from_slice(&[2i32, 0], [2])?;
    assert_close(&w.embedding(&ids)?, &[1.0, 1.0, 1.0, 0.0]);
    // Weights that begin behind the beginning of their memory.
    let (last, first) = (w.narrow(0, 1, 2)?, Tensor::from_slice(&[0i32], [1])?);
    assert_close(&x.linear(&last, None)?, &[2.0, 3.0, 4.0, 7.0]);
    assert_close(&last.embedding(&first)?, &[0.0, 1.0]);
    let half = w.to_dtype(DType::F16)?;
    assert_eq!(half.embedding(&ids)?.dtype(), DType::F16);
    assert_close(&half.embedding_as(&ids, DType::F32)?, &[1.0, 1.0, 1.0, 0.0]);
    Ok(())
}

#[test]
fn products_with_chosen_experts() -> Outcome {
    let weights = Tensor::arange_with(0, 24, 1, DType::F32)?.reshape([3, 2, 4])?;
    let x = Tensor::arange_with(0, 8, 1, DType::F32)?.reshape([2, 1, 4])?;
    let ids = tensor![[2, 0, 2], [1, 1, 0]];
    let y = x.expert_linear(&weights, &ids)?;
    assert_eq!((y.shape(), y.dtype()), (&[2, 3, 2][..], DType::F32));
    let one = |row: usize, expert: usize| {
        let x = x.select(0, row as isize)?;
        x.linear(&weights.select(0, expert as isize)?, None)
    };
    let rows = [
        one(0, 2)?,
        one(0, 0)?,
        one(0, 2)?,
        one(1, 1)?,
        one(1, 1)?,
        one(1, 0)?,
    ];
    let rows: Vec<&Tensor> = rows.iter().collect();
    assert_close(&y, &Tensor::cat(&rows, 0)?.to_vec::<f32>()?);
    // A row of its own for each slot, ids of the other dtype, and weights in half precision.
    let slots = Tensor::cat(&[&x, &x.mul(2)?, &x.mul(-1)?], 1)?;
    let scaled =
        slots.expert_linear(&weights.to_dtype(DType::BF16)?, &ids.to_dtype(DType::I32)?)?;
    let factors = tensor![1.0, 2.0, -1.0].reshape([1, 3, 1])?;
    assert!(scaled.allclose(&y.mul(&factors)?, 1e-6, 1e-6)?);
    let empty = x
        .narrow(0, 0, 0)?
        .expert_linear(&weights, &ids.narrow(0, 0, 0)?)?;
    assert_eq!(empty.shape(), [0, 3, 2]);
    let refused = error(x.expert_linear(&weights, &ids.select(0, 0)?));
    assert!(
        refused.contains("x [t, s, k] or [t, 1, k], w [e, n, k] and ids [t, s]"),
        "{refused}"
    );
    for id in [3, -1] {
        let outside = tensor![[0], [id]];
        let refused = error(x.expert_linear(&weights, &outside)?.to_vec::<f32>());
        let expected = format!("id {id} at [1, 0] is outside 3 experts");
        assert!(refused.contains(&expected), "{refused}");
    }
    Ok(())
}

#[test]
fn gradients_reach_the_chosen_experts() -> Outcome {
    let weights = Tensor::randn([3, 2, 4], DType::F32)?.requires_grad_(true)?;
    let x = Tensor::randn([5, 1, 4], DType::F32)?.requires_grad_(true)?;
    let ids = tensor![[2, 0], [0, 2], [2, 0], [0, 2], [0, 0]];
    let gradients = |y: Tensor| {
        let loss = y.sin()?.sum_all()?;
        grad(&[&loss], &[&x, &weights])
    };
    let found = gradients(x.expert_linear(&weights, &ids)?)?;
    // The same by gathering the chosen weights.
    let chosen = weights
        .index_select(0, &ids.ravel()?)?
        .reshape([5, 2, 2, 4])?;
    let gathered = x
        .unsqueeze(1)?
        .matmul(&chosen.transpose(2, 3)?)?
        .reshape([5, 2, 2])?;
    let expected = gradients(gathered)?;
    for (found, expected) in found.iter().zip(&expected) {
        assert!(found.allclose(expected, 1e-5, 1e-5)?);
    }
    assert_close(&found[1].select(0, 1)?, &[0.0; 8]);
    Ok(())
}

#[test]
fn block_weights() -> Outcome {
    // Row r of Q8_0: scale 0.5, element 0 is r + 1, the others are 0.
    let mut bytes = vec![0u8; 2 * 34];
    for (r, row) in bytes.chunks_exact_mut(34).enumerate() {
        row[..2].copy_from_slice(&f16::from_f32(0.5).to_bits().to_le_bytes());
        row[2] = r as u8 + 1;
    }
    let storage = Storage::from_host(HostBuffer::copy_of(&bytes).expect("memory"));
    let w = Tensor::from_storage(storage, [2, 32], DType::Block(BlockFormat::Q8_0))?;
    // A device may round activations to 8 bits with a scale of f16; of 127 / 32 nothing is lost.
    let x = Tensor::full([1, 32], 127.0 / 32.0, DType::F32)?;
    assert_close(&x.linear(&w, None)?, &[127.0 / 64.0, 127.0 / 32.0]);
    let rows = w.embedding(&tensor![1, 1])?;
    assert_eq!((rows.shape(), rows.dtype()), (&[2, 32][..], DType::F32));
    assert_close(&rows.select(1, 0)?, &[1.0, 1.0]);
    assert!(error(w.add(1)).starts_with("add: expected dtypes that promote"));
    assert!(w.permute([1, 0]).is_err());
    Ok(())
}

#[test]
fn norms() -> Outcome {
    let x = tensor![[1.0, 3.0], [-2.0, 2.0]];
    assert_close(
        &x.layer_norm([2], None, None, 0.0)?,
        &[-1.0, 1.0, -1.0, 1.0],
    );
    let (w, b) = (tensor![2.0, 3.0], tensor![0.5, 0.0]);
    assert_close(
        &x.layer_norm([2], Some(&w), Some(&b), 0.0)?,
        &[-1.5, 3.0, -1.5, 3.0],
    );
    assert_close(
        &x.layer_norm([2], None, Some(&b), 0.0)?,
        &[-0.5, 1.0, -0.5, 1.0],
    );
    let both = x.layer_norm([2, 2], None, None, 0.0)?;
    assert_close(&both.mean(None, false)?, &[0.0]);
    assert!(error(x.layer_norm([3], None, None, 0.0)).starts_with("layer_norm: expected a tensor"));
    let r = tensor![3.0, 4.0].rms_norm([2], Some(&w), 0.0)?;
    assert_close(&r, &[6.0 / 12.5f32.sqrt(), 12.0 / 12.5f32.sqrt()]);
    assert!(x.rms_norm([2], Some(&tensor![1.0, 2.0, 3.0]), 0.0).is_err());
    let (mean, var) = (tensor![1.0, 0.0], tensor![4.0, 1.0]);
    let image = Tensor::from_vec(vec![3.0f32, 5.0, 1.0, 2.0], [1, 2, 2])?;
    fn by<'a>(weight: Option<&'a Tensor>, bias: Option<&'a Tensor>) -> BatchNormOptions<'a> {
        let eps = 0.0;
        BatchNormOptions {
            weight,
            bias,
            eps,
            ..Default::default()
        }
    }
    assert_close(
        &image.batch_norm(Some(&mean), Some(&var), &by(None, None))?,
        &[1.0, 2.0, 1.0, 2.0],
    );
    let y = image.batch_norm(Some(&mean), Some(&var), &by(Some(&w), Some(&b)))?;
    assert_close(&y, &[2.5, 4.5, 3.0, 6.0]);
    let y = image.batch_norm(Some(&mean), Some(&var), &by(None, Some(&b)))?;
    assert_close(&y, &[1.5, 2.5, 1.0, 2.0]);
    Ok(())
}

#[test]
fn images() -> Outcome {
    let x = Tensor::arange_with(1, 10, 1, DType::F32)?.reshape([1, 1, 3, 3])?;
    let ones = Tensor::ones([1, 1, 2, 2], DType::F32)?;
    let y = x.conv2d(&ones, None, &ConvOptions::default())?;
    assert_close(&y, &[12.0, 16.0, 24.0, 28.0]);
    let padded = ConvOptions {
        stride: [2, 2],
        padding: [1, 1].into(),
        ..Default::default()
    };
    let y = x.conv2d(&ones, Some(&tensor![0.5,]), &padded)?;
    assert_close(&y, &[1.5, 5.5, 11.5, 28.5]);
    let spread = ConvTransposeOptions {
        stride: [2, 2],
        ..Default::default()
    };
    let y = x.narrow(3, 0, 1)?.conv_transpose2d(&ones, None, &spread)?;
    assert_eq!(y.shape(), [1, 1, 6, 2]);
    assert_close(&y.select(3, 1)?, &[1.0, 1.0, 4.0, 4.0, 7.0, 7.0]);
    let pool = |stride, padding| MaxPoolOptions {
        stride: Some(stride),
        padding,
        ..Default::default()
    };
    let largest = x.max_pool2d([2, 2], &pool([1, 1], [0, 0]))?;
    assert_close(&largest, &[5.0, 6.0, 8.0, 9.0]);
    // One index beyond the padding, counted in the plane without it.
    let (largest, indices) = x.max_pool2d_with_indices([3, 3], &pool([2, 2], [1, 1]))?;
    assert_close(&largest, &[5.0, 6.0, 8.0, 9.0]);
    assert_eq!(indices.to_vec::<i64>()?, [4, 5, 7, 8]);
    let padded = AvgPoolOptions {
        padding: [1, 1],
        ..Default::default()
    };
    assert_close(&x.avg_pool2d([3, 3], &padded)?, &[12.0 / 9.0]);
    let unpadded = AvgPoolOptions::default();
    assert!(error(x.avg_pool2d([4, 4], &unpadded)).starts_with("avg_pool2d: "));
    Ok(())
}

#[test]
fn rotary_embedding() -> Outcome {
    let x = tensor![[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]];
    let positions = Tensor::from_slice(&[0i32, 1], [2])?;
    let rope = |layout| Rope {
        dims: 4,
        layout,
        base: 100.0.into(),
        scaling: RopeScaling::NONE,
    };
    // Frequencies 1 and 0.1: pair i turns by position · frequency i.
    let (c0, s0, c1, s1) = (1f32.cos(), 1f32.sin(), 0.1f32.cos(), 0.1f32.sin());
    let y = x.rope(&positions, None, &rope(RopeLayout::Interleaved))?;
    assert_close(&y, &[1.0, 0.0, 0.0, 1.0, c0, s0, -s1, c1]);
    let y = x.rope(&positions, None, &rope(RopeLayout::Halves))?;
    assert_close(&y, &[1.0, 0.0, 0.0, 1.0, c0, -s1, s0, c1]);
    let factors = tensor![1.0, 0.1];
    let y = x.rope(&positions, Some(&factors), &rope(RopeLayout::Interleaved))?;
    assert_close(&y.select(0, 1)?, &[c0, s0, -s0, c0]);
    assert!(
        x.rope(&tensor![0, 1], None, &rope(RopeLayout::Halves))
            .is_err(),
        "i64 positions"
    );
    Ok(())
}

#[test]
fn attention() -> Outcome {
    let head = |values: &[f32]| Tensor::from_slice(values, [1, values.len(), 1]);
    let attend = |options| -> RusTorchResult<Tensor> {
        let zeros = head(&[0.0, 0.0])?;
        zeros.scaled_dot_product_attention(&zeros, &head(&[1.0, 3.0])?, options)
    };
    assert_close(&attend(AttentionOptions::default())?, &[2.0, 2.0]);
    let causal = AttentionOptions {
        is_causal: true,
        ..Default::default()
    };
    assert_close(&attend(causal)?, &[1.0, 2.0]);
    let seen = tensor![[false, true], [true, true]];
    let masked = AttentionOptions {
        mask: Some(&seen),
        ..Default::default()
    };
    assert_close(&attend(masked)?, &[3.0, 2.0]);
    let named = AttentionOptions::default().attn_mask(&seen);
    assert_close(&attend(named)?, &[3.0, 2.0]);
    let bias = tensor![[0.0, 3f64.ln()], [0.0, 0.0]];
    let added = AttentionOptions {
        mask: Some(&bias),
        ..Default::default()
    };
    assert_close(&attend(added)?, &[2.5, 2.0]);
    // Two query heads share one key head; scale and cap act on the scores.
    let q = Tensor::from_slice(&[1.0f32, 2.0], [2, 1, 1])?;
    let (k, v) = (head(&[0.0, 1.0])?, head(&[0.0, 1.0])?);
    let scaled = AttentionOptions {
        scale: Some(3f64.ln()),
        ..Default::default()
    };
    assert_close(
        &q.scaled_dot_product_attention(&k, &v, scaled)?,
        &[0.75, 0.9],
    );
    let (y, totals) = q.scaled_dot_product_attention_with_logsumexp(&k, &v, scaled)?;
    assert_close(&y, &[0.75, 0.9]);
    assert_eq!((totals.shape(), totals.dtype()), (&[2, 1][..], DType::F32));
    assert_close(&totals, &[4f32.ln(), 10f32.ln()]);
    let capped = AttentionOptions {
        scale: Some(1e6),
        soft_cap: Some(3f64.ln()),
        ..Default::default()
    };
    assert_close(
        &q.scaled_dot_product_attention(&k, &v, capped)?,
        &[0.75, 0.75],
    );
    let past = Tensor::from_slice(&[0i32], [1])?;
    let past_only = AttentionOptions {
        past: Some(&past),
        ..Default::default()
    };
    assert!(attend(past_only).is_err(), "past without is_causal");
    assert!(
        tensor![1.0]
            .scaled_dot_product_attention(&k, &v, causal)
            .is_err()
    );
    Ok(())
}

/// Queries, keys and values `[1, 3, 4]`, and a mask that hides the first key, which alone `is_causal` shows the first query.
fn hidden_row(dtype: DType) -> RusTorchResult<[Tensor; 4]> {
    let part = |from: f64| {
        let x = Tensor::arange_with(0, 12, 1, DType::F64)?
            .mul(from)?
            .sin()?;
        x.reshape([1, 3, 4])?.to_dtype(dtype)
    };
    let seen = tensor![
        [false, true, true],
        [false, true, false],
        [true, true, true]
    ];
    Ok([part(0.7)?, part(1.1)?, part(1.9)?, seen])
}

/// Attends from a row that sees nothing, from one that sees the second key alone, and one that sees all.
fn check_hidden_row(dtype: DType) -> Outcome {
    let [q, k, v, seen] = hidden_row(dtype)?;
    let bias = Tensor::where_(&seen, 0.25, f64::NEG_INFINITY)?.to_dtype(dtype)?;
    let expected = Tensor::cat(&[&v.narrow(1, 0, 1)?.zeros_like()?, &v.narrow(1, 1, 1)?], 1)?;
    for mask in [&seen, &bias.unsqueeze(0)?] {
        let options = AttentionOptions::default().mask(mask).is_causal(true);
        let (y, totals) = q.scaled_dot_product_attention_with_logsumexp(&k, &v, options)?;
        assert_eq!(totals.select(1, 0)?.item()?, f64::NEG_INFINITY, "{mask}");
        for y in [&y, &q.scaled_dot_product_attention(&k, &v, options)?] {
            let rows = y.narrow(1, 0, 2)?;
            assert!(rows.allclose(&expected, 1e-2, 1e-6)?, "{mask}: {y}");
            assert!(
                y.isfinite()?.all(None, false)?.item()? != 0.0,
                "{mask}: {y}"
            );
        }
    }
    Ok(())
}

#[test]
fn queries_that_a_mask_and_causality_hide_all_keys_from_give_zero() -> Outcome {
    crate::extremes::on_each_device(|| check_hidden_row(DType::F32))?;
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        check_hidden_row(dtype)?;
    }
    Ok(())
}

/// Gradients of attention that a mask, which may be learnt, lets see nothing, alone or together with `is_causal`.
fn check_hidden_gradient(mask: &Tensor, is_learnt: bool, options: AttentionOptions) -> Outcome {
    let [q, k, v, _] = hidden_row(DType::F32)?;
    let [q, k, v] = [q.narrow(1, 0, 2)?, k, v].map(|x| x.detach().requires_grad_(true));
    let (q, k, v) = (q?, k?, v?);
    let mask = mask.detach().requires_grad_(is_learnt)?;
    let y = q.scaled_dot_product_attention(&k, &v, options.mask(&mask))?;
    y.mul(&y)?.add(&y)?.sum(None, false)?.backward()?;
    for leaf in [&q, &k, &v].into_iter().chain(is_learnt.then_some(&mask)) {
        let grad = leaf.grad().expect("a gradient");
        assert!(grad.isfinite()?.all(None, false)?.item()? != 0.0, "{grad}");
    }
    assert_close(&q.grad().expect("a gradient").select(1, 0)?, &[0.0; 4]);
    Ok(())
}

#[test]
fn hidden_queries_have_no_gradient() -> Outcome {
    let seen = tensor![[false, true, true], [true, true, true]];
    let bias = Tensor::where_(&seen, 0.25, f64::NEG_INFINITY)?.to_dtype(DType::F32)?;
    let causal = AttentionOptions::default().is_causal(true);
    crate::extremes::on_each_device(|| {
        check_hidden_gradient(&seen, false, causal)?;
        check_hidden_gradient(&bias, true, causal)
    })?;
    let none = tensor![[false; 3], [true; 3]];
    let no_bias = Tensor::where_(&none, 0.25, f64::NEG_INFINITY)?.to_dtype(DType::F32)?;
    for dropout_p in [0.0, 0.5] {
        let causal = causal.dropout_p(dropout_p);
        check_hidden_gradient(&seen, false, causal)?;
        check_hidden_gradient(&bias, true, causal)?;
        let plain = AttentionOptions::default().dropout_p(dropout_p);
        check_hidden_gradient(&none, false, plain)?;
        check_hidden_gradient(&no_bias, true, plain)?;
    }
    Ok(())
}

#[test]
fn a_mask_of_nan_hides_nothing() -> Outcome {
    let [q, k, v, _] = hidden_row(DType::F32)?;
    let mask = Tensor::full([3, 3], f64::NAN, DType::F32)?;
    let y = q.scaled_dot_product_attention(&k, &v, AttentionOptions::default().mask(&mask))?;
    assert!(y.isnan()?.all(None, false)?.item()? != 0.0, "{y}");
    Ok(())
}

#[test]
fn layers_of_attention_give_zero_where_no_key_is_seen() -> Outcome {
    use rustorch_tensor::nn::{MultiHeadOptions, Projections};
    let x = tensor![[1.0, 2.0], [3.0, 4.0]];
    let eye = Tensor::eye(2, DType::F32)?;
    let mask = tensor![[true, true], [false, true]];
    let attend = |need_weights| {
        let options = MultiHeadOptions::default()
            .attn_mask(&mask)
            .need_weights(need_weights);
        let projections = Projections::Separate([&eye; 3]);
        x.multi_head_attention_forward(&x, &x, 1, projections, &eye, &options)
    };
    // Like PyTorch, whose weights are NaN where they are asked for.
    assert_close(&attend(false)?.0, &[0.0, 0.0, 1.0, 2.0]);
    let (_, weights) = attend(true)?;
    let weights = weights.expect("weights").to_vec::<f32>()?;
    assert!(weights[..2].iter().all(|x| x.is_nan()) && weights[2..] == [1.0, 0.0]);
    Ok(())
}

#[test]
fn batch_norm_of_nothing() -> Outcome {
    let none = Tensor::zeros([0], DType::F32)?.requires_grad_(true)?;
    for training in [false, true] {
        let options = BatchNormOptions {
            training,
            ..Default::default()
        };
        let vector = none.detach();
        let y = none.batch_norm(Some(&vector), Some(&vector), &options)?;
        assert_eq!((y.shape(), y.to_vec::<f32>()?), (&[0][..], vec![]));
        y.sum(None, false)?.backward()?;
        // Running statistics stay.
        let x = Tensor::zeros([0, 3], DType::F32)?;
        let (mut mean, mut var) = (tensor![1.0, 2.0, 3.0], tensor![4.0, 5.0, 6.0]);
        assert_eq!(
            x.batch_norm_(&mut mean, &mut var, &options)?.shape(),
            [0, 3]
        );
        assert_close(&mean, &[1.0, 2.0, 3.0]);
        assert_close(&var, &[4.0, 5.0, 6.0]);
    }
    let options = BatchNormOptions::default();
    let one = Tensor::ones([1], DType::F32)?;
    assert!(one.batch_norm(Some(&one), Some(&one), &options).is_err());
    Ok(())
}
