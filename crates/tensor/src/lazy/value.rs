//! The value of handles: a value, in memory or still to be computed.

pub(crate) mod live;

use std::mem;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustorch_ir::ops::Contiguous;
use rustorch_ir::{DType, Layout, Op, OpError, Role, Scalar, Shape, TensorType};
use rustorch_runtime::{Call, DeviceType, HostBuffer, Moment, Storage, WeakStorage};
use smallvec::{SmallVec, smallvec};

use crate::error::{RusTorchError, RusTorchResult};
use crate::lazy::recipe::Recipe;
use crate::lazy::spares::Spares;

thread_local! {
    static NODES: Spares<Node> = const { Spares::new() };
    static PENDING: Spares<Pending> = const { Spares::new() };
}

/// A value. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Value(Arc<Node>);

/// A value that may be gone; this does not keep it.
pub(crate) struct WeakValue(Weak<Node>);

impl WeakValue {
    /// The value, if there still is a handle on it.
    pub(crate) fn upgrade(&self) -> Option<Value> {
        self.0.upgrade().map(Value)
    }
}

pub(crate) struct Node {
    ty: TensorType,
    /// The device wanted for this value and for results of it.
    pin: Option<DeviceType>,
    /// The index among the results of its operation.
    result: usize,
    /// Moment and call of the last recorded update that writes over it.
    updated: Mutex<(Moment, Option<Call>)>,
    /// The packed extent of the state, so that recording looks at operands without their locks. It
    /// may lag behind the state.
    extent: AtomicU64,
    /// Its place among those that are still to be computed.
    place: AtomicU32,
    state: Mutex<State>,
}

/// The state of a value.
#[derive(Clone)]
pub(crate) enum State {
    /// The operation that computes it.
    Pending(Arc<Pending>),
    /// Its device.
    Ready(Arc<View>),
    /// One number, of rank 0, that has no memory yet.
    Scalar(Scalar),
    /// It is given when a [`Trace`](crate::Trace) is run.
    Placeholder,
    /// The value could not be recorded; each use of it gets the error.
    Failed(Arc<RusTorchError>),
}

/// An operation on values.
pub(crate) struct Pending {
    pub(crate) op: Op,
    /// Its name in errors: the method that the user called, and where.
    pub(crate) call: Call,
    pub(crate) inputs: SmallVec<[Value; 4]>,
    /// The device that the user wants it on.
    pub(crate) pin: Option<DeviceType>,
    /// Length of the history that ends here.
    pub(crate) extent: Extent,
    /// Moment of the recording: operands have the elements of that moment.
    pub(crate) recorded: Moment,
    /// Its results in order, if it has several: they are computed together. One alone is found
    /// from the value.
    pub(crate) results: OnceLock<Box<[Weak<Node>]>>,
    /// Layout of a view that strides can express, in the memory that it shows, which may not be there yet.
    pub(crate) layout: Option<Layout>,
    /// The memory that it writes over, or shows once that is written.
    pub(crate) written: Option<Written>,
}

/// A write over memory that is still to be done.
#[derive(Clone)]
pub(crate) struct Written {
    pub(crate) memory: WeakStorage,
    /// Moment of the recording.
    pub(crate) moment: Moment,
}

/// Length of a history.
#[derive(Clone, Copy, Default)]
pub(crate) struct Extent {
    /// Operations one after the other.
    pub(crate) depth: u32,
    /// The [count](crate::lazy::history) of bytes before any were counted that it reads; 0 for a leaf that was not counted.
    pub(crate) began: u64,
    /// Bytes of memory that it holds, at most, of one that was just recorded.
    pub(crate) bytes: u64,
    /// Does it begin with a placeholder? Then it cannot be computed.
    pub(crate) is_traced: bool,
}

impl Extent {
    /// Bits of the count when packed. Above them are a bit for the placeholder, and the depth.
    const BYTES: u32 = 48;

    /// A value in this state.
    fn of_state(state: &State) -> Self {
        let none = Self::default();
        match state {
            State::Pending(pending) => pending.extent,
            State::Ready(_) | State::Scalar(_) => none,
            // Neither has a value now.
            State::Placeholder | State::Failed(_) => Self {
                is_traced: true,
                ..none
            },
        }
    }

    /// In one word, with at most as much as that holds.
    #[inline]
    fn packed(self) -> u64 {
        let began = self.began.min((1 << Self::BYTES) - 1);
        let depth = u64::from(self.depth.min(0x7fff));
        began | u64::from(self.is_traced) << Self::BYTES | depth << (Self::BYTES + 1)
    }

