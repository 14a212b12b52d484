//! CPU instructions, counted by valgrind's callgrind. Clocks are too noisy for tests; counts are
//! the same on every run.

use std::env;
use std::fs;
use std::process::Command;

/// Runs the counted work.
// SAFETY: no other function has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn rustorch_counted(run: &mut dyn FnMut()) {
    run();
}

/// Programs, each with the argument for which its first line is its version.
const TOOLS: [[&str; 2]; 3] = [
    ["rustc", "--version"],
    ["ldd", "--version"],
    ["valgrind", "--version"],
];

/// The versions of the tools that counts depend on.
///
/// # Errors
/// Fails if instructions cannot be counted here. The error says why.
pub fn tools() -> Result<Vec<String>, String> {
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        return Err("counts are of Linux on x86-64".to_owned());
    }
    let version = |[program, argument]: [&str; 2]| {
        let told = Command::new(program).arg(argument).output();
        let told = told.map_err(|e| format!("{program}: {e}"))?;
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        Ok(text.lines().next().unwrap_or_default().to_owned())
    };
    TOOLS.into_iter().map(version).collect()
}

/// The instructions within [`rustorch_counted`] of a run of this program with an environment variable set, under
/// callgrind.
///
/// # Panics
/// Panics if the program fails or counts nothing.
pub fn count(variable: &str, value: &str) -> u64 {
    let folder = tempfile::tempdir().expect("a folder for callgrind");
    let out = folder.path().join("callgrind.out");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .arg("--tool=callgrind")
        .arg("--toggle-collect=rustorch_counted")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(env::current_exe().expect("this program"))
        .env(variable, value)
        // Valgrind knows no AVX-512, and processors without it are to count alike.
        .env("RUSTORCH_CPU_LEVEL", "avx2")
        // Nor is a copy to be counted by the bytes that a processor's caches make it repeat one instruction for.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS,-FSRM");
    let ran = valgrind.output().expect("valgrind runs");
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{told}");
    let text = fs::read_to_string(out).expect("callgrind's file");
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.unwrap_or_else(|| panic!("callgrind counted nothing: {told}"));
    total.trim().parse().expect("callgrind's number")
}
