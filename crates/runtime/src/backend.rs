//! The interface of devices to the runtime.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustorch_ir::order::sort_by_key;
use rustorch_ir::{DType, Graph, Layout, Op, OpKind, Signature};

use crate::platform::Instant;
use crate::{DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, HostBuffer, LaunchTime, Nodes};

/// A device that compiles graphs.
pub trait Backend: Send + Sync {
    /// The device's description.
    fn info(&self) -> &DeviceInfo;

    /// Returns whether a kernel supports this. The answer comes from the [`KernelTable`] that [`Backend::compile`]
    /// launches from, so the two cannot differ.
    fn supports(&self, signature: &Signature) -> bool;

    /// The Cargo feature that would add a kernel for this, if it is not
    /// [supported](Backend::supports).
    fn missing_feature(&self, _signature: &Signature) -> Option<&'static str> {
        None
    }

    /// The device's memory.
    fn memory(&self) -> &dyn DeviceMemory;

    /// Makes a graph runnable. All its nodes are supported.
    ///
    /// # Errors
    /// Fails if a kernel does not compile, if memory runs out, or if the device is lost.
    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError>;

    /// [`Backend::compile`] with some inputs as constants: every run of the program gets this
    /// read-only memory.
    ///
    /// # Errors
    /// The same errors as [`Backend::compile`].
    fn compile_with(
        &self,
        graph: &Graph,
        constants: &[Option<HostBuffer>],
    ) -> Result<Box<dyn Program>, DeviceError> {
        let _ = constants;
        self.compile(graph)
    }

    /// Returns whether it uses constants. Others compile a program once for all weights of a shape.
    fn takes_constants(&self) -> bool {
        false
    }

    /// The time of compiling, for a backend that needs seconds. Such programs are compiled in the
    /// background, while the next device in the order serves.
    fn compilation(&self) -> Option<Compilation> {
        None
    }

    /// Returns whether this graph's program [with these constants](Backend::compile_with) is available, such as in a
    /// cache. This is asked only if [compiling takes long](Backend::compilation).
    fn has_compiled(&self, _graph: &Graph, _constants: &[Option<HostBuffer>]) -> bool {
        false
    }

    /// Bytes that its programs have copied so far because the device cannot use their types or
    /// layouts directly. Copies between devices are the runtime's, and do not count.
    fn copied(&self) -> u64 {
        0
    }

    /// Optional libraries that it uses: their purpose, and the library or its replacement.
    fn libraries(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns whether a [supported](Backend::supports) operation may lack a kernel if the kernel compiler is
    /// missing. A composite then runs as its parts.
    fn may_lack(&self, _kind: OpKind) -> bool {
        false
    }

    /// Returns whether its programs [return](Program::is_queued) while the device still works.
    fn runs_ahead(&self) -> bool {
        false
    }

    /// Checks for mistakes found by runs that [ran ahead](Program::run_ahead), and waits for them.
    /// It is called before values that could not be recomputed are computed.
    ///
    /// # Errors
    /// Fails if the device is lost.
    fn settle(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Waits for all queued work, and reports its time to the [watcher](Probe::watcher).
    ///
    /// # Errors
    /// The errors of the queued work.
    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Number of queues for program launches. The device processes each of them in order.
    fn streams(&self) -> usize {
        1
    }

    /// The specialisation of each kernel of a graph, dtypes aside, for tests to try every variant.
    /// The list is empty if kernels are not specialised further.
    fn variants(&self, _graph: &Graph) -> Vec<String> {
        Vec::new()
    }
}

/// The cost of compiling on a device that needs seconds for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compilation {
    /// The approximate time of compiling a program. If devices are compared by
    /// [measured times](crate::Runtime::set_costs), each segment counts a thousandth of it.
    pub program: Duration,
    /// Number of operations below which compiling a segment does not pay. Another device runs it if it can, unless the
    /// user chose this one.
    pub least_operations: usize,
}

