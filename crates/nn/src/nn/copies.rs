//! Clones of modules, which are deep, and handles on modules.

use std::cell::Cell;

use rustorch_macros::track_calls;
use rustorch_tensor::replay::is_recording;
use rustorch_tensor::{RusTorchResult, Tensor, eval_all};

use super::Module;
use super::module::replace_all;
use crate::error::require;

/// Meaning of a module's `clone` on this thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A copy with its own memory.
    Copy,
    /// The parts of a copy: they share memory until the whole module gets its own.
    Parts,
    /// A handle on the same memory.
    Share,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Copy) };
}

/// Calls `f` in a mode.
fn with_mode<R>(mode: Mode, f: impl FnOnce() -> R) -> R {
    /// Restores the mode, also after a panic.
    struct Restored(Mode);

    impl Drop for Restored {
        fn drop(&mut self) {
            MODE.set(self.0);
        }
    }

    let _restored = Restored(MODE.replace(mode));
    f()
}

/// Implements `Clone` for a module as `#[derive(Module)]` has it. The compiler names this macro if there is another
/// `Clone` of the module.
#[doc(hidden)]
#[macro_export]
macro_rules! derive_module_writes_clone_so_remove_clone_from_your_derives {
    ([$($generics:tt)*] [$($module:tt)*] {$($method:tt)*}) => {
        #[automatically_derived]
        impl $($generics)* ::core::clone::Clone for $($module)* { $($method)* }
    };
}
#[doc(hidden)]
pub use derive_module_writes_clone_so_remove_clone_from_your_derives;

/// A module whose fields `clone` clones, with its own memory: the body of a module's `Clone::clone`.
/// `#[derive(Module)]` writes it. A module with its own [`Visit`](super::Visit) calls it by hand.
///
/// ```
/// use rustorch_nn::nn::{Leaf, LeafMut, Module, Visit, cloned, parameter};
/// use rustorch_tensor::{Tensor, no_grad, tensor};
///
/// struct Scale(Tensor);
///
/// impl Visit for Scale {
///     fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
///         self.0.visit(name, visitor);
///     }
///
///     fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
///         self.0.visit_mut(name, visitor);
///     }
/// }
///
/// impl Module for Scale {}
///
/// impl Clone for Scale {
///     fn clone(&self) -> Self {
///         cloned(|| Self(self.0.clone()))
///     }
/// }
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let mut scale = Scale(parameter(tensor![2.0])?);
/// let copy = scale.clone();
/// no_grad(|| scale.0.fill_(0.0).map(drop))?;
/// assert_eq!(copy.0.to_vec::<f32>()?, [2.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// Panics if [`deep_copy`] would fail.
#[track_caller]
pub fn cloned<M: Module>(clone: impl FnOnce() -> M) -> M {
    match MODE.get() {
        Mode::Copy => match own(clone) {
            Ok(copy) => copy,
            Err(error) => panic!("{error}"),
        },
        Mode::Parts | Mode::Share => clone(),
    }
}

/// The clone of a field that is no part of its module. A module in it gets its own memory, too.
/// `#[derive(Module)]` writes this.
pub fn cloned_apart<T: Clone>(field: &T) -> T {
    match MODE.get() {
        Mode::Parts => with_mode(Mode::Copy, || field.clone()),
        Mode::Copy | Mode::Share => field.clone(),
    }
}

/// A copy of the module with its own memory: `copy.deepcopy`, and `module.clone()` with an error in place of a panic.
/// Tensors in several places stay shared within the copy. Parameters of the copy are leaves without gradients. Names,
/// buffers, training modes and frozen parameters stay the same.
///
/// ```
/// use rustorch_nn::nn::{self, Forward, Linear, Module, ReLU};
/// use rustorch_tensor::no_grad;
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let online = nn::sequential![Linear::new(2, 3)?, ReLU];
/// let (target, same) = (nn::deep_copy(&online)?, nn::share(&online));
/// no_grad(|| online.parameters()[0].fill_(0.0).map(drop))?;
/// assert!(same.parameters()[0].equal(&online.parameters()[0])?);
/// assert!(!target.parameters()[0].equal(&online.parameters()[0])?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails if one of its tensors cannot be computed. Also fails in a recorded step, which would train the copy of its
/// recording: [`share`] gives a handle there.
#[track_calls]
pub fn deep_copy<M: Module + Clone>(module: &M) -> RusTorchResult<M> {
    own(|| module.clone())
}

/// Another handle on the same module: `same = model`. It shares parameters and buffers. A closure that
/// owns its module, such as that of `checkpoint`, takes one.
///
/// ```
/// use rustorch_nn::nn::{self, Forward, Linear};
/// use rustorch_tensor::{checkpoint, tensor};
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let block = Linear::new(2, 3)?;
/// let same = nn::share(&block);
/// let y = checkpoint(move |x| same.forward(x[0]), &[&tensor![[1.0, 2.0]]])?;
/// y.sum_all()?.backward()?;
/// assert!(block.weight.grad().is_some());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn share<M: Module + Clone>(module: &M) -> M {
    with_mode(Mode::Share, || module.clone())
}

/// The module that `clone` makes of shared parts, with its own memory.
fn own<M: Module>(clone: impl FnOnce() -> M) -> RusTorchResult<M> {
    require(
        "clone",
        !is_recording(),
        "a handle on the module in a recorded step (nn::share gives one)",
        "a copy, which no later step would train",
    )?;
    let mut copy = with_mode(Mode::Parts, clone);
    replace_all(&mut copy, &copied)?;
    let tensors = [copy.parameters(), copy.buffers()].concat();
    eval_all(&tensors.iter().collect::<Vec<_>>())?;
    Ok(copy)
}

/// Memory of its own with the same elements; a gradient is wanted as of the original.
pub(crate) fn copied(tensor: &Tensor) -> RusTorchResult<Tensor> {
    let mut copy = tensor.detach().zeros_like()?;
    copy.copy_(&tensor.detach())?;
    copy.requires_grad_(tensor.requires_grad())?;
    Ok(copy)
}
