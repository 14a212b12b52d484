//! Views, and operations that move elements.

pub(crate) mod as_strided;
pub(crate) mod assign;
pub(crate) mod cast;
pub(crate) mod concat;
pub(crate) mod contiguous;
pub(crate) mod expand;
pub(crate) mod flip;
pub(crate) mod offload;
pub(crate) mod pad;
pub(crate) mod permute;
pub(crate) mod reload;
pub(crate) mod reshape;
pub(crate) mod slice;
pub(crate) mod triangle;
pub(crate) mod update_slice;
pub(crate) mod within;

pub use as_strided::AsStrided;
pub use assign::Assign;
pub use cast::Cast;
pub use concat::Concat;
pub use contiguous::Contiguous;
pub use expand::Expand;
pub use flip::Flip;
pub use offload::Offload;
pub use pad::Pad;
pub use permute::Permute;
pub use reload::Reload;
pub use reshape::Reshape;
pub use slice::Slice;
pub use triangle::Triangle;
pub use update_slice::UpdateSlice;
pub use within::Within;