    #[inline]
    fn unpacked(word: u64) -> Self {
        Self {
            depth: (word >> (Self::BYTES + 1)) as u32,
            began: word & ((1 << Self::BYTES) - 1),
            bytes: 0,
            is_traced: word >> Self::BYTES & 1 == 1,
        }
    }
}

impl Pending {
    /// An operation of one result on `inputs`, recorded now.
    #[inline]
    pub(crate) fn new<'a>(
        op: Op,
        call: Call,
        inputs: impl Iterator<Item = &'a Value> + Clone,
        pin: Option<DeviceType>,
    ) -> Arc<Self> {
        let (extent, recorded) = (Extent::of(inputs.clone()), Moment::next());
        if let Some(mut pending) = PENDING.with(Spares::take)
            && let Some(place) = Arc::get_mut(&mut pending)
        {
            place.op = op;
            place.call = call;
            // One by one, which is shorter for a few than collecting them.
            inputs.for_each(|input| place.inputs.push(input.clone()));
            place.pin = pin;
            place.extent = extent;
            place.recorded = recorded;
            return pending;
        }
        Arc::new(Self {
            op,
            call,
            inputs: inputs.cloned().collect(),
            pin,
            extent,
            recorded,
            results: OnceLock::new(),
            layout: None,
            written: None,
        })
    }

    /// Notes where the result of a view, or of a write, will be.
    pub(crate) fn find_place(pending: &mut Arc<Self>) {
        let Some(pending) = Arc::get_mut(pending) else {
            return;
        };
        let Some(of) = pending.inputs.first() else {
            return;
        };
        if pending.is_update() {
            let (memory, moment) = (of.memory(), pending.recorded);
            pending.written = memory.map(|memory| Written {
                memory: memory.downgrade(),
                moment,
            });
        } else if of.pin() == pending.pin {
            pending.layout = pending.op.def().view(&of.layout());
            if pending.layout.is_some() {
                pending.written = of.written();
            }
        }
    }

    /// Gives each operand its own input, as far as these are in memory. So lists of tensors have
    /// one graph, whichever of them are the same.
    pub(crate) fn part_operands(pending: &mut Arc<Self>) {
        let Some(pending) = Arc::get_mut(pending) else {
            return;
        };
        for input in &mut pending.inputs {
            if let Some(apart) = input.apart() {
                *input = apart;
            }
        }
    }

    /// Drops an operation, whose memory is kept for the next one if nothing else holds it.
    pub(crate) fn give_back(pending: Arc<Self>) {
        Self::release(pending, &mut SmallVec::new());
    }

    /// Puts the operands to others, if this is the last handle.
    fn release(mut pending: Arc<Self>, released: &mut SmallVec<[Value; 4]>) {
        let Some(alone) = alone(&mut pending) else {
            if let Some(mut alone) = Arc::into_inner(pending) {
                alone.release_inputs(released);
            }
            return;
        };
        alone.release_inputs(released);
        // Nothing else that it holds is kept.
        alone.op = Contiguous.into();
        alone.results.take();
        alone.layout = None;
        alone.written = None;
        // At a thread's end there is nowhere to keep it.
        let _ = PENDING.try_with(|spares| spares.keep(pending));
    }

    /// One by one, which is shorter for a few than moving the whole list.
    #[inline]
    fn release_inputs(&mut self, released: &mut SmallVec<[Value; 4]>) {
        while let Some(input) = self.inputs.pop() {
            released.push(input);
        }
    }

    /// Returns whether it is written over its first operand.
    pub(crate) fn is_update(&self) -> bool {
        overwrites(&self.op)
    }

    /// Number of its results.
    pub(crate) fn count(&self) -> usize {
        self.results.get().map_or(1, |results| results.len())
    }

    /// Returns whether it is a view of its operand's memory.
    pub(crate) fn is_look(&self) -> bool {
        self.layout.is_some()
    }

    /// Returns whether it is a view in graphs that strides cannot express.
    pub(crate) fn is_copying_view(&self) -> bool {
        self.op.def().role() == Role::View && !self.is_look()
    }

    /// The value of such a view, of this type, and the operation that copies it.
    pub(crate) fn as_copy_of_view(self: &Arc<Self>, ty: &TensorType) -> (Value, Arc<Self>) {
        let view = Value::new(ty.clone(), self.pin, State::Pending(self.clone()));
        let copy = Self {
            op: Contiguous.into(),
            inputs: smallvec![view.clone()],
            results: OnceLock::new(),
            layout: None,
            written: None,
            ..**self
        };
        (view, Arc::new(copy))
    }

    /// Fails if memory that an operand shows was written over since this was recorded.
    pub(crate) fn check_operands(&self) -> RusTorchResult<()> {
        // The values that read a look are checked instead.
        let mut operands = self.inputs.iter().filter(|_| !self.is_look());
        let Some(memory) = operands.find_map(|input| input.overwritten_since(self.recorded)) else {
            return Ok(());
        };
        let expected = "operands as they were when it was recorded";
        let cure = "read the value before that, or record it again";
        let got = written_since(memory.last_write(), cure);
        let error = OpError::new(self.call.method, expected, got);
        let call = Some(self.call);
        Err(RusTorchError::Op { error, call })
    }

    /// The results with live handles, among them `value`.
    pub(crate) fn results(&self, value: Value) -> SmallVec<[Value; 1]> {
        match self.results.get() {
            Some(results) => results
                .iter()
                .filter_map(Weak::upgrade)
                .map(Value)
                .collect(),
            None => smallvec![value],
        }
    }
}

