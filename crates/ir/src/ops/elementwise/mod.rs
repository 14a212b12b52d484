//! Functions of elements.

pub(crate) mod activation;
pub(crate) mod binary;
pub(crate) mod compare;
pub(in crate::ops) mod derivatives;
pub(crate) mod select;
pub(crate) mod ternary;
pub(crate) mod unary;

use super::*;
