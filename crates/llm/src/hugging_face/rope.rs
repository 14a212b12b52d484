//! Keys that need more than a table: rotation, windows, scales.

use std::f64::consts::TAU;

use rustorch_gguf::{Metadata, Value};
use serde_json::{Map, Value as Json};

use crate::LlmError;

use super::config::Config;

/// The key of the context that a model was trained with before its rotation was scaled.
pub(super) const ORIGINAL: &str = "original_max_position_embeddings";

/// The most features of a head that are rotated: tables have an entry for two of them.
const MAX_DIMS: usize = 1 << 16;

/// Keys and tensors in the making.
pub(super) struct Draft {
    pub(super) metadata: Metadata,
    pub(super) architecture: &'static str,
    pub(super) layers: usize,
    pub(super) width: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_width: usize,
    /// Features of a head's keys that are not rotated, if keys and values are one product of a vector.
    pub(super) plain: usize,
    /// Divisors of rotary frequencies, by the tensor's name.
    pub(super) factors: Vec<(&'static str, Vec<f32>)>,
}

impl Draft {
    /// Sets a key of the architecture.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>) {
        let key = format!("{}.{key}", self.architecture);
        self.metadata.insert(key, value);
    }

    /// Sets a size.
    pub(super) fn size(&mut self, key: &str, size: u32) {
        self.set(key, size);
    }

    /// Has experts chosen by sigmoids of their scores.
    pub(super) fn set_sigmoid_gating(&mut self) {
        self.size("expert_gating_func", 2);
    }

    /// Sets a number.
    pub(super) fn number(&mut self, key: &str, number: f64) {
        self.set(key, number as f32);
    }
}

/// The parameters of one rotation, in either of the two forms that `config.json` has had.
pub(super) struct Rope<'a> {
    config: &'a Config,
    own: Option<&'a Map<String, Json>>,
}

impl<'a> Rope<'a> {
    /// The rotation of `kind` of layers, or of all.
    pub(super) fn new(config: &'a Config, kind: &str) -> Self {
        let both = ["rope_parameters", "rope_scaling"];
        let all = both.iter().find_map(|key| config.object(key));
        let own = all.map(|all| all.get(kind).and_then(Json::as_object).unwrap_or(all));
        Self { config, own }
    }

    /// A number of the rotation, or of the whole model.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, LlmError> {
        match self
            .own
            .and_then(|own| own.get(key))
            .filter(|v| !v.is_null())
        {
            None => self.config.opt_number(&[key]),
            Some(value) => {
                let wrong = || {
                    let problem = format!("expected a number for {key}, got {value}");
                    self.config.wrong("rope_scaling", problem)
                };
                value.as_f64().ok_or_else(wrong).map(Some)
            }
        }
    }

    /// A number that is more than 0.
    pub(super) fn positive(&self, key: &str, default: Option<f64>) -> Result<f64, LlmError> {
        let number = self.number(key)?.or(default);
        let number = number.filter(|x| *x > 0.0 && x.is_finite());
        number.ok_or_else(|| {
            let problem = format!("expected a number above 0 for {key}");
            self.config.wrong("rope_scaling", problem)
        })
    }

    /// The name of the scaling.
    pub(super) fn kind(&self) -> &'a str {
        let own = self.own;
        let kind = own.and_then(|own| own.get("rope_type").or(own.get("type")));
        kind.and_then(Json::as_str).unwrap_or("default")
    }

    /// A list of numbers.
    fn list(&self, key: &str) -> Option<Vec<f32>> {
        let list = self.own?.get(key)?.as_array()?;
        let numbers = list.iter().map(|x| x.as_f64().map(|x| x as f32));
        numbers.collect()
    }
}

