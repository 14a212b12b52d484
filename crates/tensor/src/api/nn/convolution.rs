//! Convolutions and transposed convolutions of 1, 2 and 3 dimensions.
//!
//! Devices compute the two-dimensional ones of real floats. Convolutions of one dimension are
//! images of height 1. With three dimensions, the elements of a window along the first dimension
//! count as channels. Complex numbers are pairs of real channels, and integers are products of
//! matrices.

use rustorch_ir::ops::{Concat, Conv2d, ConvTranspose2d, Slice};
use rustorch_ir::{DType, OpError, Shape};

use crate::Tensor;
use crate::api::amp::{lowered, lowered_if_some};
use crate::args::setting::Converted;
use crate::args::windowed::window_options;
use crate::error::{RusTorchError, RusTorchResult, require};

/// Zeros before and after each dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConvPadding<const N: usize> {
    /// The same padding on each side.
    Each([usize; N]),
    /// Padding that keeps the size; an odd zero goes to the end. This is PyTorch's `'same'`. It
    /// needs stride 1.
    Same,
    /// No padding: PyTorch's `'valid'`.
    Valid,
}

impl<const N: usize> From<usize> for ConvPadding<N> {
    fn from(padding: usize) -> Self {
        Self::Each([padding; N])
    }
}

impl<const N: usize> From<[usize; N]> for ConvPadding<N> {
    fn from(padding: [usize; N]) -> Self {
        Self::Each(padding)
    }
}

/// The optional arguments of a convolution of `N` dimensions:
/// `ConvOptions::default().stride(2).padding(1)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConvOptions<const N: usize> {
    /// Distance between windows.
    pub stride: [usize; N],
    /// Zeros around the operand.
    pub padding: ConvPadding<N>,
    /// Distance between the elements of a window.
    pub dilation: [usize; N],
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
}

impl<const N: usize> Default for ConvOptions<N> {
    fn default() -> Self {
        Self {
            stride: [1; N],
            padding: ConvPadding::Valid,
            dilation: [1; N],
            groups: 1,
        }
    }
}

/// The optional arguments of a transposed convolution of `N` dimensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConvTransposeOptions<const N: usize> {
    /// Distance between the windows of neighbouring elements.
    pub stride: [usize; N],
    /// Indices cut from each side of the result.
    pub padding: [usize; N],
    /// Indices added at the end of the result; fewer than the stride or the dilation.
    pub output_padding: [usize; N],
    /// Distance between the elements of a window.
    pub dilation: [usize; N],
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
}

impl<const N: usize> Default for ConvTransposeOptions<N> {
    fn default() -> Self {
        Self {
            stride: [1; N],
            padding: [0; N],
            output_padding: [0; N],
            dilation: [1; N],
            groups: 1,
        }
    }
}

impl<const N: usize> Converted for ConvPadding<N> {}

window_options! {
    ConvOptions: [stride, dilation] [] {padding: ConvPadding<N>, groups: usize};
    ConvTransposeOptions: [stride, padding, output_padding, dilation] [] {groups: usize};
}

/// One method for each line: documentation, name, number of dimensions, options, how.
macro_rules! convolutions {
    ($($doc:literal $name:ident = $how:ident::<$n:literal>($options:ident);)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// The batch dimension of `self` is optional. Takes numbers of one dtype.
            ///
            /// # Errors
            /// Fails for unsupported shapes or dtypes, or for an empty result. Also fails for a
            /// stride, dilation or number of groups of 0. Also fails for `Same` with another stride
            /// than 1.
            pub fn $name(
                &self,
                weight: &Self,
                bias: Option<&Self>,
                options: &$options<$n>,
            ) -> RusTorchResult<Self> {
                const NAME: &str = stringify!($name);
                let [x, weight] = &lowered(NAME, [self, weight])?;
                let bias = lowered_if_some(NAME, bias)?;
                x.$how(NAME, weight, bias.as_deref(), options)
            })*
        }
    };
}

