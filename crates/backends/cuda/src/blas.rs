//! Dense products by cuBLASLt, whose matrices are column-major: it computes the transposed product,
//! yᵀ = bᵀ · aᵀ.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use rustorch_gpu::{Gemm, Matrix};
use rustorch_ir::DType;
use rustorch_runtime::{DeviceError, FailureClass};

use crate::buffer::Buffer;
use crate::context::Context;
use crate::library::api;

type Handle = *mut c_void;
type Layout = *mut c_void;
type Algorithm = [u64; 8];

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Heuristic {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

// Functions of `cublasLt.h`. The version is not a status, but has a status' type on every system
// that CUDA is for.
api! { "cublasLt":
    create = "cublasLtCreate": fn(*mut Handle);
    destroy = "cublasLtDestroy": fn(Handle);
    product = "cublasLtMatmulDescCreate": fn(*mut Layout, c_int, c_int);
    product_set = "cublasLtMatmulDescSetAttribute": fn(Layout, c_int, *const c_void, usize);
    product_end = "cublasLtMatmulDescDestroy": fn(Layout);
    matrix = "cublasLtMatrixLayoutCreate": fn(*mut Layout, c_int, u64, u64, i64);
    matrix_set = "cublasLtMatrixLayoutSetAttribute": fn(Layout, c_int, *const c_void, usize);
    matrix_end = "cublasLtMatrixLayoutDestroy": fn(Layout);
    preference = "cublasLtMatmulPreferenceCreate": fn(*mut Layout);
    preference_set = "cublasLtMatmulPreferenceSetAttribute":
        fn(Layout, c_int, *const c_void, usize);
    preference_end = "cublasLtMatmulPreferenceDestroy": fn(Layout);
    choose = "cublasLtMatmulAlgoGetHeuristic": fn(Handle, Layout, Layout, Layout, Layout, Layout,
        Layout, c_int, *mut Heuristic, *mut c_int);
    multiply = "cublasLtMatmul": fn(Handle, Layout, *const c_void, CUdeviceptr, Layout,
        CUdeviceptr, Layout, *const c_void, CUdeviceptr, Layout, CUdeviceptr, Layout,
        *const Algorithm, CUdeviceptr, usize, CUstream);
    version = "cublasLtGetVersion": fn();
}

// Constants of `cublasLt.h` and `cublas_api.h`.
const TRANSPOSE_A: c_int = 3;
const TRANSPOSE_B: c_int = 4;
const TRANSPOSED: c_int = 1;
const EPILOGUE: c_int = 7;
const EPILOGUE_BIAS: c_int = 4;
const BIAS_POINTER: c_int = 8;
const BATCH_COUNT: c_int = 5;
const BATCH_OFFSET: c_int = 6;
const MOST_WORKSPACE: c_int = 1;
const LEAST_ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
const IN_SINGLE: c_int = 68;
const IN_DOUBLE: c_int = 70;

/// Bytes that products may work in; more make Hopper's no faster (cuBLAS, "cublasSetWorkspace").
const WORKSPACE: usize = 32 << 20;

/// The largest alignment that makes a difference.
const ALIGNMENT: u64 = 256;

/// The library, if it is installed.
pub(crate) struct Blas(Api);

/// The library of this machine.
///
/// # Errors
/// Fails if the library is not installed.
pub(crate) fn blas() -> Result<&'static Blas, &'static str> {
    static BLAS: LazyLock<Result<Blas, String>> = LazyLock::new(|| Api::load().map(Blas));
    BLAS.as_ref().map_err(String::as_str)
}

impl Blas {
    /// Its version, as major, minor and patch number.
    pub(crate) fn version(&self) -> String {
        // SAFETY: it has no arguments.
        let version = unsafe { (self.0.version)() };
        format!(
            "{}.{}.{}",
            version / 10000,
            version / 100 % 100,
            version % 100
        )
    }
}

/// `cudaDataType` of elements, and of the scale of their products with `cublasComputeType_t`.
fn types(dtype: DType) -> Option<(c_int, c_int, c_int)> {
    let (single, double) = (0, 1);
    Some(match dtype {
        DType::F32 => (single, single, IN_SINGLE),
        DType::F64 => (double, double, IN_DOUBLE),
        DType::F16 => (2, single, IN_SINGLE),
        DType::BF16 => (14, single, IN_SINGLE),
        DType::Complex64 => (4, 4, IN_SINGLE),
        DType::Complex128 => (5, 5, IN_DOUBLE),
        _ => return None,
    })
}

/// State that the library made once: descriptions of the product and its matrices.
struct Plan {
    product: Object,
    a: Object,
    b: Object,
    y: Object,
    algorithm: Algorithm,
    is_double: bool,
}

/// One of the library's objects, with the function that ends it.
struct Object(Layout, unsafe extern "C" fn(Layout) -> c_int);

// SAFETY: they are used under a lock.
unsafe impl Send for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: it is valid, and not used again.
        unsafe { (self.1)(self.0) };
    }
}

