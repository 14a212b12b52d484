//! The bundled model: llama.cpp's answers, on every device, and when devices fail.

mod common;
mod f32_hybrid;
mod faults;
mod goldens;
mod layers;
mod queued;
mod selection;
mod soak;
mod zero_copy;