convolutions! {
    "Convolution of `self` `[n, c, l]` with `weight` `[o, c / groups, k]` and `bias` `[o]`: \
     `[n, o, l']`."
    conv1d = convolved::<1>(ConvOptions);
    "Convolution of `self` `[n, c, h, w]` with `weight` `[o, c / groups, kh, kw]` and `bias` \
     `[o]`: `[n, o, h', w']`."
    conv2d = convolved::<2>(ConvOptions);
    "Convolution of `self` `[n, c, d, h, w]` with `weight` `[o, c / groups, kd, kh, kw]` and \
     `bias` `[o]`: `[n, o, d', h', w']`."
    conv3d = convolved::<3>(ConvOptions);
    "Transposed convolution of `self` `[n, c, l]` with `weight` `[c, o / groups, k]` and `bias` \
     `[o]`: `[n, o, l']`."
    conv_transpose1d = spread::<1>(ConvTransposeOptions);
    "Transposed convolution of `self` `[n, c, h, w]` with `weight` `[c, o / groups, kh, kw]` and \
     `bias` `[o]`: `[n, o, h', w']`."
    conv_transpose2d = spread::<2>(ConvTransposeOptions);
    "Transposed convolution of `self` `[n, c, d, h, w]` with `weight` \
     `[c, o / groups, kd, kh, kw]` and `bias` `[o]`: `[n, o, d', h', w']`."
    conv_transpose3d = spread::<3>(ConvTransposeOptions);
}

/// Operands of a convolution, with a batch.
struct Conv<'a> {
    name: &'static str,
    x: Tensor,
    weight: &'a Tensor,
    bias: Option<&'a Tensor>,
    groups: usize,
}

impl<'a> Conv<'a> {
    /// Checks common to all convolutions. Also returns whether there was a batch.
    fn new(
        name: &'static str,
        dims: usize,
        [x, weight]: [&'a Tensor; 2],
        bias: Option<&'a Tensor>,
        groups: usize,
    ) -> RusTorchResult<(Self, bool)> {
        let (batched, has_batch) = x.with_batch(name, dims)?;
        let expected = format_args!("a weight of rank {}", dims + 2);
        require(name, weight.rank() == dims + 2, expected, weight.ty())?;
        let same = [Some(weight), bias].into_iter().flatten();
        for operand in same {
            let got = format_args!("{} and {}", x.ty(), operand.ty());
            let same = x.dtype() == operand.dtype();
            require(name, same, "operands of one dtype", got)?;
        }
        let dtype = x.dtype();
        let legal = dtype.is_float() || dtype.is_complex() || dtype.is_int();
        require(name, legal, "numbers", x.ty())?;
        require(name, groups > 0, "at least one group", groups)?;
        let conv = Self {
            name,
            x: batched,
            weight,
            bias,
            groups,
        };
        Ok((conv, has_batch))
    }

    /// The same with other operands, without a bias.
    fn with<'b>(&self, x: Tensor, weight: &'b Tensor) -> Conv<'b> {
        Conv {
            name: self.name,
            x,
            weight,
            bias: None,
            groups: self.groups,
        }
    }

    /// The bias added to a result that has none yet.
    fn plus_bias(&self, y: &Tensor, channels: usize) -> RusTorchResult<Tensor> {
        let Some(bias) = self.bias else {
            return Ok(y.clone());
        };
        let expected = format_args!("a bias [{channels}]");
        require(self.name, *bias.shape() == [channels], expected, bias.ty())?;
        y.add(&bias.by_channel(y.rank())?)
    }

    fn operands(&self) -> Vec<&Tensor> {
        [&self.x, self.weight]
            .into_iter()
            .chain(self.bias)
            .collect()
    }

    /// In one dimension: `apply` on images of one row.
    fn of_rows(
        &self,
        apply: impl Fn(&[&Tensor]) -> RusTorchResult<Tensor>,
    ) -> RusTorchResult<Tensor> {
        let (x, weight) = (self.x.unsqueeze(2)?, self.weight.unsqueeze(2)?);
        let operands: Vec<&Tensor> = [&x, &weight].into_iter().chain(self.bias).collect();
        apply(&operands)?.squeeze(2)
    }

    fn unfit(&self) -> RusTorchError {
        let expected = "x with groups times the weight's channels, and a window that fits";
        let got = format_args!(
            "{} and {}, {} groups",
            self.x.ty(),
            self.weight.ty(),
            self.groups
        );
        OpError::new(self.name, expected, got).into()
    }

    /// A complex convolution: a real one by `of` with twice the channels. Each group has the real
    /// parts first.
    fn complex(
        &self,
        [rows, columns]: [usize; 2],
        of: impl Fn(&Conv) -> RusTorchResult<Tensor>,
    ) -> RusTorchResult<Tensor> {
        let groups = self.groups;
        let (re, im) = (self.weight.real()?, self.weight.imag()?);
        // [re, -im; im, re], by parts of the result and of the operand.
        let minus = im.neg()?;
        let (re, im) = (self.grouped(&re)?, self.grouped(&im)?);
        let minus = self.grouped(&minus)?;
        let pair = |a: &Tensor, b: &Tensor, dim| {
            let dim = dim as isize + 1;
            Tensor::cat(&[a, b], dim)
        };
        let (first, second) = (pair(&re, &minus, rows)?, pair(&im, &re, rows)?);
        let weight = pair(&first, &second, columns)?.flatten(0, 1)?;
        let x = parts(&self.x, groups)?;
        let y = of(&self.with(x, &weight))?;
        let shape = y.shape();
        let split = [&[shape[0], groups, 2, shape[1] / groups / 2], &shape[2..]].concat();
        let y = y.reshape(&split[..])?;
        let y = Tensor::complex(&y.select(2, 0)?, &y.select(2, 1)?)?.flatten(1, 2)?;
        self.plus_bias(&y, y.shape()[1])
    }

    /// `[g, channels / g, …]` of a weight.
    fn grouped(&self, weight: &Tensor) -> RusTorchResult<Tensor> {
        let shape = weight.shape();
        if !shape[0].is_multiple_of(self.groups) {
            return Err(self.unfit());
        }
        let shape = [&[self.groups, shape[0] / self.groups], &shape[1..]].concat();
        weight.reshape(&shape[..])
    }
}

