//! Refuses to delete a resource that something still depends on.

use resources::{
    Key, Kind, Resource, Violations,
    kinds::{
        mesh::{CertificateAuthorityBackend, Mesh},
        zone_insight::ZoneInsight,
    },
};

use store::Snapshot;

pub fn validate(existing: &Resource, snapshot: &Snapshot, found: &mut Violations) {
    match existing.kind() {
        Kind::Mesh if snapshot.count(Kind::Dataplane, Some(existing.name())) > 0 => {
            found.add("mesh", "unable to delete mesh, there are still some dataplanes attached");
        }
        Kind::Zone if is_online(existing, snapshot) => {
            found.add("zone", "unable to delete Zone, Zone CP is still connected, please shut it down first");
        }
        Kind::Secret => validate_unused_secret(existing, snapshot, found),
        _ => {}
    }
}

fn is_online(zone: &Resource, snapshot: &Snapshot) -> bool {
    let insight = snapshot.get(&Key::global(Kind::ZoneInsight, zone.name()));
    insight.and_then(|i| i.spec.get::<ZoneInsight>()).is_some_and(ZoneInsight::is_online)
}

/// The certificates of a CA backend live in secrets; without them no proxy gets a certificate.
fn validate_unused_secret(secret: &Resource, snapshot: &Snapshot, found: &mut Violations) {
    let mesh = snapshot.get(&Key::global(Kind::Mesh, secret.mesh()));
    let mtls = mesh.and_then(|m| m.spec.get::<Mesh>()).and_then(|m| m.mtls.as_ref());
    let backends = mtls.into_iter().flat_map(|mtls| &mtls.backends);
    for backend in backends.filter(|backend| uses(backend, secret)) {
        let (name, mesh, backend) = (secret.name(), secret.mesh(), &backend.name);
        found.add(
            "name",
            format!(
                "The secret {name:?} that you are trying to remove is currently in use in Mesh {mesh:?} in mTLS backend \
                 {backend:?}. Please remove the reference from the {backend:?} backend before removing the secret."
            ),
        );
    }
}

fn uses(backend: &CertificateAuthorityBackend, secret: &Resource) -> bool {
    match backend.kind.as_str() {
        "builtin" => ["cert", "key"]
            .iter()
            .any(|part| secret.name() == format!("{}.ca-builtin-{part}-{}", secret.mesh(), backend.name)),
        _ => ["cert", "key"].iter().any(|part| {
            let source = backend.conf.as_ref().and_then(|conf| conf.get(*part));
            source.and_then(|source| source.get("secret")).is_some_and(|name| name == secret.name())
        }),
    }
}
