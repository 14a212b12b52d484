//! Optimisers, schedules of learning rates, averages of weights: `torch.optim`.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `optimizer.rs` | [`Optimizer`]: groups, state, one evaluation for a step; the trait [`Rule`] |
//! | `options.rs` | options by name |
//! | `sgd.rs`, `adam.rs`, `matrices.rs` | the rules |

mod adam;
mod matrices;
mod optimizer;
mod options;
mod sgd;

pub use adam::{
    Adam, AdamOptions, AdamW, AdamWOptions, Adamax, AdamaxOptions, NAdam, NAdamOptions, RAdam,
    RAdamOptions, SparseAdam, SparseAdamOptions,
};
pub use matrices::{Adafactor, AdafactorOptions, AdjustLr, Muon, MuonOptions};
pub use optimizer::{IntoParameters, LearningRates, Optimizer, ParamGroup, Rule, State};
pub use options::{OptionValue, Options};
pub use sgd::{
    ASGD, ASGDOptions, Adadelta, AdadeltaOptions, Adagrad, AdagradOptions, RMSprop, RMSpropOptions,
    Rprop, RpropOptions, SGD, SGDOptions,
};
