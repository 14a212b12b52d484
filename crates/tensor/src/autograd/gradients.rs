//! Computing gradients of tensors.

use std::sync::{Arc, Weak};

use rustorch_ir::ops::Full;
use rustorch_ir::{OpError, Scalar};
use rustorch_macros::track_calls;

use super::backward::{Request, run};
use super::track::Track;
use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::warnings::warn_once;

/// The optional arguments of [`Tensor::backward_with`] and [`grad_with`]:
/// `GradOptions::default().retain_graph(true)`.
#[derive(Clone, Default)]
pub struct GradOptions {
    gradients: Vec<Tensor>,
    retain_graph: Option<bool>,
    create_graph: bool,
    inputs: Option<Vec<Tensor>>,
    allow_unused: bool,
}

impl GradOptions {
    /// The gradient of the next output, of its shape and dtype; 1 by default, for an output of one
    /// element.
    pub fn gradient(mut self, gradient: &Tensor) -> Self {
        self.gradients.push(gradient.clone());
        self
    }

    /// Keeps the history of the tensors, so that another backward pass can use it. By default the
    /// same as `create_graph`.
    pub fn retain_graph(mut self, retain_graph: bool) -> Self {
        self.retain_graph = Some(retain_graph);
        self
    }

    /// Makes the gradients require gradients, for derivatives of higher order.
    pub fn create_graph(mut self, create_graph: bool) -> Self {
        self.create_graph = create_graph;
        self
    }

    /// The tensors that [`Tensor::backward_with`] computes gradients of; by default all leaves.
    pub fn inputs(mut self, inputs: &[&Tensor]) -> Self {
        self.inputs = Some(inputs.iter().map(|&input| input.clone()).collect());
        self
    }

    /// Allows inputs of [`grad_with`] that the outputs do not depend on. Their gradient is `None`.
    pub fn allow_unused(mut self, allow_unused: bool) -> Self {
        self.allow_unused = allow_unused;
        self
    }

    /// The outputs with the gradients that they begin with.
    fn seeds<'a>(
        &self,
        name: &'static str,
        outputs: &[&'a Tensor],
    ) -> RusTorchResult<Vec<(&'a Tensor, Tensor)>> {
        let (count, got) = (outputs.len(), self.gradients.len());
        let expected = format_args!("at most one gradient for each of {count} outputs");
        require(name, got <= count, expected, got)?;
        let seed = |(i, output): (usize, &&'a Tensor)| {
            let expected = "an output that requires a gradient (say requires_grad_ of what it is \
                            computed from)";
            let got = format_args!("{} that requires none", output.ty());
            require(name, output.requires_grad(), expected, got)?;
            let Some(gradient) = self.gradients.get(i) else {
                let is_one = output.numel() == 1 && output.dtype().is_float();
                let expected =
                    "a real output of one element, or its gradient (GradOptions::gradient)";
                require(name, is_one, expected, output.ty())?;
                return Ok((*output, ones(name, output)?));
            };
            let expected = format_args!("a gradient {} as the output", output.ty());
            require(name, gradient.ty() == output.ty(), expected, gradient.ty())?;
            Ok((*output, gradient.clone()))
        };
        outputs.iter().enumerate().map(seed).collect()
    }
}

/// Ones of the type of `x`.
fn ones(name: &'static str, x: &Tensor) -> RusTorchResult<Tensor> {
    let op = Full {
        shape: x.ty().shape.clone(),
        value: Scalar::Int(1),
        dtype: x.dtype(),
    };
    Tensor::apply(name, op, &[])
}

/// The gradients of `inputs`, from `outputs`, each of one real element: `torch.autograd.grad`. Nothing is
/// added to [`Tensor::grad`]. The outputs' history is then forgotten, see
/// [`GradOptions::retain_graph`].
///
/// ```
/// use rustorch_tensor::autograd::grad;
/// use rustorch_tensor::tensor;
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let mut x = tensor![1.0, 2.0];
/// x.requires_grad_(true)?;
/// let gradients = grad(&[&x.square()?.sum_all()?], &[&x])?;
/// assert_eq!(gradients[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails for an output that requires no gradient, or that has another number of elements. Fails for
/// an input that requires no gradient, or that no output depends on. Fails for an operation on the
/// path that has no gradient. Fails for a tensor that was overwritten, or freed by another backward
/// pass.
#[track_calls]
pub fn grad(outputs: &[&Tensor], inputs: &[&Tensor]) -> RusTorchResult<Vec<Tensor>> {
    let gradients = gradients("grad", outputs, inputs, &GradOptions::default())?;
    Ok(gradients.into_iter().flatten().collect())
}

