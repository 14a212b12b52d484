//! Parts that most descriptions start from.

use rustorch_ir::ops::{Rope, RopeLayout, RopeScaling};

use crate::LlmError;
use crate::keys::{Keys, MAX_LAYERS, UNKNOWN};
use crate::rotary::{RopeOptions, Rotary};
use crate::spec::{
    Activation, AttentionSpec, ChosenBy, DenseSpec, EmbeddingSpec, ExpertsSpec, FfnSpec, Gate,
    Gating, HeadNormSpec, HeadSpec, KeysValues, LatentSpec, LayerSpec, Mixer, ModelSpec, Need,
    NormKind, NormSpec, NormedOver, PoolSpec, Pooling, Residual, RopeFactors, RopeSpec, Scales,
    StackSpec, Window, layer_of,
};

/// More experts than this are a mistake, or an attack.
const MAX_EXPERTS: usize = 1 << 16;

/// A file that is to be described.
pub(super) struct File<'a> {
    pub(super) keys: &'a Keys<'a>,
    pub(super) options: RopeOptions,
}

impl<'a> File<'a> {
    /// The base of a model whose norms are root-mean-square norms.
    pub(super) fn rms(self, layout: RopeLayout) -> Result<Base<'a>, LlmError> {
        let eps = self.keys.epsilon("attention.layer_norm_rms_epsilon");
        Base::new(self, layout, NormKind::Rms, eps)
    }

    /// The same of a file that may have the key of layer norms alone.
    pub(super) fn rms_by_any_key(self, layout: RopeLayout) -> Result<Base<'a>, LlmError> {
        match self.keys.opt_f64("attention.layer_norm_rms_epsilon") {
            Some(_) => self.rms(layout),
            None => {
                let eps = self.keys.epsilon("attention.layer_norm_epsilon");
                Base::new(self, layout, NormKind::Rms, eps)
            }
        }
    }

    /// The base of a model whose norms are layer norms.
    pub(super) fn layer_norm(self, layout: RopeLayout) -> Result<Base<'a>, LlmError> {
        let eps = self.keys.epsilon("attention.layer_norm_epsilon");
        Base::new(self, layout, NormKind::Layer, eps)
    }
}

/// The keys of a file, and the values of its description that most layers share.
pub(super) struct Base<'a> {
    pub(super) keys: &'a Keys<'a>,
    options: RopeOptions,
    /// Norm of most layers.
    kind: NormKind,
    eps: f64,
    layout: RopeLayout,
    /// Layers of the file's own decoder.
    pub(super) layers: usize,
    pub(super) width: usize,
    pub(super) vocab: usize,
    pub(super) context: usize,
}

impl<'a> Base<'a> {
    fn new(file: File<'a>, layout: RopeLayout, kind: NormKind, eps: f64) -> Result<Self, LlmError> {
        let File { keys, options } = file;
        let all = keys.size("block_count");
        if keys.contradict(&[all], all <= MAX_LAYERS) {
            let problem = format!("{all} layers are more than {MAX_LAYERS}");
            keys.wrong("block_count", problem);
        }
        let beyond = keys.count_of("nextn_predict_layers", 0).unwrap_or(0);
        if keys.contradict(&[all, beyond], beyond < all) {
            let problem = format!("{beyond} of {all} layers");
            keys.wrong("nextn_predict_layers", problem);
        }
        // Without a sensible number it is that of layers with tensors.
        let named = || keys.gguf.tensors().iter().filter_map(|t| layer_of(&t.name));
        let layers = match all.saturating_sub(beyond) {
            layers @ 1..=MAX_LAYERS => layers,
            _ => named().max().map_or(1, |last| (last + 1).min(MAX_LAYERS)),
        };
        let context = keys.size("context_length");
        let rotary = Rotary::resolve(keys, &options, context)?;
        Ok(Self {
            layers,
            width: keys.size("embedding_length"),
            vocab: vocab(keys),
            context: rotary.context,
            keys,
            options,
            kind,
            eps,
            layout,
        })
    }

