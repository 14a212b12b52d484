//! Ranks that are processes: this program, started again.

use std::io::{BufRead, BufReader, Lines};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use rustorch_comm::{CommError, Group, Identity, Meeting, Options, ReduceOp, TcpGroup};

use crate::program::{Random, Step};

/// The variable that makes this program a rank.
const PROGRAM: &str = "RUSTORCH_COMM_PROGRAM";

fn options() -> Options {
    Options {
        deadline: Duration::from_secs(60),
        settle: Duration::from_secs(2),
        silence: Duration::from_secs(3),
    }
}

/// Does nothing as a test.
#[test]
fn rank() {
    let Ok(program) = env::var(PROGRAM) else {
        return;
    };
    let identity = Identity::of_environment()
        .unwrap()
        .expect("the test sets variables");
    let group = TcpGroup::join(&identity, options()).unwrap();
    match program.as_str() {
        "steps" => run_steps(&group),
        _ => run_until_failure(&group),
    }
}

pub(crate) fn run_steps(group: &dyn Group) {
    let (mut random, ranks) = (Random(7), group.size());
    for _ in 0..60 {
        let step = Step::random(&mut random, ranks);
        let result = step.run(group).unwrap();
        assert!(result == step.expected(group.rank(), ranks), "{step:?}");
    }
    println!("#done");
}

fn run_until_failure(group: &TcpGroup) {
    let mut data = vec![1.0_f32; 5000];
    let mut sum = |group: &dyn Group| {
        group
            .all_reduce(data[..].as_mut().into(), ReduceOp::Avg)
            .map(|()| data[0])
    };
    sum(group).unwrap();
    println!("#ready");
    let error = loop {
        if let Err(error) = sum(group) {
            break error;
        }
    };
    println!("#{error}");
    match group
        .shrink()
        .and_then(|next| sum(&*next).map(|_| next.size()))
    {
        Ok(size) => println!("#{size} ranks go on"),
        Err(error) => println!("#{error}"),
    }
}

/// A process, which ends with the test.
struct Rank {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Rank {
    fn start(program: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["processes::rank", "--exact", "--nocapture"])
            .stdout(Stdio::piped());
        let variables = variables.iter().copied().chain([(PROGRAM, program)]);
        let mut child = command.envs(variables).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line of the rank itself, not of its test harness.
    fn line(&mut self) -> String {
        let line = self
            .lines
            .find_map(|line| Some(line.unwrap().split_once('#')?.1.to_owned()));
        line.expect("the rank ended early")
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Starts ranks with torchrun's variables.
fn start(program: &str, ranks: usize) -> Vec<Rank> {
    let port = free_port().to_string();
    let size = ranks.to_string();
    let start = |rank: usize| {
        let rank = rank.to_string();
        let variables = [
            ("RANK", rank.as_str()),
            ("LOCAL_RANK", &rank),
            ("WORLD_SIZE", &size),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
        ];
        Rank::start(program, &variables)
    };
    (0..ranks).map(start).collect()
}

#[test]
fn processes_have_the_bits_of_a_serial_computation() {
    for ranks in [2, 3] {
        for mut rank in start("steps", ranks) {
            assert_eq!(rank.line(), "done");
            assert!(rank.child.wait().unwrap().success());
        }
    }
}

#[test]
fn processes_of_mpirun_meet_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let meeting = folder.path().join("new");
    let start = |rank: &str| {
        let variables = [
            ("OMPI_COMM_WORLD_RANK", rank),
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("RUSTORCH_RENDEZVOUS", meeting.to_str().unwrap()),
        ];
        Rank::start("steps", &variables)
    };
    for mut rank in ["0", "1", "2"].map(start) {
        assert_eq!(rank.line(), "done");
        assert!(rank.child.wait().unwrap().success());
    }
    assert!(!meeting.exists(), "the folder is free for another run");
}

#[test]
fn factors_need_not_be_finite() {
    for factor in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.1] {
        let port = free_port();
        let identities = [0, 1].map(|rank| identity(rank, 2, port));
        let results = join_and(identities.into(), options(), move |group| {
            let mut data = [2.0_f64];
            let op = ReduceOp::PremulSum([0.5, factor][group.rank()]);
            group.all_reduce(data[..].as_mut().into(), op)?;
            Ok(data[0])
        });
        let expected = 1.0 + 2.0 * factor;
        for result in results {
            let sum = result.unwrap();
            assert!(
                sum == expected || sum.is_nan() && factor.is_nan(),
                "{factor}"
            );
        }
    }
}

#[test]
fn other_files_of_the_folder_stay() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("rank2");
    fs::write(&other, "a file of another program").unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    let identities = [0, 1].map(|rank| Identity {
        meeting: Meeting::Folder(folder.path().into()),
        ..identity(rank, 2, 0)
    });
    assert_eq!(join(identities.into(), options()), [Ok(()), Ok(())]);
    assert_eq!(fs::read(&other).unwrap(), b"a file of another program");
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["data", "rank2"]);
}

