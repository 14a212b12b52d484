//! Reparametrised weights: `torch.nn.utils.parametrizations`.

use rustorch_macros::track_calls;
use rustorch_tensor::replay::is_recording;
use rustorch_tensor::{RusTorchResult, Tensor, eval_all, no_grad};

use super::{
    Buffer, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Embedding,
    Forward, Leaf, LeafMut, Linear, Module, Training, Visit, cloned, join_names, parameter, share,
};
use crate::error::require;

/// A layer whose weight can be replaced.
pub trait Weighted: Forward + Clone {
    /// The weight's dimension of outputs.
    const OUTPUTS: usize;

    /// The weight.
    fn weight(&self) -> &Tensor;

    /// The layer with another weight.
    fn with_weight(&self, weight: Tensor) -> Self;
}

macro_rules! weighted {
    ($($Layer:ident = $outputs:literal;)*) => {
        $(impl Weighted for $Layer {
            const OUTPUTS: usize = $outputs;

            fn weight(&self) -> &Tensor {
                &self.weight
            }

            fn with_weight(&self, weight: Tensor) -> Self {
                Self { weight, ..share(self) }
            }
        })*
    };
}

weighted! {
    Linear = 0;
    Embedding = 0;
    Conv1d = 0;
    Conv2d = 0;
    Conv3d = 0;
    ConvTranspose1d = 1;
    ConvTranspose2d = 1;
    ConvTranspose3d = 1;
}

/// Shows the leaves of a layer but its weight.
fn visit_others(layer: &impl Module, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
    let weight = join_names(name, "weight");
    layer.visit(name, &mut |leaf_name, leaf| {
        if leaf_name != weight {
            visitor(leaf_name, leaf);
        }
    });
}

/// [`visit_others`] of leaves that may be changed.
fn visit_others_mut(layer: &mut impl Module, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
    let weight = join_names(name, "weight");
    layer.visit_mut(name, &mut |leaf_name, leaf| {
        if leaf_name != weight {
            visitor(leaf_name, leaf);
        }
    });
}

/// A layer whose weight is `g · v / ‖v‖`, with a length `g` for each index of a dimension
/// ([Salimans and Kingma](https://arxiv.org/abs/1602.07868)). Its parameters are
/// `parametrizations.weight.original0` and `…1`.
pub struct WeightNorm<L> {
    layer: L,
    g: Tensor,
    v: Tensor,
    dim: usize,
}

impl<L: Weighted> Clone for WeightNorm<L> {
    #[track_caller]
    fn clone(&self) -> Self {
        cloned(|| Self {
            layer: self.layer.clone(),
            g: self.g.clone(),
            v: self.v.clone(),
            dim: self.dim,
        })
    }
}

/// Wraps a layer in [`WeightNorm`] and keeps its weight.
///
/// # Errors
/// Fails if the dimension does not exist.
#[track_calls]
pub fn weight_norm<L: Weighted>(layer: L, dim: usize) -> RusTorchResult<WeightNorm<L>> {
    let v = layer.weight().detach();
    require(
        "weight_norm",
        dim < v.rank(),
        "a dimension of the weight",
        dim,
    )?;
    let g = length(&v, dim)?;
    Ok(WeightNorm {
        g: parameter(g)?,
        v: parameter(v)?,
        layer,
        dim,
    })
}

/// Norms of the slices along a dimension.
fn length(v: &Tensor, dim: usize) -> RusTorchResult<Tensor> {
    let others: Vec<usize> = (0..v.rank()).filter(|&d| d != dim).collect();
    v.norm(2.0, &others[..], true)
}

impl<L: Weighted> Visit for WeightNorm<L> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        visit_others(&self.layer, name, visitor);
        let part = |part| join_names(name, part);
        self.g
            .visit(&part("parametrizations.weight.original0"), visitor);
        self.v
            .visit(&part("parametrizations.weight.original1"), visitor);
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        visit_others_mut(&mut self.layer, name, visitor);
        let part = |part| join_names(name, part);
        self.g
            .visit_mut(&part("parametrizations.weight.original0"), visitor);
        self.v
            .visit_mut(&part("parametrizations.weight.original1"), visitor);
    }
}

impl<L: Weighted> Module for WeightNorm<L> {}

#[track_calls(WeightNorm)]
impl<L: Weighted> Forward for WeightNorm<L> {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let weight = self.v.mul(&self.g.div(&length(&self.v, self.dim)?)?)?;
        self.layer.with_weight(weight).forward(x)
    }
}

