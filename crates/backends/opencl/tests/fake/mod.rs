//! A driver that is made for tests, which run in processes of their own: OpenCL's library is loaded
//! once.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;

/// The driver's folder.
static FAKE: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/libOpenCL.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-pthread", "-o"])
        .arg(folder.path().join("libOpenCL.so.1"))
        .arg(source)
        .status()
        .expect("a C compiler");
    assert!(compiled.success(), "the driver does not compile");
    folder
});

/// Output of an ignored test of this program in a process of its own. There OpenCL is this driver,
/// with these answers.
pub(crate) fn apart(test: &str, answers: &[(&str, &str)]) -> String {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", FAKE.path())
        .env("RUSTORCH_CACHE_DIR", FAKE.path())
        .envs(answers.iter().copied())
        .output()
        .unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{answers:?}: {out}");
    out
}
