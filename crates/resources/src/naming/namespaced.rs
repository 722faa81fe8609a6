//! Names of resources that live in a namespace of Kubernetes: `<name>.<namespace>` inside the control plane.

/// The name inside the control plane.
pub fn joined(name: &str, namespace: &str) -> String {
    format!("{name}.{namespace}")
}

/// The name inside the namespace; `None` for a name that does not end in it.
pub fn within<'n>(name: &'n str, namespace: &str) -> Option<&'n str> {
    let short = name.strip_suffix(namespace)?.strip_suffix('.')?;
    (!short.is_empty()).then_some(short)
}
