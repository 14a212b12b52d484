//! A network of convolutions that reads digits: MNIST's, if the folder in `MNIST` has the files
//! `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, else digits that are drawn here.

use std::path::Path;
use std::{env, fs};

use rustorch::nn::{
    BatchNorm2d, Conv2d, CrossEntropyLoss, Flatten, Forward, Linear, MaxPool2d, Module, ReLU,
    Sequential, sequential,
};
use rustorch::optim::{Adam, AdamOptions};
use rustorch::prelude::*;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Pixels of a side.
const SIDE: usize = 28;
const BATCH: usize = 32;

/// Ten digits of 3 × 5 pixels: a row is three bits.
const FONT: [[u8; 5]; 10] = [
    [7, 5, 5, 5, 7],
    [2, 6, 2, 2, 7],
    [7, 1, 7, 4, 7],
    [7, 1, 7, 1, 7],
    [5, 5, 7, 1, 1],
    [7, 4, 7, 1, 7],
    [7, 4, 7, 5, 7],
    [7, 1, 2, 2, 2],
    [7, 5, 7, 5, 7],
    [7, 5, 7, 1, 7],
];

/// Images `[n, 1, 28, 28]` from 0 to 1, and their digits `[n]`.
struct Digits {
    images: Tensor,
    labels: Tensor,
}

impl Digits {
    /// Digits of four times their size, each somewhere else, with noise.
    fn drawn(n: usize) -> Outcome<Self> {
        let at = Tensor::randint(0, 8, [n, 2], DType::I64)?.to_vec::<i64>()?;
        let mut pixels = vec![0.0f32; n * SIDE * SIDE];
        for (i, place) in at.chunks_exact(2).enumerate() {
            let glyph = FONT[i % 10];
            for y in 0..20 {
                for x in 0..12 {
                    let is_ink = glyph[y / 4] >> (2 - x / 4) & 1 == 1;
                    let (row, column) = (place[0] as usize + y, 2 * place[1] as usize + x);
                    pixels[(i * SIDE + row) * SIDE + column] = f32::from(u8::from(is_ink));
                }
            }
        }
        let images = Tensor::from_vec(pixels, [n, 1, SIDE, SIDE])?;
        let noise = Tensor::randn([n, 1, SIDE, SIDE], DType::F32)?;
        Ok(Self {
            images: images.add(&noise.mul(0.3)?)?,
            labels: Tensor::from_vec((0..n as i64).map(|i| i % 10).collect(), n)?,
        })
    }

    /// Reads MNIST's files, whose headers are 16 and 8 bytes.
    fn read(folder: &Path) -> Outcome<Self> {
        let images = fs::read(folder.join("train-images-idx3-ubyte"))?;
        let labels = fs::read(folder.join("train-labels-idx1-ubyte"))?;
        let (pixels, labels) = (images.get(16..), labels.get(8..));
        let (pixels, labels) = pixels.zip(labels).ok_or("a file without its header")?;
        let images = Tensor::from_vec(pixels.to_vec(), [labels.len(), 1, SIDE, SIDE])?;
        Ok(Self {
            images: images.to_dtype(DType::F32)?.div(255.0)?,
            labels: Tensor::from_vec(labels.to_vec(), labels.len())?.to_dtype(DType::I64)?,
        })
    }

    /// The samples of these numbers.
    fn batch(&self, numbers: &Tensor) -> RusTorchResult<(Tensor, Tensor)> {
        let images = self.images.index_select(0, numbers)?;
        Ok((images, self.labels.index_select(0, numbers)?))
    }
}

fn network() -> RusTorchResult<Sequential> {
    let padded = ConvOptions::default().padding(1);
    Ok(sequential![
        Conv2d::new(1, 8, 3, padded)?,
        BatchNorm2d::new(8)?,
        ReLU,
        MaxPool2d::new(2, MaxPoolOptions::default()),
        Conv2d::new(8, 16, 3, padded)?,
        BatchNorm2d::new(16)?,
        ReLU,
        MaxPool2d::new(2, MaxPoolOptions::default()),
        Flatten::default(),
        Linear::new(16 * 7 * 7, 10)?,
    ])
}

pub(crate) fn main() -> Outcome<()> {
    manual_seed(3);
    let (digits, steps) = match env::var_os("MNIST") {
        Some(folder) => (Digits::read(Path::new(&folder))?, 1000),
        None => (Digits::drawn(640)?, 160),
    };
    let n = digits.labels.shape()[0];
    let mut network = network()?;
    let mut optimizer = Adam::new(network.named_parameters(), AdamOptions::default().lr(0.01))?;
    for step in 0..steps {
        let numbers = Tensor::randint(0, n as i64, [BATCH], DType::I64)?;
        let (images, labels) = digits.batch(&numbers)?;
        optimizer.zero_grad();
        let loss = CrossEntropyLoss::default().forward(&network.forward(&images)?, &labels)?;
        loss.backward()?;
        optimizer.step()?;
        if step % 20 == 0 {
            println!("step {step}: loss {:.3}", loss.item()?);
        }
    }
    network.eval();
    let (images, labels) = digits.batch(&Tensor::arange_with(0, 320, 1, DType::I64)?)?;
    let guesses = no_grad(|| network.forward(&images))?.argmax(Some(1), false)?;
    let right = guesses
        .eq(&labels)?
        .to_dtype(DType::F32)?
        .mean(.., false)?
        .item()?;
    println!("{:.1} % are read", 100.0 * right);
    assert!(right > 0.9);
    Ok(())
}
