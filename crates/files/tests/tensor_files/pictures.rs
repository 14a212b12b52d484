//! Pictures of `image`, with the feature of this name: `cargo test -p rustorch-files --features image`.

use image::{DynamicImage, GrayImage, ImageBuffer, Rgb, RgbImage, RgbaImage};
use rustorch_files::image::{from_image, to_image};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use crate::on_cpu;

#[test]
fn pictures_become_tensors_and_tensors_pictures() {
    on_cpu(|_| {
        let rgb = RgbImage::from_fn(3, 2, |x, y| Rgb([x as u8, y as u8, 9]));
        let tensor = from_image(rgb.clone().into()).unwrap();
        assert_eq!(
            (tensor.dtype(), tensor.shape()),
            (DType::U8, &[3, 2, 3][..])
        );
        let expected = [0, 1, 2, 0, 1, 2, 0, 0, 0, 1, 1, 1, 9, 9, 9, 9, 9, 9];
        assert_eq!(tensor.to_vec::<u8>().unwrap(), expected);
        assert_eq!(to_image(&tensor).unwrap(), DynamicImage::from(rgb));
        let grey = GrayImage::from_raw(2, 1, vec![5, 6]).unwrap();
        let tensor = from_image(grey.clone().into()).unwrap();
        assert_eq!(tensor.shape(), [1, 1, 2]);
        assert_eq!(to_image(&tensor).unwrap(), DynamicImage::from(grey));
        let rgba = RgbaImage::from_raw(1, 1, vec![1, 2, 3, 4]).unwrap();
        let tensor = from_image(rgba.clone().into()).unwrap();
        assert_eq!(tensor.shape(), [4, 1, 1]);
        assert_eq!(to_image(&tensor).unwrap(), DynamicImage::from(rgba));
        let deep = ImageBuffer::from_raw(1, 1, vec![0u16, 257, 65535]).unwrap();
        let tensor = from_image(DynamicImage::ImageRgb16(deep)).unwrap();
        assert_eq!(tensor.to_vec::<u8>().unwrap(), [0, 1, 255]);
    });
}

#[test]
fn what_is_no_picture_is_refused() {
    on_cpu(|_| {
        for (shape, dtype) in [(&[2, 2][..], DType::U8), (&[5, 2, 2], DType::U8)] {
            let error = to_image(&Tensor::zeros(shape, dtype).unwrap()).unwrap_err();
            assert!(
                error.to_string().contains("one to four channels"),
                "{error}"
            );
        }
        assert!(to_image(&Tensor::zeros([3, 2, 2], DType::F32).unwrap()).is_err());
    });
}
