//! Collectives of GPUs by NCCL. The library is loaded when it is first used.

mod api;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use api::Nccl;

use crate::call::{check_other, check_rank};
use crate::{Cause, Collective, CommError, DType, Failure, Group, Options, ReduceOp};
use api::{Comm, Config, Functions, IN_PROGRESS, UniqueId, library};

/// A stream of a CUDA device.
pub trait Stream {
    /// CUDA's handle.
    fn handle(&self) -> *mut c_void;

    /// Returns whether all queued work is done.
    ///
    /// # Errors
    /// The device failed.
    fn is_done(&self) -> Result<bool, String>;
}

/// A collective over buffers in a device's memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceCall {
    /// The elements' type.
    pub dtype: DType,
    /// The number of elements: of a rank, or of its part.
    pub count: usize,
    /// The collective.
    pub work: Work,
}

/// A collective, with addresses in the device's memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// Every rank gets the reduction of all buffers, in place.
    AllReduce {
        /// The buffer.
        data: u64,
        /// The reduction.
        op: ReduceOp,
    },
    /// Every rank gets all inputs.
    AllGather {
        /// This rank's elements.
        input: u64,
        /// The elements of all ranks.
        output: u64,
    },
    /// Every rank gets its part of the reduction.
    ReduceScatter {
        /// The parts for all ranks.
        input: u64,
        /// The part of this rank.
        output: u64,
        /// The reduction.
        op: ReduceOp,
    },
    /// Every rank gets the buffer of one, in place.
    Broadcast {
        /// The buffer.
        data: u64,
        /// The rank.
        root: usize,
    },
    /// Every rank gets its part of each rank's buffer.
    AllToAll {
        /// The parts for all ranks.
        input: u64,
        /// The parts from all ranks.
        output: u64,
    },
    /// Sends to a rank.
    Send {
        /// The buffer.
        data: u64,
        /// The rank.
        to: usize,
    },
    /// Receives from a rank.
    Recv {
        /// The buffer.
        data: u64,
        /// The rank.
        from: usize,
    },
}

impl Work {
    /// The kind of action.
    pub const fn collective(&self) -> Collective {
        match self {
            Work::AllReduce { .. } => Collective::AllReduce,
            Work::AllGather { .. } => Collective::AllGather,
            Work::ReduceScatter { .. } => Collective::ReduceScatter,
            Work::Broadcast { .. } => Collective::Broadcast,
            Work::AllToAll { .. } => Collective::AllToAll,
            Work::Send { .. } => Collective::Send,
            Work::Recv { .. } => Collective::Recv,
        }
    }

    const fn op(&self) -> Option<ReduceOp> {
        match self {
            Work::AllReduce { op, .. } | Work::ReduceScatter { op, .. } => Some(*op),
            _ => None,
        }
    }
}

/// A rank whose collectives are NCCL's, on the device that is current when it starts.
///
/// Another group of the same ranks controls it: its ranks start together, and agree by it on failures.
pub struct NcclGroup {
    nccl: Arc<Nccl>,
    control: Arc<dyn Group>,
    options: Options,
    state: Mutex<State>,
}

struct State {
    comm: Comm,
    /// Collectives so far.
    sequence: u64,
    /// The last collective.
    last: Collective,
    /// After a failure the communicator is no more.
    failure: Option<CommError>,
}

/// The time between two looks at NCCL or a stream.
const PAUSE: Duration = Duration::from_micros(50);

impl NcclGroup {
    /// Joins the ranks of `control`. All have to do so.
    ///
    /// # Errors
    /// Fails if NCCL refuses, or if a rank does not come before the deadline.
    pub fn start(
        nccl: Arc<Nccl>,
        control: Arc<dyn Group>,
        options: Options,
    ) -> Result<Self, CommError> {
        let options = options.bounded();
        let (rank, size) = (control.rank(), control.size());
        let mut id = UniqueId::default();
        let made = match rank {
            // SAFETY: the pointer is to an id.
            0 => nccl.check("ncclGetUniqueId", unsafe {
                (nccl.functions.unique_id)(&mut id)
            }),
            _ => Ok(()),
        };
        if let Err(problem) = made {
            control.abort(&problem);
            return Err(library(problem));
        }
        control.broadcast(id.0[..].as_mut().into(), 0)?;
        let (mut comm, mut config) = (Comm(ptr::null_mut()), Config::non_blocking());
        // SAFETY: the pointers are to a communicator and a configuration, which NCCL copies.
        let status = unsafe {
            let init = nccl.functions.init_rank;
            init(&mut comm, size as c_int, id, rank as c_int, &mut config)
        };
        let last = Collective::Barrier;
        let state = Mutex::new(State {
            comm,
            sequence: 0,
            last,
            failure: None,
        });
        let group = Self {
            nccl,
            control,
            options,
            state,
        };
        let mut state = group.lock();
        if let Err(problem) = group.accepted(&state, "ncclCommInitRankConfig", status) {
            return Err(group.fail(&mut state, &problem));
        }
        drop(state);
        Ok(group)
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.control.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.control.size()
    }

