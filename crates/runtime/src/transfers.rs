//! What is in the devices' memory, and what moves between them.

use rustorch_ir::order::sort_by_key;
use std::fmt;
use std::sync::Arc;

use crate::DeviceType;
use crate::devices::{Devices, Slot};
use crate::journal::{AccessCounters, FaultStatistics, Moved};

/// How bytes get from one device to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferMethod {
    /// Not at all: both use the same memory.
    ZeroCopy,
    /// Over the host's memory, since each has its own and neither reaches the other's.
    HostStaging,
    /// In one copy.
    Standard,
}

/// The memory that tensors take of one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolUsage {
    /// The device.
    pub device: DeviceType,
    /// Bytes that tensors have there now. Memory of the host that the device uses in place
    /// is not counted.
    pub in_use: u64,
    /// The most that they have had.
    pub peak: u64,
    /// Bytes that there are, where it is known.
    pub capacity: Option<u64>,
    /// Bytes that could be taken now, where it is known: as the device tells, or else, and where
    /// that makes no sense, what tensors leave of its capacity; no more than a limit leaves.
    pub free: Option<u64>,
}

/// Bytes that were copied from one device to another; the host is [`DeviceType::Cpu`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteTraffic {
    /// From where.
    pub from: DeviceType,
    /// To where.
    pub to: DeviceType,
    /// How much, and how often.
    pub moved: Moved,
}

impl fmt::Display for RouteTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moved { bytes, copies } = self.moved;
        write!(
            f,
            "{} → {}: {bytes} bytes in {copies} copies",
            self.from, self.to
        )
    }
}

/// The memory of a runtime's devices: pools, ways between them, and counters of what really
/// happened.
#[derive(Clone)]
pub struct MemoryManager {
    devices: Arc<Devices>,
}

impl MemoryManager {
    pub(crate) fn new(devices: Arc<Devices>) -> Self {
        Self { devices }
    }

    /// Each device's pool, in the platform's order.
    pub fn pools(&self) -> Vec<PoolUsage> {
        let pool = |slot: &Slot| {
            let (in_use, peak) = slot.owner.usage();
            PoolUsage {
                device: slot.owner.device,
                in_use,
                peak,
                capacity: slot.capacity(),
                free: slot.free(),
            }
        };
        self.devices.slots().iter().map(pool).collect()
    }

    /// From now on tensors and programs take no more than `bytes` of a device's memory: what
    /// does not fit fails there as out of memory. Memory of the host that the device uses in
    /// place does not count.
    pub fn set_limit(&self, device: DeviceType, bytes: u64) {
        let slots = self.devices.named(device);
        slots.for_each(|slot| slot.owner.set_limit(bytes));
    }

    /// Gives memory that is kept for later use back to the system.
    pub fn trim(&self) {
        self.devices
            .ids()
            .for_each(|id| self.devices.free_caches(id));
    }

    /// How bytes get from one device to another.
    pub fn optimize_transfer(&self, from: DeviceType, to: DeviceType) -> TransferMethod {
        self.devices.transfer_method(from, to)
    }

    /// How often a device used tensors, and when last.
    pub fn accesses(&self, device: DeviceType) -> Option<AccessCounters> {
        let slot = self.devices.named(device).next();
        slot.map(|slot| slot.owner.accesses())
    }

    /// The failures of devices so far.
    pub fn faults(&self) -> FaultStatistics {
        self.devices.journal.faults()
    }

    /// Bytes that were copied, by route. Host memory that a device uses in place is not
    /// copied.
    pub fn routes(&self) -> Vec<RouteTraffic> {
        let ways = self.devices.journal.ways().into_iter();
        let mut routes: Vec<_> = ways
            .map(|((from, to), moved)| RouteTraffic { from, to, moved })
            .collect();
        sort_by_key(&mut routes, |r| (r.from.to_string(), r.to.to_string()));
        routes
    }

    /// Bytes that were copied on one route.
    pub fn moved(&self, from: DeviceType, to: DeviceType) -> Moved {
        let ways = self.devices.journal.ways();
        ways.get(&(from, to)).copied().unwrap_or_default()
    }

    /// Bytes that were copied on all routes together.
    pub fn copied(&self) -> Moved {
        let ways = self.devices.journal.ways().into_values();
        ways.fold(Moved::default(), |all, way| Moved {
            bytes: all.bytes + way.bytes,
            copies: all.copies + way.copies,
        })
    }

    /// Tensors that were written with the elements of another one in another type: by casts,
    /// asked for or part of what an operation was made of, and by updates of a state of another
    /// type, such as an `f16` cache of `f32` keys.
    ///
    /// What an operation does within itself is not counted: weights in `f16` or blocks that it
    /// reads, and activations that a product with blocks rounds to 8 bits in working memory of its
    /// own. No tensor has that type.
    pub fn conversions(&self) -> u64 {
        self.devices.journal.conversions()
    }
}

impl Devices {
    /// How bytes get from one device to another.
    pub(crate) fn transfer_method(&self, from: DeviceType, to: DeviceType) -> TransferMethod {
        let in_host_memory = |device: DeviceType| {
            let info = self.named(device).next().map(|slot| slot.backend.info());
            // The processor's memory is the host's, whether there is a backend for it or not.
            info.map_or(device == DeviceType::Cpu, |info| info.shares_host_memory)
        };
        let peers = |device| self.named(device).next()?.backend.memory().peers();
        let are_peers = || peers(from).is_some_and(|name| peers(to) == Some(name));
        match (in_host_memory(from), in_host_memory(to)) {
            _ if from == to => TransferMethod::ZeroCopy,
            (false, false) if are_peers() => TransferMethod::Standard,
            (true, true) => TransferMethod::ZeroCopy,
            (false, false) => TransferMethod::HostStaging,
            _ => TransferMethod::Standard,
        }
    }
}
