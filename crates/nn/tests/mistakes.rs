//! Mistakes that users make with modules, losses, optimisers and files: each is one line that says where it is, what was
//! expected, and what was got. PyTorch 2.15 refuses all but those of the last test.

extern crate rustorch_nn as rustorch;

use std::error::Error;

use rustorch::amp::GradScaler;
use rustorch::nn::{self, Forward, Module, RNNOptions};
use rustorch::optim::lr_scheduler::{
    ChainedScheduler, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, LinearLR,
    LrScheduler, OneCycleLR, ReduceLROnPlateau, SequentialLR, StepLR,
};
use rustorch::optim::swa_utils::{AveragedModel, Averaging};
use rustorch::optim::{
    Adadelta, AdadeltaOptions, Adagrad, AdagradOptions, Adam, AdamOptions, AdamW, AdamWOptions,
    LBFGS, LBFGSOptions, Muon, MuonOptions, NAdam, NAdamOptions, RMSprop, RMSpropOptions, Rprop,
    RpropOptions, SGD, SGDOptions,
};
use rustorch::train::TrainStep;
use rustorch_files as files;
use rustorch_ir::DType;
use rustorch_tensor::nn::{
    AvgPoolOptions, ConvOptions, ConvPadding, ConvTransposeOptions, MaxPoolOptions,
};
use rustorch_tensor::{RusTorchResult, Tensor, no_grad, tensor};
use rustorch_testing::warnings;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn zeros<const N: usize>(shape: [usize; N]) -> RusTorchResult<Tensor> {
    Tensor::zeros(shape, DType::F32)
}

fn ids<const N: usize>(shape: [usize; N]) -> RusTorchResult<Tensor> {
    Tensor::zeros(shape, DType::I64)
}

/// A result of a call, once it is computed.
trait Computed {
    fn computed(self) -> Outcome;
}

impl Computed for Tensor {
    fn computed(self) -> Outcome {
        self.eval()?;
        Ok(())
    }
}

impl<A: Computed, B> Computed for (A, B) {
    fn computed(self) -> Outcome {
        self.0.computed()
    }
}

macro_rules! computed {
    ($($Type:ty),*) => {
        $(impl Computed for $Type {
            fn computed(self) -> Outcome {
                Ok(())
            }
        })*
    };
}

computed!((), f64, bool, i64, nn::Unmatched, files::Tensors);

