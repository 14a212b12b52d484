//! Common parts of the GPU backends: kernels in a portable C dialect, the table of them, launch
//! logic, fusion, memory. Only the driver ([`Driver`]) differs.
//!
//! ```text
//! Graph ─► lower ─► Step ─► ops/*.rs: Kernel (text + arguments) ─► Dispatch
//!                             kernels/*.c    prelude.h, LANGUAGE.h, of few rare.h ─► Driver::compile
//! ```

mod cache;
mod dialect;
mod driver;
mod emit;
mod kernel;
mod ops;
mod poison;
mod pool;
mod program;
mod signal;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustorch_ir::{DType, Graph, OpKind, ResultTypes, Signature, TensorType};
use rustorch_runtime::{
    Backend, DeviceError, DeviceInfo, DeviceMemory, FailureClass, KernelEntry, KernelTable,
    Kernels, Layouts, Lowered, Program, lower,
};
use sha2::{Digest, Sha256};

pub use dialect::Dialect;
pub use driver::{Access, Driver, Gemm, Launch, Limits, Matrix, TileMap};
pub use signal::Signal;

use crate::cache::{Cache, Key};
use crate::emit::{Device, Emit, Emitted, GpuKernel, Work, emit};
use crate::kernel::Dispatch;
use crate::pool::{GpuMemory, Pool};
use crate::program::GpuProgram;

/// Place of a kernel once it is loaded. Another thread that needs the kernel meanwhile waits here.
type Place<K> = Arc<Mutex<Option<Arc<K>>>>;

/// A GPU as a backend.
pub struct Gpu<D: Driver> {
    pool: Arc<Pool<D>>,
    memory: GpuMemory<D>,
    table: KernelTable<GpuKernel>,
    /// Beginning of every source.
    prelude: String,
    kernels: Mutex<HashMap<Key, Place<D::Kernel>>>,
    cache: Option<Cache>,
}

impl<D: Driver> Gpu<D> {
    /// The backend of a driver's device.
    pub fn new(driver: D) -> Self {
        let prelude = driver.dialect().prelude(driver.limits().has_f64);
        let table = ops::table(driver.dialect());
        let pool = Arc::new(Pool::new(driver));
        Self {
            memory: GpuMemory(pool.clone()),
            pool,
            table,
            prelude,
            kernels: Mutex::default(),
            cache: Cache::of_user().filter(|_| D::KEEPS_BINARIES),
        }
    }

    fn driver(&self) -> &D {
        &self.pool.driver
    }

