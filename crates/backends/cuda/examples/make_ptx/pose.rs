//! Devices without hardware, which kernels are chosen for as for the real ones.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use rustorch_gpu::{Dialect, Driver, Launch, Limits};
use rustorch_runtime::{DeviceError, DeviceInfo, DeviceType, Hardware, HostBuffer};

/// Properties that kernels are chosen by: a compute capability, KiB of shared memory that a block
/// may have, and multiprocessors.
pub(crate) type Card = (u32, usize, usize);

/// Cards that differ in all properties that kernels are chosen by, the largest and the smallest of
/// each capability. One has so few multiprocessors that the size of tiles is chosen by rows alone.
/// It makes products of all sizes.
pub(crate) const CARDS: [Card; 8] = [
    (70, 96, 80),   // V100
    (75, 64, 14),   // GTX 1650
    (80, 163, 108), // A100
    (86, 99, 20),   // RTX 3050
    (90, 227, 132), // H100, H200
    (90, 227, 1),
    (100, 227, 148), // B200
    (120, 99, 170),  // RTX 5090
];

/// The sources that a device was given to compile.
pub(crate) type Sources = Arc<Mutex<BTreeSet<String>>>;

/// A device that computes nothing and notes what it is to compile.
pub(crate) struct Pose {
    info: DeviceInfo,
    limits: Limits,
    has_gemm: bool,
    sources: Sources,
}

impl Pose {
    /// A driver that poses as such a card, with cuBLASLt or without.
    pub(crate) fn new(card: Card, has_gemm: bool, sources: Sources) -> Self {
        let (cuda_capability, local_kib, compute_units) = card;
        let memory = 1 << 40;
        Self {
            info: DeviceInfo {
                device: DeviceType::Cuda(0),
                hardware: Hardware::Gpu,
                shares_host_memory: false,
                name: "posing".to_owned(),
                memory_bytes: Some(memory),
                details: Vec::new(),
            },
            limits: Limits {
                max_group: 1024,
                local_bytes: local_kib << 10,
                max_buffer: memory,
                memory,
                has_f64: true,
                compute_units,
                is_processor: false,
                cuda_capability,
            },
            has_gemm,
            sources,
        }
    }
}

impl Driver for Pose {
    type Buffer = ();
    type Kernel = ();
    type Recording = ();

    const KEEPS_BINARIES: bool = false;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn dialect(&self) -> Dialect {
        Dialect::Cuda
    }

    fn alloc(&self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn share(&self, _: &HostBuffer) -> Result<Option<()>, DeviceError> {
        Ok(None)
    }

    fn host<'b>(&self, (): &'b ()) -> Result<Option<&'b HostBuffer>, DeviceError> {
        Ok(None)
    }

    unsafe fn read(&self, (): &(), _: usize, _: &mut [u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    unsafe fn write(&self, (): &(), _: usize, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn has_gemm(&self) -> bool {
        self.has_gemm
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>, DeviceError> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.insert(source.to_owned());
        Ok(Vec::new())
    }

    fn load(&self, _: &[u8], _: &str) -> Result<(), DeviceError> {
        Ok(())
    }

    unsafe fn launch(&self, (): &(), _: &Launch<'_, Self>) -> Result<(), DeviceError> {
        Ok(())
    }

    unsafe fn gemm(&self, _: &rustorch_gpu::Gemm, _: &[(&(), usize)]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
