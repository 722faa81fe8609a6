//! YAML text to JSON values and back.
//!
//! YAML 1.2 with the surprises taken out, because a mesh is configured by people who copy from many
//! places: only `true` and `false` are booleans (`on`, `yes` and `no` are strings), a leading zero
//! does not make a number octal (`0777` is 777, `0o777` is 511), a key may stand only once in a
//! mapping, and text that grows when its aliases are expanded is refused before it has grown.
//! JSON is YAML, so files and answers in JSON are read here too.

mod positions;

use std::fmt::Write as _;

pub use positions::Positions;
use serde_json::{Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy, SnippetMode, Spanned, UserMessageFormatter};

use super::keys::{self, HIDDEN, has_long_run};

/// Limit of nested mappings and lists; no resource comes near it.
pub const MAX_DEPTH: usize = 64;
/// Limit of the size of one text.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;

const MAX_DOCUMENTS: usize = 200_000;
const MAX_NODES: usize = 10_000_000;
const MAX_ALIASES: usize = 1_000;
const MAX_REPLAYED_EVENTS: usize = 100_000;
/// The longest part of a source line a snippet shows.
const SNIPPET_WIDTH: usize = 120;

/// One document of a YAML stream and the line it starts on, counted from 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub value: Value,
    pub line: usize,
}

/// Reason that a text is not YAML, and its position. Line and column count from 1; 0 means the whole text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub message: String,
    pub line: usize,
    pub column: usize,
    /// The lines around the mistake with a marker under it; empty when there is nothing to show.
    pub snippet: String,
}

impl std::error::Error for Error {}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.message)?;
        if !self.snippet.is_empty() {
            write!(f, "\n{}", self.snippet)?;
        }
        Ok(())
    }
}

/// Reads every document of a YAML stream; empty documents are left out.
pub fn documents(text: &str) -> Result<Vec<Document>, Error> {
    if text.len() > MAX_BYTES {
        return Err(whole_text(format!(
            "the text is {} bytes long, more than the {MAX_BYTES} bytes one text may have; split it",
            text.len()
        )));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let found: Vec<Spanned<Value>> =
        serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| locate(text, &error))?;
    Ok(found
        .into_iter()
        .map(|document| Document {
            line: usize::try_from(document.referenced.line()).unwrap_or_default(),
            value: whole_numbers(document.value),
        })
        .collect())
}

/// Reads bytes; bytes that are not UTF-8 are an error that says where they are.
pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Document>, Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => documents(text),
        Err(error) => Err(not_utf8(bytes, error.valid_up_to())),
    }
}

/// Writes a value as one YAML document, keys in their order.
pub fn to_string(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|error| {
        // A JSON value has string keys and plain scalars, for which the writer has no failure.
        debug_assert!(false, "writing YAML failed: {error}");
        String::new()
    })
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_documents: MAX_DOCUMENTS,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPLAYED_EVENTS,
            max_replay_stack_depth: 16,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        strict_booleans: true,
        legacy_octal_numbers: false,
        with_snippet: false,
    }
}

fn locate(text: &str, error: &serde_saphyr::Error) -> Error {
    let rendered = error.render_with_options(serde_saphyr::render_options! {
        formatter: &UserMessageFormatter,
        snippets: SnippetMode::Off,
    });
    let rendered = keys::hidden(&rendered).into_owned();
    let Some(location) = error.location() else { return whole_text(rendered) };
    let line = usize::try_from(location.line()).unwrap_or_default();
    let column = usize::try_from(location.column()).unwrap_or_default();
    let suffix = format!(" at line {line}, column {column}");
    let mut message = rendered.strip_suffix(&suffix).unwrap_or(&rendered).to_owned();
    let mut line = line;
    let mut column = column;
    if message.contains("found a tab")
        && let Some((tab_line, tab_column)) = indenting_tab(text, line)
    {
        // The parser blames the value before the tab, where a reader sees nothing wrong.
        message.push_str("; indent with spaces");
        (line, column) = (tab_line, tab_column);
    }
    Error { message, line, column, snippet: snippet(text, line, column) }
}

/// The first tab, from a line on, that stands where only spaces may.
fn indenting_tab(text: &str, from: usize) -> Option<(usize, usize)> {
    text.lines().enumerate().skip(from.saturating_sub(1)).find_map(|(index, line)| {
        let column = line.bytes().take_while(|b| matches!(b, b' ' | b'\t')).position(|b| b == b'\t')?;
        Some((index + 1, column + 1))
    })
}

fn whole_text(message: String) -> Error {
    Error { message, line: 0, column: 0, snippet: String::new() }
}

