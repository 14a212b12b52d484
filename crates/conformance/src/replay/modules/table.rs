//! Modules as users would write them.

use rustorch_dispatch::{Call, Called, Output, Value, missing, options, untyped};
use rustorch_nn::nn::*;
use rustorch_tensor::{PadMode, Tensor};

use super::{Built, Entry, Of};

/// A line has PyTorch's name, the parameters of its constructor and of `forward`, and the constructor. If it is not
/// called with one tensor, it also has the call.
macro_rules! table {
    ($($name:literal, $constructor:expr, |$c:ident| $build:expr
        $(, $forward:expr, |$m:ident, $x:ident| $run:expr)?;)*) => {
        pub(super) const TABLE: &[Entry] = &[$(Entry {
            name: $name,
            constructor: $constructor,
            forward: table!(@forward $($forward)?),
            build: |$c| {
                let module = $build;
                Ok(table!(@built module $(, |$m, $x| $run)?))
            },
        }),*];
    };
    (@forward) => { "input" };
    (@forward $forward:expr) => { $forward };
    (@built $module:ident) => { one($module) };
    (@built $module:ident, |$m:ident, $x:ident| $run:expr) => {
        called($module, |$m, $x| Ok(Output::from($run)))
    };
}

/// Modules that may return indices, too.
macro_rules! pools {
    ($($name:literal, $constructor:expr, |$c:ident| $build:expr;)*) => {
        pub(super) const POOLS: &[Entry] = &[$(Entry {
            name: $name,
            constructor: $constructor,
            forward: "input",
            build: |$c| {
                let (module, has_indices) = ($build, $c.bool("return_indices")?);
                Ok(called(module, move |module, inputs| {
                    let (values, indices) = module.forward_with_indices(inputs.input()?)?;
                    Ok(match has_indices {
                        true => (values, indices).into(),
                        false => values.into(),
                    })
                }))
            },
        }),*];
    };
}

/// A module that is called with one tensor.
fn one<M: Forward + 'static>(module: M) -> Box<dyn Built> {
    called(module, |module: &M, inputs| {
        Ok(module.forward(inputs.input()?)?.into())
    })
}

fn called<M: Module + 'static>(
    module: M,
    run: impl Fn(&M, &Call) -> Called<Output> + 'static,
) -> Box<dyn Built> {
    Box::new(Of { module, run })
}

const CONV: &str = "in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, \
     padding_mode='zeros'";
const CONV_TRANSPOSE: &str = "in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, \
     bias=True, dilation=1, padding_mode='zeros'";
const LAZY_CONV: &str = "out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode='zeros'";
const LAZY_CONV_TRANSPOSE: &str = "out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, \
     dilation=1, padding_mode='zeros'";
const BATCH_NORM: &str =
    "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True, *, bias=True";
const INSTANCE_NORM: &str =
    "num_features, eps=1e-05, momentum=0.1, affine=False, track_running_stats=False, *, bias=True";
const MAX_POOL: &str =
    "kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False";
const AVG_POOL: &str = "kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None";
const LP_POOL: &str = "norm_type, kernel_size, stride=None, ceil_mode=False";
const FRACTIONAL: &str =
    "kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None";
const RNN: &str = "input_size, hidden_size, num_layers=1, nonlinearity='tanh', bias=True, batch_first=False, dropout=0.0, \
     bidirectional=False, proj_size=0";
const GATED: &str = "input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, \
     bidirectional=False, proj_size=0";
const ENCODER_LAYER: &str = "d_model, nhead, dim_feedforward=2048, dropout=0.1, activation='relu', layer_norm_eps=1e-05, \
     batch_first=False, norm_first=False, bias=True";
const TRANSFORMER: &str = "d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, \
     dropout=0.1, activation='relu', custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-05, \
     batch_first=False, norm_first=False, bias=True";
const ATTENTION: &str = "embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, \
     vdim=None, batch_first=False";
const LOSS: &str = "size_average=None, reduce=None, reduction='mean'";
const LINEAR_CROSS_ENTROPY: &str = "in_features, num_classes, *, out_features=None, bias=False, reduction='mean', weight=None, \
     ignore_index=None, label_smoothing=0.0, options=None";
