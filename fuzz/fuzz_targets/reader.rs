//! The target of `rustorch-fuzz` that the variable `RUSTORCH_FUZZ_TARGET` names.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rustorch_fuzz::Target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("RUSTORCH_FUZZ_TARGET").expect("RUSTORCH_FUZZ_TARGET names a target");
    Target::named(&name).expect("RUSTORCH_FUZZ_TARGET is one of crates/fuzz/src/targets/mod.rs")
});

fuzz_target!(|bytes: &[u8]| {
    // Taken or refused: it does not panic.
    let _ = TARGET.try_input(bytes);
});
