//! Output of data: as a table for people, as YAML or JSON for programs, as names for shells.

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, ColumnConstraint, Table, presets};
use serde_json::Value;

use crate::{failure::Result, terminal};

/// The forms output can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Columns for people
    Table,
    /// A table with more columns
    Wide,
    /// YAML, as the REST API returns it
    Yaml,
    /// JSON, as the REST API returns it
    Json,
    /// One `type/name` per line
    Name,
}

/// `-o` for commands whose data has every form.
#[derive(Debug, Args)]
pub struct Output {
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: OutputFormat,
}

/// The forms of data that has no columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlainFormat {
    /// Plain text
    Text,
    /// YAML
    Yaml,
    /// JSON
    Json,
}

/// `-o` for commands that answer with one thing.
#[derive(Debug, Args)]
pub struct PlainOutput {
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "text")]
    pub format: PlainFormat,
}

impl PlainOutput {
    /// Shows a value in YAML or JSON, or the caller's text.
    pub fn show(&self, value: &Value, text: impl FnOnce() -> String) -> Result<()> {
        let rendered = match self.format {
            PlainFormat::Text => text(),
            PlainFormat::Yaml => yaml(value),
            PlainFormat::Json => json(value),
        };
        Ok(terminal::data(&rendered)?)
    }
}

/// The forms of data that has columns but no names of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Columns for people
    Table,
    /// YAML
    Yaml,
    /// JSON
    Json,
}

impl TableFormat {
    /// Shows a value in YAML or JSON, or the caller's columns.
    pub fn render(self, value: &Value, table: impl FnOnce() -> String) -> String {
        match self {
            TableFormat::Table => table(),
            TableFormat::Yaml => yaml(value),
            TableFormat::Json => json(value),
        }
    }
}

pub fn json(value: &Value) -> String {
    format!("{value:#}\n")
}

pub fn yaml(value: &Value) -> String {
    let text = resources::format::yaml::to_string(value);
    // Characters that are not to reach a terminal can be spelled in quotes only. JSON has them
    // everywhere, and is YAML too.
    if terminal::is_printable(&text) { text } else { json(value) }
}

/// Columns, left-aligned, three spaces apart, nothing drawn around them.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.set_header(header.iter().copied());
    lines(table, rows)
}

/// Columns without titles.
pub fn columns(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    lines(Table::new(), rows)
}

fn lines(mut table: Table, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    table.load_preset(presets::NOTHING);
    for row in rows {
        table.add_row(row.into_iter().map(|cell| terminal::one_line(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3)).set_cell_alignment(CellAlignment::Left);
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
