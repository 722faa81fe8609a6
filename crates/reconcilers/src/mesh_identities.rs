//! Brings MeshIdentities into effect, in this order: authority, MeshTrust, status.
//!
//! Each zone does so for itself, for its own identities and for those of the global control plane: a key never leaves
//! the zone that made it. An identity is reconciled when it, its mesh, its MeshTrust or a secret of its mesh changes.
//! Everything is written by version, so that of two control planes on one store the second finds its version outdated
//! and looks again.
//! Proxies are given an identity once its status says that it is ready, so the authority is trusted before
//! its first certificate is presented.

use std::{collections::BTreeSet, sync::Arc};

use identity::{
    Authority,
    ca::{CertificateAuthorityError, Files, Sources, bundled},
};
use reconcile::{Next, Pass, ReconcileFailure, Reconciler, Runner};
use resources::{
    Key, Kind, Labels, Resource, Status,
    kinds::{
        mesh::{Mesh, MeshServicesMode},
        mesh_identity::{MeshIdentity, MeshIdentityStatus, ProviderType},
        mesh_trust::{BundleType, CaBundle, MeshTrust, MeshTrustStatus, Origin, Pem},
        service_status::Condition,
    },
    labels,
};
use store::{Dirty, Snapshot, Write};
use topology::matching;

/// The identities of all meshes.
struct Identities {
    zone: String,
    files: Arc<Files>,
}

/// Starts to follow. `files` are those that identities may read their authorities from.
pub fn start(zone: &str, files: Files, runner: &Runner) {
    runner.run(Identities { zone: zone.to_owned(), files: Arc::new(files) });
}

impl Reconciler for Identities {
    const NAME: &'static str = "mesh_identities";
    const WORK: &'static str = "put a MeshIdentity into effect";
    const FOLLOWS: &'static [Kind] = &[Kind::Mesh, Kind::MeshIdentity, Kind::MeshTrust, Kind::Secret];
    /// Authorities that were made in what is the future now are not valid yet.
    const FOLLOWS_CLOCK: bool = true;
    type Unit = Key;

    /// Returns the identities of the meshes in which something changed, also those of the global control plane: each zone
    /// has an authority of its own for them.
    fn apply(&mut self, snapshot: &Snapshot, dirty: &Dirty) -> BTreeSet<Key> {
        let meshes: BTreeSet<Arc<str>> = match dirty {
            Dirty::Everything => snapshot.of_kind(Kind::Mesh).map(|mesh| mesh.key.name.clone()).collect(),
            Dirty::Keys(keys) => keys.iter().filter_map(concerned).collect(),
        };
        let all = meshes.iter().flat_map(|mesh| snapshot.in_mesh(Kind::MeshIdentity, mesh));
        all.map(|identity| identity.key.clone()).collect()
    }

    async fn reconcile(&mut self, unit: &Key, pass: &Pass) -> Result<Next, ReconcileFailure> {
        let Some(identity) = pass.snapshot.get(unit) else { return Ok(Next::on_change()) };
        let conditions = self.conditions(identity, pass).await?;
        let status = Status::MeshIdentity(Arc::new(MeshIdentityStatus { conditions }));
        if identity.status.as_ref() != Some(&status) {
            let expected = Some(identity.version);
            pass.write(Write::Status { key: identity.key.clone(), status, expected }).await?;
        }
        Ok(Next::on_change())
    }
}

