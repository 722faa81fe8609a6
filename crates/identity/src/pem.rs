//! Writes PEM; rustls-pki-types reads it.

use base64::{Engine, engine::general_purpose::STANDARD};

pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = tail;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}