    /// The whole model, its layers described one by one.
    pub(super) fn model(
        &self,
        layer: impl Fn(usize) -> Result<LayerSpec, LlmError>,
    ) -> Result<ModelSpec, LlmError> {
        Ok(ModelSpec {
            architecture: self.keys.prefix.to_owned(),
            vocab: self.vocab,
            width: self.width,
            context: self.context,
            embedding: EmbeddingSpec {
                scale: 1.0,
                norm: None,
                positions: Need::Absent,
                types: 0,
                layer_inputs: None,
                low_state: None,
                streams: None,
            },
            layers: (0..self.layers).map(layer).collect::<Result<_, _>>()?,
            head: HeadSpec {
                norm: Some(self.norm("output_norm")),
                output: Need::Optional,
                logits: self.vocab,
                scales: true,
                bias: true,
                scale: 1.0,
                soft_cap: None,
                hidden: 0..0,
            },
            pool: self.pool(self.is_causal()),
            unread: &[],
        })
    }

    /// The way to the embedding of a text. Without a key, it is the last token of causal models, else the mean.
    pub(super) fn pool(&self, is_causal: bool) -> PoolSpec {
        let (default, ranked) = match is_causal {
            true => (Pooling::Last, Pooling::Last),
            false => (Pooling::Mean, Pooling::Cls),
        };
        let tokens = self.keys.opt_size("max_sequence_length");
        PoolSpec {
            pooling: self.pooling("pooling_type").unwrap_or(default),
            ranked: match self.pooling("classifier.pooling_type") {
                Some(Pooling::Mean) => Pooling::Mean,
                _ => ranked,
            },
            activation: Activation::Tanh,
            softmax: false,
            tokens: tokens.unwrap_or(self.context).min(self.context),
        }
    }

    /// The pooling at a key, if the file has it.
    pub(super) fn pooling(&self, name: &str) -> Option<Pooling> {
        const UNSPECIFIED: u64 = u32::MAX as u64;
        let number = self.keys.opt_number(name).filter(|&n| n != UNSPECIFIED)?;
        let pooling = Pooling::of(number);
        if pooling.is_none() {
            let problem = format!("expected 0 to 4, got {number}");
            self.keys.wrong(name, problem);
        }
        pooling
    }

    /// Does a query see no later keys? So it is in most models, if the file does not say otherwise.
    pub(super) fn is_causal(&self) -> bool {
        self.keys.opt_flag("attention.causal").unwrap_or(true)
    }

    /// A norm of the model's own kind.
    pub(super) fn norm(&self, name: &'static str) -> NormSpec {
        NormSpec {
            kind: self.kind,
            name,
            weight: Need::Required,
            bias: true,
            eps: self.eps,
        }
    }

    /// The layer of most models: norms before attention and feed-forward part.
    pub(super) fn layer(&self, index: usize, attention: AttentionSpec, ffn: FfnSpec) -> LayerSpec {
        self.mixed(index, Mixer::Attention(Box::new(attention)), ffn)
    }

    /// The same layer with another mixer.
    pub(super) fn mixed(&self, index: usize, mixer: Mixer, ffn: FfnSpec) -> LayerSpec {
        LayerSpec {
            index,
            scope: "",
            norm: Some(self.norm("attn_norm")),
            mixer,
            out_norm: None,
            laurel: None,
            router_norm: None,
            sum_norms: Vec::new(),
            residual: Residual::Sequential,
            ffn_norm: Some(self.norm("ffn_norm")),
            ffn,
            ffn_out_norm: None,
            input_experts: None,
            residual_scale: 1.0,
            result_norm: None,
            embedding_skip: false,
            own_input: None,
            factor: Need::Absent,
            result_scale: 1.0,
            last_norm: None,
            stack: StackSpec {
                is_first: false,
                replaces: None,
            },
        }
    }

    /// Layers with a norm before and one behind each part (Gemma 2).
    pub(super) fn sandwich(
        &self,
        index: usize,
        attention: AttentionSpec,
        ffn: FfnSpec,
    ) -> LayerSpec {
        LayerSpec {
            out_norm: Some(self.norm("post_attention_norm")),
            ffn_out_norm: Some(self.norm("post_ffw_norm")),
            ..self.layer(index, attention, ffn)
        }
    }

    /// Attention of layer `l` with rotation, and nothing else.
    pub(super) fn attention(&self, l: usize) -> Result<AttentionSpec, LlmError> {
        Ok(AttentionSpec {
            rope: Some(self.rope()?),
            ..self.unrotated(l)
        })
    }

