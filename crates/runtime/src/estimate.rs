//! What a graph should take on each device, with bringing its operands there.

use std::sync::Arc;
use std::time::Duration;

use rustorch_ir::{Graph, TensorType};
use smallvec::SmallVec;

use crate::devices::Devices;
use crate::placement::DeviceId;
use crate::{Costs, Storage};

/// Where something is: a bit for each device, and [`HOST`].
pub(crate) type Location = u32;

/// The bit of host memory.
pub(crate) const HOST: Location = 1 << 31;

/// Wherever it is needed.
pub(crate) const EVERYWHERE: Location = Location::MAX;

/// Bytes of the largest number.
const NUMBER: usize = 16;

/// Where each of a graph's inputs is; those that are not listed are on the host.
pub(crate) type Locations = SmallVec<[Location; 4]>;

fn bit(device: DeviceId) -> Location {
    // Beyond that many devices, where tensors are is not followed.
    1u32.checked_shl(device.0 as u32).unwrap_or(0) & !HOST
}

/// Devices that were measured, with what.
pub(crate) struct Measured(Vec<(DeviceId, Arc<Costs>)>);

impl Measured {
    /// All of them that still work. Where there is but one, there is nothing to compare.
    pub(crate) fn of(devices: &Devices) -> Self {
        let costs = |id| {
            let slot = devices.slot(id);
            let costs = slot.costs().filter(|_| !slot.owner.is_lost());
            Some((id, costs?))
        };
        let all: Vec<_> = devices.ids().filter_map(costs).collect();
        match all.len() {
            0 | 1 => Self(Vec::new()),
            _ => Self(all),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (DeviceId, &Costs)> {
        self.0.iter().map(|(id, costs)| (*id, &**costs))
    }

    /// Seconds to bring bytes to a device from where they are.
    pub(crate) fn bring(&self, bytes: usize, from: Location, to: DeviceId) -> f64 {
        if from & bit(to) != 0 {
            return 0.0;
        }
        let bytes = bytes as f64;
        let owners = self.iter().filter(|(id, _)| from & bit(*id) != 0);
        let fetched = owners.map(|(_, costs)| costs.download.seconds(bytes));
        let down = match from & HOST {
            0 => fetched.reduce(f64::min).unwrap_or(0.0),
            _ => 0.0,
        };
        let there = self.iter().find(|(id, _)| *id == to);
        down + there.map_or(0.0, |(_, costs)| costs.upload.seconds(bytes))
    }

    /// Seconds to bring all of a graph's inputs to a device.
    pub(crate) fn bring_inputs(
        &self,
        inputs: &[TensorType],
        places: &Locations,
        to: DeviceId,
    ) -> f64 {
        let place = |i: usize| places.get(i).copied().unwrap_or(HOST);
        let all = inputs.iter().enumerate();
        all.map(|(i, ty)| self.bring(ty.bytes(), place(i), to))
            .sum()
    }

    /// Seconds of handing a node on to another device: two more launches, its operands there
    /// and its result back.
    pub(crate) fn detour(&self, graph: &Graph, here: DeviceId, there: DeviceId) -> f64 {
        let operands = graph.inputs().iter().map(TensorType::bytes);
        let results = graph.nodes().iter().flat_map(|node| &node.outputs);
        let results = results.map(TensorType::bytes);
        let sync = |device| {
            let found = self.iter().find(|(id, _)| *id == device);
            found.map_or(0.0, |(_, costs)| costs.sync.as_secs_f64())
        };
        sync(here)
            + sync(there)
            + self.bring(operands.sum(), bit(here), there)
            + self.bring(results.sum(), bit(there), here)
    }
}

/// Seconds as a time; more than it can hold is its largest.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl Devices {
    /// Where storages are.
    pub(crate) fn places(&self, storages: &[Storage]) -> Locations {
        let place = |storage: &Storage| {
            let (on_host, owners) = storage.whereabouts();
            // A number costs nothing to bring, and its copies are no reason to plan again.
            if on_host && storage.bytes() <= NUMBER {
                return HOST;
            }
            let is_there = |id: &DeviceId| {
                let owner = &self.slot(*id).owner;
                owners.iter().any(|o| Arc::ptr_eq(o, owner))
            };
            let devices = self.ids().filter(is_there).map(bit);
            let host = if on_host { HOST } else { 0 };
            devices.fold(host, |place, bit| place | bit)
        };
        storages.iter().map(place).collect()
    }
}
