//! Models that have the shapes of well-known ones and no weights worth the name.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;

use rustorch_gguf::{Gguf, Metadata};
use rustorch_ir::DType;
use rustorch_llm::quantize::FileType;
use rustorch_llm::{Model, Scores, Selection, Session, SessionOptions, described};
use rustorch_runtime::{Backend, Routing, Runtime};

/// The shape of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) architecture: &'static str,
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_width: usize,
    pub(crate) ff_width: usize,
    pub(crate) vocab: usize,
    /// Is the embedding table the output's weights, too?
    pub(crate) is_tied: bool,
    /// Are there factors of rotary frequencies, as of Llama 3.1?
    pub(crate) has_factors: bool,
}

pub(crate) const fn shape(
    architecture: &'static str,
    [width, heads, kv_heads, head_width, ff_width, vocab]: [usize; 6],
) -> Shape {
    Shape {
        architecture,
        width,
        heads,
        kv_heads,
        head_width,
        ff_width,
        vocab,
        is_tied: false,
        has_factors: false,
    }
}

/// Passes over tokens that are compiled.
#[derive(Debug)]
pub(crate) struct Passes {
    /// Numbers of tokens of the passes with logits for the last token; `all` has those with logits
    /// for every token.
    pub(crate) last: Vec<usize>,
    pub(crate) all: Vec<usize>,
    /// Are tokens also chosen on the device?
    pub(crate) chooses: bool,
    pub(crate) caches: Vec<DType>,
    /// Tokens that there is room for.
    pub(crate) context: usize,
}

/// A model, and what is done with it.
pub(crate) struct Work {
    pub(crate) shape: Shape,
    pub(crate) file_type: FileType,
    pub(crate) passes: Passes,
    /// The compute capabilities that it is compiled for; all if there are none.
    pub(crate) capabilities: &'static [u32],
}

impl Work {
    /// On all devices.
    pub(crate) fn new(shape: Shape, file_type: FileType, passes: Passes) -> Self {
        Self {
            shape,
            file_type,
            passes,
            capabilities: &[],
        }
    }
}

/// The shapes of the models' published configurations.
pub(crate) const KNOWN: [Shape; 9] = [
    shape("llama", [512, 8, 2, 64, 768, 4096]), // classics-13m
    shape("llama", [2048, 32, 4, 64, 5632, 32_000]), // TinyLlama 1.1B
    shape("llama", [4096, 32, 32, 128, 11_008, 32_000]), // Llama 2 7B
    shape("llama", [4096, 32, 8, 128, 14_336, 128_256]), // Llama 3 8B
    shape("llama", [8192, 64, 8, 128, 28_672, 128_256]), // Llama 3 70B
    shape("qwen2", [896, 14, 2, 64, 4864, 151_936]), // Qwen2.5 0.5B
    shape("qwen2", [3584, 28, 4, 128, 18_944, 152_064]), // Qwen2.5 7B
    shape("qwen3", [1024, 16, 8, 128, 3072, 151_936]), // Qwen3 0.6B
    shape("qwen3", [4096, 32, 8, 128, 12_288, 151_936]), // Qwen3 8B
];

/// Layers of a model: mixes of types give the first of two another than the second.
const LAYERS: usize = 2;

/// Bytes that a tensor's data is written in at a time.
const PIECE: usize = 1 << 20;

/// A file with a hole wherever its flag is set.
struct Sparse<'a>(File, &'a Cell<bool>);

