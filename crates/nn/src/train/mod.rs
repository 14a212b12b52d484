//! Training steps that are recorded once and run often.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `step.rs` | [`TrainStep`]: the loss, its gradients, clipping and the update as one program |
//! | `program.rs` | such a program, with what is another one in each run |
//! | `memory.rs` | how much memory a step takes, and what would fit |
//! | `anomaly.rs` | where numbers stop being finite |
//! | `state.rs`, `checkpoints.rs` | the state that training continues from; its files, and training that continues by itself |

mod anomaly;
mod checkpoints;
mod memory;
mod program;
mod state;
mod step;

pub use checkpoints::{Checkpoints, Progress, Resumed, TrainError};
pub use memory::StepMemory;
pub use step::TrainStep;