/// The channels of complex `x` `[n, c, …]`, real and imaginary parts behind each other by groups.
fn parts(x: &Tensor, groups: usize) -> RusTorchResult<Tensor> {
    let shape = x.shape();
    let split = [&[shape[0], groups, shape[1] / groups], &shape[2..]].concat();
    let (re, im) = (x.real()?, x.imag()?);
    let (re, im) = (re.reshape(&split[..])?, im.reshape(&split[..])?);
    Tensor::cat(&[&re, &im], 2)?.flatten(1, 2)
}

impl Tensor {
    pub(super) fn convolved<const N: usize>(
        &self,
        name: &'static str,
        weight: &Self,
        bias: Option<&Self>,
        options: &ConvOptions<N>,
    ) -> RusTorchResult<Self> {
        let (mut conv, has_batch) = Conv::new(name, N, [self, weight], bias, options.groups)?;
        let lengths = &weight.shape()[2..];
        let steps = options.stride.iter().chain(&options.dilation);
        let expected = "stride and dilation above 0";
        require(
            name,
            steps.clone().all(|&n| n > 0),
            expected,
            format!("{options:?}"),
        )?;
        let (mut padding, mut behind) = ([0; N], [(0, 0); N]);
        match options.padding {
            ConvPadding::Valid => {}
            ConvPadding::Each(each) => padding = each,
            ConvPadding::Same => {
                let expected = "stride 1 to keep the size";
                let is_dense = options.stride.iter().all(|&s| s == 1);
                require(
                    name,
                    is_dense,
                    expected,
                    format_args!("{:?}", options.stride),
                )?;
                for i in 0..N {
                    let total = options.dilation[i].checked_mul(lengths[i].saturating_sub(1));
                    let total = total.ok_or_else(|| conv.unfit())?;
                    (padding[i], behind[i].1) = (total / 2, total % 2);
                }
            }
        }
        conv.x = conv.x.surrounded(name, &behind, 0)?;
        let sides = Sides {
            stride: &options.stride,
            padding: &padding,
            dilation: &options.dilation,
        };
        let dtype = self.dtype();
        let y = match (dtype.is_complex(), dtype.is_float()) {
            (true, _) if conv.x.shape()[1].is_multiple_of(conv.groups) => {
                conv.complex([1, 0], |conv| convolve(conv, &sides))?
            }
            (true, _) => return Err(conv.unfit()),
            (_, true) => convolve(&conv, &sides)?,
            (_, false) => convolve_integers(&conv, &sides)?,
        };
        y.without_batch(has_batch)
    }

