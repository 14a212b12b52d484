//! Files of data sets.

use rustorch_data::{Dataset, Labels, parse_cifar100, parse_idx};
use rustorch_testing::memory::within;

use super::tensors::on_cpu;

/// Bytes that a field, an element or a name takes beside its bytes in the file.
const FACTOR: usize = 256;
const SLACK: usize = 256 << 10;
/// Bytes that deflate makes of one byte, in a vector that grows, and as elements.
const COMPRESSED: usize = 5 * 1032;

/// Reads, within memory that follows from the size of the input.
fn read<T, E: ToString>(
    bytes: &[u8],
    factor: usize,
    read: impl FnOnce() -> Result<T, E>,
) -> Result<(), String> {
    let read = || on_cpu(read).map(drop).map_err(|error| error.to_string());
    within(factor * bytes.len() + SLACK, read)
}

#[cfg(feature = "csv")]
pub(super) fn csvs() -> Vec<Vec<u8>> {
    let texts = [
        "a,b,kind\n1,0.5,cat\n-2,,dog\n",
        "x\n\"a, \"\"b\"\"\nc\"\n",
        "1e3,nan\r\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

#[cfg(feature = "csv")]
pub(super) fn csv(bytes: &[u8]) -> Result<(), String> {
    use rustorch_data::{CsvOptions, parse_csv};

    read(bytes, FACTOR, || {
        let table = parse_csv(bytes, CsvOptions::default())?;
        let names: Vec<&str> = table.names().collect();
        for name in &names {
            table.classes(name)?;
        }
        table.tensor(&names).map(drop)
    })
}

pub(super) fn idxs() -> Vec<Vec<u8>> {
    vec![
        vec![0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6],
        vec![0, 0, 13, 1, 0, 0, 0, 1, 63, 128, 0, 0],
        // The first one, compressed.
        vec![
            31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 99, 96, 224, 96, 98, 96, 96, 0, 97, 102, 70, 38, 102,
            22, 86, 54, 0, 72, 148, 62, 229, 18, 0, 0, 0,
        ],
    ]
}

pub(super) fn idx(bytes: &[u8]) -> Result<(), String> {
    read(bytes, COMPRESSED, || parse_idx(bytes))
}

pub(super) fn cifars() -> Vec<Vec<u8>> {
    let record = [&[3, 77][..], &[9; 3072]].concat();
    vec![record.repeat(2), record]
}

pub(super) fn cifar(bytes: &[u8]) -> Result<(), String> {
    read(bytes, FACTOR, || {
        let samples = parse_cifar100(bytes, Labels::Fine)?;
        samples.get(samples.len() - 1)
    })
}

#[cfg(feature = "image")]
pub(super) fn images() -> Vec<Vec<u8>> {
    use image::{ImageFormat, Rgb, RgbImage};

    let picture = RgbImage::from_fn(9, 8, |x, y| Rgb([x as u8 * 20, y as u8 * 30, 7]));
    [ImageFormat::Png, ImageFormat::Jpeg]
        .map(|format| {
            let mut file = std::io::Cursor::new(Vec::new());
            picture
                .write_to(&mut file, format)
                .expect("a picture is written");
            file.into_inner()
        })
        .to_vec()
}

#[cfg(feature = "image")]
pub(super) fn image(bytes: &[u8]) -> Result<(), String> {
    // Pictures take up to 16384 bytes for one of their file's, thrice while they are converted.
    read(bytes, 3 << 14, || rustorch_data::parse_image(bytes))
}

#[cfg(feature = "parquet")]
pub(super) fn parquets() -> Vec<Vec<u8>> {
    super::all_in("crates/data/tests/goldens", ".parquet")
}

#[cfg(feature = "parquet")]
pub(super) fn parquet(bytes: &[u8]) -> Result<(), String> {
    read(bytes, COMPRESSED, || {
        rustorch_data::parse_parquet(bytes.to_vec().into())
    })
}
