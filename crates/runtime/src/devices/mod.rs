//! The devices of a program, and knowledge about them.

pub(crate) mod background;
pub(crate) mod capability;
pub(crate) mod costs;
pub(crate) mod placement;
pub(crate) mod policy;

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, Weak};

use rustorch_ir::order::sort_by_key;
use rustorch_ir::{DType, FoldingHasher, Op, Role, Scalar, Signature, TensorType};
use smallvec::SmallVec;

use crate::devices::background::Compiler;
use crate::devices::placement::{Chain, DeviceId};
use crate::devices::policy::{Policy, place_in_chain};
use crate::journal::{Journal, Owner, lock};
use crate::memory::sources::Ledger;
use crate::{
    Backend, Compilation, Costs, DeviceBuffer, DeviceCapability, DeviceError, DeviceInfo,
    DeviceType, Storage,
};

/// The devices, and knowledge about them.
pub(crate) struct Devices {
    slots: Vec<Slot>,
    chain: Chain,
    pub(crate) journal: Arc<Journal>,
    pub(crate) policy: Mutex<Policy>,
    /// Operations that a device has turned out not to support.
    unsupported: Mutex<HashSet<(DeviceId, Memo)>>,
    /// Are segments timed?
    pub(crate) profiling: AtomicBool,
    /// Whether there are measured devices to choose between.
    pub(crate) compares: AtomicBool,
    /// Makes the programs that take long.
    pub(crate) compiler: Compiler,
    /// Are those waited for?
    pub(crate) waits: AtomicBool,
    /// Numbers that were operands.
    pub(crate) numbers: Mutex<Numbers>,
    /// The recipes for recomputing.
    pub(crate) sources: Arc<Ledger>,
    /// Other caches, such as plans.
    reserve: Weak<dyn Reserve>,
}

/// Caches that can be emptied.
pub(crate) trait Reserve: Send + Sync {
    fn give_back(&self);
}

/// Numbers that were operands, with the copies that devices have of them.
type Numbers = HashMap<(Scalar, DType), Storage, BuildHasherDefault<FoldingHasher>>;

pub(crate) struct Slot {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) owner: Arc<Owner>,
    /// Segments that ran here.
    pub(crate) runs: AtomicU64,
    capability: OnceLock<DeviceCapability>,
    /// The cost of compiling, if it takes long.
    pub(crate) compilation: Option<Compilation>,
    /// Its measured speed.
    pub(crate) costs: Mutex<Option<Arc<Costs>>>,
    /// Has a warning about the device's impossible figures of memory been given?
    doubted: Once,
}

impl Slot {
    pub(crate) fn costs(&self) -> Option<Arc<Costs>> {
        lock(&self.costs).clone()
    }

    /// Bytes of its memory, where it is known.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.backend.info().memory_bytes.filter(|&bytes| bytes > 0)
    }

    /// Bytes that could be taken now, if known: the device's figure. If that is impossible or
    /// missing, it is the capacity less the tensors' memory. A limit bounds it.
    pub(crate) fn free(&self) -> Option<u64> {
        self.free_beside(0)
    }

    /// [`Slot::free`] for whom so much was counted as taken already.
    pub(crate) fn free_beside(&self, leased: u64) -> Option<u64> {
        let (owner, capacity) = (&self.owner, self.capacity());
        let makes_sense = |free: &u64| *free > 0 && capacity.is_none_or(|all| *free <= all);
        let told = self.backend.memory().free();
        let believed = told.filter(makes_sense);
        if let Some(told) = told.xor(believed) {
            self.doubted.call_once(|| {
                let of = capacity.unwrap_or(0);
                tracing::warn!(
                    "{} reports {told} bytes of free memory of {of} bytes in total, which is impossible; \
                     using the total less the memory of RusTorch's tensors",
                    owner.device
                );
            });
        }
        let left = capacity.map(|all| all.saturating_sub(owner.usage().0));
        let within = owner.left().map(|left| left.saturating_add(leased));
        believed.or(left).into_iter().chain(within).min()
    }

    /// A buffer for a result: that of an earlier run, if it has no other handle, else a new one.
    pub(crate) fn room_for(
        &self,
        result: &mut Option<Storage>,
        bytes: usize,
    ) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        let unused = result.take().filter(Storage::is_unique);
        let kept = unused.and_then(|s| Some((s.overwrite(&self.owner)?, s)));
        let (buffer, storage) = match kept {
            Some(kept) => kept,
            None => {
                self.owner.admit(bytes)?;
                let buffer = self.backend.memory().alloc(bytes)?;
                (buffer.clone(), Storage::on_device(&self.owner, buffer))
            }
        };
        *result = Some(storage);
        Ok(buffer)
    }
}

