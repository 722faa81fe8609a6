//! Names of resources that live in a namespace of Kubernetes: `<name>.<namespace>` inside the control plane.

/// The name inside the control plane.
pub fn joined(name: &str, namespace: &str) -> String {
    format!("{name}.{namespace}")
}

/// The names that a resource may be stored under where it was written, if users call it so; likeliest first. The
/// namespace is empty for none.
pub fn stored(name: &str, namespace: &str) -> impl Iterator<Item = String> {
    let whole = (!namespace.is_empty()).then(|| joined(name, namespace));
    whole.into_iter().chain([name.to_owned()])
}

/// The name inside the namespace; `None` for a name that does not end in it.
pub fn within<'n>(name: &'n str, namespace: &str) -> Option<&'n str> {
    let short = name.strip_suffix(namespace)?.strip_suffix('.')?;
    (!short.is_empty()).then_some(short)
}
