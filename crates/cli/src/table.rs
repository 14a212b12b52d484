//! Tables in Markdown, aligned to be readable as text.

use std::fmt;

/// Rows under a header.
pub(crate) struct Table {
    /// The header first.
    rows: Vec<Vec<String>>,
    right: bool,
}

impl Table {
    /// A table, aligned to the left; each row as long as the header.
    pub(crate) fn new<C: Into<String>>(
        header: impl IntoIterator<Item = C>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        let header = header.into_iter().map(Into::into).collect();
        Self {
            rows: [header].into_iter().chain(rows).collect(),
            right: false,
        }
    }

    /// The same, aligned to the right.
    pub(crate) fn right(mut self) -> Self {
        self.right = true;
        self
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        // Bars would end a cell.
        let cells: Vec<Vec<String>> = (self.rows.iter())
            .map(|row| row.iter().map(|cell| cell.replace('|', "\\|")).collect())
            .collect();
        let width = |c: usize| cells.iter().map(|row| row[c].chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0).max(3)).collect();
        for (i, row) in cells.iter().enumerate() {
            for (cell, &width) in row.iter().zip(&widths) {
                match self.right {
                    true => write!(f, "| {cell:>width$} ")?,
                    false => write!(f, "| {cell:<width$} ")?,
                }
            }
            writeln!(f, "|")?;
            if i == 0 {
                for width in &widths {
                    match self.right {
                        true => write!(f, "| {}: ", "-".repeat(width - 1))?,
                        false => write!(f, "| {} ", "-".repeat(*width))?,
                    }
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a|b".to_owned(), "1".to_owned()]];
        let table = Table::new(["operation", "n"], rows);
        assert_eq!(
            table.to_string(),
            "| operation | n   |\n| --------- | --- |\n| a\\|b      | 1   |\n"
        );
        assert!(table.right().to_string().contains("| --------: | --: |\n"));
    }
}
