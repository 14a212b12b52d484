//! Changes between a folder's tensors and GGUF's: row order, parts, sums, other floats.

use std::sync::OnceLock;

use half::{bf16, f16};
use rustorch_files::safetensors::Part;
use rustorch_gguf::{GgmlType, SharedBytes};
use rustorch_ir::DType;

/// Bytes at whose multiples devices want memory that they use in place.
const ALIGNMENT: usize = 8;

/// Elements of an MXFP4 block.
const BLOCK: usize = 32;

/// The rows of a matrix that a tensor has, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// The whole tensor, unchanged.
    All,
    /// One of several equal parts.
    Part(usize, usize),
    /// All behind the first ones.
    Behind(usize),
    /// Each n-th row, from one on.
    Every(usize, usize),
    /// Pairs of rows that are rotated together, placed side by side: in each head they were half a
    /// head apart.
    Neighbours {
        /// Heads.
        heads: usize,
    },
    /// All queries, then all keys, then all values: they were grouped by key head.
    ByKind {
        /// Key heads.
        groups: usize,
        /// Query heads of a key head.
        queries: usize,
    },
}

impl Rows {
    /// The number of rows, of `all`.
    ///
    /// # Errors
    /// Fails if the rows do not consist of whole parts, pairs or heads.
    pub(super) fn count(self, all: usize) -> Result<usize, String> {
        let (unit, of) = match self {
            Self::All => (1, 1),
            Self::Behind(first) => {
                let problem = format!("{all} rows are not more than {first}");
                return all.checked_sub(first).filter(|n| *n > 0).ok_or(problem);
            }
            Self::Part(_, of) | Self::Every(_, of) => (of, of),
            Self::Neighbours { heads } => (heads.saturating_mul(2), 1),
            Self::ByKind { groups, queries } => (groups.saturating_mul(queries + 2), 1),
        };
        match unit > 0 && all.is_multiple_of(unit) {
            true => Ok(all / of),
            false => Err(format!("{all} rows are not a multiple of {unit}")),
        }
    }

    /// The row of `all` that comes at place `i`.
    fn source(self, i: usize, all: usize) -> usize {
        match self {
            Self::All => i,
            Self::Behind(first) => first + i,
            Self::Part(part, of) => part * (all / of) + i,
            Self::Every(first, of) => i * of + first,
            Self::Neighbours { heads } => {
                let width = all / heads;
                let (head, row) = (i / width, i % width);
                head * width + row % 2 * (width / 2) + row / 2
            }
            Self::ByKind { groups, queries } => {
                let width = all / (groups * (queries + 2));
                let (head, row) = (i / width, i % width);
                let (group, place) = match head.checked_sub(groups * queries) {
                    None => (head / queries, head % queries),
                    Some(other) => (other % groups, queries + other / groups),
                };
                (group * (queries + 2) + place) * width + row
            }
        }
    }
}

/// A tensor of a file as matrices: all but its last two dimensions count them.
pub(super) struct Matrices {
    pub(super) part: Part,
    pub(super) outer: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Columns that are kept, the first ones; fewer than all only if rows and columns are exchanged.
    pub(super) kept: usize,
    /// Are rows and columns exchanged?
    pub(super) is_transposed: bool,
}

impl Matrices {
    /// The tensor; of a bias, each element is a row.
    pub(super) fn new(part: Part, is_bias: bool, is_transposed: bool) -> Self {
        let shape = part.shape.clone();
        let (outer, rows, columns) = match shape[..] {
            [] => (1, 1, 1),
            [n] => (1, n, 1),
            [ref outer @ .., n] if is_bias => (outer.iter().product(), n, 1),
            [ref outer @ .., r, c] if is_transposed => (outer.iter().product(), c, r),
            [ref outer @ .., r, c] => (outer.iter().product(), r, c),
        };
        Self {
            part,
            outer,
            rows,
            columns,
            kept: columns,
            is_transposed: is_transposed && columns > 1,
        }
    }

    /// Keeps the first columns alone. Rows and columns are exchanged.
    ///
    /// # Errors
    /// Fails if there are fewer.
    pub(super) fn keep_columns(&mut self, count: usize) -> Result<(), String> {
        if count >= self.columns {
            return Err(format!(
                "{} columns are not more than {count}",
                self.columns
            ));
        }
        self.kept = count;
        Ok(())
    }

    /// Bytes of an element.
    fn size(&self) -> usize {
        self.part.dtype.size().unwrap_or(1)
    }

    /// Appends the rows.
    fn write(&self, rows: Rows, out: &mut Vec<u8>) {
        let size = self.size();
        let matrix = self.rows * self.columns * size;
        let count = rows.count(self.rows).unwrap_or_default();
        for data in self.part.data.chunks_exact(matrix.max(1)) {
            for i in 0..count {
                let row = rows.source(i, self.rows);
                if self.is_transposed {
                    let element = |column| (column * self.rows + row) * size;
                    let elements = (0..self.kept).map(element);
                    elements.for_each(|at| out.extend_from_slice(&data[at..at + size]));
                } else {
                    let length = self.columns * size;
                    out.extend_from_slice(&data[row * length..][..length]);
                }
            }
        }
    }
}

