//! Tensors of others.

use std::ffi::c_void;

use rustorch_macros::track_calls;
use rustorch_tensor::Tensor;

use super::{DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use crate::elements;
use crate::error::{FileError, FileResult};
use crate::source::Source;
use crate::tensors::Tensors;

/// Dimensions that a tensor of others may have at most.
const MOST_DIMS: usize = 64;

const PLACE: &str = "the DLPack tensor";

/// A tensor of another library. Aligned elements are used in place, with their strides. Elements with negative strides
/// are copied when they are first used. So are unaligned elements, and booleans other than 0 and 1.
///
/// This takes over the structure. Its deleter is called when no tensor uses the memory any more, or at once if this
/// fails.
///
/// # Safety
/// `managed` points to a structure as DLPack 1 defines it, without another user. Its memory matches the structure, and
/// nothing writes to it until its deleter is called. The deleter may be called on any thread.
///
/// # Errors
/// Fails for memory of a device, another major version, an unsupported dtype, or a shape too large
/// for memory.
#[track_calls]
pub unsafe fn from_dlpack(managed: *mut DLManagedTensorVersioned) -> FileResult<Tensor> {
    // SAFETY: the caller's promise. Structures of all versions begin with these three fields.
    let (version, deleter) = unsafe { ((*managed).version, (*managed).deleter) };
    let give_back = GiveBack {
        managed: managed.cast(),
        // SAFETY: both are functions of a pointer to a structure, which is given as it came.
        deleter: deleter.map(|deleter| unsafe {
            std::mem::transmute::<
                unsafe extern "C" fn(*mut DLManagedTensorVersioned),
                unsafe extern "C" fn(*mut c_void),
            >(deleter)
        }),
    };
    if version.major != DLPackVersion::HERE.major {
        let found = format!("version {}.{}", version.major, version.minor);
        return Err(FileError::unsupported(PLACE, found, "ask for version 1"));
    }
    // SAFETY: the caller's promise, now that the version is known.
    unsafe { tensor(&(*managed).dl_tensor, give_back) }
}

/// [`from_dlpack`] of the structure without a version.
///
/// # Safety
/// The same as [`from_dlpack`].
///
/// # Errors
/// The same errors as [`from_dlpack`].
#[track_calls]
pub unsafe fn from_dlpack_unversioned(managed: *mut DLManagedTensor) -> FileResult<Tensor> {
    // SAFETY: the caller's promise.
    let deleter = unsafe { (*managed).deleter };
    let give_back = GiveBack {
        managed: managed.cast(),
        // SAFETY: both are functions of a pointer to a structure, which is given as it came.
        deleter: deleter.map(|deleter| unsafe {
            std::mem::transmute::<
                unsafe extern "C" fn(*mut DLManagedTensor),
                unsafe extern "C" fn(*mut c_void),
            >(deleter)
        }),
    };
    // SAFETY: the caller's promise.
    unsafe { tensor(&(*managed).dl_tensor, give_back) }
}

/// Calls a structure's deleter when it is dropped.
struct GiveBack {
    managed: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: whoever handed the structure over promised that it may be called, and only this calls it.
            unsafe { deleter(self.managed) }
        }
    }
}

/// Memory of others.
struct Foreign {
    start: *const u8,
    bytes: usize,
    _give_back: GiveBack,
}

// SAFETY: whoever handed the structure over promised that its deleter may be called on any thread.
unsafe impl Send for Foreign {}
// SAFETY: the bytes are only read, and nobody writes to them, as was promised.
unsafe impl Sync for Foreign {}

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        match self.bytes {
            0 => &[],
            // SAFETY: whoever handed the structure over promised that these bytes are there until it is given back.
            bytes => unsafe { std::slice::from_raw_parts(self.start, bytes) },
        }
    }
}

