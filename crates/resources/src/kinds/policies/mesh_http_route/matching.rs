//! Conditions on the requests of a rule.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Path, Violations,
    kinds::{checks, open_enum::open_enum, regex},
    shape,
};

const MAX_HEADER_NAME: usize = 256;
/// Envoy's limit for the name of a parameter.
const MAX_PARAMETER_NAME: usize = 1024;

/// Conditions on a request; all of them must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Match {
    /// The path; any by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// The method; any by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Parameters of the URL; all of them must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_params: Option<Vec<QueryParamsMatch>>,
    /// Headers; all of them must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<HeaderMatch>>,
}

/// A condition on the path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type", "value"]))]
pub struct PathMatch {
    /// The path, prefix or regular expression.
    #[schemars(length(min = 1))]
    pub value: String,
    /// Comparison of the path.
    #[serde(rename = "type")]
    pub type_: PathMatchType,
}

open_enum! {
    /// Comparison of a path; a prefix ends at a slash or at the end of the path.
    PathMatchType { Exact = "Exact", PathPrefix = "PathPrefix", RegularExpression = "RegularExpression" }
}

open_enum! {
    /// The method of a request.
    Method {
        Connect = "CONNECT",
        Delete = "DELETE",
        Get = "GET",
        Head = "HEAD",
        Options = "OPTIONS",
        Patch = "PATCH",
        Post = "POST",
        Put = "PUT",
        Trace = "TRACE",
    }
}

/// A condition on one parameter of the URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type", "name", "value"]))]
pub struct QueryParamsMatch {
    /// Comparison of the parameter's value.
    #[serde(rename = "type")]
    pub type_: QueryParamsMatchType,
    /// The parameter's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The parameter's value, or a regular expression of the whole value.
    pub value: String,
}

open_enum! {
    /// Comparison of a parameter.
    QueryParamsMatchType { Exact = "Exact", RegularExpression = "RegularExpression" }
}

/// A condition on one header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct HeaderMatch {
    /// Comparison of the header; `Exact` by default.
    #[serde(rename = "type", skip_serializing_if = "HeaderMatchType::is_absent")]
    pub type_: HeaderMatchType,
    /// The header's name, in lower case.
    #[schemars(length(min = 1, max = 256), extend("pattern" = shape::HEADER_NAME))]
    pub name: String,
    /// The header's value, its prefix, or a regular expression of the whole value; not for `Present` and
    /// `Absent`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
}

open_enum! {
    /// Comparison of a header.
    HeaderMatchType {
        Exact = "Exact",
        Present = "Present",
        RegularExpression = "RegularExpression",
        Absent = "Absent",
        Prefix = "Prefix",
    }
}

impl Match {
    pub(super) fn apply_defaults(&mut self) {
        self.headers.iter_mut().flatten().for_each(HeaderMatch::apply_defaults);
    }

    pub(super) fn is_path_prefix(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.type_ == PathMatchType::PathPrefix)
    }

    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(matched) = &self.path {
            matched.validate(&path.field("path"), found);
        }
        if let Some(method) = &self.method {
            checks::known(method, path, "method", found);
        }
        let mut names = BTreeSet::new();
        for (i, param) in self.query_params.iter().flatten().enumerate() {
            let path = path.field("queryParams").index(i);
            checks::known(&param.type_, &path, "type", found);
            if param.type_ == QueryParamsMatchType::RegularExpression {
                regex::validate(&param.value, &path.field("value"), found);
            }
            let path = path.field("name");
            found.require(!param.name.is_empty(), &path, checks::MUST_NOT_BE_EMPTY);
            let short = param.name.len() <= MAX_PARAMETER_NAME;
            found.require(short, &path, format!("must not be longer than {MAX_PARAMETER_NAME} bytes"));
            let fresh = names.insert(&param.name);
            found.require(fresh, path, format!("multiple entries for name {}", param.name));
        }
        for (i, header) in self.headers.iter().flatten().enumerate() {
            header.validate(&path.field("headers").index(i), found);
        }
    }
}

impl PathMatch {
    fn validate(&self, path: &Path, found: &mut Violations) {
        let value = path.field("value");
        checks::known(&self.type_, path, "type", found);
        if self.value.is_empty() {
            found.add(value, checks::MUST_NOT_BE_EMPTY);
            return;
        }
        let absolute = self.value.starts_with('/');
        match self.type_ {
            PathMatchType::PathPrefix => {
                found.require(
                    self.value == "/" || !self.value.ends_with('/'),
                    &value,
                    "does not need a trailing slash because only a `/`-separated prefix or an entire path is matched",
                );
                found.require(absolute, value, "must be an absolute path");
            }
            PathMatchType::Exact => found.require(absolute, value, "must be an absolute path"),
            PathMatchType::RegularExpression => regex::validate(&self.value, &value, found),
            PathMatchType::Other(_) => {}
        }
    }
}

impl HeaderMatch {
    pub(crate) fn apply_defaults(&mut self) {
        if self.type_.is_absent() {
            self.type_ = HeaderMatchType::Exact;
        }
    }

    pub(crate) fn validate(&self, path: &Path, found: &mut Violations) {
        if !self.type_.is_absent() {
            checks::known(&self.type_, path, "type", found);
        }
        validate_header_name(&self.name, &path.field("name"), found);
        let path = path.field("value");
        match self.type_ {
            HeaderMatchType::Present | HeaderMatchType::Absent => {
                found.require(self.value.is_empty(), path, checks::MUST_NOT_BE_DEFINED);
            }
            HeaderMatchType::RegularExpression => regex::validate(&self.value, &path, found),
            HeaderMatchType::Exact | HeaderMatchType::Prefix | HeaderMatchType::Other(_) => {}
        }
    }
}

/// Checks the name of a header; Envoy compares in lower case.
pub(super) fn validate_header_name(name: &str, path: &Path, found: &mut Violations) {
    if name.is_empty() {
        found.add(path, checks::MUST_NOT_BE_EMPTY);
        return;
    }
    found.require(
        name.len() <= MAX_HEADER_NAME,
        path,
        format!("must not be longer than {MAX_HEADER_NAME} characters"),
    );
    found.require(name.bytes().all(shape::is_header_name_byte), path, "must be a header name in lower case");
}
