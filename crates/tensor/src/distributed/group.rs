//! Ranks that compute together, as tensors see them.

use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch_comm::{CommError, Group, Identity, Options, Solo, TcpGroup};
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_runtime::Call;

use crate::Tensor;
use crate::call;
use crate::error::{RusTorchError, RusTorchResult, require};

thread_local! {
    static CURRENT: RefCell<Option<CommunicationGroup>> = const { RefCell::new(None) };
}

/// Ranks that compute together, seen from one of them: any [`Group`], for tensors. Clones are the same group.
///
/// All ranks make the same calls in the same order. Each call outside of a recording is made at once, in the forward
/// and in the backward pass. Ranks compare their calls: other shapes, or another order, are an error on all ranks.
///
/// ```
/// use rustorch_tensor::distributed::comm::{Options, ThreadGroup};
/// use rustorch_tensor::distributed::{CommunicationGroup, DistributedOperations, ReduceOp, with_group};
/// use rustorch_tensor::tensor;
///
/// std::thread::scope(|scope| {
///     for group in ThreadGroup::create(2, Options::default()) {
///         scope.spawn(move || {
///             let group = CommunicationGroup::new(group);
///             let x = tensor![1.0, group.rank() as f32];
///             let sum = with_group(&group, || x.all_reduce(ReduceOp::Sum)).unwrap();
///             assert_eq!(sum.to_vec::<f32>().unwrap(), [2.0, 1.0]);
///         });
///     }
/// });
/// ```
#[derive(Clone, Debug)]
pub struct CommunicationGroup {
    pub(super) ranks: Arc<Ranks>,
    /// Collectives of the program so far. Each recording counts its own: a rank may record more often than others.
    calls: Arc<AtomicI64>,
    /// The number of the program's run, in a recording.
    pub(super) pass: Option<Tensor>,
}

/// The part that all handles share.
#[derive(Debug)]
pub(super) struct Ranks {
    pub(super) group: Box<dyn Group>,
    failure: Mutex<Option<CommError>>,
}

impl Ranks {
    fn failure(&self) -> MutexGuard<'_, Option<CommError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the error of a call.
    pub(super) fn failed(&self, error: CommError) -> String {
        let text = error.to_string();
        *self.failure() = Some(error);
        text
    }
}

#[track_calls(CommunicationGroup)]
impl CommunicationGroup {
    /// The ranks of a group.
    pub fn new(group: impl Group + 'static) -> Self {
        Self::of(Box::new(group))
    }

    fn of(group: Box<dyn Group>) -> Self {
        let failure = Mutex::new(None);
        Self {
            ranks: Arc::new(Ranks { group, failure }),
            calls: Arc::default(),
            pass: None,
        }
    }

    /// A group of one rank, whose collectives do nothing.
    pub fn solo() -> Self {
        Self::new(Solo)
    }

    /// The group of all processes that a launcher started together with this one, connected by TCP. A process
    /// without a launcher is alone.
    ///
    /// # Errors
    /// The launcher's variables make no sense, or a rank does not come.
    pub fn of_environment(options: Options) -> RusTorchResult<Self> {
        match Identity::of_environment()? {
            Some(identity) if identity.size > 1 => {
                Ok(Self::new(TcpGroup::join(&identity, options)?))
            }
            _ => Ok(Self::solo()),
        }
    }

    /// The group of all ranks that `mpirun` started, connected by MPI. A process can join it once.
    ///
    /// # Errors
    /// The library is missing or of another family, or refuses to start.
    #[cfg(all(unix, feature = "mpi"))]
    pub fn mpi(options: Options) -> RusTorchResult<Self> {
        Ok(Self::new(rustorch_comm::MpiGroup::start(options)?))
    }

    /// The current group of this thread ([`with_group`]); a group of one if there is none.
    pub fn current() -> Self {
        CURRENT.with_borrow(|group| group.clone().unwrap_or_else(Self::solo))
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.ranks.group.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.ranks.group.size()
    }

    /// The group itself, for elements in memory.
    pub fn group(&self) -> &dyn Group {
        &*self.ranks.group
    }

    /// The same group for a recorded program, such as a [`Trace`](crate::Trace). `pass` is an `i64` that differs
    /// between runs, and is the same on all ranks. A run that one rank repeats alone, after a failure of its device,
    /// is then an error on all ranks. Its numbers are never mixed with those of the next run.
    ///
    /// # Errors
    /// The tensor is not one `i64`.
    pub fn in_pass(&self, pass: &Tensor) -> RusTorchResult<Self> {
        let fits = pass.dtype() == DType::I64 && pass.numel() == 1;
        require("in_pass", fits, "one i64", pass.ty())?;
        Ok(Self {
            ranks: self.ranks.clone(),
            calls: Arc::default(),
            pass: Some(pass.clone()),
        })
    }

    /// The number of the next collective of the program.
    pub(super) fn next_number(&self) -> i64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// The ranks cannot finish.
    pub fn barrier(&self) -> RusTorchResult<()> {
        self.group().barrier().map_err(|error| {
            self.ranks.failed(error.clone());
            error.into()
        })
    }

    /// Ends the group: all ranks' calls fail with this reason, if not at once then from their next call on.
    pub fn abort(&self, reason: &str) {
        self.group().abort(reason);
    }

    /// The failure that ended the group, if one did.
    pub fn failure(&self) -> Option<CommError> {
        self.ranks.failure().clone()
    }

    /// The error that a computation returned, or the failure of the ranks if that led to it.
    pub fn explain(&self, error: RusTorchError) -> RusTorchError {
        let failed = |at: Option<Call>| {
            let error = self.failure()?;
            let call = at.or_else(call::entered);
            Some(RusTorchError::Collective { error, call })
        };
        let by_ranks = match &error {
            RusTorchError::Device(error) => failed(error.call),
            _ => None,
        };
        by_ranks.unwrap_or(error)
    }
}

/// Calls `f`, in which `group` is the current group of this thread.
pub fn with_group<R>(group: &CommunicationGroup, f: impl FnOnce() -> R) -> R {
    /// Puts the group before back, also after a panic.
    struct Before(Option<CommunicationGroup>);
    impl Drop for Before {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _before = Before(CURRENT.replace(Some(group.clone())));
    f()
}
