//! The entries that most policies consist of: a conf, and what it is for.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::kinds::target_ref::{Allowed, Match, TargetRef};
use crate::{Path, Violations};

/// A conf for traffic to or from what a reference names: an entry of `to` or `from`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry<C> {
    pub target_ref: TargetRef,
    pub default: C,
}

impl<C> Entry<C> {
    /// Checks a list of entries: what each is about, and its conf.
    pub(crate) fn validate_all(
        entries: &[Entry<C>],
        allowed: Allowed<'_>,
        path: &Path,
        conf: impl Fn(&C, &Path, &mut Violations),
        found: &mut Violations,
    ) {
        for (i, entry) in entries.iter().enumerate() {
            let path = path.index(i);
            entry.target_ref.validate(allowed, &path.field("targetRef"), found);
            conf(&entry.default, &path.field("default"), found);
        }
    }
}

/// A conf for incoming traffic, optionally only of certain clients: an entry of `rules`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule<C> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<Vec<Match>>,
    pub default: C,
}

/// A conf for all traffic that comes to where it stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Always<C> {
    pub default: C,
}

/// Name and description of a conf's entries in the API's description.
pub struct EntryDescription {
    pub name: &'static str,
    pub about: &'static str,
}

/// A conf that stands in an [`Entry`].
pub trait InEntry: JsonSchema {
    const ENTRY: EntryDescription;
    /// The fields that the schema asks for.
    const REQUIRED: &'static [&'static str] = &["targetRef"];
}

/// A conf that stands in a [`Rule`] or in [`Always`].
pub trait InRule: JsonSchema {
    const RULE: EntryDescription;
    /// The fields that the schema asks for.
    const REQUIRED: &'static [&'static str] = &[];
}

/// Implements `JsonSchema` as the derive would for a type of one kind, with that kind's words.
macro_rules! described {
    ($entry:ident by $words:ident::$constant:ident, required $required:expr, with { $($(#[$attribute:meta])* $field:ident: $type:ty,)* }) => {
        impl<C: $words + Default + Serialize> JsonSchema for $entry<C> {
            fn schema_name() -> Cow<'static, str> {
                C::$constant.name.into()
            }

            fn schema_id() -> Cow<'static, str> {
                format!("{}::{}<{}>", module_path!(), stringify!($entry), C::schema_id()).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                #[derive(Default, Serialize, JsonSchema)]
                #[serde(rename_all = "camelCase", default)]
                struct Fields<C: Default + Serialize + JsonSchema> { $($(#[$attribute])* $field: $type,)* }
                let mut schema = <Fields<C>>::json_schema(generator);
                schema.insert("description".to_owned(), C::$constant.about.into());
                let required: &[&str] = $required;
                if !required.is_empty() {
                    schema.insert("required".to_owned(), required.into());
                }
                schema
            }
        }
    };
}

described! { Entry by InEntry::ENTRY, required C::REQUIRED, with {
    /// The destinations (in `to`) or clients (in `from`) that the entry is for.
    target_ref: TargetRef,
    /// The settings of this traffic; a field left out keeps what less specific policies say.
    default: C,
} }
described! { Rule by InRule::RULE, required C::REQUIRED, with {
    /// The clients that the rule is for; one of the matches is enough. All clients by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<Vec<Match>>,
    /// The settings of this traffic; a field left out keeps what less specific policies say.
    default: C,
} }
described! { Always by InRule::RULE, required C::REQUIRED, with {
    /// The settings of this traffic; a field left out keeps what less specific policies say.
    default: C,
} }