/// A compiled graph.
pub trait Program: Send + Sync {
    /// Runs the graph and waits for it. `probe` is called before each kernel. It gets the time of each if it
    /// [requests](Probe::timed_since) that and the device can measure it.
    ///
    /// Inputs and outputs are in the graph's order, in this device's memory; inputs that
    /// the graph updates as state are written to, others are not.
    ///
    /// # Errors
    /// Fails with an error of any class.
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError>;

    /// Returns whether a run can find invalid operand values, such as an index out of range.
    fn finds_mistakes(&self) -> bool {
        true
    }

    /// [`Program::run`] for callers that have checked the values themselves, so that nobody needs
    /// to look for mistakes.
    ///
    /// # Errors
    /// The same errors as [`Program::run`]. If [`Program::is_queued`], later errors show when
    /// results are read, as a loss of the device.
    fn queue(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.run(inputs, outputs, probe)
    }

    /// [`Program::queue`] for unchecked values. A mistake that is found after the run returned
    /// [poisons](DeviceBuffer::is_poisoned) its results, and all values computed from them.
    ///
    /// # Errors
    /// The same errors as [`Program::queue`].
    fn run_ahead(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.run(inputs, outputs, probe)
    }

    /// Returns whether [`Program::queue`] returns while the device still works.
    fn is_queued(&self) -> bool {
        false
    }

    /// The preferred compute unit of each operation, by the unit's name, for a device that chooses
    /// among several units. Operations without a report have none. It is a preference, and does not
    /// prove where operations ran. Empty for other devices, and without a report.
    fn preferred_units(&self) -> Vec<(Option<String>, usize)> {
        Vec::new()
    }

    /// The memory that a run works in, besides inputs and outputs.
    fn scratch(&self) -> Scratch {
        Scratch::default()
    }
}

/// Memory of intermediate values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scratch {
    /// Number of bytes.
    pub bytes: usize,
    /// Whether the program keeps it between runs. Otherwise each run takes it from the device's pool,
    /// so programs of similar size share it.
    pub kept: bool,
    /// Bytes of the host's memory for [offloaded](rustorch_ir::OpDef::offloads) values, which the
    /// program keeps.
    pub offloaded: usize,
}

/// Watches the run of a program.
pub trait Probe {
    /// Called before node `node` is launched. An error stops the run and becomes its result.
    ///
    /// # Errors
    /// The error that ends the run.
    fn before(&self, node: usize, op: &Op) -> Result<(), DeviceError>;

    /// The start of the run, if the program should report the [time](Probe::took) of each launch.
    /// It may then be slower.
    fn timed_since(&self) -> Option<Instant> {
        None
    }

    /// Called when the times of some launches of the run are known. `launches` are all that the
    /// program makes, in their order, each with the nodes that it computes: the same list in every
    /// run. The launches of `times` have the numbers from `first` on, and come once each, in order.
    fn took(&self, _launches: &Arc<[Nodes]>, _first: usize, _times: &[LaunchTime]) {}

    /// The first node of an update that must not run twice, if there is one. The caller's mistakes
    /// in earlier nodes must end the run before it is launched.
    fn update(&self) -> Option<usize> {
        None
    }

    /// A watcher of the device's total time on all launches. It is for launches that are not
    /// [timed](Self::timed_since). The program [returns](Program::is_queued) before its work is
    /// done, and its device reports times.
    fn watcher(&self) -> Option<Watcher> {
        None
    }
}

/// Gets the start and duration of a device's work on a run once they are known, later and on any
/// thread.
pub type Watcher = Arc<dyn Fn(Instant, Duration) + Send + Sync>;

/// A probe that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoProbe;

