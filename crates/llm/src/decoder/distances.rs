//! A bias of scores by the distance of query and key.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::LlmError;
use crate::spec::DistancesSpec;
use crate::weights::Loader;

/// Distances from this one on share the last bucket.
const FARTHEST: f64 = 128.0;

/// A bias for each bucket of distances and each head.
pub(super) struct Distances {
    /// `[buckets, heads]`.
    table: Tensor,
    buckets: usize,
}

impl Distances {
    pub(super) fn load(w: &Loader, spec: &DistancesSpec, heads: usize) -> Result<Self, LlmError> {
        Ok(Self {
            table: w.f32(&spec.table, &[spec.buckets, heads])?,
            buckets: spec.buckets,
        })
    }

    /// The bias of `t` queries and as many keys: `f32` `[heads, t, t]`.
    pub(super) fn bias(&self, t: usize) -> RusTorchResult<Tensor> {
        let last = t as i64 - 1;
        let buckets: Vec<i64> = (-last..=last).map(|d| bucket(d, self.buckets)).collect();
        let count = buckets.len();
        let biases = self.table.embedding(&Tensor::from_vec(buckets, [count])?)?;
        let at = Tensor::arange_with(0, t as i64, 1, DType::I64)?;
        let distances = at.unsqueeze(0)?.sub(&at.unsqueeze(1)?)?.add(last)?;
        biases.embedding(&distances)?.permute([2, 0, 1])
    }
}

/// The bucket of the distance from a query to a key. Half of the buckets are for keys behind the query. The first ones
/// of each half have one distance, the others logarithmic ranges.
fn bucket(distance: i64, buckets: usize) -> i64 {
    let half = (buckets / 2) as i64;
    let (exact, far) = ((half / 2).max(1), distance.abs());
    let near = match far < exact {
        true => far,
        false => {
            let ratio = (far as f32 / exact as f32).ln() * (half - exact) as f32;
            let share = f64::from(ratio) / (FARTHEST / exact as f64).ln();
            ((exact as f64 + share) as f32 as i64).min(half - 1)
        }
    };
    near + if distance > 0 { half } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn far_distances_share_buckets() {
        let found = [0, -1, -7, -8, -11, -12, -127, -500, 1, 7, 500].map(|d| bucket(d, 32));
        assert_eq!(found, [0, 1, 7, 8, 8, 9, 15, 15, 17, 23, 31]);
    }
}
