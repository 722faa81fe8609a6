//! Takes secrets out of a proxy's configuration.
//!
//! Fields that hold secrets are known by name, in the spelling of Envoy's dumps (`private_key`) and in
//! that of protobuf's JSON (`privateKey`). What looks like a private key or a token is taken out
//! wherever it stands.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

const REDACTED: &str = "[redacted]";
/// The same where bytes are expected.
const REDACTED_BYTES: &str = "W3JlZGFjdGVkXQ==";

/// Everything below these fields is secret.
const SECRET: &[&str] = &[
    "private_key",
    "privateKey",
    "private_key_provider",
    "privateKeyProvider",
    "pkcs12",
    "password",
    "session_ticket_keys",
    "sessionTicketKeys",
    "generic_secret",
    "genericSecret",
    "token_secret",
    "tokenSecret",
    "hmac_secret",
    "hmacSecret",
    "secret_access_key",
    "secretAccessKey",
    "call_credentials",
    "callCredentials",
    "initial_metadata",
    "initialMetadata",
];

/// These only say what a secret is, or where.
const HARMLESS: &[&str] = &["@type", "name", "key", "filename"];

const BYTES: &[&str] = &["inline_bytes", "inlineBytes", "raw_value", "rawValue"];

/// Headers whose values are secrets, wherever they are set.
const HEADERS: &[&str] = &["authorization", "proxy-authorization", "cookie"];

/// A JSON document without its secrets.
pub fn document(json: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(json)?;
    redact(&mut value);
    serde_json::to_vec_pretty(&value)
}

pub fn redact(value: &mut Value) {
    walk(value, "", false);
}

/// `secret`: whether `value` is part of a secret.
fn walk(value: &mut Value, field: &str, secret: bool) {
    match value {
        Value::Object(fields) => {
            let header = fields.get("key").and_then(Value::as_str);
            let header = header.is_some_and(|key| HEADERS.iter().any(|h| h.eq_ignore_ascii_case(key)));
            for (field, value) in fields {
                let below = secret || header || SECRET.contains(&field.as_str());
                walk(value, field, below && !HARMLESS.contains(&field.as_str()));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, field, secret)),
        Value::String(text) if secret || is_secret(text) => {
            let redacted = if BYTES.contains(&field) { REDACTED_BYTES } else { REDACTED };
            redacted.clone_into(text);
        }
        _ => {}
    }
}

fn is_secret(text: &str) -> bool {
    is_private_key(text) || is_token(text.strip_prefix("Bearer ").unwrap_or(text))
}

fn is_private_key(text: &str) -> bool {
    const MARK: &str = "PRIVATE KEY-----";
    if text.contains(MARK) {
        return true;
    }
    // PEM as bytes: what follows `-----BEGIN` is seen only after decoding.
    let decoded = text.starts_with("LS0tLS1CRUdJTi").then(|| BASE64_STANDARD.decode(text).ok()).flatten();
    decoded.is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(MARK))
}