    /// Attention of layer `l` without rotation.
    pub(super) fn unrotated(&self, l: usize) -> AttentionSpec {
        let k = self.keys;
        let heads = k.size_of("attention.head_count", l);
        let kv_heads = match k.count_of("attention.head_count_kv", l) {
            None => heads,
            Some(n) => n,
        };
        let divides = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        if k.contradict(&[heads, kv_heads], divides) {
            let problem = format!("{kv_heads} does not divide the {heads} query heads");
            k.wrong("attention.head_count_kv", problem);
        }
        let key_width = self.head_width("attention.key_length", heads);
        AttentionSpec {
            heads,
            kv_heads,
            key_width,
            value_width: self.head_width("attention.value_length", heads),
            clamp: None,
            query_norm: None,
            key_norm: None,
            value_norm: None,
            keys_as_values: false,
            source: KeysValues::Own,
            latent: None,
            indexer: None,
            norm_after_rope: false,
            rope: None,
            causal: self.is_causal(),
            window: None,
            alibi: None,
            distances: None,
            sinks: Need::Absent,
            scale: 1.0 / (key_width as f64).sqrt(),
            temperature: None,
            soft_cap: None,
            gate: None,
            gated_queries: false,
            inner_norm: None,
            out_scale: 1.0,
            scales: true,
            biases: true,
            out_bias: true,
        }
    }

    /// Latent attention of layer `l`: absorbed in files that have the width of a head's own keys and values.
    pub(super) fn latent(&self, l: usize, has_query_rank: bool) -> Result<AttentionSpec, LlmError> {
        self.latent_of(self.unrotated(l), has_query_rank)
    }

    /// The same of attention whose heads have these widths in the cache.
    pub(super) fn latent_of(
        &self,
        given: AttentionSpec,
        has_query_rank: bool,
    ) -> Result<AttentionSpec, LlmError> {
        let k = self.keys;
        let own = |name| k.count_of(name, 0).filter(|n| *n > 0);
        let own = own("attention.key_length_mla").zip(own("attention.value_length_mla"));
        let (width, value_width) = own.unwrap_or((given.key_width, given.value_width));
        let rotated = k.size("rope.dimension_count");
        if k.contradict(&[rotated, width], rotated < width) {
            let problem = format!("expected less than {width}, got {rotated}");
            k.wrong("rope.dimension_count", problem);
        }
        let rank = k.size("attention.kv_lora_rank");
        let query_rank = match has_query_rank {
            true => Some(k.size("attention.q_lora_rank")),
            false => None,
        };
        let latent = LatentSpec {
            queries: query_rank.map(|rank| (rank, self.norm("attn_q_a_norm"))),
            rank,
            norm: self.norm("attn_kv_a_norm"),
            rotated,
            plain: width.checked_sub(rotated).unwrap_or(UNKNOWN),
            value_width,
            absorbed: own.is_some(),
        };
        let (kv_heads, key_width, value_width) = match own {
            Some(_) => (1, rank + rotated, rank),
            None => (given.heads, width, value_width),
        };
        let kept = [
            ("attention.head_count_kv", kv_heads, given.kv_heads),
            ("attention.key_length", key_width, given.key_width),
            ("attention.value_length", value_width, given.value_width),
        ];
        for (name, expected, found) in kept {
            if k.contradict(&[expected, found], expected == found) {
                k.wrong(name, format!("expected {expected}, got {found}"));
            }
        }
        Ok(AttentionSpec {
            kv_heads,
            key_width,
            value_width,
            latent: Some(latent),
            rope: Some(self.rope_of(rotated, rotated)?),
            scale: 1.0 / (width as f64).sqrt(),
            ..given
        })
    }

    /// Attention of layer `l` whose queries and keys have norms over each head.
    pub(super) fn normed_attention(&self, l: usize) -> Result<AttentionSpec, LlmError> {
        Ok(self.with_head_norms(self.attention(l)?, NormedOver::Head, Need::Required))
    }

    /// The same attention with norms of queries and keys.
    pub(super) fn with_head_norms(
        &self,
        attention: AttentionSpec,
        over: NormedOver,
        weight: Need,
    ) -> AttentionSpec {
        let norm = |name| {
            let norm = NormSpec {
                weight,
                ..self.norm(name)
            };
            Some(HeadNormSpec { norm, over })
        };
        AttentionSpec {
            query_norm: norm("attn_q_norm"),
            key_norm: norm("attn_k_norm"),
            ..attention
        }
    }

