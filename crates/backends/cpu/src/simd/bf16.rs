//! AVX-512 with products of bf16: `vdpbf16ps` adds to each f32 those of two pairs.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2. The instruction
//! counts denormal numbers as zero, as AMX does.

use super::{Avx512, Kernel, Simd};

/// A machine with the products beside AVX-512.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bf16(Avx512);

impl Bf16 {
    pub(crate) fn detect() -> Option<Self> {
        let vectors = Avx512::detect()?;
        is_x86_feature_detected!("avx512bf16").then_some(Self(vectors))
    }

    /// The machine's vector unit.
    pub(crate) fn vectors(self) -> Avx512 {
        self.0
    }

    /// Runs a kernel with the instructions of the vector unit.
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        self.0.run(kernel);
    }
}
