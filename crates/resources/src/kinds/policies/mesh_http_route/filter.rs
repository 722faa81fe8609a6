//! Filters that change, copy or answer a request before it is sent on.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::matching::validate_header_name;
use crate::{
    Path, Violations,
    kinds::{
        checks, header_value,
        int_or_string::{self, IntOrString},
        open_enum::open_enum,
        tags,
        target_ref::{BackendRef, TargetRefKind as K},
    },
    shape,
};

const MAX_HEADERS: usize = 16;
const REDIRECT_CODES: [u32; 5] = [301, 302, 303, 307, 308];
const DEFAULT_REDIRECT_CODE: u32 = 302;
const HOST: &str = "host";
const MIRRORS: &[K] = &[K::MeshService, K::MeshServiceSubset];

/// One step; the field that belongs to the type is given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct Filter {
    /// Type of the filter; the field of this name has its settings.
    #[serde(rename = "type")]
    pub type_: FilterType,
    /// Settings of type `RequestHeaderModifier`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_header_modifier: Option<HeaderModifier>,
    /// Settings of type `ResponseHeaderModifier`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_header_modifier: Option<HeaderModifier>,
    /// Settings of type `RequestRedirect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_redirect: Option<RequestRedirect>,
    /// Settings of type `URLRewrite`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_rewrite: Option<UrlRewrite>,
    /// Settings of type `RequestMirror`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_mirror: Option<RequestMirror>,
}

open_enum! {
    /// Type of a filter.
    FilterType {
        RequestHeaderModifier = "RequestHeaderModifier",
        ResponseHeaderModifier = "ResponseHeaderModifier",
        RequestRedirect = "RequestRedirect",
        UrlRewrite = "URLRewrite",
        RequestMirror = "RequestMirror",
    }
}

/// Changes to headers, one per header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderModifier {
    /// Headers that replace those of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub set: Option<Vec<HeaderKeyValue>>,
    /// Headers that are added to those of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub add: Option<Vec<HeaderKeyValue>>,
    /// Names of headers that are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub remove: Option<Vec<String>>,
}

/// A header; several values are separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "value"]))]
pub struct HeaderKeyValue {
    /// The header's name, in lower case.
    #[schemars(length(min = 1, max = 256), extend("pattern" = shape::HEADER_NAME))]
    pub name: String,
    /// The header's value; several are separated by commas.
    pub value: String,
}

/// Answers with a redirect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestRedirect {
    /// The scheme of the new URL; that of the request by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    /// The host of the new URL; that of the request by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("pattern" = shape::HOSTNAME))]
    pub hostname: Option<String>,
    /// The path of the new URL; that of the request by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathRewrite>,
    /// The port of the new URL; that of the request by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u32>,
    /// The status of the answer; 302 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = REDIRECT_CODES))]
    pub status_code: Option<u32>,
}

open_enum! {
    /// The scheme of a redirect's URL.
    Scheme { Http = "http", Https = "https" }
}

/// A change to the path, whole or only the part that matched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["type"]))]
pub struct PathRewrite {
    /// Part of the path to replace.
    #[serde(rename = "type")]
    pub type_: PathRewriteType,
    /// The new path; for type `ReplaceFullPath`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace_full_path: Option<String>,
    /// Replacement of the prefix that matched; for type `ReplacePrefixMatch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace_prefix_match: Option<String>,
}

open_enum! {
    /// Part of the path to replace.
    PathRewriteType { ReplaceFullPath = "ReplaceFullPath", ReplacePrefixMatch = "ReplacePrefixMatch" }
}

/// Changes where the request seems to go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UrlRewrite {
    /// The new `Host` header; unchanged by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("pattern" = shape::HOSTNAME))]
    pub hostname: Option<String>,
    /// The new path; unchanged by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathRewrite>,
    /// Only for gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_to_backend_hostname: Option<bool>,
}

