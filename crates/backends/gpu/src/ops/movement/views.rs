//! Operands seen as views: where kernels find elements.

use rustorch_ir::{DType, Layout};
use rustorch_runtime::Place;

use crate::driver::Limits;
use crate::kernel::{Kernel, Scratch};

/// Memory that a kernel is given.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Memory<'a> {
    /// An operand or result.
    Place(&'a Place),
    /// Scratch memory of elements of a dtype.
    Scratch(DType, Scratch),
}

impl Memory<'_> {
    pub(in crate::ops) fn dtype(self) -> DType {
        match self {
            Self::Place(place) => place.ty.dtype,
            Self::Scratch(dtype, _) => dtype,
        }
    }

    /// Elements ahead of it, from a granule on.
    pub(in crate::ops) fn offset(self) -> usize {
        match self {
            Self::Place(place) => place.layout.offset,
            Self::Scratch(..) => 0,
        }
    }

    pub(in crate::ops) fn read(self, kernel: &mut Kernel, name: &str) {
        match self {
            Self::Place(place) => kernel.read(name, place),
            Self::Scratch(dtype, scratch) => kernel.scratch(name, dtype, scratch, false),
        }
    }

    pub(in crate::ops) fn write(self, kernel: &mut Kernel, name: &str) {
        match self {
            Self::Place(place) => kernel.write(name, place),
            Self::Scratch(dtype, scratch) => kernel.scratch(name, dtype, scratch, true),
        }
    }
}

/// Least length of arrays of dimensions, so that few ranks need another source.
const RANK: usize = 6;

/// A parameter that has a number for each dimension.
pub(in crate::ops) fn dimensions(kernel: &mut Kernel, name: &str, values: &[usize]) {
    let mut values = values.to_vec();
    values.resize(values.len().max(RANK), 0);
    kernel.words(name, &values);
}

/// The parameters for `ADD_OFFSET` to find the elements of views of one shape: `{name}_rank`,
/// `{name}_shape`, and `{view}_strides` for each. Returns the rank, which is at least 1 and
/// as small as can be.
pub(in crate::ops) fn walk(kernel: &mut Kernel, name: &str, views: &[(&str, &Layout)]) -> usize {
    let layouts: Vec<&Layout> = views.iter().map(|(_, layout)| *layout).collect();
    let collapsed = Layout::collapse_all(&layouts);
    let shape = collapsed.first().map_or(&[][..], |layout| &layout.shape);
    let rank = shape.len().max(1);
    let padded = |values: &[usize], with: usize| {
        let mut values = values.to_vec();
        values.resize(rank, with);
        values
    };
    kernel.word(&format!("{name}_rank"), rank);
    dimensions(kernel, &format!("{name}_shape"), &padded(shape, 1));
    for ((view, _), layout) in views.iter().zip(&collapsed) {
        dimensions(
            kernel,
            &format!("{view}_strides"),
            &padded(&layout.strides, 0),
        );
    }
    rank
}

/// The macro `name` for the rank that [`walk`] made `parameter`: 1 has its own kernel.
pub(in crate::ops) fn define_rank(kernel: &mut Kernel, name: &str, rank: usize, parameter: &str) {
    match rank {
        1 => kernel.define(name, 1),
        _ => kernel.define(name, format!("p.{parameter}")),
    }
}

/// The dimensions `dims` of a view.
pub(in crate::ops) fn dims(layout: &Layout, dims: impl Iterator<Item = usize>) -> Layout {
    layout.permute(&dims.collect::<Vec<_>>())
}

/// All dimensions of a view but one, and that one.
pub(in crate::ops) fn split(layout: &Layout, dim: usize) -> (Layout, Layout) {
    let others = dims(layout, (0..layout.rank()).filter(|&d| d != dim));
    (others, dims(layout, [dim].into_iter()))
}

/// Step to the nearest other element; `None` if there is none.
pub(in crate::ops) fn nearest(layout: &Layout) -> Option<usize> {
    let dims = layout.shape.iter().zip(&layout.strides);
    dims.filter(|&(&size, _)| size > 1).map(|(_, &s)| s).min()
}