/// Sets the keys of the rotation.
///
/// # Errors
/// Fails if a number is missing or invalid, or for another kind of scaling.
pub(super) fn rotation(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let rope = Rope::new(config, "full_attention");
    let partial = ["partial_rotary_factor", "rotary_pct", "rope_pct"];
    let mut share = None;
    for key in partial {
        share = share.or(rope.number(key)?);
    }
    let share = share.unwrap_or(1.0);
    if !(share > 0.0 && share <= 1.0) {
        return Err(config.wrong(partial[0], format!("expected 0 to 1, got {share}")));
    }
    let share = (draft.head_width as f64 * share) as usize;
    let dims = config.opt_size(&["rotary_dim", "qk_rope_head_dim"])?;
    let dims = dims.map_or(share, |dims| dims as usize);
    check_dims(config, dims)?;
    if let Some(sections) = rope.list("mrope_section") {
        let mut sections: Vec<i32> = sections.iter().map(|n| *n as i32).collect();
        sections.resize(4, 0);
        draft.set("rope.dimension_sections", sections);
    }
    draft.size("rope.dimension_count", dims as u32);
    let base = match rope.number("rope_theta")? {
        None => rope.number("rotary_emb_base")?,
        theta => theta,
    };
    if let Some(base) = base {
        draft.number("rope.freq_base", base);
    }
    let local = Rope::new(config, "sliding_attention");
    let local = match config.opt_number(&["rope_local_base_freq"])? {
        None if local
            .own
            .is_some_and(|own| !std::ptr::eq(own, rope.own.unwrap_or(own))) =>
        {
            local.number("rope_theta")?
        }
        base => base,
    };
    if let Some(base) = local {
        draft.number("rope.freq_base_swa", base);
    }
    scaling(&rope, draft, dims, base.unwrap_or(10_000.0))
}

/// Checks the features that are rotated, for which there may be tables.
fn check_dims(config: &Config, dims: usize) -> Result<(), LlmError> {
    match dims <= MAX_DIMS {
        true => Ok(()),
        false => {
            let problem = format!("expected at most {MAX_DIMS} rotated features, got {dims}");
            Err(config.wrong("head_dim", problem))
        }
    }
}

/// Sets the keys of the rotation's scaling.
fn scaling(rope: &Rope, draft: &mut Draft, dims: usize, base: f64) -> Result<(), LlmError> {
    let trained = rope.config.opt_number(&["max_position_embeddings"])?;
    match rope.kind() {
        // Nothing is scaled in the context that the model was trained with.
        "default" | "dynamic" | "mrope" => Ok(()),
        "proportional" if draft.architecture == "gemma4" => Ok(()),
        "linear" => {
            draft.set("rope.scaling.type", "linear");
            draft.number("rope.scaling.factor", rope.positive("factor", None)?);
            Ok(())
        }
        "yarn" => {
            let factor = rope.positive("factor", None)?;
            let original = rope.positive(ORIGINAL, trained)?;
            draft.set("rope.scaling.type", "yarn");
            draft.number("rope.scaling.factor", factor);
            draft.size("rope.scaling.original_context_length", original as u32);
            for key in ["beta_fast", "beta_slow"] {
                if let Some(beta) = rope.number(key)? {
                    draft.number(&format!("rope.scaling.yarn_{key}"), beta);
                }
            }
            // The product of this and of the usual magnitude is the one that is asked for.
            let usual = magnitude(factor, 1.0);
            let ratio = match (rope.number("mscale")?, rope.number("mscale_all_dim")?) {
                (Some(one), Some(all)) => Some(magnitude(factor, one) / magnitude(factor, all)),
                _ => None,
            };
            let asked = rope.number("attention_factor")?.or(ratio);
            // These have keys of their own for it.
            let is_apart = matches!(draft.architecture, "mistral3" | "mistral4" | "deepseek2");
            if let Some(asked) = asked.filter(|_| !is_apart) {
                draft.number("rope.scaling.attn_factor", asked / usual);
            }
            Ok(())
        }
        "llama3" => {
            let factor = rope.positive("factor", Some(8.0))?;
            let low = rope.positive("low_freq_factor", Some(1.0))?;
            let high = rope.positive("high_freq_factor", Some(4.0))?;
            let original = rope.positive(ORIGINAL, Some(8192.0))?;
            if high <= low {
                let problem = format!("expected a high_freq_factor above {low}, got {high}");
                return Err(rope.config.wrong("rope_scaling", problem));
            }
            let factors = (0..dims / 2).map(|i| {
                let turns = original / (TAU * base.powf(2.0 * i as f64 / dims as f64));
                let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 / ((1.0 - share) / factor + share)) as f32
            });
            draft.factors.push(("rope_freqs.weight", factors.collect()));
            Ok(())
        }
        "su" | "longrope" => {
            let original = rope.positive(ORIGINAL, trained)?;
            let longer = trained.unwrap_or(original) / original;
            draft.set("rope.scaling.type", "longrope");
            draft.size("rope.scaling.original_context_length", original as u32);
            let usual = match longer > 1.0 {
                true => (1.0 + longer.ln() / original.ln()).sqrt(),
                false => 1.0,
            };
            let attention = rope.number("attention_factor")?.unwrap_or(usual);
            draft.number("rope.scaling.attn_factor", attention);
            for (key, name) in [
                ("long_factor", "rope_factors_long.weight"),
                ("short_factor", "rope_factors_short.weight"),
            ] {
                let factors = rope.list(key).filter(|list| list.len() == dims / 2);
                let wrong = || {
                    let problem = format!("expected {} numbers for {key}", dims / 2);
                    rope.config.wrong("rope_scaling", problem)
                };
                draft.factors.push((name, factors.ok_or_else(wrong)?));
            }
            Ok(())
        }
        other => {
            let problem = format!(
                "{other:?} is not supported; default, linear, yarn, llama3, longrope and dynamic are"
            );
            Err(rope.config.wrong("rope_scaling", problem))
        }
    }
}

