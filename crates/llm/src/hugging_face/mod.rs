//! Models as Hugging Face's `transformers` saves them: a folder with `config.json`, safetensors files and a tokenizer.
//!
//! A folder becomes a model with GGUF's keys and names, so that everything else knows one kind of model. The tables of
//! `family` describe each type. Tensors that are the same in both stay in their files; the others are made when they
//! are used.

mod change;
mod config;
mod encoder;
mod family;
mod latent;
mod pre_tokenizer;
mod rope;
mod sentence_piece;
mod vocabulary;

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rustorch_files::safetensors::{self, Part};
use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata};
use rustorch_ir::DType;
use serde::Deserialize;

use crate::LlmError;
use crate::keys::MAX_LAYERS;
use crate::model::Model;
use crate::quantize::{FORMATS, FileType};

use change::{Change, Changed, Matrices, Rows, type_of};
use config::Config;
use family::{Family, Key, Kind, Op, Row};
use rope::Draft;

/// Bytes of an MXFP4 block's elements.
const BLOCK_BYTES: usize = 16;

/// The folder of a model at a path, which may be a safetensors file in it.
pub fn folder(path: &Path) -> Option<PathBuf> {
    let is_part = || path.extension().is_some_and(|end| end == "safetensors");
    match path.is_dir() {
        true => Some(path.to_owned()),
        false if is_part() => Some(path.parent()?.to_owned()),
        false => None,
    }
}