impl Write for Sparse<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.1.get() {
            return self.0.write(bytes);
        }
        let end = self.0.seek(SeekFrom::Current(bytes.len() as i64))?;
        self.0.set_len(end)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Shape {
    /// Ends of the names of tensors that the model has and others of its architecture may lack.
    fn optional(&self) -> Vec<&'static str> {
        let biases = match self.architecture {
            "qwen2" => &["attn_q.bias", "attn_k.bias", "attn_v.bias"][..],
            _ => &[],
        };
        let head = (!self.is_tied).then_some(["token_embd.weight", "output.weight"]);
        let factors = self.has_factors.then_some("rope_freqs.weight");
        let others = head.into_iter().flatten().chain(factors);
        biases.iter().copied().chain(others).collect()
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture", self.architecture);
        for (key, value) in [
            ("block_count", LAYERS),
            ("context_length", 1 << 15),
            ("embedding_length", self.width),
            ("feed_forward_length", self.ff_width),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_width),
            ("attention.value_length", self.head_width),
            ("vocab_size", self.vocab),
        ] {
            metadata.insert(format!("{}.{key}", self.architecture), value as u32);
        }
        let eps = format!("{}.attention.layer_norm_rms_epsilon", self.architecture);
        metadata.insert(eps, 1e-5_f32);
        metadata.insert("tokenizer.ggml.model", "no_vocab");
        metadata
    }

    /// A model of this shape and type in a file that takes no room.
    fn model(&self, file_type: FileType) -> anyhow::Result<Model> {
        let writer = described(self.metadata(), file_type, &self.optional())?;
        let file = tempfile::NamedTempFile::new()?;
        let is_hole = Cell::new(false);
        let mut sparse = Sparse(file.reopen()?, &is_hole);
        let zeros = vec![0; PIECE];
        writer.write_to(&mut sparse, |tensor, out| {
            is_hole.set(true);
            let pieces = (0..tensor.bytes()).step_by(PIECE);
            let mut written =
                pieces.map(|at| out.write_all(&zeros[..PIECE.min(tensor.bytes() - at)]));
            let written = written.try_for_each(|piece| piece);
            is_hole.set(false);
            written
        })?;
        Ok(Model::load(Gguf::open(file.path())?)?)
    }
}

/// Lets posing devices, each with its compute capability, compile the passes of a model.
pub(crate) fn run(work: &Work, poses: &[(u32, Arc<dyn Backend>)]) -> anyhow::Result<()> {
    let model = work.shape.model(work.file_type)?;
    let passes = &work.passes;
    let is_wanted =
        |capability| work.capabilities.is_empty() || work.capabilities.contains(capability);
    for (_, pose) in poses.iter().filter(|(capability, _)| is_wanted(capability)) {
        for &cache_dtype in &passes.caches {
            let mut session = session(&model, pose.clone(), cache_dtype, passes.context)?;
            feed(&mut session, passes)?;
            if passes.chooses {
                choose(&mut session)?;
            }
        }
    }
    Ok(())
}

fn session(
    model: &Model,
    pose: Arc<dyn Backend>,
    cache_dtype: DType,
    context: usize,
) -> anyhow::Result<Session<'_>> {
    let options = SessionOptions {
        context,
        batch: context,
        cache_dtype,
        routing: Routing {
            strict: true,
            ..Routing::default()
        },
        ..SessionOptions::default()
    };
    Ok(Session::new(model, &Runtime::new([pose]), options)?)
}

fn feed(session: &mut Session, passes: &Passes) -> anyhow::Result<()> {
    let mut logits = Vec::new();
    for &tokens in &passes.last {
        session.truncate(0);
        session.feed(&vec![0; tokens], &mut logits)?;
    }
    for &tokens in &passes.all {
        session.truncate(0);
        session.feed_all(&vec![0; tokens], |_, _| anyhow::Ok(()))?;
    }
    Ok(())
}

/// Passes behind which the device chooses tokens.
fn choose(session: &mut Session) -> anyhow::Result<()> {
    let banned = Selection {
        banned: [0].into(),
        ..Selection::best()
    };
    let several = Selection {
        best: Some(40),
        ..Selection::default()
    };
    let mut scores = Scores::default();
    for selection in [&Selection::best(), &banned, &several] {
        for rows in [1, 2] {
            session.truncate(0);
            session.feed_and_select(&vec![0; rows], selection, &mut scores)?;
        }
    }
    Ok(())
}