impl Identities {
    async fn conditions(
        &self,
        identity: &Arc<Resource>,
        pass: &Pass,
    ) -> Result<Vec<Condition>, ReconcileFailure> {
        let Some(spec) = identity.spec.get::<MeshIdentity>() else { return Ok(Vec::new()) };
        let mesh = pass.snapshot.get(&Key::global(Kind::Mesh, identity.mesh()));
        let mode = mesh.and_then(|mesh| mesh.spec.get::<Mesh>()).map(Mesh::mesh_services_mode);
        if mode != Some(MeshServicesMode::Exclusive) {
            let needed = condition(
                "DependenciesReady",
                Err("MeshServicesDisabled"),
                "MeshIdentity requires MeshServices to be enabled on the mesh. To enable, set \
                 `spec.meshServices.mode: Exclusive` on the mesh.",
            );
            return Ok(vec![needed, failed()]);
        }
        let Some(provider) = &spec.provider else {
            let provided = condition(
                "SpiffeIDProvider",
                Ok("SpiffeIDProvided"),
                "Providing only SpiffeIDs for services.",
            );
            let partly =
                condition("Ready", Err("PartiallyReady"), "Running in SpiffeID providing only mode.");
            return Ok(vec![provided, partly]);
        };
        if provider.type_ != ProviderType::Bundled {
            let unknown = format!("provider: {} not found", provider.type_);
            return Ok(vec![condition("Provider", Err("ProviderNotFoundError"), &unknown), failed()]);
        }
        self.initialized(identity, spec, pass).await
    }

