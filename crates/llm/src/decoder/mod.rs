//! Decoders and encoders by their descriptions: weights loaded, and the forward pass made of tensor operations, once
//! for every weight format and device.

mod activation;
mod alt_up;
mod attention;
mod convolution;
mod distances;
mod experts;
mod ffn;
mod indexer;
mod latent;
mod layer;
mod linear;
mod linear_attention;
mod norm;
mod pass;
mod pool;
mod recurrent;
mod rwkv;

use rustorch_ir::DType;
use rustorch_runtime::DeviceType;
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::LlmError;
use crate::kv_cache::LayerCache;
use crate::placement::Placement;
use crate::spec::{
    HeadSpec, KeysValues, LayerInputsSpec, LayerSpec, ModelSpec, Need, State, TensorSpec,
};
use crate::weights::Loader;
use alt_up::Streams;
use layer::{Given, Layer};
use linear::{Linear, Scaled, Table, times};
use norm::Norm;
pub(crate) use pass::{Pass, Row, Sequences};
pub(crate) use pool::Pool;

/// A whole decoder, from token ids to logits, or an encoder, from token ids to embeddings.
pub(crate) struct Decoder {
    spec: ModelSpec,
    tensors: Vec<TensorSpec>,
    embedding: Table,
    embedding_norm: Option<Norm>,
    positions: Option<Table>,
    /// A row for each token type.
    types: Option<Table>,
    layer_inputs: Option<LayerInputs>,
    streams: Option<Streams>,
    /// The first value of a second state, `[width]`.
    low_state: Option<Tensor>,
    layers: Vec<Layer>,
    norm: Option<Norm>,
    /// `None` for an encoder.
    head: Option<Head>,
    pool: Pool,
}

impl Decoder {
    /// All weights that `spec` describes.
    ///
    /// # Errors
    /// Fails if tensors are missing, or have another shape or an unsupported type. One error names
    /// all. Also fails if a layer reads keys and values that no earlier layer lends.
    pub(crate) fn load(w: Loader, spec: ModelSpec) -> Result<Self, LlmError> {
        let (vocab, width) = (spec.vocab, spec.width);
        let embedding = match w.has("token_embd.weight") || !w.has("output.weight") {
            true => Table::load(&w, "token_embd", vocab, width)?,
            false => Table::load(&w, "output", vocab, width)?,
        };
        let norm = spec.embedding.norm.as_ref();
        let types = match spec.embedding.types {
            0 => Need::Absent,
            _ => Need::Optional,
        };
        let mut decoder = Self {
            tensors: Vec::new(),
            embedding_norm: Norm::opt(&w, "", norm, width)?,
            types: Table::opt(&w, "token_types", spec.embedding.types, width, types)?,
            positions: Table::opt(
                &w,
                "position_embd",
                spec.context,
                width,
                spec.embedding.positions,
            )?,
            layer_inputs: (spec.embedding.layer_inputs.as_ref())
                .map(|inputs| LayerInputs::load(&w, inputs, &spec))
                .transpose()?,
            streams: (spec.embedding.streams)
                .map(|count| Streams::load(&w, count, width))
                .transpose()?,
            low_state: (spec.embedding.low_state)
                .map(|name| w.f32(name, &[width]))
                .transpose()?,
            layers: (spec.layers.iter())
                .map(|layer| Layer::load(&w, layer, width, spec.embedding.streams))
                .collect::<Result<_, _>>()?,
            norm: Norm::opt(&w, "", spec.head.norm.as_ref(), width)?,
            head: Head::load(&w, &spec, &embedding)?,
            pool: Pool::load(&w, &spec)?,
            embedding,
            spec,
        };
        let own = decoder.spec.layers.iter().map(|layer| layer.index + 1);
        decoder.tensors = w.finish(own.max().unwrap_or(0), decoder.spec.unread)?;
        check_lenders(&decoder.spec.layers)?;
        Ok(decoder)
    }

    /// The description.
    pub(crate) fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The tensors that it reads, by name.
    pub(crate) fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// The table of tokens, if the head's product is with it, too.
    pub(crate) fn shared_table(&self) -> Option<&str> {
        let head = self.head.as_ref().map(|head| head.output.name());
        head.filter(|name| *name == self.embedding.name)
    }

