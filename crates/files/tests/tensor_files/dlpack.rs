//! Tensors for other libraries, and from them.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustorch_files::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
    from_dlpack, from_dlpack_unversioned, to_dlpack, to_dlpack_copied, to_dlpack_unversioned,
};
use rustorch_ir::DType;
use rustorch_tensor::{Activity, Tensor};

use crate::{blocks, bytes, error, on_cpu, tensors};

#[test]
fn all_dtypes_go_out_and_come_in() {
    on_cpu(|runtime| {
        for dtype in DType::SCALARS {
            for (name, tensor) in tensors([dtype]).iter() {
                let out = to_dlpack(tensor).unwrap();
                // SAFETY: it was just made.
                let described = unsafe { &*out };
                assert_eq!(described.version, DLPackVersion { major: 1, minor: 1 });
                assert_eq!(described.flags, DLManagedTensorVersioned::READ_ONLY);
                assert_eq!(described.dl_tensor.ndim as usize, tensor.rank());
                assert_eq!(described.dl_tensor.dtype.dtype(), Some(dtype));
                let before = Activity::of(runtime);
                // SAFETY: it was made by `to_dlpack`, and nobody else has it.
                let versioned = unsafe { from_dlpack(out) }.unwrap();
                let out = to_dlpack_copied(tensor).unwrap();
                // SAFETY: it was just made.
                let flags = unsafe { (*out).flags };
                assert_eq!(flags, DLManagedTensorVersioned::IS_COPIED);
                // SAFETY: as above.
                let copied = unsafe { from_dlpack(out) }.unwrap();
                let out = to_dlpack_unversioned(tensor).unwrap();
                // SAFETY: as above.
                let unversioned = unsafe { from_dlpack_unversioned(out) }.unwrap();
                for back in [versioned, copied, unversioned] {
                    assert_eq!((back.dtype(), back.shape()), (dtype, tensor.shape()));
                    assert_eq!(bytes(&back), bytes(tensor), "{name}");
                }
                assert_eq!(Activity::of(runtime).since(before), Activity::default());
            }
        }
    });
}

/// The elements of a structure's memory, by its strides.
///
/// # Safety
/// The structure is one of two dimensions, of `f32`.
unsafe fn read(tensor: &DLTensor) -> Vec<f32> {
    // SAFETY: the caller's promise.
    let (shape, strides) = unsafe {
        let sizes = |at: *mut i64| [*at, *at.add(1)];
        (sizes(tensor.shape), sizes(tensor.strides))
    };
    let places = (0..shape[0]).flat_map(|i| (0..shape[1]).map(move |j| (i, j)));
    let at = |(i, j)| (i * strides[0] + j * strides[1]) as usize;
    // SAFETY: the structure says that its elements are there.
    let element = |place| unsafe { *tensor.data.cast::<f32>().add(place) };
    places.map(at).map(element).collect()
}

#[test]
fn memory_is_shared_with_its_strides_for_as_long_as_others_need_it() {
    on_cpu(|_| {
        let whole = Tensor::from_vec((0..12u8).map(f32::from).collect(), [3, 4]).unwrap();
        let part = whole.t().unwrap().narrow(0, 1, 2).unwrap();
        let storage = part.storage_in_memory().unwrap();
        let (memory, at) = (storage.downgrade(), storage.host_address().unwrap());
        drop(storage);
        let out = to_dlpack(&part).unwrap();
        drop((whole, part));
        // SAFETY: it was just made, and is given back once.
        unsafe {
            let described = &(*out).dl_tensor;
            assert_eq!(described.data.addr(), at + size_of::<f32>());
            assert_eq!(read(described), [1.0, 5.0, 9.0, 2.0, 6.0, 10.0]);
            assert!(memory.upgrade().is_some());
            (*out).deleter.unwrap()(out);
        }
        assert!(memory.upgrade().is_none());
    });
}

/// A library of six numbers that counts how often they were given back.
struct Library {
    numbers: [f32; 6],
    shape: Vec<i64>,
    strides: Vec<i64>,
    given_back: AtomicUsize,
}

unsafe extern "C" fn give_back(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the structure was made by `Library::lend`, whose library lives longer.
    unsafe {
        let managed = Box::from_raw(managed);
        let library = managed.manager_ctx.cast::<Library>();
        (*library).given_back.fetch_add(1, Ordering::SeqCst);
    }
}

impl Library {
    fn new(shape: &[i64], strides: &[i64]) -> Self {
        Self {
            numbers: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            given_back: AtomicUsize::new(0),
        }
    }

    /// A structure of the numbers from the one at `offset` on.
    fn lend(
        &mut self,
        offset: u64,
        change: impl FnOnce(&mut DLManagedTensorVersioned),
    ) -> *mut DLManagedTensorVersioned {
        let strides = match self.strides.is_empty() {
            true => ptr::null_mut(),
            false => self.strides.as_mut_ptr(),
        };
        let mut managed = Box::new(DLManagedTensorVersioned {
            version: DLPackVersion { major: 1, minor: 3 },
            manager_ctx: ptr::from_mut(self).cast::<c_void>(),
            deleter: Some(give_back),
            flags: DLManagedTensorVersioned::READ_ONLY,
            dl_tensor: DLTensor {
                data: self.numbers.as_mut_ptr().cast(),
                device: DLDevice {
                    device_type: DLDevice::CPU,
                    device_id: 0,
                },
                ndim: self.shape.len() as i32,
                dtype: DLDataType::of(DType::F32).unwrap(),
                shape: self.shape.as_mut_ptr(),
                strides,
                byte_offset: 4 * offset,
            },
        });
        change(&mut managed);
        Box::into_raw(managed)
    }

