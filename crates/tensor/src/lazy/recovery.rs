//! Values that survive the loss of their device: their recipes are kept, and run again.

use std::sync::Arc;

use rustorch_ir::TensorType;
use rustorch_ir::order::sort_by_key;
use rustorch_runtime::{Routing, RunError, Runtime, Storage};
use smallvec::SmallVec;

use crate::error::{RusTorchError, RusTorchResult};
use crate::lazy::history::{ByKey, History};
use crate::lazy::recipe::{From, Made, Operand, Recipe};
use crate::lazy::value::{Pending, State, Value, View};

/// The recipes of a history's values, by the keys of values.
pub(crate) type Recipes = ByKey<Arc<Recipe>>;

/// The recipes of all that a history computes, as far as there are some.
pub(crate) fn of_history(history: &History, runtime: &Runtime) -> Recipes {
    let overwritten = (history.leaves.iter())
        .filter(|(value, _)| history.overwritten.contains_key(&value.key()))
        .filter_map(|(value, _)| Some(value.view()?.storage.clone()));
    let overwritten: Vec<Storage> = overwritten.collect();
    let is_lasting = |storage: &Storage| !overwritten.iter().any(|o| o.same_as(storage));
    let mut recipes = Recipes::default();
    for (results, pending) in &history.nodes {
        let Some(made) = made(pending, &recipes, is_lasting, runtime) else {
            continue;
        };
        let recipe = |value: &Value| (value.key(), Recipe::new(&made, value.result(), value.ty()));
        recipes.extend(results.iter().map(recipe));
    }
    recipes
}

/// The recipe of one operation on values in memory, if there is one.
pub(crate) fn of_one(value: &Value, pending: &Pending, runtime: &Runtime) -> Option<Arc<Recipe>> {
    let made = made(pending, &Recipes::default(), |_| true, runtime)?;
    Some(Recipe::new(&made, value.result(), value.ty()))
}

/// An operation as recipes have it, if it can be done again. Its operands are `known`, or in memory:
/// in storages that are `is_lasting`.
fn made(
    pending: &Pending,
    known: &Recipes,
    is_lasting: impl Fn(&Storage) -> bool,
    runtime: &Runtime,
) -> Option<Arc<Made>> {
    if pending.is_update() {
        return None;
    }
    let mut operands = SmallVec::new();
    for input in &pending.inputs {
        operands.push(match known.get(&input.key()) {
            Some(recipe) => Operand {
                from: From::Recipe(recipe.clone()),
                ty: input.ty().clone(),
                layout: None,
            },
            None => operand(input, &is_lasting, runtime)?,
        });
    }
    Made::new(pending.op.clone(), pending.call, pending.pin, operands)
}

/// A value that is a number, or in memory.
fn operand(
    value: &Value,
    is_lasting: impl Fn(&Storage) -> bool,
    runtime: &Runtime,
) -> Option<Operand> {
    let ty = value.ty().clone();
    let view = match value.state() {
        State::Scalar(number) => {
            let from = From::Number(number);
            let layout = None;
            return Some(Operand { from, ty, layout });
        }
        State::Ready(view) => view,
        State::Pending(_) | State::Placeholder | State::Failed(_) => return None,
    };
    let is_usable = |recipe: &&Arc<Recipe>| recipe.ty().dtype == ty.dtype && recipe.can_go_on();
    let recipe = view.recipe().filter(is_usable);
    let from = match recipe {
        Some(recipe) => From::Recipe(recipe.clone()),
        None if is_lasting(&view.storage) => From::Memory(runtime.keep(&view.storage)?),
        None => return None,
    };
    let is_whole = view.is_whole(ty.dtype);
    Some(Operand {
        from,
        ty,
        layout: (!is_whole).then(|| view.layout.clone()),
    })
}

/// Has values in memory computed again that were lost with a device or came of a mistake. Waits until mistakes are
/// known. Returns how many values there were.
///
/// # Errors
/// Fails with [`RusTorchError::DataLost`] if the value cannot be recomputed. Also fails for the
/// mistake itself.
pub(crate) fn recover_lost<'a>(
    values: impl Iterator<Item = &'a Value>,
    runtime: &Runtime,
    routing: Routing,
) -> RusTorchResult<usize> {
    let lost = values.filter_map(|value| {
        let view = value.view()?;
        let depth = view.recipe().map_or(0, |recipe| recipe.depth());
        view.storage.settle();
        let is_lost = view.storage.valid_on().is_empty();
        is_lost.then_some((depth, value))
    });
    let mut lost: Vec<(u32, &Value)> = lost.collect();
    // Others are computed from what is there again.
    sort_by_key(&mut lost, |(depth, _)| *depth);
    for (_, value) in &lost {
        recover(value, runtime, routing)?;
    }
    Ok(lost.len())
}

/// Answers a run that lacks a value lost with a device: recomputes it.
///
/// # Errors
/// Fails with [`RusTorchError::DataLost`] if the value cannot be recomputed.
pub(crate) fn recover_from<'a>(
    lost: RunError,
    mut leaves: impl Iterator<Item = &'a Value>,
    storages: &[Storage],
    runtime: &Runtime,
    routing: Routing,
) -> RusTorchResult<()> {
    let RunError::DataLost { input, during } = lost else {
        return Err(lost.into());
    };
    let Some(error) = during else {
        return match recover_lost(leaves, runtime, routing)? {
            0 => Err(RunError::DataLost {
                input,
                during: None,
            }
            .into()),
            _ => Ok(()),
        };
    };
    let is_it = |value: &&Value| {
        let view = value.view();
        view.is_some_and(|view| {
            storages
                .get(input)
                .is_some_and(|s| s.same_as(&view.storage))
        })
    };
    Err(match leaves.find(is_it) {
        Some(value) => RusTorchError::UpdateLost {
            tensor: value.ty().clone(),
            during: error,
        },
        None => {
            let during = Some(error);
            RunError::DataLost { input, during }.into()
        }
    })
}

/// Has a value in memory whose elements were lost with a device computed again.
///
/// # Errors
/// Fails with [`RusTorchError::DataLost`] if its history is unknown or its inputs are gone. Also
/// fails if recomputing fails.
fn recover(value: &Value, runtime: &Runtime, routing: Routing) -> RusTorchResult<()> {
    let Some(view) = value.view() else {
        return Ok(());
    };
    let recipe = view.recipe();
    let computed = match recipe {
        Some(recipe) => recipe.elements(runtime, routing)?,
        None => None,
    };
    let (Some(storage), Some(recipe)) = (computed, recipe) else {
        return Err(lost(value.ty(), &view));
    };
    let layout = view.layout.clone();
    let whole = View::whole(storage, &layout.shape);
    let again = whole.made_by(view.op(), Some(recipe.clone()));
    value.restore(again.seen_as(layout));
    Ok(())
}

/// The error for a value whose elements are gone.
fn lost(ty: &TensorType, view: &View) -> RusTorchError {
    RusTorchError::DataLost {
        tensor: ty.clone(),
        op: view.op(),
        device: view.storage.last_writer(),
    }
}
