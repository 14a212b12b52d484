//! Memory for converted activations, kept from one product to the next.

use bytemuck::{Pod, Zeroable};

/// Memory that products work in. It grows to the size for the largest product and is then reused:
/// no allocation for a token.
#[derive(Default)]
pub struct Scratch {
    lines: Vec<Line>,
}

/// A cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Scratch {
    /// Scratch memory of size 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes sure that at least `bytes` are there, see [`super::Weight::scratch_bytes`].
    pub fn reserve(&mut self, bytes: usize) {
        let lines = bytes.div_ceil(size_of::<Line>());
        if self.lines.len() < lines {
            self.lines.resize(lines, Line::zeroed());
        }
    }

    /// Room for `count` values, of whatever is there.
    pub(crate) fn slabs<T: Pod>(&mut self, count: usize) -> &mut [T] {
        let bytes = count * size_of::<T>();
        self.reserve(bytes);
        let bytes = &mut bytemuck::cast_slice_mut::<Line, u8>(&mut self.lines)[..bytes];
        bytemuck::cast_slice_mut(bytes)
    }
}
