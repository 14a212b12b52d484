//! Embeddings and bags of them.

use rustorch_ir::ops::{Embedding, Scatter, ScatterMode};
use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::setting::{Converted, setters};
use crate::error::{RusTorchResult, require};

/// The reduction of a bag's rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EmbeddingBagMode {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// The maximum of each column.
    Max,
}

impl Converted for EmbeddingBagMode {}

/// The optional arguments of [`Tensor::embedding_bag`].
#[derive(Clone, Copy, Default)]
pub struct EmbeddingBagOptions<'a> {
    /// The reduction of a bag's rows.
    pub mode: EmbeddingBagMode,
    /// The index of each bag's first id in `[n]`, increasing from 0, `i64` or `i32` `[bags]`. Ids
    /// `[bags, n]` need no offsets.
    pub offsets: Option<&'a Tensor>,
    /// Whether the last offset is the end of the last bag.
    pub include_last_offset: bool,
    /// A factor for each row of a sum, in the shape of the ids.
    pub per_sample_weights: Option<&'a Tensor>,
    /// The id that is left out.
    pub padding_idx: Option<isize>,
    /// Rows with a larger norm are scaled to it.
    pub max_norm: Option<f64>,
    /// The order of the norm; 2 by default.
    pub norm_type: Option<f64>,
}

setters!(EmbeddingBagOptions<'a> {
    mode: EmbeddingBagMode, offsets: Option<&'a Tensor>, include_last_offset: bool,
    per_sample_weights: Option<&'a Tensor>, padding_idx: Option<isize>, max_norm: Option<f64>,
    norm_type: Option<f64>,
});

#[track_calls]
impl Tensor {
    /// The rows `ids` of this table `[v, d]` of numbers, booleans or a block format. The result has the table's dtype,
    /// or `f32` for a block format. `ids` are `i64` or `i32` of any shape; the result has their shape with `d`
    /// appended.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes. Evaluation fails for an id outside the table.
    pub fn embedding(&self, ids: &Self) -> RusTorchResult<Self> {
        const NAME: &str = "embedding";
        let dtype = match self.dtype() {
            dtype if dtype.is_block() => DType::F32,
            dtype => dtype,
        };
        if dtype.is_float() {
            return self.embedding_as(ids, dtype);
        }
        require(NAME, self.rank() == 2, "a table [v, d]", self.ty())?;
        let rows = self.picked(NAME, 0, &ids.ravel()?)?;
        rows.reshape(&[ids.shape(), &self.shape()[1..]].concat()[..])
    }

    /// [`Tensor::embedding`] in another float dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::embedding`].
    pub fn embedding_as(&self, ids: &Self, dtype: DType) -> RusTorchResult<Self> {
        Self::apply("embedding", Embedding { dtype }, &[self, ids])
    }

    /// [`Tensor::embedding`] whose rows are scaled to `max_norm` if their `norm_type`-norm is larger. The table itself
    /// does not change, unlike PyTorch's.
    ///
    /// # Errors
    /// The same errors as [`Tensor::embedding`].
    pub fn embedding_renorm(
        &self,
        ids: &Self,
        max_norm: f64,
        norm_type: f64,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "embedding_renorm";
        let rows = self.embedding(ids)?;
        let norm = rows.widened(NAME)?.norm(norm_type, -1, true)?;
        let scale = norm.add(1e-7)?.reciprocal()?.mul(max_norm)?;
        let scale = Self::where_(&norm.gt(max_norm)?, &scale, 1.0)?;
        rows.mul(&scale)?.cast(NAME, rows.dtype())
    }

    /// Sums, means or maxima of bags of rows of this float table `[v, d]`: `[bags, d]`. `ids` name
    /// the rows, `i64` or `i32`, `[bags, n]`, or `[n]` with offsets. An empty bag gives 0.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, weights in a mode other than sum, or a `padding_idx`
    /// outside the rows. Evaluation fails for an id outside the table, or offsets that do not begin
    /// with 0.
    pub fn embedding_bag(&self, ids: &Self, options: &EmbeddingBagOptions) -> RusTorchResult<Self> {
        const NAME: &str = "embedding_bag";
        self.require_float(NAME)?;
        let weights = options.per_sample_weights;
        let is_sum = options.mode == EmbeddingBagMode::Sum;
        let expected = "weights of a sum";
        require(
            NAME,
            is_sum || weights.is_none(),
            expected,
            format!("{:?}", options.mode),
        )?;
        if let Some(weights) = weights {
            let expected = format_args!("a weight for each of {:?}", ids.shape());
            require(NAME, weights.shape() == ids.shape(), expected, weights.ty())?;
        }
        let rows = match options.max_norm {
            Some(max) => self.embedding_renorm(ids, max, options.norm_type.unwrap_or(2.0))?,
            None => self.embedding(ids)?,
        };
        let rows = rows.widened(NAME)?;
        let rows = match weights {
            Some(weights) => rows.mul(&weights.cast(NAME, rows.dtype())?.unsqueeze(-1)?)?,
            None => rows,
        };
        let counts = match options.padding_idx {
            Some(id) => {
                let size = self.shape()[0] as i64;
                let row = if id < 0 { id as i64 + size } else { id as i64 };
                let expected = format_args!("a padding_idx of one of {size} rows");
                require(NAME, (0..size).contains(&row), expected, id)?;
                ids.ne(row)?
            }
            None => Self::full(ids.shape(), 1, DType::Bool)?,
        };
        let bags = match (ids.rank(), options.offsets) {
            (2, None) => in_rows(&rows, &counts, options.mode)?,
            (1, Some(offsets)) => {
                let ends = usize::from(options.include_last_offset);
                let legal = offsets.rank() == 1
                    && offsets.numel() >= ends
                    && matches!(offsets.dtype(), DType::I64 | DType::I32);
                let expected = "offsets [bags] of i64 or i32, or [bags + 1] with the last one";
                require(NAME, legal, expected, offsets.ty())?;
                let offsets = offsets.cast(NAME, DType::I64)?;
                // What is behind the last offset is a bag of its own, which nobody asks for.
                let bags = in_bags(&rows, &counts, &offsets, options.mode)?;
                bags.narrow(0, 0, offsets.numel() - ends)?
            }
            _ => {
                let expected = "ids [bags, n], or ids [n] and offsets";
                return Err(OpError::new(NAME, expected, ids.ty()).into());
            }
        };
        bags.cast(NAME, self.dtype())
    }
}