#[test]
fn a_killed_process_is_named_by_the_others() {
    for ranks in [2, 3] {
        let mut processes = start("loop", ranks);
        for process in &mut processes {
            assert_eq!(process.line(), "ready");
        }
        processes[1].child.kill().unwrap();
        check_failure(&mut processes, "rank 1 is missing: the connection is lost");
    }
}

#[cfg(unix)]
#[test]
fn a_stopped_process_is_named_by_the_others() {
    for ranks in [2, 3] {
        let mut processes = start("loop", ranks);
        for process in &mut processes {
            assert_eq!(process.line(), "ready");
        }
        let process = processes[1].child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-STOP", &process])
                .status()
                .unwrap()
                .success()
        );
        check_failure(&mut processes, "rank 1 is missing: no sign of life for 3s");
    }
}

/// Checks what ranks other than rank 1 say, and that they go on.
fn check_failure(processes: &mut [Rank], expected: &str) {
    let remaining = processes.len() - 1;
    let mut failures = Vec::new();
    for (rank, process) in processes
        .iter_mut()
        .enumerate()
        .filter(|(rank, _)| *rank != 1)
    {
        let line = process.line();
        let failure = line
            .strip_prefix(&format!("rank {rank}: all_reduce "))
            .expect("a failure");
        assert!(failure.contains(expected), "{line}");
        failures.push(failure.to_owned());
        assert_eq!(process.line(), format!("{remaining} ranks go on"));
    }
    failures.dedup();
    assert_eq!(failures.len(), 1, "{failures:?}");
}

/// Joins ranks of these identities from threads of this process.
fn join(identities: Vec<Identity>, options: Options) -> Vec<Result<(), String>> {
    // The others need the group while they join.
    join_and(identities, options, |group| group.barrier())
}

/// Joins ranks, and runs a program on each.
fn join_and<T: Send + 'static>(
    identities: Vec<Identity>,
    options: Options,
    program: impl Fn(&TcpGroup) -> Result<T, CommError> + Copy + Send + 'static,
) -> Vec<Result<T, String>> {
    let start = |identity: Identity| {
        thread::spawn(move || {
            let result = TcpGroup::join(&identity, options).and_then(|group| program(&group));
            result.map_err(|error| error.to_string())
        })
    };
    let threads: Vec<_> = identities.into_iter().map(start).collect();
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

fn identity(rank: usize, size: usize, port: u16) -> Identity {
    let meeting = Meeting::Port {
        host: "127.0.0.1".into(),
        port,
    };
    Identity {
        rank,
        size,
        local_rank: rank,
        meeting,
    }
}

fn hasty() -> Options {
    Options {
        deadline: Duration::from_secs(2),
        ..options()
    }
}

#[test]
fn a_deadline_may_be_endless() {
    let endless = Options {
        deadline: Duration::MAX,
        settle: Duration::MAX,
        silence: Duration::MAX,
    };
    let port = free_port();
    let identities = [0, 1].map(|rank| identity(rank, 2, port));
    assert_eq!(join(identities.into(), endless), [Ok(()), Ok(())]);
}

#[test]
fn a_port_that_is_taken_is_one_clear_error() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let results = join(vec![identity(0, 2, port)], hasty());
    let expected = format!(
        "rank 0 of 2 cannot join its group: port {port} is taken; set MASTER_PORT to a free one"
    );
    assert_eq!(results, [Err(expected)]);
}

#[test]
fn a_rank_that_is_not_below_the_size_is_one_clear_error() {
    for (rank, size) in [(2, 2), (usize::MAX, 1), (0, 0)] {
        let joined = TcpGroup::join(&identity(rank, size, 0), hasty());
        let expected =
            format!("join: there is no rank {rank} in a group of {size}; ranks count from 0");
        assert_eq!(joined.unwrap_err(), CommError::Invalid(expected));
    }
}

#[test]
fn a_server_that_never_answers_is_one_clear_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = Options {
        deadline: Duration::from_millis(200),
        ..options()
    };
    let expected = "rank 1 of 2 cannot join its group: cannot meet other ranks: the store does not answer before \
                    the deadline; check MASTER_ADDR and MASTER_PORT";
    assert_eq!(
        join(vec![identity(1, 2, port)], options),
        [Err(expected.into())]
    );
}

#[test]
fn an_absent_rank_is_named() {
    let port = free_port();
    let results = join(vec![identity(0, 3, port), identity(2, 3, port)], hasty());
    for result in results {
        let text = result.unwrap_err();
        assert!(
            text.ends_with("rank 1 did not come before the deadline; start all 3 ranks"),
            "{text}"
        );
    }
}

