//! What a machine's devices were measured to do, in a file of the user's.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustorch_ir::DeviceType;
use serde::{Deserialize, Serialize};

use crate::costs::text;
use crate::{Costs, DeviceInfo, RunError, Runtime};

/// The form of the file, and the meaning of what is in it.
const FORMAT: u32 = 1;
/// Bytes that no such file has.
const LIMIT: u64 = 1 << 20;
/// What brings a valid one.
const CURE: &str = "`rustorch-cli calibrate` measures anew";

/// The user's folder for what can be made anew: `RUSTORCH_CACHE_DIR`, or `rustorch` in the
/// system's place for caches. `None` where there is no such place.
pub fn cache_folder() -> Option<PathBuf> {
    match std::env::var_os("RUSTORCH_CACHE_DIR") {
        Some(folder) if !folder.is_empty() => Some(PathBuf::from(folder)),
        _ => Some(dirs::cache_dir()?.join("rustorch")),
    }
}

/// What devices were measured to do, and which devices those were: another machine, driver or
/// version of this program makes it invalid.
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
    /// What it said of itself, see [`DeviceInfo::identity`].
    identity: Vec<(String, String)>,
    costs: Costs,
}

/// Why a calibration is not used.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
    /// The file is truncated, damaged, or no calibration.
    #[error("{path}: damaged ({}); {CURE}", one_line(error))]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// Made by another version of the program, whose kernels may take other times.
    #[error("made by version {} of this program; {CURE}", one_line(.0))]
    Version(String),
    /// It tells of another device, driver or setting.
    #[error("{device} was {}, and is {}; {CURE}", one_line(was), one_line(is))]
    Changed {
        /// By which name.
        device: DeviceType,
        /// What it said of itself then.
        was: String,
        /// What it says now.
        is: String,
    },
}

impl Calibration {
    /// Measures devices as [`Runtime::measure`] does.
    ///
    /// # Errors
    /// As there.
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

    /// What devices of a runtime cost; devices that it does not have are left out.
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

    /// Adds what `older` tells of devices that are not in this one.
    pub fn complete(&mut self, older: Self) {
        for device in older.devices {
            if self.devices.iter().all(|d| d.device != device.device) {
                self.devices.push(device);
            }
        }
    }

    /// The user's file, in the [`cache_folder`]; `None` where there is no such place.
    pub fn path() -> Option<PathBuf> {
        Some(cache_folder()?.join("calibration.json"))
    }

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn load(path: &Path) -> Result<Option<Self>, CalibrationError> {
        let file = |error| CalibrationError::File {
            path: path.to_owned(),
            error,
        };
        let mut text = Vec::new();
        match fs::File::open(path).and_then(|f| f.take(LIMIT).read_to_end(&mut text)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(file)?,
        };
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|error| CalibrationError::Damaged {
            path: path.to_owned(),
            error,
        })
    }

    /// Writes a file: under another name first, so that nobody reads half of it.
    ///
    /// # Errors
    /// The folder takes no files.
    pub fn save(&self, path: &Path) -> Result<(), CalibrationError> {
        let unfinished = path.with_extension(std::process::id().to_string());
        let write = || {
            let text = serde_json::to_vec(self)?;
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file = fs::File::create(&unfinished)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&unfinished, path)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&unfinished);
            let path = path.to_owned();
            CalibrationError::File { path, error }
        })
    }

    /// Does it tell of these devices? One that is not here now may come again.
    ///
    /// # Errors
    /// It was made by another version of the program, or one of the devices is another one now.
    pub fn check<'a>(
        &self,
        devices: impl IntoIterator<Item = &'a DeviceInfo>,
    ) -> Result<(), CalibrationError> {
        let made_by = (self.format, self.version.as_str());
        if made_by != (FORMAT, env!("CARGO_PKG_VERSION")) {
            return Err(CalibrationError::Version(self.version.clone()));
        }
        for info in devices {
            let known = self.devices.iter().find(|d| d.device == info.device);
            let changed = known.and_then(|known| known.difference(info));
            if let Some((was, is)) = changed {
                let device = info.device;
                return Err(CalibrationError::Changed { device, was, is });
            }
        }
        Ok(())
    }
}

/// What a file says, on one line: control characters are escaped.
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
    /// What it said of itself then and says now, where that differs.
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
    /// Knows from now on what a calibration tells of its devices, see [`Runtime::set_costs`].
    ///
    /// # Errors
    /// As [`Calibration::check`]; nothing changes then.
    pub fn set_calibration(&self, calibration: &Calibration) -> Result<(), CalibrationError> {
        calibration.check(self.devices())?;
        for Calibrated { device, costs, .. } in &calibration.devices {
            self.set_costs(*device, Some(costs.clone()));
        }
        Ok(())
    }

    /// Knows from now on what the user's calibration tells, if there is one. If it cannot be
    /// used, a warning says why, and the rules of the [`DeviceSelector`](crate::DeviceSelector)
    /// hold.
    pub fn use_calibration(&self) {
        let Some(path) = Calibration::path() else {
            return;
        };
        let used = Calibration::load(&path).and_then(|found| match found {
            Some(calibration) => self.set_calibration(&calibration),
            None => Ok(()),
        });
        if let Err(e) = used {
            tracing::warn!("the calibration is not used: {e}");
        }
    }
}