    fn device(&self) -> Device<'_> {
        Device {
            limits: self.driver().limits(),
            dialect: self.driver().dialect(),
        }
    }

    /// The kernel that does this here.
    fn find(&self, signature: &Signature) -> Option<&KernelEntry<GpuKernel>> {
        let device = self.device();
        self.table
            .find_that(signature, |kernel| (kernel.suits)(&device, signature))
    }

    fn unsupported(&self, message: impl Into<String>) -> DeviceError {
        DeviceError::new(self.info().device, FailureClass::Unsupported, message)
    }

    /// The compiled kernel of a launch: from this process, from disk, or from its source. No kernel
    /// is loaded twice.
    fn kernel(&self, dispatch: &Dispatch) -> Result<Arc<D::Kernel>, DeviceError> {
        let key = self.key(&dispatch.source);
        let place = lock(&self.kernels).entry(key).or_default().clone();
        let mut place = lock(&place);
        if let Some(kernel) = &*place {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(self.load(&key, dispatch)?);
        *place = Some(kernel.clone());
        Ok(kernel)
    }

    fn load(&self, key: &Key, dispatch: &Dispatch) -> Result<D::Kernel, DeviceError> {
        let kept = self.cache.as_ref().and_then(|cache| cache.get(key));
        let kept = kept.and_then(|binary| self.driver().load(&binary, dispatch.name).ok());
        if let Some(kernel) = kept {
            return Ok(kernel);
        }
        let rare = self.rare_dtypes(&dispatch.source);
        let source = format!("{}{rare}{}", self.prelude, dispatch.source);
        let binary = self.driver().compile(&source).map_err(|e| {
            let told = ops::custom::by_lines_of_text(&e.message, &source);
            let message = told.unwrap_or(e.message);
            DeviceError { message, ..e }
        })?;
        let kernel = self.driver().load(&binary, dispatch.name)?;
        if let Some(cache) = &self.cache {
            cache.put(key, &binary);
        }
        Ok(kernel)
    }

    fn is_loaded(&self, key: &Key) -> bool {
        let place = lock(&self.kernels).get(key).cloned();
        place.is_some_and(|place| lock(&place).is_some())
    }

    /// Makes the kernels of launches ready, each on any of several threads. A later request for a
    /// kernel that failed gets its error.
    fn load_at_once(&self, work: &[(usize, Work)]) {
        let mut missing = HashMap::new();
        for (_, work) in work {
            if let Work::Kernel(dispatch) = work {
                missing.insert(self.key(&dispatch.source), dispatch);
            }
        }
        missing.retain(|key, _| !self.is_loaded(key));
        let missing: Vec<_> = missing.into_values().collect();
        let next = AtomicUsize::new(0);
        let turns = || {
            while let Some(dispatch) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                let _ = self.kernel(dispatch);
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 1..threads.min(missing.len()) {
                scope.spawn(turns);
            }
            turns();
        });
    }

    fn key(&self, source: &str) -> Key {
        let mut hash = Sha256::new();
        let identity = self.info().identity().flat_map(|(key, value)| [key, value]);
        for text in identity.chain([self.prelude.as_str(), self.rare_dtypes(source)]) {
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        }
        hash.update(source);
        hash.finalize().into()
    }

    /// Headers that a kernel's source needs beside the prelude.
    fn rare_dtypes(&self, source: &str) -> &'static str {
        let names = ["u16", "u64", "f8e4m3", "f8e5m2", "complex"];
        let is_portable = self.driver().dialect() != Dialect::Wgsl;
        match is_portable && names.into_iter().any(|name| source.contains(name)) {
            true => include_str!("../kernels/rare.h"),
            false => "",
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kernels count elements, and the bytes of blocks, in 32 bits.
fn is_addressable(ty: &TensorType) -> bool {
    let units = match ty.dtype {
        DType::Block(_) => ty.bytes(),
        _ => ty.shape.elements(),
    };
    u32::try_from(units).is_ok()
}

fn is_double(ty: &TensorType) -> bool {
    matches!(ty.dtype, DType::F64 | DType::Complex128)
}

impl<D: Driver> Backend for Gpu<D> {
    fn info(&self) -> &DeviceInfo {
        self.driver().info()
    }

    fn supports(&self, signature: &Signature) -> bool {
        let mut types = signature.types();
        let any = self.driver().limits().has_f64 || signature.op.def().only_moves(signature);
        types.all(|ty| is_addressable(ty) && (any || !is_double(ty)))
            && self.find(signature).is_some()
            && self.driver().has_kernels_of(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        &self.memory
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        if let Some(ty) = graph.inputs().iter().find(|ty| !is_addressable(ty)) {
            return Err(self.unsupported(format!("{ty} has more than 2³² elements")));
        }
        match self.program(graph, self) {
            // A driver without a compiler has kernels of single operations, not of every chain.
            Err(e) if e.class == FailureClass::Unsupported => self.program(graph, &Alone(self)),
            program => program,
        }
    }

    fn libraries(&self) -> Vec<(String, String)> {
        self.driver().libraries()
    }

    fn may_lack(&self, kind: OpKind) -> bool {
        self.driver().may_lack(kind)
    }

    fn runs_ahead(&self) -> bool {
        D::RECORDS
    }

    fn settle(&self) -> Result<(), DeviceError> {
        self.pool.settle()
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.pool.driver.wait()
    }

    fn variants(&self, graph: &Graph) -> Vec<String> {
        let Ok((_, emitted)) = self.emitted(graph, self) else {
            return Vec::new();
        };
        let dispatches = emitted.work.iter().filter_map(|(_, work)| match work {
            Work::Kernel(dispatch) => Some(dispatch.variant()),
            Work::Gemm(..) => None,
        });
        dispatches.collect()
    }
}

impl<D: Driver> Gpu<D> {
    /// The launches of a graph, in steps as `kernels` has them.
    fn emitted(
        &self,
        graph: &Graph,
        kernels: &impl Kernels,
    ) -> Result<(Lowered, Emitted), DeviceError> {
        let lowered = lower(graph, kernels).map_err(|e| self.unsupported(e.to_string()))?;
        let mut emits = Vec::with_capacity(lowered.steps.len());
        for step in &lowered.steps {
            let part = step.last();
            let is_portable = self.driver().dialect() != Dialect::Wgsl;
            let emit = match step.parts.len() {
                1 => {
                    let inputs: Vec<&TensorType> = step.inputs.iter().map(|p| &p.ty).collect();
                    let outputs: ResultTypes = step.outputs.iter().map(|p| p.ty.clone()).collect();
                    let signature = Signature {
                        op: &part.op,
                        inputs: &inputs,
                        outputs: &outputs,
                    };
                    self.find(&signature).map(|entry| entry.launch.emit)
                }
                _ if !is_portable => Some(ops::wgsl::pointwise::emit as Emit),
                _ if step.reduction.is_some() => Some(ops::reduce::emit as Emit),
                _ => Some(ops::pointwise::emit as Emit),
            };
            let missing = || self.unsupported("no kernel").at(part.node, part.op.name());
            emits.push(emit.ok_or_else(missing)?);
        }
        let emitted = emit(&lowered, &emits, self.device(), &|| {
            self.driver().has_gemm()
        });
        Ok((lowered, emitted))
    }

    /// The program of a graph, in steps as `kernels` has them.
    fn program(
        &self,
        graph: &Graph,
        kernels: &impl Kernels,
    ) -> Result<Box<dyn Program>, DeviceError> {
        let (lowered, emitted) = self.emitted(graph, kernels)?;
        if D::LOADS_AT_ONCE {
            self.load_at_once(&emitted.work);
        }
        let mut kernels = Vec::with_capacity(emitted.work.len());
        for (step, work) in &emitted.work {
            let part = lowered.steps[*step].last();
            let kernel = match work {
                Work::Kernel(dispatch) => self.kernel(dispatch).map(Some),
                Work::Gemm(..) => Ok(None),
            };
            kernels.push(kernel.map_err(|e| e.at(part.node, part.op.name()))?);
        }
        let pool = self.pool.clone();
        Ok(Box::new(GpuProgram::new(pool, lowered, emitted, kernels)))
    }
}

impl<D: Driver> Kernels for Gpu<D> {
    fn layouts(&self, signature: &Signature) -> Layouts {
        let kernel = self.find(signature);
        kernel.map_or(Layouts::Any, |k| k.layouts)
    }

    fn fuses(&self, signature: &Signature) -> bool {
        match signature.op.kind() {
            _ if self.driver().dialect() == Dialect::Wgsl => {
                ops::wgsl::pointwise::accepts(signature)
            }
            // These only move a value to another memory.
            OpKind::Offload | OpKind::Reload => false,
            OpKind::Reduce => true,
            OpKind::Random => ops::random::fuses(signature),
            _ => ops::pointwise::accepts(signature),
        }
    }

    fn writes_over(&self, signature: &Signature) -> Option<usize> {
        // The gradient takes the memory of the logits, which are whole tables.
        (signature.op.kind() == OpKind::CrossEntropyBackward).then_some(0)
    }

    fn result_layouts(&self, signature: &Signature) -> Layouts {
        let writes_rows = ops::cuda::attention::writes_rows(signature)
            && ops::cuda::has_warpgroups(&self.device(), signature);
        match writes_rows {
            true => Layouts::AlignedRows,
            false => Layouts::Contiguous,
        }
    }

    fn largest_buffer(&self) -> usize {
        usize::try_from(self.driver().limits().max_buffer).unwrap_or(usize::MAX)
    }
}

/// The same kernels, each launched for one operation.
struct Alone<'a, D: Driver>(&'a Gpu<D>);

impl<D: Driver> Kernels for Alone<'_, D> {
    fn layouts(&self, signature: &Signature) -> Layouts {
        self.0.layouts(signature)
    }

    fn fuses(&self, _: &Signature) -> bool {
        false
    }

    fn writes_over(&self, signature: &Signature) -> Option<usize> {
        self.0.writes_over(signature)
    }

    fn result_layouts(&self, signature: &Signature) -> Layouts {
        self.0.result_layouts(signature)
    }

    fn largest_buffer(&self) -> usize {
        self.0.largest_buffer()
    }
}
