//! Products with weights, and embedding tables.

use rustorch_ir::DType;
use rustorch_tensor::distributed::CommunicationGroup;
use rustorch_tensor::{RusTorchResult, Tensor, with_device};

use super::pass::Pass;
use crate::LlmError;
use crate::adapters::LowRank;
use crate::spec::Need;
use crate::weights::Loader;

/// Place of a product's `.scale`, a factor of formats that have one for the whole tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scaled {
    /// Left out.
    Never,
    /// Before the bias is added.
    BeforeBias,
    /// After the bias is added.
    AfterBias,
}

/// `x · wᵀ + bias`, whatever the weights' format, plus the adapters' additions. It is computed where its weights
/// are.
pub(crate) struct Linear {
    name: String,
    weight: Tensor,
    bias: Option<Tensor>,
    scale: Option<(Tensor, Scaled)>,
    adapters: Vec<LowRank>,
    /// The ranks whose products are added up.
    ranks: Option<CommunicationGroup>,
}

impl Linear {
    /// `{name}.weight` `[outputs, inputs]` and, where the file has it, `{name}.bias`.
    pub(crate) fn load(
        w: &Loader,
        name: &str,
        outputs: usize,
        inputs: usize,
        scaled: Scaled,
    ) -> Result<Self, LlmError> {
        let weight = format!("{name}.weight");
        let scale = match scaled {
            Scaled::Never => None,
            _ => w.opt_f32(&format!("{name}.scale"), &[1])?,
        };
        Ok(Self {
            weight: w.get(&weight, &[outputs, inputs])?,
            bias: w.opt_f32(&format!("{name}.bias"), &[outputs])?,
            scale: scale.map(|scale| (scale, scaled)),
            adapters: w.low_rank(&weight),
            ranks: w.adding_ranks(&weight),
            name: weight,
        })
    }

    /// The same without a bias, if that is not wanted.
    pub(crate) fn with_own_bias(mut self, is_wanted: bool) -> Self {
        self.bias = self.bias.filter(|_| is_wanted);
        self
    }

    /// A product with the table `name` that belongs to something else too. Adapters of the table change its rows
    /// alone, as where they are trained ([PEFT](https://github.com/huggingface/peft)).
    pub(crate) fn tied(name: String, weight: Tensor, bias: Option<Tensor>) -> Self {
        Self {
            name,
            weight,
            bias,
            scale: None,
            adapters: Vec::new(),
            ranks: None,
        }
    }

    /// The name of its weights.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The number of outputs.
    pub(crate) fn outputs(&self) -> usize {
        self.weight.shape()[0]
    }

    /// `x` `[…, inputs]` to `[…, outputs]`.
    pub(crate) fn forward(&self, x: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        let x = &pass.moved(x, &self.name)?;
        if let Some(ranks) = &self.ranks {
            let sum = pass.sum(&x.linear(&self.weight, None)?, ranks)?;
            return self.finished(sum);
        }
        if self.scale.is_none() {
            return self.adapted(x, x.linear(&self.weight, self.bias.as_ref())?);
        }
        self.finished(self.adapted(x, x.linear(&self.weight, None)?)?)
    }

    /// The product with its scale and bias.
    fn finished(&self, y: Tensor) -> RusTorchResult<Tensor> {
        let Some((scale, place)) = &self.scale else {
            return match &self.bias {
                Some(bias) => y.add(bias),
                None => Ok(y),
            };
        };
        match (place, &self.bias) {
            (_, None) => y.mul(scale),
            (Scaled::AfterBias, Some(bias)) => y.add(bias)?.mul(scale),
            (_, Some(bias)) => y.mul(scale)?.add(bias),
        }
    }

    fn adapted(&self, x: &Tensor, y: Tensor) -> RusTorchResult<Tensor> {
        let mut adapters = self.adapters.iter();
        adapters.try_fold(y, |y, adapter| y.add(&adapter.product(x)?))
    }
}

/// `x · factor`; a factor of 1 takes no operation.
pub(crate) fn times(x: Tensor, factor: f64) -> RusTorchResult<Tensor> {
    match factor {
        1.0 => Ok(x),
        factor => x.mul(factor),
    }
}

/// The rows of a table for token ids, plus the adapters' additions.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) rows: Tensor,
    adapters: Vec<LowRank>,
}

impl Table {
    /// `{name}.weight` `[count, width]`.
    pub(crate) fn load(
        w: &Loader,
        name: &str,
        count: usize,
        width: usize,
    ) -> Result<Self, LlmError> {
        let name = format!("{name}.weight");
        Ok(Self {
            rows: w.get(&name, &[count, width])?,
            adapters: w.low_rank(&name),
            name,
        })
    }

    /// The same as [`Self::load`], if it is needed or there.
    pub(crate) fn opt(
        w: &Loader,
        name: &str,
        count: usize,
        width: usize,
        need: Need,
    ) -> Result<Option<Self>, LlmError> {
        let is_read = match need {
            Need::Required => true,
            Need::Optional => w.has(&format!("{name}.weight")),
            Need::Absent => false,
        };
        is_read
            .then(|| Self::load(w, name, count, width))
            .transpose()
    }

    /// `ids` `[t]` to `f32` `[t, width]`.
    pub(crate) fn forward(&self, ids: &Tensor, pass: &Pass) -> RusTorchResult<Tensor> {
        match pass.device_of(&self.name) {
            Some(device) => with_device(device, || self.rows_of(ids))?,
            None => self.rows_of(ids),
        }
    }

    fn rows_of(&self, ids: &Tensor) -> RusTorchResult<Tensor> {
        let rows = self.rows.embedding_as(ids, DType::F32)?;
        let mut adapters = self.adapters.iter();
        adapters.try_fold(rows, |rows, adapter| rows.add(&adapter.rows(ids)?))
    }
}
