//! Convolutions in single precision, and their two gradients.
//!
//! Images are copied with their padding, and by phases: the rows that lie `stride` apart together, and so the
//! columns. Adjacent windows have the elements of one place as neighbours then. The end of one row of windows and
//! the beginning of the next are adjacent, too. So an element of the windows is a slice, which starts at the
//! element's offset. No matrix of windows has to be made ([`Convolution`]). In small images most lanes would be
//! between the rows. There the windows of several images are gathered as columns.
//!
//! The gradient of the image is such a convolution for each phase of the result ([`Phases::of_spread`]). The
//! gradient of the weights multiplies each element of the windows with the channels of the result's gradient.
//! These are made neighbours ([`WeightGradient`]).

mod images;
mod phases;
#[cfg(test)]
mod tests;
mod tiles;
mod weight_gradient;

pub(crate) use images::{Convolution, Weights};
pub(crate) use phases::Phases;
pub(crate) use weight_gradient::WeightGradient;
