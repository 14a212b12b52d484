//! Numbers that follow from names and indices, so that PyTorch's programs begin with the same ones.

use rustorch::nn::Module;
use rustorch::prelude::*;

/// `count` numbers in [0, 1) by SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) fn uniform(name: &str, count: usize) -> impl Iterator<Item = f64> + use<> {
    // FNV-1a of 32 bits (Fowler, Noll, Vo).
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    let seed = u64::from(name.bytes().fold(2_166_136_261, step));
    (1..=count as u64).map(move |i| {
        let mut z = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = z.wrapping_add(seed.wrapping_mul(0xD1B5_4A32_D192_ED03));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        (z >> 11) as f64 / (1u64 << 53) as f64
    })
}

/// Numbers in [-1, 1).
pub(crate) fn numbers(name: &str, shape: &[usize], dtype: DType) -> RusTorchResult<Tensor> {
    let values = uniform(name, shape.iter().product()).map(|u| 2.0 * u - 1.0);
    Tensor::from_vec(values.collect::<Vec<f64>>(), shape)?.to_dtype(dtype)
}

/// Whole numbers in `0..below`.
pub(crate) fn whole(name: &str, below: usize, count: usize) -> Vec<i64> {
    let values = uniform(name, count).map(|u| (u * below as f64) as i64);
    values.collect()
}

/// [`whole`] numbers as a tensor.
pub(crate) fn integers(name: &str, below: usize, shape: &[usize]) -> RusTorchResult<Tensor> {
    Tensor::from_vec(whole(name, below, shape.iter().product()), shape)
}

/// A module of this dtype whose parameters have numbers by their names.
pub(crate) fn initialised<M: Module>(mut module: M, dtype: DType) -> RusTorchResult<M> {
    module.to_dtype(dtype)?;
    no_grad(|| {
        for (name, mut p) in module.named_parameters() {
            let shape = p.shape().to_vec();
            let values = numbers(&name, &shape, dtype)?;
            let values = match shape.len() > 1 {
                true => values.mul((shape[0] as f64 / p.numel() as f64).sqrt())?,
                false => values
                    .mul(0.1)?
                    .add(f64::from(u8::from(name.ends_with("weight"))))?,
            };
            p.copy_(&values)?;
        }
        Ok(module)
    })
}