/// Words of an error about overwritten elements: the writer, and the cure.
pub(crate) fn written_since(writer: Option<Call>, cure: &str) -> String {
    let by = writer.map(|call| format!(" by {call}")).unwrap_or_default();
    format!("one that was written over since{by} ({cure})")
}

/// Is an operation's result written over its first operand?
pub(crate) fn overwrites(op: &Op) -> bool {
    op.def().overwrites(0) == Some(0)
}

/// Elements in a storage.
pub(crate) struct View {
    pub(crate) storage: Storage,
    pub(crate) layout: Layout,
    /// Whether it was made as a view of another one's elements.
    is_look: bool,
    /// Whether it is its own input in graphs that do not write over the storage.
    pub(crate) is_apart: bool,
    origin: Origin,
}

/// The source of a storage's elements.
#[derive(Clone, Default)]
struct Origin {
    /// The operation that computed them.
    op: Option<&'static str>,
    /// Recipe of the elements, and the version of the storage for which it holds.
    recipe: Option<(Arc<Recipe>, u64)>,
}

impl View {
    /// A whole storage, in row-major order.
    #[inline]
    pub(crate) fn whole(storage: Storage, shape: &Shape) -> Self {
        let layout = Layout::contiguous(shape);
        Self {
            storage,
            layout,
            is_look: false,
            is_apart: false,
            origin: Origin::default(),
        }
    }

    /// A number in its own memory; `None` if there is none left.
    pub(crate) fn number(number: Scalar, ty: &TensorType) -> Option<Self> {
        let buffer = HostBuffer::copy_of(&number.to_bytes(ty.dtype))?;
        Some(Self::whole(Storage::from_host(buffer), &ty.shape))
    }

    /// The same, computed just now by this operation, with a recipe or without.
    #[inline]
    pub(crate) fn made_by(mut self, op: Option<&'static str>, recipe: Option<Arc<Recipe>>) -> Self {
        recipe
            .iter()
            .for_each(|recipe| recipe.computed(&self.storage));
        let recipe = recipe.map(|recipe| (recipe, self.storage.version()));
        self.origin = Origin { op, recipe };
        self
    }

    /// The same storage, in another layout.
    pub(crate) fn seen_as(&self, layout: Layout) -> Self {
        let (storage, origin) = (self.storage.clone(), self.origin.clone());
        Self {
            storage,
            layout,
            is_look: true,
            is_apart: false,
            origin,
        }
    }

    /// The same elements, as an input of their own in graphs.
    fn apart(&self) -> Self {
        Self {
            is_apart: true,
            ..self.seen_as(self.layout.clone())
        }
    }