/// Sends a copy of the request elsewhere and ignores the answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["backendRef"]))]
pub struct RequestMirror {
    /// The percentage of requests that are copied; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage: Option<IntOrString>,
    /// Destination of the copies.
    pub backend_ref: BackendRef,
}

impl Filter {
    /// Destination of copies of requests.
    pub(super) fn mirror(&self) -> Option<&BackendRef> {
        let mirror = self.request_mirror.as_ref().filter(|_| self.type_ == FilterType::RequestMirror);
        mirror.map(|mirror| &mirror.backend_ref)
    }

    pub(super) fn apply_defaults(&mut self) {
        if let Some(redirect) = &mut self.request_redirect {
            redirect.status_code.get_or_insert(DEFAULT_REDIRECT_CODE);
        }
        if let Some(mirror) = &mut self.request_mirror {
            mirror.backend_ref.apply_defaults();
        }
    }

    pub(super) fn validate(&self, gateway: bool, all_prefixes: bool, path: &Path, found: &mut Violations) {
        // The parts of other types have no effect and are not looked at.
        match &self.type_ {
            FilterType::RequestHeaderModifier => {
                let path = path.field("requestHeaderModifier");
                given(self.request_header_modifier.as_ref(), &path, found, |modifier, path, found| {
                    modifier.validate(Of::Requests, path, found);
                });
            }
            FilterType::ResponseHeaderModifier => {
                let path = path.field("responseHeaderModifier");
                given(self.response_header_modifier.as_ref(), &path, found, |modifier, path, found| {
                    modifier.validate(Of::Responses, path, found);
                });
            }
            FilterType::RequestRedirect => {
                let path = path.field("requestRedirect");
                given(self.request_redirect.as_ref(), &path, found, |redirect, path, found| {
                    redirect.validate(all_prefixes, path, found);
                });
            }
            FilterType::UrlRewrite => {
                let path = path.field("urlRewrite");
                given(self.url_rewrite.as_ref(), &path, found, |rewrite, path, found| {
                    rewrite.validate(gateway, all_prefixes, path, found);
                });
            }
            FilterType::RequestMirror => {
                let path = path.field("requestMirror");
                given(self.request_mirror.as_ref(), &path, found, RequestMirror::validate);
            }
            FilterType::Other(_) => checks::known(&self.type_, path, "type", found),
        }
    }
}

/// Checks the part that belongs to the type of a filter, which must be there.
fn given<T>(
    part: Option<&T>,
    path: &Path,
    found: &mut Violations,
    check: impl FnOnce(&T, &Path, &mut Violations),
) {
    match part {
        Some(part) => check(part, path, found),
        None => found.add(path, checks::MUST_BE_DEFINED),
    }
}

impl RequestMirror {
    fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(percentage) = &self.percentage {
            int_or_string::validate_percentage(percentage, &path.field("percentage"), found);
        }
        self.backend_ref.validate(MIRRORS, &path.field("backendRef"), found);
    }
}

/// Messages with headers to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Requests,
    Responses,
}

impl HeaderModifier {
    fn validate(&self, of: Of, path: &Path, found: &mut Violations) {
        if self.set.is_none() && self.add.is_none() && self.remove.is_none() {
            found.add(path, "must have at least one defined: set, add, remove");
            return;
        }
        let mut seen = BTreeSet::new();
        for (field, headers) in [("set", &self.set), ("add", &self.add)] {
            let path = path.field(field);
            check_length(headers.iter().flatten().count(), &path, found);
            for (i, HeaderKeyValue { name, value }) in headers.iter().flatten().enumerate() {
                let path = path.index(i);
                validate_header_name(name, &path.field("name"), found);
                found.require(seen.insert(name.clone()), path.field("name"), "duplicate header name");
                // The host of a request is not written as a header, but in its place.
                if name == HOST && of == Of::Requests && field == "set" {
                    header_value::validate_text(value, &path.field("value"), found);
                } else {
                    check_host(name, of, &path.field("name"), found);
                    header_value::validate(value, &path.field("value"), found);
                }
            }
        }
        let path = path.field("remove");
        check_length(self.remove.iter().flatten().count(), &path, found);
        for (i, name) in self.remove.iter().flatten().enumerate() {
            // Kuma says `name` of headers to remove too, which have none.
            let path = path.index(i).field("name");
            let is_byte = |byte: u8| shape::is_header_name_byte(byte.to_ascii_lowercase());
            let fine = !name.is_empty() && name.bytes().all(is_byte);
            found.require(fine, &path, "must be a header name");
            check_host(name, of, &path, found);
            found.require(seen.insert(name.clone()), path, "duplicate header name");
        }
    }
}

