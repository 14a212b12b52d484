//! Memory that streams through the caches and is not read again soon.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm_sfence, _mm256_loadu_si256,
    _mm256_stream_si256,
};

/// Bytes of results that do not stay in the caches until they are read.
pub(crate) const STREAMED: usize = 32 * 1024 * 1024;

/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// Asks for memory, which need not be valid, to be brought near, where the machine can.
#[inline(always)]
pub(crate) fn prefetch(start: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        let address = start.wrapping_add(line);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction is part of every x86-64, and its effect is on time alone.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the instruction is part of every AArch64, and its effect is on time alone.
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{address}]", address = in(reg) address,
                options(nostack, preserves_flags, readonly),
            );
        }
        #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
        let _ = address;
    }
}

/// Asks for memory to be brought nearer, but not as near as it can be.
#[cfg(target_arch = "x86_64")]
pub(crate) fn prefetch_far(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        // SAFETY: the instruction is part of every x86-64, and its effect is on time alone.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
}

/// Copies without reading the lines of `to` into the caches first, where the machine can.
/// Other threads see the bytes after a [`fence`].
///
/// # Panics
/// Panics unless both have the same length.
pub(crate) fn stream(from: &[u8], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if to.as_ptr().cast::<__m256i>().is_aligned() && is_x86_feature_detected!("avx") {
        assert_eq!(from.len(), to.len(), "copies are of one length");
        let ((from, from_rest), (to, to_rest)) = (from.as_chunks(), to.as_chunks_mut());
        // SAFETY: the machine has the instructions, and `to` is aligned.
        unsafe { stream_vectors(from, to) };
        return to_rest.copy_from_slice(from_rest);
    }
    to.copy_from_slice(from);
}

/// Copies the number of vectors that both have.
///
/// # Safety
/// `to` is aligned to 32 bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn stream_vectors(from: &[[u8; 32]], to: &mut [[u8; 32]]) {
    for (from, to) in from.iter().zip(to) {
        // SAFETY: both are 32 bytes, and the caller has made sure of the alignment.
        unsafe {
            let vector = _mm256_loadu_si256(from.as_ptr().cast());
            _mm256_stream_si256(to.as_mut_ptr().cast(), vector);
        }
    }
}

/// Makes streamed data visible to other threads, once they see this thread's next write.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of every x86-64.
    unsafe {
        _mm_sfence();
    }
}