    /// Makes what the identity needs.
    async fn initialized(
        &self,
        identity: &Arc<Resource>,
        spec: &MeshIdentity,
        pass: &Pass,
    ) -> Result<Vec<Condition>, ReconcileFailure> {
        let provider = |outcome, message: &str| condition("Provider", outcome, message);
        let domain = match spec.trust_domain(identity, &self.zone) {
            Ok(domain) => domain,
            Err(reason) => {
                let reason = reason.to_string();
                return Ok(vec![provider(Err("ProviderInitializationError"), &reason), failed()]);
            }
        };
        let allowed = spec.bundled().is_none_or(|it| it.allows_self_signed() || !it.is_autogenerated());
        if allowed && let Err(reason) = self.make_secrets(identity, &domain, pass).await? {
            let reason = reason.to_string();
            return Ok(vec![provider(Err("ProviderInitializationError"), &reason), failed()]);
        }
        // With the secrets that were just written.
        let snapshot = pass.store.snapshot()?;
        let from = Sources { snapshot: &snapshot, files: Some(&self.files) };
        let refused = match Authority::of_identity(from, identity, pass.now) {
            _ if !allowed => Some(CertificateAuthorityError::SelfSigned.to_string()),
            Ok(_) => None,
            Err(identity::Error::Authority { reason, .. }) => Some(reason.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = refused {
            return Ok(vec![provider(Err("ProviderValidationError"), &reason), failed()]);
        }
        let mut conditions = vec![provider(Ok("ProviderInitialized"), "Provider successfully initialized")];
        if spec.bundled().is_some_and(|bundled| bundled.makes_trust()) {
            let trusted = match bundled::trusted(from, identity) {
                Ok(root) => self.trust(&snapshot, identity, &domain, &root, pass).await?,
                Err(reason) => Err(reason.to_string()),
            };
            match trusted {
                Ok(()) => {
                    let message = "MeshTrust has been successfully created";
                    conditions.push(condition("MeshTrustCreated", Ok("MeshTrustCreated"), message));
                }
                Err(reason) => {
                    conditions.push(condition("MeshTrustCreated", Err("MeshTrustCreationError"), &reason));
                    conditions.push(failed());
                    return Ok(conditions);
                }
            }
        }
        conditions.push(condition("Ready", Ok("Ready"), "Successfully initialized"));
        Ok(conditions)
    }

    /// Makes the authority in a thread of its own: a key takes a processor for a while.
    async fn make_secrets(
        &self,
        identity: &Arc<Resource>,
        domain: &str,
        pass: &Pass,
    ) -> Result<Result<(), CertificateAuthorityError>, ReconcileFailure> {
        let files = self.files.clone();
        let stored = pass.snapshot.clone();
        let now = pass.now;
        let identity = identity.clone();
        let domain = domain.to_owned();
        let missing = move || {
            let from = Sources { snapshot: &stored, files: Some(&files) };
            bundled::missing(from, &identity, &domain, now)
        };
        let missing = match pass.compute(missing).await? {
            Ok(missing) => missing,
            Err(reason) => return Ok(Err(reason)),
        };
        for secret in missing {
            let mesh = &*secret.key.mesh;
            let name = &*secret.key.name;
            tracing::info!(mesh, name, "secret written for the certificate authority of a MeshIdentity");
            let write = match pass.snapshot.get(&secret.key) {
                Some(known) => Write::Update { expected: known.version, resource: secret },
                None => Write::Create(secret),
            };
            pass.write(write).await?;
        }
        Ok(Ok(()))
    }

    /// Makes proxies trust the authority: adds it to the MeshTrust of the same name.
    async fn trust(
        &self,
        snapshot: &Snapshot,
        identity: &Resource,
        domain: &str,
        root: &str,
        pass: &Pass,
    ) -> Result<Result<(), String>, ReconcileFailure> {
        let bundle = CaBundle { type_: BundleType::Pem, pem: Some(Pem { value: root.to_owned() }) };
        let key = Key { kind: Kind::MeshTrust, ..identity.key.clone() };
        let now = pass.now;
        let write = match snapshot.get(&key).and_then(|known| Some((known, known.spec.get::<MeshTrust>()?))) {
            Some((_, spec)) if spec.pems().any(|pem| bundled::same_certificate(pem, root)) => {
                return Ok(Ok(()));
            }
            // What is written there is overwritten by its owner.
            Some((known, _)) if !matching::is_local(known) => {
                return Ok(Err(format!(
                    "{} is the global control plane's and does not have the authority of this zone: give it another \
                     name there",
                    known.key
                )));
            }
            Some((known, spec)) => {
                let mut spec = spec.clone();
                spec.ca_bundles.push(bundle);
                let resource = Resource { modified: now, spec: spec.into(), ..Resource::clone(known) };
                Write::Update { resource, expected: known.version }
            }
            None => {
                let origin = Origin { kri: identity.kri("").map(|kri| kri.to_string()) };
                let status = MeshTrustStatus { origin: Some(origin) };
                Write::Create(Resource {
                    owner: Some(Key::global(Kind::Mesh, identity.mesh())),
                    key,
                    labels: self.labels_of_trust(identity),
                    created: now,
                    modified: now,
                    version: 0,
                    spec: MeshTrust {
                        origin: None,
                        ca_bundles: vec![bundle],
                        trust_domain: domain.to_owned(),
                    }
                    .into(),
                    status: Some(Status::MeshTrust(Arc::new(status))),
                })
            }
        };
        pass.write(write).await.map(|_| Ok(()))
    }

    /// A MeshTrust that a zone makes is the zone's, also for an identity of global.
    fn labels_of_trust(&self, identity: &Resource) -> Labels {
        if matching::is_local(identity) {
            return identity.labels.clone();
        }
        let own = [
            (labels::MESH, identity.mesh()),
            (labels::ORIGIN, labels::ORIGIN_ZONE),
            (labels::ZONE, self.zone.as_str()),
            (labels::ENV, labels::ENV_UNIVERSAL),
        ];
        own.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }
}

/// The mesh whose identities a change may concern.
fn concerned(key: &Key) -> Option<Arc<str>> {
    match key.kind {
        Kind::MeshIdentity | Kind::MeshTrust | Kind::Secret => Some(key.mesh.clone()),
        Kind::Mesh => Some(key.name.clone()),
        _ => None,
    }
}

/// A condition that holds for a reason, or does not for one.
fn condition(type_: &str, outcome: Result<&str, &str>, message: &str) -> Condition {
    let (status, reason) = match outcome {
        Ok(reason) => ("True", reason),
        Err(reason) => ("False", reason),
    };
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

fn failed() -> Condition {
    condition("Ready", Err("Failure"), "One of initialization steps failed")
}
