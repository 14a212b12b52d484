//! User-defined kernels for user-defined operations.

use std::borrow::Cow;

/// A language that a device compiles kernels in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KernelLanguage {
    /// OpenCL C 1.2.
    OpenCl,
    /// Metal Shading Language 3.0.
    Metal,
    /// CUDA C++ 17, as NVRTC compiles it.
    Cuda,
}

/// The text of a kernel, and its launch.
///
/// The text has functions (`FUNCTION float f(float x) { … }`) and then, between `KERNEL_BEGIN` and
/// `KERNEL_END`, the code of a work-item. It uses the common subset of the three languages, or one
/// of them. There are
///
/// | name | what it is |
/// | --- | --- |
/// | `x0`, `x1` … | pointers to the operands' elements, row-major without gaps, constant |
/// | `y0`, `y1` … | pointers to the results' |
/// | `X0`, `Y0` … | their dtypes |
/// | `LOAD(X0, x0, i)`, `STORE(Y0, y0, i, v)` | element `i`; 16-bit floats are `float` in between |
/// | `COMPUTE(X0)` | the type that values are loaded as |
/// | `ITEM` | the index of the work-item, and `p.items` of [`CustomKernel::for_each`] |
/// | `GROUP_ID(d)`, `LANE`, `GROUP` | index of the group in dimension 0 to 2, of the work-item in it, work-items of a group |
/// | `LOCAL_ARRAY(type, name, length)`, `BARRIER` | memory of a group, waiting for it; the array is declared outermost in the body |
/// | `p.name`, macros | what [`CustomKernel::word`] and [`CustomKernel::define`] give |
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CustomKernel {
    /// The text.
    pub text: Cow<'static, str>,
    /// Work-items of a group; every device supports at least 256.
    pub group: u32,
    /// Groups in each dimension.
    pub groups: [usize; 3],
    /// Macros for its compilation.
    pub definitions: Vec<(&'static str, String)>,
    /// Parameters of type `uint`.
    pub words: Vec<(&'static str, u32)>,
}

impl CustomKernel {
    /// Work-items of a group of [`CustomKernel::for_each`].
    const GROUP: u32 = 64;

    /// One work-item for each of `items`. The last group may have more: the kernel's work is inside
    /// `if (ITEM < p.items) { … }`.
    pub fn for_each(text: impl Into<Cow<'static, str>>, items: usize) -> Self {
        let groups = items.div_ceil(Self::GROUP as usize);
        // Tensors have fewer than 2³² elements.
        Self::new(text, Self::GROUP, [groups, 1, 1]).word("items", items as u32)
    }

    /// A kernel of `groups` groups in each dimension, each of `group` work-items.
    pub fn new(text: impl Into<Cow<'static, str>>, group: u32, groups: [usize; 3]) -> Self {
        Self {
            text: text.into(),
            group,
            groups,
            definitions: Vec::new(),
            words: Vec::new(),
        }
    }

    /// Defines a macro.
    pub fn define(mut self, name: &'static str, value: impl ToString) -> Self {
        self.definitions.push((name, value.to_string()));
        self
    }

    /// Adds a parameter.
    pub fn word(mut self, name: &'static str, value: u32) -> Self {
        self.words.push((name, value));
        self
    }
}
