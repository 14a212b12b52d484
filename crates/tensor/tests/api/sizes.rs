//! Calls whose cost follows from what is asked for: nothing is done for what nobody reads, and absurd sizes are refused.

use rustorch_ir::DType;
use rustorch_tensor::nn::{AvgPoolOptions, InterpolateMode, InterpolateOptions, MaxPoolOptions};
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::Outcome;

/// The bounds of windows that share `size` elements evenly.
fn windows(size: usize, count: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..count).map(move |i| i * size / count..((i + 1) * size).div_ceil(count))
}

#[test]
fn pools_of_windows_that_share_a_dimension() -> Outcome {
    for size in 1..10 {
        let numbers: Vec<f32> = (0..size).map(|i| ((i * 7 + 3) % 5) as f32).collect();
        let x = Tensor::from_slice(&numbers, [1, size])?;
        for count in 1..12 {
            let mean = |range: std::ops::Range<usize>| {
                let length = range.len() as f32;
                numbers[range].iter().sum::<f32>() / length
            };
            let means: Vec<f32> = windows(size, count).map(mean).collect();
            let got = x.adaptive_avg_pool1d(count)?.to_vec::<f32>()?;
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
            assert!(got.iter().zip(&means).all(near), "{size} by {count}");
            let largest = |range: std::ops::Range<usize>| {
                range
                    .rev()
                    .max_by(|&a, &b| numbers[a].total_cmp(&numbers[b]))
            };
            let places: Vec<i64> = windows(size, count)
                .map(|range| largest(range).unwrap_or(0) as i64)
                .collect();
            let (values, indices) = x.adaptive_max_pool1d_with_indices(count)?;
            assert_eq!(indices.to_vec::<i64>()?, places, "{size} by {count}");
            let largest: Vec<f32> = places.iter().map(|&at| numbers[at as usize]).collect();
            assert_eq!(values.to_vec::<f32>()?, largest);
            assert_eq!(x.adaptive_max_pool1d(count)?.to_vec::<f32>()?, largest);
        }
    }
    Ok(())
}

#[test]
fn padded_pools_of_integers() -> Outcome {
    let numbers: Vec<i64> = (0..7).map(|i| (i * 5 + 2) % 7 - 3).collect();
    let x = Tensor::from_slice(&numbers, [1, 7])?;
    for (kernel, stride, padding, dilation) in
        [(3, 2, 1, 1), (2, 1, 1, 3), (4, 3, 2, 1), (2, 3, 0, 2)]
    {
        let reach = dilation * (kernel - 1) + 1;
        let count = (7 + 2 * padding - reach) / stride + 1;
        let places = |window: usize| {
            let at = (0..kernel).map(move |i| window * stride + i * dilation);
            at.filter_map(move |at| at.checked_sub(padding).filter(|&at| at < 7))
        };
        let options = MaxPoolOptions {
            stride: Some([stride]),
            padding: [padding],
            dilation: [dilation],
            ..MaxPoolOptions::default()
        };
        let (_, indices) = x.max_pool1d_with_indices(kernel, &options)?;
        let best = |window| places(window).rev().max_by_key(|&at| numbers[at]);
        let expected: Vec<i64> = (0..count).map(|i| best(i).unwrap_or(0) as i64).collect();
        assert_eq!(indices.to_vec::<i64>()?, expected, "kernel {kernel}");
        if dilation > 1 {
            continue;
        }
        for count_include_pad in [true, false] {
            let options = AvgPoolOptions {
                stride: Some([stride]),
                padding: [padding],
                count_include_pad,
                ..AvgPoolOptions::default()
            };
            let mean = |window| {
                let sum: i64 = places(window).map(|at| numbers[at]).sum();
                sum / if count_include_pad {
                    kernel as i64
                } else {
                    places(window).count() as i64
                }
            };
            let expected: Vec<i64> = (0..count).map(mean).collect();
            assert_eq!(x.avg_pool1d(kernel, &options)?.to_vec::<i64>()?, expected);
        }
    }
    Ok(())
}

#[test]
fn recording_a_pool_costs_nothing_for_an_output() -> Outcome {
    let many = 1 << 40;
    let [x, image, volume] = [
        Tensor::ones([1, 4], DType::F32)?,
        Tensor::ones([1, 4, 4], DType::F32)?,
        Tensor::ones([1, 4, 4, 4], DType::F32)?,
    ];
    assert_eq!(x.adaptive_avg_pool1d(many)?.shape(), [1, many]);
    assert_eq!(x.adaptive_max_pool1d(many)?.shape(), [1, many]);
    let wide = image.adaptive_avg_pool2d([many, 3])?;
    assert_eq!(wide.shape(), [1, many, 3]);
    let (values, indices) = volume.adaptive_max_pool3d_with_indices([3, many, 1])?;
    assert_eq!([values.shape(), indices.shape()], [[1, 3, many, 1]; 2]);
    Ok(())
}