    fn given_back(&self) -> usize {
        self.given_back.load(Ordering::SeqCst)
    }
}

#[test]
fn memory_of_others_is_used_where_it_is_until_no_tensor_needs_it() {
    on_cpu(|runtime| {
        let mut library = Library::new(&[3, 2], &[1, 3]);
        let at = library.numbers.as_ptr().addr();
        let managed = library.lend(0, |_| {});
        let before = Activity::of(runtime);
        // SAFETY: the library lives longer than the tensor, and is as the structure says.
        let tensor = unsafe { from_dlpack(managed) }.unwrap();
        assert_eq!(
            tensor.to_vec::<f32>().unwrap(),
            [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
        );
        if at.is_multiple_of(8) {
            let memory = tensor.storage_in_memory().unwrap();
            assert_eq!(memory.host_address(), Some(at));
        }
        assert_eq!(Activity::of(runtime).since(before).conversions, 0);
        let part = tensor.narrow(0, 1, 1).unwrap();
        drop(tensor);
        assert_eq!(library.given_back(), 0);
        drop(part);
        assert_eq!(library.given_back(), 1);
    });
}

#[test]
fn offsets_and_negative_strides_are_followed() {
    // Shape, strides, offset, and what is seen.
    type Case = (&'static [i64], &'static [i64], u64, &'static [f32]);
    let cases: [Case; 5] = [
        (&[2], &[], 4, &[4.0, 5.0]),
        (&[6], &[-1], 5, &[5.0, 4.0, 3.0, 2.0, 1.0, 0.0]),
        (&[2, 3], &[3, -1], 2, &[2.0, 1.0, 0.0, 5.0, 4.0, 3.0]),
        (&[2, 2], &[0, 4], 1, &[1.0, 5.0, 1.0, 5.0]),
        (&[], &[], 3, &[3.0]),
    ];
    on_cpu(|_| {
        for (shape, strides, offset, expected) in cases {
            let mut library = Library::new(shape, strides);
            let managed = library.lend(offset, |_| {});
            // SAFETY: the library lives longer than the tensor, and is as the structure says.
            let tensor = unsafe { from_dlpack(managed) }.unwrap();
            assert_eq!(tensor.to_vec::<f32>().unwrap(), expected, "{shape:?}");
            drop(tensor);
            assert_eq!(library.given_back(), 1);
        }
    });
}

#[test]
fn what_cannot_be_taken_is_given_back_at_once() {
    type Change = fn(&mut DLManagedTensorVersioned);
    let changes: [(Change, &str); 8] = [
        (|m| m.version.major = 2, "version 2.3 is not supported"),
        (
            |m| m.dl_tensor.device.device_type = 2,
            "memory of device type 2",
        ),
        (|m| m.dl_tensor.dtype.lanes = 4, "lanes: 4"),
        (|m| m.dl_tensor.dtype.code = 17, "code: 17"),
        (|m| m.dl_tensor.ndim = -1, "impossible number of dimensions"),
        (|m| m.dl_tensor.shape = ptr::null_mut(), "no shape"),
        (|m| m.dl_tensor.data = ptr::null_mut(), "no memory"),
        // SAFETY: a shape of one number is there.
        (|m| unsafe { *m.dl_tensor.shape = -6 }, "a size is negative"),
    ];
    on_cpu(|_| {
        for (change, expected) in changes {
            let mut library = Library::new(&[6], &[]);
            let managed = library.lend(0, change);
            // SAFETY: what is wrong is looked at before anything else is used.
            let text = error(unsafe { from_dlpack(managed) });
            assert!(text.contains(expected), "{text}");
            assert_eq!(library.given_back(), 1, "{text}");
        }
        for sizes in [[i64::MAX, 2], [1 << 40, 1 << 40]] {
            let mut library = Library::new(&sizes, &[]);
            let managed = library.lend(0, |_| {});
            // SAFETY: as above.
            let text = error(unsafe { from_dlpack(managed) });
            assert!(text.contains("are too large for memory"), "{text}");
            assert_eq!(library.given_back(), 1);
        }
    });
}

#[test]
fn copies_are_the_receivers_own() {
    unsafe fn first(managed: *mut DLManagedTensor) -> *mut f32 {
        // SAFETY: the caller's promise that it is a structure of numbers.
        unsafe { (*managed).dl_tensor.data.cast() }
    }
    on_cpu(|_| {
        let tensor = Tensor::from_slice(&[1.0f32, 2.0], [2]).unwrap();
        let managed = to_dlpack_unversioned(&tensor.flip(0).unwrap()).unwrap();
        // SAFETY: the structure was just made, of two numbers, and is given back once.
        unsafe {
            assert_eq!(*first(managed), 2.0);
            *first(managed) = 5.0;
            ((*managed).deleter.unwrap())(managed);
        }
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 2.0]);
        assert!(error(to_dlpack(&blocks().0)).contains("DLPack has no Q8_0"));
    });
}