fn not_utf8(bytes: &[u8], offset: usize) -> Error {
    let before = String::from_utf8_lossy(&bytes[..offset]);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let message = format!(
        "not UTF-8: byte 0x{:02x} at offset {offset}; save the file with UTF-8 encoding",
        bytes.get(offset).copied().unwrap_or_default()
    );
    Error { message, line, column, snippet: snippet(&String::from_utf8_lossy(bytes), line, column) }
}

/// Two lines of context, the line itself, and a marker under the column.
fn snippet(text: &str, line: usize, column: usize) -> String {
    if line == 0 || column == 0 {
        return String::new();
    }
    let width = line.to_string().len();
    let secret = secret_lines(text, line);
    let mut out = String::new();
    let first = line.saturating_sub(3);
    for (index, source) in text.lines().enumerate().skip(first).take(line - first) {
        let shown: String =
            source.chars().take(SNIPPET_WIDTH).map(|c| if c == '\t' { ' ' } else { c }).collect();
        let shown = if secret[index] { HIDDEN } else { shown.trim_end() };
        let _ = writeln!(out, "{:>width$} | {shown}", index + 1);
    }
    if column <= SNIPPET_WIDTH && !secret.get(line - 1).is_some_and(|secret| *secret) {
        let _ = write!(out, "{:>width$} | {}^", "", " ".repeat(column - 1));
    }
    out.truncate(out.trim_end().len());
    out
}

/// The lines up to `last` that may hold a part of a key: those of a PEM block, and those with a run of letters as long
/// as encoded keys have.
fn secret_lines(text: &str, last: usize) -> Vec<bool> {
    let mut within = false;
    let judge = |line: &str| {
        let begins = line.contains("-----BEGIN");
        within |= begins;
        let is_secret = within || has_long_run(line);
        within &= !line.contains("-----END");
        is_secret
    };
    text.lines().take(last).map(judge).collect()
}

