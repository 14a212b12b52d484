//! NCCL's calls, checked by a library with its functions. A C compiler makes it: without one nothing is tested.

use std::env;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use libloading::Library;
use rustorch_comm::{
    Cause, CommError, DType, DeviceCall, Nccl, NcclGroup, Options, ReduceOp, Stream, ThreadGroup,
    Work,
};

/// The variable that makes this program the one with NCCL: its environment is its own.
const PROGRAM: &str = "RUSTORCH_COMM_NCCL";

#[test]
fn calls_keep_the_rules() {
    run("calls");
}

#[test]
fn work_that_does_not_end_is_aborted_on_all_ranks() {
    run("hang");
}

#[test]
fn an_error_of_one_rank_ends_all() {
    run("error");
}

#[test]
fn a_missing_rank_is_named() {
    run("missing");
}

#[test]
fn old_and_absent_libraries_are_one_clear_error() {
    run("old");
    let output = start("absent", "/nowhere/libnccl.so.2".into());
    assert!(
        output.contains("NCCL: RUSTORCH_NCCL: /nowhere/libnccl.so.2: cannot open"),
        "{output}"
    );
}

fn run(case: &str) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libnccl.so.2");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/comm/nccl.c");
    let mut compiler = Command::new(env::var_os("CC").unwrap_or("cc".into()));
    compiler
        .args(["-shared", "-fPIC", "-pthread", "-o"])
        .arg(&library)
        .arg(source);
    match compiler.status() {
        Ok(status) => assert!(status.success()),
        Err(_) => return eprintln!("no C compiler is installed"),
    }
    let output = start(case, library);
    assert!(output.contains("#done"), "{output}");
}

fn start(case: &str, library: PathBuf) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["nccl::program", "--exact", "--nocapture"]);
    command
        .env(PROGRAM, case)
        .env("RUSTORCH_NCCL", library)
        .env_remove("NCCL_NVLS_ENABLE");
    let output = command.output().unwrap();
    [output.stdout, output.stderr]
        .map(|text| String::from_utf8(text).unwrap())
        .concat()
}

/// Does nothing as a test.
#[test]
fn program() {
    let Ok(case) = env::var(PROGRAM) else {
        return;
    };
    // SAFETY: this process has no other thread that reads the environment.
    let load = || unsafe { Nccl::load() };
    if case == "absent" {
        println!("#{}", load().err().unwrap());
        return;
    }
    let fake = Fake::open();
    if case == "old" {
        fake.set(b"fake_set_version", 21_305);
        let error = load().err().unwrap().to_string();
        assert_eq!(
            error,
            "NCCL: version 2.13.5 is too old; install 2.14 or later"
        );
        fake.set(b"fake_set_version", 21_400);
        assert_eq!(load().unwrap().version(), "2.14.0");
        println!("#done");
        return;
    }
    let nccl = load().unwrap();
    assert_eq!(nccl.version(), "2.30.7");
    for ranks in crate::RANKS {
        match case.as_str() {
            "calls" => calls(&fake, &nccl, ranks),
            "hang" => hang(&fake, &nccl, ranks),
            "error" => error(&fake, &nccl, ranks),
            _ => missing(&fake, &nccl, ranks),
        }
        fake.check();
    }
    println!("#done");
}

/// Functions that only the library for tests has.
struct Fake(Library);

impl Fake {
    fn open() -> Self {
        let path = env::var_os("RUSTORCH_NCCL").unwrap();
        // SAFETY: the library does nothing when it is loaded.
        Self(unsafe { Library::new(path) }.unwrap())
    }

    /// Sets a number of the library.
    fn set(&self, name: &[u8], number: c_int) {
        // SAFETY: the type is that of the source.
        unsafe { self.0.get::<unsafe extern "C" fn(c_int)>(name).unwrap()(number) };
    }

    /// The calls of a rank.
    fn calls(&self, rank: usize) -> Vec<String> {
        type Call = unsafe extern "C" fn(c_int, c_int) -> *const c_char;
        // SAFETY: the type is that of the source, and texts end.
        let text = |number| unsafe {
            let call = self.0.get::<Call>(b"fake_call").unwrap();
            CStr::from_ptr(call(rank as c_int, number))
                .to_str()
                .unwrap()
                .to_owned()
        };
        (0..)
            .map(text)
            .take_while(|text| !text.is_empty())
            .collect()
    }

