//! Marker that is looked for in responses, and counts of what came.

use std::time::Instant;

use memchr::memmem::Finder;

use crate::{envoy::Item, wire::Kind};

/// Tells content that reflects a change from content that does not.
#[derive(Debug, Clone)]
pub struct Marker {
    kind: Kind,
    /// Part of the resource's name.
    name: Option<Finder<'static>>,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Any,
    With(Finder<'static>),
    Without(Finder<'static>),
}

impl Marker {
    /// Any resource of a kind.
    pub fn any(kind: Kind) -> Marker {
        Marker { kind, name: None, content: Content::Any }
    }

    #[must_use]
    pub fn named(mut self, part: &str) -> Marker {
        self.name = Some(Finder::new(part).into_owned());
        self
    }

    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Marker {
        self.content = Content::With(Finder::new(bytes).into_owned());
        self
    }

    #[must_use]
    pub fn without(mut self, bytes: &[u8]) -> Marker {
        self.content = Content::Without(Finder::new(bytes).into_owned());
        self
    }

    pub fn is_in(&self, kind: Kind, item: &Item) -> bool {
        let body = item.body.as_deref().unwrap_or_default();
        kind == self.kind
            && self.name.as_ref().is_none_or(|part| part.find(&item.name).is_some())
            && match &self.content {
                Content::Any => true,
                Content::With(bytes) => bytes.find(body).is_some(),
                Content::Without(bytes) => bytes.find(body).is_none(),
            }
    }
}

/// Counts of what one proxy received since counting began.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub responses: u64,
    pub resources: u64,
    /// Of gRPC messages, without their framing.
    pub bytes: u64,
    /// The bytes of the smallest responses that would have done.
    pub needed: u64,
    pub rejected: u64,
    /// Time when content with the marker came last.
    pub marked: Option<Instant>,
    /// Number of resources that had the marker.
    pub marks: u64,
    /// Time when anything came last.
    pub last: Option<Instant>,
    /// Time when the proxy connected last.
    pub connected: Option<Instant>,
    /// Time when it first had all it needs to call every destination.
    pub synced: Option<Instant>,
}
