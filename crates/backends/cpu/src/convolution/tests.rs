use super::images::Way;
use super::*;
use crate::kernel::SharedMut;
use crate::pool::Pool;
use crate::simd::Level;
use crate::window::Side;

/// Some numbers with exact sums.
fn numbers(len: usize) -> Vec<f32> {
    let number = |i: usize| (i * 37 % 17) as f32 - 8.0;
    (0..len).map(number).collect()
}

/// A convolution with its operands.
struct Sample {
    images: usize,
    groups: usize,
    channels: usize,
    outputs: usize,
    sides: [Side; 2],
    kernel: [usize; 2],
    x: Vec<f32>,
    weight: Vec<f32>,
    result: Vec<f32>,
}

impl Sample {
    fn new([images, groups, channels, outputs]: [usize; 4], sides: [Side; 2]) -> Self {
        let kernel = [3, 2];
        let pixels: usize = sides.iter().map(|side| side.size).product();
        let windows: usize = sides.iter().map(|side| side.count).product();
        Self {
            images,
            groups,
            channels,
            outputs,
            sides,
            kernel,
            x: numbers(images * groups * channels * pixels),
            weight: numbers(groups * outputs * channels * kernel[0] * kernel[1]),
            result: numbers(images * groups * outputs * windows),
        }
    }

    /// Calls `each` with every product of the definition: where the element of the image, the weight and the
    /// result are.
    fn products(&self, mut each: impl FnMut(usize, usize, usize)) {
        let [down, across] = self.sides;
        let inside = |side: Side, window: usize, k: usize| {
            let at = window * side.stride + k * side.dilation;
            at.checked_sub(side.padding).filter(|&at| at < side.size)
        };
        let inner = self.channels * self.kernel[0] * self.kernel[1];
        for output in 0..self.images * self.groups * self.outputs {
            let (image, row) = (output / self.outputs, output % (self.groups * self.outputs));
            for (y, x) in (0..down.count).flat_map(|y| (0..across.count).map(move |x| (y, x))) {
                for k in 0..inner {
                    let (i, j) = (k / self.kernel[1] % self.kernel[0], k % self.kernel[1]);
                    let channel = image * self.channels + k / (self.kernel[0] * self.kernel[1]);
                    if let (Some(v), Some(u)) = (inside(down, y, i), inside(across, x, j)) {
                        let pixel = (channel * down.size + v) * across.size + u;
                        let result = (output * down.count + y) * across.count + x;
                        each(pixel, row * inner + k, result);
                    }
                }
            }
        }
    }