    /// Checks that no rule was broken and no communicator kept.
    fn check(&self) {
        // SAFETY: the types are those of the source.
        unsafe {
            let violations = self
                .0
                .get::<unsafe extern "C" fn() -> *const c_char>(b"fake_violations");
            assert_eq!(CStr::from_ptr(violations.unwrap()()), c"");
            let alive = self
                .0
                .get::<unsafe extern "C" fn() -> c_int>(b"fake_alive")
                .unwrap();
            assert_eq!(alive(), 0);
            self.0.get::<unsafe extern "C" fn()>(b"fake_reset").unwrap()();
        }
    }
}

struct Queue {
    is_done: bool,
}

impl Stream for Queue {
    fn handle(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(64)
    }

    fn is_done(&self) -> Result<bool, String> {
        Ok(self.is_done)
    }
}

fn on_ranks(
    nccl: &Arc<Nccl>,
    ranks: usize,
    deadline: Duration,
    program: impl Fn(NcclGroup) -> Result<(), CommError> + Sync,
) -> Vec<Result<(), CommError>> {
    let settle = Duration::from_secs(1);
    let slow = Options {
        deadline: Duration::from_secs(30),
        settle,
        ..Options::default()
    };
    let options = Options { deadline, ..slow };
    let program = &program;
    thread::scope(|scope| {
        let start = |control| {
            scope.spawn(move || {
                program(NcclGroup::start(
                    Arc::clone(nccl),
                    Arc::new(control),
                    options,
                )?)
            })
        };
        let threads: Vec<_> = ThreadGroup::create(ranks, slow)
            .into_iter()
            .map(start)
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn queue(group: &NcclGroup, work: Work) -> Result<(), CommError> {
    queue_of(group, DType::F32, work)
}

fn queue_of(group: &NcclGroup, dtype: DType, work: Work) -> Result<(), CommError> {
    let call = DeviceCall {
        dtype,
        count: 10,
        work,
    };
    // SAFETY: the library for tests touches no memory.
    unsafe { group.queue(call, &Queue { is_done: true }) }
}

const LONG: Duration = Duration::from_secs(30);
const SUM: Work = Work::AllReduce {
    data: 4096,
    op: ReduceOp::Sum,
};

fn calls(fake: &Fake, nccl: &Arc<Nccl>, ranks: usize) {
    let results = on_ranks(nccl, ranks, LONG, |group| {
        let (input, output) = (4096, 8192);
        queue(&group, SUM)?;
        queue(
            &group,
            Work::AllReduce {
                data: 4096,
                op: ReduceOp::PremulSum(0.5),
            },
        )?;
        queue_of(
            &group,
            DType::BF16,
            Work::ReduceScatter {
                input,
                output,
                op: ReduceOp::Avg,
            },
        )?;
        queue_of(&group, DType::U8, Work::AllGather { input, output })?;
        queue_of(
            &group,
            DType::I64,
            Work::Broadcast {
                data: input,
                root: 1,
            },
        )?;
        group.wait(&Queue { is_done: true })?;
        queue_of(&group, DType::F64, Work::AllToAll { input, output })?;
        match group.rank() {
            0 => queue(&group, Work::Send { data: input, to: 1 })?,
            1 => queue(
                &group,
                Work::Recv {
                    data: output,
                    from: 0,
                },
            )?,
            _ => {}
        }
        refusals(&group);
        group.wait(&Queue { is_done: true })
    });
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let mut expected = vec![
        "all_reduce 10 of 7 by 0".to_owned(),
        "all_reduce 10 of 7 by 5".into(),
        "reduce_scatter 10 of 9 by 4".into(),
        "all_gather 10 of 1".into(),
        "broadcast 10 of 4 from 1".into(),
    ];
    for rank in 0..ranks {
        let place = 80 * rank;
        expected.push(format!("send 10 of 8 to {rank} at {}", 4096 + place));
        expected.push(format!("recv 10 of 8 from {rank} at {}", 8192 + place));
    }
    for rank in 0..ranks {
        let last = match rank {
            0 => Some("send 10 of 7 to 1 at 4096".to_owned()),
            1 => Some("recv 10 of 7 from 0 at 8192".into()),
            _ => None,
        };
        let expected: Vec<_> = expected.iter().cloned().chain(last).collect();
        assert_eq!(fake.calls(rank), expected);
    }
}

/// Calls that NCCL cannot do are refused. The group goes on, and does not count them.
fn refusals(group: &NcclGroup) {
    let (data, rank, ranks) = (4096, group.rank(), group.size());
    let all_reduce = |op| Work::AllReduce { data, op };
    let nowhere = format!("there is no rank {ranks} in a group of {ranks}; ranks count from 0");
    let calls = [
        (
            DType::I16,
            all_reduce(ReduceOp::Sum),
            "all_reduce: NCCL has no i16; use another dtype".to_owned(),
        ),
        (
            DType::I32,
            all_reduce(ReduceOp::BitAnd),
            "all_reduce: NCCL has no band; reduce on the host".into(),
        ),
        (
            DType::F32,
            all_reduce(ReduceOp::BitOr),
            "all_reduce: bor is for integers, not for f32".into(),
        ),
        (
            DType::I32,
            all_reduce(ReduceOp::PremulSum(0.5)),
            "all_reduce: premul_sum is for floats, not for i32".into(),
        ),
        (
            DType::F32,
            Work::Broadcast { data, root: ranks },
            format!("broadcast: {nowhere}"),
        ),
        (
            DType::F32,
            Work::Send { data, to: ranks },
            format!("send: {nowhere}"),
        ),
        (
            DType::F32,
            Work::Recv { data, from: rank },
            format!("recv: rank {rank} is this rank; give another one"),
        ),
    ];
    for (dtype, work, expected) in calls {
        assert_eq!(
            queue_of(group, dtype, work),
            Err(CommError::Invalid(expected))
        );
    }
}

/// The failure on which ranks agree.
fn agreed(results: Vec<Result<(), CommError>>) -> (Vec<usize>, Cause) {
    let failure = crate::agreed(results);
    (failure.missing, failure.cause)
}

fn hang(_: &Fake, nccl: &Arc<Nccl>, ranks: usize) {
    let results = on_ranks(nccl, ranks, Duration::from_millis(50), |group| {
        refusals(&group);
        queue(&group, SUM)?;
        let error = group.wait(&Queue { is_done: false }).unwrap_err();
        assert_eq!(
            queue(&group, SUM),
            Err(error.clone()),
            "the group stays failed"
        );
        assert_eq!(group.wait(&Queue { is_done: true }), Err(error.clone()));
        Err(error)
    });
    let (missing, cause) = agreed(results);
    assert_eq!(missing.len(), 1, "the first rank that gives up");
    let expected = "all_reduce 1: NCCL's work is not done after 50ms";
    assert_eq!(cause, Cause::Aborted(expected.into()));
}

fn error(fake: &Fake, nccl: &Arc<Nccl>, ranks: usize) {
    let results = on_ranks(nccl, ranks, Duration::from_millis(200), |group| {
        queue(&group, SUM)?;
        if group.rank() == 1 {
            fake.set(b"fake_fail", 1);
        }
        group.wait(&Queue { is_done: false })
    });
    let (missing, cause) = agreed(results);
    assert_eq!(missing.len(), 1);
    // The rank with the error, or one that waits for it, is the first to say so.
    assert!(matches!(cause, Cause::Aborted(reason) if reason.starts_with("all_reduce 1: NCCL")));
}

fn missing(_: &Fake, nccl: &Arc<Nccl>, ranks: usize) {
    let mut results = on_ranks(nccl, ranks, Duration::from_millis(50), |group| {
        if group.rank() == 1 {
            return Ok(());
        }
        queue(&group, SUM)?;
        group.wait(&Queue { is_done: false })
    });
    assert_eq!(results.remove(1), Ok(()));
    assert_eq!(agreed(results), (vec![1], Cause::Left));
}
