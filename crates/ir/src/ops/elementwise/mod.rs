//! Functions of elements.

pub(crate) mod activation;
pub(crate) mod binary;
pub(crate) mod compare;
pub(in crate::ops) mod derivatives;
pub(crate) mod select;
pub(crate) mod ternary;
pub(crate) mod unary;

pub use activation::{Activation, ActivationKind};
pub use binary::{Binary, BinaryOp};
pub use compare::{Compare, CompareOp};
pub use select::Where;
pub use ternary::{Ternary, TernaryOp};
pub use unary::{Unary, UnaryOp};
