//! Optimisers, learning rate schedules, weight averages: `torch.optim`.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `optimizer.rs` | [`Optimizer`]: groups, state, one evaluation for a step; the trait [`Rule`] |
//! | `options.rs` | options by name |
//! | `sgd.rs`, `adam.rs`, `matrices.rs` | the rules |
//! | `lbfgs.rs` | L-BFGS, which evaluates its objective |
//! | [`lr_scheduler`], [`swa_utils`] | schedules of learning rates, averages of weights |

mod adam;
mod lbfgs;
pub mod lr_scheduler;
mod matrices;
mod optimizer;
mod options;
mod sgd;
pub mod swa_utils;

pub use adam::{
    Adam, AdamOptions, AdamW, AdamWOptions, Adamax, AdamaxOptions, NAdam, NAdamOptions, RAdam,
    RAdamOptions, SparseAdam, SparseAdamOptions,
};
pub use lbfgs::{LBFGS, LBFGSOptions};
pub use matrices::{Adafactor, AdafactorOptions, AdjustLr, Muon, MuonOptions};
pub use optimizer::{IntoParameters, LearningRates, Optimizer, ParamGroup, Rule, Scheduled, State};
pub(crate) use optimizer::{OptimizerId, RecordedUpdate};
pub use options::{OptionValue, Options};
pub use sgd::{
    ASGD, ASGDOptions, Adadelta, AdadeltaOptions, Adagrad, AdagradOptions, RMSprop, RMSpropOptions,
    Rprop, RpropOptions, SGD, SGDOptions,
};
