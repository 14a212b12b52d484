//! Makes and checks `kernels.ptx.zst`, the kernels for machines without NVRTC; called by
//! `scripts/make-ptx.sh`, which brings the compiler. With `make` kernels that are in the file
//! already are taken from there, with `remake` none are; `check` tells whether the file is what
//! would be made, by all its keys and a sample of its kernels.
//!
//! What is in it: the kernels of the whole conformance suite, compiled for the least of the
//! targets that each is chosen on, and those that language models need, for every target.

// Apple has had no driver for CUDA since 2019.
#[cfg(not(target_vendor = "apple"))]
mod models;
#[cfg(not(target_vendor = "apple"))]
mod pack;
#[cfg(not(target_vendor = "apple"))]
mod pose;

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
