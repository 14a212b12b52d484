//! Every collective of NCCL on NVIDIA's GPUs, with data in their memory. Results are compared with those of the same
//! collectives on the host. Then all-reduces are measured, and at last a rank leaves.
//!
//! `cards 2` takes two GPUs, a thread for each. Started by a launcher, each process takes the GPU of its local rank.

use std::env;
use std::error::Error;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use libloading::Library;
use rustorch_comm::{
    Buffer, BufferMut, DType, DeviceCall, Group, Identity, Nccl, NcclGroup, Options, ReduceOp,
    Stream, TcpGroup, ThreadGroup, Work,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    // SAFETY: no other thread runs yet.
    let nccl = unsafe { Nccl::load() }?;
    let cuda = Arc::new(Cuda::load()?);
    println!("NCCL {}", nccl.version());
    let options = Options {
        deadline: Duration::from_secs(20),
        ..Options::default()
    };
    if let Some(identity) = Identity::of_environment()? {
        let control = Arc::new(TcpGroup::join(&identity, options)?);
        return rank(&cuda, nccl, control, identity.local_rank);
    }
    let ranks = env::args().nth(1).map_or(Ok(2), |text| text.parse())?;
    let start = |group: ThreadGroup| {
        let (cuda, nccl) = (cuda.clone(), nccl.clone());
        thread::spawn(move || {
            let device = group.rank();
            rank(&cuda, nccl, Arc::new(group), device)
        })
    };
    let groups = ThreadGroup::create(ranks, options);
    let threads: Vec<_> = groups.into_iter().map(start).collect();
    for thread in threads {
        thread.join().map_err(|_| "a rank panicked")??;
    }
    Ok(())
}

fn rank(cuda: &Cuda, nccl: Arc<Nccl>, control: Arc<dyn Group>, device: usize) -> Outcome<()> {
    cuda.start(device)?;
    let options = Options {
        deadline: Duration::from_secs(10),
        ..Options::default()
    };
    let start = Instant::now();
    let group = NcclGroup::start(nccl, control.clone(), options)?;
    let tester = Tester {
        cuda,
        queue: cuda.queue()?,
        group,
        control,
    };
    tester.say(&format!("communicator made in {:?}", start.elapsed()));
    let count = tester.check_all()?;
    tester.say(&format!("{count} results are those of the host"));
    for (bytes, times) in [(8 << 10, 200), (1 << 20, 100), (256 << 20, 20)] {
        tester.measure(bytes, times)?;
    }
    tester.leave()
}

/// CUDA's driver.
struct Cuda {
    library: Library,
}

/// A function of the driver, by name and types of arguments.
macro_rules! call {
    ($cuda:expr, $name:literal, $($argument:expr => $ty:ty),*) => {{
        // SAFETY: the types are those of the driver's header, and pointers are to what it expects.
        let status = unsafe {
            let function = $cuda.library.get::<unsafe extern "C" fn($($ty),*) -> c_int>($name)?;
            function($($argument),*)
        };
        match status {
            0 => Ok(()),
            status => {
                let name = String::from_utf8_lossy($name);
                Err(Box::<dyn Error + Send + Sync>::from(format!("{name}: error {status}")))
            }
        }
    }};
}

impl Cuda {
    fn load() -> Outcome<Self> {
        // SAFETY: the driver does nothing when it is loaded that others would have to know of.
        let library = unsafe { Library::new("libcuda.so.1") }?;
        let cuda = Self { library };
        call!(cuda, b"cuInit", 0 => c_uint)?;
        Ok(cuda)
    }

    /// Makes a device that of this thread.
    fn start(&self, device: usize) -> Outcome<()> {
        let (mut handle, mut context) = (0, ptr::null_mut());
        call!(self, b"cuDeviceGet", &mut handle => *mut c_int, device as c_int => c_int)?;
        call!(self, b"cuDevicePrimaryCtxRetain", &mut context => *mut *mut c_void, handle => c_int)?;
        call!(self, b"cuCtxSetCurrent", context => *mut c_void)
    }

    fn queue(&self) -> Outcome<Queue<'_>> {
        const OWN: c_uint = 1;
        let mut stream = ptr::null_mut();
        call!(self, b"cuStreamCreate", &mut stream => *mut *mut c_void, OWN => c_uint)?;
        Ok(Queue { cuda: self, stream })
    }

    fn alloc(&self, bytes: usize) -> Outcome<Memory<'_>> {
        let mut address = 0;
        call!(self, b"cuMemAlloc_v2", &mut address => *mut u64, bytes => usize)?;
        let cuda = self;
        Ok(Memory { cuda, address })
    }

    fn upload(&self, bytes: &[u8]) -> Outcome<Memory<'_>> {
        let memory = self.alloc(bytes.len())?;
        let (to, from) = (memory.address, bytes.as_ptr().cast());
        call!(self, b"cuMemcpyHtoD_v2", to => u64, from => *const c_void, bytes.len() => usize)?;
        Ok(memory)
    }
}