/// An operation with its operand types: the key of remembered support.
pub(crate) type Memo = (Op, SmallVec<[TensorType; 4]>);

pub(crate) fn memo(signature: &Signature) -> Memo {
    let inputs = signature.inputs.iter().map(|&ty| ty.clone());
    (signature.op.clone(), inputs.collect())
}

impl Devices {
    /// `backends` in the platform's order. [`Self::free_caches`] also empties `reserve`.
    pub(crate) fn new(
        backends: impl IntoIterator<Item = Arc<dyn Backend>>,
        reserve: Weak<dyn Reserve>,
    ) -> Self {
        let journal = Arc::new(Journal::new());
        let slot = |backend: Arc<dyn Backend>| Slot {
            owner: Owner::new(backend.info(), journal.clone()),
            compilation: backend.compilation(),
            backend,
            runs: AtomicU64::new(0),
            capability: OnceLock::new(),
            costs: Mutex::default(),
            doubted: Once::new(),
        };
        let mut slots: Vec<Slot> = backends.into_iter().map(slot).collect();
        sort_by_key(&mut slots, |slot| place_in_chain(slot.backend.info()));
        let chain = Chain(slots.iter().map(|s| s.backend.info().clone()).collect());
        Self {
            slots,
            chain,
            journal,
            policy: Mutex::default(),
            unsupported: Mutex::default(),
            profiling: AtomicBool::new(false),
            compares: AtomicBool::new(false),
            compiler: Compiler::default(),
            waits: AtomicBool::new(false),
            numbers: Mutex::default(),
            sources: Arc::default(),
            reserve,
        }
    }

    /// All devices, in the platform's order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = DeviceId> + use<> {
        self.chain.ids()
    }

    /// Their descriptions.
    pub(crate) fn chain(&self) -> &Chain {
        &self.chain
    }

    pub(crate) fn slot(&self, device: DeviceId) -> &Slot {
        &self.slots[device.0]
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(crate) fn backend(&self, device: DeviceId) -> &dyn Backend {
        &*self.slots[device.0].backend
    }

    pub(crate) fn info(&self, device: DeviceId) -> &DeviceInfo {
        self.chain.info(device)
    }

    /// Returns whether there is a device on which compiling takes long.
    pub(crate) fn compile_slowly(&self) -> bool {
        self.slots.iter().any(|slot| slot.compilation.is_some())
    }

    /// Returns whether there is one whose programs are compiled in the background.
    pub(crate) fn compile_in_background(&self) -> bool {
        self.compile_slowly() && !self.waits.load(Ordering::Relaxed)
    }

    /// The devices of that name.
    pub(crate) fn named(&self, device: DeviceType) -> impl Iterator<Item = &Slot> {
        let slots = self.slots.iter();
        slots.filter(move |slot| slot.owner.device == device)
    }

    /// The reason why `device` may not run an operation, from its earlier failures.
    pub(crate) fn forbids(&self, device: DeviceId, signature: &Signature) -> Option<String> {
        if self.slot(device).owner.is_lost() {
            return Some("lost".to_owned());
        }
        let unsupported = lock(&self.unsupported);
        let known = !unsupported.is_empty() && unsupported.contains(&(device, memo(signature)));
        known.then(|| "failed as unsupported before".to_owned())
    }

    /// Remembers an operation that a device does not support. `false` if that was known, or if
    /// `memo` is a view, which needs no support.
    pub(crate) fn learn_unsupported(&self, device: DeviceId, memo: Option<&Memo>) -> bool {
        let memo = memo.filter(|(op, ..)| op.def().role() != Role::View);
        let learn = |memo: &Memo| lock(&self.unsupported).insert((device, memo.clone()));
        let learnt = memo.is_some_and(learn);
        if learnt {
            (self.journal).outdate("a device turned out not to support an operation");
        }
        learnt
    }

    /// Gives back memory that is only kept for later.
    pub(crate) fn free_caches(&self, device: DeviceId) {
        if let Some(reserve) = self.reserve.upgrade() {
            reserve.give_back();
        }
        lock(&self.numbers).clear();
        self.backend(device).memory().trim();
    }

    pub(crate) fn capability(&self, device: DeviceId) -> &DeviceCapability {
        let slot = self.slot(device);
        let ask = || DeviceCapability::ask(&*slot.backend);
        slot.capability.get_or_init(ask)
    }
}
