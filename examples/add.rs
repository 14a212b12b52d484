//! Two tensors added: the smallest program, by which the library's size is measured.

use rustorch::prelude::*;

pub(crate) fn main() -> RusTorchResult<()> {
    let sum = tensor![1.0, 2.0].add(tensor![3.0, 4.0])?;
    assert_eq!(sum.to_vec::<f32>()?, [4.0, 6.0]);
    println!("{sum}");
    Ok(())
}