#[test]
fn a_rank_of_two_processes_is_named() {
    let port = free_port();
    let identities = [0, 1, 1].map(|rank| identity(rank, 3, port));
    let results = join(identities.into(), hasty());
    let named = |text: &String| text.contains("there is another rank 1, process ");
    assert_eq!(
        results
            .iter()
            .filter(|result| result.as_ref().is_err_and(named))
            .count(),
        1
    );
    assert!(results.iter().all(Result::is_err));
}

#[test]
fn world_sizes_that_differ_are_named_with_both() {
    let port = free_port();
    let results = join(vec![identity(0, 2, port), identity(1, 3, port)], hasty());
    let texts: Vec<_> = results.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(
        texts,
        [
            "rank 0 of 2 cannot join its group: rank 1 has world size 3, this rank 2; start all alike",
            "rank 1 of 3 cannot join its group: rank 0 has world size 2, this rank 3; start all alike",
        ]
    );
}

#[test]
fn another_version_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let card = r#"{"version":"0.0.7","size":2,"address":"127.0.0.1:9","process":1,"secret":2}"#;
    fs::write(folder.path().join("rank1"), card).unwrap();
    let meeting = Meeting::Folder(folder.path().into());
    let results = join(
        vec![Identity {
            meeting,
            ..identity(0, 2, 0)
        }],
        hasty(),
    );
    let text = results[0].as_ref().unwrap_err();
    assert!(
        text.contains("rank 1 has version 0.0.7, this rank 0.1.0"),
        "{text}"
    );
}

#[test]
fn launchers_give_identities() {
    let of = |variables: &[(&str, &str)]| {
        let find = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Identity::of(&find)
    };
    let port = |host: &str, port| Meeting::Port {
        host: host.into(),
        port,
    };
    assert_eq!(of(&[]), Ok(None));
    let torchrun = [
        ("RANK", "5"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "node1"),
        ("MASTER_PORT", "29500"),
    ];
    let expected = Identity {
        rank: 5,
        size: 8,
        local_rank: 1,
        meeting: port("node1", 29500),
    };
    assert_eq!(of(&torchrun), Ok(Some(expected.clone())));
    let agent = [
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ("TORCHELASTIC_RUN_ID", "job"),
        ("TORCHELASTIC_RESTART_COUNT", "2"),
    ];
    let meeting = Meeting::Store {
        host: "node1".into(),
        port: 29500,
        prefix: "rustorch/job/2".into(),
    };
    let expected = Identity {
        meeting,
        ..expected
    };
    assert_eq!(of(&[&torchrun[..], &agent].concat()), Ok(Some(expected)));

    let batch = [
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_JOB_ID", "1000"),
        ("SLURM_NODELIST", "gpu[07-09,12],other"),
    ];
    assert_eq!(
        of(&batch),
        Ok(None),
        "a batch script is not a task of a step"
    );
    let srun = [&batch[..], &[("SLURM_STEP_ID", "0")]].concat();
    let expected = Identity {
        rank: 3,
        size: 4,
        local_rank: 1,
        meeting: port("gpu07", 21_000),
    };
    assert_eq!(of(&srun), Ok(Some(expected)));

    let mpich = [
        ("PMI_RANK", "1"),
        ("PMI_SIZE", "2"),
        ("MPI_LOCALRANKID", "1"),
    ];
    let local = [&mpich[..], &[("MPI_LOCALNRANKS", "2")]].concat();
    let found = of(&local).unwrap().unwrap();
    assert_eq!((found.rank, found.size, found.local_rank), (1, 2, 1));
    assert!(matches!(found.meeting, Meeting::Folder(_)));
    let invalid = |variables: &[(&str, &str)]| match of(variables) {
        Err(CommError::Invalid(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(invalid(&mpich).starts_with("PMI_RANK is set without MASTER_ADDR and MASTER_PORT"));
    assert_eq!(
        invalid(&[("RANK", "1")]),
        "WORLD_SIZE is not set; a rank needs it"
    );
    assert_eq!(
        invalid(&[("RANK", "x"), ("WORLD_SIZE", "2")]),
        "RANK=x: expected a number"
    );
    assert_eq!(
        invalid(&[("RANK", "2"), ("WORLD_SIZE", "2")]),
        "RANK=2: ranks of WORLD_SIZE=2 are 0 to 1"
    );
}

/// A store that PyTorch serves, and torchrun's agent, where PyTorch is installed.
#[test]
fn processes_of_torchrun_meet_at_its_store() {
    let torch = Command::new("python3")
        .args(["-c", "import torch.distributed.run"])
        .output();
    if !torch.is_ok_and(|output| output.status.success()) {
        eprintln!("PyTorch is not installed");
        return;
    }
    let program = env::current_exe().unwrap();
    let output = Command::new("python3")
        .args([
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "3",
        ])
        .args(["--no-python", program.to_str().unwrap()])
        .args(["processes::rank", "--exact", "--nocapture"])
        .env(PROGRAM, "steps")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("#done").count(), 3, "{text}");
}
