//! Parquet (feature `parquet`).

use std::path::Path;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use crate::error::{DataError, DataResult, reading};
use crate::table::{Column, Table};

/// Reads a file as a table. Integers become `i64`, other numbers and columns with gaps `f64`, text
/// stays text, and booleans 0 or 1.
///
/// # Errors
/// Fails if the file cannot be read or is damaged. Also fails for a column of an unsupported type,
/// such as a list.
pub fn read_parquet(path: impl AsRef<Path>) -> DataResult<Table> {
    reading(path.as_ref(), |source| {
        parse_parquet(Bytes::from_owner(source.clone()))
    })
}

/// The table in a file's bytes, as [`read_parquet`].
///
/// # Errors
/// The errors of that method.
pub fn parse_parquet(bytes: Bytes) -> DataResult<Table> {
    let reader = SerializedFileReader::new(bytes).map_err(damaged)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names = schema.root_schema().get_fields();
    let mut columns: Vec<(String, Column)> = (names.iter())
        .map(|field| (field.name().to_owned(), Column::Integers(Vec::new())))
        .collect();
    for (row, record) in reader.get_row_iter(None).map_err(damaged)?.enumerate() {
        let record = record.map_err(damaged)?;
        for ((name, column), (_, field)) in columns.iter_mut().zip(record.get_column_iter()) {
            if !add(column, field, row) {
                return Err(DataError::Damaged(format!(
                    "column {name:?} has unsupported or mixed values in row {row}; leave the \
                     column out"
                )));
            }
        }
    }
    Table::new(columns)
}

/// Adds a value to a column of `row` rows. `false` if it is neither a number nor text, or not of the column's kind.
fn add(column: &mut Column, field: &Field, row: usize) -> bool {
    let integer = match field {
        Field::Bool(value) => Some(i64::from(*value)),
        Field::Byte(value) => Some((*value).into()),
        Field::Short(value) => Some((*value).into()),
        Field::Int(value) => Some((*value).into()),
        Field::Long(value) => Some(*value),
        Field::UByte(value) => Some((*value).into()),
        Field::UShort(value) => Some((*value).into()),
        Field::UInt(value) => Some((*value).into()),
        Field::ULong(value) => i64::try_from(*value).ok(),
        _ => None,
    };
    let number = match field {
        Field::Null => Some(f64::NAN),
        Field::Float16(value) => Some(value.to_f64()),
        Field::Float(value) => Some((*value).into()),
        Field::Double(value) => Some(*value),
        Field::ULong(value) => Some(*value as f64),
        _ => integer.map(|integer| integer as f64),
    };
    let has_none = is_empty(column);
    match (&mut *column, integer, number, field) {
        (Column::Integers(values), Some(integer), ..) => values.push(integer),
        (Column::Integers(values), None, Some(number), _) => {
            let mut numbers: Vec<f64> = values.iter().map(|&value| value as f64).collect();
            numbers.push(number);
            *column = Column::Numbers(numbers);
        }
        (Column::Numbers(values), _, Some(number), _) => values.push(number),
        (Column::Texts(values), .., Field::Str(text)) => values.push(text.clone()),
        (Column::Texts(values), .., Field::Null) => values.push(String::new()),
        // A column of texts begins with one, or with gaps.
        (Column::Integers(_) | Column::Numbers(_), .., Field::Str(text)) if has_none => {
            let mut texts = vec![String::new(); row];
            texts.push(text.clone());
            *column = Column::Texts(texts);
        }
        _ => return false,
    }
    true
}

/// Has a column no value yet?
fn is_empty(column: &Column) -> bool {
    match column {
        Column::Integers(values) => values.is_empty(),
        Column::Numbers(values) => values.iter().all(|value| value.is_nan()),
        Column::Texts(values) => values.is_empty(),
    }
}

fn damaged(error: ParquetError) -> DataError {
    let text = error.to_string();
    DataError::Damaged(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// A file of two row groups.
    fn sample(compression: Compression) -> Vec<u8> {
        let schema = "message m { required int32 n; optional double x; required binary t (UTF8); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = WriterProperties::builder().set_compression(compression);
        let mut file = Vec::new();
        let mut writer =
            SerializedFileWriter::new(&mut file, schema, Arc::new(properties.build())).unwrap();
        for group in 0..2 {
            let mut rows = writer.next_row_group().unwrap();
            let mut column = rows.next_column().unwrap().unwrap();
            let numbers = [group, -7];
            column
                .typed::<Int32Type>()
                .write_batch(&numbers, None, None)
                .unwrap();
            column.close().unwrap();
            let mut column = rows.next_column().unwrap().unwrap();
            let present = Some(&[0, 1][..]);
            column
                .typed::<DoubleType>()
                .write_batch(&[0.5], present, None)
                .unwrap();
            column.close().unwrap();
            let mut column = rows.next_column().unwrap().unwrap();
            let texts = ["a", "bc"].map(ByteArray::from);
            column
                .typed::<ByteArrayType>()
                .write_batch(&texts, None, None)
                .unwrap();
            column.close().unwrap();
            rows.close().unwrap();
        }
        writer.close().unwrap();
        file
    }

    #[test]
    fn columns_have_their_kinds() {
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY] {
            let table = parse_parquet(sample(compression).into()).unwrap();
            assert_eq!(table.names().collect::<Vec<_>>(), ["n", "x", "t"]);
            assert_eq!(
                *table.column("n").unwrap(),
                Column::Integers(vec![0, -7, 1, -7])
            );
            let Column::Numbers(numbers) = table.column("x").unwrap() else {
                panic!("{table:?}")
            };
            assert!(numbers[0].is_nan() && numbers[1] == 0.5 && numbers[3] == 0.5);
            let texts = ["a", "bc", "a", "bc"].map(str::to_owned).to_vec();
            assert_eq!(*table.column("t").unwrap(), Column::Texts(texts));
        }
    }

    #[test]
    fn files_of_pyarrow_compressed_or_not() {
        // pyarrow 26.0.1, write_table(…, compression=…).
        for compression in ["none", "snappy", "gzip", "zstd"] {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens");
            let table = read_parquet(format!("{folder}/{compression}.parquet")).unwrap();
            assert_eq!(
                *table.column("n").unwrap(),
                Column::Integers(vec![1, -2, 3])
            );
            assert_eq!(
                *table.column("ok").unwrap(),
                Column::Integers(vec![1, 0, 1])
            );
            let texts = ["cat", "dog", ""].map(str::to_owned).to_vec();
            assert_eq!(*table.column("kind").unwrap(), Column::Texts(texts));
            let Column::Numbers(numbers) = table.column("x").unwrap() else {
                panic!("{table:?}")
            };
            assert!(numbers[0] == 0.5 && numbers[1].is_nan() && numbers[2] == -1.0);
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_a_line() {
        let whole = sample(Compression::UNCOMPRESSED);
        for bytes in [&b"PAR1"[..], b"", &whole[..whole.len() / 2]] {
            let error = parse_parquet(Bytes::copy_from_slice(bytes)).unwrap_err();
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