const PAIR: &str = "input, target";

macro_rules! conv {
    ($c:ident, $Conv:ident, $options:expr) => {{
        let conv = $Conv::new(
            $c.int("in_channels")?,
            $c.int("out_channels")?,
            $c.each("kernel_size")?,
            $options,
        )?;
        let conv = match $c.text("padding_mode")? {
            "zeros" => conv,
            "reflect" => conv.padding_mode(PadMode::Reflect),
            "replicate" => conv.padding_mode(PadMode::Replicate),
            "circular" => conv.padding_mode(PadMode::Circular),
            other => return missing(format!("padding_mode={other}")),
        };
        if $c.bool("bias")? {
            conv
        } else {
            conv.without_bias()
        }
    }};
}

macro_rules! conv_transpose {
    ($c:ident, $Conv:ident, $n:literal) => {{
        $c.only("padding_mode", "'zeros'")?;
        let conv = $Conv::new(
            $c.int("in_channels")?,
            $c.int("out_channels")?,
            $c.each::<$n>("kernel_size")?,
            options::conv_transpose_options::<$n>($c)?,
        )?;
        if $c.bool("bias")? {
            conv
        } else {
            conv.without_bias()
        }
    }};
}

macro_rules! lazy_conv {
    ($c:ident, $Lazy:ident, $options:expr) => {{
        $c.only("bias", "True")?;
        $c.only("padding_mode", "'zeros'")?;
        $Lazy::new($c.int("out_channels")?, $c.each("kernel_size")?, $options)
    }};
}

macro_rules! norm {
    ($c:ident, $Norm:ident) => {{
        let norm = $Norm::new($c.int("num_features")?)?.eps($c.float("eps")?);
        let norm = norm.momentum($c.maybe_float("momentum")?);
        let norm = if $c.bool("affine")? {
            norm.with_affine()?
        } else {
            norm.without_affine()
        };
        let norm = if $c.bool("bias")? {
            norm
        } else {
            norm.without_bias()
        };
        match $c.bool("track_running_stats")? {
            true => norm.with_running_stats()?,
            false => norm.without_running_stats(),
        }
    }};
}

macro_rules! lp_pool {
    ($c:ident, $Pool:ident, $n:literal) => {{
        let pool = $Pool::new($c.float("norm_type")?, $c.each::<$n>("kernel_size")?);
        let pool = pool.ceil_mode($c.bool("ceil_mode")?);
        match options::stride::<$n>($c)? {
            Some(stride) => pool.stride(stride),
            None => pool,
        }
    }};
}