    /// The device of the logits, if it is not for the runtime to choose.
    pub(crate) fn head_device(&self, placement: &Placement) -> Option<DeviceType> {
        let last = placement.layer(self.layers.len().saturating_sub(1));
        let head = self.head.as_ref().map(|head| head.output.name());
        head.and_then(|name| placement.elsewhere(name)).or(last)
    }

    /// Logits `[rows, vocab]`, `f32`, of the last `rows` of the tokens, `i64` `[t]`. Writes to the
    /// layers' caches.
    ///
    /// # Errors
    /// Fails if the operands' shapes do not fit.
    pub(crate) fn forward(
        &self,
        tokens: &Tensor,
        pass: &Pass,
        layers: &[LayerCache],
        rows: usize,
    ) -> RusTorchResult<Tensor> {
        let t = tokens.shape()[0];
        let x = self.hidden(tokens, pass, layers)?;
        self.logits(x.narrow(0, t - rows, rows)?, pass)
    }

    /// Logits `[b · t, vocab]` of whole sequences `[b, t]`, without a cache.
    ///
    /// # Errors
    /// Fails if the operands' shapes do not fit.
    pub(crate) fn forward_sequences(&self, tokens: &Tensor) -> RusTorchResult<Tensor> {
        let (count, length) = (tokens.size(0)?, tokens.size(1)?);
        let positions = Tensor::arange_with(0, length as i64, 1, DType::I32)?;
        let placement = Placement::default();
        let pass = Pass::of_sequences(Sequences::new(count), &positions, &placement)?;
        let x = self.hidden(&tokens.flatten(0, 1)?, &pass, &[])?;
        self.logits(x, &pass)
    }

    /// The normed results of the last layer, `f32` `[b · t, width]`, for tokens `i64` `[b · t]` of sequences without a
    /// cache.
    ///
    /// # Errors
    /// Fails if the operands' shapes do not fit.
    pub(crate) fn encode(&self, tokens: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        Norm::apply(self.norm.as_ref(), self.hidden(tokens, pass, &[])?)
    }

    /// The way from the last layer to embeddings.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The last layer's result for tokens `[t]`; `cache` is empty, or has an element for each layer.
    fn hidden(&self, tokens: &Tensor, pass: &Pass, cache: &[LayerCache]) -> RusTorchResult<Tensor> {
        let embedded = pass.at_home(&self.embed(tokens, pass)?)?;
        let inputs = self.layer_inputs.as_ref();
        let inputs = inputs.map(|inputs| inputs.forward(tokens, &embedded, pass));
        let inputs = inputs.transpose()?;
        let mut x = match &self.streams {
            Some(streams) => streams.spread(&embedded)?,
            None => embedded.clone(),
        };
        let (mut low, mut high) = (self.low_state.clone(), embedded.clone());
        for (index, layer) in self.layers.iter().enumerate() {
            pass.enter(index);
            let stack = self.spec.layers[index].stack;
            if let Some(low) = low.as_ref().filter(|_| stack.is_first) {
                x = pass.at_home(&high)?.add(&pass.at_home(low)?)?;
            }
            let own = inputs.as_ref().map(|inputs| {
                let own = inputs.narrow(1, index, 1)?;
                pass.at_home(&own.squeeze(1)?)
            });
            let given = Given {
                embedded: &embedded,
                own: own.transpose()?,
            };
            x = layer.forward(&pass.at_home(&x)?, &given, pass, cache.get(index))?;
            match stack.replaces {
                Some(State::Low) => low = Some(x.clone()),
                Some(State::High) => high = x.clone(),
                None => {}
            }
        }
        match &self.streams {
            Some(streams) => streams.merged(&x),
            None => Ok(x),
        }
    }

    /// Logits from the last layer's result; that result, normed, of a model without a head.
    fn logits(&self, x: Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let x = Norm::apply(self.norm.as_ref(), x)?;
        match &self.head {
            Some(head) => head.forward(&x, pass),
            None => Ok(x),
        }
    }

    fn embed(&self, tokens: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let rows = self.embedding.forward(tokens, pass)?;
        let mut x = times(rows, self.spec.embedding.scale)?;
        if let Some(table) = &self.types {
            let first = Tensor::zeros([1], DType::I64)?;
            x = x.add(&table.forward(pass.types().unwrap_or(&first), pass)?)?;
        }
        if let Some(table) = &self.positions {
            let rows = table.forward(pass.positions, pass)?;
            x = x.add(&pass.of_each_sequence(&rows)?)?;
        }
        Norm::apply(self.embedding_norm.as_ref(), x)
    }
}