/// The products of a device.
#[derive(Default)]
pub(crate) struct Products(Mutex<Option<Opened>>);

struct Opened {
    handle: Object,
    workspace: Buffer,
    /// By the product and the alignment of its operands.
    plans: HashMap<(Gemm, [u64; 3]), Plan>,
}

type Outcome<T> = Result<T, String>;

fn check(call: &str, status: c_int) -> Outcome<()> {
    match status {
        0 => Ok(()),
        _ => Err(format!("{call}: status {status}")),
    }
}

impl Products {
    /// Queues a product of matrices at these addresses.
    ///
    /// # Safety
    /// They have the bytes that the product says.
    pub(crate) unsafe fn queue(
        &self,
        context: &Arc<Context>,
        gemm: &Gemm,
        operands: &[CUdeviceptr],
    ) -> Result<(), DeviceError> {
        let unsupported = |message| context.error(FailureClass::Unsupported, message);
        let blas = blas().map_err(|why| unsupported(why.to_owned()))?;
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match &mut *opened {
            Some(opened) => opened,
            none => none.insert(Opened::new(blas, context)?),
        };
        context.enter().map_err(|failure| context.failed(failure))?;
        let queued = opened.queue(&blas.0, context.stream(), gemm, operands);
        queued.map_err(|why| unsupported(format!("{why}, of {gemm:?}")))
    }
}

impl Opened {
    fn new(blas: &Blas, context: &Arc<Context>) -> Result<Self, DeviceError> {
        context.enter().map_err(|failure| context.failed(failure))?;
        let mut handle = ptr::null_mut();
        // SAFETY: there is room for the handle.
        let created = check("cublasLtCreate", unsafe {
            (blas.0.create)(&raw mut handle)
        });
        created.map_err(|why| context.error(FailureClass::Unsupported, why))?;
        Ok(Self {
            handle: Object(handle, blas.0.destroy),
            workspace: Buffer::new(context, WORKSPACE).map_err(|f| context.failed(f))?,
            plans: HashMap::new(),
        })
    }

    fn queue(
        &mut self,
        api: &Api,
        stream: CUstream,
        gemm: &Gemm,
        operands: &[CUdeviceptr],
    ) -> Outcome<()> {
        let &[a, b, y, ref bias @ ..] = operands else {
            return Err("a product without its operands".to_owned());
        };
        let alignments = [a, b, y].map(|at| ALIGNMENT.min(1 << at.trailing_zeros().min(8)));
        let plan = match self.plans.entry((*gemm, alignments)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Plan::new(api, self.handle.0, gemm, alignments)?),
        };
        // A complex scale is two numbers. The second one is its imaginary part.
        let (one, zero) = ([1f32, 0.0], [0f32, 0.0]);
        let (one_double, zero_double) = ([1f64, 0.0], [0f64, 0.0]);
        let (one, zero): (*const c_void, *const c_void) = match plan.is_double {
            true => (one_double.as_ptr().cast(), zero_double.as_ptr().cast()),
            false => (one.as_ptr().cast(), zero.as_ptr().cast()),
        };
        if let Some(bias) = bias.first() {
            set(api.product_set, &plan.product, BIAS_POINTER, bias)?;
        }
        // SAFETY: the descriptions are valid and fit the matrices, as the caller promises.
        let status = unsafe {
            (api.multiply)(
                self.handle.0,
                plan.product.0,
                one,
                b,
                plan.b.0,
                a,
                plan.a.0,
                zero,
                y,
                plan.y.0,
                y,
                plan.y.0,
                &raw const plan.algorithm,
                self.workspace.address(),
                WORKSPACE,
                stream,
            )
        };
        check("cublasLtMatmul", status)
    }
}