table! {
    "nn.Identity", "", |_c| Identity;
    "nn.Linear", "in_features, out_features, bias=True", |c| {
        let linear = Linear::new(c.int("in_features")?, c.int("out_features")?)?;
        if c.bool("bias")? { linear } else { linear.without_bias() }
    };
    "nn.Bilinear", "in1_features, in2_features, out_features, bias=True", |c| {
        let sizes: [usize; 3] = [c.int("in1_features")?, c.int("in2_features")?, c.int("out_features")?];
        let bilinear = Bilinear::new(sizes[0], sizes[1], sizes[2])?;
        if c.bool("bias")? { bilinear } else { bilinear.without_bias() }
    }, "input1, input2", |m, x| m.forward(x.tensor("input1")?, x.tensor("input2")?)?;
    "nn.Conv1d", CONV, |c| conv!(c, Conv1d, options::conv_options::<1>(c)?);
    "nn.Conv2d", CONV, |c| conv!(c, Conv2d, options::conv_options::<2>(c)?);
    "nn.Conv3d", CONV, |c| conv!(c, Conv3d, options::conv_options::<3>(c)?);
    "nn.ConvTranspose1d", CONV_TRANSPOSE, |c| conv_transpose!(c, ConvTranspose1d, 1);
    "nn.ConvTranspose2d", CONV_TRANSPOSE, |c| conv_transpose!(c, ConvTranspose2d, 2);
    "nn.ConvTranspose3d", CONV_TRANSPOSE, |c| conv_transpose!(c, ConvTranspose3d, 3);
    "nn.LazyConv1d", LAZY_CONV, |c| lazy_conv!(c, LazyConv1d, options::conv_options::<1>(c)?);
    "nn.LazyConv2d", LAZY_CONV, |c| lazy_conv!(c, LazyConv2d, options::conv_options::<2>(c)?);
    "nn.LazyConv3d", LAZY_CONV, |c| lazy_conv!(c, LazyConv3d, options::conv_options::<3>(c)?);
    "nn.LazyConvTranspose1d", LAZY_CONV_TRANSPOSE, |c| {
        lazy_conv!(c, LazyConvTranspose1d, options::conv_transpose_options::<1>(c)?)
    };
    "nn.LazyConvTranspose2d", LAZY_CONV_TRANSPOSE, |c| {
        lazy_conv!(c, LazyConvTranspose2d, options::conv_transpose_options::<2>(c)?)
    };
    "nn.LazyConvTranspose3d", LAZY_CONV_TRANSPOSE, |c| {
        lazy_conv!(c, LazyConvTranspose3d, options::conv_transpose_options::<3>(c)?)
    };
    "nn.BatchNorm1d", BATCH_NORM, |c| norm!(c, BatchNorm1d);
    "nn.BatchNorm2d", BATCH_NORM, |c| norm!(c, BatchNorm2d);
    "nn.BatchNorm3d", BATCH_NORM, |c| norm!(c, BatchNorm3d);
    "nn.InstanceNorm1d", INSTANCE_NORM, |c| norm!(c, InstanceNorm1d);
    "nn.InstanceNorm2d", INSTANCE_NORM, |c| norm!(c, InstanceNorm2d);
    "nn.InstanceNorm3d", INSTANCE_NORM, |c| norm!(c, InstanceNorm3d);
    "nn.GroupNorm", "num_groups, num_channels, eps=1e-05, affine=True, *, bias=True", |c| {
        let norm = GroupNorm::new(c.int("num_groups")?, c.int("num_channels")?)?.eps(c.float("eps")?);
        let norm = if c.bool("affine")? { norm } else { norm.without_affine() };
        if c.bool("bias")? { norm } else { norm.without_bias() }
    };
    "nn.LayerNorm", "normalized_shape, eps=1e-05, elementwise_affine=True, bias=True", |c| {
        let norm = LayerNorm::new(c.ints::<usize>("normalized_shape")?)?.eps(c.float("eps")?);
        let norm = if c.bool("elementwise_affine")? { norm } else { norm.without_affine() };
        if c.bool("bias")? { norm } else { norm.without_bias() }
    };
    "nn.RMSNorm", "normalized_shape, eps=None, elementwise_affine=True", |c| {
        let norm = RMSNorm::new(c.ints::<usize>("normalized_shape")?)?.eps(c.maybe_float("eps")?);
        if c.bool("elementwise_affine")? { norm } else { norm.without_affine() }
    };
    "nn.LocalResponseNorm", "size, alpha=0.0001, beta=0.75, k=1.0", |c| {
        let norm = LocalResponseNorm::new(c.int::<usize>("size")?).alpha(c.float("alpha")?);
        norm.beta(c.float("beta")?).k(c.float("k")?)
    };
    "nn.Embedding", "num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0", |c| {
        let table = Embedding::new(c.int("num_embeddings")?, c.int("embedding_dim")?)?;
        let table = table.max_norm(c.maybe_float("max_norm")?).norm_type(c.float("norm_type")?);
        match c.maybe_int("padding_idx")? {
            Some(row) => table.padding_idx(row)?,
            None => table,
        }
    };

    "nn.AvgPool1d", AVG_POOL, |c| AvgPool1d::new(c.each::<1>("kernel_size")?, options::averaged(c)?);
    "nn.AvgPool2d", AVG_POOL, |c| AvgPool2d::new(c.each::<2>("kernel_size")?, options::averaged(c)?);
    "nn.AvgPool3d", AVG_POOL, |c| AvgPool3d::new(c.each::<3>("kernel_size")?, options::averaged(c)?);
    "nn.LPPool1d", LP_POOL, |c| lp_pool!(c, LPPool1d, 1);
    "nn.LPPool2d", LP_POOL, |c| lp_pool!(c, LPPool2d, 2);
    "nn.LPPool3d", LP_POOL, |c| lp_pool!(c, LPPool3d, 3);
    "nn.AdaptiveAvgPool1d", "output_size", |c| AdaptiveAvgPool1d::new(options::sizes(c)?);
    "nn.AdaptiveAvgPool2d", "output_size", |c| AdaptiveAvgPool2d::new(options::sizes(c)?);
    "nn.AdaptiveAvgPool3d", "output_size", |c| AdaptiveAvgPool3d::new(options::sizes(c)?);

    "nn.ReflectionPad1d", "padding", |c| ReflectionPad1d { padding: around::<1>(c)? };
    "nn.ReflectionPad2d", "padding", |c| ReflectionPad2d { padding: around::<2>(c)? };
    "nn.ReflectionPad3d", "padding", |c| ReflectionPad3d { padding: around::<3>(c)? };
    "nn.ReplicationPad1d", "padding", |c| ReplicationPad1d { padding: around::<1>(c)? };
    "nn.ReplicationPad2d", "padding", |c| ReplicationPad2d { padding: around::<2>(c)? };
    "nn.ReplicationPad3d", "padding", |c| ReplicationPad3d { padding: around::<3>(c)? };
    "nn.CircularPad1d", "padding", |c| CircularPad1d { padding: around::<1>(c)? };
    "nn.CircularPad2d", "padding", |c| CircularPad2d { padding: around::<2>(c)? };
    "nn.CircularPad3d", "padding", |c| CircularPad3d { padding: around::<3>(c)? };
    "nn.ZeroPad1d", "padding", |c| ZeroPad1d { padding: around::<1>(c)? };
    "nn.ZeroPad2d", "padding", |c| ZeroPad2d { padding: around::<2>(c)? };
    "nn.ZeroPad3d", "padding", |c| ZeroPad3d { padding: around::<3>(c)? };
    "nn.ConstantPad1d", "padding, value", |c| {
        ConstantPad1d { padding: around::<1>(c)?, value: c.float("value")? }
    };
    "nn.ConstantPad2d", "padding, value", |c| {
        ConstantPad2d { padding: around::<2>(c)?, value: c.float("value")? }
    };
    "nn.ConstantPad3d", "padding, value", |c| {
        ConstantPad3d { padding: around::<3>(c)?, value: c.float("value")? }
    };

    "nn.CELU", "alpha=1.0, inplace=False", |c| CELU { alpha: c.float("alpha")? };
    "nn.ELU", "alpha=1.0, inplace=False", |c| ELU { alpha: c.float("alpha")? };
    "nn.GELU", "approximate='none'", |c| match c.text("approximate")? {
        "tanh" => GELU::default().approximate(GeluApproximate::Tanh),
        _ => GELU::default(),
    };
    "nn.GLU", "dim=-1", |c| GLU { dim: c.int("dim")? };
    "nn.Hardshrink", "lambd=0.5", |c| Hardshrink { lambda: c.float("lambd")? };
    "nn.Hardsigmoid", "inplace=False", |_c| Hardsigmoid;
    "nn.Hardswish", "inplace=False", |_c| Hardswish;
    "nn.Hardtanh", "min_val=-1.0, max_val=1.0, inplace=False", |c| {
        Hardtanh { min_val: c.float("min_val")?, max_val: c.float("max_val")? }
    };
    "nn.LeakyReLU", "negative_slope=0.01, inplace=False", |c| {
        LeakyReLU { negative_slope: c.float("negative_slope")? }
    };
    "nn.LogSigmoid", "", |_c| LogSigmoid;
    "nn.LogSoftmax", "dim=None", |c| LogSoftmax::new(c.int::<isize>("dim")?);
    "nn.Mish", "inplace=False", |_c| Mish;
    "nn.PReLU", "num_parameters=1, init=0.25", |c| PReLU::new(c.int("num_parameters")?)?;
    "nn.ReLU", "inplace=False", |_c| ReLU;
    "nn.ReLU6", "inplace=False", |_c| ReLU6;
    "nn.SELU", "inplace=False", |_c| SELU;
    "nn.SiLU", "inplace=False", |_c| SiLU;
    "nn.Sigmoid", "", |_c| Sigmoid;
    "nn.Softmax", "dim=None", |c| Softmax::new(c.int::<isize>("dim")?);
    "nn.Softmax2d", "", |_c| Softmax2d;
    "nn.Softmin", "dim=None", |c| Softmin::new(c.int::<isize>("dim")?);
    "nn.Softplus", "beta=1.0, threshold=20.0", |c| {
        Softplus { beta: c.float("beta")?, threshold: c.float("threshold")? }
    };
    "nn.Softshrink", "lambd=0.5", |c| Softshrink { lambda: c.float("lambd")? };
    "nn.Softsign", "", |_c| Softsign;
    "nn.Tanh", "", |_c| Tanh;
    "nn.Tanhshrink", "", |_c| Tanhshrink;
    "nn.Threshold", "threshold, value, inplace=False", |c| {
        Threshold { threshold: c.float("threshold")?, value: c.float("value")? }
    };

    "nn.L1Loss", LOSS, |c| L1Loss::default().reduction(options::reduction(c)?),
        PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.MSELoss", LOSS, |c| MSELoss::default().reduction(options::reduction(c)?),
        PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.SmoothL1Loss", "size_average=None, reduce=None, reduction='mean', beta=1.0", |c| {
        SmoothL1Loss::default().reduction(options::reduction(c)?).beta(c.float("beta")?)
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.HuberLoss", "reduction='mean', delta=1.0", |c| {
        HuberLoss::default().reduction(options::reduction(c)?).delta(c.float("delta")?)
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.CrossEntropyLoss", "weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', label_smoothing=0.0", |c| {
        let loss = CrossEntropyLoss::default().reduction(options::reduction(c)?);
        let loss = loss.ignore_index(c.int::<i64>("ignore_index")?);
        let loss = loss.label_smoothing(c.float("label_smoothing")?);
        weighted(c, "weight", loss, CrossEntropyLoss::weight)?
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.LinearCrossEntropyLoss", LINEAR_CROSS_ENTROPY, |c| {
        c.only("options", "None")?;
        let classes = [vec![c.int("num_classes")?], c.ints::<usize>("out_features")?].concat();
        let in_features = c.int("in_features")?;
        let mut loss = LinearCrossEntropyLoss::new(in_features, &classes[..])?;
        if c.bool("bias")? {
            loss.linear = Linear::new(in_features, classes.iter().product())?;
        }
        let loss = loss.ignore_index(c.maybe_int::<i64>("ignore_index")?.unwrap_or(-100));
        let loss = loss.reduction(options::reduction(c)?).label_smoothing(c.float("label_smoothing")?);
        weighted(c, "weight", loss, LinearCrossEntropyLoss::weight)?
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.NLLLoss", "weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean'", |c| {
        let loss = NLLLoss::default().reduction(options::reduction(c)?);
        let loss = loss.ignore_index(c.int::<i64>("ignore_index")?);
        weighted(c, "weight", loss, NLLLoss::weight)?
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.PoissonNLLLoss", "log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, reduction='mean'", |c| {
        let loss = PoissonNLLLoss::default().reduction(options::reduction(c)?);
        loss.log_input(c.bool("log_input")?).full(c.bool("full")?).eps(c.float("eps")?)
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.GaussianNLLLoss", "*, full=False, eps=1e-06, reduction='mean'", |c| {
        let loss = GaussianNLLLoss::default().reduction(options::reduction(c)?);
        loss.full(c.bool("full")?).eps(c.float("eps")?)
    }, "input, target, var", |m, x| m.forward(x.input()?, x.tensor("target")?, x.tensor("var")?)?;
    "nn.KLDivLoss", "size_average=None, reduce=None, reduction='mean', log_target=False", |c| {
        let reduction = match c.text("reduction")? {
            "batchmean" => KLDivReduction::BatchMean,
            _ => options::reduction(c)?.into(),
        };
        KLDivLoss::default().reduction(reduction).log_target(c.bool("log_target")?)
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.BCELoss", "weight=None, size_average=None, reduce=None, reduction='mean'", |c| {
        let loss = BCELoss::default().reduction(options::reduction(c)?);
        weighted(c, "weight", loss, BCELoss::weight)?
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.BCEWithLogitsLoss", "weight=None, size_average=None, reduce=None, reduction='mean', pos_weight=None", |c| {
        let loss = BCEWithLogitsLoss::default().reduction(options::reduction(c)?);
        let loss = weighted(c, "weight", loss, BCEWithLogitsLoss::weight)?;
        weighted(c, "pos_weight", loss, BCEWithLogitsLoss::pos_weight)?
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.MarginRankingLoss", "margin=0.0, size_average=None, reduce=None, reduction='mean'", |c| {
        MarginRankingLoss::default().reduction(options::reduction(c)?).margin(c.float("margin")?)
    }, "input1, input2, target", |m, x| {
        m.forward(x.input()?, x.tensor("input2")?, x.tensor("target")?)?
    };
    "nn.HingeEmbeddingLoss", "margin=1.0, size_average=None, reduce=None, reduction='mean'", |c| {
        HingeEmbeddingLoss::default().reduction(options::reduction(c)?).margin(c.float("margin")?)
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.CosineEmbeddingLoss", "margin=0.0, size_average=None, reduce=None, reduction='mean'", |c| {
        CosineEmbeddingLoss::default().reduction(options::reduction(c)?).margin(c.float("margin")?)
    }, "input1, input2, target", |m, x| {
        m.forward(x.input()?, x.tensor("input2")?, x.tensor("target")?)?
    };
    "nn.SoftMarginLoss", LOSS, |c| SoftMarginLoss::default().reduction(options::reduction(c)?),
        PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.MultiMarginLoss", "p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction='mean'", |c| {
        let loss = MultiMarginLoss::default().reduction(options::reduction(c)?);
        let loss = loss.p(c.int::<i64>("p")?).margin(c.float("margin")?);
        weighted(c, "weight", loss, MultiMarginLoss::weight)?
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.MultiLabelMarginLoss", LOSS, |c| MultiLabelMarginLoss::default().reduction(options::reduction(c)?),
        PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.MultiLabelSoftMarginLoss", "weight=None, size_average=None, reduce=None, reduction='mean'", |c| {
        let loss = MultiLabelSoftMarginLoss::default().reduction(options::reduction(c)?);
        weighted(c, "weight", loss, MultiLabelSoftMarginLoss::weight)?
    }, PAIR, |m, x| m.forward(x.input()?, x.tensor("target")?)?;
    "nn.CTCLoss", "blank=0, reduction='mean', zero_infinity=False", |c| {
        let loss = CTCLoss::default().reduction(options::reduction(c)?).blank(c.int::<usize>("blank")?);
        loss.zero_infinity(c.bool("zero_infinity")?)
    }, "log_probs, targets, input_lengths, target_lengths", |m, x| {
        let (inputs, targets) = (options::lengths(x, "input_lengths")?, options::lengths(x, "target_lengths")?);
        m.forward(x.input()?, x.tensor("targets")?, &inputs, &targets)?
    };

    "nn.RNN", RNN, |c| RNN::new(c.int("input_size")?, c.int("hidden_size")?, recurrent(c)?.nonlinearity(nonlinearity(c)?))?,
        "input, hx=None", |m, x| m.forward(x.input()?, x.optional("hx")?)?;
    "nn.GRU", GATED, |c| GRU::new(c.int("input_size")?, c.int("hidden_size")?, recurrent(c)?)?,
        "input, hx=None", |m, x| m.forward(x.input()?, x.optional("hx")?)?;
    "nn.LSTM", GATED, |c| LSTM::new(c.int("input_size")?, c.int("hidden_size")?, recurrent(c)?)?,
        "input, hx=None", |m, x| {
            let (output, (h, c)) = m.forward(x.input()?, states(x)?)?;
            Output::List(vec![output.into(), (h, c).into()])
        };
    "nn.RNNCell", "input_size, hidden_size, bias=True, nonlinearity='tanh'", |c| {
        let cell = RNNCell::new(c.int("input_size")?, c.int("hidden_size")?, nonlinearity(c)?)?;
        if c.bool("bias")? { cell } else { cell.without_bias() }
    }, "input, hx=None", |m, x| m.forward(x.input()?, x.optional("hx")?)?;
    "nn.GRUCell", "input_size, hidden_size, bias=True", |c| {
        let cell = GRUCell::new(c.int("input_size")?, c.int("hidden_size")?)?;
        if c.bool("bias")? { cell } else { cell.without_bias() }
    }, "input, hx=None", |m, x| m.forward(x.input()?, x.optional("hx")?)?;
    "nn.LSTMCell", "input_size, hidden_size, bias=True", |c| {
        let cell = LSTMCell::new(c.int("input_size")?, c.int("hidden_size")?)?;
        if c.bool("bias")? { cell } else { cell.without_bias() }
    }, "input, hx=None", |m, x| m.forward(x.input()?, states(x)?)?;
    "nn.MultiheadAttention", ATTENTION, |c| {
        let options = MultiheadAttentionOptions {
            dropout: c.float("dropout")?,
            bias: c.bool("bias")?,
            add_bias_kv: c.bool("add_bias_kv")?,
            add_zero_attn: c.bool("add_zero_attn")?,
            kdim: c.maybe_int("kdim")?,
            vdim: c.maybe_int("vdim")?,
            batch_first: c.bool("batch_first")?,
        };
        MultiheadAttention::new(c.int("embed_dim")?, c.int("num_heads")?, options)?
    }, "query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True, is_causal=False", |m, x| {
        let masks = AttentionMasks {
            key_padding_mask: x.optional("key_padding_mask")?,
            attn_mask: x.optional("attn_mask")?,
            need_weights: x.bool("need_weights")?,
            average_attn_weights: x.bool("average_attn_weights")?,
        };
        let (output, weights) = m.forward(x.input()?, x.tensor("key")?, x.tensor("value")?, masks)?;
        let weights = weights.map_or(Output::Value(Value::None), Output::from);
        Output::List(vec![output.into(), weights])
    };
    "nn.TransformerEncoderLayer", ENCODER_LAYER, |c| {
        TransformerEncoderLayer::new(c.int("d_model")?, c.int("nhead")?, transformer(c)?)?
    }, "src, src_mask=None, src_key_padding_mask=None, is_causal=False", |m, x| {
        m.forward(x.input()?, masks(x, "src")?)?
    };
    "nn.TransformerDecoderLayer", ENCODER_LAYER, |c| {
        TransformerDecoderLayer::new(c.int("d_model")?, c.int("nhead")?, transformer(c)?)?
    }, DECODED, |m, x| {
        m.forward(x.input()?, x.tensor("memory")?, masks(x, "tgt")?, masks(x, "memory")?)?
    };
    "nn.TransformerEncoder", ENCODER, |c| {
        let layer = TransformerEncoderLayer::new(c.int("d_model")?, c.int("nhead")?, transformer(c)?)?;
        c.only("norm", "None")?;
        TransformerEncoder::new(&layer, c.int("num_layers")?, None)?
    }, "src, mask=None, src_key_padding_mask=None, is_causal=None", |m, x| {
        let masks = SequenceMasks {
            mask: x.optional("mask")?,
            key_padding_mask: x.optional("src_key_padding_mask")?,
        };
        m.forward(x.input()?, masks)?
    };
    "nn.Transformer", TRANSFORMER, |c| {
        let layers = [c.int("num_encoder_layers")?, c.int("num_decoder_layers")?];
        Transformer::new(c.int("d_model")?, c.int("nhead")?, layers, transformer(c)?)?
    }, TRANSFORMED, |m, x| {
        m.forward(x.input()?, x.tensor("tgt")?, masks(x, "src")?, masks(x, "tgt")?, masks(x, "memory")?)?
    };
}

