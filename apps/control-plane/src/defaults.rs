//! Resources that the control plane creates by itself: at the first start, and with every new mesh.
//!
//! Everything here is created only when it is missing, so a restart changes nothing, and several
//! control planes may start on one database at the same time.

use std::{sync::Arc, time::Duration};

use admission::{Companion, Companions, Registrar};
use anyhow::{Context, Result, ensure};
use identity::{
    KeyPair, Purpose, UserToken,
    signing_key::{self, FIRST_KID},
};
use jiff::Timestamp;
use resources::{
    Draft, Key, Kind, Resource, Spec,
    kinds::{
        config::Config as StoredConfig,
        mesh::Mesh,
        secret::{GlobalSecret, SecretBytes},
        zone::Zone,
    },
    labels,
};
use serde_json::{Value, json};
use store::{Snapshot, Write};

use crate::config::{Config, setting::Mode};

mod hostname_generators;

const CLUSTER_ID: &str = "kuma-cluster-id";
const ADMIN_TOKEN: &str = "admin-user-token";
/// The policies of a new mesh; their names go on with that of the mesh.
const POLICIES: [(&str, Kind); 4] = [
    ("mesh-timeout-all", Kind::MeshTimeout),
    ("mesh-gateways-timeout-all", Kind::MeshTimeout),
    ("mesh-circuit-breaker-all", Kind::MeshCircuitBreaker),
    ("mesh-retry-all", Kind::MeshRetry),
];
const ADMIN_TOKEN_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The resources that come with a mesh: default policies and, last, the key of its dataplane tokens. A
/// mesh with a key has been given everything; what an operator has deleted since stays away.
pub fn companions() -> Result<Companions> {
    let specs = [sidecar_timeouts(), gateway_timeouts(), limits(), retries()];
    let policies = POLICIES.into_iter().zip(specs);
    let policies = policies.map(|((name, kind), json)| Ok((name, spec(kind, json)?)));
    let policies = policies.collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |mesh: &Draft, snapshot: &Snapshot| {
        let name = &*mesh.key.name;
        let purpose = Purpose::Dataplane { mesh: name };
        let wanted =
            |kind: Kind| mesh.spec.get::<Mesh>().is_some_and(|mesh| mesh.creates_initial_policy(kind.name()));
        if !lacks_signing_key(snapshot, purpose) {
            return Vec::new();
        }
        let mut made = Vec::new();
        for (prefix, spec) in policies.iter().filter(|(_, spec)| wanted(spec.kind())) {
            let key = policy_of(name, prefix, spec.kind());
            made.push(Companion::Known(Draft::new(key, spec.clone())));
        }
        made.push(Companion::Secret { key: purpose.key(FIRST_KID), make: dataplane_signing_key });
        made
    }))
}

fn policy_of(mesh: &str, prefix: &str, kind: Kind) -> Key {
    Key::new(kind, mesh, &format!("{prefix}-{mesh}"))
}

fn dataplane_signing_key(key: &Key) -> Result<Draft, store::Error> {
    let pair = KeyPair::generate().map_err(|error| {
        store::Error::Unavailable(format!("cannot make the key of dataplane tokens: {error}"))
    })?;
    Ok(signing_key::draft(Purpose::Dataplane { mesh: &key.mesh }, FIRST_KID, &pair))
}

fn lacks_signing_key(snapshot: &Snapshot, purpose: Purpose<'_>) -> bool {
    matches!(signing_key::latest(snapshot, purpose), Err(identity::Error::NoSigningKey(_)))
}

/// Creates what a control plane needs and does not have.
pub async fn create(registrar: &Registrar, config: &Config, now: Timestamp) -> Result<()> {
    let mut missing = signing_keys(registrar, config)?;
    if !config.defaults.skip_hostname_generators {
        missing.extend(hostname_generators::drafts(config.mode)?);
    }
    if !config.federated() {
        let id = StoredConfig { config: uuid::Uuid::new_v4().to_string() };
        missing.push(Draft::new(Key::global(Kind::Config, CLUSTER_ID), id.into()));
    }
    if config.mode != Mode::Global {
        missing.push(Draft::new(
            Key::global(Kind::Zone, &config.synchronisation.multizone.zone.name),
            Zone::default().into(),
        ));
    }
    ensure_exist(registrar, missing).await.context("cannot create the control plane's default resources")?;
    if config.mode != Mode::Global {
        forget_other_zones(registrar, &config.synchronisation.multizone.zone.name).await?;
    }
    if config.api_server.authn.tokens.bootstrap_admin_token {
        admin_token(registrar, now).await.context("cannot create the administrator's token")?;
    }
    // A federated zone gets its meshes, and all that belongs to them, from the global control plane.
    if config.federated() {
        return Ok(());
    }
    let snapshot = registrar.store().snapshot()?;
    let stored = snapshot.of_kind(Kind::Mesh);
    let mut meshes: Vec<Draft> = stored.map(|mesh| Draft::new(mesh.key.clone(), mesh.spec.clone())).collect();
    // Kuma's rule: an operator who deleted `default` and has other meshes does not want it back.
    if meshes.is_empty() && !config.defaults.skip_mesh_creation {
        let mesh = spec(Kind::Mesh, json!({ "meshServices": { "mode": "Exclusive" } }))?;
        meshes.push(Draft::new(Key::global(Kind::Mesh, "default"), mesh));
    }
    // Meshes that are stored are here for what they may lack: the control plane that made one may have ended too early.
    ensure_exist(registrar, meshes)
        .await
        .context("cannot create the mesh \"default\", or the default resources of a mesh")?;
    relabel(registrar, now).await.context("cannot label the default policies of meshes")
}

