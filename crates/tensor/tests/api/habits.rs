//! Lines as users of PyTorch, candle, tch and burn write them: they compile as they stand, and do what
//! they say.

use half::{bf16, f16};
use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_runtime::DeviceType;
use rustorch_tensor::fft::Stft;
use rustorch_tensor::nn::{
    AttentionOptions, AvgPoolOptions, ConvOptions, ConvPadding, CrossEntropyOptions,
    InterpolateOptions, MaxPoolOptions, Reduction,
};
use rustorch_tensor::{
    Ellipsis, NewAxis, RusTorchResult, Tensor, assert_close, current_device, no_grad, set_device,
    tensor, with_device,
};

use crate::{Outcome, error};

/// Each expression is a tensor of that shape.
macro_rules! shapes {
    ($($line:expr => $shape:expr),* $(,)?) => {
        $({
            let expected: &[usize] = &$shape;
            assert_eq!($line?.shape(), expected, stringify!($line));
        })*
    };
}

#[test]
fn shapes_are_written_in_any_way() -> Outcome {
    let (rows, sizes) = (2usize, vec![2usize, 3]);
    shapes! {
        Tensor::zeros([2, 3], DType::F32) => [2, 3],
        Tensor::zeros((2, 3), DType::F32) => [2, 3],
        Tensor::zeros((rows, 3), DType::F32) => [2, 3],
        Tensor::ones(&sizes[..], DType::F32) => [2, 3],
        Tensor::ones(&sizes, DType::F32) => [2, 3],
        Tensor::ones(sizes.clone(), DType::F32) => [2, 3],
        Tensor::zeros(3, DType::F32) => [3],
        Tensor::zeros((), DType::F32) => [],
        Tensor::zeros([], DType::F32) => [],
        Tensor::full((2, 3), 1.5, DType::F32) => [2, 3],
        Tensor::full((2, 3), true, DType::Bool) => [2, 3],
        Tensor::randn((2, 3), DType::F32) => [2, 3],
        Tensor::rand([rows, rows], DType::F32) => [2, 2],
        Tensor::from_vec(vec![1.0f32; 6], (2, 3)) => [2, 3],
        Tensor::from_slice(&[1.0f32, 2.0], 2) => [2],
    }
    let x = Tensor::zeros((2, 3, 4), DType::F32)?;
    let (batch, dim) = (x.shape()[0], 2usize);
    shapes! {
        x.reshape((2, 12)) => [2, 12],
        x.reshape((2, ())) => [2, 12],
        x.reshape(((), 4)) => [6, 4],
        x.reshape([2, -1]) => [2, 12],
        x.reshape((batch, -1)) => [2, 12],
        x.reshape(24) => [24],
        x.reshape(vec![4, 6]) => [4, 6],
        x.view([-1, 4]) => [6, 4],
        x.permute((0, 2, 1)) => [2, 4, 3],
        x.permute([2, 0, 1]) => [4, 2, 3],
        x.transpose(1, 2) => [2, 4, 3],
        x.transpose(dim, 0i64) => [4, 3, 2],
        x.unsqueeze(dim) => [2, 3, 1, 4],
        x.sum(dim, false) => [2, 3],
        x.sum((0, 1), true) => [1, 1, 4],
        x.norm(2, 1, false) => [2, 4],
        x.sum(vec![0, 1], false) => [4],
        x.sum(.., false) => [],
        x.mean(-1i64, true) => [2, 3, 1],
        x.max([0, 2], false) => [3],
        x.argmax(dim, false) => [2, 3],
        x.argmax(None, false) => [],
        x.softmax(dim) => [2, 3, 4],
        x.expand((2, 3, 4)) => [2, 3, 4],
        x.flatten(0, 1) => [6, 4],
        x.select(dim, 0usize) => [2, 3],
    }
    Ok(())
}

