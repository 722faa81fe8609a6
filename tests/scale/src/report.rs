//! Rows as a table, as a page and as a plot.

pub mod goals;
pub mod page;
pub mod plot;

use crate::bench::row::Row;

const MIB: f64 = 1_048_576.0;

/// The columns of a row, as text.
fn columns(row: &Row) -> Vec<String> {
    let times = |times: Option<f64>| times.map_or_else(|| "-".to_owned(), |times| format!("{times:.1}"));
    let floor = row.floor.as_ref().map_or_else(|| "-".to_owned(), |floor| number(floor.cpu_ms));
    vec![
        row.cell.clone(),
        format!("{} {}", row.workload, row.what),
        row.affected.to_string(),
        if row.missed > 0 { format!("{} MISSED", row.missed) } else { number(row.p50_ms) },
        number(row.p99_ms),
        number(row.max_ms),
        number(row.cpu_ms),
        floor,
        times(row.times_floor()),
        bytes(row.bytes),
        row.times_needed().map_or_else(|| "-".to_owned(), |times| format!("{times:.2}")),
        number(row.responses),
        row.bystanders.to_string(),
        format!("{:.0}", row.memory as f64 / MIB),
        format!("{:.0}", row.peak as f64 / MIB),
    ]
}

const HEADER: [&str; 15] = [
    "cell",
    "workload",
    "proxies",
    "p50 ms",
    "p99 ms",
    "max ms",
    "CPU ms",
    "floor ms",
    "× floor",
    "bytes",
    "× needed",
    "responses",
    "others",
    "RSS MiB",
    "peak MiB",
];

/// Rows for a terminal.
pub fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEADER.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(columns));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        for (index, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.chars().count());
            // Words stand left, numbers right.
            text += &if index < 2 { format!("{cell}{padding}  ") } else { format!("{padding}{cell}  ") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn bytes(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{:.2} GB", value / 1e9),
        value if value >= 1e6 => format!("{:.1} MB", value / 1e6),
        value if value >= 1e3 => format!("{:.1} kB", value / 1e3),
        value => format!("{value:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_table_stand_under_each_other() {
        let row = Row { cell: "1000x1000".to_owned(), what: "a change".to_owned(), ..Row::default() };
        let text = table(&[row]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].chars().count(), lines[1].chars().count());
    }

    #[test]
    fn sizes_are_told_in_three_digits() {
        assert_eq!([bytes(12.0), bytes(52_945.0), bytes(1.8e9)], ["12 B", "52.9 kB", "1.80 GB"]);
        assert_eq!([number(0.123), number(12.34), number(1234.5)], ["0.12", "12.3", "1234"]);
    }
}
