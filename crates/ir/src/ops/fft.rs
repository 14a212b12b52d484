use smallvec::smallvec;

use super::*;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Shape, Signature};

/// Kinds of discrete Fourier transforms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FftKind {
    /// `y[k] = Σ x[j]·e^(−2πi·jk/n)` of complex numbers.
    Forward,
    /// `y[k] = Σ x[j]·e^(+2πi·jk/n)` of complex numbers.
    Inverse,
    /// The first `n/2 + 1` results of [`FftKind::Forward`] of real numbers, which determine the
    /// others.
    RealToComplex,
    /// The `n` real results of [`FftKind::Inverse`], from the `n/2 + 1` numbers that determine it.
    ComplexToReal {
        /// Number of the results.
        n: usize,
    },
}

/// A discrete Fourier transform along a dimension, not normalised.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fft {
    /// The dimension.
    pub dim: usize,
    /// Kind of the transform.
    pub kind: FftKind,
}

impl OpDef for Fft {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::ComplexMath)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        let elements = s.types().map(|ty| ty.shape.elements()).max().unwrap_or(0);
        let size = s.types().map(|ty| ty.shape[self.dim]).max().unwrap_or(1);
        elements.saturating_mul(4 * size.max(2).ilog2() as usize)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_dim(Self::NAME, x, self.dim)?;
        let size = x.shape[self.dim];
        let wrong = |expected: &str| OpError::new(Self::NAME, expected, x);
        let complex =
            || (x.dtype.is_complex().then_some(x.dtype)).ok_or_else(|| wrong("complex numbers"));
        let (n, results, dtype) = match self.kind {
            FftKind::Forward | FftKind::Inverse => (size, size, complex()?),
            FftKind::RealToComplex => {
                let expected = "numbers of f32 or f64";
                let dtype = x.dtype.complex().ok_or_else(|| wrong(expected))?;
                (size, size / 2 + 1, dtype)
            }
            FftKind::ComplexToReal { n } => {
                let expected = format_args!("{} complex numbers", n / 2 + 1);
                require(Self::NAME, size == n / 2 + 1, expected, x)?;
                (n, n, complex()?.real())
            }
        };
        require(Self::NAME, n > 0, "at least one number to transform", x)?;
        let shape = x.shape.clone().with_dim(self.dim, results);
        Ok(smallvec![TensorType::new(shape, dtype)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let dim = self.dim;
        let size = g.ty(node.inputs[0]).shape[dim];
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, _| match self.kind {
            FftKind::Forward => g.push(
                Self {
                    dim,
                    kind: FftKind::Inverse,
                },
                &[ct],
            ),
            FftKind::Inverse => g.push(
                Self {
                    dim,
                    kind: FftKind::Forward,
                },
                &[ct],
            ),
            // The numbers that were left out have no gradient; real ones have the real part.
            FftKind::RealToComplex => {
                let ct = g.pad(ct, dim, 0, size - (size / 2 + 1))?;
                g.push(
                    Self {
                        dim,
                        kind: FftKind::Inverse,
                    },
                    &[ct],
                )
            }
            // Each number stands for itself and its conjugate, but for the first and, of an even n, the last.
            FftKind::ComplexToReal { n } => {
                let kind = FftKind::RealToComplex;
                let ct = g.push(Self { dim, kind }, &[ct])?;
                let doubled = size - 1 - usize::from(n % 2 == 0);
                let alone = g.full([size - doubled].into(), 1.0, DType::F64)?;
                let twice = g.full([doubled].into(), 2.0, DType::F64)?;
                let first = g.slice(alone, 0, 0, 1)?;
                let last = g.slice(alone, 0, 1, size - doubled)?;
                let counts = g.push(Concat { dim: 0 }, &[first, twice, last])?;
                let mut along: Shape = g.ty(ct).shape.iter().map(|_| 1).collect();
                along.to_mut()[dim] = size;
                let counts = g.reshape(counts, along)?;
                let counts = g.cast(counts, g.ty(ct).dtype)?;
                g.mul(ct, counts)
            }
        })
    }
}

impl Named for Fft {
    const NAME: &'static str = "fft";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let mut push = |kind, dim, x| cases.push(Case::new(Self { dim, kind }, [x]));
        for dtype in DType::COMPLEX {
            let parts = |size: usize, dtype| CaseOperand::new([3, size, 2], dtype);
            let sizes = [1, 2, 3, 8, 12, 13, 30, 64, 100, 210];
            for n in sizes.into_iter().chain((8..=12).map(|n| 1 << n)) {
                push(FftKind::Forward, 1, parts(n, dtype));
                push(FftKind::Inverse, 1, parts(n, dtype));
                push(FftKind::RealToComplex, 1, parts(n, dtype.real()));
                push(FftKind::ComplexToReal { n }, 1, parts(n / 2 + 1, dtype));
            }
            for arrange in ARRANGEMENTS {
                for dim in [0, 2] {
                    let x = |dtype| CaseOperand::new([4, 2, 9], dtype).arrange(arrange);
                    push(FftKind::Forward, dim, x(dtype));
                    push(FftKind::RealToComplex, dim, x(dtype.real()));
                }
            }
            // Lines without gaps, of lengths that GPUs have kernels for.
            for n in (8..=11).map(|n| 1 << n) {
                push(FftKind::Forward, 1, CaseOperand::new([3, n], dtype));
                push(FftKind::Inverse, 1, CaseOperand::new([3, n], dtype));
                let pairs = CaseOperand::new([3, 2 * n], dtype.real());
                push(FftKind::RealToComplex, 1, pairs);
            }
            push(FftKind::Forward, 1, CaseOperand::new([0, 4], dtype));
            // More than local memory of GPUs holds.
            let n = 2400;
            push(FftKind::Inverse, 0, CaseOperand::new([n, 2], dtype));
            push(
                FftKind::RealToComplex,
                1,
                CaseOperand::new([1, n], dtype.real()),
            );
            push(
                FftKind::ComplexToReal { n },
                1,
                CaseOperand::new([1, n / 2 + 1], dtype),
            );
        }
        cases
    }
}