#[test]
fn operators_stand_between_whatever_there_is() -> Outcome {
    let (x, y) = (tensor![1.0, 2.0], tensor![3.0, 4.0]);
    let (n, k): (usize, f32) = (2, 0.5);
    assert_close!((&x * 2)?, tensor![2.0, 4.0]);
    assert_close!((&x * 2.0)?, tensor![2.0, 4.0]);
    assert_close!((2.0 * &x)?, tensor![2.0, 4.0]);
    assert_close!((1 - &x)?, tensor![0.0, -1.0]);
    assert_close!((&x * n)?, tensor![2.0, 4.0]);
    assert_close!((&x * k)?, tensor![0.5, 1.0]);
    assert_close!((&x / 2u8)?, tensor![0.5, 1.0]);
    assert_close!((&x + f16::from_f32(1.5))?, tensor![2.5, 3.5]);
    assert_close!((bf16::from_f32(1.5) + &x)?, tensor![2.5, 3.5]);
    assert_close!((&x * 2.0 + &y)?, tensor![5.0, 8.0]);
    assert_close!((&x + &y * 2.0)?, tensor![7.0, 10.0]);
    assert_close!((&x - x.mean(0, true))?, tensor![-0.5, 0.5]);
    assert_close!(x.add(&y * 2.0)?, tensor![7.0, 10.0]);
    assert_close!(x.add(y.clone())?, tensor![4.0, 6.0]);
    assert_close!(x.maximum(n)?, tensor![2.0, 2.0]);
    assert_close!((-&x)?, tensor![-1.0, -2.0]);
    assert_eq!((&x * Complex::new(0.0f32, 1.0))?.dtype(), DType::Complex64);
    let whole = tensor![5, 6];
    assert_eq!((&whole % 4)?.to_vec1::<i64>()?, [1, 2]);
    assert_eq!((&whole & 4)?.to_vec1::<i64>()?, [4, 4]);
    assert_eq!((&whole | 1)?.to_vec1::<i64>()?, [5, 7]);
    assert_eq!((&whole ^ &whole)?.to_vec1::<i64>()?, [0, 0]);
    assert_eq!((&whole << 1)?.to_vec1::<i64>()?, [10, 12]);
    assert_eq!((&whole >> 1)?.to_vec1::<i64>()?, [2, 3]);
    let mask = (x.gt(1)? & !y.gt(3.5)?)?;
    assert_eq!(mask.to_vec1::<bool>()?, [false, false]);
    // The first error is that of the whole.
    let wrong = &x * tensor![1.0, 2.0, 3.0] + &y;
    assert!(error(wrong).starts_with("mul:"));
    Ok(())
}

#[test]
fn assignments_write_in_place_or_fail_where_they_are_used() -> Outcome {
    let mut x = tensor![1.0, 2.0];
    let (same, before) = (x.clone(), x.copy()?);
    x += 1;
    x -= &tensor![0.0, 1.0];
    x *= tensor![2, 3];
    x /= 2.0;
    assert_close!(x, tensor![2.0, 3.0]);
    assert_close!(same, tensor![2.0, 3.0]);
    assert_close!(before, tensor![1.0, 2.0]);
    let mut whole = tensor![1, 2];
    whole += 2;
    assert_eq!(whole.to_vec1::<i64>()?, [3, 4]);
    whole += 0.5;
    assert!(error(whole.eval().map(|_| ())).contains("expected a result that i64 holds, got f32"));
    let line = line!() + 1;
    x += tensor![1.0, 2.0, 3.0];
    x += 1.0;
    let late = x.mul(2.0).unwrap_err().to_string();
    let place = format!("add_assign at {}:{line}:", file!());
    assert!(late.starts_with(&place), "{late}");
    assert!(late.contains("[2] and [3]"), "{late}");
    let mut parameter = tensor![1.0, 2.0];
    parameter.requires_grad_(true)?;
    no_grad(|| parameter -= 0.5);
    assert!(parameter.requires_grad() && parameter.is_leaf());
    assert_close!(parameter.detach(), tensor![0.5, 1.5]);
    parameter -= 0.5;
    assert!(error(parameter.item()).contains("one element"));
    assert!(error(parameter.to_vec::<f32>()).contains("outside no_grad"));
    Ok(())
}

