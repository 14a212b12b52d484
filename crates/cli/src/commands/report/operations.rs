//! Operations on devices, beside the devices' limits.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::commands::bench::limits::Roofs;
use crate::commands::bench::ops::{Benches, Operations};
use crate::progress;
use crate::resume::Progress;
use crate::subject::Subject;

/// The measurements.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Measurements {
    #[serde(flatten)]
    pub(super) operations: Operations,
    /// The limits of each device.
    pub(super) roofs: Vec<Roofs>,
}

impl Measurements {
    /// Measures all operations on each of these.
    pub(super) fn measure(subjects: &[Subject], progress: &mut Progress) -> Self {
        let key = "operations";
        let measured = progress.attempt(key, || Ok(Benches::of_all(subjects).measure()));
        let operations = measured.unwrap_or_else(|e| Operations {
            failed: vec![format!("{key}: {e}")],
            ..Operations::default()
        });
        let mut all = Self {
            operations,
            roofs: Vec::new(),
        };
        let spinner = progress::spinner("measuring device limits");
        for subject in subjects {
            let Some(device) = subject.device() else {
                continue;
            };
            let key = format!("roofs of {}", subject.name);
            let measure = || Ok(Roofs::measure(&subject.runtime(), device.info().device));
            match progress.attempt(&key, measure) {
                Ok(roofs) => all.roofs.push(roofs),
                Err(e) => all.operations.failed.push(format!("{key}: {e}")),
            }
        }
        spinner.finish_and_clear();
        all
    }

    /// A device's limits, if they were measured.
    pub(super) fn roofs_of(&self, device: &str) -> Option<&Roofs> {
        self.roofs.iter().find(|roofs| roofs.device == device)
    }
}

impl fmt::Display for Measurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Times are medians of consecutive runs. GB/s counts the bytes of operands and results, GFLOP/s the \
             multiplications and additions of products.\n"
        )?;
        for roofs in &self.roofs {
            let mut told = Vec::new();
            told.extend(
                (roofs.bytes_per_second).map(|rate| format!("{:.1} GB/s of a copy", rate / 1e9)),
            );
            let products = roofs.flops_per_second.iter();
            told.extend(
                products.map(|(dtype, rate)| {
                    format!("{:.1} GFLOP/s of a product in {dtype}", rate / 1e9)
                }),
            );
            if !told.is_empty() {
                writeln!(f, "{} reaches {}.\n", roofs.device, told.join(", "))?;
            }
        }
        write!(f, "{}", self.operations.table())?;
        for failed in &self.operations.failed {
            writeln!(f, "\nNot measured: {failed}")?;
        }
        Ok(())
    }
}