#[test]
fn absurd_sizes_are_refused() -> Outcome {
    let absurd = 9_000_000_000_000_000_000;
    let [x, image, volume] = [
        Tensor::ones([1, 4], DType::F32)?,
        Tensor::ones([1, 4, 4], DType::F32)?,
        Tensor::ones([1, 4, 4, 4], DType::F32)?,
    ];
    let maps = Tensor::ones([1, 2, 3], DType::F32)?;
    let linear = InterpolateOptions::default().mode(InterpolateMode::Linear);
    let refused: [(&str, RusTorchResult<Tensor>); 22] = [
        ("adaptive_avg_pool1d", x.adaptive_avg_pool1d(absurd)),
        ("adaptive_max_pool1d", x.adaptive_max_pool1d(absurd)),
        (
            "adaptive_avg_pool2d",
            image.adaptive_avg_pool2d([absurd, 1]),
        ),
        (
            "adaptive_max_pool2d",
            image.adaptive_max_pool2d([2, absurd]),
        ),
        (
            "adaptive_avg_pool3d",
            volume.adaptive_avg_pool3d([1, absurd, 2]),
        ),
        (
            "adaptive_max_pool3d",
            volume.adaptive_max_pool3d([1, 2, absurd]),
        ),
        ("expand", x.expand([absurd, 1, 4])),
        ("repeat", x.repeat([absurd, 1])),
        ("tile", x.tile([absurd])),
        ("pad", x.pad([absurd as isize, 0], 0)),
        (
            "arange",
            Tensor::arange_with(0, absurd as i64, 1, DType::I64),
        ),
        ("linspace", Tensor::linspace(0.0, 1.0, absurd, DType::F32)),
        ("eye", Tensor::eye(absurd, DType::F32)),
        ("one_hot", Tensor::zeros([2], DType::I64)?.one_hot(absurd)),
        ("tril_indices", Tensor::tril_indices(absurd, 1, 0)),
        ("triu_indices", Tensor::triu_indices(absurd, absurd, -3)),
        ("vander", x.flatten(0, -1)?.vander(absurd, false)),
        (
            "combinations",
            Tensor::zeros([100], DType::I64)?.combinations(60, true),
        ),
        ("repeat_interleave", x.repeat_interleave(absurd, 0)),
        ("affine_grid", maps.affine_grid([1, 1, absurd, 2], false)),
        (
            "interpolate",
            x.unsqueeze(0)?.interpolate([absurd], &linear),
        ),
        (
            "multigammaln",
            x.expand([1usize << 40, 4])?.multigammaln(u32::MAX),
        ),
    ];
    for (name, result) in refused {
        let error = result.err().map(|e| e.to_string());
        let error = error.unwrap_or_else(|| panic!("{name} is not refused"));
        assert!(error.contains(name) && !error.contains('\n'), "{error}");
    }
    Ok(())
}

#[test]
fn places_of_triangles_are_counted() -> Outcome {
    for (rows, columns) in [(0, 3), (3, 0), (1, 1), (4, 6), (6, 4), (5, 5)] {
        for offset in -8..9 {
            let [lower, upper] = [false, true].map(|is_upper| {
                let places =
                    (0..rows as i64).flat_map(|row| (0..columns as i64).map(move |c| (row, c)));
                let is_in = |&(row, column): &(i64, i64)| match is_upper {
                    true => column - row >= offset,
                    false => column - row <= offset,
                };
                let (rows, columns): (Vec<i64>, Vec<i64>) = places.filter(is_in).unzip();
                [rows, columns].concat()
            });
            let got = Tensor::tril_indices(rows, columns, offset as isize)?;
            assert_eq!(got.to_vec::<i64>()?, lower, "{rows} {columns} {offset}");
            let got = Tensor::triu_indices(rows, columns, offset as isize)?;
            assert_eq!(got.to_vec::<i64>()?, upper, "{rows} {columns} {offset}");
        }
    }
    assert_eq!(Tensor::tril_indices(1usize << 60, 0, 0)?.shape(), [2, 0]);
    Ok(())
}

#[test]
fn printing_reads_what_is_shown() -> Outcome {
    let many = 1 << 24;
    // 4 pebibytes, were they read.
    let corners = "tensor([[1., 1., 1.,  ..., 1., 1., 1.],\n";
    let wide = Tensor::ones([1, 1], DType::F32)?;
    wide.eval()?;
    let text = wide.expand([many, many])?.to_string();
    assert!(text.starts_with(corners), "{text}");
    let bytes = Tensor::full([1, 1, 1], 7, DType::U8)?;
    bytes.eval()?;
    let text = bytes.expand([many, many, 2])?.to_string();
    assert!(
        text.starts_with("tensor([[[7, 7],\n") && text.ends_with(", dtype=u8)"),
        "{text}"
    );
    // An element that is not shown says nothing about how the rest is written.
    let mut numbers = vec![1.0f32; 5000];
    numbers[2000] = 0.5;
    let text = Tensor::from_vec(numbers, [5000])?.to_string();
    assert_eq!(text, "tensor([1., 1., 1.,  ..., 1., 1., 1.])");
    Ok(())
}