/// Default policies say where they are from, as if they were created now: they may be older than the labels, or
/// than the name of the zone, and a policy of another zone would apply to no proxy. Other labels stay.
async fn relabel(registrar: &Registrar, now: Timestamp) -> Result<()> {
    let snapshot = registrar.store().snapshot()?;
    let meshes: Vec<_> = snapshot.of_kind(Kind::Mesh).map(|mesh| mesh.key.name.clone()).collect();
    let keys = meshes.iter().flat_map(|mesh| POLICIES.map(|(prefix, kind)| policy_of(mesh, prefix, kind)));
    let relabelled = |stored: &Arc<Resource>| {
        let known = registrar.rules().labels(&Draft::new(stored.key.clone(), stored.spec.clone()));
        let mut labels = stored.labels.clone();
        labels.extend(known);
        let copied = stored.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL);
        (!copied && labels != stored.labels).then(|| Write::Update {
            expected: stored.version,
            resource: Resource { labels, modified: now, ..stored.as_ref().clone() },
        })
    };
    let writes = keys.filter_map(|key| relabelled(snapshot.get(&key)?)).collect();
    for outcome in registrar.store().write_each(writes).await {
        match outcome {
            // Another control plane was faster, or an operator.
            Ok(_) | Err(store::Error::NotFound(_) | store::Error::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A zone knows itself only; another Zone is the one it was before it was renamed.
async fn forget_other_zones(registrar: &Registrar, name: &str) -> Result<()> {
    let store = registrar.store();
    let snapshot = store.snapshot()?;
    let others = snapshot.of_kind(Kind::Zone).filter(|zone| zone.name() != name);
    let deletions = others.map(|zone| Write::Delete { key: zone.key.clone(), expected: None }).collect();
    for outcome in store.write_each(deletions).await {
        match outcome {
            // Another control plane of this zone was faster.
            Ok(_) | Err(store::Error::NotFound(_)) => {}
            Err(error) => return Err(error).context("cannot delete the Zone of an earlier name"),
        }
    }
    Ok(())
}

/// The id all control planes on one store share, once one of them has written it.
pub fn cluster_id(snapshot: &Snapshot) -> String {
    let stored = snapshot.get(&Key::global(Kind::Config, CLUSTER_ID));
    let config = stored.and_then(|resource| resource.spec.get::<StoredConfig>());
    config.map(|config| config.config.clone()).unwrap_or_default()
}

async fn ensure_exist(registrar: &Registrar, drafts: Vec<Draft>) -> Result<()> {
    for key in registrar.ensure(drafts).await? {
        tracing::info!(
            kind = key.kind.name(),
            mesh = &*key.mesh,
            name = &*key.name,
            "created a default resource"
        );
    }
    Ok(())
}

/// A key is expensive to make, so only those that are missing are made.
fn signing_keys(registrar: &Registrar, config: &Config) -> Result<Vec<Draft>> {
    let snapshot = registrar.store().snapshot()?;
    let mut purposes = vec![Purpose::User];
    // A federated zone checks zone tokens with the public key of the global control plane.
    if !config.federated() {
        purposes.push(Purpose::Zone);
    }
    let missing = purposes.into_iter().filter(|purpose| lacks_signing_key(&snapshot, *purpose));
    missing.map(|purpose| Ok(signing_key::draft(purpose, FIRST_KID, &KeyPair::generate()?))).collect()
}

async fn admin_token(registrar: &Registrar, now: Timestamp) -> Result<()> {
    let snapshot = registrar.store().snapshot()?;
    let key = Key::global(Kind::GlobalSecret, ADMIN_TOKEN);
    if snapshot.get(&key).is_some() {
        return Ok(());
    }
    let admin = api::names::ADMIN.to_owned();
    let claims = UserToken { name: admin.clone(), groups: vec![admin] };
    let signing = signing_key::latest(&snapshot, Purpose::User)?;
    let token = identity::token::issue(&claims, &signing, now, ADMIN_TOKEN_LIFETIME)?;
    let secret = GlobalSecret { data: SecretBytes::new(token) };
    ensure_exist(registrar, vec![Draft::new(key, secret.into())]).await
}

fn sidecar_timeouts() -> Value {
    json!({
        "targetRef": { "kind": "Mesh", "proxyTypes": ["Sidecar"] },
        "from": [{ "targetRef": { "kind": "Mesh" }, "default": {
            "connectionTimeout": "10s",
            "idleTimeout": "2h",
            "http": { "requestTimeout": "0s", "streamIdleTimeout": "1h", "maxStreamDuration": "0s" },
        }}],
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": {
            "connectionTimeout": "5s",
            "idleTimeout": "1h",
            "http": { "requestTimeout": "15s", "streamIdleTimeout": "30m" },
        }}],
    })
}

