//! Embeddings of texts, and scores of documents for a query.

use std::ops::Range;

use rustorch_ir::DType;
use rustorch_runtime::{HostBuffer, Routing, Runtime, Storage};
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor, Trace, with_runtime};
use rustorch_tokenizer::{EncodeOptions, Tokenizer};

use crate::LlmError;
use crate::decoder::{Pass, Sequences};
use crate::model::Model;
use crate::placement::Placement;
use crate::spec::Pooling;

/// Options of an [`Encoder`].
#[derive(Clone, Debug)]
pub struct EncoderOptions {
    /// Pooling of the tokens' vectors into one; by default the file's own.
    pub pooling: Option<Pooling>,
    /// Scaling of vectors.
    pub scaling: Scaling,
    /// Tokens beyond which a text is cut; 0 for the model's own number.
    pub tokens: usize,
    /// Maximum number of tokens in a forward pass; a text is never split.
    pub batch: usize,
    /// The devices that may be used.
    pub routing: Routing,
}

impl Default for EncoderOptions {
    fn default() -> Self {
        Self {
            pooling: None,
            scaling: Scaling::Norm(2),
            tokens: 0,
            batch: 2048,
            routing: Routing::default(),
        }
    }
}

/// Scaling of vectors. Scores are not scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// None.
    None,
    /// A largest absolute value of 32,760: the range of 16-bit numbers.
    Largest,
    /// A p-norm of 1.
    Norm(u32),
}

impl From<i32> for Scaling {
    /// The scaling by llama.cpp's number: −1 none, 0 the largest value, and else a p-norm.
    fn from(number: i32) -> Self {
        match u32::try_from(number) {
            Err(_) => Self::None,
            Ok(0) => Self::Largest,
            Ok(p) => Self::Norm(p),
        }
    }
}

impl Scaling {
    /// Scales a vector; a vector of zeros is unchanged.
    pub fn apply(self, vector: &mut [f32]) {
        let sizes = vector.iter().map(|x| f64::from(x.abs()));
        let size = match self {
            Self::None => return,
            Self::Largest => sizes.fold(0.0, f64::max) / 32_760.0,
            Self::Norm(p) => {
                let p = f64::from(p);
                sizes.map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p)
            }
        };
        if size > 0.0 {
            for x in vector {
                *x = (f64::from(*x) / size) as f32;
            }
        }
    }
}

/// Cosine of the angle between two vectors; 0 where one is 0.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    match (dot(a, a) * dot(b, b)).sqrt() {
        0.0 => 0.0,
        size => (dot(a, b) / size) as f32,
    }
}

/// The tokens of a text, or of two texts together.
struct Input {
    ids: Vec<u32>,
    /// Tokens of type 1.
    second: Range<usize>,
}

impl From<Vec<u32>> for Input {
    fn from(ids: Vec<u32>) -> Self {
        Self { ids, second: 0..0 }
    }
}

/// Turns texts into vectors: by an encoder, or by a decoder that was trained for it.
///
/// ```
/// use rustorch_gguf::Gguf;
/// use rustorch_llm::{Encoder, EncoderOptions, Model, cosine};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/classics-13m-Q4_K_M.gguf");
/// let model = Model::load(Gguf::open(path)?)?;
/// let mut encoder = Encoder::new(&model, &rustorch_tensor::runtime(), EncoderOptions::default())?;
/// let vectors = encoder.embed(&["The cat sat.", "A cat sits.", "Whale oil"])?;
/// assert_eq!(vectors.len(), 3);
/// assert!(cosine(&vectors[0], &vectors[0]) > 0.999);
/// # Ok(())
/// # }
/// ```
pub struct Encoder<'m> {
    model: &'m Model,
    runtime: Runtime,
    options: EncoderOptions,
    pooling: Pooling,
    /// Tokens beyond which a text is cut.
    tokens: usize,
    /// The program of the latest size.
    program: Option<Program>,
}

impl<'m> Encoder<'m> {
    /// An encoder by `model`, on the devices of `runtime`.
    ///
    /// # Errors
    /// Fails if an option is invalid, or if the pooling is [`Pooling::Rank`] and the model has no classifier.
    pub fn new(
        model: &'m Model,
        runtime: &Runtime,
        options: EncoderOptions,
    ) -> Result<Self, LlmError> {
        let spec = model.spec();
        let pooling = options.pooling.unwrap_or(spec.pool.pooling);
        if pooling == Pooling::Rank && !model.decoder().pool().has_scores() {
            return Err(LlmError::Input(
                "pooling rank: the model has no classifier (cls or cls.output); give a reranker, or another --pooling"
                    .to_owned(),
            ));
        }
        let tokens = match options.tokens {
            0 => spec.pool.tokens,
            tokens => tokens.min(spec.context),
        };
        Ok(Self {
            model,
            runtime: runtime.clone(),
            options,
            pooling,
            tokens,
            program: None,
        })
    }

