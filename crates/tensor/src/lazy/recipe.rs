//! Recipes: how to compute values in memory again if their device is lost.
//!
//! A recipe is an operation with its operands. Each operand is another recipe, a number, or host memory.
//! They keep no elements on devices.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rustorch_ir::{Graph, Layout, Op, OpError, Scalar, TensorType, ValueId};
use rustorch_runtime::{
    Call, DeviceType, Routing, RunError, Runtime, Source, Storage, WeakStorage,
};
use smallvec::SmallVec;

use crate::error::RusTorchResult;
use crate::lazy::leaves::{input_type, put_in};

/// Operations one after the other that a recipe may have.
const MAX_DEPTH: u32 = 1000;

/// Computation of a storage's elements.
pub(crate) struct Recipe {
    made: Arc<Made>,
    /// The index among the operation's results.
    result: usize,
    ty: TensorType,
    /// Their place, with their version.
    memory: Mutex<Option<(WeakStorage, u64)>>,
}

/// An operation on operands.
pub(crate) struct Made {
    op: Op,
    /// The call that recorded it.
    call: Call,
    /// The device that the user wants it on.
    pin: Option<DeviceType>,
    operands: SmallVec<[Operand; 4]>,
    /// Operations one after the other.
    depth: u32,
}

/// An operand: a whole value, or the part that a layout shows.
pub(crate) struct Operand {
    pub(crate) from: From,
    pub(crate) ty: TensorType,
    pub(crate) layout: Option<Layout>,
}

/// The source of an operand.
pub(crate) enum From {
    Recipe(Arc<Recipe>),
    Memory(Source),
    Number(Scalar),
}

impl Made {
    /// An operation; `None` if there are too many behind it, or if other ranks took part in it.
    pub(crate) fn new(
        op: Op,
        call: Call,
        pin: Option<DeviceType>,
        operands: SmallVec<[Operand; 4]>,
    ) -> Option<Arc<Self>> {
        let depths = operands.iter().map(|operand| match &operand.from {
            From::Recipe(recipe) => recipe.depth(),
            From::Memory(_) | From::Number(_) => 0,
        });
        let depth = depths.max().unwrap_or(0) + 1;
        (depth <= MAX_DEPTH && !op.is_collective()).then(|| {
            Arc::new(Self {
                op,
                call,
                pin,
                operands,
                depth,
            })
        })
    }
}

impl Recipe {
    /// The result of this number of an operation.
    pub(crate) fn new(made: &Arc<Made>, result: usize, ty: &TensorType) -> Arc<Self> {
        Arc::new(Self {
            made: made.clone(),
            result,
            ty: ty.clone(),
            memory: Mutex::default(),
        })
    }

    /// The types of its results.
    pub(crate) fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Can more be computed from it that has a recipe?
    pub(crate) fn can_go_on(&self) -> bool {
        self.made.depth < MAX_DEPTH
    }

    /// Operations one after the other.
    pub(crate) fn depth(&self) -> u32 {
        self.made.depth
    }

    /// The elements are here now.
    pub(crate) fn computed(&self, storage: &Storage) {
        let memory = Some((storage.downgrade(), storage.version()));
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = memory;
    }

    /// The elements, if they are still in readable memory.
    fn in_memory(&self) -> Option<Storage> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let (storage, version) = memory.as_ref()?;
        let storage = storage.upgrade()?;
        let is_it = storage.version() == *version && !storage.valid_on().is_empty();
        is_it.then_some(storage)
    }

    /// The elements, computed again if need be; `None` if that cannot be.
    pub(crate) fn elements(
        self: &Arc<Self>,
        runtime: &Runtime,
        routing: Routing,
    ) -> RusTorchResult<Option<Storage>> {
        if let Some(storage) = self.in_memory() {
            return Ok(Some(storage));
        }
        // With each further device that is found lost, more of it is computed again.
        for _ in runtime.devices() {
            let Some(Building {
                graph,
                leaves,
                calls,
                ..
            }) = self.graph(runtime)?
            else {
                return Ok(None);
            };
            let call_of = |node: Option<usize>| node.and_then(|node| calls.get(&node).copied());
            match runtime.run(&graph, &leaves, routing) {
                Err(RunError::DataLost { .. }) => {}
                Err(error) => return Err(error.by_call(call_of).into()),
                Ok(outputs) => {
                    let storage = outputs.into_iter().next();
                    storage.iter().for_each(|storage| self.computed(storage));
                    return Ok(storage);
                }
            }
        }
        Ok(None)
    }

    /// The graph that computes it; `None` if some of its inputs are gone.
    fn graph(self: &Arc<Self>, runtime: &Runtime) -> RusTorchResult<Option<Building>> {
        let Steps { order, found } = self.walk();
        let mut building = Building::default();
        for (recipe, storage) in found {
            let input = building.input(recipe.ty.clone(), storage)?;
            building.values.insert(Arc::as_ptr(recipe).addr(), input);
        }
        let mut known = Vec::with_capacity(order.len());
        for made in &order {
            let Some(inputs) = building.inputs(made, runtime)? else {
                return Ok(None);
            };
            known.push(inputs);
        }
        for (made, known) in order.into_iter().zip(known) {
            building.push(made, &known)?;
        }
        let last = building.find(self);
        Ok(last.map(|last| {
            building.graph.output(last);
            building
        }))
    }

    /// The operation.
    fn walk(self: &Arc<Self>) -> Steps<'_> {
        let mut steps = Steps::default();
        let mut seen = HashSet::new();
        let mut next = vec![(self, false)];
        while let Some((recipe, has_operands)) = next.pop() {
            let made = Arc::as_ptr(&recipe.made).addr();
            if has_operands {
                if seen.insert(made) {
                    steps.order.push(&recipe.made);
                }
                continue;
            }
            if seen.contains(&made) || !seen.insert(Arc::as_ptr(recipe).addr()) {
                continue;
            }
            if let Some(storage) = recipe.in_memory() {
                steps.found.push((recipe, storage));
                continue;
            }
            next.push((recipe, true));
            let operands = recipe.made.operands.iter();
            next.extend(operands.filter_map(|operand| match &operand.from {
                From::Recipe(recipe) => Some((recipe, false)),
                From::Memory(_) | From::Number(_) => None,
            }));
        }
        steps
    }
}