/// The way from tensors of the files to one of GGUF.
pub(super) enum Change {
    /// Rows of several tensors, concatenated, as floats of one type.
    Floats {
        tensors: Vec<Matrices>,
        rows: Rows,
        /// Addend of all elements.
        add: f32,
    },
    /// Blocks of 4 bits and their scales.
    Mxfp4 {
        blocks: Part,
        scales: Part,
        rows: Rows,
    },
}

/// A tensor of GGUF.
pub(super) struct Changed {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) ty: GgmlType,
    pub(super) change: Change,
}

impl Changed {
    /// The bytes where the file has them, if nothing changes.
    fn in_place(&self) -> Option<SharedBytes> {
        let Change::Floats { tensors, rows, add } = &self.change else {
            return None;
        };
        let [tensor] = &tensors[..] else {
            return None;
        };
        let part = &tensor.part;
        let first = match *rows {
            Rows::All => 0,
            Rows::Part(index, of) if tensor.outer == 1 => index * (tensor.rows / of),
            _ => return None,
        };
        let is_same = *add == 0.0 && !tensor.is_transposed && type_of(part.dtype) == Some(self.ty);
        let row = tensor.columns * tensor.size();
        let length = self.shape.iter().product::<usize>() * tensor.size();
        let data = part
            .data
            .part(&self.name, (first * row) as u64, length as u64);
        let data = data.ok().filter(|_| is_same)?;
        let is_aligned = data.as_ptr().addr().is_multiple_of(ALIGNMENT);
        is_aligned.then(|| std::sync::Arc::new(data) as SharedBytes)
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match &self.change {
            Change::Floats { tensors, rows, add } => {
                let mut bytes = Vec::new();
                for tensor in tensors {
                    tensor.write(*rows, &mut bytes);
                }
                let from = tensors.first().map(|tensor| tensor.part.dtype);
                match from {
                    Some(from) if type_of(from) != Some(self.ty) || *add != 0.0 => {
                        single(&bytes, from, *add)
                    }
                    _ => bytes,
                }
            }
            Change::Mxfp4 {
                blocks,
                scales,
                rows,
            } => self.mxfp4(blocks, scales, *rows),
        }
    }

    /// Blocks in ggml's order: a scale, then pairs of an element and of the one half a block behind it. The files have
    /// the scales apart, and neighbours in a byte.
    fn mxfp4(&self, blocks: &Part, scales: &Part, rows: Rows) -> Vec<u8> {
        let all = blocks.shape[1];
        let per_row = blocks.shape[2];
        let mut bytes = Vec::with_capacity(self.shape.iter().product::<usize>() / BLOCK * 17);
        for outer in 0..blocks.shape[0] {
            for i in 0..rows.count(all).unwrap_or_default() {
                let row = (outer * all + rows.source(i, all)) * per_row;
                for block in row..row + per_row {
                    bytes.push(scales.data[block]);
                    let packed = &blocks.data[block * BLOCK / 2..][..BLOCK / 2];
                    let element = |i: usize| packed[i / 2] >> (i % 2 * 4) & 15;
                    bytes.extend((0..BLOCK / 2).map(|i| element(i) | element(i + BLOCK / 2) << 4));
                }
            }
        }
        bytes
    }

    /// The bytes, made when they are used.
    pub(super) fn shared(self) -> SharedBytes {
        match self.in_place() {
            Some(bytes) => bytes,
            None => std::sync::Arc::new(Made {
                changed: self,
                bytes: OnceLock::new(),
            }),
        }
    }
}

/// Bytes that are made when they are used.
struct Made {
    changed: Changed,
    bytes: OnceLock<Vec<u8>>,
}

impl AsRef<[u8]> for Made {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get_or_init(|| self.changed.bytes())
    }
}

/// The type in GGUF of floats that stay as they are.
pub(super) fn type_of(dtype: DType) -> Option<GgmlType> {
    match dtype {
        DType::F32 => Some(GgmlType::F32),
        DType::F16 => Some(GgmlType::F16),
        DType::BF16 => Some(GgmlType::BF16),
        _ => None,
    }
}

/// Floats in single precision, with an addend.
pub(super) fn single(bytes: &[u8], from: DType, add: f32) -> Vec<u8> {
    fn each<const N: usize>(bytes: &[u8], add: f32, value: impl Fn([u8; N]) -> f32) -> Vec<u8> {
        let values = bytes.as_chunks().0.iter();
        values
            .flat_map(|&bytes| (value(bytes) + add).to_le_bytes())
            .collect()
    }
    match from {
        DType::F16 => each(bytes, add, |bytes| f16::from_le_bytes(bytes).to_f32()),
        DType::BF16 => each(bytes, add, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => each(bytes, add, f32::from_le_bytes),
    }
}
