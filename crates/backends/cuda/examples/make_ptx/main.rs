//! Makes and checks the two files `kernels.ptx.zst`, the kernels for machines without NVRTC; called by
//! `scripts/make-ptx.sh`, which brings the compiler. With `make` kernels that are in the files
//! already are taken from there, with `remake` none are; `check` tells whether the files are what
//! would be made, by all their keys and a sample of their kernels.
//!
//! What is in them: the kernels of the conformance suite, with operands as they are and longer, but
//! for fused products and what dtypes that are hardly computed with leave out, and those of language
//! models. Each is compiled for the least of the targets that it is
//! chosen on; those of models also for Hopper and newer, where launches begin early.

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
        _ => anyhow::bail!("expected make, remake or check"),
    }
    Ok(())
}
