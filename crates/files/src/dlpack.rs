//! Exchange of tensors with other libraries in this process, by the C interface DLPack.
//!
//! Source: `dlpack.h` of <https://github.com/dmlc/dlpack>, version 1.1. A library hands out a
//! structure that describes elements, with a function that releases them. One form has a version
//! and flags, an older one does not. Elements are on the host.

mod exporting;
mod importing;

use std::ffi::c_void;

use rustorch_ir::DType;

pub use exporting::{to_dlpack, to_dlpack_copied, to_dlpack_unversioned};
pub use importing::{from_dlpack, from_dlpack_unversioned};

/// A version of the interface.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DLPackVersion {
    /// Only the first three fields of other versions are understood.
    pub major: u32,
    /// They have other dtypes or flags.
    pub minor: u32,
}

impl DLPackVersion {
    /// The version of this crate.
    pub const HERE: Self = Self { major: 1, minor: 1 };
}

/// The device of memory.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DLDevice {
    /// The kind of device: [`Self::CPU`] and others.
    pub device_type: i32,
    /// The index of the device.
    pub device_id: i32,
}

impl DLDevice {
    /// `kDLCPU`: the host's memory.
    pub const CPU: i32 = 1;
    /// `kDLCUDAHost`: the host's, pinned.
    pub const CUDA_HOST: i32 = 3;
    /// `kDLROCMHost`: the host's, pinned.
    pub const ROCM_HOST: i32 = 11;
}

/// The type of elements.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DLDataType {
    /// The kind of number.
    pub code: u8,
    /// Bits of a number; for complex numbers, of both parts.
    pub bits: u8,
    /// Numbers in an element: 1, except for vectors.
    pub lanes: u16,
}

/// The dtypes with their codes and bits.
const DTYPES: [(DType, u8, u8); 17] = [
    (DType::I8, 0, 8),
    (DType::I16, 0, 16),
    (DType::I32, 0, 32),
    (DType::I64, 0, 64),
    (DType::U8, 1, 8),
    (DType::U16, 1, 16),
    (DType::U32, 1, 32),
    (DType::U64, 1, 64),
    (DType::F16, 2, 16),
    (DType::F32, 2, 32),
    (DType::F64, 2, 64),
    (DType::BF16, 4, 16),
    (DType::Complex64, 5, 64),
    (DType::Complex128, 5, 128),
    (DType::Bool, 6, 8),
    (DType::F8E4M3, 10, 8),
    (DType::F8E5M2, 12, 8),
];

impl DLDataType {
    /// DLPack's name of a dtype; `None` for block formats.
    pub fn of(dtype: DType) -> Option<Self> {
        let known = DTYPES.iter().find(|(known, ..)| *known == dtype);
        known.map(|&(_, code, bits)| Self {
            code,
            bits,
            lanes: 1,
        })
    }

    /// The dtype of this type, if it exists here.
    pub fn dtype(self) -> Option<DType> {
        let is_it = |&&(dtype, ..): &&(DType, u8, u8)| Self::of(dtype) == Some(self);
        DTYPES.iter().find(is_it).map(|&(dtype, ..)| dtype)
    }
}

/// Elements in memory.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// The start of the memory.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of the elements.
    pub dtype: DLDataType,
    /// Their sizes, slowest first.
    pub shape: *mut i64,
    /// Elements from one index to the next; null for row-major order without gaps.
    pub strides: *mut i64,
    /// Bytes from the start of the memory to the first element.
    pub byte_offset: u64,
}

/// A [`DLTensor`] with its deleter: the structure without a version.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The elements.
    pub dl_tensor: DLTensor,
    /// State that the deleter needs.
    pub manager_ctx: *mut c_void,
    /// Releases memory and structure; its owner calls it once.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// A [`DLTensor`] with its deleter, a version and flags.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version of the structure.
    pub version: DLPackVersion,
    /// State that the deleter needs.
    pub manager_ctx: *mut c_void,
    /// Releases memory and structure; its owner calls it once.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    /// Bits: [`Self::READ_ONLY`] and [`Self::IS_COPIED`].
    pub flags: u64,
    /// The elements.
    pub dl_tensor: DLTensor,
}

impl DLManagedTensorVersioned {
    /// The elements must not be written to.
    pub const READ_ONLY: u64 = 1;
    /// The elements were copied for this structure.
    pub const IS_COPIED: u64 = 2;
}
