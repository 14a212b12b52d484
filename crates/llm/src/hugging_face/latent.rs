//! Keys of latent attention.

use super::config::Config;
use super::rope::{Draft, ORIGINAL, Rope};
use crate::LlmError;

/// Mistral 4: latent attention, and the growth of scores beyond the context of the first training.
pub(super) fn mistral4(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    latent(config, draft)?;
    let rope = Rope::new(config, "full_attention");
    if let Some(growth) = rope.number("llama_4_scaling_beta")? {
        let original = rope.positive(ORIGINAL, None)?;
        draft.number("attention.temperature_scale", growth);
        draft.size("attention.temperature_length", original as u32);
    }
    Ok(())
}

/// DeepSeek: widths of latent attention, and the growth of scores with YaRN's factor.
pub(super) fn latent(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let size = |key| config.size(&[key]);
    let (plain, rotated) = (size("qk_nope_head_dim")?, size("qk_rope_head_dim")?);
    let (rank, values) = (size("kv_lora_rank")?, size("v_head_dim")?);
    draft.plain = plain as usize;
    for (key, size) in [
        ("attention.head_count_kv", 1),
        ("attention.kv_lora_rank", rank),
        ("attention.key_length", rank.saturating_add(rotated)),
        ("attention.value_length", rank),
        ("attention.key_length_mla", plain.saturating_add(rotated)),
        ("attention.value_length_mla", values),
    ] {
        draft.size(key, size);
    }
    let rope = Rope::new(config, "full_attention");
    if rope.kind() != "yarn" {
        return Ok(());
    }
    let (one, all) = (rope.number("mscale")?, rope.number("mscale_all_dim")?);
    match all.filter(|all| *all != 0.0 && one.is_none_or(|one| one == *all)) {
        Some(all) => {
            draft.number("rope.scaling.yarn_log_multiplier", 0.1 * all);
            Ok(())
        }
        None => {
            let problem =
                "expected an mscale_all_dim that is mscale, and not 0; GGUF has no key for another";
            Err(config.wrong("rope_scaling", problem))
        }
    }
}

/// MiniCPM 3: widths of latent attention, whose keys and values are one matrix.
pub(super) fn minicpm3(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let size = |key| config.size(&[key]);
    let (plain, rotated) = (size("qk_nope_head_dim")?, size("qk_rope_head_dim")?);
    let own = draft.width / draft.heads;
    let values = config.opt_size(&["v_head_dim"])?.unwrap_or(own as u32);
    draft.size("attention.kv_lora_rank", size("kv_lora_rank")?);
    draft.size("attention.key_length", plain.saturating_add(rotated));
    draft.size("attention.value_length", values);
    Ok(())
}
