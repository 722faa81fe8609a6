//! What stands in one cell of a table, read from JSON.

use jiff::{Timestamp, Unit};
use serde_json::Value;

use crate::terminal;

/// A title and how its cell is read from a resource.
pub type Column = (&'static str, fn(&Value) -> String);

/// The titles, and the cells of every item; an empty cell is a dash.
pub fn grid<'a>(
    columns: &[Column],
    items: impl IntoIterator<Item = &'a Value>,
) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let titles = columns.iter().map(|(title, _)| *title).collect();
    let row = |item| columns.iter().map(|(_, cell)| or_dash(cell(item))).collect();
    (titles, items.into_iter().map(row).collect())
}

fn or_dash(cell: String) -> String {
    if cell.is_empty() { "-".to_owned() } else { cell }
}

/// What a server says, in one line.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => terminal::one_line(text),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A count; 64-bit numbers arrive as text.
pub fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok())).unwrap_or(0)
}

pub fn list(value: &Value, show: fn(&Value) -> String) -> String {
    let shown: Vec<String> =
        value.as_array().into_iter().flatten().map(show).filter(|item| !item.is_empty()).collect();
    shown.join(",")
}

/// `10.0.0.1:80`, `[::1]:80`.
pub fn endpoint(of: &Value, address: &str, port: &str) -> String {
    let (address, port) = (text(&of[address]), text(&of[port]));
    match (address.is_empty(), port.is_empty()) {
        (true, true) => String::new(),
        (false, true) => address,
        _ if address.contains(':') => format!("[{address}]:{port}"),
        _ => format!("{address}:{port}"),
    }
}

pub fn time(value: &Value) -> Option<Timestamp> {
    value.as_str().and_then(|text| text.parse().ok())
}

/// `5s`, `3m`, `2h`, `9d`: one unit is enough to see how old something is.
pub fn since(value: &Value) -> String {
    let Some(time) = time(value) else { return String::new() };
    let seconds = Timestamp::now().since((Unit::Second, time)).map_or(0, |span| span.get_seconds()).max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
