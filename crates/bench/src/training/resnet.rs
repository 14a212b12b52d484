//! Residual networks of [He et al.](https://arxiv.org/abs/1512.03385), with the strides of torchvision's.

use rustorch::nn::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, ConvOptions, CrossEntropyLoss, Forward, Linear,
    MaxPool2d, MaxPoolOptions, Module, ReLU, Sequential,
};
use rustorch_tensor::{RusTorchResult, Tensor};

/// Channels of the first stage.
const CHANNELS: usize = 64;

/// A convolution, which keeps the size but for its stride, and the norm behind it.
fn conv(from: usize, to: usize, kernel: usize, stride: usize) -> RusTorchResult<Sequential> {
    let options = ConvOptions::default().stride(stride).padding(kernel / 2);
    let conv = Conv2d::new(from, to, kernel, options)?.without_bias();
    Ok(Sequential::new().append(conv).append(BatchNorm2d::new(to)?))
}

#[derive(Module)]
struct Block {
    body: Sequential,
    shortcut: Option<Sequential>,
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let y = self.body.forward(x)?;
        match &self.shortcut {
            Some(shortcut) => y.add(&shortcut.forward(x)?)?.relu(),
            None => y.add(x)?.relu(),
        }
    }
}

impl Block {
    fn new(from: usize, width: usize, stride: usize, is_deep: bool) -> RusTorchResult<Self> {
        let (body, to) = match is_deep {
            true => {
                let body = Sequential::new()
                    .append(conv(from, width, 1, 1)?)
                    .append(ReLU)
                    .append(conv(width, width, 3, stride)?)
                    .append(ReLU)
                    .append(conv(width, 4 * width, 1, 1)?);
                (body, 4 * width)
            }
            false => {
                let body = Sequential::new()
                    .append(conv(from, width, 3, stride)?)
                    .append(ReLU)
                    .append(conv(width, width, 3, 1)?);
                (body, width)
            }
        };
        let shortcut = (stride != 1 || from != to).then(|| conv(from, to, 1, stride));
        Ok(Self {
            body,
            shortcut: shortcut.transpose()?,
        })
    }
}

#[derive(Module)]
pub(super) struct ResNet {
    stem: Sequential,
    stages: Sequential,
    pool: AdaptiveAvgPool2d,
    head: Linear,
}

impl ResNet {
    /// A network with these numbers of blocks in its stages. Blocks are bottlenecks if `is_deep`.
    pub(super) fn new(blocks: [usize; 4], is_deep: bool, classes: usize) -> RusTorchResult<Self> {
        let halved = MaxPoolOptions::default().stride(2).padding(1);
        let stem = conv(3, CHANNELS, 7, 2)?
            .append(ReLU)
            .append(MaxPool2d::new(3, halved));
        let mut stages = Sequential::new();
        let mut from = CHANNELS;
        for (stage, &count) in blocks.iter().enumerate() {
            let width = CHANNELS << stage;
            for block in 0..count {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                stages = stages.append(Block::new(from, width, stride, is_deep)?);
                from = if is_deep { 4 * width } else { width };
            }
        }
        Ok(Self {
            stem,
            stages,
            pool: AdaptiveAvgPool2d::new([Some(1); 2]),
            head: Linear::new(from, classes)?,
        })
    }

    /// The loss of pictures `[batch, 3, side, side]` of these classes.
    pub(super) fn loss(&self, images: &Tensor, labels: &Tensor) -> RusTorchResult<Tensor> {
        let x = self.stages.forward(&self.stem.forward(images)?)?;
        let x = self.pool.forward(&x)?.flatten(1, -1)?;
        CrossEntropyLoss::default().forward(&self.head.forward(&x)?, labels)
    }
}