const ENCODER: &str = "num_layers, norm=None, enable_nested_tensor=True, mask_check=True, d_model=None, nhead=None, \
     dim_feedforward=2048, dropout=0.1, activation='relu', layer_norm_eps=1e-05, batch_first=False, norm_first=False, \
     bias=True";
const DECODED: &str = "tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, \
     memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False";
const TRANSFORMED: &str = "src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None, \
     tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None, \
     memory_is_causal=False";

pools! {
    "nn.MaxPool1d", MAX_POOL, |c| MaxPool1d::new(c.each::<1>("kernel_size")?, options::largest(c)?);
    "nn.MaxPool2d", MAX_POOL, |c| MaxPool2d::new(c.each::<2>("kernel_size")?, options::largest(c)?);
    "nn.MaxPool3d", MAX_POOL, |c| MaxPool3d::new(c.each::<3>("kernel_size")?, options::largest(c)?);
    "nn.AdaptiveMaxPool1d", ADAPTIVE_MAX, |c| AdaptiveMaxPool1d::new(options::sizes(c)?);
    "nn.AdaptiveMaxPool2d", ADAPTIVE_MAX, |c| AdaptiveMaxPool2d::new(options::sizes(c)?);
    "nn.AdaptiveMaxPool3d", ADAPTIVE_MAX, |c| AdaptiveMaxPool3d::new(options::sizes(c)?);
    "nn.FractionalMaxPool2d", FRACTIONAL, |c| {
        let pool = FractionalMaxPool2d::new(c.each::<2>("kernel_size")?, options::fractional(c)?);
        pool.random_samples(c.optional("_random_samples")?.cloned())
    };
    "nn.FractionalMaxPool3d", FRACTIONAL, |c| {
        let pool = FractionalMaxPool3d::new(c.each::<3>("kernel_size")?, options::fractional(c)?);
        pool.random_samples(c.optional("_random_samples")?.cloned())
    };
}