/// `[bags, d]` of rows `[bags, n, d]`. Rows that `counts` `[bags, n]` names count.
fn in_rows(rows: &Tensor, counts: &Tensor, mode: EmbeddingBagMode) -> RusTorchResult<Tensor> {
    let counted = counts.unsqueeze(-1)?;
    let (bags, n) = (rows.shape()[0], rows.shape()[1]);
    if n == 0 {
        return Tensor::zeros([bags, rows.shape()[2]], rows.dtype());
    }
    let number = counts.sum(1, true)?;
    match mode {
        EmbeddingBagMode::Max => {
            let largest = Tensor::where_(&counted, rows, f64::NEG_INFINITY)?.max(1, false)?;
            Tensor::where_(&number.gt(0)?, &largest, 0.0)
        }
        _ => {
            let sum = Tensor::where_(&counted, rows, 0.0)?.sum(1, false)?;
            divided(&sum, &number, mode)
        }
    }
}

/// Sums, or means by the number of rows of each bag, `[bags, 1]`.
fn divided(sums: &Tensor, number: &Tensor, mode: EmbeddingBagMode) -> RusTorchResult<Tensor> {
    match mode {
        EmbeddingBagMode::Mean => sums.div(&number.maximum(1)?.to_dtype(sums.dtype())?),
        _ => Ok(sums.clone()),
    }
}

/// `[bags, d]` of rows `[n, d]`, in bags that begin at `offsets`. Rows that `counts` `[n]` names
/// count.
fn in_bags(
    rows: &Tensor,
    counts: &Tensor,
    offsets: &Tensor,
    mode: EmbeddingBagMode,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "embedding_bag";
    let (n, d, bags) = (rows.shape()[0], rows.shape()[1], offsets.numel());
    if bags == 0 {
        return Tensor::zeros([0, d], rows.dtype());
    }
    // The first bag begins at 0, and where there are no rows, all do.
    let checked = if n == 0 { bags } else { 1 };
    let begin = offsets.narrow(0, 0, checked)?.cast(NAME, DType::F32)?;
    let begin = begin.within(NAME, 0.0, 0.0, false)?;
    if n == 0 {
        let zeros = begin.cast(NAME, rows.dtype())?;
        return zeros.unsqueeze(1)?.expand([bags, d]);
    }
    let begin = begin.cast(NAME, DType::I64)?;
    let offsets = &Tensor::cat(&[&begin, &offsets.narrow(0, 1, bags - 1)?], 0)?;
    let add = || Scatter {
        dim: 0,
        mode: ScatterMode::Add,
    };
    let added = |size: usize, index: &Tensor, x: &Tensor| {
        let shape = [&[size], &x.shape()[1..]].concat();
        let zeros = Tensor::zeros(&shape[..], x.dtype())?;
        Tensor::apply(NAME, add(), &[&zeros, index, x])
    };
    // A bag's number is how many have begun before.
    let begun = added(n + 1, offsets, &offsets.ones_like()?)?;
    let bag = begun.narrow(0, 0, n)?.cumsum(0)?.sub(1)?;
    let places = bag.unsqueeze(1)?.expand([n, d])?;
    let counted = counts.unsqueeze(1)?;
    let number = added(bags, &bag, &counts.to_dtype(DType::I64)?)?.unsqueeze(1)?;
    if mode != EmbeddingBagMode::Max {
        let sums = added(bags, &places, &Tensor::where_(&counted, rows, 0.0)?)?;
        return divided(&sums, &number, mode);
    }
    // The largest so far of each bag, by doubling the rows that each has seen (Hillis and Steele).
    let mut best = Tensor::where_(&counted, rows, f64::NEG_INFINITY)?;
    let mut step = 1;
    while step < n {
        let own = best.narrow(0, step, n - step)?;
        let before = best.narrow(0, 0, n - step)?;
        let is_same = bag
            .narrow(0, step, n - step)?
            .eq(&bag.narrow(0, 0, n - step)?)?;
        let both = Tensor::where_(&is_same.unsqueeze(1)?, &own.maximum(&before)?, &own)?;
        best = Tensor::cat(&[&best.narrow(0, 0, step)?, &both], 0)?;
        step *= 2;
    }
    // At the last row of each bag; what an empty one takes does not count.
    let all = Tensor::full([1], n as i64, DType::I64)?;
    let ends = Tensor::cat(&[&offsets.narrow(0, 1, bags - 1)?, &all], 0)?;
    let largest = best.index_select(0, &ends.sub(1)?.maximum(0)?)?;
    Tensor::where_(&number.gt(0)?, &largest, 0.0)
}
