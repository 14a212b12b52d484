//! The measured times of devices, and the locations of operands.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::devices::Devices;
use crate::devices::placement::DeviceId;
use crate::{Costs, Storage};

/// The place of a value: a bit for each device, and [`HOST`].
pub(crate) type Location = u32;

/// The bit of host memory.
pub(crate) const HOST: Location = 1 << 31;

/// Location of a value that is on every device.
pub(crate) const EVERYWHERE: Location = Location::MAX;

/// Runs that a program is taken to be compiled for, where that takes long.
const RUNS: f64 = 1000.0;

/// Bytes of the largest number.
const NUMBER: usize = 16;

/// The place of each graph input; those that are not listed are on the host.
pub(crate) type Locations = SmallVec<[Location; 4]>;

/// The bit of a device's memory.
pub(crate) fn bit(device: DeviceId) -> Location {
    // Beyond that many devices, where tensors are is not followed.
    1u32.checked_shl(device.0 as u32).unwrap_or(0) & !HOST
}

/// Devices that were measured, with what.
pub(crate) struct Measured(SmallVec<[Known; 2]>);

struct Known {
    id: DeviceId,
    costs: Arc<Costs>,
    /// Seconds of beginning a segment.
    start: f64,
}

impl Measured {
    /// The working devices among the `allowed`. If there is only one, there is nothing to compare.
    pub(crate) fn of(devices: &Devices, allowed: impl Fn(DeviceId) -> bool) -> Self {
        let known = |id| {
            let slot = devices.slot(id);
            let costs = slot.costs().filter(|_| !slot.owner.is_lost())?;
            let compiling = slot.compilation.map_or(0.0, |c| c.program.as_secs_f64());
            let start = costs.sync.as_secs_f64() + compiling / RUNS;
            Some(Known { id, costs, start })
        };
        let all = devices.ids().filter(|&id| allowed(id)).filter_map(known);
        let all: SmallVec<[Known; 2]> = all.collect();
        match all.len() {
            0 | 1 => Self(SmallVec::new()),
            _ => Self(all),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (DeviceId, &Costs)> {
        self.0.iter().map(|known| (known.id, &*known.costs))
    }

    /// The measured speed of a device, if there is one.
    pub(crate) fn get(&self, device: DeviceId) -> Option<&Costs> {
        self.iter().find(|(id, _)| *id == device).map(|(_, c)| c)
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
        down + (self.get(to)).map_or(0.0, |costs| costs.upload.seconds(bytes))
    }

    /// Seconds of beginning a segment on a device: a run of it is started and waited for, and its
    /// program was compiled some time.
    pub(crate) fn start(&self, device: DeviceId) -> f64 {
        let found = self.0.iter().find(|known| known.id == device);
        found.map_or(0.0, |known| known.start)
    }
}

/// Seconds as a time; more than it can hold is its largest.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl Devices {
    /// The places of storages.
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
