//! Functions that are called before and after a module's `forward`.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::{Forward, Leaf, LeafMut, Module, Visit};
use crate::call;

/// A function that sees the input, and may give another one.
type PreHook<M> = dyn Fn(&M, &Tensor) -> RusTorchResult<Option<Tensor>> + Send + Sync;

/// A function that sees input and output, and may give another output.
type PostHook<M> = dyn Fn(&M, &Tensor, &Tensor) -> RusTorchResult<Option<Tensor>> + Send + Sync;

/// A module whose [`forward`](Forward::forward) calls hooks: `register_forward_pre_hook` and `register_forward_hook`
/// of `torch.nn.Module`. It does not change the module's names. [`Sequential`](super::Sequential) wraps its modules
/// in this type, and a structure's field may have it.
///
/// In a recorded step, hooks are called only at the recording. Clones have the same hooks, in
/// separate lists. [`Tensor::register_hook`] is for gradients.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use rustorch_nn::nn::{Forward, Hooked, Linear, ReLU, sequential};
/// use rustorch_tensor::tensor;
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let net = sequential![Linear::new(2, 3)?, ReLU];
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let features = seen.clone();
/// let handle = net[0].register_forward_hook(move |_, _, output| {
///     features.lock().expect("unpoisoned").push(output.shape().to_vec());
///     Ok(None)
/// });
/// let halved = Hooked::new(net);
/// halved.register_forward_pre_hook(|_, x| Ok(Some(x.mul(0.5)?)));
/// let x = tensor![[1.0, 2.0]];
/// let (y, of_half) = (halved.forward(&x)?, halved.module.forward(&x.mul(0.5)?)?);
/// assert!(y.equal(&of_half)?);
/// handle.remove();
/// halved.forward(&x)?;
/// assert_eq!(*seen.lock().expect("unpoisoned"), [[1, 3], [1, 3]]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Hooked<M> {
    /// The module.
    pub module: M,
    before: Hooks<PreHook<M>>,
    after: Hooks<PostHook<M>>,
}

impl<M> Hooked<M> {
    /// Wraps a module, without hooks yet.
    pub fn new(module: M) -> Self {
        Self {
            module,
            before: Hooks::default(),
            after: Hooks::default(),
        }
    }
}

impl<M: 'static> Hooked<M> {
    /// Registers `hook`, which `forward` calls first, with the module and its input. If it returns
    /// an input, that replaces the input. Hooks are called in the order of their registration.
    pub fn register_forward_pre_hook(
        &self,
        hook: impl Fn(&M, &Tensor) -> RusTorchResult<Option<Tensor>> + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.before.add(Arc::new(hook))
    }

    /// Registers `hook`, which `forward` calls last, with the module, its input and its output. If
    /// it returns an output, that replaces the output. Hooks are called in the order of their
    /// registration.
    pub fn register_forward_hook(
        &self,
        hook: impl Fn(&M, &Tensor, &Tensor) -> RusTorchResult<Option<Tensor>> + Send + Sync + 'static,
    ) -> RemovableHandle {
        self.after.add(Arc::new(hook))
    }
}

#[track_calls]
impl<M: Forward> Forward for Hooked<M> {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let mut x = x.clone();
        for hook in self.before.all() {
            x = call::user(|| hook(&self.module, &x))?.unwrap_or(x);
        }
        let mut y = self.module.forward(&x)?;
        for hook in self.after.all() {
            y = call::user(|| hook(&self.module, &x, &y))?.unwrap_or(y);
        }
        Ok(y)
    }
}

impl<M: Visit> Visit for Hooked<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        self.module.visit(name, visitor);
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        self.module.visit_mut(name, visitor);
    }
}

impl<M: Module> Module for Hooked<M> {}

impl<M> Deref for Hooked<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

impl<M> DerefMut for Hooked<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.module
    }
}

impl<M> From<M> for Hooked<M> {
    fn from(module: M) -> Self {
        Self::new(module)
    }
}

/// Removes a registered hook. Dropping the handle keeps the hook.
pub struct RemovableHandle(Box<dyn FnOnce() + Send + Sync>);

impl RemovableHandle {
    /// Removes the hook.
    pub fn remove(self) {
        (self.0)();
    }
}

/// Hooks in the order in which they came.
struct Hooks<H: ?Sized>(Arc<Mutex<Vec<Arc<H>>>>);

impl<H: ?Sized> Hooks<H> {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<H>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hooks as they are now: one that is called may register and remove others.
    fn all(&self) -> Vec<Arc<H>> {
        self.lock().clone()
    }
}

impl<H: ?Sized + Send + Sync + 'static> Hooks<H> {
    fn add(&self, hook: Arc<H>) -> RemovableHandle {
        self.lock().push(hook.clone());
        let (list, hook) = (Arc::downgrade(&self.0), Arc::downgrade(&hook));
        RemovableHandle(Box::new(move || {
            if let (Some(list), Some(hook)) = (list.upgrade(), hook.upgrade()) {
                let hooks = Self(list);
                hooks.lock().retain(|other| !Arc::ptr_eq(other, &hook));
            }
        }))
    }
}

impl<H: ?Sized> Default for Hooks<H> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<H: ?Sized> Clone for Hooks<H> {
    fn clone(&self) -> Self {
        Self(Arc::new(Mutex::new(self.all())))
    }
}