/// YaRN's magnitude of queries and keys.
fn magnitude(factor: f64, multiplier: f64) -> f64 {
    1.0 + 0.1 * multiplier * factor.ln().max(0.0)
}

/// Mistral 3: the magnitude's multiplier, and the growth of scores with the position.
pub(super) fn mistral3(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let rope = Rope::new(config, "full_attention");
    for (from, to) in [
        ("mscale_all_dim", "rope.scaling.yarn_log_multiplier"),
        ("llama_4_scaling_beta", "attention.temperature_scale"),
    ] {
        if let Some(number) = rope.number(from)? {
            draft.number(to, number);
        }
    }
    Ok(())
}

/// Shared experts are one that is as wide as all of them.
pub(super) fn shared_experts(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let width = config.size(&["moe_intermediate_size"])?;
    let count = config.opt_size(&["moe_num_shared_experts", "num_shared_experts"])?;
    let count = count.unwrap_or(0);
    let all = width.saturating_mul(count);
    draft.size("expert_shared_feed_forward_length", all);
    Ok(())
}

/// Phi 3: no window is one of no tokens; the original context is always there.
pub(super) fn phi3(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let window = config.opt_size(&["sliding_window"])?.unwrap_or(0);
    draft.size("attention.sliding_window", window);
    let rope = Rope::new(config, "full_attention");
    let trained = config.opt_number(&["max_position_embeddings"])?;
    let original = rope.positive(ORIGINAL, trained)?;
    draft.size("rope.scaling.original_context_length", original as u32);
    Ok(())
}

/// Fails unless scores are scaled as the architecture does it: by the width of a head, or, in a model of
/// `largest` layers, by the width over the heads.
pub(super) fn score_scale(
    config: &Config,
    draft: &mut Draft,
    largest: usize,
) -> Result<(), LlmError> {
    const KEY: &str = "query_pre_attn_scalar";
    let own = match draft.layers == largest {
        true => draft.width / draft.heads,
        false => draft.head_width,
    };
    match config.opt_number(&[KEY])? {
        Some(scalar) if scalar != own as f64 => {
            let problem = format!("expected {own}, got {scalar}; GGUF has no key for another");
            Err(config.wrong(KEY, problem))
        }
        _ => Ok(()),
    }
}

/// For each layer: does it have a window? `None` if `config.json` does not list that.
fn windows(config: &Config) -> Option<Vec<bool>> {
    let (_, types) = config.get(&["layer_types"])?;
    let types = types.as_array()?.iter();
    Some(
        types
            .map(|kind| kind.as_str() == Some("sliding_attention"))
            .collect(),
    )
}

/// Gemma 4: layers without a window have heads of their own width and number. Some of their frequencies are 0, by huge
/// divisors.
pub(super) fn gemma4(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    const HUGE: f32 = 1e30;
    let windows =
        windows(config).unwrap_or_else(|| (1..=draft.layers).map(|l| l % 6 != 0).collect());
    let without = windows.iter().position(|is_windowed| !is_windowed);
    let other = |whole: &str, own: &str| -> Result<Option<u32>, LlmError> {
        let by_layer = config.object("per_layer_config");
        let by_layer = by_layer.and_then(|all| all.get(&without?.to_string())?.get(own)?.as_u64());
        let own = by_layer.and_then(|number| u32::try_from(number).ok());
        Ok(config.opt_size(&[whole])?.or(own))
    };
    let (narrow, kv_heads) = (draft.head_width as u32, draft.kv_heads as u32);
    let wide = other("global_head_dim", "head_dim")?.unwrap_or(512);
    check_dims(config, wide as usize)?;
    let fewer = other("num_global_key_value_heads", "num_key_value_heads")?;
    let fewer = fewer.filter(|_| config.flag("attention_k_eq_v") != Some(false));
    for (part, width) in [("length", wide), ("length_swa", narrow)] {
        draft.size(&format!("attention.key_{part}"), width);
        draft.size(&format!("attention.value_{part}"), width);
    }
    draft.size("rope.dimension_count", wide);
    draft.size("rope.dimension_count_swa", narrow);
    let heads = windows.iter().map(|is_windowed| match is_windowed {
        true => kv_heads as i32,
        false => fewer.unwrap_or(kv_heads) as i32,
    });
    draft.set("attention.head_count_kv", heads.collect::<Vec<i32>>());
    let shared = config.opt_size(&["num_kv_shared_layers"])?.unwrap_or(0) as usize;
    if config.flag("use_double_wide_mlp") == Some(true) {
        let width = config.size(&["intermediate_size"])? as i32;
        let own = draft.layers.saturating_sub(shared);
        let widths = (0..draft.layers).map(|l| if l < own { width } else { 2 * width });
        draft.set("feed_forward_length", widths.collect::<Vec<i32>>());
    }
    draft.set("attention.sliding_window_pattern", windows);
    let rope = Rope::new(config, "full_attention");
    let share = rope.number("partial_rotary_factor")?.unwrap_or(1.0);
    let all = wide as usize / 2;
    let turned = ((f64::from(wide) * share / 2.0) as usize).min(all);
    let mut factors = vec![1.0; turned];
    factors.resize(all, HUGE);
    draft.factors.push(("rope_freqs.weight", factors));
    Ok(())
}

