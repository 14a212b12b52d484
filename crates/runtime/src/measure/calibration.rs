//! Measured speeds of a machine's devices, in the user's cache.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustorch_ir::{DeviceType, ErrorKind};
use serde::{Deserialize, Serialize};

use crate::devices::costs::text;
use crate::platform::{self, cache_folder};
use crate::{Costs, DeviceInfo, RunError, Runtime};

/// Version of the file's format and of its meaning.
const FORMAT: u32 = 1;
/// Bytes that no such file has.
const LIMIT: u64 = 1 << 20;
/// The command that makes a valid one.
const CURE: &str = "`rustorch-cli calibrate` measures again";

/// Measured speeds, and the identities of their devices. Another machine, driver or version of this
/// program makes it invalid.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Calibration {
    format: u32,
    version: String,
    devices: Vec<Calibrated>,
}

/// A measured device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Calibrated {
    #[serde(with = "text")]
    device: DeviceType,
    /// Its identity, see [`DeviceInfo::identity`].
    identity: Vec<(String, String)>,
    costs: Costs,
}

/// Why a calibration is not used.
fn refused(kind: ErrorKind, problem: impl fmt::Display) -> RunError {
    let problem = format!("{problem}; {CURE}");
    RunError::Calibration { kind, problem }
}

/// The system's error at a file.
fn unusable(path: &Path, error: &io::Error) -> RunError {
    let problem = format!("{}: {error}", path.display());
    let kind = error.into();
    RunError::Calibration { kind, problem }
}

impl Calibration {
    /// Measures devices as [`Runtime::measure`] does.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn measure(
        runtime: &Runtime,
        devices: &[DeviceType],
        effort: Duration,
        progress: impl FnMut(usize, usize),
    ) -> Result<Self, RunError> {
        Ok(Self::new(
            runtime,
            runtime.measure(devices, effort, progress)?,
        ))
    }

    /// The costs of a runtime's devices; other devices are left out.
    pub fn new(runtime: &Runtime, costs: impl IntoIterator<Item = (DeviceType, Costs)>) -> Self {
        let calibrated = |(device, costs)| {
            let info = runtime.devices().find(|info| info.device == device)?;
            Some(Calibrated {
                device,
                identity: identity(info),
                costs,
            })
        };
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            devices: costs.into_iter().filter_map(calibrated).collect(),
        }
    }

    /// The measured devices.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceType, &Costs)> {
        self.devices.iter().map(|d| (d.device, &d.costs))
    }

    /// Adds the entries of `older` for missing devices.
    pub fn complete(&mut self, older: Self) {
        for device in older.devices {
            if self.devices.iter().all(|d| d.device != device.device) {
                self.devices.push(device);
            }
        }
    }

    /// The user's file, in the [`cache_folder`]; `None` if there is no such folder.
    pub fn path() -> Option<PathBuf> {
        Some(cache_folder()?.join("calibration.json"))
    }

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is damaged.
    pub fn load(path: &Path) -> Result<Option<Self>, RunError> {
        let text = match platform::read(path, LIMIT) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| unusable(path, &error))?,
        };
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|error: serde_json::Error| {
            let damaged = format!("{}: damaged ({})", path.display(), one_line(&error));
            refused(ErrorKind::Format, damaged)
        })
    }

    /// Writes a file, as a whole.
    ///
    /// # Errors
    /// Fails if the folder cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), RunError> {
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        let written = text.and_then(|text| platform::replace(path, &text));
        written.map_err(|error| unusable(path, &error))
    }

    /// Returns whether it matches these devices.
    ///
    /// # Errors
    /// Fails if another version of the program measured it, or if a device has changed.
    pub fn check<'a>(
        &self,
        devices: impl IntoIterator<Item = &'a DeviceInfo>,
    ) -> Result<(), RunError> {
        let made_by = (self.format, self.version.as_str());
        if made_by != (FORMAT, env!("CARGO_PKG_VERSION")) {
            let version = one_line(&self.version);
            let made_by = format!("made by version {version} of this program");
            return Err(refused(ErrorKind::Unsupported, made_by));
        }
        for info in devices {
            let known = self.devices.iter().find(|d| d.device == info.device);
            let changed = known.and_then(|known| known.difference(info));
            if let Some((was, is)) = changed {
                let (device, was, is) = (info.device, one_line(&was), one_line(&is));
                return Err(refused(
                    ErrorKind::Unsupported,
                    format!("{device} was {was} and is now {is}"),
                ));
            }
        }
        Ok(())
    }
}

/// A file's text on one line: control characters are escaped.
fn one_line(text: &impl fmt::Display) -> String {
    let mut line = String::new();
    for c in text.to_string().chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

fn identity(info: &DeviceInfo) -> Vec<(String, String)> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    info.identity().map(owned).collect()
}

impl Calibrated {
    /// Its identities then and now, if they differ.
    fn difference(&self, info: &DeviceInfo) -> Option<(String, String)> {
        let now = identity(info);
        let told = |identity: &[(String, String)], key: &str| match identity
            .iter()
            .find(|(k, _)| k == key)
        {
            Some((_, name)) if key == "name" => name.clone(),
            Some((_, value)) => format!("{key} {value}"),
            None => format!("without {key}"),
        };
        let mut all = self.identity.iter().chain(&now);
        all.find_map(|(key, _)| {
            let (was, is) = (told(&self.identity, key), told(&now, key));
            (was != is).then_some((was, is))
        })
    }
}

impl Runtime {
    /// Uses a calibration's measurements from now on, see [`Runtime::set_costs`].
    ///
    /// # Errors
    /// The same errors as [`Calibration::check`]. Nothing changes then.
    pub fn set_calibration(&self, calibration: &Calibration) -> Result<(), RunError> {
        calibration.check(self.devices())?;
        for Calibrated { device, costs, .. } in &calibration.devices {
            self.set_costs(*device, Some(costs.clone()));
        }
        Ok(())
    }

    /// Uses the user's calibration from now on, if there is one.
    pub fn use_calibration(&self) {
        let Some(path) = Calibration::path() else {
            return;
        };
        let used = Calibration::load(&path).and_then(|found| match found {
            Some(calibration) => self.set_calibration(&calibration),
            None => Ok(()),
        });
        if let Err(e) = used {
            tracing::warn!("the calibration of this machine is ignored: {e}");
        }
    }
}
