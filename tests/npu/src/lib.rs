//! A backend as somebody else would write it: a device that adds and multiplies `f32` in memory of
//! its own. It depends on nothing of RusTorch but the crate that users have.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch::backend::ops::{Binary, BinaryOp};
use rustorch::backend::{
    Backend, DType, DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, DeviceType, FailureClass,
    Graph, Hardware, HostBuffer, Op, Probe, Program, Signature, ValueId,
};

/// The device's name.
pub const NPU: DeviceType = DeviceType::Other("npu:0");

/// The device.
pub struct Npu {
    info: DeviceInfo,
    memory: NpuMemory,
    state: Arc<State>,
}

/// State shared by the device's parts.
#[derive(Default)]
struct State {
    fails: AtomicBool,
    launches: AtomicU64,
}

impl Npu {
    /// The device.
    pub fn new() -> Self {
        Self {
            info: DeviceInfo {
                device: NPU,
                hardware: Hardware::NeuralEngine,
                shares_host_memory: false,
                name: "adds and multiplies".to_owned(),
                memory_bytes: Some(1 << 30),
                details: Vec::new(),
            },
            memory: NpuMemory,
            state: Arc::default(),
        }
    }

    /// From now on its programs fail.
    pub fn fail(&self) {
        self.state.fails.store(true, Ordering::Relaxed);
    }

    /// How many operations it has computed.
    pub fn launches(&self) -> u64 {
        self.state.launches.load(Ordering::Relaxed)
    }
}

impl Default for Npu {
    fn default() -> Self {
        Self::new()
    }
}

/// The function of an operation that the device has.
fn function(op: &Op) -> Option<fn(f32, f32) -> f32> {
    match op {
        Op::Binary(Binary { op: BinaryOp::Add }) => Some(|a, b| a + b),
        Op::Binary(Binary { op: BinaryOp::Mul }) => Some(|a, b| a * b),
        _ => None,
    }
}

impl Backend for Npu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supports(&self, signature: &Signature) -> bool {
        let shape = &signature.outputs[0].shape;
        let fits = signature
            .types()
            .all(|ty| ty.dtype == DType::F32 && ty.shape == *shape);
        fits && function(signature.op).is_some()
    }

    fn memory(&self) -> &dyn DeviceMemory {
        &self.memory
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        let unsupported = |why| DeviceError::new(NPU, FailureClass::Unsupported, why);
        let steps = graph.nodes().iter().map(|node| {
            let f =
                function(&node.op).ok_or_else(|| unsupported(format!("no {}", node.op.name())))?;
            let result = node
                .results()
                .next()
                .ok_or_else(|| unsupported("no result".to_owned()))?;
            Ok((f, [node.inputs[0], node.inputs[1]], result))
        });
        Ok(Box::new(NpuProgram {
            steps: steps.collect::<Result<_, DeviceError>>()?,
            values: graph.len(),
            outputs: graph.outputs().to_vec(),
            state: self.state.clone(),
        }))
    }
}

/// A function, its operands, its result.
type Step = (fn(f32, f32) -> f32, [ValueId; 2], ValueId);

struct NpuProgram {
    steps: Vec<Step>,
    values: usize,
    outputs: Vec<ValueId>,
    state: Arc<State>,
}

impl Program for NpuProgram {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        _: &dyn Probe,
    ) -> Result<(), DeviceError> {
        if self.state.fails.load(Ordering::Relaxed) {
            return Err(DeviceError::new(
                NPU,
                FailureClass::Lost,
                "it was told to fail",
            ));
        }
        let mut values: Vec<Vec<f32>> = vec![Vec::new(); self.values];
        for (value, buffer) in values.iter_mut().zip(inputs) {
            *value = vec![0.0; buffer.bytes() / size_of::<f32>()];
            // SAFETY: nothing writes to a run's inputs meanwhile.
            unsafe { buffer.read(0, bytemuck::cast_slice_mut(value))? };
        }
        for (f, [a, b], result) in &self.steps {
            let pairs = values[a.index()].iter().zip(&values[b.index()]);
            values[result.index()] = pairs.map(|(&a, &b)| f(a, b)).collect();
            self.state.launches.fetch_add(1, Ordering::Relaxed);
        }
        for (output, buffer) in self.outputs.iter().zip(outputs) {
            // SAFETY: an output is this run's own.
            unsafe { buffer.write(0, bytemuck::cast_slice(&values[output.index()]))? };
        }
        Ok(())
    }
}

struct NpuMemory;

impl DeviceMemory for NpuMemory {
    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        let mut memory = Vec::new();
        let refused = |_| {
            let class = FailureClass::OutOfMemory { never_fits: false };
            DeviceError::new(NPU, class, format!("no {bytes} bytes left"))
        };
        memory.try_reserve_exact(bytes).map_err(refused)?;
        memory.resize(bytes, 0);
        Ok(Arc::new(NpuBuffer(Mutex::new(memory))))
    }

    fn adopt(&self, host: &HostBuffer) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        let buffer = self.alloc(host.bytes())?;
        // SAFETY: it is so long, and who gives memory to a device does not write to it meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(host.as_ptr(), host.bytes()) };
        // SAFETY: the buffer is new.
        unsafe { buffer.write(0, bytes)? };
        Ok(buffer)
    }

    fn trim(&self) {}
}

#[derive(Debug)]
struct NpuBuffer(Mutex<Vec<u8>>);

impl NpuBuffer {
    fn memory(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceBuffer for NpuBuffer {
    fn bytes(&self) -> usize {
        self.memory().len()
    }

    unsafe fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        to.copy_from_slice(&self.memory()[offset..offset + to.len()]);
        Ok(())
    }

    unsafe fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        self.memory()[offset..offset + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn host(&self) -> Result<Option<&HostBuffer>, DeviceError> {
        Ok(None)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
