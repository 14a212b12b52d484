//! The files of `scripts/torch-goldens.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use rustorch_dispatch::Value;
use rustorch_ir::DType;
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::Tensor;
use safetensors::SafeTensors;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::replay::compare::{Elements, Expected, How};

/// Contents of a folder.
#[derive(Deserialize)]
pub(crate) struct Manifest {
    /// PyTorch's version.
    pub(crate) torch: String,
    pub(crate) seed: u64,
    /// Names of operations, with those of their files.
    pub(crate) files: BTreeMap<String, String>,
}

impl Manifest {
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let manifest = read_json(&folder.join("manifest.json"));
        manifest.context("not a folder that scripts/torch-goldens.py made")
    }
}

pub(crate) fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// An operation's file.
#[derive(Deserialize)]
struct File {
    op: String,
    variant: String,
    cases: Vec<Sample>,
    errors: Vec<BadSample>,
}

/// A call that gives a result.
#[derive(Deserialize)]
pub(crate) struct Sample {
    dtype: String,
    sample: usize,
    #[serde(flatten)]
    arguments: Arguments,
    output: Json,
    compare: How,
    /// Dimension for [`How::Ties`].
    #[serde(default)]
    dim: isize,
    grad: Option<Gradients>,
}

/// Gradients of a call's arguments, from those of its results.
#[derive(Deserialize)]
pub(crate) struct Gradients {
    /// Numbers of the results that they begin with, among the tensors.
    pub(crate) from: Vec<usize>,
    pub(crate) cotangents: Vec<Json>,
    /// Places of the arguments.
    pub(crate) of: Vec<Vec<Json>>,
    pub(crate) grads: Vec<Json>,
    /// Gradients of the sum of all gradients.
    pub(crate) second: Option<Vec<Json>>,
}

/// A call that is refused.
#[derive(Deserialize)]
pub(crate) struct BadSample {
    error: usize,
    #[serde(flatten)]
    arguments: Arguments,
    #[serde(rename = "type")]
    kind: String,
    regex: String,
}

/// The arguments of a call.
#[derive(Deserialize)]
struct Arguments {
    input: Json,
    args: Vec<Json>,
    kwargs: Map<String, Json>,
}

/// A call by position and keyword.
pub(crate) type Given = (Vec<Value>, Vec<(String, Value)>);

/// The samples of an operation, and the bytes that their tensors are in.
pub(crate) struct Golden {
    file: File,
    bytes: Vec<u8>,
}

impl Golden {
    pub(crate) fn read(folder: &Path, stem: &str) -> Result<Self> {
        let path = folder.join(format!("{stem}.safetensors"));
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        let file = read_json(&folder.join(format!("{stem}.json")))?;
        Ok(Self { file, bytes })
    }

    pub(crate) fn op(&self) -> &str {
        &self.file.op
    }

    /// The name with its variant.
    pub(crate) fn full_name(&self) -> String {
        match self.file.variant.as_str() {
            "" => self.file.op.clone(),
            variant => format!("{}.{variant}", self.file.op),
        }
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.file.cases
    }

    pub(crate) fn bad_samples(&self) -> impl Iterator<Item = &BadSample> {
        self.file.errors.iter()
    }

    /// The tensors of the samples.
    pub(crate) fn tensors(&self) -> Result<Tensors<'_>> {
        let tensors = SafeTensors::deserialize(&self.bytes);
        Ok(Tensors(tensors.with_context(|| self.full_name())?))
    }
}

impl Sample {
    pub(crate) fn name(&self) -> String {
        format!("{} #{}", self.dtype, self.sample)
    }

    pub(crate) fn how(&self) -> How {
        self.compare
    }

    pub(crate) fn dim(&self) -> isize {
        self.dim
    }

    pub(crate) fn gradients(&self) -> Option<&Gradients> {
        self.grad.as_ref()
    }

    pub(crate) fn given(&self, tensors: &Tensors) -> Result<Given> {
        self.arguments.given(tensors)
    }

    pub(crate) fn expected(&self, tensors: &Tensors) -> Result<Expected> {
        tensors.expected(&self.output)
    }
}

impl BadSample {
    pub(crate) fn name(&self) -> String {
        format!("error #{}", self.error)
    }

    pub(crate) fn given(&self, tensors: &Tensors) -> Result<Given> {
        self.arguments.given(tensors)
    }

    /// Returns whether there are no such arguments in PyTorch.
    pub(crate) fn is_type_error(&self) -> bool {
        self.kind == "TypeError"
    }

    /// PyTorch's message.
    pub(crate) fn error(&self) -> String {
        format!("{}: {}", self.kind, self.regex)
    }
}

impl Arguments {
    fn given(&self, tensors: &Tensors) -> Result<Given> {
        let positional = [&self.input].into_iter().chain(&self.args);
        let positional = positional.map(|json| tensors.value(json));
        let keywords = (self.kwargs.iter())
            .map(|(name, json)| Ok((name.clone(), tensors.value(json)?)))
            .collect::<Result<_>>()?;
        Ok((positional.collect::<Result<_>>()?, keywords))
    }
}

