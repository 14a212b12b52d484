//! The device of each pending operation, and why.

use rustorch_macros::track_calls;
use rustorch_runtime::{Explanation, NodeNote};

use crate::Tensor;
use crate::device::devices::current;
use crate::error::RusTorchResult;
use crate::lazy::capture::{Capture, Leaves};
use crate::lazy::history::History;
use crate::lazy::value::{Pending, Value};

#[track_calls]
impl Tensor {
    /// The device of each operation that this tensor depends on, with the reason and the operands
    /// to be copied. The list is empty if the tensor is computed. This computes nothing. Operations
    /// inside a method of another name are shown after its name: `layer_norm: mean`.
    ///
    /// ```
    /// use rustorch_tensor::tensor;
    ///
    /// # fn main() -> rustorch_tensor::RusTorchResult<()> {
    /// let x = tensor![1.0, 2.0].to_device("cpu")?;
    /// let rows = x.exp()?.explain()?;
    /// assert_eq!(rows[0].to_string(), "exp on cpu: pinned to cpu");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if it depends on a placeholder ([`Trace::executable`](crate::Trace::executable)
    /// explains such tensors). Also fails if no device can run some operation.
    pub fn explain(&self) -> RusTorchResult<Vec<Explanation>> {
        let (runtime, routing) = current();
        let asked = [self.value()];
        let (history, held) = History::computing(&asked);
        let leaves = Leaves::of(&history, &runtime)?;
        let capture = Capture::once(&history, &leaves, &asked, held)?;
        let graph = capture.outline.graph()?;
        let note = |node| {
            let recorded = leaves.pending(&history, node);
            recorded.map_or_else(NodeNote::default, |pending| NodeNote {
                method: Some(pending.call.method),
                pinned: operands_apart(pending),
            })
        };
        Ok(runtime.explain(graph, &leaves.storages, routing, &note)?)
    }
}

/// The operand that decided the device of an operation whose operands were moved to several devices.
fn operands_apart(pending: &Pending) -> Option<String> {
    let pins = || pending.inputs.iter().map(Value::pin).enumerate();
    let mut moved = pins().filter_map(|(operand, pin)| Some((operand, pin?)));
    let (first, device) = moved.next()?;
    let others: Vec<String> = moved
        .filter(|(_, other)| *other != device)
        .map(|(operand, other)| format!("operand {operand} to {other}"))
        .collect();
    let others = (!others.is_empty()).then(|| others.join(", "))?;
    Some(format!(
        "where operand {first} was moved, the first of several ({others})"
    ))
}
