//! Operands of a kernel: memory with a layout, given out as typed slices.

use std::marker::PhantomData;

use bytemuck::Pod;
use rustorch_ir::{DType, Layout, TensorType};

/// An operand that is read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    start: *const u8,
    bytes: usize,
    /// Layout of the elements, counted from the start of the buffer.
    pub(crate) layout: &'a Layout,
    /// Shape and element type.
    pub(crate) ty: &'a TensorType,
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: a view is a shared borrow of plain bytes.
unsafe impl Sync for View<'_> {}

impl<'a> View<'a> {
    /// A view of `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The bytes are readable for `'a`, and hold elements of `ty` in `layout`. Nothing writes to
    /// them meanwhile, except through the [`Target`] of a kernel that updates state. Such a kernel
    /// reads its state only through that target.
    pub(crate) unsafe fn new(
        start: *const u8,
        bytes: usize,
        layout: &'a Layout,
        ty: &'a TensorType,
    ) -> Self {
        Self {
            start,
            bytes,
            layout,
            ty,
            memory: PhantomData,
        }
    }

    /// Element type.
    pub(crate) fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Sizes of the dimensions.
    pub(crate) fn shape(&self) -> &'a [usize] {
        &self.ty.shape
    }

    /// All bytes of the buffer.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        // SAFETY: readable and not written to, by the contract of `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    /// The buffer's elements from the first of the view to the last: index them with sums
    /// of index · stride. Contiguous views are exactly this slice.
    pub(crate) fn data<T: Pod>(&self) -> &'a [T] {
        bytemuck::cast_slice(self.span(size_of::<T>()))
    }

    /// The bytes of a contiguous view's elements, or of its blocks.
    pub(crate) fn dense_bytes(&self) -> &'a [u8] {
        match self.ty.dtype.size() {
            Some(size) => self.span(size),
            None => &self.bytes()[..self.ty.bytes()],
        }
    }

    /// The bytes of [`Self::data`], of elements of `size` bytes.
    pub(crate) fn span(&self, size: usize) -> &'a [u8] {
        debug_assert_eq!(Some(size), self.ty.dtype.size());
        let end = self.layout.end();
        let start = self.layout.offset.min(end);
        &self.bytes()[start * size..end * size]
    }
}

/// The operand that is written: contiguous, unless it is a state.
pub(crate) struct Target<'a> {
    start: *mut u8,
    bytes: usize,
    /// Layout of the elements, counted from the start of the buffer.
    pub(crate) layout: &'a Layout,
    /// Shape and element type.
    pub(crate) ty: &'a TensorType,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Target<'a> {
    /// A target of `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The bytes are writable for `'a`, and hold elements of `ty` in `layout`. Nothing else uses
    /// them meanwhile.
    pub(crate) unsafe fn new(
        start: *mut u8,
        bytes: usize,
        layout: &'a Layout,
        ty: &'a TensorType,
    ) -> Self {
        Self {
            start,
            bytes,
            layout,
            ty,
            memory: PhantomData,
        }
    }

    /// Element type.
    pub(crate) fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Sizes of the dimensions.
    pub(crate) fn shape(&self) -> &'a [usize] {
        &self.ty.shape
    }

    /// The elements, from the first to the last that the layout reaches.
    pub(crate) fn data<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.span(size_of::<T>()))
    }

    /// All bytes of the buffer.
    pub(crate) fn all_bytes(&mut self) -> &mut [u8] {
        // SAFETY: writable and exclusively ours, by the contract of `new`.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// The bytes of [`Self::data`], of elements of `size` bytes.
    pub(crate) fn span(&mut self, size: usize) -> &mut [u8] {
        debug_assert_eq!(Some(size), self.ty.dtype.size());
        let end = self.layout.end();
        let start = self.layout.offset.min(end);
        &mut self.all_bytes()[start * size..end * size]
    }
}
