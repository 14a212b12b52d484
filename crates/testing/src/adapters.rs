//! Low-rank adapters merged into weights: the oracle for adapters beside them.

use std::collections::BTreeMap;

/// Tensors by name, each with its shape, slowest dimension first, and its numbers.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Adds `scale · alpha / rank` times the products of an adapter's matrices to their weights, in double precision.
/// Weights are matrices, or stacks of experts' matrices. `factor` gives what multiplies an expert's weights later,
/// but not its adapter. Returns the number of changed weights.
///
/// # Panics
/// Panics if the adapter's shapes do not fit.
pub fn merge(
    tensors: &mut Tensors,
    adapter: &Tensors,
    scale: f64,
    factor: impl Fn(&str, usize) -> f64,
) -> usize {
    let mut changed = 0;
    for (weight, (shape, values)) in tensors {
        let side = |side: &str| adapter.get(&format!("{weight}.lora_{side}"));
        let (Some((a_shape, a)), Some((_, b))) = (side("a"), side("b")) else {
            continue;
        };
        let [.., rows, columns] = shape[..] else {
            panic!("{weight}: a weight of shape {shape:?}");
        };
        let rank = a_shape[a_shape.len() - 2];
        let matrices = values.chunks_exact_mut(rows * columns);
        let sides = a
            .chunks_exact(rank * columns)
            .zip(b.chunks_exact(rows * rank));
        assert_eq!(matrices.len(), sides.len(), "{weight}");
        for (expert, (matrix, (a, b))) in matrices.zip(sides).enumerate() {
            let scale = scale / rank as f64 / factor(weight, expert);
            for (row, b) in matrix.chunks_exact_mut(columns).zip(b.chunks_exact(rank)) {
                let mut sums: Vec<f64> = row.iter().map(|&w| f64::from(w)).collect();
                for (b, a) in b.iter().zip(a.chunks_exact(columns)) {
                    let factor = scale * f64::from(*b);
                    for (sum, a) in sums.iter_mut().zip(a) {
                        *sum += factor * f64::from(*a);
                    }
                }
                for (w, sum) in row.iter_mut().zip(sums) {
                    *w = sum as f32;
                }
            }
        }
        changed += 1;
    }
    changed
}