/// Memory of a device.
struct Memory<'a> {
    cuda: &'a Cuda,
    address: u64,
}

impl Memory<'_> {
    fn download(&self, bytes: usize) -> Outcome<Vec<u8>> {
        let mut data = vec![0_u8; bytes];
        let to = data.as_mut_ptr().cast();
        call!(self.cuda, b"cuMemcpyDtoH_v2", to => *mut c_void, self.address => u64, bytes => usize)?;
        Ok(data)
    }

    fn free(self) -> Outcome<()> {
        call!(self.cuda, b"cuMemFree_v2", self.address => u64)
    }
}

/// A stream.
struct Queue<'a> {
    cuda: &'a Cuda,
    stream: *mut c_void,
}

impl Queue<'_> {
    fn query(&self) -> Outcome<c_int> {
        type Query = unsafe extern "C" fn(*mut c_void) -> c_int;
        // SAFETY: the type is that of the driver's header, and the stream exists.
        Ok(unsafe { self.cuda.library.get::<Query>(b"cuStreamQuery")?(self.stream) })
    }
}

impl Stream for Queue<'_> {
    fn handle(&self) -> *mut c_void {
        self.stream
    }

    fn is_done(&self) -> Result<bool, String> {
        const NOT_READY: c_int = 600;
        match self.query().map_err(|error| error.to_string())? {
            0 => Ok(true),
            NOT_READY => Ok(false),
            error => Err(format!("cuStreamQuery: error {error}")),
        }
    }
}

struct Tester<'a> {
    cuda: &'a Cuda,
    queue: Queue<'a>,
    group: NcclGroup,
    /// The same ranks on the host.
    control: Arc<dyn Group>,
}

