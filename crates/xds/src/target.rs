//! What a proxy should have.

use std::{collections::BTreeMap, fmt, sync::Arc};

use bytes::Bytes;

/// The kinds of resources that are discovered, in the order in which they are made before they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    Cluster,
    Endpoint,
    Secret,
    Listener,
    Route,
}

impl Type {
    pub const ALL: [Type; 5] = [Type::Cluster, Type::Endpoint, Type::Secret, Type::Listener, Type::Route];

    pub fn url(self) -> &'static str {
        match self {
            Type::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Type::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Type::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Type::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Type::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    pub fn by_url(url: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|t| t.url() == url)
    }

    /// Whether a proxy that names nothing in its first request means everything.
    pub(crate) fn empty_means_all(self) -> bool {
        matches!(self, Type::Cluster | Type::Listener)
    }
}

/// One encoded resource, shared by everybody who gets it.
#[derive(Clone, PartialEq, Eq)]
pub struct Encoded {
    pub name: Arc<str>,
    /// A hash of the content: the same on every control plane and after every restart.
    pub version: u128,
    /// The protobuf message, without its `Any` around it.
    pub body: Bytes,
}

impl fmt::Debug for Encoded {
    /// Some bodies hold private keys, which do not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Encoded { name, .. } = self;
        let (version, bytes) = (self.version_text(), self.body.len());
        f.debug_struct("Encoded")
            .field("name", name)
            .field("version", &version)
            .field("bytes", &bytes)
            .finish()
    }
}

impl Encoded {
    /// What the version looks like in a message.
    pub fn version_text(&self) -> String {
        version_text(self.version)
    }
}

pub(crate) fn version_text(version: u128) -> String {
    format!("{version:032x}")
}

/// Reads a version that this crate wrote; anything else was written by another control plane.
pub(crate) fn parse_version(text: &str) -> Option<u128> {
    let ours = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    ours.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// All resources of one type, by name.
pub type Resources = BTreeMap<Arc<str>, Arc<Encoded>>;

/// Everything a proxy should have, by type and name.
///
/// The endpoints of a cluster have the name of the cluster; a cluster whose endpoints are in the
/// target is one that discovers them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// Shared, so that targets of one proxy that differ in one type are cheap to make and to compare.
    by_type: [Arc<Resources>; Type::ALL.len()],
}

impl Target {
    pub fn insert(&mut self, kind: Type, resource: Arc<Encoded>) {
        Arc::make_mut(&mut self.by_type[kind as usize]).insert(resource.name.clone(), resource);
    }

    pub fn of(&self, kind: Type) -> &Resources {
        &self.by_type[kind as usize]
    }

    /// The names that are in only one of both, or in both with different versions.
    pub(crate) fn changed(&self, before: &Target, kind: Type) -> Vec<Arc<str>> {
        let (ours, theirs) = (&self.by_type[kind as usize], &before.by_type[kind as usize]);
        if Arc::ptr_eq(ours, theirs) {
            return Vec::new();
        }
        let (mut left, mut right) = (ours.iter().peekable(), theirs.iter().peekable());
        let mut changed = Vec::new();
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return changed,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            match (a, b) {
                (Some((_, a)), Some((_, b))) if Arc::ptr_eq(a, b) || a.version == b.version => {}
                (Some((name, _)), _) | (None, Some((name, _))) => changed.push(name.clone()),
                (None, None) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(resources: &str) -> Target {
        let mut target = Target::default();
        for (name, version) in resources.split_whitespace().filter_map(|r| r.split_once('@')) {
            let version = version.parse().unwrap();
            target
                .insert(Type::Cluster, Arc::new(Encoded { name: name.into(), version, body: Bytes::new() }));
        }
        target
    }

    #[track_caller]
    fn check(before: &str, after: &str, changed: &str) {
        assert_eq!(target(after).changed(&target(before), Type::Cluster).join(" "), changed);
    }

    #[test]
    fn what_changed_between_targets_is_added_removed_or_has_another_version() {
        check("", "", "");
        check("", "a@1", "a");
        check("a@1", "", "a");
        check("a@1 b@1 c@1", "a@1 b@2 d@1", "b c d");
        check("b@1", "a@1 b@1 c@1", "a c");
        check("a@1 b@1 c@1", "b@1", "a c");
    }

    #[test]
    fn only_versions_written_here_are_read() {
        assert_eq!(parse_version(&version_text(7)), Some(7));
        assert_eq!(parse_version(&version_text(u128::MAX)), Some(u128::MAX));
        for foreign in ["", "7", "v1", "+0000000000000000000000000000007", "0000000000000000000000000000000G"]
        {
            assert_eq!(parse_version(foreign), None, "{foreign}");
        }
    }
}
