//! Gradients of layer norms and of norms by the mean square, of `f32`.

use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::fold::sum;
use crate::kernel::{Args, Misuse, SharedMut, for_ranges};
use crate::launch::Launch;
use crate::simd::{Kernel, Level, Simd};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::NormBackward,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

/// Cost of an element beside an addition.
const WORK: usize = 12;

/// Parts of all rows whose sums are kept apart: as many whatever the number of threads is, so that sums are the same.
const PARTS: usize = 32;

fn accepts(s: &Signature) -> bool {
    let types = s.inputs.iter().copied().chain(s.outputs);
    types.into_iter().all(|ty| ty.dtype == DType::F32)
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::NormBackward(op) = args.op else {
        return Err(Misuse("not a norm_backward".to_owned()));
    };
    let [rows, width] = op.lines(args.inputs[0].ty);
    let operand = |i: usize| args.inputs[i].data::<f32>();
    let (x, ct) = (operand(0), operand(1));
    let weight = op.has_weight.then(|| operand(2));
    let other = op.adds.then(|| operand(args.inputs.len() - 1));
    let each = rows.div_ceil(PARTS).max(1);
    let parts = rows.div_ceil(each);
    let kept = if op.has_weight { width } else { 0 };
    let mut sums = vec![0.0; 2 * parts * kept];
    let shared = SharedMut::new(&mut sums);
    let out = SharedMut::new(args.output.data::<f32>());
    for_ranges(args.pool, parts, WORK * each * width, |range| {
        for part in range {
            // SAFETY: parts are disjoint, and inside of the sums.
            let sums = unsafe { shared.range(2 * part * kept, 2 * kept) };
            let (weight_sums, bias_sums) = sums.split_at_mut(kept);
            for row in part * each..rows.min((part + 1) * each) {
                let at = row * width..(row + 1) * width;
                // SAFETY: rows are disjoint, and inside of the result.
                let y = unsafe { out.range(at.start, width) };
                Level::current().run(Row {
                    x: &x[at.clone()],
                    ct: &ct[at.clone()],
                    weight,
                    other: other.map(|other| &other[at]),
                    eps: op.eps.0,
                    is_centred: op.is_centred,
                    y,
                    weight_sums,
                    bias_sums,
                });
            }
        }
    });
    for (at, result) in args.others.iter_mut().enumerate() {
        let result = SharedMut::new(result.data::<f32>());
        for_ranges(args.pool, width, 2 * parts, |columns| {
            for column in columns {
                let of = |part: usize| f64::from(sums[(2 * part + at) * kept + column]);
                let sum: f64 = (0..parts).map(of).sum();
                // SAFETY: columns are disjoint, and inside of the result.
                unsafe { result.at(column).write(sum as f32) };
            }
        });
    }
    Ok(())
}

/// A row.
struct Row<'a> {
    x: &'a [f32],
    ct: &'a [f32],
    weight: Option<&'a [f32]>,
    other: Option<&'a [f32]>,
    eps: f64,
    is_centred: bool,
    /// The gradient of `x`.
    y: &'a mut [f32],
    /// Sums for the weight's gradient, if there is a weight.
    weight_sums: &'a mut [f32],
    bias_sums: &'a mut [f32],
}

impl Kernel for Row<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (x, ct, y) = (self.x, self.ct, self.y);
        let n = x.len() as f64;
        let mean = match self.is_centred {
            true => (sum(x, |x| x) / n) as f32,
            false => 0.0,
        };
        let variance = sum(x, |x| (x - mean) * (x - mean)) / n;
        let scale = (1.0 / (variance + self.eps).sqrt()) as f32;
        if self.weight.is_some() {
            let sums = self.weight_sums.iter_mut().zip(self.bias_sums);
            for ((weight, bias), (&x, &ct)) in sums.zip(x.iter().zip(ct)) {
                *weight += ct * ((x - mean) * scale);
                *bias += ct;
            }
        }
        match self.weight {
            Some(weight) => {
                let of_normed = ct.iter().zip(weight).map(|(ct, weight)| ct * weight);
                y.iter_mut().zip(of_normed).for_each(|(y, g)| *y = g);
            }
            None => y.copy_from_slice(ct),
        }
        let level = match self.is_centred {
            true => (sum(y, |y| y) / n) as f32,
            false => 0.0,
        };
        let along = (products(x, y, mean) * f64::from(scale) / n) as f32;
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (*y - level - (x - mean) * scale * along) * scale;
        }
        if let Some(other) = self.other {
            y.iter_mut().zip(other).for_each(|(y, other)| *y += other);
        }
    }
}

/// Partial sums that are kept apart.
const LANES: usize = 16;

/// `Σ (x - mean) · y`.
#[inline(always)]
fn products(x: &[f32], y: &[f32], mean: f32) -> f64 {
    let mut lanes = [0.0f32; LANES];
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in x.iter().zip(y) {
        let both = x.iter().zip(y);
        lanes
            .iter_mut()
            .zip(both)
            .for_each(|(sum, (x, y))| *sum += (x - mean) * y);
    }
    let rest = x_rest.iter().zip(y_rest).map(|(x, y)| (x - mean) * y);
    lanes.into_iter().chain(rest).map(f64::from).sum()
}
