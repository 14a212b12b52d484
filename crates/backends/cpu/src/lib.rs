//! The multithreaded CPU backend.
//!
//! Each operation's kernel is in the file of the operation's name and is listed in
//! `kernels`. Kernels are functions of typed slices; parallel loops go through one
//! [`pool::Pool`] of threads.

pub mod bandwidth;
mod cache;
mod convolution;
mod element;
mod elementwise;
mod fold;
mod fused;
mod fused_reduce;
mod half_precision;
mod index;
mod kernel;
mod kernels;
mod laps;
mod launch;
mod lines;
mod math;
#[cfg(target_arch = "x86_64")]
mod planes;
pub mod pool;
mod product;
mod program;
pub mod qmatmul;
mod reader;
mod reduce;
mod simd;
mod view;
mod window;

pub use simd::Level;

use std::sync::Arc;

use rustorch_ir::{Graph, Signature};
use rustorch_runtime::{
    Backend, DeviceError, DeviceInfo, DeviceMemory, DeviceType, FailureClass, Hardware, HostMemory,
    KernelTable, Kernels, Layouts, Program, SystemMemory, lower, platform,
};

use crate::launch::{Launch, Prepared};
use crate::pool::Pool;
use crate::program::CpuProgram;

/// The processor as a device.
pub struct Cpu {
    info: DeviceInfo,
    memory: HostMemory,
    pool: Arc<Pool>,
    kernels: KernelTable<Launch>,
    shares_values: bool,
}

impl Cpu {
    /// The processor with `threads` worker threads; 0 stands for the number of physical cores.
    pub fn new(threads: usize) -> Self {
        let threads = match threads {
            0 => pool::default_threads(),
            n => n,
        };
        let pool = Pool::new(threads);
        Self {
            info: DeviceInfo {
                device: DeviceType::Cpu,
                hardware: Hardware::Processor,
                shares_host_memory: true,
                name: processor_name(),
                memory_bytes: SystemMemory::now().map(|memory| memory.total),
                details: vec![
                    ("threads".to_owned(), pool.threads().to_string()),
                    (
                        "vector instructions".to_owned(),
                        Level::current().name().to_owned(),
                    ),
                ],
            },
            memory: HostMemory::new(DeviceType::Cpu),
            pool: Arc::new(pool),
            kernels: kernels::table(),
            shares_values: true,
        }
    }

    /// The same with separate memory for each value, for tests: differing results show values that
    /// were overwritten too early.
    #[must_use]
    pub fn with_unshared_values(self) -> Self {
        Self {
            shares_values: false,
            ..self
        }
    }
}

/// Name of the processor in the system.
fn processor_name() -> String {
    platform::processor().unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

/// Returns whether there is no operand or result of a dtype that the feature `dtypes` would bring.
fn has_types(signature: &Signature) -> bool {
    let types = signature.inputs.iter().copied().chain(signature.outputs);
    types.map(|ty| ty.dtype).all(element::is_known)
}

impl Backend for Cpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supports(&self, signature: &Signature) -> bool {
        has_types(signature) && self.kernels.find(signature).is_some()
    }

    fn missing_feature(&self, signature: &Signature) -> Option<&'static str> {
        match has_types(signature) {
            true => kernels::missing_feature(signature.op.kind()),
            false => Some("dtypes"),
        }
    }

    fn memory(&self) -> &dyn DeviceMemory {
        &self.memory
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        let lowered = lower(graph, self).map_err(|e| {
            DeviceError::new(DeviceType::Cpu, FailureClass::Unsupported, e.to_string())
        })?;
        let prepare = |step| Prepared::new(step, &self.kernels);
        let launches = lowered
            .steps
            .iter()
            .map(prepare)
            .collect::<Result<_, _>>()?;
        Ok(Box::new(CpuProgram::new(
            self.pool.clone(),
            lowered,
            launches,
        )))
    }
}

impl Kernels for Cpu {
    fn layouts(&self, signature: &Signature) -> Layouts {
        let kernel = self.kernels.find(signature);
        kernel.map_or(Layouts::Any, |k| k.layouts)
    }

    fn fuses(&self, signature: &Signature) -> bool {
        let kernel = self.kernels.find(signature);
        let reduces = signature.op.def().reduces();
        kernel.is_some_and(|kernel| reduces || kernel.launch.fuses())
    }

    fn shares_memory(&self) -> bool {
        self.shares_values
    }
}