/// The tokens this control plane issues: three parts in base64, the first of which is a JSON object.
fn is_token(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    text.starts_with("eyJ") && text.matches('.').count() == 2 && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\ncHVibGlj\n-----END CERTIFICATE-----\n";
    const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJOYW1lIjoid2ViIn0.c2lnbmF0dXJl";

    fn check(mut given: Value, expect: &Value) {
        redact(&mut given);
        assert_eq!(given, *expect);
    }

    #[test]
    fn keys_are_taken_out_in_both_spellings_and_what_is_public_stays() {
        for (private_key, chain) in [("private_key", "certificate_chain"), ("privateKey", "certificateChain")]
        {
            check(
                json!({ "name": "identity", private_key: { "inline_string": "raw" }, chain: { "inline_string": CERTIFICATE } }),
                &json!({ "name": "identity", private_key: { "inline_string": "[redacted]" }, chain: { "inline_string": CERTIFICATE } }),
            );
        }
        check(
            json!({ "session_ticket_keys": { "keys": [{ "inline_bytes": "c2VjcmV0" }, { "filename": "/keys" }] } }),
            &json!({ "session_ticket_keys": { "keys": [{ "inline_bytes": "W3JlZGFjdGVkXQ==" }, { "filename": "/keys" }] } }),
        );
    }

    #[test]
    fn tokens_are_taken_out_of_metadata_and_headers_and_the_names_stay() {
        check(
            json!({ "initial_metadata": [{ "key": "authorization", "value": "opaque" }, { "key": "other", "value": "x" }] }),
            &json!({ "initial_metadata": [
                { "key": "authorization", "value": "[redacted]" }, { "key": "other", "value": "[redacted]" },
            ] }),
        );
        check(
            json!({ "header": { "key": "Authorization", "value": "opaque" }, "other": { "key": "x-y", "value": "z" } }),
            &json!({ "header": { "key": "Authorization", "value": "[redacted]" }, "other": { "key": "x-y", "value": "z" } }),
        );
    }

    #[test]
    fn what_looks_like_a_secret_is_taken_out_wherever_it_stands() {
        let bytes = |text: &str| BASE64_STANDARD.encode(text);
        check(
            json!({ "a": KEY, "b": [TOKEN, format!("Bearer {TOKEN}")], "inline_bytes": bytes(KEY) }),
            &json!({ "a": "[redacted]", "b": ["[redacted]", "[redacted]"], "inline_bytes": "W3JlZGFjdGVkXQ==" }),
        );
        let harmless =
            json!({ "a": CERTIFICATE, "b": bytes(CERTIFICATE), "c": "eyJ.x", "d": "spiffe://a/b", "e": 1 });
        check(harmless.clone(), &harmless);
    }

    #[test]
    fn a_dump_keeps_everything_but_its_secrets() {
        let dump = json!({ "configs": [
            {
                "@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump",
                "bootstrap": {
                    "node": { "id": "default.web", "metadata": { "dataplane.admin.port": "9901" } },
                    "dynamic_resources": { "ads_config": { "grpc_services": [{
                        "google_grpc": { "call_credentials": [{ "access_token": "opaque-1" }] },
                        "initial_metadata": [{ "key": "authorization", "value": TOKEN }],
                    }] } },
                },
            },
            {
                "@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump",
                "static_secrets": [{ "name": "s", "secret": {
                    "tls_certificate": { "private_key": { "inline_string": KEY }, "password": { "inline_string": "opaque-2" } },
                } }],
                "dynamic_active_secrets": [{ "name": "d", "version_info": "1", "secret": {
                    "tls_certificate": { "private_key": { "inline_bytes": BASE64_STANDARD.encode(KEY) } },
                } }],
            },
            { "listener": { "transport_socket": { "common_tls_context": { "tls_certificates": [{
                "certificate_chain": { "inline_string": CERTIFICATE }, "private_key": { "inline_string": KEY },
            }] } } } },
        ] });
        let shown = String::from_utf8(document(dump.to_string().as_bytes()).unwrap()).unwrap();
        for secret in ["PRIVATE KEY", TOKEN, "opaque", &BASE64_STANDARD.encode(KEY)] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let at = |pointer: &str| shown.pointer(pointer).unwrap_or_else(|| panic!("{pointer}: {shown}"));
        assert_eq!(at("/configs/0/bootstrap/node"), &dump["configs"][0]["bootstrap"]["node"]);
        assert_eq!(at("/configs/1/dynamic_active_secrets/0/version_info"), "1");
        let chain =
            "/configs/2/listener/transport_socket/common_tls_context/tls_certificates/0/certificate_chain";
        assert_eq!(at(chain), &json!({ "inline_string": CERTIFICATE }));
    }

    #[test]
    fn what_is_no_json_is_not_passed_on() {
        assert!(document(KEY.as_bytes()).is_err());
    }
}
