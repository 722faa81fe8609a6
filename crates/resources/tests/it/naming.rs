//! Names as peers, proxies and users see them.

mod dns;
mod kri;
mod never_panics;
mod proxy;
mod section;
mod sni;
mod sni_in_resource;
mod sni_of_kri;
mod spiffe;

use std::collections::BTreeMap;

use resources::{Key, Kind, Resource};
use serde_json::Value;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn resource(kind: Kind, mesh: &str, name: &str, labels: &[(&str, &str)], spec: Value) -> Resource {
    testkit::resource::stored(Key::new(kind, mesh, name), labels, spec)
}

/// RFC 1123 lower-case label, the shape of meshes, zones, namespaces and most names.
const LABEL: &str = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";

fn assert_hostname(sni: &str) {
    assert!(sni.len() <= 253, "{sni} has {} bytes", sni.len());
    for label in sni.split('.') {
        assert!((1..=63).contains(&label.len()), "label {label:?} of {sni}");
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        assert!(label.starts_with(edge) && label.ends_with(edge), "label {label:?} of {sni}");
        assert!(label.chars().all(|c| edge(c) || c == '-'), "label {label:?} of {sni}");
    }
}
