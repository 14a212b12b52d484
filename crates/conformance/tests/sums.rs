//! Sums in single precision are as near to double precision as PyTorch's.

use std::process::Command;

/// Sums of up to 1,000 addends, by the program that measures more of them.
#[test]
fn sums_are_as_near_as_pytorchs() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_sums"));
    let output = program
        .args(["-b", "cpu", "--most", "1000"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.lines().count(), 2 + 21 * 3, "{text}");
}

#[test]
fn what_is_asked_for_wrongly_is_refused() {
    for bad in [&["--case", "no such"][..], &["-b", "toaster"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_sums")).args(bad).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(!output.stderr.is_empty(), "{bad:?}");
    }
}
