//! Constants, from the model or from `weight.bin`.

use half::f16;
use rustorch_coreml::proto::mil::{
    DataType, ImmediateKind, TensorElements, TensorValue, Value, ValueSource,
};

use crate::tensor::{Data, Tensor};

/// A constant as a tensor.
pub(crate) fn decode(value: &Value, weights: &[u8]) -> Result<Tensor, String> {
    let ty = value.r#type.as_ref().and_then(|ty| ty.as_tensor());
    let (data_type, shape) = ty.ok_or("a constant without a type")?;
    let data = match &value.value {
        Some(ValueSource::BlobFile(file)) => {
            if file.file_name != "@model_path/weights/weight.bin" {
                return Err(format!("no file {:?}", file.file_name));
            }
            packed(data_type, blob(weights, file.offset, data_type)?)?
        }
        Some(ValueSource::Immediate(value)) => match &value.value {
            Some(ImmediateKind::Tensor(tensor)) => immediate(data_type, tensor)?,
            None => return Err("an empty constant".to_owned()),
        },
        None => return Err("a constant without elements".to_owned()),
    };
    let tensor = Tensor {
        data_type,
        shape,
        data,
    };
    let count = match &tensor.data {
        Data::Float(x) => x.len(),
        Data::Int(x) => x.len(),
        Data::Text(_) => 1,
    };
    match count == tensor.count() {
        true => Ok(tensor),
        false => Err(format!("{count} elements for {:?}", tensor.shape)),
    }
}

fn immediate(data_type: DataType, tensor: &TensorValue) -> Result<Data, String> {
    let elements = tensor.value.as_ref().ok_or("a constant without elements")?;
    Ok(match (data_type, elements) {
        (DataType::Float32, TensorElements::Floats(x)) => {
            Data::Float(x.values.iter().map(|&x| x.into()).collect())
        }
        (DataType::Int32, TensorElements::Ints(x)) => {
            Data::Int(x.values.iter().map(|&x| x.into()).collect())
        }
        (DataType::Bool, TensorElements::Bools(x)) => {
            Data::Int(x.values.iter().map(|&x| x.into()).collect())
        }
        (DataType::String, TensorElements::Strings(x)) => match &x.values[..] {
            [text] => Data::Text(text.clone()),
            _ => return Err("not one text".to_owned()),
        },
        (DataType::Float16 | DataType::Int8 | DataType::Uint8, TensorElements::Bytes(x)) => {
            packed(data_type, &x.values)?
        }
        _ => return Err(format!("elements that are not those of {data_type:?}")),
    })
}

fn packed(data_type: DataType, bytes: &[u8]) -> Result<Data, String> {
    Ok(match data_type {
        DataType::Float32 => {
            let x = bytes.as_chunks().0.iter().copied();
            Data::Float(x.map(|x| f32::from_le_bytes(x).into()).collect())
        }
        DataType::Float16 => {
            let x = bytes.as_chunks().0.iter().copied();
            Data::Float(x.map(|x| f16::from_le_bytes(x).into()).collect())
        }
        DataType::Int8 => Data::Int(bytes.iter().map(|&x| (x as i8).into()).collect()),
        DataType::Uint8 => Data::Int(bytes.iter().map(|&x| x.into()).collect()),
        DataType::Uint2 => Data::Int(fields(bytes, 2)),
        DataType::Uint3 => Data::Int(fields(bytes, 3)),
        DataType::Uint4 => Data::Int(fields(bytes, 4)),
        DataType::Uint6 => Data::Int(fields(bytes, 6)),
        DataType::Int4 => {
            let signed = |x: i64| if x < 8 { x } else { x - 16 };
            Data::Int(fields(bytes, 4).into_iter().map(signed).collect())
        }
        other => return Err(format!("packed elements of {other:?}")),
    })
}

/// Numbers of `bits` bits, which follow each other from the lowest bit on.
fn fields(bytes: &[u8], bits: usize) -> Vec<i64> {
    let bit = |at: usize| i64::from(bytes[at / 8] >> (at % 8) & 1);
    let field = |i: usize| (0..bits).map(|b| bit(i * bits + b) << b).sum();
    (0..8 * bytes.len() / bits).map(field).collect()
}

/// The bytes of a blob: 64 bytes of metadata at `at` have their place.
fn blob(file: &[u8], at: u64, data_type: DataType) -> Result<&[u8], String> {
    let damaged = || format!("no blob at byte {at} of the weights");
    let at = usize::try_from(at).map_err(|_| damaged())?;
    let metadata = file.get(at..).and_then(|rest| rest.first_chunk::<64>());
    let metadata = metadata.ok_or_else(damaged)?;
    let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|b| metadata[4 * i + b]));
    let long = |i: usize| u64::from(word(2 * i)) | u64::from(word(2 * i + 1)) << 32;
    let code = match data_type {
        DataType::Float16 => 1,
        DataType::Float32 => 2,
        DataType::Uint8 => 3,
        DataType::Int8 => 4,
        DataType::Int4 => 8,
        DataType::Uint2 => 10,
        DataType::Uint4 => 11,
        DataType::Uint3 => 12,
        DataType::Uint6 => 13,
        other => return Err(format!("weights of {other:?}")),
    };
    if word(0) != 0xDEAD_BEEF || word(1) != code || file.get(4..8) != Some(&[2, 0, 0, 0]) {
        return Err(damaged());
    }
    let [bytes, start] = [long(1), long(2)].map(usize::try_from);
    let (Ok(bytes), Ok(start)) = (bytes, start) else {
        return Err(damaged());
    };
    let aligned = at.is_multiple_of(64) && start.is_multiple_of(64);
    let elements = file.get(start..).and_then(|rest| rest.get(..bytes));
    elements.filter(|_| aligned).ok_or_else(damaged)
}
