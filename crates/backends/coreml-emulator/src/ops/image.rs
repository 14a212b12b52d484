use super::elementwise::maximum;
use crate::arguments::Arguments;
use crate::tensor::{Tensor, for_each_index, position};

/// Layout of windows on an image of two dimensions.
struct Windows {
    kernel: [usize; 2],
    strides: [usize; 2],
    dilations: [usize; 2],
    /// Before and behind rows, before and behind columns.
    pad: [usize; 4],
}

impl Windows {
    fn of(args: &Arguments, kernel: &[usize]) -> Result<Self, String> {
        let pad_type = args.text("pad_type")?;
        if pad_type != "custom" {
            return Err(format!("pad_type {pad_type:?}"));
        }
        let pad = args.sizes("pad")?.unwrap_or_else(|| vec![0; 4]);
        Ok(Self {
            kernel: two("kernel", Some(kernel.to_vec()))?,
            strides: two("strides", args.sizes("strides")?)?,
            dilations: two("dilations", args.sizes("dilations")?)?,
            pad: pad.try_into().map_err(|_| "pad of other than 4 numbers")?,
        })
    }

    /// Number of windows along a dimension of `size`.
    fn count(&self, size: usize, i: usize) -> Result<usize, String> {
        let padded = size + self.pad[2 * i] + self.pad[2 * i + 1];
        let reach = (self.kernel[i] - 1) * self.dilations[i] + 1;
        let room = padded.checked_sub(reach).ok_or("no window fits")?;
        Ok(room / self.strides[i] + 1)
    }

    /// Place in the image of a window's element `tap`; `None` in the padding.
    fn place(&self, i: usize, window: usize, tap: usize, size: usize) -> Option<usize> {
        let at = window * self.strides[i] + tap * self.dilations[i];
        at.checked_sub(self.pad[2 * i]).filter(|&at| at < size)
    }

    /// The elements of a window in the image: taps and places.
    fn each(
        &self,
        [row, column]: [usize; 2],
        [h, w]: [usize; 2],
        mut body: impl FnMut([usize; 2], [usize; 2]),
    ) {
        for y in 0..self.kernel[0] {
            for x in 0..self.kernel[1] {
                let at = (self.place(0, row, y, h), self.place(1, column, x, w));
                if let (Some(i), Some(j)) = at {
                    body([y, x], [i, j]);
                }
            }
        }
    }
}

fn two(name: &str, sizes: Option<Vec<usize>>) -> Result<[usize; 2], String> {
    let sizes = sizes.unwrap_or_else(|| vec![1; 2]);
    let two: [usize; 2] = sizes
        .try_into()
        .map_err(|_| format!("{name} of other than 2 numbers"))?;
    match two.contains(&0) {
        true => Err(format!("{name} of 0")),
        false => Ok(two),
    }
}

fn image(x: &Tensor) -> Result<[usize; 4], String> {
    let shape = x.shape.clone().try_into();
    shape.map_err(|_| format!("{:?} are not images", x.shape))
}

/// A bias for each channel.
fn bias(args: &Arguments, channels: usize) -> Result<Vec<f64>, String> {
    let Some(bias) = args.find("bias") else {
        return Ok(vec![0.0; channels]);
    };
    match bias.shape == [channels] {
        true => Ok(bias.as_floats()?.to_vec()),
        false => Err(format!("a bias {:?} for {channels} channels", bias.shape)),
    }
}

fn groups(args: &Arguments) -> Result<usize, String> {
    match args.sizes("groups")?.as_deref() {
        None => Ok(1),
        Some([groups]) if *groups > 0 => Ok(*groups),
        Some(other) => Err(format!("groups {other:?}")),
    }
}