/// `1e3` and `0777` are read as fractions that happen to be whole; everyone expects integers.
fn whole_numbers(value: Value) -> Value {
    /// Above this a fraction no longer counts in steps of one.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < EXACT);
            #[expect(clippy::cast_possible_truncation, reason = "whole and within the exact range")]
            Value::Number(whole.map_or(number, |n| Number::from(n as i64)))
        }
        Value::Array(items) => Value::Array(items.into_iter().map(whole_numbers).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(k, v)| (k, whole_numbers(v))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(text: &str) -> Vec<Value> {
        documents(text).unwrap_or_else(|e| panic!("{e}")).into_iter().map(|d| d.value).collect()
    }

    fn error(text: &str) -> Error {
        match documents(text) {
            Ok(found) => panic!("accepted: {found:?}"),
            Err(error) => error,
        }
    }

    #[test]
    fn a_stream_gives_each_document_with_its_line_and_leaves_out_empty_ones() {
        let found =
            documents("# first\ntype: Mesh\nname: a\n---\n---\n# second\n\ntype: Mesh\nname: b\n---\n")
                .unwrap();
        let seen: Vec<(usize, &str)> =
            found.iter().map(|d| (d.line, d.value["name"].as_str().unwrap())).collect();
        assert_eq!(seen, [(2, "a"), (8, "b")]);
        assert_eq!(values(""), Vec::<Value>::new());
        assert_eq!(values("# only a comment\n"), Vec::<Value>::new());
        assert_eq!(values("\u{feff}a: 1\r\nb: 2\r\n"), [json!({"a": 1, "b": 2})]);
    }

    #[test]
    fn scalars_have_the_type_they_look_like_and_no_other() {
        let check = |text: &str, expect: Value| {
            assert_eq!(values(&format!("v: {text}")), [json!({ "v": expect })], "{text}");
        };
        check("true", json!(true));
        check("false", json!(false));
        for word in ["on", "off", "yes", "no", "y", "n", "Yes", "ON"] {
            check(word, json!(word));
        }
        check("8080", json!(8080));
        check("-1", json!(-1));
        check("1.5", json!(1.5));
        check("1e3", json!(1000));
        check("2.0", json!(2));
        check("0x1F", json!(31));
        check("0o17", json!(15));
        check("0777", json!(777));
        check("08", json!(8));
        check("'8080'", json!("8080"));
        check("\"8080\"", json!("8080"));
        check("10s", json!("10s"));
        check("1:30", json!("1:30"));
        check("2001-01-01", json!("2001-01-01"));
        check("1.2.3.4", json!("1.2.3.4"));
        check("null", json!(null));
        check("~", json!(null));
        check("", json!(null));
        check("{}", json!({}));
        check("[]", json!([]));
        check("18446744073709551615", json!(u64::MAX));
        check("|\n  a\n  b\n", json!("a\nb\n"));
    }

    #[test]
    fn json_is_read_too() {
        assert_eq!(
            values("{\n\t\"type\": \"Mesh\",\n\t\"list\": [1, true, null, \"x\"]\n}"),
            [json!({"type": "Mesh", "list": [1, true, null, "x"]})]
        );
    }

    #[test]
    fn a_mistake_is_shown_where_it_is() {
        let broken = error("type: Mesh\nname: a\nlist: [1, 2\n");
        assert_eq!((broken.line, broken.column), (3, 7), "{broken}");
        let broken = error("type: Mesh\nname: : b\n");
        assert_eq!((broken.line, broken.column), (2, 7), "{broken}");
        assert_eq!(broken.snippet, "1 | type: Mesh\n2 | name: : b\n  |       ^");
        let broken = error("a: 1\n\tb: 2\n");
        assert_eq!((broken.line, broken.column), (2, 1), "{broken}");
    }

    #[test]
    fn no_part_of_a_key_is_shown() {
        let pem = "type: Secret\ndata: -----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B: : x\n";
        let base64 = format!("type: Secret\ndata: {}: : x\n", "TUlJRXZRSUJB".repeat(4));
        for text in [pem, &base64] {
            let shown = error(text).to_string();
            for part in ["MIIE", "BgkqhkiG", "TUlJRXZR"] {
                assert!(!shown.contains(part), "{shown}");
            }
            assert!(shown.contains("1 | type: Secret") || shown.contains(HIDDEN), "{shown}");
        }
    }

    #[test]
    fn a_key_may_stand_only_once() {
        let broken = error("type: Mesh\nname: a\nname: b\n");
        assert_eq!((broken.line, broken.column), (3, 1), "{broken}");
        assert!(broken.message.contains("duplicate"), "{broken}");
        assert!(broken.message.contains("name"), "{broken}");
    }

    #[test]
    fn text_that_grows_by_its_aliases_is_refused() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..10 {
            let previous = vec![format!("*a{}", i - 1); 10].join(",");
            let _ = writeln!(bomb, "a{i}: &a{i} [{previous}]");
        }
        error(&bomb);
        error(&format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000)));
        error(&(0..10_000).map(|i| format!("{}a:\n", " ".repeat(i))).collect::<String>());
        error("a: &a [*a]");
    }

    #[test]
    fn aliases_and_merge_keys_of_ordinary_size_work() {
        assert_eq!(
            values("base: &base {x: 1}\nuse:\n  <<: *base\n  y: 2\n"),
            [json!({"base": {"x": 1}, "use": {"x": 1, "y": 2}})]
        );
    }

    #[test]
    fn bytes_that_are_not_utf8_are_located() {
        let broken = from_bytes(b"type: Mesh\nname: \xff\n").unwrap_err();
        assert_eq!((broken.line, broken.column), (2, 7));
        assert!(broken.message.starts_with("not UTF-8: byte 0xff at offset 17"), "{broken}");
    }

    #[test]
    fn numbers_without_an_end_and_unreadable_keys_are_refused() {
        error("v: .inf");
        error("v: .nan");
        error("[1, 2]: x");
    }

    #[test]
    fn writing_keeps_the_order_and_reads_back_as_the_same_value() {
        let value = json!({
            "type": "Mesh", "name": "a", "b": "yes", "port": "8080", "n": 8080, "t": true, "z": "0777",
            "empty": {}, "none": [], "text": "two\nlines\n", "colon": "a: b", "star": "*", "null": null,
            "list": [{"x": 1, "a": [1, 2]}, {"y": "~"}, "null", "", " lead", "1e3", "0x10", "# no"],
            "tags": {"kuma.io/service": "web"}, "long": "word ".repeat(60), "unicode": "żółw",
        });
        let text = to_string(&value);
        assert!(text.starts_with("type: Mesh\nname: a\nb: "), "{text}");
        assert_eq!(values(&text), std::slice::from_ref(&value), "{text}");
        let twice = format!("{text}---\n{}", to_string(&json!({"name": "b"})));
        assert_eq!(values(&twice), [value, json!({"name": "b"})], "{twice}");
    }

    proptest::proptest! {
        #[test]
        fn any_string_survives_writing_and_reading(text in "[\\PC\n]*", key in "[a-z0-9./*&!%@#: \n'\"?-]{1,12}") {
            let value = json!({ key: [text] });
            proptest::prop_assert_eq!(values(&to_string(&value)), [value]);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[a-z0-9:\\-{}\\[\\],&*!|>'\"%@` \n\t#]{0,80}") {
            let _ = documents(&text);
        }
    }
}
