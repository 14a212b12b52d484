//! The contents of the devices' memory, and transfers between them.

use rustorch_ir::order::sort_by_key;
use std::fmt;
use std::sync::Arc;

use crate::DeviceType;
use crate::devices::{Devices, Slot};
use crate::journal::{AccessCounters, FaultStatistics, Moved};

/// Routes of copies between devices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferMethod {
    /// No copy: both devices use the same memory.
    ZeroCopy,
    /// Through the host's memory, since neither device reaches the other's memory.
    HostStaging,
    /// One copy.
    Standard,
}

/// The memory of tensors on one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolUsage {
    /// The device.
    pub device: DeviceType,
    /// Bytes that tensors have there now. Host memory that the device uses in place does not count.
    pub in_use: u64,
    /// The peak so far.
    pub peak: u64,
    /// Total bytes, if known.
    pub capacity: Option<u64>,
    /// Bytes available now, if known: the device's figure. If that is impossible or
    /// missing, it is the capacity less the tensors' memory. A limit bounds it.
    pub free: Option<u64>,
}

/// Bytes that were copied from one device to another; the host is [`DeviceType::Cpu`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteTraffic {
    /// Source device.
    pub from: DeviceType,
    /// Target device.
    pub to: DeviceType,
    /// Bytes and number of copies.
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

/// The memory of a runtime's devices: pools, routes between them, and counters of copies.
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

    /// Limits the memory of tensors and programs on a device to `bytes`. Allocations beyond it fail
    /// as out of memory.
    pub fn set_limit(&self, device: DeviceType, bytes: u64) {
        let slots = self.devices.named(device);
        slots.for_each(|slot| slot.owner.set_limit(bytes));
    }

    /// Returns unused memory of the pools to the system.
    pub fn trim(&self) {
        self.devices
            .ids()
            .for_each(|id| self.devices.free_caches(id));
    }

    /// The route of copies from one device to another.
    pub fn optimize_transfer(&self, from: DeviceType, to: DeviceType) -> TransferMethod {
        self.devices.transfer_method(from, to)
    }

    /// Number of times that a device used tensors, and the time of the last.
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

    /// Tensors that were converted from another element type. Casts do that, explicit ones or parts
    /// of an operation. So do updates of a state of another type, such as an `f16` cache of `f32`
    /// keys.
    ///
    /// Conversions within an operation are not counted: it may read weights in `f16` or blocks, and round activations
    /// to 8 bits in its working memory. No tensor has that type.
    pub fn conversions(&self) -> u64 {
        self.devices.journal.conversions()
    }
}

impl Devices {
    /// The route of copies from one device to another.
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