/// The steps that compute a recipe's elements.
#[derive(Default)]
struct Steps<'a> {
    /// Operations in an order in which they can be done.
    order: Vec<&'a Arc<Made>>,
    /// Values in memory.
    found: Vec<(&'a Arc<Recipe>, Storage)>,
}

/// A graph of recipes.
#[derive(Default)]
struct Building {
    graph: Graph,
    leaves: Vec<Storage>,
    /// Values in memory by their recipes, and the first result of each operation.
    values: HashMap<usize, ValueId>,
    /// The calls that recorded the operations, by their nodes.
    calls: HashMap<usize, Call>,
}

impl Building {
    fn input(&mut self, ty: TensorType, storage: Storage) -> RusTorchResult<ValueId> {
        let input = self.graph.input(ty)?;
        self.leaves.push(storage);
        Ok(input)
    }

    /// The graph's inputs that an operation reads, one for each operand that is not a recipe; `None`
    /// if one is gone.
    fn inputs(
        &mut self,
        made: &Made,
        runtime: &Runtime,
    ) -> RusTorchResult<Option<SmallVec<[Option<ValueId>; 4]>>> {
        let mut inputs = SmallVec::new();
        for Operand { from, ty, layout } in &made.operands {
            inputs.push(match from {
                From::Recipe(_) => None,
                From::Number(number) => {
                    let storage = runtime.number(*number, ty.dtype)?;
                    Some(self.input(ty.clone(), storage)?)
                }
                From::Memory(source) => {
                    let Some(storage) = source.storage() else {
                        return Ok(None);
                    };
                    let whole = input_type(ty, layout.is_none(), storage.bytes());
                    Some(self.input(whole, storage)?)
                }
            });
        }
        Ok(Some(inputs))
    }

    /// The elements of a recipe.
    fn find(&self, recipe: &Arc<Recipe>) -> Option<ValueId> {
        let here = self.values.get(&Arc::as_ptr(recipe).addr()).copied();
        here.or_else(|| {
            let first = self.values.get(&Arc::as_ptr(&recipe.made).addr())?;
            Some(self.graph.results(*first)[recipe.result])
        })
    }

    /// Adds an operation, whose operands are there: `known` are those that are inputs.
    fn push(&mut self, made: &Arc<Made>, known: &[Option<ValueId>]) -> RusTorchResult<()> {
        let mut inputs: SmallVec<[ValueId; 4]> = SmallVec::new();
        for (operand, known) in made.operands.iter().zip(known) {
            let found = match &operand.from {
                From::Recipe(recipe) => self.find(recipe),
                From::Memory(_) | From::Number(_) => *known,
            };
            let missing = || OpError::new("recover", "an operand", "none");
            let (ty, layout) = (&operand.ty, operand.layout.as_ref());
            let found = found.ok_or_else(missing)?;
            inputs.push(put_in(&mut self.graph, found, ty, layout)?);
        }
        self.calls.insert(self.graph.nodes().len(), made.call);
        let first = self.graph.push(made.op.clone(), &inputs)?;
        self.graph.pin(first, made.pin);
        self.values.insert(Arc::as_ptr(made).addr(), first);
        Ok(())
    }
}
