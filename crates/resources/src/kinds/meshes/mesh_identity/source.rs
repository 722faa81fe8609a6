//! Sources of a certificate or a key that the control plane reads.

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
    /// Type of the source; the field of this name has the settings (`secretRef` for `Secret`).
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
    /// Type of a source.
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
        match &self.type_ {
            SourceType::File => {
                let file = self.file.as_ref().map(|file| file.path.as_str());
                if check_given(file, &path.field("file"), "path", found)
                    && let Some(complaint) = file.and_then(complaint_about_path)
                {
                    found.add(path.field("file").field("path"), complaint);
                }
            }
            SourceType::Secret => {
                let name = self.secret_ref.as_ref().map(|secret| secret.name.as_str());
                check_given(name, &path.field("secretRef"), "name", found);
            }
            SourceType::EnvVar => {
                let name = self.env_var.as_ref().map(|variable| variable.name.as_str());
                check_given(name, &path.field("envVar"), "name", found);
            }
            SourceType::InsecureInline => {
                let value = self.insecure_inline.as_ref().map(|inline| inline.value.as_str());
                check_given(value, &path.field("insecureInline"), "value", found);
            }
            SourceType::Other(other) => {
                found.add(path.field("type"), checks::must_be_one_of(other, SourceType::WORDS));
            }
        }
    }
}

/// Checks that the settings of a type are there, and say something in the field that matters.
fn check_given(value: Option<&str>, path: &Path, field: &str, found: &mut Violations) -> bool {
    match value {
        None => found.add(path, checks::MUST_BE_DEFINED),
        Some("") => found.add(path.field(field), checks::MUST_BE_DEFINED),
        Some(_) => return true,
    }
    false
}

/// Complains about a path that depends on where the control plane was started, or leads out of the folder it names.
fn complaint_about_path(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        return Some("file path must be absolute");
    }
    path.split('/').any(|part| part == "..").then_some("file path contains directory traversal")
}