    /// Queues a collective on a stream. [`wait`](Self::wait) finds ranks that do not take part.
    ///
    /// # Errors
    /// Fails if NCCL cannot do this, or if the group failed before.
    ///
    /// # Safety
    /// Addresses must point to memory of the group's device that holds the elements. It stays until the stream has
    /// done the work.
    pub unsafe fn queue(&self, call: DeviceCall, stream: &dyn Stream) -> Result<(), CommError> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let collective = call.work.collective();
        let dtype = self.check(&call)?;
        if collective.is_for_all() {
            state.sequence += 1;
        }
        state.last = collective;
        let op = call
            .work
            .op()
            .map(|op| self.reduction(&state, op, call.dtype, dtype));
        let op = match op.transpose() {
            Ok(op) => op.unwrap_or_default(),
            Err(problem) => return Err(self.fail(&mut state, &problem)),
        };
        // SAFETY: as the caller promises.
        let status = unsafe { self.issue(&state, &call, dtype, op, stream.handle()) };
        let accepted = self.accepted(&state, collective.name(), status);
        let freed = self.free(&state, op);
        match accepted.and(freed) {
            Ok(()) => Ok(()),
            Err(problem) => Err(self.fail(&mut state, &problem)),
        }
    }

    /// Waits until a stream has done its work, at most until the deadline.
    ///
    /// # Errors
    /// Fails if the device or NCCL failed, or if a rank does not take part. NCCL's work is then aborted, and the group
    /// ends.
    pub fn wait(&self, stream: &dyn Stream) -> Result<(), CommError> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let until = Instant::now() + self.options.deadline;
        let problem = loop {
            match stream.is_done() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => break error,
            }
            if let Err(problem) = self.status(&state) {
                break problem;
            }
            if Instant::now() >= until {
                break format!("NCCL's work is not done after {:?}", self.options.deadline);
            }
            thread::sleep(PAUSE);
        };
        Err(self.fail(&mut state, &problem))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn functions(&self) -> &Functions {
        &self.nccl.functions
    }

    /// Refuses a call that NCCL cannot do. Returns its number of the dtype.
    fn check(&self, call: &DeviceCall) -> Result<c_int, CommError> {
        let DeviceCall { dtype, work, .. } = *call;
        let collective = work.collective();
        match work {
            Work::Broadcast { root, .. } => check_rank(collective, self.size(), root)?,
            Work::Send { to: peer, .. } | Work::Recv { from: peer, .. } => {
                check_other(collective, self.rank(), self.size(), peer)?;
            }
            Work::AllReduce { op, .. } | Work::ReduceScatter { op, .. } => {
                op.check(collective, dtype)?;
                if !api::has(op) {
                    return Err(CommError::Invalid(format!(
                        "{collective}: NCCL has no {op}; reduce on the host"
                    )));
                }
            }
            Work::AllGather { .. } | Work::AllToAll { .. } => {}
        }
        api::dtype(dtype).ok_or_else(|| {
            CommError::Invalid(format!(
                "{collective}: NCCL has no {dtype}; use another dtype"
            ))
        })
    }

    /// NCCL's number of a reduction. [`free`](Self::free) has to follow.
    fn reduction(
        &self,
        state: &State,
        op: ReduceOp,
        dtype: DType,
        number: c_int,
    ) -> Result<c_int, String> {
        if let Some(op) = api::reduction(op) {
            return Ok(op);
        }
        let (factor, mut made) = (api::scalar(op.factor(), dtype), 0);
        // SAFETY: NCCL copies the factor at once, as it is on the host.
        let status = unsafe {
            let create = self.functions().create_premul;
            create(
                &mut made,
                factor.as_ptr().cast(),
                number,
                api::ON_HOST,
                state.comm,
            )
        };
        let checked = self.accepted(state, "ncclRedOpCreatePreMulSum", status);
        checked.map(|()| made)
    }

    fn free(&self, state: &State, op: c_int) -> Result<(), String> {
        if op < api::OWN_REDUCTIONS {
            return Ok(());
        }
        // SAFETY: the number is of this communicator.
        let status = unsafe { (self.functions().destroy_op)(op, state.comm) };
        self.nccl.check("ncclRedOpDestroy", status)
    }

    /// Calls NCCL.
    ///
    /// # Safety
    /// The conditions of [`queue`](Self::queue) hold.
    unsafe fn issue(
        &self,
        state: &State,
        call: &DeviceCall,
        dtype: c_int,
        op: c_int,
        stream: *mut c_void,
    ) -> c_int {
        let (functions, comm, count) = (self.functions(), state.comm, call.count);
        let at = |address: u64| address as *mut c_void;
        // SAFETY: as the caller promises.
        unsafe {
            match call.work {
                Work::AllReduce { data, .. } => {
                    (functions.all_reduce)(at(data), at(data), count, dtype, op, comm, stream)
                }
                Work::AllGather { input, output } => {
                    (functions.all_gather)(at(input), at(output), count, dtype, comm, stream)
                }
                Work::ReduceScatter { input, output, .. } => {
                    let run = functions.reduce_scatter;
                    run(at(input), at(output), count, dtype, op, comm, stream)
                }
                Work::Broadcast { data, root } => {
                    let (run, root) = (functions.broadcast, root as c_int);
                    run(at(data), at(data), count, dtype, root, comm, stream)
                }
                Work::Send { data, to } => {
                    (functions.send)(at(data), count, dtype, to as c_int, comm, stream)
                }
                Work::Recv { data, from } => {
                    (functions.recv)(at(data), count, dtype, from as c_int, comm, stream)
                }
                Work::AllToAll { input, output } => {
                    let mut status = (functions.group_start)();
                    let bytes = (count * call.dtype.size()) as u64;
                    for rank in 0..self.size() {
                        let (place, rank) = (rank as u64 * bytes, rank as c_int);
                        let (from, to) = (at(input + place), at(output + place));
                        let sent = (functions.send)(from, count, dtype, rank, comm, stream);
                        let received = (functions.recv)(to, count, dtype, rank, comm, stream);
                        status = first_error([status, sent, received]);
                    }
                    first_error([status, (functions.group_end)()])
                }
            }
        }
    }

    /// Waits until NCCL has taken a call. It answers at once, and works behind that.
    fn accepted(&self, state: &State, function: &str, status: c_int) -> Result<(), String> {
        if status != IN_PROGRESS {
            return self.nccl.check(function, status);
        }
        let until = Instant::now() + self.options.deadline;
        loop {
            if self.status(state)? {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(format!(
                    "{function} is not done after {:?}",
                    self.options.deadline
                ));
            }
            thread::sleep(PAUSE);
        }
    }

    /// True if the communicator is ready for a call.
    fn status(&self, state: &State) -> Result<bool, String> {
        let mut status = 0;
        // SAFETY: the communicator is not freed, as there was no failure.
        let asked = unsafe { (self.functions().async_error)(state.comm, &mut status) };
        self.nccl.check("ncclCommGetAsyncError", asked)?;
        match status {
            IN_PROGRESS => Ok(false),
            status => self.nccl.check("NCCL", status).map(|()| true),
        }
    }

    /// Aborts NCCL's work, and agrees with the other ranks on the failure.
    fn fail(&self, state: &mut State, problem: &str) -> CommError {
        if !state.comm.0.is_null() {
            // SAFETY: the communicator is freed once: it is null from now on.
            unsafe { (self.functions().abort)(state.comm) };
            state.comm = Comm(ptr::null_mut());
        }
        // Missing ranks do not come to the barrier. If all come, they take the first one's reason.
        let reason = format!("{} {}: {problem}", state.last, state.sequence);
        let agreed = self.control.barrier().and_then(|()| {
            self.control.abort(&reason);
            self.control.barrier()
        });
        let failure = agreed.err().unwrap_or_else(|| self.failure(state, problem));
        state.failure = Some(failure.clone());
        failure
    }

    fn failure(&self, state: &State, problem: &str) -> CommError {
        let rank = self.rank();
        let failure = Failure {
            epoch: self.control.epoch(),
            sequence: state.sequence,
            collective: state.last.name().into(),
            step: 0,
            found_by: rank,
            missing: Vec::new(),
            cause: Cause::Library(problem.into()),
        };
        CommError::Failed {
            rank,
            failure: Box::new(failure),
        }
    }
}

/// The first status that is an error, else one that says that work goes on.
fn first_error<const N: usize>(statuses: [c_int; N]) -> c_int {
    let error = statuses
        .iter()
        .find(|&&status| status != 0 && status != IN_PROGRESS);
    error
        .copied()
        .unwrap_or_else(|| statuses.into_iter().max().unwrap_or_default())
}

impl Drop for NcclGroup {
    fn drop(&mut self) {
        let state = self.lock();
        if state.comm.0.is_null() {
            return;
        }
        // SAFETY: nothing uses the communicator afterwards.
        unsafe {
            let status = (self.functions().finalize)(state.comm);
            match self.accepted(&state, "ncclCommFinalize", status) {
                Ok(()) => (self.functions().destroy)(state.comm),
                Err(_) => (self.functions().abort)(state.comm),
            };
        }
    }
}

impl fmt::Debug for NcclGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} by NCCL", self.rank(), self.size())
    }
}