#[test]
fn tensors_are_written_as_they_look() -> Outcome {
    assert_eq!(tensor!(3.0).shape(), [0usize; 0]);
    assert_eq!(tensor![3.0,].shape(), [1]);
    assert_eq!(tensor![1, 2, 3].shape(), [3]);
    assert_eq!(tensor![[1, 2, 3]].shape(), [1, 3]);
    assert_eq!(tensor![[[1, 2], [3, 4]]].shape(), [1, 2, 2]);
    let (numbers, rows) = (vec![0.1, 0.2], vec![vec![1.0f32, 2.0], vec![3.0, 4.0]]);
    assert_eq!(tensor!(numbers).dtype(), DType::F32);
    assert_eq!(tensor!(&numbers[1..]).shape(), [1]);
    assert_eq!(tensor![numbers[0], numbers[1]].shape(), [2]);
    assert_eq!(Tensor::new([[1f32, 2.0], [3.0, 4.0]])?.shape(), [2, 2]);
    assert_eq!(Tensor::new([1u32, 2, 3])?.dtype(), DType::U32);
    assert_eq!(Tensor::new(2.5)?.item()?, 2.5);
    assert_eq!(Tensor::new(&rows)?.to_vec2::<f32>()?, rows);
    assert_eq!(Tensor::new(numbers)?.dtype(), DType::F32);
    assert_eq!(Tensor::new(vec![1usize, 2])?.dtype(), DType::I64);
    assert_eq!(Tensor::new(Vec::<[f32; 3]>::new())?.shape(), [0, 3]);
    assert_eq!(
        error(Tensor::new(vec![vec![1, 2], vec![3]])),
        "new: expected lists of the sizes [2, 2], got one of length 1"
    );
    Ok(())
}

#[test]
fn bool_values_fill_tensors() -> Outcome {
    let mut seen = Tensor::zeros(3, DType::Bool)?;
    seen.i(1)?.fill_(true)?;
    seen.index_put_(tensor![2], true, false)?;
    assert_eq!(seen.to_vec::<bool>()?, [false, true, true]);
    seen.masked_fill_(&tensor![false, true, false], false)?;
    seen.index_fill_(0, &tensor![0], true)?;
    assert_eq!(seen.to_vec::<bool>()?, [true, false, true]);
    assert_eq!(seen.fill(false)?.to_vec::<bool>()?, [false; 3]);
    let counts = tensor![5, 6].masked_fill(&tensor![true, false], true)?;
    assert_eq!(counts.to_vec::<i64>()?, [1, 6]);
    Ok(())
}

#[test]
fn parts_are_taken_as_in_python() -> Outcome {
    let x = Tensor::arange_with(0, 24, 1, DType::F32)?.reshape((2, 3, 4))?;
    let (row, mask) = (1usize, tensor![true, false]);
    shapes! {
        x.i(0) => [3, 4],
        x.i(row) => [3, 4],
        x.i((.., 1)) => [2, 4],
        x.i((.., 1..3)) => [2, 2, 4],
        x.i((.., ..2, row)) => [2, 2],
        x.i((Ellipsis, -1)) => [2, 3],
        x.i((NewAxis, 0)) => [1, 3, 4],
        x.i(&mask) => [1, 3, 4],
        x.i((&mask, ..)) => [1, 3, 4],
        x.i((.., &tensor![0, 2])) => [2, 2, 4],
        x.get(0) => [3, 4],
        x.narrow(1, 0, 2) => [2, 2, 4],
    }
    let put = x.index_put((.., 0), 0.0, false)?;
    assert_eq!(put.i((1, 0))?.sum_all()?.item()?, 0.0);
    let mut sum = 0.0;
    for row in &x {
        sum += row?.sum_all()?.item()?;
    }
    assert_eq!(sum, x.sum_all()?.item()?);
    let shapes: Vec<_> = x.iter()?.map(|row| row.shape().to_vec()).collect();
    assert_eq!(shapes, [[3, 4], [3, 4]]);
    assert!(error(tensor!(1.0).iter().map(|_| ())).starts_with("iter: expected a tensor with"));
    let results: RusTorchResult<Vec<Tensor>> = (&tensor!(1.0)).into_iter().collect();
    assert!(results.is_err());
    Ok(())
}

#[test]
fn elements_come_back_as_nested_vectors() -> Outcome {
    let x = tensor![[1.0, 2.0], [3.0, 4.0]];
    assert_eq!(x.to_vec2::<f32>()?, [[1.0, 2.0], [3.0, 4.0]]);
    assert_eq!(x.i(0)?.to_vec1::<f32>()?, [1.0, 2.0]);
    assert_eq!(x.i((0, 1))?.to_vec0::<f32>()?, 2.0);
    assert_eq!(
        x.unsqueeze(0)?.to_vec3::<f32>()?,
        [[[1.0, 2.0], [3.0, 4.0]]]
    );
    assert_eq!(x.sum_all()?.to_scalar::<f32>()?, 10.0);
    assert_eq!(x.mean_all()?.item()?, 2.5);
    let none = Tensor::zeros((2, 0), DType::F32)?;
    assert_eq!(none.to_vec2::<f32>()?, [[0.0; 0], [0.0; 0]]);
    assert_eq!(
        error(x.to_vec1::<f32>()),
        "to_vec1: expected rank 1 (to_vec reads every rank), got f32[2, 2]"
    );
    Ok(())
}