    /// Pooling of the tokens' vectors into one.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Length of a token's vector.
    pub fn width(&self) -> usize {
        self.model.decoder().pool().width()
    }

    /// The vectors of texts, in their order. Texts of more tokens than the model takes are cut, with a warning. With
    /// [`Pooling::None`], a text has the vectors of its tokens, one after the other. With [`Pooling::Rank`] it has
    /// scores.
    ///
    /// # Errors
    /// Fails if the model has no vocabulary, a text has no tokens, or no device is left.
    pub fn embed(&mut self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<f32>>, LlmError> {
        let tokenizer = self.model.tokenizer()?;
        let options = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        let ids = texts.iter().map(|text| {
            let ids = tokenizer.encode(text.as_ref(), options);
            Input::from(ids)
        });
        let inputs = self.cut(tokenizer, ids.collect());
        self.run(&inputs)
    }

    /// The same as [`Self::embed`] of texts that are tokens already, and that are not cut.
    ///
    /// # Errors
    /// Fails if a text has no tokens, or more than the model takes. Also fails if a token is outside of the vocabulary,
    /// or if no device is left.
    pub fn embed_tokens(&mut self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, LlmError> {
        let inputs: Vec<Input> = texts.iter().cloned().map(Input::from).collect();
        self.run(&inputs)
    }

    /// A score of each document for a query: the first score of the model's classifier.
    ///
    /// # Errors
    /// The same errors as [`Self::embed`]. Also fails if the pooling is not [`Pooling::Rank`].
    pub fn rerank(
        &mut self,
        query: &str,
        documents: &[impl AsRef<str>],
    ) -> Result<Vec<f32>, LlmError> {
        if self.pooling != Pooling::Rank {
            let problem = "scores need the pooling `rank`, which only rerankers have";
            return Err(LlmError::Input(problem.to_owned()));
        }
        let tokenizer = self.model.tokenizer()?;
        let inputs = (documents.iter())
            .map(|document| pair(self.model, query, document.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let inputs = self.cut(tokenizer, inputs);
        let scores = self.run(&inputs)?;
        let first = scores.iter().map(|scores| scores.first().copied());
        Ok(first.map(Option::unwrap_or_default).collect())
    }

    /// Number of tokens of a query and a document, before they are cut.
    ///
    /// # Errors
    /// Fails if the model has no vocabulary, or a template that is no text.
    pub fn pair_tokens(model: &Model, query: &str, document: &str) -> Result<usize, LlmError> {
        Ok(pair(model, query, document)?.ids.len())
    }

    /// Cuts texts that are too long; their last token stays, if the model wants it there.
    fn cut(&self, tokenizer: &Tokenizer, mut inputs: Vec<Input>) -> Vec<Input> {
        let most = self.tokens;
        let mut count = 0;
        for input in &mut inputs {
            if input.ids.len() > most {
                let end = tokenizer.end().filter(|end| input.ids.last() == Some(end));
                let kept = most.saturating_sub(usize::from(end.is_some()));
                input.ids.truncate(kept);
                input.ids.extend(end);
                input.second.end = input.second.end.min(input.ids.len());
                count += 1;
            }
        }
        if count > 0 {
            tracing::warn!("{count} texts have more than {most} tokens and were cut");
        }
        inputs
    }

    fn run(&mut self, inputs: &[Input]) -> Result<Vec<Vec<f32>>, LlmError> {
        inputs.iter().try_for_each(|input| self.check(input))?;
        // The longest are first. So texts of a batch have about the same length, and a lack of memory shows at once.
        let mut order: Vec<usize> = (0..inputs.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(inputs[i].ids.len()));
        let mut vectors = vec![Vec::new(); inputs.len()];
        let mut rest = &order[..];
        while let Some(&first) = rest.first() {
            let tokens = padded(inputs[first].ids.len()).min(self.model.spec().context);
            let count = (self.options.batch / tokens).clamp(1, rest.len());
            let (batch, behind) = rest.split_at(count);
            rest = behind;
            let inputs: Vec<&Input> = batch.iter().map(|&i| &inputs[i]).collect();
            let rows = self.batch(&inputs, tokens)?;
            for (&i, row) in batch.iter().zip(rows) {
                vectors[i] = row;
            }
        }
        Ok(vectors)
    }

    /// Can the text be computed?
    fn check(&self, input: &Input) -> Result<(), LlmError> {
        let spec = self.model.spec();
        let (most, vocab) = (spec.context, spec.vocab);
        match input.ids.len() {
            0 => {
                return Err(LlmError::Input(
                    "a text has no tokens; leave out empty texts".to_owned(),
                ));
            }
            n if n > most => {
                let problem = format!("a text of {n} tokens is longer than the model's {most}");
                return Err(LlmError::Input(problem));
            }
            _ => {}
        }
        match input.ids.iter().find(|&&id| id as usize >= vocab) {
            Some(&id) => Err(LlmError::Token { id, vocab }),
            None => Ok(()),
        }
    }

    /// The vectors of texts that are padded to this number of tokens.
    fn batch(&mut self, inputs: &[&Input], tokens: usize) -> Result<Vec<Vec<f32>>, LlmError> {
        let shape = Shape {
            texts: inputs.len(),
            tokens,
            is_padded: inputs.iter().any(|input| input.ids.len() < tokens),
            is_typed: inputs.iter().any(|input| !input.second.is_empty()),
        };
        let pool = &self.model.spec().pool;
        let pooled = match self.pooling {
            Pooling::Rank => pool.ranked,
            pooling => pooling,
        };
        let mut program = match self.program.take().filter(|program| program.shape == shape) {
            Some(program) => program,
            None => {
                let (model, pooling) = (self.model, self.pooling);
                with_runtime(&self.runtime, self.options.routing, || {
                    Program::new(model, pooling, shape)
                })?
            }
        };
        let rows = program.run(&self.runtime, inputs, pooled)?;
        self.program = Some(program);
        let width = rows.len() / inputs.len();
        let texts = rows.chunks_exact(width.max(1)).zip(inputs);
        Ok(texts
            .map(|(row, input)| self.vector(row, input, tokens))
            .collect())
    }

    /// The vector of a text, or those of its tokens.
    fn vector(&self, row: &[f32], input: &Input, tokens: usize) -> Vec<f32> {
        let mut row = row.to_vec();
        let width = match self.pooling {
            Pooling::None => {
                let width = row.len() / tokens;
                row.truncate(input.ids.len() * width);
                width
            }
            _ => row.len(),
        };
        if self.pooling != Pooling::Rank {
            let vectors = row.chunks_exact_mut(width.max(1));
            vectors.for_each(|vector| self.options.scaling.apply(vector));
        }
        row
    }
}

/// The tokens of a query and a document.
fn pair(model: &Model, query: &str, document: &str) -> Result<Input, LlmError> {
    let (tokenizer, metadata) = (model.tokenizer()?, &model.gguf().metadata);
    if let Some(template) = metadata.opt_str("tokenizer.chat_template.rerank")? {
        let options = EncodeOptions {
            add_special: false,
            parse_special: true,
        };
        let (before, after) = template.split_once("{document}").unwrap_or((template, ""));
        let [before, after] = [before, after].map(|part| part.replace("{query}", query));
        let text = format!("{before}{document}{after}");
        return Ok(tokenizer.encode(&text, options).into());
    }
    let (ids, second) = tokenizer.encode_pair(query, document, true);
    // BERT's kind of tokenizer has a second type.
    let is_typed = metadata.opt_str("tokenizer.ggml.model")? == Some("bert")
        && model.spec().embedding.types > 1;
    let second = match is_typed {
        true => second..ids.len(),
        false => 0..0,
    };
    Ok(Input { ids, second })
}

/// Tokens that a text of this number is padded to, so that few sizes need programs.
fn padded(tokens: usize) -> usize {
    const STEP: usize = 8;
    tokens.next_multiple_of(STEP)
}

/// The size of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    texts: usize,
    /// Tokens of each text.
    tokens: usize,
    /// Are some texts shorter?
    is_padded: bool,
    /// Whether there are tokens of several types.
    is_typed: bool,
}

/// A pass over several texts, which can be run again and again.
struct Program {
    shape: Shape,
    trace: Trace,
    /// Token ids, `i64`, weights of tokens in their text's vector, `f32`, and what the size asks for: the addend to
    /// scores, `f32`, and types of tokens, `i64`.
    inputs: Vec<Storage>,
    outputs: Vec<Storage>,
}

impl Program {
    fn new(model: &Model, pooling: Pooling, shape: Shape) -> Result<Self, LlmError> {
        let Shape { texts, tokens, .. } = shape;
        let input = |of: [usize; 2], dtype: DType| {
            let bytes = dtype.bytes_of(&of).and_then(HostBuffer::zeroed);
            let bytes = bytes.ok_or_else(|| LlmError::Input("out of memory".to_owned()))?;
            Ok::<_, LlmError>(Storage::from_host(bytes))
        };
        let types = [
            (true, DType::I64),
            (true, DType::F32),
            (shape.is_padded, DType::F32),
            (shape.is_typed, DType::I64),
        ];
        let types = types.into_iter().filter(|(is_there, _)| *is_there);
        let inputs = types.map(|(_, dtype)| input([texts, tokens], dtype));
        Ok(Self {
            shape,
            trace: Self::trace(model, pooling, shape)?,
            inputs: inputs.collect::<Result<_, _>>()?,
            outputs: Vec::new(),
        })
    }

    fn trace(model: &Model, pooling: Pooling, shape: Shape) -> RusTorchResult<Trace> {
        let Shape { texts, tokens, .. } = shape;
        let (all, decoder) = (texts * tokens, model.decoder());
        let ids = Tensor::placeholder([all], DType::I64)?;
        let weights = Tensor::placeholder([texts, tokens], DType::F32)?;
        let optional = |is_there: bool, shape: &[usize], dtype| {
            let placeholder = || Tensor::placeholder(shape, dtype);
            is_there.then(placeholder).transpose()
        };
        let padding = optional(shape.is_padded, &[texts, 1, 1, tokens], DType::F32)?;
        let types = optional(shape.is_typed, &[all], DType::I64)?;
        let positions = Tensor::arange_with(0, tokens as i64, 1, DType::I32)?;
        let sequences = Sequences {
            count: texts,
            padding: padding.as_ref(),
            types: types.as_ref(),
        };
        let placement = Placement::default();
        let pass = Pass::of_sequences(sequences, &positions, &placement)?;
        let x = decoder.encode(&ids, &pass)?;
        let x = x.reshape([texts, tokens, model.spec().width])?;
        let y = decoder.pool().forward(&x, &weights, pooling, &pass)?;
        let inputs = [Some(&ids), Some(&weights), padding.as_ref(), types.as_ref()];
        let inputs: Vec<&Tensor> = inputs.into_iter().flatten().collect();
        // Encoders know the vocabulary and the positions.
        Ok(Trace::new(&inputs, &[&y])?.with_checked_values())
    }

    /// The rows of all texts, one after the other.
    fn run(
        &mut self,
        runtime: &Runtime,
        inputs: &[&Input],
        pooling: Pooling,
    ) -> Result<Vec<f32>, LlmError> {
        let Shape {
            tokens,
            is_padded,
            is_typed,
            ..
        } = self.shape;
        let rows = || {
            inputs
                .iter()
                .flat_map(|input| (0..tokens).map(move |at| (*input, at)))
        };
        let id = |(input, at): (&Input, usize)| i64::from(input.ids.get(at).copied().unwrap_or(0));
        let weight = |(input, at): (&Input, usize)| weight(pooling, at, input.ids.len());
        let padding = |(input, at): (&Input, usize)| match at < input.ids.len() {
            true => 0.0,
            false => f32::NEG_INFINITY,
        };
        let kind = |(input, at): (&Input, usize)| i64::from(input.second.contains(&at));
        let values: [Option<Vec<u8>>; 4] = [
            Some(rows().flat_map(|at| id(at).to_ne_bytes()).collect()),
            Some(rows().flat_map(|at| weight(at).to_ne_bytes()).collect()),
            is_padded.then(|| rows().flat_map(|at| padding(at).to_ne_bytes()).collect()),
            is_typed.then(|| rows().flat_map(|at| kind(at).to_ne_bytes()).collect()),
        ];
        for (storage, bytes) in self.inputs.iter().zip(values.iter().flatten()) {
            let written = runtime.write(storage, bytes);
            written.map_err(RusTorchError::from)?;
        }
        self.trace.run_into(&self.inputs, &mut self.outputs)?;
        let elements = self.trace.outputs()[0].shape.elements();
        let mut found = vec![0.0_f32; elements];
        let read = runtime.read(&self.outputs[0], 0, bytemuck::cast_slice_mut(&mut found));
        read.map_err(RusTorchError::from)?;
        Ok(found)
    }
}

/// Weight of the token at a place of a text of `count` tokens in the text's vector.
fn weight(pooling: Pooling, at: usize, count: usize) -> f32 {
    let is_chosen = match pooling {
        Pooling::Mean => return if at < count { 1.0 / count as f32 } else { 0.0 },
        Pooling::Last => at + 1 == count,
        Pooling::Cls | Pooling::Rank => at == 0,
        Pooling::None => false,
    };
    f32::from(u8::from(is_chosen))
}
