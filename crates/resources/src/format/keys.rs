//! Private keys in texts that people read: an error quotes what it is about.

use std::borrow::Cow;

/// Placeholder shown instead of a key.
pub const HIDDEN: &str = "(not shown: it may be a key)";

/// From this length on, letters without a break may be an encoded key.
const SHORTEST: usize = 32;
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
/// The label of every kind of private key in PEM ends with this.
const PRIVATE: &str = "PRIVATE KEY";
/// A PEM text in base64, as Secrets have it, begins with this.
const ENCODED_PEM: &str = "LS0tLS1CRUdJTi";

/// The text without private keys, in PEM or in base64.
pub fn hidden(text: &str) -> Cow<'_, str> {
    let text = without_blocks(text);
    match text {
        Cow::Borrowed(text) => without_runs(text),
        Cow::Owned(text) => Cow::Owned(without_runs(&text).into_owned()),
    }
}

/// Leaves out PEM blocks of private keys. One without an end hides the rest of the text.
fn without_blocks(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, length)) = first_block(rest) {
        out.push_str(rest.get(..before).unwrap_or_default());
        out.push_str(HIDDEN);
        rest = rest.get(before + length..).unwrap_or_default();
    }
    if rest.len() == text.len() { Cow::Borrowed(text) } else { Cow::Owned(out + rest) }
}

/// Returns start and length of the first private key in PEM.
fn first_block(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let begin = from + text.get(from..)?.find(BEGIN)?;
        let label_at = begin + BEGIN.len();
        let label = text.get(label_at..)?.split(DASHES).next().unwrap_or_default();
        if label.ends_with(PRIVATE) {
            let block = text.get(begin..)?;
            let end = block.find(END).and_then(|end| {
                let closing = end + END.len();
                Some(closing + block.get(closing..)?.find(DASHES)? + DASHES.len())
            });
            return Some((begin, end.unwrap_or(block.len())));
        }
        from = label_at;
    }
}

/// Leaves out runs of base64 that encode a key or its PEM.
fn without_runs(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    for run in runs(text).filter(|run| encodes_key(run.text)) {
        out.push_str(text.get(copied..run.start).unwrap_or_default());
        out.push_str(HIDDEN);
        copied = run.start + run.text.len();
    }
    if copied == 0 { Cow::Borrowed(text) } else { Cow::Owned(out + text.get(copied..).unwrap_or_default()) }
}

/// True for base64 that begins like a DER sequence, as every key does, or like PEM.
fn encodes_key(run: &str) -> bool {
    let is_der = run.starts_with('M') && matches!(run.as_bytes().get(1), Some(b'A'..=b'I'));
    run.len() >= SHORTEST && (is_der || run.starts_with(ENCODED_PEM))
}

/// True for lines with a run of base64 letters as long as an encoded key.
pub(super) fn has_long_run(line: &str) -> bool {
    runs(line).any(|run| run.text.len() >= SHORTEST)
}

/// Letters of base64 without a break.
struct Run<'t> {
    start: usize,
    text: &'t str,
}

fn runs(text: &str) -> impl Iterator<Item = Run<'_>> {
    let is_encoded = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    // A separator may have several bytes, so the place is that of the part itself.
    text.split(move |c| !is_encoded(c))
        .map(move |run| Run { start: run.as_ptr().addr() - text.as_ptr().addr(), text: run })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_keys_are_hidden_and_all_else_stays() {
        let der = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIB";
        let pem = format!("-----BEGIN EC PRIVATE KEY-----\n{der}\n-----END EC PRIVATE KEY-----");
        let escaped = pem.replace('\n', "\\n");
        let encoded = format!("LS0tLS1CRUdJTiBQUklWQVRF{der}");
        for key in [&pem, &escaped, &encoded, &der.to_owned()] {
            assert_eq!(hidden(&format!("é {key:?}: expected u32")).replace('"', ""), {
                format!("é {HIDDEN}: expected u32")
            });
        }
        let two = format!("a {pem} b {pem} c");
        assert_eq!(hidden(&two), format!("a {HIDDEN} b {HIDDEN} c"));
        let cut = "key: -----BEGIN PRIVATE KEY-----\nMIGH";
        assert_eq!(hidden(cut), format!("key: {HIDDEN}"));
        for harmless in [
            "",
            "-----BEGIN",
            "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
            "/a/path/of/many/letters/that/goes/on/and/on.yaml",
            "MeshTrafficPermissionWithALongNameThatGoesOnAndOn",
            "kri_msvc_default_zone-1_kuma-demo_a-rather-long-name_http",
        ] {
            assert!(matches!(hidden(harmless), Cow::Borrowed(same) if same == harmless), "{harmless}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_can_be_looked_at(text in "(-----(BEGIN|END) |PRIVATE KEY|-----|M[A-I]|[a-zé\n]{0,40}){0,12}") {
            let shown = hidden(&text);
            proptest::prop_assert!(!shown.contains("-----BEGIN PRIVATE KEY-----"));
        }
    }
}
