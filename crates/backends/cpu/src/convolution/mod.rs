//! Convolutions in single precision, and their two gradients.
//!
//! Images are copied with their padding, and by phases: the rows that lie `stride` apart together, and so the
//! columns. Elements that windows beside each other have in one place are neighbours then, also where one row of
//! windows ends and the next begins. So an element of the windows is a slice, which starts at the element's offset,
//! and no matrix of windows has to be made ([`Convolution`]). Where images are so small that most lanes would be
//! between the rows, the windows of several are gathered as columns.
//!
//! The gradient of the image is such a convolution for each phase of the result ([`Phases::of_spread`]). That of the
//! weights multiplies each element of the windows with the channels of the result's gradient, which are made
//! neighbours ([`WeightGradient`]).

mod images;
mod phases;
#[cfg(test)]
mod tests;
mod tiles;
mod weight_gradient;

pub(crate) use images::{Convolution, Weights};
pub(crate) use phases::Phases;
pub(crate) use weight_gradient::WeightGradient;
