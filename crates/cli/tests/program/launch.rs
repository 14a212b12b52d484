//! Ranks of a program.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::{program, run};

pub(crate) fn ranks_have_torchruns_variables() {
    let script = "echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE; echo to $MASTER_ADDR >&2; \
                  test $MASTER_PORT = 29871; printf unfinished";
    for count in ["-n", "--gpus"] {
        let args = [
            "launch", count, "3", "--port", "29871", "--", "sh", "-ec", script,
        ];
        let output = program(args).output().unwrap();
        assert!(output.status.success());
        let lines = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let of_ranks = |text: fn(usize) -> Vec<String>| (0..3).flat_map(text).collect::<Vec<_>>();
        let text = |r| {
            vec![
                format!("[{r}] rank {r} of 3, {r} of 3"),
                format!("[{r}] unfinished"),
            ]
        };
        assert_eq!(lines(output.stdout), of_ranks(text));
        assert_eq!(
            lines(output.stderr),
            of_ranks(|r| vec![format!("[{r}] to 127.0.0.1")])
        );
    }
}

pub(crate) fn the_first_failure_ends_all() {
    let script = "if test $RANK = 1; then echo no memory >&2; exit 7; fi; exec sleep 1000";
    let error = run(["launch", "-n", "3", "--", "sh", "-c", script]);
    assert_eq!(error.status, 7);
    assert_eq!(
        error.stderr,
        "[1] no memory\nerror: rank 1 ended with status 7\n"
    );

    let script = "if test $RANK = 0; then kill -KILL $$; fi; exec sleep 1000";
    let error = run(["launch", "-n", "2", "--", "sh", "-c", script]);
    assert_eq!(error.status, 137);
    assert_eq!(error.stderr, "error: rank 0 ended with signal 9\n");
}

pub(crate) fn a_signal_ends_all() {
    for signal in ["-INT", "-TERM"] {
        ends_all(signal);
    }
}

fn ends_all(signal: &str) {
    let script = "trap 'echo ended; exit 3' TERM; echo started; while true; do sleep 0.05; done";
    let mut child = program(["launch", "-n", "2", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut first: Vec<_> = lines.by_ref().take(2).collect();
    first.sort();
    assert_eq!(first, ["[0] started", "[1] started"]);
    let status = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
    let mut last: Vec<_> = lines.collect();
    last.sort();
    assert_eq!(last, ["[0] ended", "[1] ended"]);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

pub(crate) fn a_rank_that_does_not_end_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready").display().to_string();
    // The process that rank 0 leaves behind holds its output until the folder is removed.
    let script = "wait_for() { while ! test -e $1; do sleep 0.02; done; }; \
                  if test $RANK = 0; then wait_for $0; while test -e $0; do sleep 0.1; done & exit 4; fi; \
                  trap '' TERM; touch $0; wait_for nothing";
    let error = run(["launch", "-n", "2", "--", "sh", "-c", script, &ready]);
    assert_eq!(
        (error.status, error.stderr.as_str()),
        (4, "error: rank 0 ended with status 4\n")
    );
}

pub(crate) fn a_program_that_does_not_exist() {
    let error = run(["launch", "-n", "2", "--", "no-such-program"]).error(1);
    assert!(
        error.starts_with("error: cannot start no-such-program: "),
        "{error}"
    );
    run(["launch", "-n", "0", "--", "true"]).error(2);
    run(["launch", "--", "true"]).error(2);
}
