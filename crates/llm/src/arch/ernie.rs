//! ERNIE 4.5.

use rustorch_ir::ops::RopeLayout::{Halves, Interleaved};

use super::Arch;
use super::llama::plain;
use crate::spec::{ExpertsSpec, Mixer, ModelSpec, Need};

pub(super) const ALL: &[Arch] = &[ERNIE4_5, ERNIE4_5_MOE, PADDLEOCR];

/// The bias of attention's last product, which a file may have, is not added.
fn without_out_bias(model: &mut ModelSpec) {
    for layer in &mut model.layers {
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.out_bias = false;
        }
    }
}

/// ERNIE 4.5 without experts.
const ERNIE4_5: Arch = Arch {
    name: "ernie4_5",
    describe: |file| {
        let mut model = plain(file, Interleaved)?;
        without_out_bias(&mut model);
        Ok(model)
    },
};

/// The text part of PaddleOCR-VL.
const PADDLEOCR: Arch = Arch {
    name: "paddleocr",
    describe: |file| plain(file, Halves),
};

/// ERNIE 4.5 with experts in every n-th layer.
const ERNIE4_5_MOE: Arch = Arch {
    name: "ernie4_5-moe",
    describe: |file| {
        let b = file.rms(Interleaved)?;
        let step = b.keys.period("interleave_moe_layer_step");
        let mut model = b.model(|l| {
            let has_experts = !b.is_leading(l) && (l + 1) % step == 0;
            let ffn = match has_experts {
                true => {
                    let shared = b.keys.count_of("expert_shared_feed_forward_length", 0);
                    let experts = ExpertsSpec {
                        choice_bias: Need::Optional,
                        ..b.experts(l, b.expert_width(l, 0))
                    };
                    experts.beside(b.shared(shared.unwrap_or(0)))
                }
                false => b.gated(l).into(),
            };
            Ok(b.layer(l, b.attention(l)?, ffn))
        })?;
        without_out_bias(&mut model);
        Ok(model)
    },
};
