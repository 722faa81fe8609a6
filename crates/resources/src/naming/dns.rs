//! Rules of DNS labels, DNS names and Kubernetes label keys and values.
//!
//! The `…_errors` functions return the messages Kubernetes prints for the same mistakes, so that a
//! user meets one wording everywhere; an empty list means the value is valid.

use std::net::IpAddr;

/// The longest a DNS label may be.
pub const LABEL_MAX: usize = 63;
/// The longest a host name may be.
pub const HOSTNAME_MAX: usize = 253;

const LABEL_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character";

/// Violations of the rules of a lower-case RFC 1123 label.
pub fn rfc1123_label_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_length(value, LABEL_MAX, &mut errors);
    if !has_1123_label_shape(value) {
        if has_1123_subdomain_shape(value) {
            errors.push("must not contain dots".to_owned());
        } else {
            errors.push(mismatch(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                 and must start and end with an alphanumeric character",
                LABEL_1123,
                &["my-name", "123-abc"],
            ));
        }
    }
    errors
}

/// Violations of the rules of a lower-case RFC 1123 subdomain.
pub fn rfc1123_subdomain_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_length(value, HOSTNAME_MAX, &mut errors);
    if !has_1123_subdomain_shape(value) {
        errors.push(mismatch(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            &format!("{LABEL_1123}(\\.{LABEL_1123})*"),
            &["example.com"],
        ));
    }
    errors
}

/// Violations of the rules of an RFC 1035 label, which unlike RFC 1123 starts with a letter.
pub fn rfc1035_label_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_length(value, LABEL_MAX, &mut errors);
    if !(has_1123_label_shape(value) && value.starts_with(|c: char| c.is_ascii_lowercase())) {
        errors.push(mismatch(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
             start with an alphabetic character, and end with an alphanumeric character",
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// Violations of the rules of a Kubernetes label's key (`example.com/name` or `name`).
pub fn qualified_name_errors(value: &str) -> Vec<String> {
    let explain = || mismatch(QUALIFIED_NAME_RULE, QUALIFIED_NAME, &["MyName", "my.name", "123-abc"]);
    let (prefix, name) = match value.split_once('/') {
        None => (None, value),
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                explain()
            )];
        }
        Some((prefix, name)) => (Some(prefix), name),
    };
    let mut errors = Vec::new();
    match prefix {
        Some("") => errors.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            errors.extend(rfc1123_subdomain_errors(prefix).into_iter().map(|e| format!("prefix part {e}")));
        }
        None => {}
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !has_qualified_name_shape(name) {
        errors.push(format!("name part {}", explain()));
    }
    errors
}

/// Violations of the rules of a Kubernetes label's value.
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    check_length(value, LABEL_MAX, &mut errors);
    if !value.is_empty() && !has_qualified_name_shape(value) {
        errors.push(mismatch(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
            &format!("({QUALIFIED_NAME})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

pub fn is_rfc1123_label(value: &str) -> bool {
    value.len() <= LABEL_MAX && has_1123_label_shape(value)
}

pub fn is_rfc1123_subdomain(value: &str) -> bool {
    value.len() <= HOSTNAME_MAX && has_1123_subdomain_shape(value)
}

pub fn is_rfc1035_label(value: &str) -> bool {
    is_rfc1123_label(value) && value.starts_with(|c: char| c.is_ascii_lowercase())
}

/// True for values that can stand in place of a host name and are not an IP address.
///
/// Laxer than RFC 1123, as users' existing resources rely on it: upper case, underscores and one
/// closing dot or underscore are accepted.
pub fn is_dns_name(value: &str) -> bool {
    let letters = value.bytes().filter(|&b| b != b'.').count();
    let closed = value.strip_suffix(['.', '_']);
    letters <= 255
        && value.parse::<IpAddr>().is_err()
        && (has_lax_labels(value) || closed.is_some_and(has_lax_labels))
}

fn has_lax_labels(value: &str) -> bool {
    value.split('.').all(|label| {
        label.len() <= LABEL_MAX
            && label.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    })
}

pub(crate) fn has_1123_label_shape(value: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    value.starts_with(edge) && value.ends_with(edge) && value.chars().all(|c| edge(c) || c == '-')
}

fn has_1123_subdomain_shape(value: &str) -> bool {
    value.split('.').all(has_1123_label_shape)
}

fn has_qualified_name_shape(value: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    value.starts_with(edge)
        && value.ends_with(edge)
        && value.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}

fn check_length(value: &str, max: usize, errors: &mut Vec<String>) {
    if value.len() > max {
        errors.push(too_long(max));
    }
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn mismatch(rule: &str, regex: &str, examples: &[&str]) -> String {
    // Kubernetes puts a comma behind every example, also before "or".
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}
