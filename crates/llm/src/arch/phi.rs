//! Phi.

use rustorch_ir::ops::RopeLayout::Halves;

use super::Arch;
use crate::spec::{Activation, DenseSpec, Gate, LayerSpec, Residual};

pub(super) const ALL: &[Arch] = &[PHI2, PHI3, PHIMOE];

/// Phi 1 to 2: both parts read one norm of the layer's input.
const PHI2: Arch = Arch {
    name: "phi2",
    describe: |file| {
        let b = file.layer_norm(Halves)?;
        b.model(|l| {
            Ok(LayerSpec {
                residual: Residual::Parallel,
                ffn_norm: None,
                ..b.layer(
                    l,
                    b.attention(l)?,
                    b.ungated(l, Activation::GeluTanh).into(),
                )
            })
        })
    },
};

/// Phi 3 and 4: the gate is the first half of one product.
const PHI3: Arch = Arch {
    name: "phi3",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let dense = DenseSpec {
                gate: Gate::Fused,
                ..b.gated(l)
            };
            Ok(b.layer(l, b.attention(l)?, dense.into()))
        })
    },
};

/// Phi 3.5 with experts.
const PHIMOE: Arch = Arch {
    name: "phimoe",
    describe: |file| {
        let b = file.rms(Halves)?;
        b.model(|l| {
            let width = b.keys.size_of("feed_forward_length", l);
            Ok(b.layer(l, b.attention(l)?, b.experts(l, width).into()))
        })
    },
};