/// # Safety
/// The same as [`from_dlpack`], for the tensor of a structure that `give_back` gives back.
unsafe fn tensor(dl_tensor: &DLTensor, give_back: GiveBack) -> FileResult<Tensor> {
    const NAME: &str = Tensors::ONLY;
    let on_host = [DLDevice::CPU, DLDevice::CUDA_HOST, DLDevice::ROCM_HOST];
    if !on_host.contains(&dl_tensor.device.device_type) {
        let found = format!("memory of device type {}", dl_tensor.device.device_type);
        return Err(FileError::unsupported(
            PLACE,
            found,
            "bring it to the CPU first",
        ));
    }
    let dtype = dl_tensor.dtype.dtype().ok_or_else(|| {
        let advice = "convert it to a dtype such as float32";
        FileError::unsupported(PLACE, format!("{:?}", dl_tensor.dtype), advice)
    })?;
    // SAFETY: the caller's promise.
    let extent = unsafe { Extent::of(dl_tensor)? };
    let size = dtype.size().unwrap_or(1);
    let too_large = || FileError::damaged(PLACE, "its sizes are too large for memory");
    let bytes = (extent.elements.checked_mul(size))
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .ok_or_else(too_large)?;
    if bytes > 0 && dl_tensor.data.is_null() {
        return Err(FileError::damaged(PLACE, "it has elements, and no memory"));
    }
    let start = dl_tensor.data.cast::<u8>().cast_const();
    let foreign = Foreign {
        start: (start.wrapping_add(dl_tensor.byte_offset as usize))
            .wrapping_sub(extent.before.wrapping_mul(size)),
        bytes,
        _give_back: give_back,
    };
    let line = elements::tensor(NAME, &Source::of(foreign), dtype, &[extent.elements])?;
    // Dimensions with negative strides are first seen in memory's order, then flipped.
    let failed = FileError::tensor(NAME);
    let seen = line
        .as_strided(&extent.shape, &extent.strides, line.storage_offset())
        .and_then(|seen| match extent.flipped.is_empty() {
            true => Ok(seen),
            false => seen.flip(&extent.flipped[..]),
        });
    seen.map_err(failed)
}

/// The elements of memory that a tensor shows.
struct Extent {
    shape: Vec<usize>,
    /// Strides without their signs.
    strides: Vec<usize>,
    /// The dimensions whose strides are negative.
    flipped: Vec<isize>,
    /// Elements before the first one, which is where those strides lead.
    before: usize,
    /// Elements from the first in memory to the last, both included.
    elements: usize,
}

impl Extent {
    /// # Safety
    /// Shape and strides have as many numbers as there are dimensions.
    unsafe fn of(tensor: &DLTensor) -> FileResult<Self> {
        let wrong = |problem: &str| FileError::damaged(PLACE, problem);
        let rank = usize::try_from(tensor.ndim)
            .ok()
            .filter(|&n| n <= MOST_DIMS);
        let rank = rank.ok_or_else(|| wrong("it has an impossible number of dimensions"))?;
        if rank > 0 && tensor.shape.is_null() {
            return Err(wrong("it has no shape"));
        }
        // SAFETY: the caller's promise.
        let shape = unsafe { numbers(tensor.shape, rank) };
        let shape = shape.iter().map(|&n| usize::try_from(n));
        let shape: Result<Vec<usize>, _> = shape.collect();
        let shape = shape.map_err(|_| wrong("a size is negative"))?;
        let signed: Vec<i64> = match tensor.strides.is_null() {
            true => (elements::dense_strides(&shape).into_iter())
                .map(|n| i64::try_from(n).unwrap_or(i64::MAX))
                .collect(),
            // SAFETY: the caller's promise.
            false => unsafe { numbers(tensor.strides, rank) }.to_vec(),
        };
        let mut extent = Self {
            strides: signed.iter().map(|s| s.unsigned_abs() as usize).collect(),
            flipped: Vec::new(),
            before: 0,
            elements: usize::from(!shape.contains(&0)),
            shape,
        };
        if extent.elements == 1 {
            let reached = extent.reach(&signed);
            reached.ok_or_else(|| wrong("its sizes are too large for memory"))?;
        }
        Ok(extent)
    }

    /// Counts elements along the dimensions; `None` where that overflows.
    fn reach(&mut self, signed: &[i64]) -> Option<()> {
        for (dim, &stride) in signed.iter().enumerate() {
            let reach = (self.shape[dim] - 1).checked_mul(self.strides[dim])?;
            self.elements = self.elements.checked_add(reach)?;
            if stride < 0 {
                self.before = self.before.checked_add(reach)?;
                self.flipped.push(dim as isize);
            }
        }
        Some(())
    }
}

/// # Safety
/// So many numbers are there, and stay as they are meanwhile.
unsafe fn numbers<'a>(start: *const i64, count: usize) -> &'a [i64] {
    match count {
        0 => &[],
        // SAFETY: the caller's promise.
        count => unsafe { std::slice::from_raw_parts(start, count) },
    }
}
