//! Anomaly detection for a whole step: the first value that is not finite
//! (`torch.autograd.detect_anomaly`).

use rustorch_runtime::Storage;
use rustorch_tensor::replay::{Operation, RandomKeys, operations};
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor, Trace};

use crate::error::unexpected;

/// The graph that a step was recorded as, and its results.
pub(super) struct Suspect<'a> {
    pub(super) step: u64,
    /// Placeholders, and their values in the step.
    pub(super) batch: &'a [Tensor],
    pub(super) keys: &'a RandomKeys,
    pub(super) inputs: &'a [Storage],
    /// Loss and gradients.
    pub(super) results: &'a [Tensor],
    /// The module's parameters.
    pub(super) parameters: &'a [(String, Tensor)],
}

impl Suspect<'_> {
    /// Computes the step's loss and gradients once more, and looks at each value on the way: the error names the first that
    /// is not finite.
    ///
    /// # Errors
    /// Fails if the computation fails.
    pub(super) fn first_anomaly(&self) -> RusTorchResult<RusTorchError> {
        let operations = operations(&self.results.iter().collect::<Vec<_>>());
        let mut values: Vec<(&Tensor, String)> = Vec::new();
        let inputs = self.batch.iter().enumerate();
        values.extend(inputs.map(|(i, x)| (x, format!("in tensor {i} of the batch"))));
        let parameters = self.parameters.iter();
        values.extend(parameters.map(|(name, x)| (x, format!("in the parameter {name}"))));
        for (at, operation) in operations.iter().enumerate() {
            let what = || format!("by {}{}", operation.call, self.place(&operations[..=at]));
            values.extend(operation.results.iter().map(|result| (result, what())));
        }
        values.retain(|(value, _)| value.dtype().is_float());
        let finite = values
            .iter()
            .map(|(value, _)| value.detach().isfinite()?.all(None, false));
        let finite: Vec<Tensor> = finite.collect::<RusTorchResult<_>>()?;
        let placeholders = self.batch.iter().chain(self.keys.placeholders());
        let trace = Trace::new(
            &placeholders.collect::<Vec<_>>(),
            &[&Tensor::stack(&finite, 0)?],
        )?;
        let found = trace.run(self.inputs)?.swap_remove(0);
        let found =
            Tensor::from_storage(found, finite.len(), finite[0].dtype())?.to_vec::<bool>()?;
        let first = found.iter().position(|is_finite| !is_finite);
        let place = match first {
            Some(first) => values[first].1.as_str(),
            None => "in a sum of gradients",
        };
        Ok(unexpected(
            "TrainStep",
            "finite numbers (nothing was updated)",
            format_args!("infinity or NaN in step {}, first {place}", self.step),
        ))
    }

    /// The part of the module that the last of some operations is of: that whose parameters were read last.
    fn place(&self, operations: &[Operation]) -> String {
        let name_of = |operand: &Tensor| {
            let memory = operand.storage_in_memory()?;
            let mut parameters = self.parameters.iter();
            let is_it = |(_, p): &&(String, Tensor)| {
                p.storage_in_memory()
                    .is_some_and(|own| own.same_as(&memory))
            };
            parameters.find(is_it).map(|(name, _)| name)
        };
        let mut before = operations.iter().rev();
        let name = before.find_map(|operation| operation.operands.iter().find_map(name_of));
        match name.map(|name| name.rsplit_once('.').map_or("", |(module, _)| module)) {
            None => String::new(),
            Some("") => ", at the module's own parameters".to_owned(),
            Some(module) => format!(", at the module {module}"),
        }
    }
}
