//! The label and tag names that mean something to the mesh, each spelled once.

pub const DISPLAY_NAME: &str = "kuma.io/display-name";
pub const ORIGIN: &str = "kuma.io/origin";
pub const ORIGIN_GLOBAL: &str = "global";
pub const ORIGIN_ZONE: &str = "zone";
pub const ZONE: &str = "kuma.io/zone";
pub const ENV: &str = "kuma.io/env";
pub const ENV_UNIVERSAL: &str = "universal";
pub const ENV_KUBERNETES: &str = "kubernetes";
pub const MESH: &str = "kuma.io/mesh";
pub const POLICY_ROLE: &str = "kuma.io/policy-role";
pub const MANAGED_BY: &str = "kuma.io/managed-by";
/// The value of the label above on MeshServices that come from Dataplanes.
pub const MESH_SERVICE_GENERATOR: &str = "meshservice-generator";
pub const PROXY_TYPE: &str = "kuma.io/proxy-type";
pub const EFFECT: &str = "kuma.io/effect";
pub const KDS_SYNC: &str = "kuma.io/kds-sync";
/// On a Zone: kinds whose held deletions and changes are made. Not Kuma's.
pub const ACCEPT_DELETIONS: &str = "kuma.io/accept-deletions";
pub const WORKLOAD: &str = "kuma.io/workload";
/// On a Mesh or a Dataplane: whether outbounds are trimmed by permissions. Not Kuma's, as the next three.
pub const REACHABILITY_MODE: &str = "reachability.kuma.io/mode";
/// On a Mesh: `true` to trim although no permission exists.
pub const REACHABILITY_FORCE: &str = "reachability.kuma.io/force";
/// On a ZoneIngress: `true` while its zone has MeshTrafficPermissions that other zones do not know.
pub const OWN_PERMISSIONS: &str = "reachability.kuma.io/own-permissions";
/// On a Mesh or a Dataplane: `true` to answer calls to trimmed destinations instead of ending them.
pub const REACHABILITY_STUB: &str = "reachability.kuma.io/stub";
/// On a MeshTrafficPermission that refuses everyone: `true` where it only shows what holds without any permission, so
/// that opening it for a client loosens nothing that someone decided. Not Kuma's.
pub const REACHABILITY_DEFAULT_DENY: &str = "reachability.kuma.io/default-deny";
/// On a Mesh, Dataplane, ZoneIngress or ZoneEgress: `enabled` or `disabled`, the names of proxies in Envoy.
pub const UNIFIED_NAMING: &str = "features.kuma.io/unified-proxy-resources-and-stats-naming";
pub const LISTENER_ZONE_INGRESS: &str = "kuma.io/listener-zoneingress";
pub const LISTENER_ZONE_EGRESS: &str = "kuma.io/listener-zoneegress";
pub const DELETION_GRACE_PERIOD: &str = "kuma.io/deletion-grace-period-started-at";

/// Tags of a Dataplane's inbounds.
pub const SERVICE: &str = "kuma.io/service";
pub const PROTOCOL: &str = "kuma.io/protocol";

pub const K8S_NAMESPACE: &str = "k8s.kuma.io/namespace";
pub const K8S_SERVICE_ACCOUNT: &str = "k8s.kuma.io/service-account";
pub const K8S_HEADLESS: &str = "k8s.kuma.io/is-headless-service";

/// Labels of a proxy's own resource that its control plane gives. They decide which record on global is the proxy's,
/// whether it has one, and which policies are for it.
pub const OF_CONTROL_PLANE: [&str; 15] = [
    DISPLAY_NAME,
    ORIGIN,
    ZONE,
    ENV,
    MESH,
    POLICY_ROLE,
    MANAGED_BY,
    PROXY_TYPE,
    EFFECT,
    KDS_SYNC,
    OWN_PERMISSIONS,
    LISTENER_ZONE_INGRESS,
    LISTENER_ZONE_EGRESS,
    DELETION_GRACE_PERIOD,
    K8S_NAMESPACE,
];
