//! Folders of pictures (feature `image`).

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageReader, Limits};
use rustorch_files::image::from_image;
use rustorch_tensor::Tensor;

use crate::dataset::{Batch, Dataset};
use crate::error::{DataError, DataResult, reading};

/// Memory that a picture may take, whatever its file says.
const LARGEST: u64 = 1 << 30;

/// File name extensions of images.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// Pictures in one folder for each class, as in `torchvision.datasets.ImageFolder`. A sample is an
/// image `[3, h, w]`, `u8`, of any size, and the class index, `i64`. Classes, and the pictures of
/// each class, are sorted by name.
pub struct ImageFolder {
    classes: Vec<String>,
    pictures: Vec<(PathBuf, i64)>,
}

impl ImageFolder {
    /// A data set of the pictures in a folder's subfolders.
    ///
    /// # Errors
    /// Fails if a folder cannot be read, or if there is no picture.
    pub fn open(folder: impl AsRef<Path>) -> DataResult<Self> {
        let folder = folder.as_ref();
        let list = |folder: &Path| -> DataResult<Vec<PathBuf>> {
            let read = || -> std::io::Result<Vec<PathBuf>> {
                fs::read_dir(folder)?
                    .map(|entry| Ok(entry?.path()))
                    .collect()
            };
            let mut paths = read().map_err(|error| DataError::in_file(folder, error))?;
            paths.sort();
            Ok(paths)
        };
        let (mut classes, mut pictures) = (Vec::new(), Vec::new());
        for class in list(folder)?.into_iter().filter(|path| path.is_dir()) {
            let is_picture = |path: &PathBuf| {
                let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
                ending.is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
            };
            let number = classes.len() as i64;
            let paths = list(&class)?.into_iter().filter(is_picture);
            pictures.extend(paths.map(|path| (path, number)));
            classes.push(class.file_name().unwrap_or_default().display().to_string());
        }
        if pictures.is_empty() {
            let problem = "no subfolder of this folder has a .png, .jpg or .jpeg file";
            return Err(DataError::in_file(
                folder,
                DataError::Other(problem.to_owned()),
            ));
        }
        Ok(Self { classes, pictures })
    }

    /// The names of the classes, which are their folders' names.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.pictures.len()
    }

    fn get(&self, index: usize) -> DataResult<Batch> {
        let (path, class) = &self.pictures[index];
        Ok(vec![read_image(path)?, Tensor::from_vec(vec![*class], [])?])
    }
}

/// A PNG or JPEG file as a tensor `[3, h, w]`, `u8`, in RGB.
///
/// # Errors
/// Fails if the file cannot be read or is damaged. Also fails if it would take more than 1 GiB.
pub fn read_image(path: impl AsRef<Path>) -> DataResult<Tensor> {
    reading(path.as_ref(), |source| parse_image(source))
}

/// The picture in a file's bytes, as [`read_image`].
///
/// # Errors
/// The errors of that method.
pub fn parse_image(bytes: &[u8]) -> DataResult<Tensor> {
    // Deflate and JPEG make at most so many bytes of one. A larger claim is refused before memory is
    // taken.
    const RATIO: u64 = 1 << 14;
    let reader = || ImageReader::new(Cursor::new(bytes)).with_guessed_format();
    let most = (bytes.len() as u64).saturating_mul(RATIO).min(LARGEST);
    let damaged = |error: image::ImageError| {
        let text = error.to_string();
        DataError::Damaged(text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    // The size counts three bytes a pixel, whatever the file has.
    let (width, height) = reader()?.into_dimensions().map_err(damaged)?;
    let size = u64::from(width) * u64::from(height);
    if size.saturating_mul(3) > most {
        return Err(DataError::Damaged(format!(
            "a picture of {width} × {height} would take more than {most} bytes"
        )));
    }
    let mut reader = reader()?;
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(most);
    reader.limits(limits);
    let picture = reader.decode().map_err(damaged)?;
    Ok(from_image(DynamicImage::ImageRgb8(picture.into_rgb8()))?)
}

#[cfg(test)]
mod tests {
    use image::{ImageFormat, Rgb, RgbImage};

    use super::*;

    #[test]
    fn folders_are_classes() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for class in ["b", "a"] {
            fs::create_dir(path(class)).unwrap();
        }
        let picture = RgbImage::from_fn(3, 2, |x, y| Rgb([x as u8, y as u8, 7]));
        picture
            .save_with_format(path("b/1.PNG"), ImageFormat::Png)
            .unwrap();
        picture
            .save_with_format(path("a/0.jpg"), ImageFormat::Jpeg)
            .unwrap();
        fs::write(path("a/notes.txt"), "none").unwrap();
        let samples = ImageFolder::open(root.path()).unwrap();
        assert_eq!(
            (samples.len(), samples.classes()),
            (2, &["a".to_owned(), "b".to_owned()][..])
        );
        let sample = samples.get(1).unwrap();
        assert_eq!(sample[0].shape(), [3, 2, 3]);
        let expected = [0, 1, 2, 0, 1, 2, 0, 0, 0, 1, 1, 1, 7, 7, 7, 7, 7, 7];
        assert_eq!(sample[0].to_vec::<u8>().unwrap(), expected);
        assert_eq!(sample[1].to_vec::<i64>().unwrap(), [1]);
        assert_eq!(samples.get(0).unwrap()[0].shape(), [3, 2, 3]);
        fs::write(path("b/1.PNG"), "none").unwrap();
        let error = samples.get(1).unwrap_err().to_string();
        assert!(error.contains("1.PNG") && !error.contains('\n'), "{error}");
        let error = ImageFolder::open(path("a")).err().unwrap().to_string();
        assert!(error.contains("no subfolder of this folder"), "{error}");
    }

    /// A picture of bytes of grey takes three of them in memory; a file may be said to be larger than it is.
    #[test]
    fn pictures_take_no_more_memory_than_is_told() {
        let chunk = |kind: &[u8], bytes: &[u8]| {
            let mut check = flate2::Crc::new();
            check.update(kind);
            check.update(bytes);
            let (len, sum) = (bytes.len() as u32, check.sum());
            [&len.to_be_bytes(), kind, bytes, &sum.to_be_bytes()].concat()
        };
        let png = |side: u32, bytes: usize| {
            let sides = [side.to_be_bytes(), side.to_be_bytes()].concat();
            let header = chunk(b"IHDR", &[&sides[..], &[8, 0, 0, 0, 0]].concat());
            let rest = [chunk(b"IDAT", &vec![0; bytes]), chunk(b"IEND", &[])].concat();
            [&b"\x89PNG\r\n\x1a\n"[..], &header, &rest].concat()
        };
        for (side, bytes) in [(20_000, 100_000), (5000, 100)] {
            let error = parse_image(&png(side, bytes)).unwrap_err().to_string();
            assert!(error.contains("would take more than"), "{error}");
        }
        let error = parse_image(&png(u32::MAX, 10)).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
    }
}