    pub(super) fn spread<const N: usize>(
        &self,
        name: &'static str,
        weight: &Self,
        bias: Option<&Self>,
        options: &ConvTransposeOptions<N>,
    ) -> RusTorchResult<Self> {
        if N == 3 && matches!(self.dtype(), DType::F16 | DType::BF16) {
            // Its planes are added up here.
            let [x, weight] = [self.widened(name)?, weight.widened(name)?];
            let bias = bias.map(|bias| bias.widened(name)).transpose()?;
            let y = x.spread(name, &weight, bias.as_ref(), options)?;
            return y.cast(name, self.dtype());
        }
        let (conv, has_batch) = Conv::new(name, N, [self, weight], bias, options.groups)?;
        let sides = Sides {
            stride: &options.stride,
            padding: &options.padding,
            dilation: &options.dilation,
        };
        let legal = (0..N).all(|i| {
            let (stride, dilation) = (options.stride[i], options.dilation[i]);
            stride > 0 && dilation > 0 && options.output_padding[i] < stride.max(dilation)
        });
        let expected = "stride and dilation above 0, output_padding below one of them";
        require(name, legal, expected, format_args!("{options:?}"))?;
        // What is behind that strides reach belongs to windows of zeros, which gradients then know of.
        let zeros: Vec<(usize, usize)> = (0..N)
            .map(|i| (0, options.output_padding[i] / options.stride[i]))
            .collect();
        let conv = Conv {
            x: conv.x.surrounded(name, &zeros, 0)?,
            ..conv
        };
        let behind: [usize; N] =
            std::array::from_fn(|i| options.output_padding[i] % options.stride[i]);
        let behind = &behind;
        let (dtype, channels) = (self.dtype(), conv.x.shape()[1]);
        let fits = weight.shape()[0] == channels && channels.is_multiple_of(conv.groups);
        require(
            name,
            fits,
            "a weight [c, o / groups, ..] for x [n, c, ..]",
            weight.ty(),
        )?;
        let y = match (dtype.is_complex(), dtype.is_float()) {
            (true, _) => conv.complex([0, 1], |conv| transposed(conv, &sides, behind))?,
            (_, true) => transposed(&conv, &sides, behind)?,
            (_, false) => transposed_integers(&conv, &sides, behind)?,
        };
        y.without_batch(has_batch)
    }
}

/// Layout of windows, for each dimension.
struct Sides<'a> {
    stride: &'a [usize],
    padding: &'a [usize],
    dilation: &'a [usize],
}

impl Sides<'_> {
    /// Number of windows of the lengths `lengths` in a padded dimension of `size`.
    fn count(&self, i: usize, size: usize, length: usize) -> Option<usize> {
        let reach = self.dilation[i].checked_mul(length.checked_sub(1)?)?;
        Some(size.checked_sub(reach.checked_add(1)?)? / self.stride[i] + 1)
    }
}

/// The last two of a list; of one, behind `first`.
fn last_two(list: &[usize], first: usize) -> [usize; 2] {
    match list {
        [one] => [first, *one],
        [.., a, b] => [*a, *b],
        [] => [first; 2],
    }
}

/// A convolution of real floats.
fn convolve(conv: &Conv, sides: &Sides) -> RusTorchResult<Tensor> {
    let op = Conv2d {
        stride: last_two(sides.stride, 1),
        padding: last_two(sides.padding, 0),
        dilation: last_two(sides.dilation, 1),
        groups: conv.groups,
    };
    let apply = |operands: &[&Tensor]| Tensor::apply(conv.name, op.clone(), operands);
    match sides.stride.len() {
        1 => conv.of_rows(apply),
        2 => apply(&conv.operands()),
        _ => {
            let (planes, count) = depth_as_channels(conv, sides)?;
            let weight = conv.weight.flatten(1, 2)?;
            let operands: Vec<&Tensor> = [&planes, &weight].into_iter().chain(conv.bias).collect();
            from_planes(&apply(&operands)?, count)
        }
    }
}

