//! Comma-separated values.

use std::path::Path;

use csv::{Reader, ReaderBuilder, StringRecord};

use crate::error::{DataError, DataResult, reading};
use crate::table::{Column, Table};

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// The separator of fields.
    pub delimiter: u8,
    /// Whether the first line holds the columns' names. Otherwise they are called `0`, `1` and so on.
    pub has_names: bool,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            delimiter: b',',
            has_names: true,
        }
    }
}

/// The type that all fields of a column can be parsed as.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Integers,
    Numbers,
    Texts,
}

impl Kind {
    /// The narrowest that a field can be read as; an empty one stands for a number that is missing.
    fn of(field: &str) -> Self {
        match field {
            "" => Self::Numbers,
            _ if field.parse::<i64>().is_ok() => Self::Integers,
            _ if field.parse::<f64>().is_ok() => Self::Numbers,
            _ => Self::Texts,
        }
    }
}

/// Reads a file as a table: RFC 4180 with UTF-8 fields, which are trimmed. A column holds integers
/// if all fields are integers, floats if all are numbers or missing, and otherwise text.
///
/// # Errors
/// Fails if the file cannot be read, has rows of several lengths, or is not UTF-8.
pub fn read_csv(path: impl AsRef<Path>, options: CsvOptions) -> DataResult<Table> {
    reading(path.as_ref(), |source| parse_csv(source, options))
}

/// The table in a file's bytes, as [`read_csv`].
///
/// # Errors
/// The errors of that method.
pub fn parse_csv(bytes: &[u8], options: CsvOptions) -> DataResult<Table> {
    let mut reader = reader(bytes, options);
    let names = (options.has_names.then(|| reader.headers()))
        .transpose()
        .map_err(damaged)?
        .cloned();
    let mut kinds = Vec::new();
    each(&mut reader, |record| {
        kinds.resize(record.len(), None);
        for (kind, field) in kinds.iter_mut().zip(record) {
            *kind = Some(Kind::of(field)).max(*kind);
        }
    })?;
    kinds.resize(names.as_ref().map_or(kinds.len(), StringRecord::len), None);
    let empty = |kind: &Option<Kind>| match kind {
        Some(Kind::Integers) => Column::Integers(Vec::new()),
        Some(Kind::Texts) => Column::Texts(Vec::new()),
        Some(Kind::Numbers) | None => Column::Numbers(Vec::new()),
    };
    let mut columns: Vec<Column> = kinds.iter().map(empty).collect();
    each(&mut self::reader(bytes, options), |record| {
        for (column, field) in columns.iter_mut().zip(record) {
            match column {
                Column::Integers(values) => values.extend(field.parse::<i64>()),
                Column::Numbers(values) => values.push(field.parse().unwrap_or(f64::NAN)),
                Column::Texts(values) => values.push(field.to_owned()),
            }
        }
    })?;
    let name = |i: usize| match &names {
        Some(names) => names[i].to_owned(),
        None => i.to_string(),
    };
    Table::new((0..).map(name).zip(columns).collect())
}

fn reader(bytes: &[u8], options: CsvOptions) -> Reader<&[u8]> {
    ReaderBuilder::new()
        .delimiter(options.delimiter)
        .has_headers(options.has_names)
        .trim(csv::Trim::All)
        .from_reader(bytes)
}

fn each(reader: &mut Reader<&[u8]>, mut each: impl FnMut(&StringRecord)) -> DataResult<()> {
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(damaged)? {
        each(&record);
    }
    Ok(())
}

fn damaged(error: csv::Error) -> DataError {
    DataError::Damaged(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_of_the_narrowest_kind() {
        let text = " height,\"na,me\",n\n1.5, x,3\n,\"y\ny\",-4\n";
        let table = parse_csv(text.as_bytes(), CsvOptions::default()).unwrap();
        assert_eq!(table.names().collect::<Vec<_>>(), ["height", "na,me", "n"]);
        assert_eq!(table.rows(), 2);
        let Column::Numbers(heights) = table.column("height").unwrap() else {
            panic!("{table:?}")
        };
        assert!(heights[0] == 1.5 && heights[1].is_nan());
        let texts = ["x", "y\ny"].map(str::to_owned).to_vec();
        assert_eq!(*table.column("na,me").unwrap(), Column::Texts(texts));
        assert_eq!(*table.column("n").unwrap(), Column::Integers(vec![3, -4]));
    }

    #[test]
    fn files_without_names_and_empty_ones() {
        let options = CsvOptions {
            delimiter: b';',
            has_names: false,
        };
        let table = parse_csv(b"1;2\n3;4\n", options).unwrap();
        assert_eq!(*table.column("1").unwrap(), Column::Integers(vec![2, 4]));
        assert_eq!(parse_csv(b"", options).unwrap(), Table::default());
        let only_names = parse_csv(b"a,b\n", CsvOptions::default()).unwrap();
        assert_eq!((only_names.names().count(), only_names.rows()), (2, 0));
    }

    #[test]
    fn what_is_wrong_is_told_in_a_line() {
        for (text, told) in [
            (&b"a,b\n1\n"[..], "1 field"),
            (b"a\n\xff\n", "invalid utf-8"),
            (b"a,a\n1,2\n", "two columns"),
        ] {
            let error = parse_csv(text, CsvOptions::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains(told) && !error.contains('\n'), "{error}");
        }
        let error = read_csv("no-such.csv", CsvOptions::default()).unwrap_err();
        assert!(error.to_string().contains("no-such.csv"), "{error}");
    }
}