fn check_length(headers: usize, path: &Path, found: &mut Violations) {
    found.require(headers <= MAX_HEADERS, path, format!("must have at most {MAX_HEADERS} items"));
}

/// Envoy refuses all of its configuration where a header of this name is added or removed.
fn check_host(name: &str, of: Of, path: &Path, found: &mut Violations) {
    let message = match of {
        Of::Requests => "the host of a request can only be set, in set or by a URLRewrite",
        Of::Responses => "responses have no host",
    };
    found.require(!name.eq_ignore_ascii_case(HOST), path, message);
}

impl RequestRedirect {
    fn validate(&self, all_prefixes: bool, path: &Path, found: &mut Violations) {
        if let Some(scheme) = &self.scheme {
            checks::known(scheme, path, "scheme", found);
        }
        if let Some(rewrite) = &self.path {
            rewrite.validate(all_prefixes, &path.field("path"), found);
        }
        validate_hostname(self.hostname.as_deref(), &path.field("hostname"), found);
        if let Some(port) = self.port {
            checks::port(port, &path.field("port"), found);
        }
        found.require(
            self.status_code.is_none_or(|code| REDIRECT_CODES.contains(&code)),
            path.field("statusCode"),
            "must be one of 301, 302, 303, 307, 308",
        );
    }
}

impl UrlRewrite {
    fn validate(&self, gateway: bool, all_prefixes: bool, path: &Path, found: &mut Violations) {
        if let Some(rewrite) = &self.path {
            rewrite.validate(all_prefixes, &path.field("path"), found);
        }
        validate_hostname(self.hostname.as_deref(), &path.field("hostname"), found);
        if self.host_to_backend_hostname == Some(true) {
            let path = path.field("hostToBackendHostname");
            found.require(gateway, &path, "can only be set with MeshGateway");
            found.require(self.hostname.is_none(), path, "cannot be set together with hostname");
        }
    }
}

impl PathRewrite {
    fn validate(&self, all_prefixes: bool, path: &Path, found: &mut Violations) {
        checks::known(&self.type_, path, "type", found);
        let full = path.field("replaceFullPath");
        let prefix = path.field("replacePrefixMatch");
        match self.type_ {
            PathRewriteType::ReplaceFullPath => {
                found.require(self.replace_full_path.is_some(), full, checks::MUST_BE_DEFINED);
            }
            PathRewriteType::ReplacePrefixMatch => {
                found.require(self.replace_prefix_match.is_some(), &prefix, checks::MUST_BE_DEFINED);
            }
            PathRewriteType::Other(_) => {}
        }
        for (text, path) in [
            (&self.replace_full_path, path.field("replaceFullPath")),
            (&self.replace_prefix_match, path.field("replacePrefixMatch")),
        ] {
            header_value::validate_text(text.as_deref().unwrap_or_default(), &path, found);
        }
        if self.replace_prefix_match.is_some() {
            found.require(all_prefixes, prefix, "can only appear if all matches match a path prefix");
        }
    }
}

/// Checks a host name that is written into requests or redirects.
fn validate_hostname(hostname: Option<&str>, path: &Path, found: &mut Violations) {
    let Some(hostname) = hostname else { return };
    if tags::is_ip(hostname) {
        found.add(path, "cannot be an IP address");
    } else {
        checks::rfc1123_subdomain(hostname, path, found);
    }
}