    /// The operation that computed the storage.
    pub(crate) fn op(&self) -> Option<&'static str> {
        self.origin.op
    }

    /// Recipe of the whole storage, if it was not written over since.
    pub(crate) fn recipe(&self) -> Option<&Arc<Recipe>> {
        let (recipe, version) = self.origin.recipe.as_ref()?;
        (self.storage.version() == *version).then_some(recipe)
    }

    /// Are its elements those that were there at a moment?
    pub(crate) fn is_of(&self, moment: Moment) -> bool {
        self.storage.overwritten() <= moment
    }

    /// Does it show elements that other values may show as well?
    pub(crate) fn is_shared(&self) -> bool {
        self.is_look && self.storage.handles() > 1
    }

    /// Does the view show all of its storage in row-major order, as `dtype`?
    pub(crate) fn is_whole(&self, dtype: DType) -> bool {
        self.layout.offset == 0
            && self.layout.is_contiguous()
            && dtype.bytes_of(&self.layout.shape) == Some(self.storage.bytes())
    }

    /// The part that `op` shows of it, if it is a view that strides can express.
    pub(crate) fn seen(&self, op: &Op) -> Option<Self> {
        let def = op.def();
        let layout = (def.role() == Role::View).then(|| def.view(&self.layout))??;
        Some(self.seen_as(layout))
    }
}

impl Node {
    /// Drops the state except the inputs, which are moved to others. So dropping a node never drops another
    /// inside it.
    #[inline]
    fn release(&mut self, released: &mut SmallVec<[Value; 4]>) {
        live::leave(&self.place);
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Pending(pending) = mem::replace(state, State::Placeholder) {
            Pending::release(pending, released);
        }
    }
}

/// The state without another handle on it, with little work if there is one.
fn alone<T>(shared: &mut Arc<T>) -> Option<&mut T> {
    match Arc::strong_count(shared) {
        1 => Arc::get_mut(shared),
        _ => None,
    }
}

impl Drop for Node {
    /// A history can be long: it is taken apart in a loop, not by recursion.
    fn drop(&mut self) {
        let mut rest = SmallVec::new();
        self.release(&mut rest);
        while let Some(Value(mut node)) = rest.pop() {
            if Arc::strong_count(&node) == 1 {
                // Its memory is kept only where no list knows it.
                live::leave(&node.place);
            }
            if let Some(alone) = alone(&mut node) {
                alone.release(&mut rest);
                let _ = NODES.try_with(|spares| spares.keep(node));
            } else if let Some(mut node) = Arc::into_inner(node) {
                node.release(&mut rest);
            }
        }
    }
}

impl Value {
    #[inline]
    pub(crate) fn new(ty: TensorType, pin: Option<DeviceType>, state: State) -> Self {
        Self::of_result(0, ty, pin, state)
    }

