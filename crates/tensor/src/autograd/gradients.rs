//! Asking for gradients.

use std::sync::{Arc, Weak};

use rustorch_ir::ops::Full;
use rustorch_ir::{OpError, Scalar};
use rustorch_macros::track_calls;

use super::backward::{Request, run};
use super::track::Track;
use crate::Tensor;
use crate::error::{RusTorchResult, require};

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
    /// The gradient that the next output begins with, of its shape and dtype; 1 for an output of one
    /// element that has none.
    pub fn gradient(mut self, gradient: &Tensor) -> Self {
        self.gradients.push(gradient.clone());
        self
    }

    /// Is it kept how the tensors were computed, so that a backward pass may go the same way again?
    /// As `create_graph` if it is not said.
    pub fn retain_graph(mut self, retain_graph: bool) -> Self {
        self.retain_graph = Some(retain_graph);
        self
    }

    /// Do gradients want gradients, for derivatives of higher order?
    pub fn create_graph(mut self, create_graph: bool) -> Self {
        self.create_graph = create_graph;
        self
    }

    /// The tensors that [`Tensor::backward_with`] gives gradients; all leaves if it is not said.
    pub fn inputs(mut self, inputs: &[&Tensor]) -> Self {
        self.inputs = Some(inputs.iter().map(|&input| input.clone()).collect());
        self
    }

    /// May inputs of [`grad_with`] have nothing to do with the outputs? Their gradient is `None`.
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
/// added to [`Tensor::grad`]. How the outputs were computed is then forgotten, see
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
/// An output that requires no gradient, or of another number of elements; an input that requires none, or
/// that the outputs do not follow from; an operation on the way that has no gradient; what was written over
/// since, or used up by another backward pass.
#[track_calls]
pub fn grad(outputs: &[&Tensor], inputs: &[&Tensor]) -> RusTorchResult<Vec<Tensor>> {
    let gradients = gradients("grad", outputs, inputs, &GradOptions::default())?;
    Ok(gradients.into_iter().flatten().collect())
}

/// [`grad`] with options. The gradient of an input that nothing leads to is `None`, where that is allowed.
///
/// # Errors
/// As [`grad`]; a gradient that an output cannot begin with.
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

/// What takes a hook away again, see [`Tensor::register_hook`].
pub struct HookHandle {
    track: Weak<Track>,
    number: u64,
}

impl HookHandle {
    /// Takes the hook away.
    pub fn remove(self) {
        if let Some(track) = self.track.upgrade() {
            track.remove_hook(self.number);
        }
    }
}

#[track_calls]
impl Tensor {
    /// Is a gradient wanted? As in PyTorch, results want one if an operand does. Such a handle
    /// keeps how it was computed, see [`Tensor::recorded`].
    pub fn requires_grad(&self) -> bool {
        self.is_tracked()
    }

    /// Says whether a gradient is wanted of this handle, its later clones, and what is computed from
    /// them. It begins here: how the tensor itself was computed is forgotten where that changes. Of a leaf that a
    /// gradient was wanted of it is said of all its clones, so that it reaches a module by the parameters that it
    /// gives. A clone is returned, so that `Tensor::zeros(3, DType::F32)?.requires_grad_(true)?` is a parameter.
    ///
    /// # Errors
    /// A dtype that is neither a float nor complex; `false` for what was computed from tensors that want one.
    pub fn requires_grad_(&mut self, requires_grad: bool) -> RusTorchResult<Self> {
        const NAME: &str = "requires_grad_";
        let (dtype, expected) = (self.dtype(), "a floating-point or complex dtype");
        let legal = !requires_grad || dtype.has_gradient();
        require(NAME, legal, expected, dtype)?;
        let expected = "true, or a leaf (detach gives a value that wants no gradient)";
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

    /// The same value, of which no gradient is wanted.
    pub fn detach(&self) -> Self {
        self.with_track(None)
    }

    /// Does no history for gradients lead here? True of tensors that want none, and of those that
    /// [`Tensor::requires_grad_`] made want one.
    pub fn is_leaf(&self) -> bool {
        self.track().is_none_or(|track| track.is_leaf())
    }

    /// Adds the gradients of the leaves that this tensor, of one real element, was computed from to their
    /// [`Tensor::grad`]. They are computed when they are asked for; ask for several, and for a loss that was not
    /// read yet, together by [`eval_all`](crate::eval_all). How this tensor was computed is then forgotten.
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
    /// A tensor that requires no gradient, or of several elements; an operation on the way that has no
    /// gradient; what was written over since, or used up by another backward pass; a hook's.
    pub fn backward(&self) -> RusTorchResult<()> {
        self.go_back("backward", &GradOptions::default())
    }

    /// [`Tensor::backward`] with options, of tensors of several elements, too.
    ///
    /// # Errors
    /// As [`Tensor::backward`]; a gradient of another type than this tensor.
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
    /// the first. Of leaves, and of what [retains](Tensor::retain_grad) its own.
    pub fn grad(&self) -> Option<Self> {
        self.track()?.gradient()
    }

    /// Puts another gradient in its place, or none.
    ///
    /// # Errors
    /// A tensor that requires no gradient; a gradient of another shape or dtype.
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

    /// Takes the gradient away: the next backward pass begins anew.
    pub fn zero_grad(&self) {
        if let Some(track) = self.track() {
            track.set_gradient(None);
        }
    }

    /// Has backward passes keep this tensor's gradient though it is no leaf.
    ///
    /// # Errors
    /// A tensor that requires no gradient.
    pub fn retain_grad(&self) -> RusTorchResult<()> {
        self.require_track("retain_grad")?.retain();
        Ok(())
    }

    /// Has backward passes call `hook` with this tensor's gradient, once it is known, and go on with what it
    /// gives, if it does, of the same shape and dtype. Hooks are called in the order in which they came.
    ///
    /// # Errors
    /// A tensor that requires no gradient.
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