const DTYPES: [DType; 8] = [
    DType::U8,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

impl Tester<'_> {
    fn say(&self, text: &str) {
        println!("rank {}: {text}", self.group.rank());
    }

    /// Small whole numbers, whose sums and products are exact.
    fn elements(&self, dtype: DType, count: usize) -> Vec<u8> {
        let rank = self.group.rank();
        let number = |i: usize| (i * (rank + 3) % 5) as u8;
        let numbers = (0..count).map(number);
        match dtype {
            DType::F16 => numbers
                .flat_map(|x| half::f16::from(x).to_ne_bytes())
                .collect(),
            DType::BF16 => numbers
                .flat_map(|x| half::bf16::from(x).to_ne_bytes())
                .collect(),
            DType::F32 => numbers.flat_map(|x| f32::from(x).to_ne_bytes()).collect(),
            DType::F64 => numbers.flat_map(|x| f64::from(x).to_ne_bytes()).collect(),
            _ => {
                let bytes = |x: u8| u64::from(x).to_le_bytes().into_iter().take(dtype.size());
                numbers.flat_map(bytes).collect()
            }
        }
    }

    /// Runs each collective for each dtype. Returns the number of results.
    fn check_all(&self) -> Outcome<usize> {
        let ranks = self.group.size();
        let mut checked = 0;
        for dtype in DTYPES {
            for count in [1, 1000, 1 << 20] {
                let reductions = [
                    ReduceOp::Sum,
                    ReduceOp::Product,
                    ReduceOp::Min,
                    ReduceOp::Max,
                    ReduceOp::Avg,
                    ReduceOp::PremulSum(2.0),
                ];
                let has = |op: &&ReduceOp| match op {
                    ReduceOp::Avg => ranks.is_power_of_two() && dtype.is_float(),
                    ReduceOp::PremulSum(_) => dtype.is_float(),
                    _ => true,
                };
                for &op in reductions.iter().filter(has) {
                    self.check(dtype, count, Kind::AllReduce(op))?;
                    self.check(dtype, count, Kind::ReduceScatter(op))?;
                    checked += 2;
                }
                for root in 0..ranks {
                    self.check(dtype, count, Kind::Broadcast(root))?;
                    checked += 1;
                }
                for kind in [Kind::AllGather, Kind::AllToAll, Kind::Ring] {
                    self.check(dtype, count, kind)?;
                    checked += 1;
                }
            }
        }
        Ok(checked)
    }

    /// Compares the result of a collective with the host's.
    fn check(&self, dtype: DType, count: usize, kind: Kind) -> Outcome<()> {
        let (rank, ranks, size) = (self.group.rank(), self.group.size(), dtype.size());
        let (taken, made) = match kind {
            Kind::AllGather => (count, count * ranks),
            Kind::ReduceScatter(_) => (count * ranks, count),
            Kind::AllToAll => (count * ranks, count * ranks),
            _ => (count, count),
        };
        let input = self.elements(dtype, taken);
        let mut expected = match kind {
            Kind::AllReduce(_) | Kind::Broadcast(_) => input.clone(),
            _ => vec![0; made * size],
        };
        let (shape, result) = ([taken], [made]);
        let from = Buffer::new(dtype, &shape, &input)?;
        let to = BufferMut::new(dtype, &result, &mut expected)?;
        let [next, before] = [(rank + 1) % ranks, (rank + ranks - 1) % ranks];
        match kind {
            Kind::AllReduce(op) => self.control.all_reduce(to, op)?,
            Kind::ReduceScatter(op) => self.control.reduce_scatter(from, to, op)?,
            Kind::AllGather => self.control.all_gather(from, to)?,
            Kind::AllToAll => self.control.all_to_all(from, to)?,
            Kind::Broadcast(root) => self.control.broadcast(to, root)?,
            Kind::Ring => {
                self.control.send(from, next)?;
                self.control.recv(to, before)?;
            }
        }
        let memory = self.cuda.upload(&input)?;
        let other = self.cuda.upload(&vec![0xa5; made * size])?;
        let (data, output) = (memory.address, other.address);
        let input = data;
        let works = match kind {
            Kind::AllReduce(op) => vec![Work::AllReduce { data, op }],
            Kind::ReduceScatter(op) => vec![Work::ReduceScatter { input, output, op }],
            Kind::AllGather => vec![Work::AllGather { input, output }],
            Kind::AllToAll => vec![Work::AllToAll { input, output }],
            Kind::Broadcast(root) => vec![Work::Broadcast { data, root }],
            Kind::Ring => {
                let send = Work::Send { data, to: next };
                let recv = Work::Recv {
                    data: output,
                    from: before,
                };
                // One rank begins to receive: a send ends when the other rank receives.
                match rank {
                    0 => vec![recv, send],
                    _ => vec![send, recv],
                }
            }
        };
        for work in works {
            let call = DeviceCall { dtype, count, work };
            // SAFETY: the memory has room for the elements, and stays until the work is done.
            unsafe { self.group.queue(call, &self.queue) }?;
        }
        self.group.wait(&self.queue)?;
        let place = match kind {
            Kind::AllReduce(_) | Kind::Broadcast(_) => &memory,
            _ => &other,
        };
        let got = place.download(made * size)?;
        if got != expected {
            return Err(format!("rank {rank}: {kind:?} of {count} {dtype}: another result").into());
        }
        memory.free()?;
        other.free()
    }

    /// The time of an all-reduce of `f32`: of many in a row, and of one that is waited for.
    fn measure(&self, bytes: usize, times: u32) -> Outcome<()> {
        let memory = self.cuda.alloc(bytes)?;
        let call = DeviceCall {
            dtype: DType::F32,
            count: bytes / 4,
            work: Work::AllReduce {
                data: memory.address,
                op: ReduceOp::Max,
            },
        };
        let run = |times: u32, each: bool| -> Outcome<Duration> {
            self.control.barrier()?;
            let start = Instant::now();
            for _ in 0..times {
                // SAFETY: the memory has room for the elements, and stays until the work is done.
                unsafe { self.group.queue(call, &self.queue) }?;
                if each {
                    self.group.wait(&self.queue)?;
                }
            }
            self.group.wait(&self.queue)?;
            Ok(start.elapsed() / times)
        };
        run(5, true)?;
        let (row, alone) = (run(times, false)?, run(times, true)?);
        memory.free()?;
        let ranks = self.group.size() as f64;
        let rate = bytes as f64 / row.as_secs_f64() / 1e9;
        self.say(&format!(
            "all_reduce of {bytes} bytes: {row:.1?} in a row of {times}, {alone:.1?} waited for; \
             {rate:.1} GB/s, on each link {:.1} GB/s",
            rate * 2.0 * (ranks - 1.0) / ranks
        ));
        Ok(())
    }

    /// The last rank leaves before a collective. The others have to end, and to name it.
    fn leave(self) -> Outcome<()> {
        let ranks = self.group.size();
        if self.group.rank() == ranks - 1 {
            return Ok(());
        }
        let memory = self.cuda.alloc(1 << 20)?;
        let call = DeviceCall {
            dtype: DType::F32,
            count: 1 << 18,
            work: Work::AllReduce {
                data: memory.address,
                op: ReduceOp::Sum,
            },
        };
        let start = Instant::now();
        // SAFETY: the memory has room for the elements, and stays until the group has failed.
        let queued = unsafe { self.group.queue(call, &self.queue) };
        let failed = queued.and_then(|()| self.group.wait(&self.queue));
        let error = failed.err().ok_or("a collective without a rank ended")?;
        self.say(&format!("after {:.1?}: {error}", start.elapsed()));
        let failure = error.failure().ok_or("no failure of ranks")?;
        match failure.missing.contains(&(ranks - 1)) {
            true => Ok(()),
            false => Err("the missing rank is not named".into()),
        }
    }
}

/// The collectives.
#[derive(Clone, Copy, Debug)]
enum Kind {
    AllReduce(ReduceOp),
    ReduceScatter(ReduceOp),
    AllGather,
    AllToAll,
    Broadcast(usize),
    /// Each rank sends to the next one.
    Ring,
}
