//! Training steps that are recorded once and run often.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `step.rs` | [`TrainStep`]: the loss, its gradients, clipping and the update as one program |
//! | `program.rs` | such a program, with what is another one in each run |
//! | `memory.rs` | how much memory a step takes, and what would fit |
//! | `anomaly.rs` | where numbers stop being finite |
//! | `ranks.rs`, `data_parallel.rs` | batches divided among ranks; a trainer of them |
//! | `state.rs`, `checkpoints.rs` | what training goes on from; files of it, and training that goes on by itself |

mod anomaly;
mod checkpoints;
mod data_parallel;
mod memory;
mod program;
mod ranks;
mod state;
mod step;

pub use checkpoints::{CheckpointError, Checkpoints, Progress, Resumed};
pub use data_parallel::DataParallelTrainer;
pub use memory::StepMemory;
pub use step::TrainStep;