    fn head_width(&self, name: &str, heads: usize) -> usize {
        match self.keys.opt_size(name) {
            Some(width) => width,
            None => {
                let divides = self.width.is_multiple_of(heads);
                if self.keys.contradict(&[self.width, heads], divides) {
                    (self.keys).wrong(name, "missing, and heads do not divide the width");
                }
                let is_known = divides && self.width.max(heads) < UNKNOWN;
                if is_known {
                    self.width / heads
                } else {
                    UNKNOWN
                }
            }
        }
    }

    /// The scale that the file asks for, or that of `width` features.
    pub(super) fn scale(&self, width: usize) -> f64 {
        let own = self.keys.number_or("attention.scale", 0.0);
        match own == 0.0 {
            true => 1.0 / (width as f64).sqrt(),
            false => own,
        }
    }

    /// The rotation of layers without a window.
    pub(super) fn rope(&self) -> Result<RopeSpec, LlmError> {
        let k = self.keys;
        let heads = k.count_of("attention.head_count", 0).unwrap_or(1).max(1);
        let key_width = self.head_width("attention.key_length", heads);
        let dims = k.opt_size("rope.dimension_count").unwrap_or(key_width);
        self.rope_of(dims, key_width)
    }

    /// The rotation of the first `dims` of `key_width` features.
    pub(super) fn rope_of(&self, dims: usize, key_width: usize) -> Result<RopeSpec, LlmError> {
        let k = self.keys;
        let fits = dims <= key_width && dims.is_multiple_of(2);
        if k.contradict(&[dims, key_width], fits) {
            let problem = format!("expected an even number of at most {key_width}, got {dims}");
            k.wrong("rope.dimension_count", problem);
        }
        let trained = k.size("context_length");
        let rotary = Rotary::resolve(k, &self.options, trained)?;
        let original = k.opt_size("rope.scaling.original_context_length");
        Ok(RopeSpec {
            op: Rope {
                dims,
                layout: self.layout,
                base: rotary.base.into(),
                scaling: rotary.scaling,
            },
            factors: RopeFactors::File,
            factor_count: dims / 2,
            original_context: original.unwrap_or(trained),
        })
    }

    /// The rotation of layers with a window: base `rope.freq_base_swa`, or `base`; scaled as the other layers are,
    /// or not.
    pub(super) fn windowed_rope(
        &self,
        base: Option<f64>,
        is_scaled: bool,
    ) -> Result<RopeSpec, LlmError> {
        let mut rope = self.rope()?;
        let own = self.keys.opt_f64("rope.freq_base_swa");
        if let Some(base) = own.or(base) {
            rope.op.base = base.into();
        }
        if !is_scaled {
            rope.op.scaling = match rope.op.scaling {
                RopeScaling::Linear { .. } => RopeScaling::NONE,
                RopeScaling::Yarn {
                    extrapolation,
                    attention,
                    beta_fast,
                    beta_slow,
                    original_context,
                    ..
                } => RopeScaling::Yarn {
                    factor: 1.0.into(),
                    extrapolation,
                    attention,
                    beta_fast,
                    beta_slow,
                    original_context,
                },
            };
        }
        Ok(rope)
    }

    /// Does layer `l` have a window? By the file's list, or else all but every `period`-th: the last of each
    /// period, or the first.
    pub(super) fn is_windowed(&self, l: usize, period: usize, first: bool) -> bool {
        const PATTERN: &str = "attention.sliding_window_pattern";
        if let Some(flags) = self.keys.flags(PATTERN) {
            let flag = flags.get(l).copied();
            if flag.is_none() {
                self.keys.wrong(PATTERN, format!("nothing for layer {l}"));
            }
            return flag.unwrap_or(false);
        }
        let period = self.keys.count_of(PATTERN, 0).unwrap_or(period);
        match (period, first) {
            (0, _) => true,
            (n, true) => !l.is_multiple_of(n),
            (n, false) => l % n < n - 1,
        }
    }

