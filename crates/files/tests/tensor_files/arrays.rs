//! Arrays of `ndarray`.

use ndarray::{Array2, ArrayD, Axis, arr0, arr2, s};
use rustorch_files::ndarray::{from_ndarray, to_ndarray};
use rustorch_ir::DType;

use crate::on_cpu;

#[test]
fn arrays_become_tensors_and_tensors_arrays() {
    on_cpu(|_| {
        let array = arr2(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let at = array.as_ptr().addr();
        let tensor = from_ndarray(array.clone()).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (DType::F32, &[2, 3][..]));
        let back: ArrayD<f32> = to_ndarray(&tensor).unwrap();
        assert_eq!(back, array.clone().into_dyn());
        // The memory is taken, not copied.
        let taken = from_ndarray(array.clone()).unwrap();
        assert_eq!(
            taken.to_vec::<f32>().unwrap(),
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        );
        let moved = from_ndarray(array).unwrap();
        assert_eq!(moved.storage_in_memory().unwrap().host_address(), Some(at));
        assert!(to_ndarray::<i32>(&tensor).is_err());
        let number = from_ndarray(arr0(7i64)).unwrap();
        assert_eq!(number.to_vec::<i64>().unwrap(), [7]);
        assert_eq!(to_ndarray::<i64>(&number).unwrap().ndim(), 0);
    });
}

#[test]
fn arrays_of_any_layout_are_in_order() {
    on_cpu(|_| {
        let array = Array2::from_shape_fn((4, 3), |(i, j)| (10 * i + j) as u8);
        let part = |from: usize| array.clone().slice_move(s![from..from + 2, ..]);
        let mut last = array.clone();
        last.slice_collapse(s![1..;2, ..]);
        for (array, expected) in [
            (
                array.clone().reversed_axes(),
                vec![0, 10, 20, 30, 1, 11, 21, 31, 2, 12, 22, 32],
            ),
            (part(0), vec![0, 1, 2, 10, 11, 12]),
            (part(2), vec![20, 21, 22, 30, 31, 32]),
            (last, vec![10, 11, 12, 30, 31, 32]),
            (Array2::zeros((0, 3)), vec![]),
        ] {
            let mut flipped = array.clone();
            flipped.invert_axis(Axis(0));
            flipped.invert_axis(Axis(0));
            let shape = array.shape().to_vec();
            for array in [array, flipped] {
                let tensor = from_ndarray(array).unwrap();
                assert_eq!(tensor.shape(), shape);
                assert_eq!(tensor.to_vec::<u8>().unwrap(), expected);
            }
        }
    });
}