/// A mistake's outcome, and how its error ends.
type Mistake = (Outcome, &'static str);

/// Mistakes, with how their errors end.
macro_rules! mistakes {
    ($($call:expr => $expected:literal;)*) => {
        [$(((|| Computed::computed($call?))(), $expected)),*]
    };
}

/// Fails for each mistake that is not refused as is expected, in one line that names `place` first.
fn check(place: &str, mistakes: impl IntoIterator<Item = Mistake>) {
    let mut wrong = Vec::new();
    for (outcome, expected) in mistakes {
        let error = match outcome {
            Ok(()) => "no error".to_owned(),
            Err(error) => error.to_string(),
        };
        let fits = error.ends_with(expected) && error.contains(place) && !error.contains('\n');
        if !fits || expected.is_empty() {
            wrong.push(format!("{error}\n    expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn of_layers() -> Outcome {
    let x = zeros([2, 3])?;
    let linear = nn::Linear::new(2, 4)?;
    let conv = nn::Conv2d::new(3, 4, 3, ConvOptions::default())?;
    let lstm = nn::LSTM::new(3, 4, RNNOptions::default())?;
    let attention = nn::MultiheadAttention::new(4, 2, Default::default())?;
    let (table, bag) = (nn::Embedding::new(4, 2)?, nn::EmbeddingBag::new(4, 2)?);
    check(
        file!(),
        mistakes! {
            linear.forward(&x) => "linear: expected x [.., k] and w [n, k], got f32[2, 3] and f32[4, 2]";
            linear.forward(&Tensor::zeros([2, 2], DType::F64)?) => "linear: expected operands of one dtype, got f64[2, 2] and f32[4]";
            linear.forward(&ids([2, 2])?) => "matmul: expected operands of one dtype, got i64[2, 2] and f32[2, 4]";
            linear.forward(&tensor![1.0].sum_all()?) => "linear: expected x [.., k] and w [n, k], got f32[] and f32[4, 2]";
            nn::sequential![nn::Linear::new(3, 5)?, nn::Linear::new(4, 1)?].forward(&x) => "linear: expected x [.., k] and w [n, k], got f32[2, 5] and f32[1, 4]";
            nn::Bilinear::new(3, 2, 1)?.forward(&x, &x) => "bilinear: expected x [.., k], y [.., l] and a weight [n, k, l], got f32[2, 3], f32[2, 3] and f32[1, 3, 2]";
            conv.forward(&zeros([1, 1, 8, 8])?) => "conv2d: expected channels of x = weight's · groups, got f32[1, 1, 8, 8] and f32[4, 3, 3, 3] in 1 groups";
            conv.forward(&zeros([3, 8])?) => "conv2d: expected [n, c, ..] or [c, ..] with 2 dimensions after the channels, got f32[3, 8]";
            conv.forward(&zeros([1, 3, 2, 8])?) => "conv2d: expected a window that fits the padded input, stride and dilation > 0, got f32[1, 3, 2, 8] and f32[4, 3, 3, 3] in 1 groups, Conv2d { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }";
            conv.forward(&Tensor::zeros([1, 3, 8, 8], DType::U8)?) => "conv2d: expected operands of one dtype, got u8[1, 3, 8, 8] and f32[4, 3, 3, 3]";
            nn::Conv1d::new(3, 4, 3, ConvOptions::default())?.forward(&zeros([1, 3, 8, 8])?) => "conv1d: expected [n, c, ..] or [c, ..] with 1 dimensions after the channels, got f32[1, 3, 8, 8]";
            nn::Conv2d::new(3, 4, 3, ConvOptions::default().groups(2)) .map(drop) => "Conv2d: expected channels that the number of groups divides, got [3, 4] in 2 groups";
            nn::ConvTranspose2d::new(3, 4, 3, ConvTransposeOptions::default())?.forward(&zeros([1, 4, 8, 8])?) => "conv_transpose2d: expected a weight [c, o / groups, ..] for x [n, c, ..], got f32[3, 4, 3, 3]";
            nn::BatchNorm1d::new(4)?.forward(&x) => "batch_norm: expected a float for each of 3 channels, got f32[4]";
            nn::BatchNorm1d::new(3)?.forward(&zeros([1, 3])?) => "batch_norm: expected more than one value for each channel in training, got f32[1, 3]";
            nn::BatchNorm2d::new(3)?.forward(&zeros([2, 3, 4])?) => "BatchNorm2d: expected a tensor [n, c, h, w], got [2, 3, 4]";
            nn::InstanceNorm2d::new(3)?.forward(&zeros([2, 3, 1, 1])?) => "instance_norm: expected more than one value in each channel, got f32[2, 3, 1, 1]";
            nn::LayerNorm::new(4)?.forward(&x) => "layer_norm: expected a tensor [.., [4]], got f32[2, 3]";
            nn::RMSNorm::new(4)?.forward(&x) => "rms_norm: expected a tensor [.., [4]], got f32[2, 3]";
            nn::GroupNorm::new(2, 3).map(drop) => "GroupNorm: expected channels that the number of groups divides, got 3 channels in 2 groups";
            nn::GroupNorm::new(2, 4)?.forward(&zeros([2, 6, 2])?) => "group_norm: expected a float for each of 6 channels, got f32[4]";
            table.forward(&tensor![0, 4]) => "cpu: invalid argument: id 4 at position 1 is outside a table of 4 rows";
            table.forward(&tensor![-1]) => "cpu: invalid argument: id -1 at position 0 is outside a table of 4 rows";
            table.forward(&tensor![1.0]) => "embedding: expected an index tensor of i64 or i32, got f32[]";
            bag.forward(&ids([3])?, None, None) => "embedding_bag: expected ids [bags, n], or ids [n] and offsets, got i64[3]";
            bag.forward(&ids([2, 3])?, Some(&ids([2])?), None) => "embedding_bag: expected ids [bags, n], or ids [n] and offsets, got i64[2, 3]";
            lstm.forward(&zeros([5, 2, 4])?, None) => "LSTM: expected 3 features, got [5, 2, 4]";
            lstm.forward(&zeros([5, 2, 3])?, Some((&zeros([1, 3, 4])?, &zeros([1, 2, 4])?))) => "LSTM: expected states [1, 2, 4], got [1, 3, 4]";
            lstm.forward(&zeros([3])?, None) => "LSTM: expected a tensor [time, batch, features] or [time, features], got [3]";
            nn::GRUCell::new(3, 4)?.forward(&zeros([2, 2])?, None) => "linear: expected x [.., k] and w [n, k], got f32[2, 2] and f32[12, 3]";
            nn::LSTM::new(3, 0, RNNOptions::default()).map(drop) => "LSTM: expected a hidden_size above 0, got 0";
            nn::MultiheadAttention::new(4, 3, Default::default()).map(drop) => "MultiheadAttention: expected heads that divide 4, got 3";
            attention.forward(&zeros([5, 1, 3])?, &zeros([5, 1, 3])?, &zeros([5, 1, 3])?, Default::default()) => "MultiheadAttention: expected queries of 4 features, got [5, 1, 3]";
            nn::Dropout::new(1.5).map(drop) => "Dropout: expected a probability of 0 to 1, got 1.5";
            nn::MaxPool2d::new(4, MaxPoolOptions::default()).forward(&zeros([1, 1, 3, 3])?) => "max_pool2d: expected a window that fits, kernel, stride and dilation > 0, padding of at most half the window, got f32[1, 1, 3, 3], kernel [4, 4], stride [4, 4], padding [0, 0], dilation [1, 1]";
            nn::MaxPool2d::new(2, MaxPoolOptions::default().padding(2)).forward(&zeros([1, 1, 8, 8])?) => "max_pool2d: expected a window that fits, kernel, stride and dilation > 0, padding of at most half the window, got f32[1, 1, 8, 8], kernel [2, 2], stride [2, 2], padding [2, 2], dilation [1, 1]";
            nn::AvgPool2d::new(2, AvgPoolOptions::default().padding(2)).forward(&zeros([1, 1, 8, 8])?) => "avg_pool2d: expected a window that fits, kernel, stride and dilation > 0, padding of at most half the window, got f32[1, 1, 8, 8], kernel [2, 2], stride [2, 2], padding [2, 2], dilation [1, 1]";
            nn::AdaptiveAvgPool2d::new(1).forward(&x) => "adaptive_avg_pool2d: expected [n, c, ..] or [c, ..] with 2 dimensions after the channels, got f32[2, 3]";
            nn::PixelShuffle::new(2usize).forward(&zeros([1, 3, 2, 2])?) => "pixel_shuffle: expected a tensor [.., c * r^2, h, w], got f32[1, 3, 2, 2] and r = 2";
            nn::Flatten::default().start_dim(2isize).forward(&x) => "flatten: expected a dimension of a tensor of rank 2, got dim 2";
            nn::Softmax::new(2isize).forward(&x) => "softmax: expected a dimension of a tensor of rank 2, got dim 2";
            nn::GLU::default().forward(&x) => "glu: expected a dimension of even size, got f32[2, 3]";
            nn::PReLU::new(2)?.forward(&zeros([1, 3, 2])?) => "prelu: expected one weight, or one for each channel of f32[1, 3, 2], got f32[2]";
            nn::ReflectionPad2d::new(3).forward(&zeros([1, 1, 3, 3])?) => "pad: expected a padding less than 3 indices of dimension 3, got 3 and 3";
            nn::weight_norm(nn::Linear::new(2, 2)?, 2).map(drop) => "expected a dimension of the weight, got 2";
            nn::LSTM::new(3, 4, RNNOptions::default().dropout(2.0)).map(drop) => "LSTM: expected a probability of 0 to 1, got 2";
            nn::Embedding::new(4, 2)?.padding_idx(4).map(drop) => "Embedding: expected a row of 4, got 4";
            nn::MaxPool2d::new(2, MaxPoolOptions::default().stride(0)).forward(&zeros([1, 1, 4, 4])?) => "max_pool2d: expected a window that fits, kernel, stride and dilation > 0, padding of at most half the window, got f32[1, 1, 4, 4], kernel [2, 2], stride [0, 0], padding [0, 0], dilation [1, 1]";
            nn::MaxUnpool2d::new(2, Default::default()).forward(&zeros([1, 1, 2, 2])?, &ids([1, 1, 3, 3])?, None) => "max_unpool2d: expected i64 indices [1, 1, 2, 2], got i64[1, 1, 3, 3]";
            nn::Unflatten::new(1isize, [2isize, 2]).forward(&x) => "unflatten: expected a shape of 3 elements, at most one size -1, got [2, 2]";
            nn::LocalResponseNorm::new(2).forward(&zeros([2])?) => "local_response_norm: expected a tensor [n, c, ..], got f32[2]";
        },
    );
    Ok(())
}

#[test]
fn of_losses() -> Outcome {
    let (scores, probabilities) = (zeros([2, 3])?, zeros([2])?.sigmoid()?);
    let entropy = nn::CrossEntropyLoss::default();
    check(
        file!(),
        mistakes! {
            entropy.forward(&scores, &tensor![0.0, 1.0]) => "cross_entropy: expected integer classes, got f32[2]";
            entropy.forward(&scores, &tensor![0, 3]) => "cpu: invalid argument: the index 3 at [1] is outside the 3 indices of dimension 1 of f32[2, 3]";
            entropy.forward(&scores, &tensor![0, -1]) => "cpu: invalid argument: the index -1 at [1] is outside the 3 indices of dimension 1 of f32[2, 3]";
            entropy.forward(&scores, &tensor![0, 1, 2]) => "cross_entropy: expected a class for each of [2], got i64[3]";
            entropy.forward(&scores, &tensor![[0], [1]]) => "cross_entropy: expected a class for each of [2], got i64[2, 1]";
            entropy.forward(&scores, &tensor![true, false]) => "cross_entropy: expected integer classes, got bool[2]";
            nn::CrossEntropyLoss::default().label_smoothing(2.0).forward(&scores, &tensor![0, 1]) => "cross_entropy: expected a label_smoothing from 0 to 1, got 2";
            nn::NLLLoss::default().forward(&scores, &tensor![0, 3]) => "cpu: invalid argument: the index 3 at [1, 0] is outside the 3 indices of dimension 1 of f32[2, 3]";
            nn::NLLLoss::default().forward(&scores, &scores) => "nll_loss: expected a class for each of [2], got f32[2, 3]";
            nn::BCELoss::default().forward(&tensor![0.5, 2.0], &tensor![0.0, 1.0]) => "cpu: invalid argument: the element at [1] is 2, not from 0 to 1";
            nn::BCELoss::default().forward(&probabilities, &tensor![0.0, 1.0, 1.0]) => "binary_cross_entropy: expected tensors of one shape, got f32[2] and f32[3]";
            nn::BCELoss::default().forward(&probabilities, &tensor![0, 1]) => "binary_cross_entropy: expected a floating-point tensor, got i64[2]";
            nn::BCEWithLogitsLoss::default().forward(&scores, &tensor![0.0, 1.0]) => "binary_cross_entropy_with_logits: expected tensors of one shape, got f32[2, 3] and f32[2]";
            nn::MSELoss::default().forward(&scores, &zeros([2, 4])?) => "mse_loss: expected shapes that broadcast, got [2, 3] and [2, 4]";
            nn::L1Loss::default().forward(&scores, &zeros([4])?) => "l1_loss: expected shapes that broadcast, got [2, 3] and [4]";
            nn::KLDivLoss::default().forward(&scores, &zeros([2, 4])?) => "kl_div: expected shapes that broadcast, got [2, 3] and [2, 4]";
            nn::HuberLoss::default().delta(-1.0).forward(&scores, &scores) => "huber_loss: expected delta > 0, got -1";
            nn::CosineEmbeddingLoss::default().forward(&scores, &scores, &scores) => "cosine_embedding_loss: expected x and y [n, d] and a target [n], or [d] and [], got f32[2, 3], f32[2, 3] and f32[2, 3]";
            nn::GaussianNLLLoss::default().forward(&probabilities, &probabilities, &tensor![-1.0, 1.0]) => "cpu: invalid argument: the element at [0] is -1, not 0 or more, or NaN";
            nn::PoissonNLLLoss::default().forward(&probabilities, &zeros([3])?) => "poisson_nll_loss: expected shapes that broadcast, got [2] and [3]";
            nn::HingeEmbeddingLoss::default().forward(&probabilities, &zeros([3])?) => "hinge_embedding_loss: expected shapes that broadcast, got [2] and [3]";
            nn::SoftMarginLoss::default().forward(&probabilities, &zeros([3])?) => "soft_margin_loss: expected shapes that broadcast, got [2] and [3]";
            nn::MultiLabelSoftMarginLoss::default().forward(&scores, &zeros([2, 4])?) => "multilabel_soft_margin_loss: expected shapes that broadcast, got [2, 3] and [2, 4]";
            nn::MarginRankingLoss::default().forward(&probabilities, &zeros([3])?, &probabilities) => "margin_ranking_loss: expected shapes that broadcast, got [2] and [3]";
            nn::CTCLoss::default().forward(&zeros([5, 2, 3])?, &ids([2, 2])?, &tensor![6, 5], &tensor![2, 2]) => "cpu: invalid argument: the element at [0] is 6, not from 0 to 5";
            nn::CTCLoss::default().forward(&zeros([5, 2, 3])?, &ids([2, 2])?, &tensor![5, 5], &tensor![2, 3]) => "cpu: invalid argument: the element at [1] is 3, not from 0 to 2";
            nn::MultiMarginLoss::default().forward(&scores, &tensor![0, 3]) => "cpu: invalid argument: the index 3 at [1, 0] is outside the 3 indices of dimension 1 of f32[2, 3]";
            nn::TripletMarginLoss::default().forward(&scores, &scores, &zeros([2, 4])?) => "sub: expected shapes that broadcast, got [2, 3] and [2, 4]";
        },
    );
    Ok(())
}

#[test]
fn of_optimisers() -> Outcome {
    let net = || nn::Linear::new(2, 1);
    let first = net()?;
    let named = || first.named_parameters();
    let x = tensor![[1.0, 2.0]];
    let loss = || first.forward(&x)?.sum_all();
    check(
        file!(),
        mistakes! {
            SGD::new(nn::ReLU.named_parameters(), SGDOptions::default()).map(drop) => "SGD: expected parameters to train (a lazy module has them after its first call), got none";
            LBFGS::new(nn::ReLU.named_parameters(), LBFGSOptions::default()).map(drop) => "LBFGS: expected parameters to train (a lazy module has them after its first call), got none";
            SGD::new(named(), SGDOptions::default().lr(-1.0)).map(drop) => "SGD: expected lr of 0 or more, got -1";
            SGD::new(named(), SGDOptions::default().nesterov(true)).map(drop) => "SGD: expected a momentum and no dampening, for nesterov, got momentum 0 and dampening 0";
            SGD::new(named(), SGDOptions::default().weight_decay(-1.0)).map(drop) => "SGD: expected weight_decay of 0 or more, got -1";
            Adam::new(named(), AdamOptions::default().betas([0.9, 1.0])).map(drop) => "Adam: expected betas from 0 to below 1, got [0.9, 1.0]";
            AdamW::new(named(), AdamWOptions::default().eps(-1.0)).map(drop) => "AdamW: expected eps of 0 or more, got -1";
            RMSprop::new(named(), RMSpropOptions::default().alpha(-1.0)).map(drop) => "RMSprop: expected alpha of 0 or more, got -1";
            SGD::new([first.weight.mul(2)?], SGDOptions::default()).map(drop) => "SGD: expected leaves to train, got 0, which was computed from others";
            SGD::new(named(), SGDOptions::default())?.add_param_group(named(), SGDOptions::default()) => "SGD: expected each parameter in one group, got weight, which is in another, too";
            {
                let mut sgd = SGD::new(named(), SGDOptions::default())?;
                sgd.step_with(|_, _| Tensor::zeros([3], DType::F32).ok())
            } => "SGD: expected a gradient f32[1, 2] of weight, got f32[3]";
            SGD::new(named(), SGDOptions::default())?.load_state_dict(&first.state_dict()) => "load_state_dict: expected the state of SGD with these parameters, got no version (is it the state of an optimiser?); an unknown weight; an unknown bias; no param_groups.0.lr; no param_groups.0.momentum; no param_groups.0.dampening; no param_groups.0.weight_decay; no param_groups.0.nesterov; no param_groups.0.maximize";
            {
                let mut sgd = SGD::new(named(), SGDOptions::default())?;
                LrScheduler::new(&mut sgd, StepLR::new(0)).map(drop)
            } => "StepLR: expected step_size above 0, got step_size = 0";
            GradScaler::new()?.update() => "update: expected a step before it, got none";
            AveragedModel::new(&first, Averaging::Exponential(2.0)).map(drop) => "AveragedModel: expected a decay of 0 to 1, got 2";
            AveragedModel::new(&first, Averaging::Equal)?.update_parameters(&nn::Linear::new(3, 1)?) => "update_parameters: expected a tensor [1, 2], got [1, 3]";
            loss()?.backward().and_then(|()| {
                let loss = loss()?;
                loss.backward()?;
                loss.backward()
            }) => "expected the history of the tensors (use retain_graph in the first backward \
                pass to keep it), got one that a backward pass has used up";
            first.forward(&tensor![[1.0, 2.0], [3.0, 4.0]])?.backward() => "expected a real output of one element, or its gradient (GradOptions::gradient), got f32[2, 1]";
            no_grad(loss)?.backward() => "expected an output that requires a gradient (say requires_grad_ of what it is computed from), got f32[] that requires none";
            first.weight.clone().add_(1).map(drop) => "expected a tensor that is neither a parameter nor a view of one, outside no_grad, got one that wants a gradient";
            tensor![1, 2].requires_grad_(true).map(drop) => "expected a floating-point or complex dtype, got i64";
            nn::parameter(tensor![1, 2]) => "requires_grad_: expected a floating-point or complex dtype, got i64";
            {
                let sgd = SGD::new(named(), SGDOptions::default())?;
                let mut train = TrainStep::new(nn::share(&first), sgd, |net, batch| net.forward(&batch[0]));
                train.step(&[&zeros([2, 2])?])
            } => "TrainStep: expected a loss of one real number that follows from parameters, got f32[2, 1]";
            first.weight.set_grad(Some(&zeros([3])?)) => "expected a gradient f32[1, 2], got f32[3]";
        },
    );
    Ok(())
}

#[test]
fn of_files() -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let mut net = nn::sequential![nn::Linear::new(2, 1)?];
    let state = net.state_dict();
    files::save(at("net.pt"), &state)?;
    let bytes = std::fs::read(at("net.pt"))?;
    std::fs::write(at("cut.pt"), &bytes[..bytes.len() / 2])?;
    std::fs::write(at("text.pt"), "weights: 1")?;
    let checkpoint = files::pt::Value::dict([("model", &state)]);
    files::pt::save_value(at("nested.pt"), &checkpoint)?;
    let place = folder.path().display().to_string();
    check(
        &place,
        mistakes! {
            files::load(at("none.pt")) => "; check the path";
            files::load(folder.path()) => "this is not an ordinary file; give the path of a file of tensors";
            files::load(at("cut.pt")) => "the zip archive's end: the file has no end of a zip archive, so it is cut short; the file is damaged, or its writer at fault";
            files::load(at("text.pt")) => "the zip archive's end: the file has no end of a zip archive, so it is cut short; the file is damaged, or its writer at fault";
            files::save(at("nowhere/net.pt"), &state) => "; check the path";
        },
    );
    check(
        "",
        mistakes! {
            files::load(at("net.pt"))?.get("fc.weight").cloned() => "there is no tensor `fc.weight`; there are `0.weight`, `0.bias`";
            files::pt::load_value(at("nested.pt"))?.get("state").map(drop) => "there is no `state` in a dictionary, which has `model`";
        },
    );
    check(
        file!(),
        mistakes! {
            net.load_state_dict(&files::load(at("nested.pt"))?, true) => "expected a tensor for each of the module's parameters and buffers, got none for 0.weight, 0.bias; unknown ones model.0.weight, model.0.bias; strip_prefix(\"model.\") of them would fit";
            net.load_state_dict(&state.add_prefix("module."), true) => "expected a tensor for each of the module's parameters and buffers, got none for 0.weight, 0.bias; unknown ones module.0.weight, module.0.bias; strip_prefix(\"module.\") of them would fit";
            net.load_state_dict(&nn::Linear::new(3, 1)?.state_dict().add_prefix("0."), false) => "expected a tensor for each of the module's parameters and buffers, got 0.weight [1, 3] in place of [1, 2]";
            net.load_state_dict(&files::Tensors::new(), true) => "expected a tensor for each of the module's parameters and buffers, got none for 0.weight, 0.bias";
        },
    );
    Ok(())
}

#[test]
fn of_sequences() -> Outcome {
    let mha = nn::MultiheadAttention::new(4, 2, Default::default())?;
    let q = zeros([5, 1, 4])?;
    check(
        file!(),
        mistakes! {
            mha.forward(&q, &q, &q, nn::AttentionMasks { attn_mask: Some(&zeros([3, 3])?), ..Default::default() }) => "multi_head_attention_forward: expected a mask [5, 5] or [2, 5, 5], got f32[3, 3]";
            mha.forward(&q, &q, &q, nn::AttentionMasks { key_padding_mask: Some(&zeros([2, 5])?), ..Default::default() }) => "multi_head_attention_forward: expected a mask [1, 5], got f32[2, 5]";
            mha.forward(&q, &q, &q, nn::AttentionMasks { key_padding_mask: Some(&Tensor::zeros((1, 5), DType::I64)?), ..Default::default() }) => "multi_head_attention_forward: expected a mask of bool or floats, got i64[1, 5]";
            mha.forward(&q, &zeros([6, 1, 4])?, &zeros([7, 1, 4])?, Default::default()) => "multi_head_attention_forward: expected a value for each key, got f32[6, 1, 4] and f32[7, 1, 4]";
            nn::TransformerEncoderLayer::new(8, 2, Default::default())?.forward(&zeros([5, 1, 4])?, Default::default()) => "MultiheadAttention: expected queries of 8 features, got [5, 1, 4]";
            nn::utils::rnn::pack_padded_sequence(&zeros([2, 3, 4])?, &[3, 0], true).map(drop) => "expected sequences of at least one element, got [3, 0]";
            nn::utils::rnn::pack_padded_sequence(&zeros([2, 3, 4])?, &[3], true).map(drop) => "expected 2 lengths of up to 3, got [3]";
            nn::utils::rnn::pad_sequence(&[zeros([2, 3])?, zeros([2, 4])?], true, 0.0) => "cat: expected sizes equal except in dim 0, got f32[2, 3] and f32[2, 4]";
            nn::utils::rnn::pad_sequence(&[], true, 0.0) => "expected at least one sequence, got none";
            nn::LSTM::new(3, 4, nn::RNNOptions::default().num_layers(2))?.forward(&zeros([5, 2, 3])?, Some((&zeros([1, 2, 4])?, &zeros([1, 2, 4])?))) => "LSTM: expected states [2, 2, 4], got [1, 2, 4]";
        },
    );
    Ok(())
}

#[test]
fn of_parts_and_initialisers() -> Outcome {
    let x = zeros([2, 3])?;
    check(
        file!(),
        mistakes! {
            nn::ConvTranspose2d::new(3, 4, 3, ConvTransposeOptions::default().output_padding(1))?.forward(&zeros([1, 3, 4, 4])?) => "conv_transpose2d: expected stride and dilation above 0, output_padding below one of them, got ConvTransposeOptions { stride: [1, 1], padding: [0, 0], output_padding: [1, 1], dilation: [1, 1], groups: 1 }";
            nn::Conv2d::new(3, 4, 0, ConvOptions::default())?.forward(&zeros([1, 3, 4, 4])?) => "conv2d: expected a window that fits the padded input, stride and dilation > 0, got f32[1, 3, 4, 4] and f32[4, 3, 0, 0] in 1 groups, Conv2d { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }";
            nn::Conv2d::new(3, 4, 3, ConvOptions::default().stride(2).padding(ConvPadding::Same))?.forward(&zeros([1, 3, 4, 4])?) => "conv2d: expected stride 1 to keep the size, got [2, 2]";
            { let mut b = nn::BatchNorm2d::new(3)?; b.eval(); b.forward(&zeros([2, 4, 2, 2])?) } => "batch_norm: expected a float for each of 4 channels, got f32[3]";
            nn::Flatten::default().start_dim(2isize).end_dim(1isize).forward(&zeros([2, 3, 4])?) => "flatten: expected start <= end, got 2 and 1";
            nn::sequential![nn::ReLU].replace(5, nn::ReLU).map(drop) => "replace: expected a place among 1 modules, got 5";
            nn::sequential![nn::ReLU].remove(-2).map(drop) => "remove: expected a place among 1 modules, got -2";
            nn::sequential![nn::ReLU].insert(3, nn::ReLU) => "insert: expected a place among 1 modules, got 3";
            nn::Linear::new(2, 2)?.to_dtype(DType::I64) => "expected a floating-point dtype, got i64";
            { let mut l = nn::Linear::new(3, 2)?; l.to_dtype(DType::F16)?; l.forward(&x) } => "linear: expected operands of one dtype, got f32[2, 3] and f16[2]";
            { let h = nn::Hooked::new(nn::Linear::new(3, 2)?); let _g = h.register_forward_pre_hook(|_, x| Ok(Some(x.t()?))); h.forward(&x) } => "linear: expected x [.., k] and w [n, k], got f32[3, 2] and f32[2, 3]";
            { let mut a = nn::Linear::new(3, 2)?; a.weight = nn::parameter(zeros([5, 5])?)?; a.forward(&x) } => "linear: expected x [.., k] and w [n, k], got f32[2, 3] and f32[5, 5]";
            nn::parameters_to_vector(&[]) => "expected parameters, got none";
            { let mut b = nn::BatchNorm1d::new(3)?; b.load_state_dict(&nn::Linear::new(3, 3)?.state_dict(), true).map(drop) } => "expected a tensor for each of the module's parameters and buffers, got none for running_mean, running_var, num_batches_tracked; weight [3, 3] in place of [3]";
            nn::init::xavier_uniform_(&mut zeros([3])?, 1.0) => "expected a weight of at least 2 dimensions, got [3]";
            nn::init::orthogonal_(&mut zeros([3])?, 1.0) => "expected a tensor of at least 2 dimensions, got [3]";
            nn::init::eye_(&mut zeros([2, 2, 2])?) => "expected a matrix, got [2, 2, 2]";
            nn::init::dirac_(&mut zeros([2, 2])?, 1) => "expected a weight of rank 3 to 5, got 2";
            nn::init::sparse_(&mut zeros([2, 2, 2])?, 0.1, 0.01) => "expected a matrix, got [2, 2, 2]";
            { let w = nn::parameter(tensor![1.0])?; w.set_grad(Some(&tensor![f32::NAN]))?; nn::clip_grad_norm_(&[w], 1.0, 2.0, true) } => "expected gradients whose norm is finite (or no error_if_nonfinite), got NaN";
        },
    );
    Ok(())
}

#[test]
fn of_classes_and_weights() -> Outcome {
    let x = zeros([2, 3])?;
    check(
        file!(),
        mistakes! {
            x.cross_entropy(&tensor![0, 1], &nn::CrossEntropyOptions::default().weight(&tensor![1.0, 2.0])) => "expected a weight for each of 3 classes, got f32[2]";
            x.cross_entropy(&zeros([2, 4])?, &Default::default()) => "expected a class for each of [2], got f32[2, 4]";
            tensor![0, 1].cross_entropy(&x, &Default::default()) => "expected a floating-point tensor, got i64[2]";
            zeros([2, 3, 4, 4])?.cross_entropy(&Tensor::zeros((2, 3, 4), DType::I64)?, &Default::default()) => "expected a class for each of [2, 4, 4], got i64[2, 3, 4]";
            nn::CTCLoss::default().blank(5usize).forward(&zeros([5, 2, 3])?, &Tensor::zeros((2, 2), DType::I64)?, &tensor![5, 5], &tensor![2, 2]) => "ctc_loss: expected steps, and a blank class, got 5 of 3";
            nn::MSELoss::default().forward(&tensor![1, 2], &tensor![1, 2]) => "mean: expected a floating-point or complex tensor (to_dtype converts), got i64[2]";
            nn::BCEWithLogitsLoss::default().pos_weight(tensor![1.0, 2.0]).forward(&x, &x) => "mul: expected shapes that broadcast, got [2] and [2, 3]";
            nn::BCELoss::default().forward(&zeros([4, 1])?, &zeros([4])?) => "binary_cross_entropy: expected tensors of one shape, got f32[4, 1] and f32[4]";
            nn::NLLLoss::default().weight(tensor![1.0]).forward(&x, &tensor![0, 1]) => "nll_loss: expected a weight for each of 3 classes, got f32[]";
            nn::MultiLabelMarginLoss::default().forward(&x, &x) => "multilabel_margin_loss: expected i64 classes, got f32[2, 3]";
            nn::SmoothL1Loss::default().beta(-1.0).forward(&x, &x) => "smooth_l1_loss: expected beta >= 0, got -1";
        },
    );
    Ok(())
}

#[test]
fn of_options_and_scalers() -> Outcome {
    let net = nn::Linear::new(3, 1)?;
    let named = || net.named_parameters();
    let sgd = || SGD::new(named(), SGDOptions::default().lr(0.1));
    let x = zeros([2, 3])?;
    check(
        file!(),
        mistakes! {
            SGD::new(named(), SGDOptions::default().momentum(-0.5)).map(drop) => "SGD: expected momentum of 0 or more, got -0.5";
            AdamW::new(named(), AdamWOptions::default().weight_decay(-1.0)).map(drop) => "AdamW: expected weight_decay of 0 or more, got -1";
            Adagrad::new(named(), AdagradOptions::default().lr_decay(-1.0)).map(drop) => "Adagrad: expected lr_decay of 0 or more, got -1";
            Adadelta::new(named(), AdadeltaOptions::default().rho(1.5)).map(drop) => "Adadelta: expected rho from 0 to 1, got 1.5";
            Rprop::new(named(), RpropOptions::default().etas([1.5, 1.2])).map(drop) => "Rprop: expected etas below and above 1, got [1.5, 1.2]";
            Muon::new(named(), MuonOptions::default()).map(drop) => "Muon: expected matrices (others are for AdamW), got bias [1]";
            NAdam::new(named(), NAdamOptions::default().momentum_decay(-1.0)).map(drop) => "NAdam: expected momentum_decay of 0 or more, got -1";
            RMSprop::new(named(), RMSpropOptions::default().momentum(-1.0)).map(drop) => "RMSprop: expected momentum of 0 or more, got -1";
            { let mut l = LBFGS::new(named(), LBFGSOptions::default())?; l.step(|| net.forward(&tensor![1.0])).map(drop) } => "linear: expected x [.., k] and w [n, k], got f32[] and f32[1, 3]";
            { let mut a = sgd()?; let mut b = SGD::new([net.weight.clone()], SGDOptions::default())?; b.add_param_group([net.bias.clone().unwrap()], SGDOptions::default())?; a.load_state_dict(&b.state_dict()?) } => "load_state_dict: expected the state of SGD with these parameters, got an unknown group param_groups.1";
            sgd()?.load_pytorch_state_dict(&files::pt::Value::dict([("state", files::pt::Value::dict::<&str, files::pt::Value>([]))])) => "load_pytorch_state_dict: expected the state of PyTorch's SGD with these parameters, got 0 param_groups, not 1";
            { let s = sgd()?; let mut g = GradScaler::new()?; let l = g.scale(&net.forward(&x)?.sum_all()?)?; l.backward()?; g.unscale_(&s)?; g.unscale_(&s) } => "unscale_: expected gradients that are scaled (update comes after step), got others";
            { let mut s = sgd()?; let mut g = GradScaler::new()?; let l = g.scale(&net.forward(&x)?.sum_all()?)?; l.backward()?; g.step(&mut s)?; g.step(&mut s) } => "step: expected one step of an optimiser before update, got another";
            GradScaler::new()?.factors(0.5, 3, 0.5).map(drop) => "GradScaler: expected a growth above 1, and a backoff below, got 0.5 and 0.5";
        },
    );
    Ok(())
}

#[test]
fn of_schedules() -> Outcome {
    let net = nn::Linear::new(3, 1)?;
    let named = || net.named_parameters();
    let sgd = || SGD::new(named(), SGDOptions::default().lr(0.1));
    check(
        file!(),
        mistakes! {
            LrScheduler::new(&mut sgd()?, OneCycleLR::new(0.1, 0)).map(drop) => "OneCycleLR: expected total_steps above 0, got total_steps = 0";
            { let mut s = SGD::new(named(), SGDOptions::default().momentum(0.9))?; let mut l = LrScheduler::new(&mut s, OneCycleLR::new(0.1, 2))?; for _ in 0..4 { l.step(&mut s)?; } RusTorchResult::Ok(()) } => "OneCycleLR: expected at most 2 steps, got 3";
            LrScheduler::new(&mut Adagrad::new(named(), AdagradOptions::default())?, OneCycleLR::new(0.1, 5)).map(drop) => "LrScheduler: expected an optimiser with momentum or betas (or no cycle_momentum), got neither";
            LrScheduler::new(&mut sgd()?, LinearLR::default().start_factor(0.0)).map(drop) => "LinearLR: expected start_factor above 0, at most 1, got start_factor = 0";
            LrScheduler::new(&mut sgd()?, LinearLR::default().end_factor(1.5)).map(drop) => "LinearLR: expected end_factor between 0 and 1, got end_factor = 1.5";
            LrScheduler::new(&mut sgd()?, ConstantLR::default().factor(2.0)).map(drop) => "ConstantLR: expected factor above 0, at most 1, got factor = 2";
            LrScheduler::new(&mut sgd()?, CosineAnnealingWarmRestarts::new(0)).map(drop) => "CosineAnnealingWarmRestarts: expected t_0 above 0, got t_0 = 0";
            LrScheduler::new(&mut sgd()?, CosineAnnealingWarmRestarts::new(3).t_mult(0usize)).map(drop) => "CosineAnnealingWarmRestarts: expected t_mult above 0, got t_mult = 0";
            SequentialLR::new(vec![Box::new(StepLR::new(1))], vec![3]).map(drop) => "SequentialLR: expected rising epochs, one for each schedule but the first, got [3] for 1 schedules";
            LrScheduler::new(&mut sgd()?, ChainedScheduler(vec![])).map(drop) => "ChainedScheduler: expected schedules, got none";
            { let mut s = sgd()?; ReduceLROnPlateau::new().factor(1.5).step(&mut s, 1.0) } => "ReduceLROnPlateau: expected a factor below 1, got 1.5";
        },
    );
    Ok(())
}

/// A step of a module, its optimiser and a function.
#[test]
fn of_steps() -> Outcome {
    let net = nn::Linear::new(3, 1)?;
    let x = zeros([2, 3])?;
    type Loss = fn(&nn::Linear, &[Tensor]) -> RusTorchResult<Tensor>;
    let with = |loss: Loss| -> RusTorchResult<_> {
        let sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
        Ok(TrainStep::new(nn::share(&net), sgd, loss))
    };
    let ts = || with(|n, b| n.forward(&b[0])?.mean_all());
    let step = |loss: Loss| with(loss)?.step(&[&x]);
    check(
        file!(),
        mistakes! {
            step(|n, b| { let y = n.forward(&b[0])?.mean_all()?; y.to_vec::<f32>()?; Ok(y) }) => "eval: expected values: a placeholder has one only in the trace that it was passed to (a step is recorded here: read the loss that TrainStep::step gives, and choose by where_ in place of a branch), got a placeholder f32[2, 3]";
            step(|n, b| n.forward(&b[0])?.mean_all()?.detach().mul(1)) => "TrainStep: expected a loss of one real number that follows from parameters, got f32[]";
            step(|n, b| { let loss = n.forward(&b[0])?.mean_all()?; loss.backward()?; Ok(loss) }) => "expected the history of the tensors (TrainStep goes backward itself from the loss that its function returns: leave backward out there; grad_with and create_graph keep the history), got one that a backward pass has used up";
            ts()?.step(&[]) => "TrainStep: expected a batch of tensors, got one of none";
            step(|n, b| n.forward(&b[0].t()?)?.mean_all()) => "linear: expected x [.., k] and w [n, k], got f32[3, 2] and f32[1, 3]";
            ts()?.accumulate(0).map(drop) => "accumulate: expected 1 batch or more, got 0";
            ts()?.clip_grad_norm(-1.0, 2.0).map(drop) => "clip_grad_norm: expected a largest norm of 0 or more, got -1";
        },
    );
    Ok(())
}

/// PyTorch lets these be, and trains nothing, or something else.
#[test]
fn that_pytorch_lets_be() -> Outcome {
    let first = nn::Linear::new(2, 1)?;
    let named = || first.named_parameters();
    let other = nn::Linear::new(3, 1)?;
    let mut momentum = SGD::new(
        other.named_parameters(),
        SGDOptions::default().momentum(0.5),
    )?;
    other.forward(&zeros([1, 3])?)?.sum_all()?.backward()?;
    momentum.step()?;
    let mut converted = nn::Linear::new(2, 1)?;
    let mut sgd = SGD::new(converted.named_parameters(), SGDOptions::default())?;
    converted.to_dtype(DType::F64)?;
    let x = Tensor::zeros([1, 2], DType::F64)?;
    converted.forward(&x)?.sum_all()?.backward()?;
    check(
        file!(),
        mistakes! {
            SGD::new(named(), SGDOptions::default().lr(f64::NAN)).map(drop) => "SGD: expected lr of 0 or more, got NaN";
            SGD::new([tensor![1, 2]], SGDOptions::default()).map(drop) => "SGD: expected parameters of floats or complex numbers, got 0, which is not";
            SGD::new(named(), SGDOptions::default())?.load_state_dict(&momentum.state_dict()?) => "load_state_dict: expected the state of SGD with these parameters, got state.weight.momentum_buffer [1, 3] for a parameter [1, 2]";
            GradScaler::new()?.init_scale(0.0).map(drop) => "GradScaler: expected a scale above 0, got 0";
            sgd.step() => "SGD: expected weight as it was when the optimiser was made, got one with other data (make the optimiser after to_dtype)";
            nn::vector_to_parameters(&zeros([4])?, &first.parameters()) => "expected a vector [3], got [4]";
            {
                let sgd = SGD::new(nn::Linear::new(2, 1)?.named_parameters(), SGDOptions::default())?;
                let mut train = TrainStep::new(nn::share(&first), sgd, |net, batch| {
                    net.forward(&batch[0])?.sum_all()
                });
                train.step(&[&zeros([2, 2])?])
            } => "TrainStep: expected a loss that follows from parameters of the optimiser (a clone has its own, nn::share gives a handle), got one of others";
        },
    );
    Ok(())
}

/// PyTorch finds these later, or never.
#[test]
fn that_pytorch_notices_late_or_never() -> Outcome {
    let net = nn::Linear::new(3, 1)?;
    let named = || net.named_parameters();
    let sgd = || SGD::new(named(), SGDOptions::default().lr(0.1));
    let adam = || Adam::new(named(), AdamOptions::default());
    check(
        file!(),
        mistakes! {
            SGD::new(nn::LazyLinear::new(3).named_parameters(), SGDOptions::default()).map(drop) => "SGD: expected parameters to train (a lazy module has them after its first call), got none";
            nn::utils::rnn::pack_padded_sequence(&zeros([2, 3, 4])?, &[4, 1], true).map(drop) => "expected 2 lengths of up to 3, got [4, 1]";
            nn::sequential![nn::ReLU].slice(0..4).map(drop) => "slice: expected a range of 0..1, got 0..4";
            { let mut s = sgd()?; s.param_groups_mut()[0].options.lr = -1.0; s.step() } => "SGD: expected lr of 0 or more, got -1";
            sgd()?.load_state_dict(&adam()?.state_dict()?) => "load_state_dict: expected the state of SGD with these parameters, got an unknown option param_groups.0.betas; an unknown option param_groups.0.eps; an unknown option param_groups.0.amsgrad; an unknown option param_groups.0.decoupled_weight_decay; no param_groups.0.momentum; no param_groups.0.dampening; no param_groups.0.nesterov";
            LrScheduler::new(&mut sgd()?, CosineAnnealingLR::new(0)).map(drop) => "CosineAnnealingLR: expected t_max above 0, got t_max = 0";
            ReduceLROnPlateau::new().load_state_dict(&sgd()?.state_dict()?) => "load_state_dict: expected best of ReduceLROnPlateau, got the state of something else";
            { let mut s = sgd()?; let mut l = LrScheduler::new(&mut s, StepLR::new(3))?; l.load_state_dict(&s.state_dict()?) } => "load_state_dict: expected last_epoch and base_lrs, got the state of something else";
            { let mut s = sgd()?; let mut l = LrScheduler::new(&mut s, StepLR::new(3))?; s.add_param_group([nn::parameter(tensor![1.0])?], SGDOptions::default())?; l.step(&mut s) } => "LrScheduler: expected 1 groups, as at first, got 2";
            nn::Linear::new(3, 3)?.load_state_dict_with(&nn::Linear::new(3, 3)?.state_dict(), true, |_| Some("weight".to_owned())).map(drop) => "expected a name of its own for each tensor, got the tensors `weight` and `bias` both get the name `weight`; give each its own";
        },
    );
    Ok(())
}

/// PyTorch warns of these, too.
#[test]
fn that_are_warned_of() -> Outcome {
    let net = nn::Linear::new(2, 1)?;
    let twice = || [net.weight.clone(), net.weight.clone()];
    let (made, warned) = warnings(|| SGD::new(twice(), SGDOptions::default()));
    assert_eq!(made?.param_groups()[0].named_parameters().count(), 1);
    let said = "a parameter is in the list twice, and is trained once";
    assert!(warned.len() == 1 && warned[0].ends_with(said), "{warned:?}");
    assert!(warned[0].contains(file!()), "{warned:?}");
    for (steps_before, expected) in [(false, 1), (true, 0)] {
        let mut sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
        if steps_before {
            net.forward(&zeros([1, 2])?)?.sum_all()?.backward()?;
            sgd.step()?;
        }
        let mut scheduler = LrScheduler::new(&mut sgd, StepLR::new(2))?;
        let (result, warned) = warnings(|| {
            scheduler.step(&mut sgd)?;
            scheduler.step(&mut sgd)
        });
        result?;
        assert_eq!(warned.len(), expected, "{warned:?}");
        assert!(
            warned
                .iter()
                .all(|text| text.contains("call its step before")),
            "{warned:?}"
        );
    }
    Ok(())
}