fn gateway_timeouts() -> Value {
    json!({
        "targetRef": { "kind": "Mesh", "proxyTypes": ["Gateway"] },
        "from": [{ "targetRef": { "kind": "Mesh" }, "default": {
            "idleTimeout": "5m",
            "http": { "streamIdleTimeout": "5s", "requestHeadersTimeout": "500ms" },
        }}],
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": {
            "idleTimeout": "1h",
            "http": { "streamIdleTimeout": "5s" },
        }}],
    })
}

fn limits() -> Value {
    json!({
        "targetRef": { "kind": "Mesh" },
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionLimits": {
            "maxConnections": 1024, "maxPendingRequests": 1024, "maxRequests": 1024, "maxRetries": 3,
        }}}],
    })
}

fn retries() -> Value {
    let requests = json!({
        "numRetries": 5,
        "perTryTimeout": "16s",
        "backOff": { "baseInterval": "25ms", "maxInterval": "250ms" },
    });
    json!({
        "targetRef": { "kind": "Mesh" },
        "to": [{ "targetRef": { "kind": "Mesh" }, "default": {
            "tcp": { "maxConnectAttempt": 5 }, "http": requests, "grpc": requests,
        }}],
    })
}

/// Reads a spec written above; a field that the kind does not have is a mistake there.
fn spec(kind: Kind, json: Value) -> Result<Spec> {
    let mut unknown = Vec::new();
    let mut spec = Spec::from_json(kind, json, &mut unknown).with_context(|| format!("default {kind}"))?;
    ensure!(unknown.is_empty(), "default {kind}: unknown fields {unknown:?}");
    spec.apply_defaults();
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use admission::{ControlPlaneRole, RuleSettings};
    use store::{Changes, Committed, Error, Feed, Memory, Store, Write};

    use super::*;

    /// A store shared with another control plane, whose writes become visible here a little later.
    struct Late {
        shared: Memory,
        view: Arc<(Mutex<Arc<Snapshot>>, Feed)>,
    }

    #[async_trait::async_trait]
    impl Store for Late {
        fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
            Ok(self.view.0.lock().unwrap().clone())
        }

        async fn write(&self, batch: Vec<Write>) -> Result<Committed, Error> {
            let key = batch[0].key().clone();
            let result = self.shared.write(batch).await;
            let view = self.view.clone();
            let now = self.shared.snapshot()?;
            // Runs when the caller waits for something, and not before.
            tokio::spawn(async move {
                let revision = now.revision();
                *view.0.lock().unwrap() = now;
                view.1.publish(revision, [(key, true)]);
            });
            result
        }

        fn changes(&self) -> Changes {
            self.view.1.subscribe()
        }

        async fn latest(&self) -> Result<store::Bookmark, Error> {
            self.shared.latest().await
        }
    }

    fn setup() -> RuleSettings {
        RuleSettings {
            mode: ControlPlaneRole::Global,
            disable_origin_label_validation: false,
            unsafe_delete: false,
            environment: resources::Environment::Universal,
            health_discovery: true,
            companions: companions().unwrap(),
            check: |_, _, _| {},
            now: Timestamp::now,
        }
    }

    #[tokio::test]
    async fn what_another_control_plane_created_first_is_waited_for_and_kept() {
        let shared = Memory::default();
        let theirs = StoredConfig { config: "theirs".to_owned() };
        let draft = Draft::new(Key::global(Kind::Config, CLUSTER_ID), theirs.into());
        let view = Arc::new((Mutex::new(shared.snapshot().unwrap()), Feed::new(0)));
        let store: Arc<dyn Store> = Arc::new(Late { shared, view });
        // The other control plane writes; this one has not heard of it when it tries.
        Registrar::new(store.clone(), setup()).ensure(vec![draft.clone()]).await.unwrap();
        let ours = StoredConfig { config: "ours".to_owned() };
        let draft = Draft::new(draft.key, ours.into());
        ensure_exist(&Registrar::new(store.clone(), setup()), vec![draft]).await.unwrap();
        assert_eq!(cluster_id(&store.snapshot().unwrap()), "theirs");
    }
    #[tokio::test]
    async fn a_zone_has_a_resource_of_its_own_and_forgets_the_name_it_had_before() {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let registrar = Registrar::new(store.clone(), setup());
        let zones = || -> Vec<String> {
            store.snapshot().unwrap().of_kind(Kind::Zone).map(|zone| zone.name().to_owned()).collect()
        };
        let mut config = Config::default();
        create(&registrar, &config, Timestamp::now()).await.unwrap();
        assert_eq!(zones(), ["default"]);
        config.synchronisation.multizone.zone.name = "east".to_owned();
        create(&registrar, &config, Timestamp::now()).await.unwrap();
        assert_eq!(zones(), ["east"]);
        let zone = store.snapshot().unwrap().get(&Key::global(Kind::Zone, "east")).unwrap().clone();
        assert_eq!(zone.spec.to_json(), json!({}));
        config.mode = crate::config::setting::Mode::Global;
        config.synchronisation.multizone.zone.name = "west".to_owned();
        create(&registrar, &config, Timestamp::now()).await.unwrap();
        assert_eq!(zones(), ["east"], "a global control plane makes and deletes none");
    }

    #[tokio::test]
    async fn a_start_completes_meshes_and_brings_nothing_back_that_was_deleted() {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let registrar = Registrar::new(store.clone(), setup());
        let config = Config::default();
        create(&registrar, &config, Timestamp::now()).await.unwrap();
        let policies = || store.snapshot().unwrap().count(Kind::MeshTimeout, Some("default"));
        let signing_key = Purpose::Dataplane { mesh: "default" }.key(FIRST_KID);
        assert_eq!(policies(), 2);

        let policy = Key::new(Kind::MeshTimeout, "default", "mesh-timeout-all-default");
        let delete = |key: &Key| vec![Write::Delete { key: key.clone(), expected: None }];
        store.write(delete(&policy)).await.unwrap();
        create(&registrar, &config, Timestamp::now()).await.unwrap();
        assert_eq!(policies(), 1, "the mesh has its key: somebody has deleted the policy");

        // The key comes last, so a mesh without one has been left alone half made.
        store.write(delete(&signing_key)).await.unwrap();
        create(&registrar, &config, Timestamp::now()).await.unwrap();
        assert_eq!(policies(), 2);
        assert!(store.snapshot().unwrap().get(&signing_key).is_some());
    }

    #[tokio::test]
    async fn default_policies_say_where_they_are_from_after_a_start() {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let zone = |name: &str| {
            let mode = ControlPlaneRole::Zone { name: name.to_owned(), federated: false };
            Registrar::new(store.clone(), RuleSettings { mode, ..setup() })
        };
        let key = Key::new(Kind::MeshRetry, "default", "mesh-retry-all-default");
        let stored = || store.snapshot().unwrap().get(&key).unwrap().clone();
        let config = |zone: &str| {
            let mut config = Config::default();
            config.synchronisation.multizone.zone.name = zone.to_owned();
            config
        };
        create(&zone("east"), &config("east"), Timestamp::now()).await.unwrap();
        let known = |zone: &str| {
            let known = [("env", "universal"), ("mesh", "default"), ("origin", "zone"), ("zone", zone)];
            resources::Labels::from(known.map(|(name, value)| (format!("kuma.io/{name}"), value.to_owned())))
        };
        assert_eq!(stored().labels, known("east"));

        // A policy from before there were labels, with one of its owner's.
        let team = || ("team".to_owned(), "shop".to_owned());
        let older = Resource { labels: [team()].into(), ..stored().as_ref().clone() };
        let update = Write::Update { expected: older.version, resource: older };
        store.write(vec![update]).await.unwrap();
        create(&zone("east"), &config("east"), Timestamp::now()).await.unwrap();
        let mut expected = known("east");
        expected.extend([team()]);
        assert_eq!(stored().labels, expected);

        // A start that has nothing to do writes nothing.
        let revision = store.snapshot().unwrap().revision();
        create(&zone("east"), &config("east"), Timestamp::now()).await.unwrap();
        assert_eq!(store.snapshot().unwrap().revision(), revision);

        // The zone has another name now, and so have the policies that apply in it.
        create(&zone("west"), &config("west"), Timestamp::now()).await.unwrap();
        assert_eq!(stored().label(labels::ZONE), Some("west"));
    }
}