impl Probe for NoProbe {
    fn before(&self, _node: usize, _op: &Op) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The operand layouts that a kernel supports. Other layouts are copied first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layouts {
    /// Any strides are accepted.
    Any,
    /// Any strides but in the last dimension, whose elements are neighbours.
    DenseRows,
    /// The same, and each row is aligned to 16 bytes, for vector loads.
    AlignedRows,
    /// Row-major without gaps.
    Contiguous,
    /// The same, aligned to 16 bytes; blocks need no alignment.
    Aligned,
}

impl Layouts {
    /// Is an operand of `dtype` read as it is?
    pub(crate) fn include(self, layout: &Layout, dtype: DType) -> bool {
        let is_aligned = |elements: usize| match dtype.size() {
            Some(bytes) => (elements * bytes).is_multiple_of(16),
            None => true,
        };
        let begins_aligned = is_aligned(layout.offset);
        match self {
            Self::Any => true,
            Self::DenseRows => layout.has_dense_rows(),
            Self::AlignedRows => {
                let outer = layout.rank().saturating_sub(1);
                let mut steps = layout.shape[..outer].iter().zip(&layout.strides);
                let are_aligned = steps.all(|(&size, &stride)| size <= 1 || is_aligned(stride));
                layout.has_dense_rows() && begins_aligned && are_aligned
            }
            Self::Contiguous => layout.is_contiguous(),
            Self::Aligned => layout.is_contiguous() && begins_aligned,
        }
    }
}

/// One kernel: its operation and its launch.
pub struct KernelEntry<L> {
    /// The operation.
    pub kind: OpKind,
    /// The supported dtypes and parameters.
    pub accepts: fn(&Signature) -> bool,
    /// The supported operand layouts.
    pub layouts: Layouts,
    /// Launch of the kernel.
    pub launch: L,
}

/// A backend's kernels; the first that accepts an operation runs it.
pub struct KernelTable<L> {
    /// Entries of one operation are adjacent.
    entries: Vec<KernelEntry<L>>,
    /// The range of each operation's entries.
    of_kind: Vec<Range<usize>>,
}

impl<L> KernelTable<L> {
    /// A table of these kernels; those of one operation keep their order.
    pub fn new(mut entries: Vec<KernelEntry<L>>) -> Self {
        sort_by_key(&mut entries, |entry| entry.kind as usize);
        let before = |kind: usize| entries.partition_point(|entry| (entry.kind as usize) < kind);
        let of_kind =
            (OpKind::ALL.iter()).map(|&kind| before(kind as usize)..before(kind as usize + 1));
        Self {
            of_kind: of_kind.collect(),
            entries,
        }
    }

    /// The kernel for a signature.
    pub fn find(&self, signature: &Signature) -> Option<&KernelEntry<L>> {
        self.find_that(signature, |_| true)
    }

    /// The kernel for a signature that suits the device.
    pub fn find_that(
        &self,
        signature: &Signature,
        suits: impl Fn(&L) -> bool,
    ) -> Option<&KernelEntry<L>> {
        let kind = signature.op.kind() as usize;
        let mut entries = self.entries[self.of_kind[kind].clone()].iter();
        entries.find(|k| (k.accepts)(signature) && suits(&k.launch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned_where_loads_are() {
        let whole = Layout::contiguous(&[6, 12].into());
        let is_read = |layouts: Layouts, layout: &Layout, dtype| layouts.include(layout, dtype);
        for (layout, dtype, [rows, all]) in [
            (whole.clone(), DType::F32, [true, true]),
            // Rows of 24 bytes.
            (whole.clone(), DType::F16, [false, true]),
            (whole.slice(0, 1, 2, 1), DType::F16, [false, false]),
            (whole.slice(0, 2, 1, 1), DType::F16, [true, true]),
            (whole.slice(1, 4, 8, 1), DType::F32, [true, false]),
            (whole.slice(1, 1, 8, 1), DType::F32, [false, false]),
            (whole.slice(1, 0, 4, 2), DType::F32, [false, false]),
        ] {
            assert_eq!(
                is_read(Layouts::AlignedRows, &layout, dtype),
                rows,
                "{layout:?}"
            );
            assert_eq!(is_read(Layouts::Aligned, &layout, dtype), all, "{layout:?}");
            assert!(is_read(Layouts::Any, &layout, dtype));
        }
    }
}