/// [`grad`] with options. If allowed, the gradient of an input that no output depends on is `None`.
///
/// # Errors
/// The same errors as [`grad`]. Also fails for a gradient of another shape or dtype than its
/// output.
#[track_calls]
pub fn grad_with(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    options: &GradOptions,
) -> RusTorchResult<Vec<Option<Tensor>>> {
    gradients("grad", outputs, inputs, options)
}

fn gradients(
    name: &'static str,
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    options: &GradOptions,
) -> RusTorchResult<Vec<Option<Tensor>>> {
    for input in inputs {
        let expected = "inputs that require a gradient (say requires_grad_ before they are used)";
        let got = format_args!("{} that requires none", input.ty());
        require(name, input.requires_grad(), expected, got)?;
    }
    let request = Request {
        name,
        outputs: options.seeds(name, outputs)?,
        wanted: Some(inputs),
        accumulates: false,
        retain_graph: options.retain_graph.unwrap_or(options.create_graph),
        create_graph: options.create_graph,
    };
    let found = run(&request)?;
    let unused = found.iter().position(Option::is_none);
    let expected = "inputs that the outputs are computed from (or allow_unused)";
    let got = format_args!("another one at {}", unused.unwrap_or_default());
    require(
        name,
        options.allow_unused || unused.is_none(),
        expected,
        got,
    )?;
    Ok(found)
}

/// A handle that removes a hook, see [`Tensor::register_hook`].
pub struct HookHandle {
    track: Weak<Track>,
    number: u64,
}

impl HookHandle {
    /// Removes the hook.
    pub fn remove(self) {
        if let Some(track) = self.track.upgrade() {
            track.remove_hook(self.number);
        }
    }
}

#[track_calls]
impl Tensor {
    /// Does this tensor require a gradient? Results require one if an operand does, as in PyTorch.
    /// Such a handle keeps its history, see [`Tensor::recorded`].
    pub fn requires_grad(&self) -> bool {
        self.is_tracked()
    }

    /// Sets whether this handle, its later clones, and tensors computed from them require a gradient.
    ///
    /// # Errors
    /// Fails for a dtype that is neither float nor complex. Also fails for `false` on a tensor that
    /// is no leaf.
    pub fn requires_grad_(&mut self, requires_grad: bool) -> RusTorchResult<Self> {
        const NAME: &str = "requires_grad_";
        let (dtype, expected) = (self.dtype(), "a floating-point or complex dtype");
        let legal = !requires_grad || dtype.has_gradient();
        require(NAME, legal, expected, dtype)?;
        let expected = "true, or a leaf (detach gives a value that requires no gradient)";
        require(NAME, requires_grad || self.is_leaf(), expected, self.ty())?;
        self.want_gradient(requires_grad);
        Ok(self.clone())
    }

    /// [`Tensor::requires_grad_`] of a dtype that can have a gradient.
    pub(crate) fn want_gradient(&mut self, is_wanted: bool) {
        if is_wanted == self.requires_grad() {
            return;
        }
        match self.own_track().filter(|track| track.is_leaf()) {
            Some(leaf) => leaf.want(is_wanted),
            None => self.set_track(is_wanted.then(Track::leaf)),
        }
    }

    /// The same value, without a gradient.
    pub fn detach(&self) -> Self {
        self.with_track(None)
    }

    /// Replaces the elements by others, of any shape and dtype, and stays the same leaf: PyTorch's
    /// `x.data = data`. Other handles on the leaf keep their elements. From now on its gradient,
    /// which the handles share, is computed from the new elements.
    ///
    /// # Errors
    /// Fails for a tensor that is no leaf and requires a gradient. A leaf that requires one also
    /// fails for a dtype without gradients.
    pub fn set_data(&mut self, data: &Self) -> RusTorchResult<()> {
        const NAME: &str = "set_data";
        require(NAME, self.is_leaf(), "a leaf", self.ty())?;
        let (dtype, expected) = (data.dtype(), "a floating-point or complex dtype");
        let legal = !self.requires_grad() || dtype.has_gradient();
        require(NAME, legal, expected, dtype)?;
        let track = self.own_track();
        let memory = [&*self, data].map(Self::storage_in_memory);
        let is_same = matches!(&memory, [Some(old), Some(new)] if old.same_as(new));
        if let Some(track) = track.as_ref().filter(|_| !is_same) {
            track.change_data();
        }
        *self = data.with_track(track);
        Ok(())
    }

    /// Number of times that [`Tensor::set_data`] has replaced the leaf's memory, by any handle.
    pub fn data_changes(&self) -> u32 {
        self.own_track().map_or(0, |track| track.data_changes())
    }

    /// Is it a leaf? True of tensors that require no gradient, and of those that
    /// [`Tensor::requires_grad_`] made require one.
    pub fn is_leaf(&self) -> bool {
        self.track().is_none_or(|track| track.is_leaf())
    }