    /// The width of windows; `None` for a file without them.
    pub(super) fn window(&self) -> Option<usize> {
        let width = self.keys.count_of("attention.sliding_window", 0);
        width.filter(|n| *n > 0)
    }

    /// The width of windows, which this architecture has.
    pub(super) fn own_window(&self) -> Window {
        let width = self.keys.size("attention.sliding_window");
        Window::Sliding(width)
    }

    /// A dense feed-forward part with a gate, activated by `silu`.
    pub(super) fn gated(&self, l: usize) -> DenseSpec {
        self.dense(
            self.keys.size_of("feed_forward_length", l),
            Gate::Separate,
            Activation::Silu,
        )
    }

    /// A dense feed-forward part without a gate.
    pub(super) fn ungated(&self, l: usize, activation: Activation) -> DenseSpec {
        self.dense(
            self.keys.size_of("feed_forward_length", l),
            Gate::None,
            activation,
        )
    }

    /// A dense feed-forward part.
    pub(super) fn dense(&self, width: usize, gate: Gate, activation: Activation) -> DenseSpec {
        DenseSpec {
            width,
            gate,
            activation,
            suffix: "",
            inner_norm: None,
            out_norm: None,
            scales: Scales::None,
            biases: true,
            token_gate: false,
        }
    }

    /// The number of experts; 0 for a file without them.
    pub(super) fn expert_count(&self) -> usize {
        let count = self.keys.count_of("expert_count", 0).unwrap_or(0);
        if self.keys.contradict(&[count], count <= MAX_EXPERTS) {
            let problem = format!("{count} experts are more than {MAX_EXPERTS}");
            self.keys.wrong("expert_count", problem);
        }
        count
    }

    /// The width of an expert by its own key; the other width, if there is none.
    pub(super) fn expert_width(&self, l: usize, other: usize) -> usize {
        let own = self.keys.count_of("expert_feed_forward_length", l);
        own.filter(|n| *n > 0).unwrap_or(other)
    }

    /// Experts of layer `l` of this width: softmax over all, the weights of the chosen ones divided by their sum.
    pub(super) fn experts(&self, l: usize, width: usize) -> ExpertsSpec {
        let k = self.keys;
        let count = self.expert_count();
        if count == 0 {
            k.wrong("expert_count", "expected at least 1 expert");
        }
        let used = k.size_of("expert_used_count", l);
        if k.contradict(&[count, used], used <= count) {
            let problem = format!("{used} of {count} experts");
            k.wrong("expert_used_count", problem);
        }
        let groups = k.count_of("expert_group_count", 0).filter(|n| *n > 1);
        let groups = match groups {
            None => None,
            Some(groups) => {
                let used = k.size_of("expert_group_used_count", 0);
                let fits = used <= groups && count.is_multiple_of(groups);
                if k.contradict(&[used, groups, count], fits) {
                    let problem = format!("{used} of {groups} groups of {count} experts");
                    k.wrong("expert_group_used_count", problem);
                }
                Some((groups, used))
            }
        };
        let scale = k.number_or("expert_weights_scale", 0.0);
        ExpertsSpec {
            count,
            used,
            width,
            activation: Activation::Silu,
            gating: Gating::Softmax,
            chosen_by: ChosenBy::Probabilities,
            choice_bias: Need::Absent,
            groups,
            normalised: true,
            scale: if scale == 0.0 { 1.0 } else { scale },
            weights_before: false,
            router_reads_input: false,
            norms: None,
            latent: None,
            scales: false,
            suffix: "_exps",
            chunks: None,
            per_group: 1,
        }
    }

    /// The gating that the file asks for, or the architecture's own.
    pub(super) fn gating(&self, default: Gating) -> Gating {
        match self.keys.count_of("expert_gating_func", 0).unwrap_or(0) {
            0 => default,
            1 => Gating::Softmax,
            2 => Gating::Sigmoid,
            3 => Gating::SoftmaxOfChosen,
            4 => Gating::SqrtSoftplus,
            other => {
                let problem = format!("expected 0 to 4, got {other}");
                self.keys.wrong("expert_gating_func", problem);
                default
            }
        }
    }

    /// The expert of this width that all tokens share.
    pub(super) fn shared(&self, width: usize) -> DenseSpec {
        DenseSpec {
            suffix: "_shexp",
            ..self.dense(width, Gate::Separate, Activation::Silu)
        }
    }

