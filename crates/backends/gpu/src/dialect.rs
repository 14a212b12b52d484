//! The languages that drivers compile, and their differences in spelling.

use std::fmt::Write;

/// The language that a driver compiles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// OpenCL C 1.2.
    OpenCl,
    /// Metal Shading Language 3.0: buffers from 0 on, then the parameter structure, if it has
    /// any words, as a buffer of constants.
    Metal,
    /// CUDA C++ 17, as NVRTC compiles it. Any launch may begin before the one ahead of it has
    /// ended (programmatic dependent launch): kernels wait for that by themselves.
    Cuda,
    /// WebGPU's language. Buffers are arrays of words from binding 0 on, all of them writable, then the parameter
    /// structure. Groups are counted in two dimensions, [`ROW`](Self::ROW) to a row. Kernels have texts of their own.
    Wgsl,
}

/// Beginning of a kernel.
pub(crate) struct Head<'a> {
    pub(crate) name: &'static str,
    pub(crate) pointers: &'a [Pointer<'a>],
    /// The names of its tensor maps, where the language has those.
    pub(crate) maps: &'a [String],
    /// Whether it has parameters besides the pointers.
    pub(crate) has_params: bool,
    /// Work-items of a group.
    pub(crate) group: u32,
    /// Work-items of the groups that registers are shared out for, and how many of those.
    pub(crate) residence: [u32; 2],
    /// Groups of a cluster.
    pub(crate) cluster: u32,
}

/// A kernel's pointer to where an argument begins.
pub(crate) struct Pointer<'a> {
    pub(crate) ty: String,
    pub(crate) name: &'a str,
    /// Its value, from the parameter of this name with an underscore.
    pub(crate) start: String,
}

impl Dialect {
    /// Most groups along the first dimension in [`Dialect::Wgsl`].
    pub const ROW: u32 = 32_768;

    /// The header that spells the portable language.
    const fn header(self) -> &'static str {
        match self {
            Self::OpenCl => include_str!("../kernels/opencl.h"),
            Self::Metal => include_str!("../kernels/metal.h"),
            Self::Cuda => include_str!("../kernels/cuda.h"),
            Self::Wgsl => include_str!("../kernels/wgsl/prelude.wgsl"),
        }
    }

    /// Beginning of every source of a device.
    pub(crate) fn prelude(self, has_f64: bool) -> String {
        if self == Self::Wgsl {
            return self.header().to_owned();
        }
        let (language, common) = (self.header(), include_str!("../kernels/prelude.h"));
        format!("#define HAS_F64 {}\n{language}{common}", u8::from(has_f64))
    }

    /// The address space of buffers.
    pub(crate) const fn global(self) -> &'static str {
        match self {
            Self::OpenCl => "__global",
            Self::Metal => "device",
            Self::Cuda | Self::Wgsl => "",
        }
    }

    /// May a launch begin before the one ahead of it has ended?
    pub(crate) fn starts_early(self) -> bool {
        self == Self::Cuda
    }

    /// The function that exchanges a `uint` of local memory, given by its address, atomically for
    /// another value. `None` if the language has words to be declared for that.
    pub(crate) fn local_exchange(self) -> Option<&'static str> {
        match self {
            Self::OpenCl => Some("atomic_xchg"),
            Self::Metal | Self::Wgsl => None,
            Self::Cuda => Some("atomicExch"),
        }
    }

    /// Returns whether there are SIMD-groups that share values and multiply matrices, which kernels of the language's
    /// own are written for.
    pub(crate) fn has_simd_groups(self) -> bool {
        self == Self::Metal
    }

    /// Appends a kernel's declaration in the portable dialect, up to the brace that opens its body.
    pub(crate) fn begin(self, head: &Head, source: &mut String) {
        match self {
            Self::OpenCl => begin_opencl(head, source),
            Self::Metal => begin_metal(head, source),
            Self::Cuda => begin_cuda(head, source),
            // Texts in WGSL declare their entry points.
            Self::Wgsl => {}
        }
    }
}

fn begin_opencl(head: &Head, source: &mut String) {
    let group = head.group;
    let _ = write!(
        source,
        "__kernel __attribute__((reqd_work_group_size({group}, 1, 1))) void {}(",
        head.name
    );
    for Pointer { ty, name, .. } in head.pointers {
        let _ = write!(source, "{ty} {name}_, ");
    }
    source.push_str("const Params p) {");
}

fn begin_metal(head: &Head, source: &mut String) {
    // The compiler then spends no more registers than so many threads have.
    let group = head.group;
    let _ = write!(
        source,
        "[[max_total_threads_per_threadgroup({group})]] kernel void {}(",
        head.name
    );
    for (at, Pointer { ty, name, .. }) in head.pointers.iter().enumerate() {
        let _ = write!(source, "{ty} {name}_ [[buffer({at})]], ");
    }
    if head.has_params {
        let at = head.pointers.len();
        let _ = write!(source, "constant Params& p [[buffer({at})]], ");
    }
    source.push_str(
        "uint3 group_id_ [[threadgroup_position_in_grid]], \
             uint lane_ [[thread_index_in_threadgroup]], \
             uint simd_lane_ [[thread_index_in_simdgroup]], \
             uint simd_group_ [[simdgroup_index_in_threadgroup]]) {",
    );
}

fn begin_cuda(head: &Head, source: &mut String) {
    let [group, groups] = head.residence;
    let _ = write!(
        source,
        "extern \"C\" __global__ void __launch_bounds__({group}, {groups}) ",
    );
    if head.cluster > 1 {
        let _ = write!(source, "__cluster_dims__({}, 1, 1) ", head.cluster);
    }
    let _ = write!(source, "{}(", head.name);
    for (at, Pointer { ty, name, .. }) in head.pointers.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(source, "{comma}{ty} {name}_");
    }
    for name in head.maps {
        let _ = write!(source, ", const __grid_constant__ TensorMap {name}");
    }
    if head.has_params {
        let comma = if head.pointers.is_empty() { "" } else { ", " };
        let _ = write!(source, "{comma}const __grid_constant__ Params p");
    }
    source.push_str(") {");
}
