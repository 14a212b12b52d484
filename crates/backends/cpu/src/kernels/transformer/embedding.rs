//! Rows of a table, dequantised one by one.

use bytemuck::cast_slice;
use rustorch_ir::{DType, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};
use smallvec::SmallVec;

use crate::half_precision::{widen_bf16, widen_f16};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Embedding,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

fn accepts(s: &Signature) -> bool {
    let table = s.inputs[0].dtype;
    let known = matches!(table, DType::F32 | DType::F16 | DType::BF16) || table.is_block();
    known && s.output().dtype == DType::F32
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let (table, ids) = (&args.inputs[0], &args.inputs[1]);
    let (rows, width) = (table.shape()[0], table.shape()[1]);
    let ids: SmallVec<[i64; 16]> = match ids.dtype() {
        DType::I32 => ids.data::<i32>().iter().map(|&i| i.into()).collect(),
        _ => ids.data::<i64>().into(),
    };
    if let Some((at, id)) = ids
        .iter()
        .enumerate()
        .find(|(_, id)| !(0..rows as i64).contains(id))
    {
        return Err(Misuse(format!(
            "id {id} at position {at} is outside a table of {rows} rows"
        )));
    }
    let row_bytes = table.ty.bytes() / rows.max(1);
    let table_bytes = table.dense_bytes();
    let bytes = |id: i64| &table_bytes[id as usize * row_bytes..][..row_bytes];
    for_rows(
        args.pool,
        args.output.data::<f32>(),
        width,
        4 * width,
        |first, part| {
            for (row, &id) in part.chunks_exact_mut(width).zip(&ids[first..]) {
                read_row(table.dtype(), bytes(id), row);
            }
        },
    );
    Ok(())
}

/// Converts one row.
fn read_row(dtype: DType, bytes: &[u8], row: &mut [f32]) {
    match dtype {
        DType::Block(format) => {
            // Lengths match: the row's bytes were derived from its width.
            let converted = format.dequantize(bytes, row);
            debug_assert!(converted.is_ok());
        }
        DType::F16 => widen_f16(cast_slice(bytes), row),
        DType::BF16 => widen_bf16(cast_slice(bytes), row),
        _ => row.copy_from_slice(cast_slice(bytes)),
    }
}