/// A layer whose weight, as a matrix, is divided by its largest singular value. Each `forward` in
/// training makes one power iteration ([Miyato et al.](https://arxiv.org/abs/1802.05957)).
pub struct SpectralNorm<L> {
    layer: L,
    original: Tensor,
    u: Buffer,
    v: Buffer,
    training: Training,
    n_power_iterations: usize,
    eps: f64,
}

impl<L: Weighted> Clone for SpectralNorm<L> {
    #[track_caller]
    fn clone(&self) -> Self {
        cloned(|| Self {
            layer: self.layer.clone(),
            original: self.original.clone(),
            u: self.u.clone(),
            v: self.v.clone(),
            ..*self
        })
    }
}

/// Wraps a layer in [`SpectralNorm`], keeps its weight, and makes 15 iterations.
///
/// # Errors
/// Fails for a weight of fewer than 2 dimensions.
#[track_calls]
pub fn spectral_norm<L: Weighted>(
    layer: L,
    n_power_iterations: usize,
    eps: f64,
) -> RusTorchResult<SpectralNorm<L>> {
    const FIRST: usize = 15;
    let original = parameter(layer.weight().detach())?;
    require(
        "spectral_norm",
        original.rank() >= 2,
        "a weight of 2 dimensions or more",
        original.rank(),
    )?;
    let matrix = matrix::<L>(&original.detach())?;
    let unit = |size| Tensor::randn(size, original.dtype())?.normalize(2.0, 0, eps);
    let (u, v) = (unit(matrix.size(0)?)?, unit(matrix.size(1)?)?);
    let norm = SpectralNorm {
        layer,
        original,
        u: Buffer::new(u),
        v: Buffer::new(v),
        training: Training::default(),
        n_power_iterations,
        eps,
    };
    norm.iterate(&matrix, FIRST)?;
    Ok(norm)
}

/// The weight as a matrix whose rows are outputs.
fn matrix<L: Weighted>(weight: &Tensor) -> RusTorchResult<Tensor> {
    let first = if L::OUTPUTS == 0 {
        weight.clone()
    } else {
        weight.transpose(0, L::OUTPUTS)?
    };
    first.flatten(1, -1)
}

impl<L: Weighted> SpectralNorm<L> {
    /// Makes a power iteration, in the vectors' memory.
    fn iterate(&self, matrix: &Tensor, times: usize) -> RusTorchResult<()> {
        no_grad(|| {
            let (mut u, mut v) = (self.u.get(), self.v.get());
            for _ in 0..times {
                u = matrix.matmul(&v)?.normalize(2.0, 0, self.eps)?;
                v = matrix.t()?.matmul(&u)?.normalize(2.0, 0, self.eps)?;
            }
            let mut written = [self.u.get(), self.v.get()];
            written[0].copy_(&u)?;
            written[1].copy_(&v)?;
            if !is_recording() {
                eval_all(&[&written[0], &written[1]])?;
            }
            let [u, v] = written;
            self.u.set(u);
            self.v.set(v);
            Ok(())
        })
    }
}

impl<L: Weighted> Visit for SpectralNorm<L> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        visit_others(&self.layer, name, visitor);
        let part = |part| join_names(name, part);
        self.original
            .visit(&part("parametrizations.weight.original"), visitor);
        self.u.visit(&part("parametrizations.weight.0._u"), visitor);
        self.v.visit(&part("parametrizations.weight.0._v"), visitor);
        self.training.visit(name, visitor);
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        visit_others_mut(&mut self.layer, name, visitor);
        let part = |part| join_names(name, part);
        self.original
            .visit_mut(&part("parametrizations.weight.original"), visitor);
        self.u
            .visit_mut(&part("parametrizations.weight.0._u"), visitor);
        self.v
            .visit_mut(&part("parametrizations.weight.0._v"), visitor);
        self.training.visit_mut(name, visitor);
    }
}

impl<L: Weighted> Module for SpectralNorm<L> {}

#[track_calls(SpectralNorm)]
impl<L: Weighted> Forward for SpectralNorm<L> {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let matrix = matrix::<L>(&self.original)?;
        if self.training.is_on() {
            self.iterate(&matrix.detach(), self.n_power_iterations)?;
        }
        // These are copies, since the vectors are written over later.
        let (u, v) = (self.u.get().mul(1.0)?, self.v.get().mul(1.0)?);
        let sigma = u.mul(&matrix.matmul(&v)?)?.sum(None, false)?;
        self.layer
            .with_weight(self.original.div(&sigma)?)
            .forward(x)
    }
}