pub(super) fn conv(args: &Arguments) -> Result<Tensor, String> {
    let (x, weight) = (args.get("x")?, args.get("weight")?);
    let ([n, c, h, w], [o, inner, kh, kw]) = (image(x)?, image(weight)?);
    let windows = Windows::of(args, &[kh, kw])?;
    let groups = groups(args)?;
    if inner * groups != c || o % groups != 0 {
        return Err(format!("{c} channels in {groups} groups of {inner}"));
    }
    let bias = bias(args, o)?;
    let shape = [n, o, windows.count(h, 0)?, windows.count(w, 1)?];
    let (a, b) = (x.as_floats()?, weight.as_floats()?);
    let mut out = Vec::with_capacity(shape.iter().product());
    for_each_index(&shape, |index| {
        let (image, channel) = (index[0], index[1]);
        let first = channel / (o / groups) * inner;
        let mut sum = bias[channel];
        windows.each([index[2], index[3]], [h, w], |[y, x], [i, j]| {
            for k in 0..inner {
                let weight = b[((channel * inner + k) * kh + y) * kw + x];
                sum += a[((image * c + first + k) * h + i) * w + j] * weight;
            }
        });
        out.push(sum);
        Ok(())
    })?;
    Ok(Tensor::floats(x.data_type, &shape, out))
}

pub(super) fn conv_transpose(args: &Arguments) -> Result<Tensor, String> {
    let (x, weight) = (args.get("x")?, args.get("weight")?);
    let ([n, c, h, w], [inner, each, kh, kw]) = (image(x)?, image(weight)?);
    let windows = Windows::of(args, &[kh, kw])?;
    let groups = groups(args)?;
    if inner != c || c % groups != 0 {
        return Err(format!(
            "{c} channels in {groups} groups, weights for {inner}"
        ));
    }
    let o = each * groups;
    let bias = bias(args, o)?;
    let side = |size: usize, i: usize| {
        let all = (size - 1) * windows.strides[i] + (windows.kernel[i] - 1) * windows.dilations[i];
        let size = (all + 1).checked_sub(windows.pad[2 * i] + windows.pad[2 * i + 1]);
        size.filter(|&size| size > 0).ok_or("all of it is cut")
    };
    let shape = [n, o, side(h, 0)?, side(w, 1)?];
    let (a, b) = (x.as_floats()?, weight.as_floats()?);
    let mut out = vec![0.0; shape.iter().product()];
    for_each_index(&[n, c, h, w], |index| {
        let [image, channel, row, column] = [index[0], index[1], index[2], index[3]];
        let first = channel / (c / groups) * each;
        let value = a[position(&x.shape, index)?];
        windows.each([row, column], [shape[2], shape[3]], |[y, x], [i, j]| {
            for k in 0..each {
                let at = ((image * o + first + k) * shape[2] + i) * shape[3] + j;
                out[at] += value * b[((channel * each + k) * kh + y) * kw + x];
            }
        });
        Ok(())
    })?;
    let plane = shape[2] * shape[3];
    for (i, x) in out.iter_mut().enumerate() {
        *x += bias[i / plane % o];
    }
    Ok(Tensor::floats(x.data_type, &shape, out))
}

/// Padding counts as −∞.
pub(super) fn max_pool(args: &Arguments) -> Result<Tensor, String> {
    pool(args, |window, _| {
        window
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, |a, b| maximum(b, a))
    })
}

/// Padding counts as zeros, unless it is left out.
pub(super) fn avg_pool(args: &Arguments) -> Result<Tensor, String> {
    let excludes = args.flag("exclude_padding_from_average")?;
    pool(args, |window, all| {
        let count = if excludes { window.len() } else { all };
        window.iter().sum::<f64>() / count as f64
    })
}

fn pool(args: &Arguments, f: impl Fn(&[f64], usize) -> f64) -> Result<Tensor, String> {
    let x = args.get("x")?;
    let [n, c, h, w] = image(x)?;
    let windows = Windows::of(args, &args.need_sizes("kernel_sizes")?)?;
    if args.flag("ceil_mode")? {
        return Err("ceil_mode".to_owned());
    }
    let shape = [n, c, windows.count(h, 0)?, windows.count(w, 1)?];
    let a = x.as_floats()?;
    let all = windows.kernel.iter().product();
    let mut out = Vec::with_capacity(shape.iter().product());
    for_each_index(&shape, |index| {
        let plane = (index[0] * c + index[1]) * h * w;
        let mut window = Vec::with_capacity(all);
        windows.each([index[2], index[3]], [h, w], |_, [i, j]| {
            window.push(a[plane + i * w + j]);
        });
        out.push(f(&window, all));
        Ok(())
    })?;
    Ok(Tensor::floats(x.data_type, &shape, out))
}