#[test]
fn candle_s_names() -> Outcome {
    let x = tensor![[1.0, 4.0], [9.0, 16.0]];
    assert_eq!(
        (x.dims(), x.dims2()?, x.elem_count()),
        (&[2, 2][..], (2, 2), 4)
    );
    assert_eq!(error(x.dims3()), "dims3: expected rank 3, got f32[2, 2]");
    assert_close!(x.sum_keepdim(1)?, tensor![[5.0], [25.0]]);
    assert_close!(x.max_keepdim(0)?, tensor![[9.0, 16.0]]);
    assert_close!(
        x.broadcast_sub(&x.mean_keepdim(1)?)?,
        tensor![[-1.5, 1.5], [-3.5, 3.5]]
    );
    assert_close!(x.affine(2., 1.)?, tensor![[3.0, 9.0], [19.0, 33.0]]);
    assert_close!(x.powf(0.5)?, tensor![[1.0, 2.0], [3.0, 4.0]]);
    assert_close!(x.sqr()?.sqrt()?, &x);
    assert_close!(x.flatten_all()?, tensor![1.0, 4.0, 9.0, 16.0]);
    assert_close!(
        x.gt(3.0)?.where_cond(&x, 0.0)?,
        tensor![[0.0, 4.0], [9.0, 16.0]]
    );
    assert_eq!(x.argmax_keepdim(1)?.to_vec2::<i64>()?, [[1], [1]]);
    Ok(())
}

#[test]
fn parameters_and_draws_are_methods() -> Outcome {
    let w = Tensor::zeros(3, DType::F32)?.requires_grad_(true)?;
    assert!(w.requires_grad() && w.is_leaf());
    assert_eq!(
        tensor![0.0, 1.0].multinomial(2, true)?.to_vec1::<i64>()?,
        [1, 1]
    );
    assert_close!(tensor![0.0, 1.0].bernoulli()?, tensor![0.0, 1.0]);
    let mut x = tensor![1.0];
    let x = &mut x;
    assert_close!((&w.detach() + x)?, tensor![1.0, 1.0, 1.0]);
    Ok(())
}

#[test]
fn lists_of_tensors() -> Outcome {
    let (a, b) = (tensor![1.0, 2.0], tensor![3.0, 4.0]);
    let both = vec![a.clone(), b.clone()];
    shapes! {
        Tensor::cat(&[&a, &b], 0) => [4],
        Tensor::cat(&both, 0) => [4],
        Tensor::stack(&both, 0) => [2, 2],
        Tensor::stack(&[a.clone(), b.clone()], -1) => [2, 2],
        Tensor::vstack(&[&a, &b]) => [2, 2],
    }
    Ok(())
}

#[test]
fn windows_of_one_size_for_all_dimensions() -> Outcome {
    let x = Tensor::ones((1, 1, 4, 4), DType::F32)?;
    let w = Tensor::ones((2, 1, 3, 3), DType::F32)?;
    shapes! {
        x.conv2d(&w, None, &ConvOptions::default()) => [1, 2, 2, 2],
        x.conv2d(&w, None, &ConvOptions::default().padding(1)) => [1, 2, 4, 4],
        x.conv2d(&w, None, &ConvOptions::default().stride(2).padding([1, 1])) => [1, 2, 2, 2],
        x.conv2d(&w, None, &ConvOptions::default().padding(ConvPadding::Same)) => [1, 2, 4, 4],
        x.conv2d(&w, None, &ConvOptions::default().groups(1)) => [1, 2, 2, 2],
        x.max_pool2d(2, &MaxPoolOptions::default()) => [1, 1, 2, 2],
        x.adaptive_avg_pool2d(1) => [1, 1, 1, 1],
        x.adaptive_max_pool2d((2, 1)) => [1, 1, 2, 1],
        x.interpolate((8, 2), &InterpolateOptions::default()) => [1, 1, 8, 2],
        x.pad((1, 2), 0.0) => [1, 1, 4, 7],
        x.interpolate([2.0, 2.0], &InterpolateOptions::default().align_corners(false)) => [1, 1, 8, 8],
        x.max_pool2d((2, 2), &MaxPoolOptions::default().stride(1)) => [1, 1, 3, 3],
        x.avg_pool2d([4, 2], &AvgPoolOptions::default().ceil_mode(true)) => [1, 1, 1, 2],
    }
    Ok(())
}

