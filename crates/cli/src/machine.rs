//! A report's facts of its machine.

use std::num::NonZero;
use std::thread;

use serde::Serialize;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::output::bytes;

/// The machine and its system.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    processor: String,
    /// Physical cores.
    cores: Option<usize>,
    /// The number of threads.
    threads: usize,
    memory_bytes: Option<u64>,
    system: String,
    kernel: String,
    architecture: &'static str,
}

impl Machine {
    /// This machine.
    pub(crate) fn this() -> Self {
        let what = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(what).ok();
        let brand = |system: &System| Some(system.cpus().first()?.brand().trim().to_owned());
        let unknown = || "unknown".to_owned();
        Self {
            processor: (system.as_ref().and_then(brand))
                .filter(|name| !name.is_empty())
                .unwrap_or_else(unknown),
            cores: System::physical_core_count().ok(),
            threads: thread::available_parallelism().map_or(1, NonZero::get),
            memory_bytes: system.map(|system| system.total_memory()),
            system: System::long_os_version().unwrap_or_else(|_| unknown()),
            kernel: System::kernel_long_version().unwrap_or_else(|_| unknown()),
            architecture: std::env::consts::ARCH,
        }
    }

    /// Name and value of everything there is to say.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let cores = match self.cores {
            Some(cores) => format!("{cores} cores, {} threads", self.threads),
            None => format!("{} threads", self.threads),
        };
        vec![
            (
                "processor",
                format!("{} ({}), {cores}", self.processor, self.architecture),
            ),
            (
                "memory",
                self.memory_bytes.map_or("unknown".to_owned(), bytes),
            ),
            ("system", format!("{}, {}", self.system, self.kernel)),
        ]
    }
}

/// The program's arguments, for people: U+FFFD replaces invalid UTF-8, as paths may have.
pub(crate) fn arguments() -> Vec<String> {
    let arguments = std::env::args_os().skip(1);
    arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect()
}

/// The program and its version.
pub(crate) const PROGRAM: &str = concat!("rustorch-cli ", env!("CARGO_PKG_VERSION"));

/// The time, in UTC.
pub(crate) fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}
