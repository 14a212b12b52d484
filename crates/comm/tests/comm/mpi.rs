//! Ranks of MPI. `RUSTORCH_TEST_MPI` lists folders of installed families, with `bin/mpirun` and `lib`, and `:`
//! between them. Without it, the `mpirun` of the system is taken, if there is one.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustorch_comm::{CommError, Group, MpiGroup, Options};

use crate::processes::run_steps;

/// The variable that makes this program a rank of MPI.
const RANK: &str = "RUSTORCH_COMM_MPI_RANK";

/// Does nothing as a test.
#[test]
fn rank() {
    if env::var_os(RANK).is_none() {
        return;
    }
    let group = MpiGroup::start(Options::default()).unwrap();
    println!("#{} by {}", group.size(), group.version());
    run_steps(&group);
}

/// Libraries to try, each with the mpirun that starts its ranks.
fn families() -> Vec<(PathBuf, Option<PathBuf>)> {
    let Some(folders) = env::var_os("RUSTORCH_TEST_MPI") else {
        return vec![("mpirun".into(), None)];
    };
    let libraries = ["libmpi.so.40", "libmpi.so.12", "libmpi_abi.so.1"];
    let of = |folder: PathBuf| {
        let found = libraries.map(|library| folder.join("lib").join(library));
        let mpirun = folder.join("bin/mpirun");
        found
            .into_iter()
            .filter(|l| l.exists())
            .map(move |l| (mpirun.clone(), Some(l)))
    };
    env::split_paths(&folders).flat_map(of).collect()
}

fn run(mpirun: &Path, library: Option<&Path>, ranks: usize) -> Option<String> {
    let program = env::current_exe().unwrap();
    let mut command = Command::new(mpirun);
    command.arg("-n").arg(ranks.to_string()).arg(program);
    command
        .args(["mpi::rank", "--exact", "--nocapture"])
        .env(RANK, "1");
    if let Some(library) = library {
        command
            .env("RUSTORCH_MPI", library)
            .env("LD_LIBRARY_PATH", library.parent().unwrap());
        command.env("OPAL_PREFIX", library.parent().unwrap().parent().unwrap());
    }
    // Open MPI takes neither root nor more ranks than cores unless it is asked to.
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    let output = command
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .output()
        .ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{mpirun:?}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn ranks_of_mpi_have_the_bits_of_a_serial_computation() {
    let counts: &[usize] = match env::var_os("RUSTORCH_TEST_FULL") {
        Some(_) => &[2, 4, 8],
        None => &[2],
    };
    for (mpirun, library) in families() {
        for &ranks in counts {
            let Some(text) = run(&mpirun, library.as_deref(), ranks) else {
                eprintln!("no MPI is installed");
                return;
            };
            eprintln!(
                "{}",
                text.lines()
                    .find(|line| line.contains(" by "))
                    .unwrap_or_default()
            );
            assert_eq!(
                text.matches(&format!("#{ranks} by ")).count(),
                ranks,
                "{text}"
            );
            assert_eq!(text.matches("#done").count(), ranks, "{text}");
        }
    }
}

#[test]
fn a_library_of_another_kind_is_one_clear_error() {
    if let Ok(library) = env::var("RUSTORCH_COMM_NO_MPI") {
        let error = MpiGroup::start(Options::default()).unwrap_err();
        assert!(matches!(&error, CommError::Library { library: "MPI", .. }));
        println!("#{library}: {error}");
        return;
    }
    let errors = [
        (
            "/nowhere/libmpi.so",
            "MPI: RUSTORCH_MPI: /nowhere/libmpi.so: cannot open",
        ),
        (
            "libc.so.6",
            "MPI: the library is not MPI: it lacks MPI_Get_library_version",
        ),
    ];
    for (library, expected) in errors {
        let output = Command::new(env::current_exe().unwrap())
            .args(["a_library_of_another_kind", "--nocapture"])
            .env("RUSTORCH_COMM_NO_MPI", library)
            .env("RUSTORCH_MPI", library)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        if cfg!(target_os = "linux") {
            assert!(text.contains(expected), "{text}");
        }
    }
}
