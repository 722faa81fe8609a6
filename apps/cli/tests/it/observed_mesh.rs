//! The mesh `default`, in which the calls of proxies were observed: `web` calls `backend`.

use resources::{Kind, Resource};
use serde_json::{Value, json};
use testkit::{build::dataplane, resource, spec};

use crate::control_plane::ZoneControlPlane;

pub const BACKEND: &str = "kri_msvc_default_east__backend_80";
pub const DB: &str = "kri_msvc_default_east__db_80";
/// The first report.
pub const SINCE: &str = "2026-01-01T00:00:00Z";
/// Three hours later.
pub const SOON_AFTER: &str = "2026-01-01T03:00:00Z";
/// A week later.
pub const UNTIL: &str = "2026-01-08T00:00:00Z";

/// The label of a Mesh that says what is done about calls without a permission.
pub const MODE: &str = "reachability.kuma.io/mode";

/// The labels of what a zone has stored.
pub const OF_ZONE: [(&str, &str); 2] = [("kuma.io/origin", "zone"), ("kuma.io/zone", "east")];

/// The proxy of a service. All traffic is redirected to it, so that every service is offered to its application.
pub fn proxy(name: &str, service: &str) -> Resource {
    let redirection = json!({ "redirectPortInbound": 15_006, "redirectPortOutbound": 15_001 });
    let proxy = dataplane(name).labels(&OF_ZONE).address("127.0.0.1");
    let proxy = proxy.networking(json!({ "transparentProxying": redirection }));
    proxy.inbound(80).service(service).tag("kuma.io/protocol", "http").complete()
}

/// A MeshService as a zone makes it of its Dataplanes, with an address of its own, by number.
pub fn service(name: &str, number: usize) -> Resource {
    let [origin, zone] = OF_ZONE;
    let labels = [origin, zone, ("kuma.io/managed-by", "meshservice-generator")];
    let address = format!("241.0.{}.{}", number / 256, number % 256);
    let status = json!({ "vips": [{ "ip": address }], "tls": { "status": "Ready" } });
    resource::with_status(resource::service("default", name, &labels), status)
}

/// A permission as it is stored by a zone.
pub fn permission(name: &str, target: Value, clients: &[(Value, &str)]) -> Resource {
    resource::with_labels(resource::permission(name, target, clients), &OF_ZONE)
}

/// Lets one service call another.
pub fn allow(client: &str, server: &str) -> Resource {
    permission(&format!("{client}-to-{server}"), spec::tagged(server), &[(spec::tagged(client), "Allow")])
}

/// Denies by name that one service calls another.
pub fn deny(client: &str, server: &str) -> Resource {
    permission("no", spec::tagged(server), &[(spec::tagged(client), "Deny")])
}

/// Allows everyone everything.
pub fn everybody() -> Resource {
    permission("everybody", spec::all(), &[(spec::all(), "Allow")])
}

/// States that all else is denied.
pub fn deny_all() -> Resource {
    permission("zz-deny-all", spec::all(), &[(spec::all(), "Deny")])
}

/// The mesh in this mode, with `web` and `backend`. No call was reported, and there is no permission.
pub fn unobserved(mode: &str) -> ZoneControlPlane {
    let control_plane = ZoneControlPlane::start();
    control_plane.secure(json!({ MODE: mode, "mine": "kept" }));
    control_plane.put([proxy("web-1", "web"), proxy("backend-1", "backend"), service("backend", 1)]);
    control_plane
}

/// The same, where `web` called `backend` four times in the first report, and three times in the last one.
pub fn observed(mode: &str, until: &str) -> ZoneControlPlane {
    let control_plane = unobserved(mode);
    control_plane.observe(SINCE, &[("web", BACKEND, 4)]);
    control_plane.observe(until, &[("web", BACKEND, 3)]);
    control_plane
}

/// Everything was observed for a week and is permitted, all else is denied: nothing is left to do but for the mode.
pub fn complete(mode: &str) -> ZoneControlPlane {
    let control_plane = observed(mode, UNTIL);
    control_plane.put([allow("web", "backend"), deny_all()]);
    control_plane
}

/// Adds a service with one proxy.
pub fn add_service(control_plane: &ZoneControlPlane, name: &str, number: usize, created: &str) {
    let created = created.parse().unwrap();
    let resources = [proxy(&format!("{name}-1"), name), service(name, number)];
    control_plane.put(resources.map(|resource| Resource { created, ..resource }));
}

/// Suggestions at this moment.
pub fn suggestions(control_plane: &ZoneControlPlane) -> Value {
    control_plane.get("/meshes/default/_suggestions")
}

/// The spec of a stored permission.
pub fn stored(control_plane: &ZoneControlPlane, name: &str) -> Value {
    control_plane.spec(Kind::MeshTrafficPermission, "default", name)
}
