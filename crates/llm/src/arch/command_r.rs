//! Command R: both parts read one layer norm of the layer's input.

use rustorch_ir::ops::RopeLayout::Interleaved;

use super::Arch;
use super::base::Base;
use crate::LlmError;
use crate::spec::{
    AttentionSpec, DenseSpec, ExpertsSpec, FfnSpec, Gating, LayerSpec, ModelSpec, Need, NormedOver,
    Residual, Scales,
};

pub(super) const ALL: &[Arch] = &[COMMAND_R, COHERE2, COHERE2MOE];

fn parallel(
    b: &Base,
    layer: impl Fn(usize) -> Result<(AttentionSpec, FfnSpec), LlmError>,
) -> Result<ModelSpec, LlmError> {
    let mut model = b.model(|l| {
        let (attention, ffn) = layer(l)?;
        Ok(LayerSpec {
            residual: Residual::Parallel,
            ffn_norm: None,
            ..b.layer(l, attention, ffn)
        })
    })?;
    let scale = b.keys.number_or("logit_scale", 0.0);
    model.head.scale = if scale == 0.0 { 1.0 } else { scale };
    Ok(model)
}

/// Command R and R+, which has norms of queries and keys.
const COMMAND_R: Arch = Arch {
    name: "command-r",
    describe: |file| {
        let b = file.layer_norm(Interleaved)?;
        parallel(&b, |l| {
            let attention = match b.layers >= 64 {
                true => {
                    b.with_head_norms(b.attention(l)?, NormedOver::HeadOwnWeights, Need::Required)
                }
                false => b.attention(l)?,
            };
            Ok((attention, b.gated(l).into()))
        })
    },
};

/// Command R7B and A: windows with rotation, every fourth layer without both.
const COHERE2: Arch = Arch {
    name: "cohere2",
    describe: |file| {
        let b = file.layer_norm(Interleaved)?;
        parallel(&b, |l| {
            let attention = match b.is_windowed(l, 4, false) {
                true => AttentionSpec {
                    window: Some(b.own_window()),
                    ..b.attention(l)?
                },
                false => b.unrotated(l),
            };
            let dense = DenseSpec {
                scales: Scales::All,
                ..b.gated(l)
            };
            Ok((attention, dense.into()))
        })
    },
};

/// Command with experts: the mean of the chosen and the shared ones.
const COHERE2MOE: Arch = Arch {
    name: "cohere2moe",
    describe: |file| {
        let is_rms = file
            .keys
            .opt_f64("attention.layer_norm_rms_epsilon")
            .is_some_and(|eps| eps > 0.0);
        let b = match is_rms {
            true => file.rms(Interleaved)?,
            false => file.layer_norm(Interleaved)?,
        };
        let mut model = parallel(&b, |l| {
            let (is_windowed, is_leading) = (b.is_windowed(l, 4, true), b.is_leading(l));
            let attention = match is_windowed || is_leading {
                true => b.attention(l)?,
                false => b.unrotated(l),
            };
            let attention = AttentionSpec {
                window: is_windowed.then(|| b.own_window()),
                ..attention
            };
            let dense = DenseSpec {
                scales: Scales::All,
                ..b.gated(l)
            };
            if is_leading {
                return Ok((attention, dense.into()));
            }
            let width = b.expert_width(l, dense.width);
            let experts = ExpertsSpec {
                gating: b.gating(Gating::Sigmoid),
                normalised: b.keys.flag("expert_weights_norm"),
                scales: true,
                ..b.experts(l, width)
            };
            let own = b
                .keys
                .count_of("expert_shared_feed_forward_length", 0)
                .filter(|n| *n > 0);
            let shared = match b.shared_width(width) {
                0 => 0,
                all => own.unwrap_or(all),
            };
            let ffn = experts.beside(DenseSpec {
                scales: Scales::All,
                ..b.shared(shared)
            });
            let scale = if ffn.dense.is_some() { 0.5 } else { 1.0 };
            Ok((attention, FfnSpec { scale, ..ffn }))
        })?;
        model.head.scales = false;
        Ok(model)
    },
};