impl Plan {
    fn new(api: &Api, handle: Handle, gemm: &Gemm, alignments: [u64; 3]) -> Outcome<Self> {
        let Gemm { m, n, k, .. } = *gemm;
        let no_type = || format!("no product of {}", gemm.a.dtype.name());
        let (_, scale, arithmetic) = types(gemm.a.dtype).ok_or_else(no_type)?;
        let mut product = ptr::null_mut();
        // SAFETY: there is room for the description.
        let status = unsafe { (api.product)(&raw mut product, arithmetic, scale) };
        check("cublasLtMatmulDescCreate", status)?;
        let product = Object(product, api.product_end);
        for (attribute, matrix) in [(TRANSPOSE_A, gemm.b), (TRANSPOSE_B, gemm.a)] {
            if matrix.transposed {
                set(api.product_set, &product, attribute, &TRANSPOSED)?;
            }
        }
        if gemm.has_bias {
            set(api.product_set, &product, EPILOGUE, &EPILOGUE_BIAS)?;
        }
        let a = description(api, gemm, gemm.a, [m, k])?;
        let b = description(api, gemm, gemm.b, [k, n])?;
        let y = description(api, gemm, gemm.y, [m, n])?;

        let mut preference = ptr::null_mut();
        // SAFETY: there is room for the description.
        let status = unsafe { (api.preference)(&raw mut preference) };
        check("cublasLtMatmulPreferenceCreate", status)?;
        let preference = Object(preference, api.preference_end);
        set(api.preference_set, &preference, MOST_WORKSPACE, &WORKSPACE)?;
        let [align_a, align_b, align_y] = alignments;
        let in_order = [align_b, align_a, align_y, align_y];
        for (attribute, alignment) in LEAST_ALIGNMENTS.into_iter().zip(in_order) {
            set(
                api.preference_set,
                &preference,
                attribute,
                &(alignment as u32),
            )?;
        }
        let mut best = Heuristic {
            algorithm: [0; 8],
            workspace: 0,
            state: 0,
            waves: 0.0,
            reserved: [0; 4],
        };
        let mut found = 0;
        // SAFETY: all descriptions are valid, and there is room for one result.
        let status = unsafe {
            (api.choose)(
                handle,
                product.0,
                b.0,
                a.0,
                y.0,
                y.0,
                preference.0,
                1,
                &raw mut best,
                &raw mut found,
            )
        };
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        check("cublasLtMatmulAlgoGetHeuristic", best.state)?;
        match found {
            0 => Err("cublasLt has no algorithm".to_owned()),
            _ => Ok(Self {
                product,
                a,
                b,
                y,
                algorithm: best.algorithm,
                is_double: arithmetic == IN_DOUBLE,
            }),
        }
    }
}

/// The description of a matrix of `rows` and `columns`, column by column: that of its transpose.
fn description(
    api: &Api,
    gemm: &Gemm,
    matrix: Matrix,
    [rows, columns]: [usize; 2],
) -> Outcome<Object> {
    let no_type = || format!("no product of {}", matrix.dtype.name());
    let (dtype, ..) = types(matrix.dtype).ok_or_else(no_type)?;
    let [rows, columns] = match matrix.transposed {
        true => [rows, columns],
        false => [columns, rows],
    };
    let mut layout = ptr::null_mut();
    let stride = matrix.stride as i64;
    // SAFETY: there is room for the description.
    let status =
        unsafe { (api.matrix)(&raw mut layout, dtype, rows as u64, columns as u64, stride) };
    check("cublasLtMatrixLayoutCreate", status)?;
    let layout = Object(layout, api.matrix_end);
    if gemm.batch > 1 {
        set(api.matrix_set, &layout, BATCH_COUNT, &(gemm.batch as i32))?;
        set(
            api.matrix_set,
            &layout,
            BATCH_OFFSET,
            &(matrix.batch_stride as i64),
        )?;
    }
    Ok(layout)
}

type Set = unsafe extern "C" fn(Layout, c_int, *const c_void, usize) -> c_int;

fn set<T>(call: Set, object: &Object, attribute: c_int, value: &T) -> Outcome<()> {
    // SAFETY: the object is valid, and the value has the attribute's type.
    let status = unsafe {
        call(
            object.0,
            attribute,
            ptr::from_ref(value).cast(),
            size_of::<T>(),
        )
    };
    check("setting an attribute of cublasLt", status)
}