/// Hunyuan: a larger base in the place of scaled angles.
pub(super) fn hunyuan(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let rope = Rope::new(config, "full_attention");
    let alpha = rope.number("alpha")?.filter(|alpha| *alpha > 0.0);
    if let Some(alpha) = alpha.filter(|_| rope.kind() == "dynamic") {
        let base = rope.positive("rope_theta", Some(10_000.0))?;
        let dims = draft.head_width as f64;
        let base = base * alpha.powf(dims / (dims - 2.0));
        draft.number("rope.freq_base", base);
    }
    Ok(())
}

/// The same with experts: the numbers of layers, which are the same for all.
pub(super) fn hunyuan_moe(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let width = config.size(&["intermediate_size"])?;
    let same = |key: &'static str| -> Result<Option<u32>, LlmError> {
        let Some((_, Json::Array(all))) = config.get(&[key]) else {
            return config.opt_size(&[key]);
        };
        let first = all.first().and_then(Json::as_u64);
        let is_same = all.iter().all(|number| number.as_u64() == first);
        let first = first.and_then(|number| u32::try_from(number).ok());
        match first.filter(|_| is_same) {
            None => Err(config.wrong(key, "expected the same number for all layers")),
            first => Ok(first),
        }
    };
    if same("moe_intermediate_size")?.is_some_and(|own| own != width) {
        let problem = format!("expected {width}, as intermediate_size");
        return Err(config.wrong("moe_intermediate_size", problem));
    }
    if let Some(used) = same("moe_topk")? {
        draft.size("expert_used_count", used);
    }
    let shared = same("num_shared_expert")?.unwrap_or(1);
    draft.size("expert_feed_forward_length", width);
    draft.size(
        "expert_shared_feed_forward_length",
        width.saturating_mul(shared),
    );
    hunyuan(config, draft)
}

/// The layers with a window: those that `config.json` lists, or else all but every fourth.
pub(super) fn windows_of_three(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    if config.opt_size(&["sliding_window"])?.is_some_and(|n| n > 0) {
        let other = || (1..=draft.layers).map(|l| l % 4 != 0).collect();
        let windows = windows(config).unwrap_or_else(other);
        draft.set("attention.sliding_window_pattern", windows);
    }
    Ok(())
}

/// The layers with a window, which `config.json` lists.
pub(super) fn listed_windows(config: &Config, draft: &mut Draft) -> Result<Vec<bool>, LlmError> {
    let missing = || config.wrong("layer_types", "missing; save the model with transformers 5");
    let windows = windows(config).ok_or_else(missing)?;
    draft.set("attention.sliding_window_pattern", windows.clone());
    Ok(windows)
}

/// The number of dense layers, which come before those with experts.
pub(super) fn dense_first(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    const KEY: &str = "mlp_layer_types";
    let types = config.get(&[KEY]).and_then(|(_, types)| types.as_array());
    let missing = || config.wrong(KEY, "missing; save the model with transformers 5");
    let is_dense = |kind: &&Json| kind.as_str() == Some("dense");
    let types = types.ok_or_else(missing)?.iter();
    let first = types.clone().take_while(is_dense).count();
    if types.filter(is_dense).count() > first {
        let problem = "a dense layer follows one with experts; GGUF has no key for that";
        return Err(config.wrong(KEY, problem));
    }
    draft.size("leading_dense_block_count", first as u32);
    Ok(())
}