/// `[n · d', c · kd, h, w]` of `[n, c, d, h, w]`: the planes that the windows along `d` have, as
/// channels; and their number `d'`.
fn depth_as_channels(conv: &Conv, sides: &Sides) -> RusTorchResult<(Tensor, usize)> {
    let pad = sides.padding[0];
    let x = conv
        .x
        .surrounded(conv.name, &[(pad, pad), (0, 0), (0, 0)], 0)?;
    let length = conv.weight.shape()[2];
    let count = sides.count(0, x.shape()[2], length);
    let Some(count) = count.filter(|_| length > 0) else {
        return Err(conv.unfit());
    };
    let x = x.permute([0, 2, 1, 3, 4])?;
    let planes = (0..length)
        .map(|tap| every(&x, 1, tap * sides.dilation[0], count, sides.stride[0])?.unsqueeze(3))
        .collect::<RusTorchResult<Vec<_>>>()?;
    let planes = match &planes[..] {
        [one] => one.clone(),
        several => {
            let several: Vec<&Tensor> = several.iter().collect();
            Tensor::apply(conv.name, Concat { dim: 3 }, &several)?
        }
    };
    Ok((planes.flatten(2, 3)?.flatten(0, 1)?, count))
}

/// `[n, c, d, h, w]` of planes `[n · d, c, h, w]`.
fn from_planes(planes: &Tensor, depth: usize) -> RusTorchResult<Tensor> {
    let &[images, c, h, w] = planes.shape() else {
        return Ok(planes.clone());
    };
    let apart = planes.reshape([images / depth.max(1), depth, c, h, w])?;
    apart.permute([0, 2, 1, 3, 4])
}

/// `count` indices of `dim`, a `step` apart.
fn every(
    x: &Tensor,
    dim: usize,
    start: usize,
    count: usize,
    step: usize,
) -> RusTorchResult<Tensor> {
    let slice = Slice {
        dim,
        start,
        end: start + (count.max(1) - 1) * step + usize::from(count > 0),
        step,
    };
    Tensor::apply("conv", slice, &[x])
}

/// A convolution of integers, exact but for overflow: a product of matrices for each element of the
/// windows.
fn convolve_integers(conv: &Conv, sides: &Sides) -> RusTorchResult<Tensor> {
    let around: Vec<_> = sides.padding.iter().map(|&n| (n, n)).collect();
    let x = conv.x.surrounded(conv.name, &around, 0)?;
    let (lengths, channels) = (&conv.weight.shape()[2..], conv.weight.shape()[1]);
    let fits = channels * conv.groups == x.shape()[1];
    let counts = (lengths.iter().enumerate()).map(|(i, &n)| sides.count(i, x.shape()[2 + i], n));
    let Some(counts) = counts.collect::<Option<Vec<_>>>().filter(|_| fits) else {
        return Err(conv.unfit());
    };
    // [1, g, o / g, c / g, taps] and, for each of them, [n, g, c / g, places].
    let weight = conv.grouped(conv.weight)?.flatten(3, -1)?.unsqueeze(0)?;
    let shape = [x.shape()[0], conv.groups, channels, counts.iter().product()];
    let mut sum: Option<Tensor> = None;
    for tap in 0..lengths.iter().product() {
        let mut window = x.clone();
        let mut rest: usize = tap;
        for i in (0..lengths.len()).rev() {
            let start = rest % lengths[i] * sides.dilation[i];
            window = every(&window, 2 + i, start, counts[i], sides.stride[i])?;
            rest /= lengths[i];
        }
        let part = weight
            .select(-1, tap as isize)?
            .matmul(&window.reshape(shape)?)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    let outputs = conv.weight.shape()[0];
    let shape: Shape = [x.shape()[0], outputs].into_iter().chain(counts).collect();
    let y = sum.ok_or_else(|| conv.unfit())?.reshape(&shape)?;
    conv.plus_bias(&y, outputs)
}

/// A transposed convolution of real floats.
fn transposed(conv: &Conv, sides: &Sides, behind: &[usize]) -> RusTorchResult<Tensor> {
    let op = ConvTranspose2d {
        stride: last_two(sides.stride, 1),
        padding: last_two(sides.padding, 0),
        output_padding: last_two(behind, 0),
        dilation: last_two(sides.dilation, 1),
        groups: conv.groups,
    };
    let apply = |operands: &[&Tensor]| Tensor::apply(conv.name, op.clone(), operands);
    match sides.stride.len() {
        1 => conv.of_rows(apply),
        2 => apply(&conv.operands()),
        _ => {
            // The elements of a window along the first dimension are channels of the result, which
            // are then added where they belong.
            let (depth, length) = (conv.x.shape()[2], conv.weight.shape()[2]);
            let planes = conv.x.permute([0, 2, 1, 3, 4])?.flatten(0, 1)?;
            let y = apply(&[&planes, &conv.weight.flatten(1, 2)?])?;
            let &[images, channels, h, w] = y.shape() else {
                return Err(conv.unfit());
            };
            let outputs = channels / length.max(1);
            let y = y.reshape([images / depth.max(1), depth, outputs, length, h, w])?;
            let y = added_along_depth(conv, &y, sides, behind[0])?;
            conv.plus_bias(&y, outputs)
        }
    }
}

/// `[n, o, d', h, w]` of `[n, d, o, kd, h, w]`: the elements of windows along `d` where they overlap.
fn added_along_depth(
    conv: &Conv,
    y: &Tensor,
    sides: &Sides,
    behind: usize,
) -> RusTorchResult<Tensor> {
    let (depth, length) = (y.shape()[1], y.shape()[3]);
    let (stride, dilation, padding) = (sides.stride[0], sides.dilation[0], sides.padding[0]);
    let whole = (|| {
        let reach = dilation.checked_mul(length.checked_sub(1)?)?;
        let spread = stride.checked_mul(depth.checked_sub(1)?)?;
        spread
            .checked_add(reach)?
            .checked_add(behind)?
            .checked_add(1)
    })();
    let size = whole.and_then(|whole| whole.checked_sub(padding.checked_mul(2)?));
    let (Some(whole), Some(size @ 1..)) = (whole, size) else {
        return Err(conv.unfit());
    };
    let y = y.permute([0, 2, 1, 3, 4, 5])?;
    let mut sum: Option<Tensor> = None;
    for tap in 0..length {
        let spaced = spaced(conv.name, &y.select(3, tap as isize)?, 2, stride)?;
        let before = tap * dilation;
        let after = whole - before - spaced.shape()[2];
        let placed = spaced.surrounded(conv.name, &[(before, after), (0, 0), (0, 0)], 0)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&placed)?,
            None => placed,
        });
    }
    sum.ok_or_else(|| conv.unfit())?.narrow(2, padding, size)
}

