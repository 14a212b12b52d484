//! Constants as their elements.

use super::infer::{Constant, Type};
use crate::package::WEIGHTS;
use crate::proto::mil::{DataType, ImmediateKind, TensorElements, TensorValue, Value, ValueSource};
use crate::weights;

/// Type and elements of a constant.
pub(super) fn decode(value: &Value, file: &[u8]) -> Result<(Type, Constant), String> {
    let ty = value.r#type.as_ref().and_then(|ty| ty.as_tensor());
    let (data_type, shape) = ty.ok_or("a value without a type of a tensor")?;
    let ty = Type { data_type, shape };
    let constant = match &value.value {
        Some(ValueSource::BlobFile(blob)) if blob.file_name != WEIGHTS => {
            return Err(format!("weights in {:?}, not {WEIGHTS:?}", blob.file_name));
        }
        Some(ValueSource::BlobFile(place)) => {
            let blob = weights::blob(file, place.offset).map_err(|e| e.to_string())?;
            stored(&ty, &blob)?;
            Constant::Other
        }
        Some(ValueSource::Immediate(immediate)) => match &immediate.value {
            Some(ImmediateKind::Tensor(tensor)) => elements(&ty, tensor)?,
            None => return Err("an empty value".to_owned()),
        },
        None => return Err("no value".to_owned()),
    };
    Ok((ty, constant))
}

/// Are the elements in the file those of the type?
fn stored(ty: &Type, blob: &weights::Blob) -> Result<(), String> {
    if weights::code(ty.data_type) != Some(blob.code) {
        return Err(format!("weights of type {} for {ty}", blob.code));
    }
    let bits = ty.data_type.bits().unwrap_or_default();
    let bits = ty.count().saturating_mul(bits);
    match blob.elements.len() == bits.div_ceil(8) {
        true => Ok(()),
        false => Err(format!("{} bytes of weights for {ty}", blob.elements.len())),
    }
}

/// The elements of a constant in the model.
fn elements(ty: &Type, tensor: &TensorValue) -> Result<Constant, String> {
    let wrong = || format!("elements that are none of {ty}");
    let value = tensor.value.as_ref().ok_or_else(wrong)?;
    let (count, constant) = match (ty.data_type, value) {
        (DataType::Float32, TensorElements::Floats(x)) => (x.values.len(), Constant::Other),
        (DataType::Int32, TensorElements::Ints(x)) => {
            let values = x.values.iter().map(|&x| x.into()).collect();
            (x.values.len(), Constant::Ints(values))
        }
        (DataType::Bool, TensorElements::Bools(x)) => {
            (x.values.len(), Constant::Bools(x.values.clone()))
        }
        (DataType::String, TensorElements::Strings(x)) => {
            let text = x.values.first().cloned().unwrap_or_default();
            (x.values.len(), Constant::Text(text))
        }
        (packed, TensorElements::Bytes(x)) => {
            let bytes = packed.bits().filter(|bits| bits.is_multiple_of(8));
            let bytes = bytes.ok_or_else(wrong)? / 8;
            let whole = x.values.len().is_multiple_of(bytes);
            let count = x.values.len() / bytes;
            (whole.then_some(count).ok_or_else(wrong)?, Constant::Other)
        }
        _ => return Err(wrong()),
    };
    match count == ty.count() {
        true => Ok(constant),
        false => Err(format!("{count} elements of {ty}")),
    }
}

/// A text of rank 0.
pub(super) fn text(value: &Value) -> Option<String> {
    match decode(value, &[]) {
        Ok((ty, Constant::Text(text))) if ty.shape.is_empty() => Some(text),
        _ => None,
    }
}
