//! Embeddings and bags of them.

use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::nn::{EmbeddingBagMode, EmbeddingBagOptions};
use rustorch_tensor::{RusTorchResult, Tensor, no_grad};

use super::{Forward, Module, parameter};
use crate::error::require;

/// A table of normal numbers `[rows, columns]`, with zeros for the row of padding.
fn table(
    name: &'static str,
    [rows, columns]: [usize; 2],
    padding_idx: Option<isize>,
) -> RusTorchResult<Tensor> {
    let table = Tensor::randn([rows, columns], DType::F32)?;
    let Some(index) = padding_idx else {
        return parameter(table);
    };
    let row = if index < 0 {
        index + rows as isize
    } else {
        index
    };
    require(
        name,
        (0..rows as isize).contains(&row),
        format_args!("a row of {rows}"),
        index,
    )?;
    let is_padding = Tensor::arange_with(0, rows as i64, 1, DType::I64)?.eq(row as i64)?;
    parameter(Tensor::where_(&is_padding.unsqueeze(1)?, 0.0, &table)?)
}

/// The embedding: rows of a table by their ids.
#[derive(Module)]
pub struct Embedding {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Tensor,
    /// The padding row, which is not trained; negative ones count from the end.
    #[module(skip)]
    pub padding_idx: Option<isize>,
    /// Selected rows with a larger norm are first scaled to this norm.
    #[module(skip)]
    pub max_norm: Option<f64>,
    /// The order of the norm.
    #[module(skip)]
    pub norm_type: f64,
}

#[track_calls(Embedding)]
impl Embedding {
    /// A table of normal numbers.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> RusTorchResult<Self> {
        Ok(Self {
            weight: table("Embedding", [num_embeddings, embedding_dim], None)?,
            padding_idx: None,
            max_norm: None,
            norm_type: 2.0,
        })
    }

    /// Uses another table, and sets its row `padding_idx` to zeros.
    ///
    /// # Errors
    /// Fails if the row does not exist.
    pub fn padding_idx(self, padding_idx: isize) -> RusTorchResult<Self> {
        let shape = [self.weight.size(0)?, self.weight.size(1)?];
        Ok(Self {
            weight: table("Embedding", shape, Some(padding_idx))?,
            padding_idx: Some(padding_idx),
            ..self
        })
    }

    super::layers::setters!(max_norm: Option<f64>; norm_type: f64;);
}

#[track_calls(Embedding)]
impl Forward for Embedding {
    /// The rows of ids of any shape, `i64` or `i32`, in one more dimension.
    fn forward(&self, ids: &Tensor) -> RusTorchResult<Tensor> {
        if let Some(max_norm) = self.max_norm {
            renormalise(&self.weight, ids, max_norm, self.norm_type)?;
        }
        let rows = self.weight.embedding(ids)?;
        let Some(index) = self.padding_idx else {
            return Ok(rows);
        };
        // The row of padding gets no gradient.
        let size = self.weight.size(0)? as i64;
        let row = if index < 0 {
            index as i64 + size
        } else {
            index as i64
        };
        Tensor::where_(&ids.eq(row)?.unsqueeze(-1)?, rows.detach(), &rows)
    }
}

/// Scales the named rows of a table, in its memory, to `max_norm` where their norm is larger.
fn renormalise(table: &Tensor, ids: &Tensor, max_norm: f64, norm_type: f64) -> RusTorchResult<()> {
    no_grad(|| {
        let old = table.detach();
        let scaled = old.embedding_renorm(&ids.flatten(0, -1)?, max_norm, norm_type)?;
        let new = old.index_put(&ids.flatten(0, -1)?, &scaled, false)?;
        let mut table = old.clone();
        table.copy_(&new)?;
        table.eval().map(|_| ())
    })
}

/// Sums, means or maxima of bags of rows of a table.
#[derive(Module)]
pub struct EmbeddingBag {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Tensor,
    /// The reduction of a bag's rows.
    #[module(skip)]
    pub mode: EmbeddingBagMode,
    /// Whether the last offset is the end of the last bag.
    #[module(skip)]
    pub include_last_offset: bool,
    /// The id that is left out.
    #[module(skip)]
    pub padding_idx: Option<isize>,
    /// Selected rows with a larger norm are first scaled to this norm.
    #[module(skip)]
    pub max_norm: Option<f64>,
    /// The order of the norm.
    #[module(skip)]
    pub norm_type: f64,
}

#[track_calls(EmbeddingBag)]
impl EmbeddingBag {
    /// A table of normal numbers, with means as the reduction.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> RusTorchResult<Self> {
        Ok(Self {
            weight: table("EmbeddingBag", [num_embeddings, embedding_dim], None)?,
            mode: EmbeddingBagMode::default(),
            include_last_offset: false,
            padding_idx: None,
            max_norm: None,
            norm_type: 2.0,
        })
    }

    super::layers::setters!(
        mode: EmbeddingBagMode; include_last_offset: bool; padding_idx: Option<isize>;
        max_norm: Option<f64>; norm_type: f64;
    );

    /// `[bags, embedding_dim]` from ids `[bags, n]`, or from ids `[n]` and the `offsets` at which
    /// bags begin. Each row of a sum may have a weight.
    ///
    /// # Errors
    /// The same errors as [`Tensor::embedding_bag`].
    pub fn forward(
        &self,
        ids: &Tensor,
        offsets: Option<&Tensor>,
        per_sample_weights: Option<&Tensor>,
    ) -> RusTorchResult<Tensor> {
        if let Some(max_norm) = self.max_norm {
            renormalise(&self.weight, ids, max_norm, self.norm_type)?;
        }
        let options = EmbeddingBagOptions {
            mode: self.mode,
            offsets,
            include_last_offset: self.include_last_offset,
            per_sample_weights,
            padding_idx: self.padding_idx,
            max_norm: None,
            norm_type: None,
        };
        self.weight.embedding_bag(ids, &options)
    }
}