    #[inline]
    fn of_result(result: usize, ty: TensorType, pin: Option<DeviceType>, state: State) -> Self {
        let extent = Extent::of_state(&state).packed();
        let is_pending = matches!(state, State::Pending(_));
        if let Some(mut node) = NODES.with(Spares::take)
            && let Some(place) = Arc::get_mut(&mut node)
        {
            place.ty = ty;
            place.pin = pin;
            place.result = result;
            place.updated = Mutex::default();
            *place.extent.get_mut() = extent;
            *place
                .state
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner) = state;
            return Self(node).entered(is_pending);
        }
        let node = Node {
            ty,
            pin,
            result,
            updated: Mutex::default(),
            extent: AtomicU64::new(extent),
            place: AtomicU32::default(),
            state: Mutex::new(state),
        };
        Self(Arc::new(node)).entered(is_pending)
    }

    /// Counts it among the live ones, if it is still to be computed.
    #[inline]
    fn entered(self, is_pending: bool) -> Self {
        if is_pending {
            live::enter(&self.0.place, || self.downgrade());
        }
        self
    }

    /// The results of a new operation, of these types.
    pub(crate) fn results(
        types: impl IntoIterator<Item = TensorType>,
        pending: &Arc<Pending>,
    ) -> Vec<Self> {
        let value = |(result, ty)| {
            let state = State::Pending(pending.clone());
            Self::of_result(result, ty, pending.pin, state)
        };
        let values: Vec<Self> = types.into_iter().enumerate().map(value).collect();
        let all = || {
            values
                .iter()
                .map(|value| Arc::downgrade(&value.0))
                .collect()
        };
        pending.results.get_or_init(all);
        values
    }

    /// Elements in memory.
    pub(crate) fn ready(dtype: DType, pin: Option<DeviceType>, view: impl Into<Arc<View>>) -> Self {
        let view = view.into();
        let shape = view.layout.shape.clone();
        Self::new(TensorType { shape, dtype }, pin, State::Ready(view))
    }

    /// The same elements as an input of their own in graphs. They must be all of some memory, or a number.
    fn apart(&self) -> Option<Self> {
        let view = match (self.viewed().as_ref().unwrap_or(self).state(), self.view()) {
            (State::Ready(_), Some(view)) if view.is_whole(self.ty().dtype) => view.apart(),
            (State::Scalar(number), None) if self.ty().shape.elements() == 1 => {
                View::number(number, self.ty())?.apart()
            }
            _ => return None,
        };
        Some(Self::ready(self.ty().dtype, self.pin(), view))
    }

    pub(crate) fn ty(&self) -> &TensorType {
        &self.0.ty
    }

    pub(crate) fn pin(&self) -> Option<DeviceType> {
        self.0.pin
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> State {
        self.lock().clone()
    }

    /// Length of the history that ends here, as far as it is known without the lock.
    #[inline]
    pub(crate) fn extent(&self) -> Extent {
        Extent::unpacked(self.0.extent.load(Ordering::Relaxed))
    }

    /// Notes that the bytes of this leaf were counted behind `began`.
    pub(crate) fn count_from(&self, began: u64) {
        let extent = Extent {
            began,
            ..self.extent()
        };
        self.0.extent.store(extent.packed(), Ordering::Relaxed);
    }

    /// Changes the state, and returns the one before.
    fn replace(&self, state: &mut State, with: State) -> State {
        live::leave(&self.0.place);
        let extent = Extent::of_state(&with).packed();
        self.0.extent.store(extent, Ordering::Relaxed);
        mem::replace(state, with)
    }

    /// Returns whether it is an error that each use of it gets.
    pub(crate) fn is_failed(&self) -> bool {
        matches!(*self.lock(), State::Failed(_))
    }

    /// Fails with the error that it is, if it is one.
    #[inline]
    pub(crate) fn require_known(&self) -> RusTorchResult<()> {
        // All others are known without the lock.
        if !self.extent().is_traced {
            return Ok(());
        }
        match &*self.lock() {
            State::Failed(error) => Err((**error).clone()),
            _ => Ok(()),
        }
    }

    /// The operation that computes it, if it was not computed yet.
    pub(crate) fn pending(&self) -> Option<Arc<Pending>> {
        match &*self.lock() {
            State::Pending(pending) => Some(pending.clone()),
            State::Ready(_) | State::Scalar(_) | State::Placeholder | State::Failed(_) => None,
        }
    }

    /// The place of its elements, if they are in memory.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        match &*self.lock() {
            State::Ready(view) => Some(view.clone()),
            State::Pending(_) | State::Scalar(_) | State::Placeholder | State::Failed(_) => None,
        }
    }

    /// The memory that it is in, or that it will show once that is written over.
    pub(crate) fn memory(&self) -> Option<Storage> {
        let mut value = self.clone();
        loop {
            value = match &*value.clone().lock() {
                State::Ready(view) => return Some(view.storage.clone()),
                State::Pending(pending) => match &pending.written {
                    Some(written) => return written.memory.upgrade(),
                    // The tensor that it is a view of may be in memory by now.
                    None if pending.is_look() => pending.inputs[0].clone(),
                    None => return None,
                },
                State::Scalar(_) | State::Placeholder | State::Failed(_) => return None,
            }
        }
    }

    /// Are its elements in the memory of the other's, or will they be?
    pub(crate) fn shares_memory(&self, other: &Self) -> bool {
        match (self.memory(), other.memory()) {
            (Some(own), Some(others)) => own.same_as(&others),
            (None, None) => self.root().key() == other.root().key(),
            _ => false,
        }
    }

    /// The last write that it shows, if that is still to be done.
    pub(crate) fn written(&self) -> Option<Written> {
        match &*self.lock() {
            State::Pending(pending) => pending.written.clone(),
            State::Ready(_) | State::Scalar(_) | State::Placeholder | State::Failed(_) => None,
        }
    }

    /// Layout of its elements in memory, or in the memory that it will have.
    pub(crate) fn layout(&self) -> Layout {
        match &*self.lock() {
            State::Ready(view) => view.layout.clone(),
            State::Pending(pending) => match &pending.layout {
                Some(layout) => layout.clone(),
                None => Layout::contiguous(&self.ty().shape),
            },
            State::Scalar(_) | State::Placeholder | State::Failed(_) => {
                Layout::contiguous(&self.ty().shape)
            }
        }
    }

    /// The value that it is a view of, if that was not computed.
    pub(crate) fn viewed(&self) -> Option<Self> {
        let views = self.pending_views();
        views.last().map(|(_, pending)| pending.inputs[0].clone())
    }

    /// The value in whose memory it is, or will be: itself, if it is not a view that was not computed.
    pub(crate) fn root(&self) -> Self {
        self.viewed().unwrap_or_else(|| self.clone())
    }

    /// Shows the memory of its base, if that is there.
    pub(crate) fn show(&self) {
        for (view, pending) in self.pending_views().iter().rev() {
            let viewed = pending.inputs[0].view();
            // What strides cannot show is a copy.
            let Some(seen) = viewed.and_then(|viewed| viewed.seen(&pending.op)) else {
                break;
            };
            view.store(seen);
        }
    }

    /// This value and its bases, as far as they are views that were not computed.
    fn pending_views(&self) -> Vec<(Self, Arc<Pending>)> {
        let (mut value, mut views) = (self.clone(), Vec::new());
        while let Some(pending) = value.pending().filter(|pending| pending.is_look()) {
            let viewed = pending.inputs[0].clone();
            views.push((value, pending));
            value = viewed;
        }
        views
    }

    /// Cannot be computed: each use of it gets this error.
    pub(crate) fn fail(&self, error: RusTorchError) {
        let mut state = self.lock();
        if matches!(*state, State::Pending(_)) {
            let history = self.replace(&mut state, State::Failed(Arc::new(error)));
            drop(state);
            drop(history);
        }
    }

    /// Puts the value in memory in the place of its history.
    pub(crate) fn store(&self, view: impl Into<Arc<View>>) {
        let mut state = self.lock();
        if matches!(*state, State::Pending(_) | State::Scalar(_)) {
            let history = self.replace(&mut state, State::Ready(view.into()));
            // The history may be long, and the lock is not needed for dropping it.
            drop(state);
            drop(history);
        }
    }

    /// Puts lost elements in memory again.
    pub(crate) fn restore(&self, view: View) {
        let mut state = self.lock();
        if matches!(*state, State::Ready(_)) {
            let lost = self.replace(&mut state, State::Ready(view.into()));
            drop(state);
            drop(lost);
        }
    }

    /// Notes that `call` is recording an update that writes over it.
    pub(crate) fn announce_update(&self, call: Call) {
        let moment = Moment::next();
        *self.updated() = (moment, Some(call));
        if let Some(memory) = self.memory() {
            memory.announce_overwrite(moment, call);
        }
    }

    fn updated(&self) -> MutexGuard<'_, (Moment, Option<Call>)> {
        let updated = self.0.updated.lock();
        updated.unwrap_or_else(PoisonError::into_inner)
    }

    /// Does it have, in memory or when it is computed, the elements of a moment? Recorded writes
    /// count as well from then on.
    pub(crate) fn is_of(&self, moment: Moment) -> bool {
        let mut value = self.clone();
        loop {
            if value.updated().0 > moment {
                return false;
            }
            value = match &*value.clone().lock() {
                State::Ready(view) => {
                    return view.is_of(moment) && view.storage.announced() <= moment;
                }
                State::Pending(pending) if pending.is_look() => pending.inputs[0].clone(),
                _ => return true,
            }
        }
    }

    /// The call that wrote last, or recorded the write.
    pub(crate) fn writer(&self) -> Option<Call> {
        let recorded = self.updated().1;
        recorded.or_else(|| self.memory()?.last_write())
    }

    /// The memory that it shows, if that was written over behind a moment.
    pub(crate) fn overwritten_since(&self, moment: Moment) -> Option<Storage> {
        let mut value = self.clone();
        loop {
            value = match &*value.clone().lock() {
                State::Ready(view) => {
                    return (!view.is_of(moment)).then(|| view.storage.clone());
                }
                State::Pending(pending) if pending.is_look() => pending.inputs[0].clone(),
                _ => return None,
            }
        }
    }

    /// The index among the results of its operation.
    pub(crate) fn result(&self) -> usize {
        self.0.result
    }

    /// The same value, without keeping it alive.
    pub(crate) fn downgrade(&self) -> WeakValue {
        WeakValue(Arc::downgrade(&self.0))
    }

    /// Tells this value from others.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Handles, tensors' and histories', that there are on it besides `known` ones.
    pub(crate) fn others(&self, known: usize) -> usize {
        Arc::strong_count(&self.0).saturating_sub(known)
    }
}
