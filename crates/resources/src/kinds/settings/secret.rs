//! Secrets: bytes under a name, in a mesh ([`Secret`]) or for the control plane ([`GlobalSecret`]).
//!
//! On the wire the bytes are base64. They never appear in debug output, so that a log line about a
//! resource cannot give them away.

use std::fmt;

use base64::{
    Engine,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{NoStatus, Schema, Subject, Violations};

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// A secret of a mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Secret {
    /// The bytes, in base64.
    #[serde(skip_serializing_if = "SecretBytes::is_empty")]
    pub data: SecretBytes,
}

/// A secret of the control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GlobalSecret {
    /// The bytes, in base64.
    #[serde(skip_serializing_if = "SecretBytes::is_empty")]
    pub data: SecretBytes,
}

impl Schema for Secret {
    type Status = NoStatus;

    /// Any bytes are a secret; who reads one judges what is in it.
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}

impl Schema for GlobalSecret {
    type Status = NoStatus;

    /// Any bytes are a secret; who reads one judges what is in it.
    fn validate(&self, _subject: Subject<'_>, _found: &mut Violations) {}
}

/// The bytes of a secret, hidden from debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretBytes(Vec<u8>);

impl SecretBytes {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        SecretBytes(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*****")
    }
}

impl Serialize for SecretBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&GeneralPurpose::new(&STANDARD, LENIENT).encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for SecretBytes {
    /// Takes both alphabets and missing padding, as protobuf's JSON does.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
        // The decoder's own error quotes the offending character: part of what must not be shown.
        GeneralPurpose::new(alphabet, LENIENT).decode(text.trim_end()).map(SecretBytes).map_err(|_| {
            de::Error::custom("must be base64; encode the secret, for example with `base64 -w0`")
        })
    }
}

impl JsonSchema for SecretBytes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SecretBytes".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "byte", "description": "base64" })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Secret, SecretBytes};
    use crate::{
        Kind, Spec,
        kinds::testing::{draft, round_trips, valid},
    };

    #[test]
    fn secrets_are_written_as_they_were_read() {
        for kind in [Kind::Secret, Kind::GlobalSecret] {
            round_trips(kind, json!({ "data": "aGVsbG8=" }));
            round_trips(kind, json!({}));
            valid(kind, json!({ "name": "s", "data": "aGVsbG8=" }));
        }
    }

    #[test]
    fn base64_is_read_in_both_alphabets_with_and_without_padding() {
        for text in ["+/8=", "+/8", "-_8=", "-_8", "+/8=\n"] {
            let spec = draft(Kind::Secret, json!({ "data": text })).spec;
            assert_eq!(spec.get::<Secret>().unwrap().data, SecretBytes::new([0xfb, 0xff]), "{text:?}");
        }
    }

    #[test]
    fn text_that_is_not_base64_is_refused_without_quoting_it() {
        let error =
            Spec::from_json(Kind::Secret, json!({ "data": "hunter2!" }), &mut Vec::new()).unwrap_err();
        assert_eq!(error.path, "data");
        assert!(error.message.contains("base64"), "{error}");
        assert!(!error.message.contains("hunter2"), "{error}");
    }

    #[test]
    fn debug_output_hides_the_bytes() {
        let spec: Spec = Secret { data: SecretBytes::new("hunter2") }.into();
        assert_eq!(format!("{spec:?}"), "Secret(Secret { data: ***** })");
    }
}
