//! Products of the same few rows in one loop, with what is done to their results: a token's
//! decoding is so many short loops that each one less shows.

use rustorch_ir::{Op, Signature};
use rustorch_runtime::merge::{self, CachedAttention, Merge};
use rustorch_runtime::{DeviceError, KernelTable, Place, Step};
use smallvec::SmallVec;

use crate::kernel::Misuse;
use crate::kernels::{SCRATCH, weight};
use crate::launch::Launch;
use crate::pool::Pool;
use crate::program::Memory;
use crate::qmatmul::MAX_FEW;
use crate::qmatmul::few::{self, Product};
use crate::qmatmul::level::Level;

/// What the CPU launches together.
pub(crate) struct Rules<'a>(pub(crate) &'a KernelTable<Launch>);

impl Merge for Rules<'_> {
    fn product(&self, step: &Step) -> bool {
        let inputs: SmallVec<[_; 4]> = step.inputs.iter().map(|place| &place.ty).collect();
        let signature = Signature {
            op: &step.last().op,
            inputs: &inputs,
            output: step.output().ty,
        };
        has_few_rows(step)
            && self.0.find(&signature).is_some()
            && step.output().ty.shape.elements() > 0
            && step.inputs.iter().all(|place| place.layout.is_contiguous())
    }

    fn norms(&self) -> bool {
        // A norm of few rows is no loop: the caller does it.
        false
    }

    fn joins(&self, _: [&Step; 2]) -> bool {
        true
    }

    fn attends(&self, _: &CachedAttention) -> bool {
        false
    }
}

/// How many steps from `at` on are a window: more than one where there are products of few rows.
pub(crate) fn together(steps: &[Step], at: usize) -> usize {
    let count = merge::up_to_norm(steps, at);
    let is_product = |step: &Step| matches!(step.last().op, Op::Linear(_)) && has_few_rows(step);
    match steps[at..at + count].iter().any(is_product) {
        true => count,
        false => 1,
    }
}

fn has_few_rows(step: &Step) -> bool {
    let shape = step.output().ty.shape;
    let width = shape.last().copied().unwrap_or(1);
    shape.elements() <= MAX_FEW * width
}

/// The products of a launch.
pub(crate) struct Merged {
    /// `[t, k]`.
    x: Place,
    each: SmallVec<[Weights; 3]>,
    then: Then,
}

struct Weights {
    w: Place,
    bias: Option<Place>,
    y: Place,
}

enum Then {
    Nothing,
    Add { other: Place, sum: Place },
    SwiGlu { gated: Place },
}

impl Merged {
    pub(crate) fn new(products: &merge::Products) -> Self {
        let weights = |product: &merge::Product| Weights {
            w: product.w.clone(),
            bias: product.bias.cloned(),
            y: product.y.clone(),
        };
        Self {
            x: products.x.clone(),
            each: products.each.iter().map(weights).collect(),
            then: match products.then {
                merge::Then::Nothing => Then::Nothing,
                merge::Then::Add { other, sum } => Then::Add {
                    other: other.clone(),
                    sum: sum.clone(),
                },
                merge::Then::SwiGlu { gated } => Then::SwiGlu {
                    gated: gated.clone(),
                },
            },
        }
    }

    /// Computes all of them.
    ///
    /// # Errors
    /// Operands are not in host memory; weights are not as their type wants them.
    pub(crate) fn run(
        &self,
        pool: &Pool,
        memory: &Memory,
    ) -> Result<Result<(), Misuse>, DeviceError> {
        let mut results: SmallVec<[_; 3]> = SmallVec::new();
        let mut weights: SmallVec<[_; 3]> = SmallVec::new();
        for Weights { w, bias, y } in &self.each {
            let bias = bias.as_ref().map(|bias| memory.view(bias)).transpose()?;
            weights.push((memory.view(w)?, bias));
            results.push(memory.target(y)?);
        }
        let mut products: SmallVec<[Product; 3]> = SmallVec::new();
        for ((w, bias), y) in weights.iter().zip(&mut results) {
            let w = match weight(w) {
                Ok(w) => w,
                Err(misuse) => return Ok(Err(misuse)),
            };
            let bias = bias.map(|bias| bias.data());
            products.push(Product {
                w,
                bias,
                y: y.data(),
            });
        }
        let mut target = match &self.then {
            Then::Nothing => None,
            Then::Add { sum: place, .. } | Then::SwiGlu { gated: place } => {
                Some(memory.target(place)?)
            }
        };
        let then = match (&self.then, &mut target) {
            (Then::Add { other, .. }, Some(sum)) => few::Then::Add {
                other: memory.view(other)?.data(),
                sum: sum.data(),
            },
            (Then::SwiGlu { .. }, Some(gated)) => few::Then::SwiGlu {
                gated: gated.data(),
            },
            _ => few::Then::Nothing,
        };
        let x = memory.view(&self.x)?;
        let t = x.ty.shape.elements() / x.shape().last().copied().unwrap_or(1).max(1);
        SCRATCH.with_borrow_mut(|scratch| {
            let rows = (x.data(), t);
            few::multiply(pool, Level::current(), rows, &mut products, then, scratch);
        });
        Ok(Ok(()))
    }
}
