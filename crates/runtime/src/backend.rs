//! What a device has to offer to the runtime.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustorch_ir::order::sort_by_key;
use rustorch_ir::{DType, Graph, Layout, Op, OpKind, Signature};

use crate::{DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, HostBuffer, LaunchTime, Nodes};

/// A device that compiles graphs.
pub trait Backend: Send + Sync {
    /// What the device says of itself.
    fn info(&self) -> &DeviceInfo;

    /// Is there a kernel for this? Answered from the same [`KernelTable`] that
    /// [`Backend::compile`] launches from, so that the two cannot differ.
    fn supports(&self, signature: &Signature) -> bool;

    /// The Cargo feature that a kernel for this is left out with, of one that it does not
    /// [support](Backend::supports).
    fn missing_feature(&self, _signature: &Signature) -> Option<&'static str> {
        None
    }

    /// The device's memory.
    fn memory(&self) -> &dyn DeviceMemory;

    /// Makes a graph runnable. Every node of it is supported.
    ///
    /// # Errors
    /// A kernel does not compile, memory is refused, or the device is lost.
    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError>;

    /// [`Backend::compile`], where some inputs are constants: every run of the program is given this
    /// memory, which nobody writes to. `None` for the others.
    ///
    /// # Errors
    /// As [`Backend::compile`].
    fn compile_with(
        &self,
        graph: &Graph,
        constants: &[Option<HostBuffer>],
    ) -> Result<Box<dyn Program>, DeviceError> {
        let _ = constants;
        self.compile(graph)
    }

    /// Does it make use of constants? Others are compiled once for all weights of a shape.
    fn takes_constants(&self) -> bool {
        false
    }

    /// What compiling takes, of a backend for which that is seconds rather than what a kernel takes.
    /// Such programs are compiled in the background, while the next device in the order serves.
    fn compilation(&self) -> Option<Compilation> {
        None
    }

    /// Where [compiling takes long](Backend::compilation), is the program of this graph
    /// [with these constants](Backend::compile_with) at hand, as in a cache, so that it takes no
    /// longer than elsewhere?
    fn has_compiled(&self, _graph: &Graph, _constants: &[Option<HostBuffer>]) -> bool {
        false
    }

    /// Bytes that its programs have copied so far, because of types or layouts that the device does not
    /// take as they are. Copies between devices are the runtime's, and not among them.
    fn copied(&self) -> u64 {
        0
    }

    /// Libraries that it uses where they are installed: what for, and which one, or what is used
    /// in place of it. They are opened, which takes a while, unless work has asked for them before.
    fn libraries(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// May it turn out, where nothing compiles kernels, that there is none of an operation that it
    /// [supports](Backend::supports)? A composite, which then runs as its parts.
    fn may_lack(&self, _kind: OpKind) -> bool {
        false
    }

    /// Do its programs [return](Program::is_queued) while the device still works?
    fn runs_ahead(&self) -> bool {
        false
    }

    /// Looks for mistakes that runs [ahead](Program::run_ahead) of it have found, for which it waits:
    /// before something is computed that could not be computed again.
    ///
    /// # Errors
    /// The device is lost.
    fn settle(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Waits for all that was queued, and tells [who wants to know](Probe::watcher) what it took.
    ///
    /// # Errors
    /// What went wrong meanwhile.
    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Queues that launches of programs go to, each of which the device works off in order.
    fn streams(&self) -> usize {
        1
    }

    /// What each kernel that a graph is compiled to is specialised by, dtypes aside, for tests to
    /// try every variant. Empty where kernels are not specialised by more.
    fn variants(&self, _graph: &Graph) -> Vec<String> {
        Vec::new()
    }
}

/// What compiling takes on a device on which it takes long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compilation {
    /// The time for a program, about. Where devices are compared by
    /// [measured times](crate::Runtime::set_costs), a thousandth of it counts for each segment.
    pub program: Duration,
    /// Operations below which a segment is not worth a program: if another device can run them,
    /// that does, unless the user has sent them here.
    pub least_operations: usize,
}

/// A compiled graph.
pub trait Program: Send + Sync {
    /// Runs the graph and waits for it. `probe` is asked before each kernel, and told the time of
    /// each if it [asks](Probe::timed_since) for that and the device can tell.
    ///
    /// Inputs and outputs are in the graph's order, in this device's memory; inputs that
    /// the graph updates as state are written to, others are not.
    ///
    /// # Errors
    /// Any class. States may then be half updated. The runtime runs again only what may be: updates
    /// that follow from a state's old value come last, and a failure behind the first of them is
    /// the loss of the states.
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError>;