/// Work-items of a group, where each is by itself.
const GROUP: u32 = 256;

/// The kernel `name` of `text` with a work-item for each of `p.count` numbers.
pub(in crate::ops) fn for_each(name: &'static str, text: &'static str, count: usize) -> Kernel {
    let mut kernel = Kernel::new(name, text, GROUP);
    kernel.word("count", count);
    kernel.groups(count.div_ceil(GROUP as usize), 1, 1)
}

/// Elements of a launch from which on work-items move several.
const MANY: usize = 1 << 18;

/// Elements of such a work-item: as many loads are under way at a time.
const EACH: usize = 4;

/// The kernel `name` of `text` with work-items for `p.count` numbers, `EACH` of them for each,
/// GROUP apart; and that `times`.
pub(in crate::ops) fn for_several(
    name: &'static str,
    text: &'static str,
    count: usize,
    times: usize,
    limits: &Limits,
) -> Kernel {
    let each = match count >= MANY && !limits.is_processor {
        true => EACH,
        false => 1,
    };
    let mut kernel = Kernel::new(name, text, GROUP);
    kernel.define("EACH", each);
    kernel.word("count", count);
    kernel.groups(count.div_ceil(each * GROUP as usize), times, 1)
}

/// Number of neighbouring elements of `size` bytes that can be moved as one of 16 bytes, or of
/// fewer. They have to be neighbours, and begin at a multiple, in all `views` of one shape.
/// `others` do not step along the last dimension of that shape. Steps of `multiples` are possible,
/// too.
pub(in crate::ops) fn vector(
    size: usize,
    views: &[Layout],
    others: &[Layout],
    multiples: &[usize],
) -> usize {
    let last = |layout: &Layout| layout.strides.last().copied();
    let are_neighbours = views.iter().all(|view| last(view) == Some(1))
        && others.iter().all(|view| last(view) == Some(0));
    if !are_neighbours {
        return 1;
    }
    let sizes = views.iter().flat_map(|view| {
        let steps = &view.strides[..view.rank() - 1];
        let size = view.shape.last().copied();
        steps.iter().copied().chain(size).chain([view.offset])
    });
    let all: Vec<usize> = sizes.chain(multiples.iter().copied()).collect();
    let mut vector = WIDEST / size;
    while vector > 1 && !all.iter().all(|n| n.is_multiple_of(vector)) {
        vector /= 2;
    }
    vector.max(1)
}

/// Dtypes whose elements `vectors.h` knows.
pub(in crate::ops) const PARTS: [DType; 12] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U8,
    DType::U32,
    DType::Bool,
    DType::Complex64,
];

/// Bytes of the widest elements.
pub(in crate::ops) const WIDEST: usize = 16;

/// The place of elements that are moved only, `vector` of them as one; see [`vector()`]. Its layout
/// is `view` of them.
pub(in crate::ops) fn widened(place: &Place, view: &Layout, vector: usize) -> Place {
    let mut place = place.clone();
    place.layout = view.clone();
    if vector > 1 {
        let layout = &mut place.layout;
        let last = layout.rank() - 1;
        layout.shape = layout
            .shape
            .clone()
            .with_dim(last, layout.shape[last] / vector);
        layout.strides[..last]
            .iter_mut()
            .for_each(|step| *step /= vector);
        layout.offset /= vector;
        place.ty.dtype = match place.ty.dtype.size().map(|size| size * vector) {
            Some(2) => DType::I16,
            Some(4) => DType::U32,
            Some(8) => DType::I64,
            _ => DType::Complex128,
        };
    }
    place
}

/// The place of elements that are moved only: seen as numbers of their size, so that few
/// kernels serve all dtypes.
pub(in crate::ops) fn words(place: &Place) -> Place {
    let mut place = place.clone();
    place.ty.dtype = match place.ty.dtype.size() {
        Some(1) => DType::U8,
        Some(2) => DType::I16,
        Some(4) => DType::U32,
        Some(8) => DType::I64,
        _ => place.ty.dtype,
    };
    place
}