/// A tensor in JSON.
#[derive(Deserialize)]
struct Placed {
    tensor: String,
    dtype: String,
    shape: Vec<usize>,
    strides: Option<Vec<usize>>,
    #[serde(default)]
    offset: usize,
    /// Relative tolerance of results.
    #[serde(default)]
    rtol: f64,
    #[serde(default)]
    atol: f64,
    /// Elements of half-precision results in double precision, where these differ.
    truth: Option<String>,
}

pub(crate) struct Tensors<'a>(pub(crate) SafeTensors<'a>);

impl Tensors<'_> {
    fn run(&self, placed: &Placed) -> Result<&[u8]> {
        let view = self.0.tensor(&placed.tensor);
        Ok(view.with_context(|| placed.tensor.clone())?.data())
    }

    pub(crate) fn tensor(&self, json: &Json) -> Result<Tensor> {
        let placed = Placed::deserialize(json)?;
        let dtype: DType = placed.dtype.parse()?;
        let bytes = self.run(&placed)?;
        let run = tensor_of(bytes, &[bytes.len() / dtype.size().unwrap_or(1)], dtype)?;
        Ok(match placed.strides {
            None => run.reshape(&placed.shape[..])?,
            Some(strides) => run.as_strided(&placed.shape, &strides, placed.offset)?,
        })
    }

    pub(crate) fn value(&self, json: &Json) -> Result<Value> {
        let list = |parts: &[Json]| -> Result<Vec<Value>> {
            parts.iter().map(|part| self.value(part)).collect()
        };
        Ok(match json {
            Json::Null => Value::None,
            Json::Bool(x) => Value::Bool(*x),
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(parts) => Value::List(list(parts)?),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Value::Int(int),
                None => Value::Float(number.as_f64().context("a number")?),
            },
            Json::Object(object) => {
                let (kind, inner) = object.iter().next().context("an empty object")?;
                match (kind.as_str(), inner) {
                    ("tensor", _) => Value::Tensor(self.tensor(json)?),
                    ("tuple", Json::Array(parts)) => Value::Tuple(list(parts)?),
                    ("float", Json::String(text)) => Value::Float(text.parse()?),
                    ("complex", Json::Array(parts)) => self.complex(parts)?,
                    ("dtype", Json::String(name)) => Value::DType(name.parse()?),
                    ("slice", Json::Array(parts)) => slice(parts)?,
                    ("ellipsis", _) => Value::Ellipsis,
                    (kind, inner) => Value::Other(format!("{kind} {inner}")),
                }
            }
        })
    }

    fn complex(&self, parts: &[Json]) -> Result<Value> {
        match parts {
            [re, im] => match (self.value(re)?, self.value(im)?) {
                (Value::Float(re), Value::Float(im)) => Ok(Value::Complex(re, im)),
                _ => bail!("a complex number of other than floats"),
            },
            _ => bail!("a complex number of {} parts", parts.len()),
        }
    }

    pub(crate) fn expected(&self, json: &Json) -> Result<Expected> {
        Ok(match json {
            Json::Array(parts) => {
                let parts = parts.iter().map(|part| self.expected(part));
                Expected::List(parts.collect::<Result<_>>()?)
            }
            Json::Object(object) if object.contains_key("tensor") => {
                let placed = Placed::deserialize(json)?;
                let dtype: DType = placed.dtype.parse()?;
                let truth = placed.truth.as_ref().map(|name| {
                    let bytes = self.0.tensor(name).with_context(|| name.clone())?.data();
                    Elements::decode(DType::F64, bytes).context("doubles")
                });
                Expected::Tensor {
                    dtype,
                    truth: truth.transpose()?,
                    elements: Elements::decode(dtype, self.run(&placed)?)
                        .ok_or_else(|| anyhow!("elements of {dtype}"))?,
                    shape: placed.shape,
                    rtol: placed.rtol,
                    atol: placed.atol,
                }
            }
            other => match self.value(other)? {
                Value::Tuple(values) => {
                    Expected::List((values.into_iter()).map(Expected::Value).collect())
                }
                value => Expected::Value(value),
            },
        })
    }
}

/// `None` and two or three whole numbers, or `None` in their places.
fn slice(parts: &[Json]) -> Result<Value> {
    match parts {
        [start, end, step] => Ok(Value::Slice([start, end, step].map(Json::as_i64))),
        _ => bail!(
            "a slice has {} parts; it needs start, end and step",
            parts.len()
        ),
    }
}

/// A tensor of elements as memory holds them.
pub(crate) fn tensor_of(bytes: &[u8], shape: &[usize], dtype: DType) -> Result<Tensor> {
    let buffer = HostBuffer::copy_of(bytes).context("out of memory")?;
    Ok(Tensor::from_storage(
        Storage::from_host(buffer),
        shape,
        dtype,
    )?)
}
