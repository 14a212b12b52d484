//! Tables with named columns, as CSV and Parquet files have them.

use std::collections::BTreeSet;

use rustorch_tensor::Tensor;

use crate::error::{DataError, DataResult};

/// A column of a [`Table`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Column {
    /// Whole numbers.
    Integers(Vec<i64>),
    /// Numbers; NaN if missing.
    Numbers(Vec<f64>),
    /// Text; empty if missing.
    Texts(Vec<String>),
}

impl Column {
    /// Number of rows.
    fn len(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Numbers(values) => values.len(),
            Self::Texts(values) => values.len(),
        }
    }

    /// The values as texts.
    fn texts(&self) -> Vec<String> {
        match self {
            Self::Integers(values) => values.iter().map(ToString::to_string).collect(),
            Self::Numbers(values) => values.iter().map(ToString::to_string).collect(),
            Self::Texts(values) => values.clone(),
        }
    }
}

/// Columns of one length, in the file's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<(String, Column)>,
}

impl Table {
    /// A table of columns with their names.
    ///
    /// # Errors
    /// Fails for columns of different lengths, or for two of one name.
    pub fn new(columns: Vec<(String, Column)>) -> DataResult<Self> {
        let mut names = BTreeSet::new();
        for (name, column) in &columns {
            if !names.insert(name) {
                let problem = format!("there are two columns {name:?}");
                return Err(DataError::Damaged(problem));
            }
            if column.len() != columns[0].1.len() {
                let problem = format!("column {name:?} has another length than the first one");
                return Err(DataError::Damaged(problem));
            }
        }
        Ok(Self { columns })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// The columns' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// A column.
    ///
    /// # Errors
    /// Fails if no column has the name.
    pub fn column(&self, name: &str) -> DataResult<&Column> {
        let found = self.columns.iter().find(|(other, _)| other == name);
        let (_, column) = found.ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            DataError::Other(format!("there is no column {name:?}; there are {names:?}"))
        })?;
        Ok(column)
    }

    /// Columns of numbers as a tensor `[rows, columns]`, `f32`.
    ///
    /// # Errors
    /// Fails if no column has one of the names, or if a column holds text.
    pub fn tensor(&self, names: &[&str]) -> DataResult<Tensor> {
        let mut values = vec![0.0; self.rows() * names.len()];
        for (i, name) in names.iter().enumerate() {
            let places = values.iter_mut().skip(i).step_by(names.len());
            match self.column(name)? {
                Column::Integers(column) => {
                    places
                        .zip(column)
                        .for_each(|(to, &value)| *to = value as f32);
                }
                Column::Numbers(column) => {
                    places
                        .zip(column)
                        .for_each(|(to, &value)| *to = value as f32);
                }
                Column::Texts(_) => {
                    return Err(DataError::Other(format!(
                        "column {name:?} has texts; `classes` numbers them"
                    )));
                }
            }
        }
        Ok(Tensor::from_vec(values, [self.rows(), names.len()])?)
    }

    /// A column as class indices, a tensor `[rows]`, `i64`, and the classes, which are its
    /// different values, sorted as text.
    ///
    /// # Errors
    /// Fails if no column has the name.
    pub fn classes(&self, name: &str) -> DataResult<(Tensor, Vec<String>)> {
        let texts = self.column(name)?.texts();
        let classes: BTreeSet<&String> = texts.iter().collect();
        let classes: Vec<String> = classes.into_iter().cloned().collect();
        let number = |text| classes.partition_point(|class| class < text) as i64;
        let numbers: Vec<i64> = texts.iter().map(number).collect();
        Ok((Tensor::from_vec(numbers, self.rows())?, classes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_tensors_and_classes() {
        let table = Table::new(vec![
            ("a".to_owned(), Column::Integers(vec![1, -2])),
            ("b".to_owned(), Column::Numbers(vec![0.5, 4.0])),
            (
                "kind".to_owned(),
                Column::Texts(vec!["wolf".to_owned(), "cat".to_owned()]),
            ),
        ])
        .unwrap();
        let tensor = table.tensor(&["b", "a"]).unwrap();
        assert_eq!(tensor.shape(), [2, 2]);
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [0.5, 1.0, 4.0, -2.0]);
        let (numbers, classes) = table.classes("kind").unwrap();
        assert_eq!(numbers.to_vec::<i64>().unwrap(), [1, 0]);
        assert_eq!(classes, ["cat", "wolf"]);
        for (names, told) in [(&["kind"][..], "has texts"), (&["c"], "there is no column")] {
            let error = table.tensor(names).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        let column = |len| ("a".to_owned(), Column::Integers(vec![0; len]));
        assert!(Table::new(vec![column(1), column(1)]).is_err());
        assert!(Table::new(vec![column(1), ("b".to_owned(), column(2).1)]).is_err());
    }
}
