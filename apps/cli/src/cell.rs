//! Text of one cell of a table.

use jiff::{Timestamp, Unit};
use serde_json::Value;

use crate::terminal;

/// A title and how its cell is read from a resource.
pub type Column<T = Value> = (&'static str, fn(&T) -> String);

/// The titles, and the cells of every item; an empty cell is a dash.
pub fn grid<'a, T: 'a>(
    columns: &[Column<T>],
    items: impl IntoIterator<Item = &'a T>,
) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let titles = columns.iter().map(|(title, _)| *title).collect();
    let row = |item| columns.iter().map(|(_, cell)| or_dash(cell(item))).collect();
    (titles, items.into_iter().map(row).collect())
}

fn or_dash(cell: String) -> String {
    if cell.is_empty() { "-".to_owned() } else { cell }
}

/// Text of a server, in one line.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => terminal::one_line(text),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A text of a server, in one line.
pub fn line(text: &str) -> String {
    terminal::one_line(text)
}

/// Texts of a server, in one line.
pub fn lines<S: AsRef<str>>(texts: impl IntoIterator<Item = S>, between: &str) -> String {
    let shown: Vec<String> = texts.into_iter().map(|text| line(text.as_ref())).collect();
    shown.join(between)
}

/// Values of the items that have one, divided by commas.
pub fn list<T>(items: impl IntoIterator<Item = T>, show: impl FnMut(T) -> String) -> String {
    let shown: Vec<String> = items.into_iter().map(show).filter(|item| !item.is_empty()).collect();
    shown.join(",")
}

/// `10.0.0.1:80`, `[::1]:80`.
pub fn endpoint(address: &str, port: Option<u32>) -> String {
    let address = line(address);
    match port {
        None => address,
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
    }
}

/// The time that a text names.
pub fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// `5s`, `3m`, `2h`, `9d`: one unit is enough to see how old something is. Empty for what is no time.
pub fn since(text: &str) -> String {
    ago(time(text))
}

/// [`since`] of a time.
pub fn ago(time: Option<Timestamp>) -> String {
    let Some(time) = time else { return String::new() };
    let seconds = Timestamp::now().since((Unit::Second, time)).map_or(0, |span| span.get_seconds()).max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
