//! Initialisers: `torch.nn.init`. They overwrite a tensor's memory at once.

use rustorch_macros::track_calls;
use rustorch_tensor::linalg::QrMode;
use rustorch_tensor::{RusTorchResult, Tensor, no_grad};

use crate::error::{require, unexpected};

/// The nonlinearity after a layer, which decides the gain of its weights.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Nonlinearity {
    /// Linear, or a convolution: gain 1.
    #[default]
    Linear,
    /// Gain 1.
    Sigmoid,
    /// Gain 5/3.
    Tanh,
    /// Gain √2.
    Relu,
    /// Leaky ReLU with this slope below 0: gain √(2 / (1 + slope²)).
    LeakyRelu(f64),
    /// Gain 3/4.
    Selu,
}

/// The fan whose variance stays the same: inputs or outputs of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FanMode {
    /// The inputs: values keep their variance.
    #[default]
    FanIn,
    /// The outputs: gradients keep their variance.
    FanOut,
}

/// The recommended gain for a nonlinearity: `torch.nn.init.calculate_gain`.
pub fn calculate_gain(nonlinearity: Nonlinearity) -> f64 {
    match nonlinearity {
        Nonlinearity::Linear | Nonlinearity::Sigmoid => 1.0,
        Nonlinearity::Tanh => 5.0 / 3.0,
        Nonlinearity::Relu => 2f64.sqrt(),
        Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        Nonlinearity::Selu => 0.75,
    }
}

/// Connections into and out of a unit of a weight `[out, in, …]`.
pub(crate) fn fans(name: &'static str, weight: &Tensor) -> RusTorchResult<[usize; 2]> {
    match weight.shape() {
        [fan_out, fan_in, field @ ..] => {
            let field: usize = field.iter().product();
            Ok([fan_in * field, fan_out * field])
        }
        _ => Err(unexpected(
            name,
            "a weight of at least 2 dimensions",
            format!("{:?}", weight.shape()),
        )),
    }
}

/// Writes `drawn` over a tensor, also over one that a gradient is wanted of.
fn fill(tensor: &mut Tensor, drawn: &Tensor) -> RusTorchResult<()> {
    no_grad(|| tensor.copy_(&drawn.detach())?.eval().map(|_| ()))
}

/// Uniform numbers from `[low, high)`.
///
/// # Errors
/// Fails for a dtype other than floats and complex numbers.
#[track_calls]
pub fn uniform_(tensor: &mut Tensor, low: f64, high: f64) -> RusTorchResult<()> {
    let drawn = Tensor::uniform(low, high, tensor.shape(), tensor.dtype())?;
    fill(tensor, &drawn)
}

/// Normal numbers.
///
/// # Errors
/// Fails for a dtype other than floats and complex numbers, or a negative deviation.
#[track_calls]
pub fn normal_(tensor: &mut Tensor, mean: f64, std: f64) -> RusTorchResult<()> {
    require(
        "normal_",
        std >= 0.0,
        "a deviation that is not negative",
        std,
    )?;
    let drawn = Tensor::randn(tensor.shape(), tensor.dtype())?;
    fill(tensor, &drawn.mul(std)?.add(mean)?)
}

/// Normal numbers, drawn again while they are outside `[low, high]`.
///
/// # Errors
/// Fails for a dtype other than floats. Also the errors of [`Tensor::truncated_normal`].
#[track_calls]
pub fn trunc_normal_(
    tensor: &mut Tensor,
    mean: f64,
    std: f64,
    [low, high]: [f64; 2],
) -> RusTorchResult<()> {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    let drawn = Tensor::truncated_normal([mean, std], [low, high], shape, dtype)?;
    fill(tensor, &drawn)
}

/// Sets all elements to one number.
///
/// # Errors
/// Fails for a number that the dtype does not hold.
#[track_calls]
pub fn constant_(tensor: &mut Tensor, value: f64) -> RusTorchResult<()> {
    let filled = tensor.detach().full_like(value)?;
    fill(tensor, &filled)
}

/// Ones.
///
/// # Errors
/// Fails for a block format.
#[track_calls]
pub fn ones_(tensor: &mut Tensor) -> RusTorchResult<()> {
    constant_(tensor, 1.0)
}

/// Zeros.
///
/// # Errors
/// Fails for a block format.
#[track_calls]
pub fn zeros_(tensor: &mut Tensor) -> RusTorchResult<()> {
    constant_(tensor, 0.0)
}

/// Sets a matrix to the identity, as far as it reaches.
///
/// # Errors
/// Fails for a tensor that is not a matrix.
#[track_calls]
pub fn eye_(tensor: &mut Tensor) -> RusTorchResult<()> {
    let &[n, m] = tensor.shape() else {
        return Err(unexpected(
            "eye_",
            "a matrix",
            format!("{:?}", tensor.shape()),
        ));
    };
    let eye = Tensor::eye_of([n, m], tensor.dtype())?;
    fill(tensor, &eye)
}

/// Sets a convolution's weight `[out, in, …]` to the identity of as many channels as possible in
/// each group: 1 in the middle of the windows.
///
/// # Errors
/// Fails for an unsupported rank, or channels that the groups do not divide.
#[track_calls]
pub fn dirac_(tensor: &mut Tensor, groups: usize) -> RusTorchResult<()> {
    const NAME: &str = "dirac_";
    let shape = tensor.shape().to_vec();
    require(
        NAME,
        matches!(shape.len(), 3..=5),
        "a weight of rank 3 to 5",
        shape.len(),
    )?;
    let divides = groups > 0 && shape[0].is_multiple_of(groups);
    require(
        NAME,
        divides,
        format_args!("groups that divide {}", shape[0]),
        groups,
    )?;
    let (per_group, field) = (shape[0] / groups, &shape[2..]);
    let middle = field.iter().fold(0, |at, &size| at * size + size / 2);
    let size: usize = field.iter().product();
    let mut elements = vec![0f32; shape.iter().product()];
    for group in 0..groups {
        for channel in 0..per_group.min(shape[1]) {
            let row = (group * per_group + channel) * shape[1] + channel;
            elements[row * size + middle] = 1.0;
        }
    }
    let dirac = Tensor::from_vec(elements, &shape)?.to_dtype(tensor.dtype())?;
    fill(tensor, &dirac)
}

