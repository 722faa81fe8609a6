//! The request of a health check.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HeaderKeyValue;
use crate::{Path, Violations, kinds::checks, shape};

const MAX_HEADERS: usize = 16;
const EVERYWHERE: &str = "/";

/// A request, and the answers that are expected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Http {
    /// Switch these checks off; they are on by default where `http` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The path of the request; `/` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Headers of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_headers_to_add: Option<RequestHeaders>,
    /// The statuses that count as healthy, from 100 to 599; 200 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_statuses: Option<Vec<i32>>,
}

/// Headers of the request; several values of one are separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestHeaders {
    /// Headers that replace those of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub set: Option<Vec<HeaderKeyValue>>,
    /// Headers that are sent in addition to those of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub add: Option<Vec<HeaderKeyValue>>,
}

impl Http {
    pub fn enabled(&self) -> bool {
        self.disabled != Some(true)
    }

    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(EVERYWHERE)
    }

    pub(super) fn validate(&self, path: &Path, found: &mut Violations) {
        if let Some(asked) = &self.path {
            let path = path.field("path");
            found.require(!asked.is_empty(), &path, checks::MUST_BE_DEFINED);
            one_line(asked, &path, found);
        }
        for (i, status) in self.expected_statuses.iter().flatten().enumerate() {
            found.require(
                (100..=599).contains(status),
                path.field("expectedStatuses").index(i),
                "must be in inclusive range [100, 599]",
            );
        }
        if let Some(headers) = &self.request_headers_to_add {
            let path = path.field("requestHeadersToAdd");
            validate_headers(headers.set.as_deref(), &path.field("set"), found);
            validate_headers(headers.add.as_deref(), &path.field("add"), found);
        }
    }
}

fn validate_headers(headers: Option<&[HeaderKeyValue]>, path: &Path, found: &mut Violations) {
    let headers = headers.unwrap_or_default();
    let fits = headers.len() <= MAX_HEADERS;
    found.require(fits, path, format!("must have at most {MAX_HEADERS} items"));
    let mut seen = BTreeSet::new();
    for (i, HeaderKeyValue { name, value }) in headers.iter().enumerate() {
        let path = path.index(i);
        let known = !name.is_empty() && name.bytes().all(shape::is_header_name_byte);
        found.require(known, path.field("name"), "must be a header name in lower case");
        found.require(seen.insert(name), path.field("name"), "duplicate header name");
        one_line(value, &path.field("value"), found);
    }
}

/// Checks a text that becomes a part of a request; Envoy refuses its configuration with others.
pub(super) fn one_line(text: &str, path: &Path, found: &mut Violations) {
    found.require(!text.contains(['\0', '\r', '\n']), path, "must not contain control characters");
}