    /// Can a run find a mistake of the caller in what its operands hold, such as an index out of
    /// range?
    fn finds_mistakes(&self) -> bool {
        true
    }

    /// [`Program::run`] where nobody needs to look for mistakes, as the caller has checked the
    /// values that kernels would refuse.
    ///
    /// # Errors
    /// As [`Program::run`]. If [`Program::is_queued`], what fails later shows when results are
    /// read, as the loss of the device.
    fn queue(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.run(inputs, outputs, probe)
    }

    /// [`Program::queue`] where nobody has checked: the mistake of a run that returned before it was
    /// found [poisons](DeviceBuffer::is_poisoned) what this run writes, and what others compute from that.
    ///
    /// # Errors
    /// As [`Program::queue`].
    fn run_ahead(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.run(inputs, outputs, probe)
    }

    /// Does [`Program::queue`] return while the device still works?
    fn is_queued(&self) -> bool {
        false
    }

    /// Of a device that chooses from several units by itself: how many operations of its own it says
    /// it prefers to run on which, by the unit's name; those of which it does not tell have none.
    /// That is a preference, and no word about what ran where. Empty of other devices, and where
    /// nothing is told.
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
    /// How much.
    pub bytes: usize,
    /// Does the program keep it between runs? Else each run takes it from the device's pool, so
    /// that programs which need as much have the same.
    pub kept: bool,
    /// Bytes of the host's memory in which values [wait](rustorch_ir::OpDef::offloads); the program keeps these.
    pub offloaded: usize,
}

/// Looks on while a program runs.
pub trait Probe {
    /// Called before node `node` is launched. An error stops the run and becomes its result.
    ///
    /// # Errors
    /// Whatever the run is to end with.
    fn before(&self, node: usize, op: &Op) -> Result<(), DeviceError>;

    /// When the run began, if the program is to tell what each launch [took](Probe::took). It may then be slower.
    fn timed_since(&self) -> Option<Instant> {
        None
    }

    /// Called when it is known when the device worked on some launches of the run. `launches` are all that the program
    /// makes, in their order, each with the nodes that it computes: the same list in every run. Those that `times` are
    /// of have the numbers from `first` on, and come once each, in order.
    fn took(&self, _launches: &Arc<[Nodes]>, _first: usize, _times: &[LaunchTime]) {}

    /// Who wants to know how long the device works on all launches together, where they are not
    /// [timed](Self::timed_since), [returns](Program::is_queued) before its work is done, and can tell.
    fn watcher(&self) -> Option<Watcher> {
        None
    }
}

/// Is told since when and how long a device worked on a run, once that is known: later, and on any
/// thread.
pub type Watcher = Arc<dyn Fn(Instant, Duration) + Send + Sync>;

/// Lets everything pass.
#[derive(Clone, Copy, Debug)]
pub struct NoProbe;

impl Probe for NoProbe {
    fn before(&self, _node: usize, _op: &Op) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Which operand layouts a kernel reads. Others are copied first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layouts {
    /// Any strides.
    Any,
    /// Any strides but in the last dimension, whose elements are neighbours.
    DenseRows,
    /// The same, and each row begins at a multiple of 16 bytes, for loads of as many.
    AlignedRows,
    /// Row-major without gaps.
    Contiguous,
    /// The same, from a multiple of 16 bytes on; blocks from anywhere.
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

/// One kernel: what it is for, and how it is launched in the backend's own terms.
pub struct KernelEntry<L> {
    /// The operation.
    pub kind: OpKind,
    /// The dtypes and parameters it takes.
    pub accepts: fn(&Signature) -> bool,
    /// The operand layouts it takes.
    pub layouts: Layouts,
    /// How it is launched.
    pub launch: L,
}

/// A backend's kernels; the first that accepts is the one that runs.
pub struct KernelTable<L> {
    /// Those of one operation behind each other.
    entries: Vec<KernelEntry<L>>,
    /// Where the entries of each operation are.
    of_kind: Vec<Range<usize>>,
}

impl<L> KernelTable<L> {
    /// A table of these, those of one operation in their order.
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

    /// The kernel for a signature, of those that suit the device.
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
