//! The preferred units of devices with several units.

use std::fmt;

use super::Executable;
use crate::DeviceType;
use crate::journal::lock;

/// The preference of a device. It does not prove where operations ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreferredUnits {
    /// The device.
    pub device: DeviceType,
    /// One of its units, by its name; `None` for operations without a report.
    pub unit: Option<String>,
    /// Number of the device's own operations that prefer it.
    pub operations: usize,
}

impl fmt::Display for PreferredUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, count) = (self.device, self.operations);
        match &self.unit {
            Some(unit) => write!(
                f,
                "{device} prefers {unit} for {count} operations of its own"
            ),
            None => write!(
                f,
                "{device} reports no preference for {count} operations of its own"
            ),
        }
    }
}

impl Executable {
    /// The preferred units for the programs of the last run, on devices with several units, see
    /// [`Program::preferred_units`](crate::Program::preferred_units). The programs are queried now,
    /// which may take as long as loading them did.
    pub fn preferred_units(&self) -> Vec<PreferredUnits> {
        let prepared = lock(&self.prepared);
        let stages = prepared.iter().flat_map(|p| &p.stages);
        let mut all: Vec<PreferredUnits> = Vec::new();
        for stage in stages {
            let device = self.devices.info(stage.device).device;
            for (unit, operations) in stage.program.preferred_units() {
                match all
                    .iter_mut()
                    .find(|p| p.device == device && p.unit == unit)
                {
                    Some(known) => known.operations += operations,
                    None => all.push(PreferredUnits {
                        device,
                        unit,
                        operations,
                    }),
                }
            }
        }
        all
    }
}