/// The files of a folder that hold its weights.
///
/// # Errors
/// Fails if there are no files, or if their index cannot be read.
pub fn weights(folder: &Path) -> Result<Vec<PathBuf>, LlmError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let whole = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    if whole.exists() {
        return Ok(vec![whole]);
    }
    if !index.exists() {
        let problem = "there is no model.safetensors and no model.safetensors.index.json; fetch the model in this format";
        return Err(LlmError::folder(folder, problem));
    }
    let Index { weight_map } = config::json(&index)?;
    let mut names: Vec<String> = weight_map.into_values().collect();
    names.sort();
    names.dedup();
    // Names, not ways to other folders.
    if let Some(name) = names
        .iter()
        .find(|name| Path::new(name).components().count() != 1)
    {
        let problem = format!("{name:?} is not a file of the folder");
        return Err(LlmError::folder(&index, problem));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// The model in a folder, in the form of a GGUF file. Tensors are computed only when they are used.
///
/// # Errors
/// Fails if a file is missing or damaged. Also fails for an unsupported model type, key, tensor or
/// vocabulary.
pub fn open(folder: &Path) -> Result<Gguf, LlmError> {
    let (writer, tensors) = translate(folder)?;
    let data = tensors.into_iter().map(Changed::shared).collect();
    Ok(writer.over(data)?)
}

/// Writes the model of a folder as a GGUF file. `progress` is called before each tensor with its
/// position and the number of tensors, and may stop there. Then nothing is written, and the result
/// is a break.
///
/// # Errors
/// The same errors as [`open`]. Also fails if the model lacks a tensor, or if the file cannot be
/// written.
pub fn convert(
    folder: &Path,
    output: &Path,
    mut progress: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, LlmError> {
    Model::check(&open(folder)?)?;
    let (writer, tensors) = translate(folder)?;
    let count = tensors.len();
    let mut rest = tensors.into_iter().enumerate();
    let mut is_stopped = false;
    let written = writer.write(output, |_, out| {
        let Some((index, tensor)) = rest.next() else {
            return Ok(());
        };
        is_stopped = progress(index, count).is_break();
        match is_stopped {
            true => Err(io::Error::other("stopped")),
            false => out.write_all((*tensor.shared()).as_ref()),
        }
    });
    match is_stopped {
        true => Ok(ControlFlow::Break(())),
        false => Ok(ControlFlow::Continue(written?)),
    }
}

/// The keys, and the tensors with the way to their bytes.
fn translate(folder: &Path) -> Result<(GgufWriter, Vec<Changed>), LlmError> {
    let (family, config) = family_of(folder)?;
    let mut draft = draft(folder, family, &config)?;
    let mut groups = Groups::new(family, &config, &draft);
    for path in weights(folder)? {
        for (name, part) in safetensors::parts(&path)? {
            groups.add(&name, part)?;
        }
    }
    let numbers = groups.numbers()?;
    let mut tensors = groups.finish()?;
    let table = tensors.iter().find(|t| t.name == "token_embd.weight");
    let Some(&[rows, _]) = table.map(|table| &table.shape[..]) else {
        let problem = format!(
            "the table of tokens, such as {}embed_tokens.weight, is missing",
            family.prefix
        );
        return Err(LlmError::folder(folder, problem));
    };
    if let Some(size) = config
        .opt_size(&["vocab_size"])?
        .filter(|n| *n as usize != rows)
    {
        let problem = format!("expected {rows}, the rows of the table of tokens, got {size}");
        return Err(config.wrong("vocab_size", problem));
    }
    for (name, factors) in std::mem::take(&mut draft.factors) {
        tensors.push(factors_tensor(name, &factors));
    }
    let mut metadata = draft.metadata;
    for (key, numbers) in numbers {
        metadata.insert(key, numbers);
    }
    metadata.insert("general.file_type", file_type(&tensors).id());
    metadata.insert("general.quantization_version", FORMATS);
    vocabulary::vocabulary(folder, &config, rows, &mut metadata)?;
    let mut writer = GgufWriter::new(metadata);
    for tensor in &tensors {
        let dims: Vec<u64> = tensor.shape.iter().rev().map(|&n| n as u64).collect();
        writer.add_tensor(&*tensor.name, dims, tensor.ty)?;
    }
    Ok((writer, tensors))
}

/// The description of a folder's type, and its keys.
fn family_of(folder: &Path) -> Result<(&'static Family, Config), LlmError> {
    let config = Config::read(folder)?;
    let kinds = ["model_type", "text_model_type"].map(|key| config.text(key));
    let found = kinds.into_iter().flatten().find_map(family::named);
    let Some(family) = found else {
        let problem = match kinds[0] {
            Some(kind) => format!(
                "{kind:?} is not supported; {} are",
                family::types().join(", ")
            ),
            None => "missing; fetch the model's own config.json".to_owned(),
        };
        return Err(config.wrong("model_type", problem));
    };
    if let Some(quantization) = config.object("quantization_config") {
        let method = quantization.get("quant_method").and_then(|m| m.as_str());
        if method != Some("mxfp4") {
            let method = method.unwrap_or("unnamed");
            let problem =
                format!("{method:?} is not supported; fetch the model in BF16 or as GGUF");
            return Err(config.wrong("quantization_config", problem));
        }
    }
    let config = config.with_defaults(family.defaults);
    for &(key, allowed) in family.fixed {
        let found = config.get(&[key]).map(|(_, value)| value.to_string());
        if let Some(found) = found.filter(|found| !allowed.contains(&found.as_str())) {
            let allowed = allowed.join(" or ");
            let kind = family.architecture;
            return Err(config.wrong(key, format!("expected {allowed} for {kind}, got {found}")));
        }
    }
    Ok((family, config))
}

/// The keys but those of the vocabulary.
fn draft(folder: &Path, family: &'static Family, config: &Config) -> Result<Draft, LlmError> {
    let layers = config.size(family::LAYERS)?;
    if layers as usize > MAX_LAYERS {
        let problem = format!("{layers} layers are more than {MAX_LAYERS}");
        return Err(config.wrong(family::LAYERS[0], problem));
    }
    let width = config.size(family::WIDTH)? as usize;
    let heads = config.size(family::HEADS)? as usize;
    let head_width = match config.opt_size(&["head_dim"])? {
        Some(width) if width > 0 => width as usize,
        _ if width.is_multiple_of(heads) => width / heads,
        _ => {
            let problem = format!("{width} features are not of {heads} heads");
            return Err(config.wrong("hidden_size", problem));
        }
    };
    let mut metadata = Metadata::new();
    let name = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    metadata.insert("general.architecture", family.architecture);
    metadata.insert("general.type", "model");
    metadata.insert(
        "general.name",
        &*name.file_name().unwrap_or_default().to_string_lossy(),
    );
    let mut draft = Draft {
        metadata,
        architecture: family.architecture,
        layers: layers as usize,
        width,
        heads,
        kv_heads: kv_heads(config, heads)?,
        head_width,
        plain: 0,
        factors: Vec::new(),
    };
    draft.size("block_count", layers);
    for Key { to, from, kind } in family::KEYS.iter().chain(family.keys) {
        match kind {
            Kind::Size => {
                if let Some(size) = config.opt_size(from)? {
                    draft.size(to, size);
                }
            }
            Kind::Number => {
                if let Some(number) = config.opt_number(from)? {
                    draft.number(to, number);
                }
            }
            Kind::Flag => {
                if let Some(flag) = from.iter().find_map(|key| config.flag(key)) {
                    draft.set(to, flag);
                }
            }
        }
    }
    draft.size("attention.head_count_kv", draft.kv_heads as u32);
    // GPT-2 and others have four times the width.
    let inner = config.opt_size(family::FEED_FORWARD)?;
    draft.size("feed_forward_length", inner.unwrap_or(4 * width as u32));
    for key in ["attention.key_length", "attention.value_length"] {
        draft.size(key, head_width as u32);
    }
    let gating = ["scoring_func", "score_func"];
    match gating.iter().find_map(|key| config.text(key)) {
        Some("softmax") => draft.size("expert_gating_func", 1),
        Some("sigmoid") => draft.set_sigmoid_gating(),
        Some(other) => {
            let problem = format!("expected \"softmax\" or \"sigmoid\", got {other:?}");
            return Err(config.wrong(gating[0], problem));
        }
        None => {}
    }
    rope::rotation(config, &mut draft)?;
    encoder::modules(config, &mut draft)?;
    (family.also)(config, &mut draft)?;
    Ok(draft)
}

/// The number of key heads.
fn kv_heads(config: &Config, heads: usize) -> Result<usize, LlmError> {
    let is_new = config.flag("new_decoder_architecture");
    let own = config.opt_size(family::KV_HEADS)?.filter(|n| *n > 0);
    Ok(match own {
        // Falcon's older models have one or all.
        _ if is_new == Some(false) && config.flag("multi_query") == Some(true) => 1,
        _ if is_new == Some(false) => heads,
        Some(own) => own as usize,
        None => heads,
    })
}

/// A tensor of numbers.
fn factors_tensor(name: &str, factors: &[f32]) -> Changed {
    let bytes: Vec<u8> = factors.iter().flat_map(|x| x.to_le_bytes()).collect();
    let part = Part {
        dtype: DType::F32,
        shape: vec![factors.len()],
        data: bytes.into(),
    };
    Changed {
        name: name.to_owned(),
        shape: part.shape.clone(),
        ty: GgmlType::F32,
        change: Change::Floats {
            tensors: vec![Matrices::new(part, false, false)],
            rows: Rows::All,
            add: 0.0,
        },
    }
}

/// The file type whose base most weights have.
fn file_type(tensors: &[Changed]) -> FileType {
    let elements = |file_type: &FileType| {
        let own = tensors.iter().filter(|t| t.ty == file_type.base());
        own.map(|tensor| tensor.shape.iter().product::<usize>())
            .sum::<usize>()
    };
    let types = [
        FileType::F32,
        FileType::F16,
        FileType::BF16,
        FileType::Mxfp4Moe,
    ];
    let most = types.into_iter().max_by_key(elements);
    most.unwrap_or(FileType::F32)
}

/// The tensors of the files that become one of GGUF.
struct Group {
    op: Op,
    /// Whether it is made of one tensor for each expert.
    is_stacked: bool,
    /// The tensors and their names, by their place.
    parts: BTreeMap<usize, (String, Part)>,
}

/// Tensors by the layer and the name of what they become.
struct Groups<'a> {
    family: &'static Family,
    draft: &'a Draft,
    experts: usize,
    is_tied: bool,
    groups: BTreeMap<(usize, String), Group>,
    problems: Vec<LlmError>,
}

impl<'a> Groups<'a> {
    fn new(family: &'static Family, config: &Config, draft: &'a Draft) -> Self {
        let experts = config.opt_size(family::EXPERTS).ok().flatten();
        Self {
            family,
            draft,
            experts: experts.unwrap_or(0) as usize,
            is_tied: config.flag("tie_word_embeddings") == Some(true),
            groups: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    fn wrong(&mut self, name: &str, problem: impl ToString) {
        self.problems.push(LlmError::weight(name, problem));
    }

    /// Puts a tensor where it belongs.
    fn add(&mut self, full: &str, part: Part) -> Result<(), LlmError> {
        let name = full.replacen("language_model.", "", 1);
        let mut ignored = self.family.ignored.iter();
        if is_ignored(&name) || ignored.any(|begin| name.starts_with(begin)) {
            return Ok(());
        }
        let (stem, end) = ends(&name);
        let stem = stem.strip_prefix(self.family.prefix).unwrap_or(stem);
        if self.is_tied && matches!(stem, "lm_head" | "embed_out") {
            return Ok(());
        }
        let layer = stem.strip_prefix(self.family.layer);
        let layer = layer.and_then(|rest| rest.split_once('.'));
        let layer = layer.and_then(|(index, rest)| Some((index.parse::<usize>().ok()?, rest)));
        let found = match layer {
            // Layers beyond the model's own predict several tokens at once.
            Some((index, _)) if index >= self.draft.layers => return Ok(()),
            Some((_, rest)) => find(self.family.names, rest),
            None => find(self.family.globals, stem),
        };
        let Some((row, expert)) = found else {
            let kind = self.family.types.join(" or ");
            self.wrong(full, format!("not a tensor of the model type {kind}"));
            return Ok(());
        };
        for &(to, op) in row.to {
            let ends = [".weight", ".bias", ".scale"];
            let is_whole = ends.iter().any(|end| to.ends_with(end));
            let end = match (is_whole, end) {
                (true, _) => "",
                (false, "") => ".weight",
                (false, end) => end,
            };
            let (order, name) = match layer {
                Some((index, _)) => (index + 1, format!("blk.{index}.{to}{end}")),
                None => (0, format!("{to}{end}")),
            };
            let group = self.groups.entry((order, name)).or_insert_with(|| Group {
                op,
                is_stacked: expert.is_some(),
                parts: BTreeMap::new(),
            });
            let place = match op {
                Op::Scales(..) => 1,
                _ => expert.unwrap_or(0),
            };
            if let Op::Blocks(..) = op {
                group.op = op;
            }
            let old = group.parts.insert(place, (full.to_owned(), part.clone()));
            if let Some((old, _)) = old {
                self.wrong(full, format!("has the same place as {old}"));
            }
        }
        Ok(())
    }

    /// Takes out the numbers that are keys, by layer.
    ///
    /// # Errors
    /// Fails if a layer lacks one, or if a tensor is not one number.
    fn numbers(&mut self) -> Result<BTreeMap<String, Vec<f32>>, LlmError> {
        let is_number = |group: &Group| matches!(group.op, Op::Number);
        let mut numbers: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        let taken: Vec<_> = self
            .groups
            .extract_if(.., |_, group| is_number(group))
            .collect();
        for ((layer, name), group) in taken {
            let key = name.splitn(3, '.').last().unwrap_or(&name);
            let key = key.trim_end_matches(".weight").trim_end_matches(".bias");
            let key = key.to_owned();
            let list = numbers.entry(key).or_default();
            for (full, part) in group.parts.into_values() {
                let number = one_number(&part).filter(|_| layer == list.len() + 1);
                let problem = "expected one number in each layer";
                list.push(number.ok_or_else(|| LlmError::weight(&full, problem))?);
            }
        }
        match numbers
            .iter()
            .find(|(_, list)| list.len() != self.draft.layers)
        {
            Some((key, list)) => {
                let problem = format!("{} of {} layers", list.len(), self.draft.layers);
                Err(LlmError::weight(key, problem))
            }
            None => Ok(numbers),
        }
    }

    /// All tensors.
    ///
    /// # Errors
    /// Fails if this model type has no such tensor, or for another shape or dtype.
    fn finish(mut self) -> Result<Vec<Changed>, LlmError> {
        let mut tensors = Vec::with_capacity(self.groups.len());
        for ((_, name), group) in std::mem::take(&mut self.groups) {
            let first = group.parts.values().next().map(|(name, _)| name.clone());
            match self.change(name, group) {
                Ok(changed) => tensors.push(changed),
                Err(problem) => self.wrong(&first.unwrap_or_default(), problem),
            }
        }
        LlmError::of(self.problems)?;
        Ok(tensors)
    }

    /// A tensor that has elements. Matrices of experts or heads that are one below the other have a dimension of these
    /// then.
    fn stacked(&self, mut part: Part, op: Op) -> Result<Part, String> {
        if part.shape.contains(&0) {
            return Err(format!("no elements: {:?}", part.shape));
        }
        let (count, name) = match op {
            Op::Stacked | Op::StackedTransposed => (self.experts, "experts"),
            Op::HeadKeys | Op::HeadValues => (self.draft.heads, "heads"),
            _ => return Ok(part),
        };
        let &[rows, columns] = &part.shape[..] else {
            return Err(format!("expected 2 dimensions, got {:?}", part.shape));
        };
        if count == 0 || !rows.is_multiple_of(count) {
            return Err(format!("{rows} rows are not of {count} {name}"));
        }
        part.shape = vec![count, rows / count, columns];
        Ok(part)
    }

    /// The rows of a tensor, and their order.
    fn rows(&self, op: Op) -> Rows {
        let (heads, kv_heads) = (self.draft.heads, self.draft.kv_heads);
        match op {
            Op::Queries => Rows::Neighbours { heads },
            Op::Keys => Rows::Neighbours { heads: kv_heads },
            Op::ByKind => Rows::ByKind {
                groups: kv_heads,
                queries: heads / kv_heads,
            },
            Op::Part(index, of) | Op::ColumnPart(index, of) | Op::ExpertsPart(index, of) => {
                Rows::Part(index, of)
            }
            Op::Behind(first) => Rows::Behind(first),
            Op::HeadValues => Rows::Behind(self.draft.plain),
            Op::Every(first, of) | Op::EveryColumn(first, of) => Rows::Every(first, of),
            _ => Rows::All,
        }
    }

    /// One tensor.
    fn change(&self, name: String, group: Group) -> Result<Changed, String> {
        if let Op::Blocks(first, of) | Op::Scales(first, of) = group.op {
            return mxfp4(name, group, Rows::Every(first, of));
        }
        let count = group.parts.len();
        let last = group.parts.keys().next_back().copied().unwrap_or(0);
        if group.is_stacked && (count != self.experts || last + 1 != count) {
            return Err(format!("{count} experts, of {}", self.experts));
        }
        let is_bias = name.ends_with(".bias");
        let shape = group.parts.values().next().map(|(_, part)| &part.shape[..]);
        let is_transposed = match (group.op, shape) {
            (
                Op::Transposed
                | Op::StackedTransposed
                | Op::EveryColumn(..)
                | Op::ColumnPart(..)
                | Op::HeadKeys,
                _,
            ) => true,
            // The width of the model is on the side of the input, or of the result.
            (Op::ExpertsPart(..), Some([.., rows, _])) => *rows == self.draft.width,
            (Op::ExpertsLast, Some([.., columns])) => *columns == self.draft.width,
            _ => false,
        };
        let rows = self.rows(group.op);
        let parts = group.parts.into_values();
        let parts = parts.map(|(_, part)| self.stacked(part, group.op));
        let tensors = parts.map(|part| Ok(Matrices::new(part?, is_bias, is_transposed)));
        let mut tensors = tensors.collect::<Result<Vec<_>, String>>()?;
        if let Op::HeadKeys = group.op {
            for tensor in &mut tensors {
                tensor.keep_columns(self.draft.plain)?;
            }
        }
        let first = &tensors[0];
        let (dtype, shape) = (first.part.dtype, first.part.shape.clone());
        if tensors
            .iter()
            .any(|t| t.part.dtype != dtype || t.part.shape != shape)
        {
            return Err("experts of several shapes or dtypes".to_owned());
        }
        let Some(own) = type_of(dtype) else {
            return Err(format!("{dtype} is not supported; fetch the model in BF16"));
        };
        let is_vector = is_bias || shape.len() < 2;
        let mut shape = shape;
        if let Some(n) = shape.last_mut().filter(|_| is_vector) {
            *n = rows.count(first.rows)?;
        } else if let [.., r, c] = &mut shape[..] {
            (*r, *c) = (rows.count(first.rows)?, first.kept);
        }
        if group.is_stacked {
            shape.insert(0, count);
        } else if shape.len() == 2 && shape[0] == 1 && (is_bias || name.contains("_inp_shexp")) {
            shape.remove(0);
        }
        Ok(Changed {
            ty: match is_single(&name, shape.len()) {
                true => GgmlType::F32,
                false => own,
            },
            name,
            shape,
            change: Change::Floats {
                tensors,
                rows,
                add: match group.op {
                    Op::AddOne if !is_bias => 1.0,
                    _ => 0.0,
                },
            },
        })
    }
}

/// The number of a tensor with one element.
fn one_number(part: &Part) -> Option<f32> {
    let count: usize = part.shape.iter().product();
    let bytes = (count == 1).then(|| change::single(&part.data, part.dtype, 0.0))?;
    type_of(part.dtype)?;
    bytes.try_into().ok().map(f32::from_le_bytes)
}

/// Blocks of 4 bits, from blocks and their scales.
fn mxfp4(name: String, group: Group, rows: Rows) -> Result<Changed, String> {
    let parts: Vec<_> = group.parts.into_values().collect();
    let [(_, blocks), (_, scales)] = <[_; 2]>::try_from(parts)
        .map_err(|_| "blocks or scales of MXFP4 are missing".to_owned())?;
    let (&[experts, all, per_row, BLOCK_BYTES], DType::U8, DType::U8) =
        (&blocks.shape[..], blocks.dtype, scales.dtype)
    else {
        return Err(format!("{:?} are not blocks of MXFP4", blocks.shape));
    };
    if scales.shape != [experts, all, per_row] {
        let (blocks, scales) = (&blocks.shape, &scales.shape);
        return Err(format!("{scales:?} scales for {blocks:?} blocks of MXFP4"));
    }
    Ok(Changed {
        name,
        shape: vec![experts, rows.count(all)?, per_row * 2 * BLOCK_BYTES],
        ty: GgmlType::Mxfp4,
        change: Change::Mxfp4 {
            blocks,
            scales,
            rows,
        },
    })
}

/// Is a tensor of this name and rank in single precision, whatever its file has? llama.cpp wants that.
fn is_single(name: &str, rank: usize) -> bool {
    rank < 2
        || !name.ends_with(".weight")
        || name.ends_with("_norm.weight")
        || name.contains(".ffn_gate_inp")
        || name.starts_with("position_embd")
}

/// A name without its end, and that.
fn ends(name: &str) -> (&str, &str) {
    // Old files of BERT have the names of TensorFlow.
    let known = [
        (".weight", ".weight"),
        (".bias", ".bias"),
        (".gamma", ".weight"),
        (".beta", ".bias"),
    ];
    let found = known
        .iter()
        .find_map(|&(own, end)| Some((name.strip_suffix(own)?, end)));
    found.unwrap_or((name, ""))
}

/// The first row for a name, and the expert's number in it.
fn find(tables: &'static [&'static [Row]], name: &str) -> Option<(&'static Row, Option<usize>)> {
    let mut rows = tables.iter().copied().flatten();
    rows.find_map(|row| match row.from.split_once('#') {
        None => (row.from == name).then_some((row, None)),
        Some((begin, end)) => {
            let expert = name.strip_prefix(begin)?.strip_suffix(end)?;
            Some((row, Some(expert.parse().ok()?)))
        }
    })
}

/// Returns whether this is a tensor of no use: a constant, or a part for images, for sounds or for predicting several
/// tokens.
fn is_ignored(name: &str) -> bool {
    const CONSTANTS: [&str; 6] = [
        ".rotary_emb.inv_freq",
        ".attention.bias",
        ".attention.masked_bias",
        ".attn.bias",
        ".attn.masked_bias",
        "embeddings.position_ids",
    ];
    const OTHERS: [&str; 4] = ["vision_", "visual.", "audio_", "multi_modal_projector."];
    CONSTANTS.iter().any(|end| name.ends_with(end))
        || OTHERS.iter().any(|part| name.contains(part))
        || name.starts_with("mtp.")
}