/// Zeros between the indices of a dimension, which are then `stride` apart.
fn spaced(name: &'static str, x: &Tensor, dim: usize, stride: usize) -> RusTorchResult<Tensor> {
    let size = x.shape()[dim];
    if stride == 1 || size == 0 {
        return Ok(x.clone());
    }
    let apart = x.unsqueeze(dim as isize + 1)?;
    let mut pairs = vec![(0, 0); apart.rank() - dim - 1];
    pairs[0] = (0, stride - 1);
    let joined = apart
        .surrounded(name, &pairs, 0)?
        .flatten(dim as isize, dim as isize + 1)?;
    joined.narrow(dim as isize, 0, (size - 1) * stride + 1)
}

/// A transposed convolution of integers: a convolution of the operand with zeros between and around
/// its elements, with the windows turned around.
fn transposed_integers(conv: &Conv, sides: &Sides, behind: &[usize]) -> RusTorchResult<Tensor> {
    let dims = sides.stride.len();
    let mut x = conv.x.clone();
    let mut weight = conv.grouped(conv.weight)?.transpose(1, 2)?.flatten(0, 1)?;
    for (i, &behind) in behind.iter().enumerate().take(dims) {
        let (dim, length) = (2 + i, conv.weight.shape()[2 + i]);
        x = spaced(conv.name, &x, dim, sides.stride[i])?;
        let turned = Tensor::arange_with(length as i64 - 1, -1, -1, DType::I64)?;
        weight = weight.index_select(dim as isize, &turned)?;
        let reach = length.saturating_sub(1).saturating_mul(sides.dilation[i]);
        let mut pairs = vec![(0, 0); dims - i];
        pairs[0] = (reach, reach.saturating_add(behind));
        x = x.surrounded(conv.name, &pairs, 0)?;
        let padding = sides.padding[i];
        let cut = padding.saturating_mul(2);
        let size = x.shape()[dim]
            .checked_sub(cut)
            .ok_or_else(|| conv.unfit())?;
        x = x.narrow(dim as isize, padding, size)?;
    }
    let ones = vec![1; dims];
    let dense = Sides {
        stride: &ones,
        padding: &vec![0; dims],
        dilation: sides.dilation,
    };
    let conv = Conv {
        bias: conv.bias,
        ..conv.with(x, &weight)
    };
    convolve_integers(&conv, &dense)
}
