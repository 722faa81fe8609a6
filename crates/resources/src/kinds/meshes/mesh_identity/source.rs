//! Where the control plane reads a certificate or a key.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Path, Violations,
    kinds::{
        checks,
        open_enum::{OpenEnum, open_enum},
    },
};

/// One of four places.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct SecureDataSource {
    /// Where the bytes are; the field of this name has the settings (`secretRef` for `Secret`).
    #[serde(rename = "type")]
    pub type_: SourceType,
    /// A file on the control plane's machine; for type `File`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<File>,
    /// A Secret of the mesh; for type `Secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// An environment variable of the control plane; for type `EnvVar`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_var: Option<EnvVar>,
    /// The text itself; for type `InsecureInline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_inline: Option<InsecureInline>,
}

open_enum! {
    /// Which place.
    SourceType { File = "File", Secret = "Secret", EnvVar = "EnvVar", InsecureInline = "InsecureInline" }
}

/// A file of the control plane's machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "SourceFile", extend("required" = ["path"]))]
pub struct File {
    /// The path of the file.
    pub path: String,
}

/// A Secret of the same mesh.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind", "name"]))]
pub struct SecretRef {
    /// The kind of the resource: `Secret`.
    #[schemars(extend("enum" = ["Secret"]))]
    pub kind: String,
    /// The name of the Secret.
    pub name: String,
}

/// An environment variable of the control plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct EnvVar {
    /// The name of the variable.
    pub name: String,
}

/// The text itself; every user that may read the resource sees it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["value"]))]
pub struct InsecureInline {
    /// The text, in PEM.
    pub value: String,
}

impl fmt::Debug for InsecureInline {
    /// It may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InsecureInline").finish_non_exhaustive()
    }
}

impl SecureDataSource {
    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        let (field, given) = match &self.type_ {
            SourceType::File => ("file", self.file.is_some()),
            SourceType::Secret => ("secretRef", self.secret_ref.is_some()),
            SourceType::EnvVar => ("envVar", self.env_var.is_some()),
            SourceType::InsecureInline => ("insecureInline", self.insecure_inline.is_some()),
            SourceType::Other(other) => {
                found.add(path.field("type"), checks::must_be_one_of(other, SourceType::WORDS));
                return;
            }
        };
        found.require(given, path.field(field), checks::MUST_BE_DEFINED);
    }
}