#[test]
fn long_lines_have_their_first_extreme() -> Outcome {
    let size = 200_001;
    for dtype in [DType::F32, DType::F16, DType::F64, DType::I64] {
        let mut numbers: Vec<f32> = (0..2 * size).map(|i| (i % 1000) as f32).collect();
        for at in [150_000, 150_002, size + 70_000] {
            numbers[at] = 1500.0;
        }
        for at in [65_536, 131_072, size + 199_999] {
            numbers[at] = -1.0;
        }
        let x = Tensor::from_slice(&numbers, [2, size])?.to_dtype(dtype)?;
        assert_eq!(x.argmax(1, false)?.to_vec::<i64>()?, [150_000, 70_000]);
        assert_eq!(x.argmin(1, false)?.to_vec::<i64>()?, [65_536, 199_999]);
        let (values, places) = x.t()?.max_dim(0, false)?;
        assert_eq!(values.to_dtype(DType::F32)?.to_vec::<f32>()?, [1500.0; 2]);
        assert_eq!(places.to_vec::<i64>()?, [150_000, 70_000]);
        assert_eq!(x.argmax(None, false)?.item()?, 150_000.0);
        if dtype.is_float() {
            numbers[180_000] = f32::NAN;
            let x = Tensor::from_slice(&numbers, [2, size])?.to_dtype(dtype)?;
            assert_eq!(x.argmax(1, false)?.to_vec::<i64>()?, [180_000, 70_000]);
            assert_eq!(x.argmin(1, false)?.to_vec::<i64>()?, [180_000, 199_999]);
        }
    }
    Ok(())
}

#[test]
fn many_tensors_are_joined() -> Outcome {
    let rows: Vec<Tensor> = (0..300)
        .map(|i| Tensor::from_slice(&[i as f32, -1.0], [2]))
        .collect::<RusTorchResult<_>>()?;
    // Some of them twice, some pending, some views.
    let rows: Vec<Tensor> = (0..900)
        .map(|i| match i % 3 {
            0 => Ok(rows[i / 3].clone()),
            1 => rows[i / 3].mul(2.0),
            _ => rows[i / 3].flip([0]),
        })
        .collect::<RusTorchResult<_>>()?;
    let expected = |i: usize| match i % 3 {
        0 => [(i / 3) as f32, -1.0],
        1 => [2.0 * (i / 3) as f32, -2.0],
        _ => [-1.0, (i / 3) as f32],
    };
    let expected: Vec<f32> = (0..900).flat_map(expected).collect();
    assert_eq!(Tensor::stack(&rows, 0)?.to_vec::<f32>()?, expected);
    assert_eq!(Tensor::cat(&rows, 0)?.to_vec::<f32>()?, expected);
    let parts = Tensor::cat(&rows, 0)?.split(2, 0)?;
    assert_eq!(Tensor::cat(&parts, 0)?.to_vec::<f32>()?, expected);
    Ok(())
}

#[test]
fn interpolation_is_recorded_without_lists() -> Outcome {
    let many = 1usize << 40;
    let line = Tensor::ones([1, 1, 4], DType::F32)?;
    let image = Tensor::ones([1, 1, 4, 4], DType::U8)?;
    for mode in [
        InterpolateMode::Nearest,
        InterpolateMode::NearestExact,
        InterpolateMode::Linear,
    ] {
        let options = InterpolateOptions::default().mode(mode);
        assert_eq!(line.interpolate([many], &options)?.shape(), [1, 1, many]);
        assert!(line.interpolate([usize::MAX / 2], &options).is_err());
    }
    let cubic = InterpolateOptions::default().mode(InterpolateMode::Bicubic);
    for options in [cubic, cubic.antialias(true)] {
        let wide = image.interpolate([many, 2], &options)?;
        assert_eq!(wide.shape(), [1, 1, many, 2]);
    }
    Ok(())
}

/// Tables of more elements than are kept are computed with the image.
#[test]
fn many_interpolated_elements_are_those_of_few() -> Outcome {
    let numbers = [3.0f64, -1.0, 4.0, 1.5];
    let x = Tensor::from_slice(&numbers, [1, 1, 4])?;
    let options = InterpolateOptions::default().mode(InterpolateMode::Linear);
    let corners = options.align_corners(true);
    let count = 60_001;
    let found = x.interpolate([count], &corners)?.to_vec::<f64>()?;
    for (i, found) in found.into_iter().enumerate() {
        let place = 3.0 * i as f64 / (count - 1) as f64;
        let first = (place as usize).min(2);
        let part = place - first as f64;
        let expected = numbers[first] * (1.0 - part) + numbers[first + 1] * part;
        assert!((found - expected).abs() < 1e-9, "{i}: {found}, {expected}");
    }
    let nearest = x.interpolate([80_000], &InterpolateOptions::default())?;
    let expected: Vec<f64> = (0..80_000).map(|i| numbers[i / 20_000]).collect();
    assert_eq!(nearest.to_vec::<f64>()?, expected);
    Ok(())
}