    /// Computes the gradients of the leaves that this tensor depends on, and adds them to their
    /// [`Tensor::grad`]. The tensor has one real element. They are computed when their values are
    /// read. Use [`eval_all`](crate::eval_all) to compute several of them, and an unread loss,
    /// together. The tensor's history is then forgotten.
    ///
    /// ```
    /// use rustorch_tensor::tensor;
    ///
    /// # fn main() -> rustorch_tensor::RusTorchResult<()> {
    /// let mut w = tensor![2.0, 3.0];
    /// w.requires_grad_(true)?;
    /// let loss = (&w * &tensor![1.0, 10.0])?.square()?.sum_all()?;
    /// loss.backward()?;
    /// assert_eq!(w.grad().expect("a gradient").to_vec::<f32>()?, [4.0, 600.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails for a tensor that requires no gradient, or has several elements. Fails for an
    /// operation on the path that has no gradient. Fails for a tensor that was overwritten, or
    /// freed by another backward pass. The errors of a hook.
    pub fn backward(&self) -> RusTorchResult<()> {
        self.go_back("backward", &GradOptions::default())
    }

    /// [`Tensor::backward`] with options, of tensors of several elements, too.
    ///
    /// # Errors
    /// The same errors as [`Tensor::backward`]. Also fails for a gradient of another type than this
    /// tensor.
    pub fn backward_with(&self, options: &GradOptions) -> RusTorchResult<()> {
        self.go_back("backward", options)
    }

    fn go_back(&self, name: &'static str, options: &GradOptions) -> RusTorchResult<()> {
        let inputs: Option<Vec<&Self>> =
            (options.inputs.as_ref()).map(|inputs| inputs.iter().collect());
        let request = Request {
            name,
            outputs: options.seeds(name, &[self])?,
            wanted: inputs.as_deref(),
            accumulates: true,
            retain_graph: options.retain_graph.unwrap_or(options.create_graph),
            create_graph: options.create_graph,
        };
        run(&request).map(drop)
    }

    /// The gradient that backward passes have added up, of this tensor's shape and dtype; `None` before
    /// the first. Leaves have one, and tensors that [retain](Tensor::retain_grad) theirs. Reading any
    /// other tensor's gradient gives a warning.
    #[track_caller]
    pub fn grad(&self) -> Option<Self> {
        let track = self.track()?;
        if !track.retains() {
            warn_once(
                "grad",
                "the tensor is no leaf, so it keeps no gradient; call retain_grad before \
                 backward to keep it",
            );
        }
        track.gradient()
    }

    /// Replaces the gradient, or removes it.
    ///
    /// # Errors
    /// Fails for a tensor that requires no gradient, or for a gradient of another shape or dtype.
    pub fn set_grad(&self, gradient: Option<&Self>) -> RusTorchResult<()> {
        const NAME: &str = "set_grad";
        let track = self.require_track(NAME)?;
        if let Some(gradient) = gradient {
            let expected = format_args!("a gradient {}", self.ty());
            require(NAME, gradient.ty() == self.ty(), expected, gradient.ty())?;
        }
        track.set_gradient(gradient.cloned());
        Ok(())
    }

    /// Removes the gradient: the next backward pass starts from zero.
    pub fn zero_grad(&self) {
        if let Some(track) = self.track() {
            track.set_gradient(None);
        }
    }

    /// Makes backward passes keep this tensor's gradient although it is no leaf.
    ///
    /// # Errors
    /// Fails for a tensor that requires no gradient.
    pub fn retain_grad(&self) -> RusTorchResult<()> {
        self.require_track("retain_grad")?.retain();
        Ok(())
    }

    /// Registers `hook` for this tensor's gradient. Backward passes call it once the gradient is known. If it
    /// returns a tensor of the same shape and dtype, that replaces the gradient. Hooks are called in the order
    /// of their registration.
    ///
    /// # Errors
    /// Fails for a tensor that requires no gradient.
    pub fn register_hook(
        &self,
        hook: impl Fn(&Self) -> RusTorchResult<Option<Self>> + Send + Sync + 'static,
    ) -> RusTorchResult<HookHandle> {
        let track = self.require_track("register_hook")?;
        let number = track.add_hook(Arc::new(hook));
        let track = Arc::downgrade(&track);
        Ok(HookHandle { track, number })
    }

    fn require_track(&self, name: &'static str) -> RusTorchResult<Arc<Track>> {
        let expected = "a tensor that requires a gradient";
        let none = || {
            OpError::new(
                name,
                expected,
                format_args!("{} that requires none", self.ty()),
            )
        };
        Ok(self.track().ok_or_else(none)?)
    }
}