/// MiMo 2: layers with a window have twice as many key heads; values have a width of their own.
pub(super) fn mimo2(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let windows = listed_windows(config, draft)?.into_iter();
    let heads = draft.kv_heads as i32;
    let heads = windows.map(|is_windowed| if is_windowed { 2 * heads } else { heads });
    draft.set("attention.head_count_kv", heads.collect::<Vec<i32>>());
    draft.size("attention.value_length", config.size(&["v_head_dim"])?);
    Ok(())
}

/// Laguna: heads by layer, and another share of them that rotates in windows.
pub(super) fn laguna(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    const KEY: &str = "num_attention_heads_per_layer";
    listed_windows(config, draft)?;
    dense_first(config, draft)?;
    let rope = Rope::new(config, "sliding_attention");
    let share = rope.number("partial_rotary_factor")?.unwrap_or(1.0);
    let dims = (draft.head_width as f64 * share) as u32;
    draft.size("rope.dimension_count_swa", dims);
    if let Some((_, heads)) = config.get(&[KEY]) {
        let numbers = heads.as_array().into_iter().flatten();
        let numbers = numbers.map(|n| i32::try_from(n.as_u64()?).ok());
        let numbers: Option<Vec<i32>> = numbers.collect();
        let numbers = numbers.filter(|numbers| numbers.len() == draft.layers);
        let wrong = || config.wrong(KEY, format!("expected {} numbers", draft.layers));
        draft.set("attention.head_count", numbers.ok_or_else(wrong)?);
    }
    Ok(())
}

/// Granite with windows: layers whose base is 0 do not rotate.
pub(super) fn granite_swa(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    const KEY: &str = "layer_rope_theta";
    listed_windows(config, draft)?;
    let Some((_, bases)) = config.get(&[KEY]) else {
        return Ok(());
    };
    let bases = bases.as_array().into_iter().flatten().map(Json::as_f64);
    let bases: Option<Vec<f64>> = bases.collect();
    let base = Rope::new(config, "full_attention").number("rope_theta")?;
    let fits = |own: &f64| *own == 0.0 || Some(*own) == base;
    let bases = bases.filter(|bases| bases.iter().all(fits));
    let wrong = || config.wrong(KEY, "expected a list of 0 and of rope_theta");
    let pattern = bases
        .ok_or_else(wrong)?
        .iter()
        .map(|own| *own != 0.0)
        .collect::<Vec<_>>();
    draft.set("attention.rope_pattern", pattern);
    Ok(())
}

/// Mellum: one base for all layers.
pub(super) fn mellum(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    listed_windows(config, draft)?;
    let base = |kind| Rope::new(config, kind).number("rope_theta");
    let (full, local) = (base("full_attention")?, base("sliding_attention")?);
    match full == local {
        true => Ok(()),
        false => {
            let problem = "expected the same rope_theta with and without a window";
            Err(config.wrong("rope_parameters", problem))
        }
    }
}

/// EXAONE 4: the largest model has windows. llama.cpp knows it by its number of layers.
pub(super) fn exaone4(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    const LARGEST: usize = 64;
    match config.opt_size(&["sliding_window"])? {
        Some(width) if width > 0 && draft.layers != LARGEST => {
            let problem = format!("expected none in a model of {} layers", draft.layers);
            Err(config.wrong("sliding_window", problem))
        }
        _ => windows_of_three(config, draft),
    }
}

/// The number of layers of which the last has no window: `usual`, or another by `config.json`.
pub(super) fn window_period(
    config: &Config,
    draft: &mut Draft,
    usual: u32,
) -> Result<(), LlmError> {
    let windows = windows(config);
    let first = windows.as_ref().and_then(|w| w.iter().position(|is| !is));
    let found = match (&windows, first) {
        (None, _) => config
            .opt_size(&["sliding_window_pattern"])?
            .unwrap_or(usual),
        (Some(_), Some(first)) => first as u32 + 1,
        (Some(windows), None) => (windows.len() as u32 + 1).max(usual),
    };
    let fits = |(l, is): (usize, &bool)| *is != (l as u32 + 1).is_multiple_of(found.max(1));
    if windows.is_some_and(|windows| !windows.iter().enumerate().all(fits)) {
        let problem = format!("layers without a window are not every {found}th");
        return Err(config.wrong("layer_types", problem));
    }
    if found != usual {
        draft.size("attention.sliding_window_pattern", found);
    }
    Ok(())
}
