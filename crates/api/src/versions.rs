//! Writes that are made only if the resource was not changed since it was read: `ETag` and `If-Match`.
//!
//! The tag of a resource is its version in quotes, which no other version of it ever has.

use admission::{Expected, VersionConflict};
use axum::response::Response;
use http::{
    HeaderValue,
    header::{ETAG, IF_MATCH},
};
use resources::Resource;

use crate::{Error, call::Call};

/// Notes on the answer which version of a resource it shows.
pub fn with_version(mut response: Response, resource: &Resource) -> Response {
    if let Ok(tag) = HeaderValue::try_from(tag(resource.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn tag(version: u64) -> String {
    format!("\"{version}\"")
}

/// The versions that the request means to change.
pub fn expected(call: &Call) -> Result<Expected, Error> {
    let mut versions = Vec::new();
    let mut given = false;
    for value in call.parts.headers.get_all(IF_MATCH) {
        given = true;
        let text = value.to_str().map_err(|_| malformed("characters that are not ASCII"))?;
        for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
            if tag == "*" {
                return Ok(Expected::Existing);
            }
            let opaque = tag.strip_prefix("W/").unwrap_or(tag);
            let opaque = opaque.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let opaque = opaque.ok_or_else(|| malformed(tag))?;
            // A weak tag, or one that is not from here, is the tag of no version.
            versions.extend(opaque.parse::<u64>().ok().filter(|_| !tag.starts_with("W/")));
        }
    }
    Ok(if given { Expected::OneOf(versions) } else { Expected::Anything })
}

fn malformed(found: &str) -> Error {
    Error::BadRequest(format!(
        "If-Match: expected the ETag of an earlier answer with its quotes, such as \"17\", or *; found {found}"
    ))
}

/// Explains the difference from what the request expects, and what to do about it.
pub fn explained(VersionConflict { key, expected, found }: &VersionConflict) -> String {
    let wanted = match expected {
        Expected::OneOf(versions) => {
            let tags: Vec<String> = versions.iter().map(|version| tag(*version)).collect();
            if tags.is_empty() { "the tag of no version".to_owned() } else { tags.join(", ") }
        }
        Expected::Existing | Expected::Anything => "*".to_owned(),
    };
    match found {
        Some(found) => format!(
            "{key} was changed since it was read: it was last modified at {} and its ETag is {}, while If-Match is \
             {wanted}. Nothing was written. Read it again, repeat your change on what it is now, and send that with the \
             new ETag",
            found.modified,
            tag(found.version)
        ),
        None => format!(
            "{key} does not exist any more, while If-Match is {wanted}. Nothing was written. Leave out If-Match to create \
             it again"
        ),
    }
}