/// Uniform numbers, in a range that nearly keeps the variance of values and gradients
/// ([Glorot and Bengio](https://proceedings.mlr.press/v9/glorot10a.html)).
///
/// # Errors
/// Fails for fewer than 2 dimensions.
#[track_calls]
pub fn xavier_uniform_(tensor: &mut Tensor, gain: f64) -> RusTorchResult<()> {
    let bound = 3f64.sqrt() * xavier_std("xavier_uniform_", tensor, gain)?;
    uniform_(tensor, -bound, bound)
}

/// Normal numbers with the variance of [`xavier_uniform_`].
///
/// # Errors
/// Fails for fewer than 2 dimensions.
#[track_calls]
pub fn xavier_normal_(tensor: &mut Tensor, gain: f64) -> RusTorchResult<()> {
    let std = xavier_std("xavier_normal_", tensor, gain)?;
    normal_(tensor, 0.0, std)
}

fn xavier_std(name: &'static str, tensor: &Tensor, gain: f64) -> RusTorchResult<f64> {
    let [fan_in, fan_out] = fans(name, tensor)?;
    Ok(gain * (2.0 / (fan_in + fan_out) as f64).sqrt())
}

/// Uniform numbers, in a range that keeps the variance of values through a layer ([He et
/// al.](https://arxiv.org/abs/1502.01852)).
///
/// # Errors
/// Fails for fewer than 2 dimensions.
#[track_calls]
pub fn kaiming_uniform_(
    tensor: &mut Tensor,
    mode: FanMode,
    nonlinearity: Nonlinearity,
) -> RusTorchResult<()> {
    let bound = 3f64.sqrt() * kaiming_std("kaiming_uniform_", tensor, mode, nonlinearity)?;
    uniform_(tensor, -bound, bound)
}

/// Normal numbers with the variance of [`kaiming_uniform_`].
///
/// # Errors
/// Fails for fewer than 2 dimensions.
#[track_calls]
pub fn kaiming_normal_(
    tensor: &mut Tensor,
    mode: FanMode,
    nonlinearity: Nonlinearity,
) -> RusTorchResult<()> {
    let std = kaiming_std("kaiming_normal_", tensor, mode, nonlinearity)?;
    normal_(tensor, 0.0, std)
}

fn kaiming_std(
    name: &'static str,
    tensor: &Tensor,
    mode: FanMode,
    nonlinearity: Nonlinearity,
) -> RusTorchResult<f64> {
    let [fan_in, fan_out] = fans(name, tensor)?;
    let fan = match mode {
        FanMode::FanIn => fan_in,
        FanMode::FanOut => fan_out,
    };
    Ok(calculate_gain(nonlinearity) / (fan as f64).sqrt())
}

/// A matrix with orthogonal rows or columns, whichever are fewer, times `gain`; dimensions after
/// the first count as one ([Saxe et al.](https://arxiv.org/abs/1312.6120)).
///
/// # Errors
/// Fails for fewer than 2 dimensions.
#[track_calls]
pub fn orthogonal_(tensor: &mut Tensor, gain: f64) -> RusTorchResult<()> {
    const NAME: &str = "orthogonal_";
    require(
        NAME,
        tensor.rank() >= 2,
        "a tensor of at least 2 dimensions",
        format_args!("{:?}", tensor.shape()),
    )?;
    if tensor.numel() == 0 {
        return Ok(());
    }
    let rows = tensor.shape()[0];
    let columns = tensor.numel() / rows;
    let drawn = Tensor::randn([rows.max(columns), rows.min(columns)], tensor.dtype())?;
    let (q, r) = rustorch_tensor::linalg::qr(&drawn, QrMode::Reduced)?;
    // Signs of the diagonal make the distribution even.
    let q = q.mul(&r.diagonal(0, 0, 1)?.sign()?)?;
    let q = if rows < columns { q.t()? } else { q };
    fill(tensor, &q.reshape(tensor.shape())?.mul(gain)?)
}

/// Normal numbers, and zeros in the fraction `sparsity` of each column
/// ([Martens](https://icml.cc/Conferences/2010/papers/458.pdf)).
///
/// # Errors
/// Fails for a tensor that is not a matrix, or for a fraction outside `0..=1`.
#[track_calls]
pub fn sparse_(tensor: &mut Tensor, sparsity: f64, std: f64) -> RusTorchResult<()> {
    const NAME: &str = "sparse_";
    let &[rows, columns] = tensor.shape() else {
        return Err(unexpected(
            NAME,
            "a matrix",
            format!("{:?}", tensor.shape()),
        ));
    };
    require(
        NAME,
        (0.0..=1.0).contains(&sparsity),
        "a part of 0 to 1",
        sparsity,
    )?;
    let zeros = (sparsity * rows as f64).ceil() as i64;
    // The ranks of random numbers are a permutation of each column.
    let ranks = Tensor::rand([rows, columns], rustorch_ir::DType::F32)?;
    let ranks = ranks.argsort(0, false)?.argsort(0, false)?;
    let drawn = Tensor::randn([rows, columns], tensor.dtype())?.mul(std)?;
    let drawn = Tensor::where_(&ranks.lt(zeros)?, 0.0, &drawn)?;
    fill(tensor, &drawn)
}
