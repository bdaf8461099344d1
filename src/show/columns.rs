//! Aligned columns like those of Go's `text/tabwriter`, which formats kubectl's tables and
//! descriptions.
//!
//! A cell ends with a tab. Text after a line's last tab belongs to no column and is never padded.
//! Consecutive lines with a cell in the same place form a column, which is as wide as its widest
//! cell. A line without that cell ends the column.
//!
//! comfy-table does not fit: it pads the last cell, and has one width per table column while a
//! description has several. It counts display cells and not code points, and it cannot keep widths
//! between outputs, which `--watch` needs.

/// Padding and minimum width of columns.
#[derive(Clone, Copy)]
pub struct ColumnSpacing {
    /// The minimum width, including padding.
    pub minimum: usize,
    /// Number of blanks after the widest cell.
    pub padding: usize,
}

/// Spacing of kubectl's tables.
pub const TABLE: ColumnSpacing = ColumnSpacing { minimum: 6, padding: 3 };

/// Spacing of kubectl's descriptions.
pub const DESCRIPTION: ColumnSpacing = ColumnSpacing { minimum: 0, padding: 2 };

/// Aligns lines of tab-separated cells.
pub fn align(text: &str, spacing: ColumnSpacing) -> String {
    let mut widths = Vec::new();
    align_remembering(text, spacing, &mut widths)
}

/// Like [`align`], but columns are at least as wide as `remembered`, which is updated.
pub fn align_remembering(text: &str, spacing: ColumnSpacing, remembered: &mut Vec<usize>) -> String {
    let lines: Vec<Vec<&str>> =
        text.split_inclusive('\n').map(|line| line.trim_end_matches('\n').split('\t').collect()).collect();
    let mut layout =
        TableLayout { lines, spacing, remembered, open: Vec::new(), out: String::with_capacity(text.len() * 2) };
    let last = layout.lines.len();
    layout.block(0, last);
    let mut out = layout.out;
    if !text.ends_with('\n') {
        out.pop();
    }
    out
}

struct TableLayout<'a> {
    lines: Vec<Vec<&'a str>>,
    spacing: ColumnSpacing,
    remembered: &'a mut Vec<usize>,
    /// Widths of the columns of the current lines.
    open: Vec<usize>,
    out: String,
}

impl TableLayout<'_> {
    /// Lays out lines that share the open columns, and finds the runs of lines with a further
    /// column.
    fn block(&mut self, from: usize, to: usize) {
        let column = self.open.len();
        let (mut written, mut at) = (from, from);
        while at < to {
            let end = (at..to).find(|line| !self.has_cell(*line, column)).unwrap_or(to);
            if end == at {
                at += 1;
                continue;
            }
            self.write(written, at);
            let width = self.width(column, at, end);
            self.open.push(width);
            self.block(at, end);
            self.open.pop();
            (written, at) = (end, end);
        }
        self.write(written, to);
    }

    fn has_cell(&self, line: usize, column: usize) -> bool {
        column + 1 < self.lines[line].len()
    }

    fn width(&mut self, column: usize, from: usize, to: usize) -> usize {
        let cells = self.lines[from..to].iter().map(|line| line[column].chars().count());
        let widest = cells.max().unwrap_or(0) + self.spacing.padding;
        let remembered_width = self.remembered.get(column).copied().unwrap_or(0);
        let width = widest.max(self.spacing.minimum).max(remembered_width);
        if self.spacing.minimum > 0 {
            self.remembered.resize(self.remembered.len().max(column + 1), 0);
            self.remembered[column] = width;
        }
        width
    }

    fn write(&mut self, from: usize, to: usize) {
        for line in &self.lines[from..to] {
            for (column, cell) in line.iter().enumerate() {
                self.out.push_str(cell);
                if let Some(width) = self.open.get(column) {
                    let missing = width.saturating_sub(cell.chars().count());
                    self.out.extend(std::iter::repeat_n(' ', missing));
                }
            }
            self.out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_are_padded() {
        let cases = [
            ("NAME\tAGE\nalpha\t1m\n", "NAME    AGE\nalpha   1m\n"),
            ("b\t1\t5s\n", "b     1     5s\n"),
            ("NAME\tX\na\t\n", "NAME   X\na      \n"),
            ("no newline\tx", "no newline   x"),
        ];
        for (text, expected) in cases {
            assert_eq!(align(text, TABLE), expected);
        }
    }

    #[test]
    fn description_columns_end_with_their_lines() {
        let text = "Name:\tx\nLonger Name:\ty\nHeading:\n  A:\tb\nFar Away:\tz\n";
        let expected = "Name:         x\nLonger Name:  y\nHeading:\n  A:       b\nFar Away:  z\n";
        assert_eq!(align(text, DESCRIPTION), expected);
        // An inner column applies only to the lines that have it.
        let text = "Port:\tweb\t80\nTarget:\tlong value here\nPort:\traw\t81\n";
        assert_eq!(align(text, DESCRIPTION), "Port:    web  80\nTarget:  long value here\nPort:    raw  81\n");
    }

    #[test]
    fn remembered_widths_are_kept() {
        let mut widths = Vec::new();
        assert_eq!(align_remembering("abcdefgh\tx\n", TABLE, &mut widths), "abcdefgh   x\n");
        assert_eq!(align_remembering("a\tx\n", TABLE, &mut widths), "a          x\n");
        assert_eq!(align_remembering("abcdefghijk\tx\n", TABLE, &mut widths), "abcdefghijk   x\n");
    }
}
