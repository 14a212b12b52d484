//! `embed`: texts to vectors.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rustorch_files::{Tensors, npy, safetensors};
use rustorch_llm::spec::Pooling;
use rustorch_llm::{Encoder, EncoderOptions, Scaling, cosine};
use rustorch_tensor::Tensor;

use crate::args::{EncoderArgs, PoolingArg};
use crate::devices::Devices;
use crate::failure::Usage;
use crate::model::Source;
use crate::output::json_line;
use crate::text;

const EXAMPLES: &str = "\
Examples:
  rustorch-cli embed -m FOLDER \"A cat sat.\" \"A dog ran.\"    print an array of two vectors
  rustorch-cli embed -m model.gguf -f lines.txt -o v.npy     embed each line of a file
  rustorch-cli embed -m FOLDER --similarity -f lines.txt     print the cosine of each pair of lines

Without texts, -p and -f, each line of standard input is a text. Empty lines are left out.";

/// Format of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum VectorFormat {
    /// One array for each text
    Json,
    /// A matrix
    Npy,
    /// A matrix by the name `embeddings`
    Safetensors,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Texts
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,

    /// One more text
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,

    /// File of texts, one per line, in UTF-8; - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Pooling of tokens into a text's vector [default: the model's]
    #[arg(long, value_enum, value_name = "KIND")]
    pooling: Option<PoolingArg>,

    /// Scaling of vectors: -1 none, 0 to the range of 16-bit numbers, 1 taxicab norm, 2 Euclidean norm, more for
    /// other p-norms
    #[arg(
        long,
        visible_alias = "embd-normalize",
        value_name = "N",
        default_value_t = 2
    )]
    #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1..))]
    normalize: i32,

    /// Print the cosine of each pair of texts instead of vectors
    #[arg(long)]
    similarity: bool,

    /// Format of the result [default: by the file's extension, else json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<VectorFormat>,

    /// File of the result [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    encoder: EncoderArgs,
}

impl Options {
    fn format(&self) -> VectorFormat {
        let end = self.output.as_ref().and_then(|path| path.extension());
        let by_end = end.and_then(|end| VectorFormat::from_str(end.to_str()?, true).ok());
        self.format.or(by_end).unwrap_or(VectorFormat::Json)
    }

    fn given(&self) -> Result<Vec<String>> {
        let given = self.texts.iter().chain(&self.prompt).cloned().collect();
        text::listed(given, self.file.as_deref(), "texts, -p")
    }
}

pub(super) fn run(options: &Options) -> Result<()> {
    let texts = options.given()?;
    let devices = Devices::open(&options.encoder.devices)?;
    let model = Source::from(&options.encoder.model).load()?;
    let settings = EncoderOptions {
        pooling: options.pooling.map(Pooling::from),
        scaling: Scaling::from(options.normalize),
        ..options.encoder.options(&devices)
    };
    let mut encoder = Encoder::new(&model, &devices.runtime, settings)?;
    if options.similarity && encoder.pooling() == Pooling::None {
        let problem =
            "--similarity: pooling none gives no vector of a text; give another --pooling";
        return Err(Usage(problem.to_owned()).into());
    }
    let vectors = encoder.embed(&texts)?;
    // Vectors of tokens are beside each other.
    let width = match encoder.pooling() {
        Pooling::None => Some(encoder.width()),
        _ => None,
    };
    match options.similarity {
        true => options.write(&similarities(&vectors), None),
        false => options.write(&vectors, width),
    }
}

/// The cosine of each pair.
fn similarities(vectors: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let row = |a: &Vec<f32>| vectors.iter().map(|b| cosine(a, b)).collect();
    vectors.iter().map(row).collect()
}

impl Options {
    /// Writes rows; with a `width`, each is several vectors.
    fn write(&self, rows: &[Vec<f32>], width: Option<usize>) -> Result<()> {
        let Some(path) = &self.output else {
            return self.write_to(&mut io::stdout().lock(), rows, width);
        };
        let name = || format!("{}: cannot write the file", path.display());
        let file = File::create(path).with_context(name)?;
        let mut out = BufWriter::new(file);
        self.write_to(&mut out, rows, width).with_context(name)
    }

    fn write_to(
        &self,
        out: &mut impl Write,
        rows: &[Vec<f32>],
        width: Option<usize>,
    ) -> Result<()> {
        match (self.format(), width) {
            (VectorFormat::Json, None) => json_line(out, &rows)?,
            (VectorFormat::Json, Some(width)) => {
                let texts = rows.iter().map(|row| row.chunks_exact(width).collect());
                json_line(out, &texts.collect::<Vec<Vec<&[f32]>>>())?;
            }
            (VectorFormat::Npy, width) => npy::write(out, &matrix(rows, width)?)?,
            (VectorFormat::Safetensors, width) => {
                let mut tensors = Tensors::new();
                tensors.insert("embeddings", matrix(rows, width)?);
                safetensors::write(out, &tensors)?;
            }
        }
        Ok(out.flush()?)
    }
}

/// A matrix of all vectors.
fn matrix(rows: &[Vec<f32>], width: Option<usize>) -> Result<Tensor> {
    let all = rows.concat();
    let width = width.or(rows.first().map(Vec::len)).unwrap_or(0);
    let count = all.len() / width.max(1);
    Ok(Tensor::from_vec(all, [count, width])?)
}