    /// Every way and level computes the definition's result.
    fn check(&self) {
        let pool = Pool::new(2);
        let [down, across] = self.sides;
        let (kernel, inner) = (self.kernel[0] * self.kernel[1], self.weight.len());
        let inner = inner / (self.groups * self.outputs);
        let bias = (self.images == 1).then(|| numbers(self.groups * self.outputs));
        let windows = down.count * across.count;
        let mut expected: Vec<f32> = (0..self.result.len())
            .map(|i| i / windows % (self.groups * self.outputs))
            .map(|row| bias.as_ref().map_or(0.0, |bias| bias[row]))
            .collect();
        let (mut image, mut weight) = (vec![0.0; self.x.len()], vec![0.0; self.weight.len()]);
        self.products(|x, w, y| {
            expected[y] += self.x[x] * self.weight[w];
            image[x] += self.weight[w] * self.result[y];
            weight[w] += self.x[x] * self.result[y];
        });
        let phases = || [0, 1].map(|i| Phases::of_windows(self.sides[i], self.kernel[i]));
        let forward = Convolution {
            sides: phases(),
            channels: self.channels,
            outputs: self.outputs,
            groups: self.groups,
            x: &self.x,
            weight: Weights {
                data: &self.weight,
                strides: [self.outputs * inner, inner, kernel],
                width: self.kernel[1],
            },
            bias: bias.as_deref(),
            result: [down.count, across.count],
        };
        let spread = |i, j| Convolution {
            sides: [
                Phases::of_spread(down, self.kernel[0], i),
                Phases::of_spread(across, self.kernel[1], j),
            ],
            channels: self.outputs,
            outputs: self.channels,
            groups: self.groups,
            x: &self.result,
            weight: Weights {
                data: &self.weight,
                strides: [self.outputs * inner, kernel, inner],
                width: self.kernel[1],
            },
            bias: None,
            result: [down.size, across.size],
        };
        let gradient = WeightGradient {
            sides: phases(),
            channels: self.channels,
            outputs: self.outputs,
            groups: self.groups,
            x: &self.x,
            images: self.images,
            gradient: &self.result,
        };
        let what = [self.images, self.groups, self.channels, self.outputs];
        for level in Level::available() {
            for way in [Way::Direct, Way::Gathered(1), Way::Gathered(2)] {
                let images = self.images;
                let mut out = vec![f32::NAN; expected.len()];
                forward.run_by(level, &pool, way, images, &SharedMut::new(&mut out));
                assert!(out == expected, "{level}: {what:?}, {:?}", down.stride);
                let mut out = vec![f32::NAN; image.len()];
                for (i, j) in (0..down.stride).flat_map(|i| (0..across.stride).map(move |j| (i, j)))
                {
                    let out = SharedMut::new(&mut out);
                    spread(i, j).run_by(level, &pool, way, images, &out);
                }
                assert!(out == image, "{level}: spread {what:?}, {:?}", down.stride);
            }
            let mut out = vec![f32::NAN; weight.len()];
            gradient.run_at(level, &pool, &mut out);
            assert!(
                out == weight,
                "{level}: weights {what:?}, {:?}",
                down.stride
            );
        }
    }
}

#[test]
fn any_stride_padding_and_dilation() {
    let sides = (1..4).flat_map(|stride| {
        let side = move |padding, dilation| (stride, padding, dilation);
        [(0, 1), (2, 1), (1, 2), (3, 3)].map(|(padding, dilation)| side(padding, dilation))
    });
    for (stride, padding, dilation) in sides {
        // Images, groups, channels and outputs of a group.
        for sizes in [[1, 1, 3, 11], [2, 3, 1, 1], [1, 2, 2, 2], [3, 1, 2, 3]] {
            let side = |size: usize, kernel: usize| Side {
                size,
                count: (size + 2 * padding - (kernel - 1) * dilation - 1) / stride + 1,
                stride,
                padding,
                dilation,
            };
            for [height, width] in [[29, 23], [8, 7]] {
                Sample::new(sizes, [side(height, 3), side(width, 2)]).check();
            }
        }
    }
}

#[test]
fn many_channels_and_small_images() {
    let side = |size: usize, kernel: usize| Side {
        size,
        count: size + 3 - kernel,
        stride: 1,
        padding: 1,
        dilation: 1,
    };
    for sizes in [[5, 1, 9, 70], [3, 2, 40, 17]] {
        Sample::new(sizes, [side(2, 3), side(3, 2)]).check();
    }
}

#[test]
fn small_images_are_gathered_and_large_ones_are_not() {
    let side = |size| Side {
        size,
        count: size,
        stride: 1,
        padding: 1,
        dilation: 1,
    };
    for (size, gathered) in [(2, true), (4, true), (56, false)] {
        let (x, weight) = (vec![0.0; 8 * 64 * size * size], vec![0.0; 64 * 64 * 9]);
        let convolution = Convolution {
            sides: [side(size), side(size)].map(|side| Phases::of_windows(side, 3)),
            channels: 64,
            outputs: 64,
            groups: 1,
            x: &x,
            weight: Weights {
                data: &weight,
                strides: [64 * 64 * 9, 64 * 9, 9],
                width: 3,
            },
            bias: None,
            result: [size; 2],
        };
        let way = convolution.way(8);
        assert_eq!(matches!(way, Some(Way::Gathered(_))), gathered, "{size}");
    }
}
