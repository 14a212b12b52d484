//! Memory that streams through the caches and is not read again soon.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128,
};

/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// Asks for memory to be brought near.
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE) {
        // SAFETY: the instruction is part of every x86-64, and its effect is on time alone.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Copies without reading the lines of `to` into the caches first, where the machine can.
/// Other threads see the bytes after a [`fence`].
///
/// # Panics
/// Unless both are of one length.
pub(crate) fn stream(from: &[u8], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if to.as_ptr().cast::<__m128i>().is_aligned() {
        assert_eq!(from.len(), to.len(), "copies are of one length");
        let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<16>(), to.as_chunks_mut());
        for (from, to) in from.iter().zip(to) {
            let (from, to): (_, &mut [u8; 16]) = (from.as_ptr(), to);
            // SAFETY: both are 16 bytes, and `to` is aligned. The instructions are part of
            // every x86-64.
            unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), _mm_loadu_si128(from.cast())) };
        }
        return to_rest.copy_from_slice(from_rest);
    }
    to.copy_from_slice(from);
}

/// Lets other threads see what this one has streamed, once they see what it writes next.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of every x86-64.
    unsafe {
        _mm_sfence();
    }
}