/// Fails if a layer reads keys and values that no earlier layer lends.
fn check_lenders(layers: &[LayerSpec]) -> Result<(), LlmError> {
    let source = |layer: &LayerSpec| layer.mixer.attention().map(|attention| attention.source);
    for (place, layer) in layers.iter().enumerate() {
        let Some(KeysValues::Of(other)) = source(layer) else {
            continue;
        };
        let lender = layers[..place].get(other);
        if lender.and_then(source) != Some(KeysValues::Lent) {
            let name = format!("blk.{}.attn_k.weight", layer.index);
            let problem = format!("layer {place} reads keys of layer {other}, which lends it none");
            return Err(LlmError::weight(name, problem));
        }
    }
    Ok(())
}

/// Inputs that each layer has of its own.
struct LayerInputs {
    spec: LayerInputsSpec,
    layers: usize,
    /// A row of all layers' inputs for each token.
    table: Table,
    product: Linear,
    norm: Norm,
}

impl LayerInputs {
    fn load(w: &Loader, spec: &LayerInputsSpec, model: &ModelSpec) -> Result<Self, LlmError> {
        let layers = model.layers.len();
        let all = layers * spec.width;
        let product = "per_layer_model_proj";
        Ok(Self {
            spec: *spec,
            layers,
            table: Table::load(w, "per_layer_token_embd", model.vocab, all)?,
            product: Linear::load(w, product, all, model.width, Scaled::Never)?,
            norm: Norm::load(w, "", &spec.norm, spec.width)?,
        })
    }

    /// `[b · t, layers, features]`, for tokens and their embedding.
    fn forward(&self, tokens: &Tensor, x: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let shape = [tokens.size(0)?, self.layers, self.spec.width];
        let root = |n: usize| (n as f64).sqrt();
        let rows = pass.at_home(&self.table.forward(tokens, pass)?)?;
        let rows = rows.mul(root(self.spec.width))?.reshape(shape)?;
        let product = pass.at_home(&self.product.forward(x, pass)?)?;
        let product = product.mul(1.0 / root(x.size(-1)?))?.reshape(shape)?;
        self.norm.forward(&product)?.add(&rows)?.mul(0.5_f64.sqrt())
    }
}

/// The head: from the last layer to logits.
struct Head {
    spec: HeadSpec,
    vocab: usize,
    output: Linear,
}

impl Head {
    /// The head; `None` if the model has none.
    fn load(w: &Loader, spec: &ModelSpec, embedding: &Table) -> Result<Option<Self>, LlmError> {
        let (head, width) = (&spec.head, spec.width);
        if head.output == Need::Absent {
            return Ok(None);
        }
        let has_own = w.has("output.weight") || head.output == Need::Required;
        let output = match has_own {
            true => {
                let scaled = match head.scales {
                    true => Scaled::BeforeBias,
                    false => Scaled::Never,
                };
                Linear::load(w, "output", head.logits, width, scaled)?
            }
            false => {
                let bias = w.opt_f32("output.bias", &[head.logits])?;
                Linear::tied(embedding.name.clone(), embedding.rows.clone(), bias)
            }
        }
        .with_own_bias(head.bias);
        Ok(Some(Self {
            output,
            vocab: spec.vocab,
            spec: head.clone(),
        }))
    }

    /// The norm's result `x` `[rows, width]` to `[rows, vocab]`.
    fn forward(&self, x: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let spec = &self.spec;
        let y = self.output.forward(x, pass)?;
        let mut y = times(y, spec.scale)?;
        if let Some(cap) = spec.soft_cap {
            y = y.div(cap)?.tanh()?.mul(cap)?;
        }
        let rows = y.shape()[0];
        if !spec.hidden.is_empty() {
            let (from, to) = (spec.hidden.start, spec.hidden.end);
            let never = Tensor::full([rows, to - from], f64::from(f32::MIN), DType::F32)?;
            let before = y.narrow(1, 0, from)?;
            let behind = y.narrow(1, to, spec.logits - to)?;
            y = Tensor::cat(&[&before, &never, &behind], 1)?;
        }
        match self.vocab - spec.logits {
            0 => Ok(y),
            n => {
                let never = Tensor::full([rows, n], f64::NEG_INFINITY, DType::F32)?;
                Tensor::cat(&[&never, &y], 1)
            }
        }
    }
}