    /// Width of the shared expert, `expert_shared_count` times that of the others.
    pub(super) fn shared_width(&self, expert: usize) -> usize {
        let count = self.keys.count_of("expert_shared_count", 0).unwrap_or(0);
        count.saturating_mul(expert)
    }

    /// Is layer `l` one of the first that are dense?
    pub(super) fn is_leading(&self, l: usize) -> bool {
        let leading = self.keys.count_of("leading_dense_block_count", 0);
        l < leading.unwrap_or(0)
    }

    /// Softmax experts where the file has some, else a dense part.
    pub(super) fn ffn(&self, l: usize, scales: bool) -> FfnSpec {
        let dense = DenseSpec {
            scales: if scales { Scales::All } else { Scales::None },
            ..self.gated(l)
        };
        if self.expert_count() == 0 {
            return dense.into();
        }
        let experts = ExpertsSpec {
            scales,
            ..self.experts(l, dense.width)
        };
        experts.into()
    }

    /// Does layer `l` have the tensor `name`?
    pub(super) fn has(&self, l: usize, name: &str) -> bool {
        self.rows(l, name).is_some()
    }

    /// The number of rows of the tensor `name` of layer `l`, if it is there.
    pub(super) fn rows(&self, l: usize, name: &str) -> Option<usize> {
        let name = format!("blk.{l}.{name}.weight");
        self.keys.gguf.tensor(&name)?.shape().first().copied()
    }

    /// The number of token types, of a model that has some.
    pub(super) fn token_types(&self) -> usize {
        let keys = self.keys.with_prefix("tokenizer.ggml");
        keys.size("token_type_count")
    }
}

impl RopeSpec {
    /// The number by which a context is stretched.
    pub(super) fn stretch(&self) -> f64 {
        let (RopeScaling::Linear { factor } | RopeScaling::Yarn { factor, .. }) = self.op.scaling;
        1.0 / factor.0
    }

    /// Is it YaRN's rotation, whose magnitude grows with the stretched context?
    pub(super) fn is_yarn(&self) -> bool {
        match self.op.scaling {
            RopeScaling::Linear { .. } => false,
            RopeScaling::Yarn { extrapolation, .. } => extrapolation.0 != 0.0,
        }
    }

    /// Divides YaRN's magnitude by `1 + 0.1 · growth · ln(stretch)`.
    pub(super) fn divide_magnitude(&mut self, growth: f64) {
        let divisor = 1.0 + 0.1 * growth * self.stretch().ln().max(0.0);
        if self.is_yarn()
            && let RopeScaling::Yarn { attention, .. } = &mut self.op.scaling
        {
            *attention = (attention.0 / divisor).into();
        }
    }
}

impl FfnSpec {
    /// No part.
    pub(super) const NONE: Self = Self {
        bare: None,
        dense: None,
        experts: None,
        channel_mix: None,
        scale: 1.0,
    };
}

impl From<DenseSpec> for FfnSpec {
    fn from(dense: DenseSpec) -> Self {
        Self {
            dense: Some(dense),
            ..Self::NONE
        }
    }
}

impl From<ExpertsSpec> for FfnSpec {
    fn from(experts: ExpertsSpec) -> Self {
        Self {
            experts: Some(Box::new(experts)),
            ..Self::NONE
        }
    }
}

impl ExpertsSpec {
    /// The same with an expert that all tokens share.
    pub(super) fn beside(self, shared: DenseSpec) -> FfnSpec {
        FfnSpec {
            dense: (shared.width > 0).then_some(shared),
            ..self.into()
        }
    }
}

/// Size of the vocabulary: that of the embedding table, or the key `vocab_size`. A model without either has no size, and
/// its table is missing.
fn vocab(keys: &Keys) -> usize {
    let tables = ["token_embd.weight", "output.weight"].into_iter();
    let mut tables = tables.filter_map(|name| keys.gguf.tensor(name));
    let own = match tables.next() {
        Some(table) => table.shape().first().map(|&vocab| vocab as u64),
        None => keys
            .gguf
            .metadata
            .opt_u64(&keys.key("vocab_size"))
            .ok()
            .flatten(),
    };
    let size = own.and_then(|vocab| keys.check("vocab_size", vocab));
    size.unwrap_or(UNKNOWN)
}