const ADAPTIVE_MAX: &str = "output_size, return_indices=False";

/// Padding around each of `N` dimensions; one number stands for all.
fn around<const N: usize>(c: &Call) -> Called<Vec<isize>> {
    match &c.ints("padding")?[..] {
        [one] => Ok(vec![*one; 2 * N]),
        several => Ok(several.to_vec()),
    }
}

/// The loss with a tensor, if there is one.
fn weighted<L>(c: &Call, name: &str, loss: L, with: fn(L, Tensor) -> L) -> Called<L> {
    Ok(match c.optional(name)? {
        Some(weight) => with(loss, weight.clone()),
        None => loss,
    })
}

fn recurrent(c: &Call) -> Called<RNNOptions> {
    Ok(RNNOptions {
        num_layers: c.int("num_layers")?,
        bias: c.bool("bias")?,
        batch_first: c.bool("batch_first")?,
        dropout: c.float("dropout")?,
        bidirectional: c.bool("bidirectional")?,
        nonlinearity: RNNNonlinearity::Tanh,
        proj_size: c.int("proj_size")?,
    })
}

fn nonlinearity(c: &Call) -> Called<RNNNonlinearity> {
    match c.text("nonlinearity")? {
        "tanh" => Ok(RNNNonlinearity::Tanh),
        "relu" => Ok(RNNNonlinearity::Relu),
        other => untyped(format!("nonlinearity={other}")),
    }
}

/// Hidden and cell state.
fn states(c: &Call) -> Called<Option<(&Tensor, &Tensor)>> {
    match c.has("hx") {
        true => match c.tensors("hx")?[..] {
            [h, c] => Ok(Some((h, c))),
            _ => missing("other than two states"),
        },
        false => Ok(None),
    }
}

fn transformer(c: &Call) -> Called<TransformerOptions> {
    Ok(TransformerOptions {
        dim_feedforward: c.int("dim_feedforward")?,
        dropout: c.float("dropout")?,
        activation: match c.text("activation")? {
            "relu" => TransformerActivation::Relu,
            "gelu" => TransformerActivation::Gelu,
            other => return missing(format!("activation={other}")),
        },
        layer_norm_eps: c.float("layer_norm_eps")?,
        batch_first: c.bool("batch_first")?,
        norm_first: c.bool("norm_first")?,
        bias: c.bool("bias")?,
    })
}

/// The masks of a sequence, by its name.
fn masks<'a>(c: &'a Call, name: &str) -> Called<SequenceMasks<'a>> {
    Ok(SequenceMasks {
        mask: c.optional(&format!("{name}_mask"))?,
        key_padding_mask: c.optional(&format!("{name}_key_padding_mask"))?,
    })
}
