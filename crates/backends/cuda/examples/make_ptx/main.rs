//! Makes and checks the two files `kernels.ptx.zst`, the kernels for machines without NVRTC; called by
//! `scripts/make-ptx.sh`, which brings the compiler. With `make` kernels that are in the files
//! already are taken from there, with `remake` none are; `check` fails unless the files are what
//! would be made, by all their keys and a sample of their kernels. `behind` lists kernels that are older than their text,
//! without a compiler.
//!
//! The files hold the kernels of the conformance suite, and those of language models. The suite's
//! operands come as they are and longer. Fused products of the suite are left out, and so are
//! operations that hardly used dtypes lack. Each kernel is compiled for the least of the targets
//! that it is chosen on. Kernels of models are also compiled for Hopper and newer, where launches
//! begin early.

// Apple has had no driver for CUDA since 2019.
#[cfg(not(target_vendor = "apple"))]
mod models;
#[cfg(not(target_vendor = "apple"))]
mod pack;
#[cfg(not(target_vendor = "apple"))]
mod pose;
#[cfg(not(target_vendor = "apple"))]
mod works;

fn main() -> anyhow::Result<()> {
    #[cfg(not(target_vendor = "apple"))]
    match std::env::args().nth(1).as_deref() {
        Some("make") => pack::make()?,
        Some("remake") => pack::remake()?,
        Some("check") => pack::check()?,
        Some("behind") => pack::behind()?,
        _ => anyhow::bail!("expected make, remake, check or behind"),
    }
    Ok(())
}