#[test]
fn options_are_set_one_by_one() -> Outcome {
    let logits = tensor![[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]];
    let options = CrossEntropyOptions::default()
        .ignore_index(0)
        .label_smoothing(0.1)
        .reduction(Reduction::Sum);
    let loss = logits.cross_entropy(&tensor![0, 2], &options)?;
    let log = logits.i(1)?.log_softmax(0)?;
    let expected = ((log.i(2)? * -0.9)? - log.mean(.., false)? * 0.1)?;
    assert_close!(loss, expected);
    let x = Tensor::randn((1, 2, 4, 8), DType::F32)?;
    let options = AttentionOptions::default().is_causal(true).scale(0.5);
    shapes! {
        x.scaled_dot_product_attention(&x, &x, options) => [1, 2, 4, 8],
        tensor![1.0, 2.0, 3.0, 4.0].stft(&Stft::new(2).hop_length(1).center(false), None) => [2, 3],
    }
    Ok(())
}

#[test]
fn devices_by_name_are_there_or_an_error() -> Outcome {
    let x = tensor![1.0, 2.0];
    assert_eq!(x.to("cpu")?.device(), Some(DeviceType::Cpu));
    assert_eq!(x.to_device("cpu")?.device(), Some(DeviceType::Cpu));
    assert_eq!(
        x.to_device(DeviceType::Cpu)?.device(),
        Some(DeviceType::Cpu)
    );
    assert_eq!(
        error(x.to("gpu0")),
        "to: to_device: expected a device such as cpu, cuda:0, metal, opencl:1 or auto, got \"gpu0\""
    );
    let absent = error(x.to_device("opencl:99"));
    assert!(absent.contains("opencl:99"), "{absent}");
    assert!(error(x.add(1.0)?.to_device("cuda:99")).contains("cuda:99"));
    Ok(())
}

#[test]
fn dtypes_have_methods_of_their_names() -> Outcome {
    let x = tensor![0.0, 2.5];
    let dtypes = [
        (x.half()?, DType::F16),
        (x.bfloat16()?, DType::BF16),
        (x.double()?, DType::F64),
        (x.int()?, DType::I32),
        (x.long()?, DType::I64),
        (x.bool()?, DType::Bool),
        (x.type_as(&tensor![1])?, DType::I64),
    ];
    for (converted, dtype) in dtypes {
        assert_eq!(converted.dtype(), dtype);
    }
    assert_eq!(x.long()?.float()?.to_vec::<f32>()?, [0.0, 2.0]);
    Ok(())
}

#[test]
fn matrices_have_determinants_and_inverses() -> Outcome {
    let a = tensor![[2.0, 0.0], [1.0, -4.0]];
    assert_eq!(a.det()?.item()?, -8.0);
    let (sign, log) = a.slogdet()?;
    assert_eq!(sign.item()?, -1.0);
    assert_close!(log, tensor!(8f32.ln()));
    assert_close!(a.inverse()?.matmul(&a)?, Tensor::eye(2, DType::F32)?);
    Ok(())
}

#[test]
fn devices_are_told_by_name() -> Outcome {
    let name = String::from("cpu");
    let y = with_device("cpu", || tensor![1.0].exp())??;
    assert_eq!(y.eval()?.device(), Some(DeviceType::Cpu));
    assert_eq!(y.to(&name)?.device(), Some(DeviceType::Cpu));
    set_device(&name)?;
    assert_eq!(current_device(), DeviceType::Cpu);
    set_device("auto")?;
    let problem = error(set_device("tpu"));
    assert!(
        problem.contains("expected a device such as cpu"),
        "{problem}"
    );
    Ok(())
}

#[test]
fn clones_are_told_from_others() -> Outcome {
    let x = tensor![1.0, 2.0];
    let (same, other, part) = (x.clone(), tensor![1.0, 2.0], x.narrow(0, 0, 1)?);
    assert_eq!(x.id(), same.id());
    assert!(x.id() != other.id() && x.id() != part.id());
    Ok(())
}

#[test]
#[should_panic(
    expected = "in 1 of 4 elements, by up to 5.0000e-1 at [1, 0] (rtol 1e-5, atol 1e-8)"
)]
fn differences_are_told_with_their_places() {
    assert_close!(tensor![[1, 2], [3, 4]], tensor![[1, 2], [3, 4]]);
    assert_close!(
        tensor![[1.0, 2.0], [3.0, 4.0]],
        tensor![[1.0, 2.0], [3.5, 4.0]]
    );
}
