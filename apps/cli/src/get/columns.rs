//! What a table shows of each kind: what an operator asks about it first.

use resources::{Kind, labels};
use serde_json::Value;

use crate::{
    cell::{self, Column, endpoint, list, number, since, text},
    insight,
    output::{self, Format},
    types::Type,
};

pub fn render<'a>(kind: &Type, items: impl IntoIterator<Item = &'a Value>, format: Format) -> String {
    if format == Format::Name {
        return names(kind, items, false);
    }
    let (titles, rows) = cells(kind, items, format);
    output::table(&titles, rows)
}

/// A line for each, which `get`, `delete` and others accept.
pub fn names<'a>(kind: &Type, items: impl IntoIterator<Item = &'a Value>, with_mesh: bool) -> String {
    items.into_iter().map(|item| format!("{}\n", name_of(kind, item, with_mesh))).collect()
}

/// `meshtimeout/slow`, or `meshtimeout/shop/slow` where the command line does not name the mesh.
pub fn name_of(kind: &Type, item: &Value, with_mesh: bool) -> String {
    let (kind_name, name) = (kind.name.to_lowercase(), text(&item["name"]));
    match with_mesh && kind.in_mesh {
        true => format!("{kind_name}/{}/{name}", text(&item["mesh"])),
        false => format!("{kind_name}/{name}"),
    }
}

pub fn cells<'a>(
    kind: &Type,
    items: impl IntoIterator<Item = &'a Value>,
    format: Format,
) -> (Vec<&'static str>, Vec<Vec<String>>) {
    cell::grid(&columns(kind, format == Format::Wide), items)
}

fn columns(kind: &Type, wide: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    if kind.in_mesh {
        columns.push(("MESH", |item| text(&item["mesh"])));
    }
    columns.push(("NAME", |item| text(&item["name"])));
    if let Some(known) = kind.kind {
        columns.extend(own_columns(known));
        if wide {
            columns.extend(wide_columns(known));
        }
    }
    columns.push(("AGE", age));
    if wide {
        columns.push(("ZONE", |item| label(item, labels::ZONE)));
        columns.push(("ORIGIN", |item| label(item, labels::ORIGIN)));
        columns.push(("LABELS", own_labels));
        if kind.kind.is_none_or(|known| known.descriptor().short.is_some()) {
            columns.push(("KRI", |item| text(&item["kri"])));
        }
    }
    columns
}

fn own_columns(kind: Kind) -> Vec<Column> {
    match kind {
        Kind::Mesh => vec![("MTLS", mtls), ("SERVICES", |item| mode(item))],
        Kind::Dataplane => vec![
            ("ADDRESS", |item| text(&item["networking"]["address"])),
            ("INBOUNDS", |item| list(&item["networking"]["inbound"], inbound)),
            ("SERVICES", |item| list(&item["networking"]["inbound"], |i| text(&i["tags"][labels::SERVICE]))),
        ],
        Kind::Zone => {
            vec![("ENABLED", |item| if item["enabled"] == false { "no" } else { "yes" }.to_owned())]
        }
        Kind::ZoneIngress => vec![
            ("IN ZONE", |item| text(&item["zone"])),
            ("ADDRESS", |item| endpoint(&item["networking"], "address", "port")),
            ("ADVERTISED", |item| endpoint(&item["networking"], "advertisedAddress", "advertisedPort")),
        ],
        Kind::ZoneEgress => vec![
            ("IN ZONE", |item| text(&item["zone"])),
            ("ADDRESS", |item| endpoint(&item["networking"], "address", "port")),
        ],
        Kind::DataplaneInsight | Kind::ZoneInsight | Kind::ZoneIngressInsight | Kind::ZoneEgressInsight => {
            vec![("ONLINE", online), ("CONNECTED", insight::last_connected)]
        }
        Kind::MeshInsight => vec![("DATAPLANES", |item| {
            let of = &item["dataplanes"];
            format!("{}/{}", number(&of["online"]), number(&of["total"]))
        })],
        Kind::ServiceInsight => {
            vec![("SERVICES", |item| {
                item["services"].as_object().map_or(0, serde_json::Map::len).to_string()
            })]
        }
        Kind::VirtualOutbound => {
            vec![("HOST", |item| text(&item["conf"]["host"])), ("PORT", |item| text(&item["conf"]["port"]))]
        }
        Kind::HostnameGenerator => vec![("TEMPLATE", |item| text(&item["spec"]["template"]))],
        Kind::MeshService => vec![
            ("PORTS", |item| list(&item["spec"]["ports"], port)),
            ("STATE", |item| text(&item["spec"]["state"])),
            ("HOSTNAMES", hostnames),
        ],
        Kind::MeshMultiZoneService => {
            vec![("PORTS", |item| list(&item["spec"]["ports"], port)), ("HOSTNAMES", hostnames)]
        }
        Kind::MeshExternalService => vec![
            ("MATCH", |item| port(&item["spec"]["match"])),
            ("ENDPOINTS", |item| list(&item["spec"]["endpoints"], |e| endpoint(e, "address", "port"))),
            ("HOSTNAMES", hostnames),
        ],
        Kind::MeshOpenTelemetryBackend => vec![
            ("ENDPOINT", |item| endpoint(&item["spec"]["endpoint"], "address", "port")),
            ("PROTOCOL", spoken),
            ("REFERENCED", |item| list(&item["status"]["conditions"], |it| text(&it["reason"]))),
        ],
        Kind::MeshIdentity | Kind::MeshTrust | Kind::Workload => identity_columns(kind),
        Kind::MeshZoneAddress => vec![("ADDRESS", |item| endpoint(&item["spec"], "address", "port"))],
        other if other.descriptor().policy.is_some() => {
            vec![("TARGETREF", |item| target(&item["spec"]["targetRef"])), ("SELECTS", selects)]
        }
        _ => Vec::new(),
    }
}

/// Of the kinds that say who proxies are.
fn identity_columns(kind: Kind) -> Vec<Column> {
    match kind {
        Kind::MeshIdentity => vec![
            ("PROVIDER", |item| text(&item["spec"]["provider"]["type"])),
            ("READY", |item| {
                let ready = item["status"]["conditions"].as_array().into_iter().flatten();
                ready.filter(|it| it["type"] == "Ready").map(|it| text(&it["status"])).collect()
            }),
        ],
        Kind::MeshTrust => vec![
            ("TRUST DOMAIN", |item| text(&item["spec"]["trustDomain"])),
            ("BUNDLES", |item| item["spec"]["caBundles"].as_array().map_or(0, Vec::len).to_string()),
        ],
        Kind::Workload => vec![
            ("PROXIES", |item| number(&item["status"]["dataplaneProxies"]["total"]).to_string()),
            ("CONNECTED", |item| number(&item["status"]["dataplaneProxies"]["connected"]).to_string()),
            ("HEALTHY", |item| number(&item["status"]["dataplaneProxies"]["healthy"]).to_string()),
        ],
        _ => Vec::new(),
    }
}

fn wide_columns(kind: Kind) -> Vec<Column> {
    match kind {
        Kind::Mesh => vec![
            ("EGRESS", |item| if item["routing"]["zoneEgress"] == true { "yes" } else { "no" }.to_owned()),
            ("LOCALITY", |item| {
                if item["routing"]["localityAwareLoadBalancing"] == true { "yes" } else { "no" }.to_owned()
            }),
        ],
        Kind::MeshService | Kind::MeshMultiZoneService | Kind::MeshExternalService => {
            vec![
                ("VIPS", |item| vips(&item["status"])),
                ("PROXIES", |item| {
                    let of = &item["status"]["dataplaneProxies"];
                    if of.is_null() {
                        String::new()
                    } else {
                        format!("{}/{}", number(&of["connected"]), number(&of["total"]))
                    }
                }),
            ]
        }
        other if other.descriptor().policy.is_some_and(|policy| policy.top.is_some()) => {
            vec![("ROLE", |item| label(item, labels::POLICY_ROLE))]
        }
        _ => Vec::new(),
    }
}

fn label(item: &Value, key: &str) -> String {
    text(&item["labels"][key])
}

/// The labels a user gave; those of the mesh itself have their own columns.
fn own_labels(item: &Value) -> String {
    let all = item["labels"].as_object().into_iter().flatten();
    let own = all.filter(|(key, _)| !key.starts_with("kuma.io/") && !key.starts_with("k8s.kuma.io/"));
    own.map(|(key, value)| format!("{key}={}", text(value))).collect::<Vec<_>>().join(",")
}

/// `80/http`.
fn port(of: &Value) -> String {
    let protocol = [&of["appProtocol"], &of["protocol"]].into_iter().map(text).find(|p| !p.is_empty());
    format!("{}/{}", text(&of["port"]), protocol.unwrap_or_else(|| "tcp".to_owned()))
}

fn inbound(of: &Value) -> String {
    let protocol =
        [&of["tags"][labels::PROTOCOL], &of["protocol"]].into_iter().map(text).find(|p| !p.is_empty());
    format!("{}/{}", text(&of["port"]), protocol.unwrap_or_else(|| "tcp".to_owned()))
}

fn hostnames(item: &Value) -> String {
    list(&item["status"]["addresses"], |address| text(&address["hostname"]))
}

fn vips(status: &Value) -> String {
    let several = list(&status["vips"], |vip| text(&vip["ip"]));
    if several.is_empty() { text(&status["vip"]["ip"]) } else { several }
}

/// What a collector speaks; gRPC if nothing is said.
fn spoken(item: &Value) -> String {
    match text(&item["spec"]["protocol"]) {
        none if none.is_empty() => "grpc".to_owned(),
        protocol => protocol,
    }
}

/// `off`, or the backend in use.
fn mtls(item: &Value) -> String {
    match text(&item["mtls"]["enabledBackend"]) {
        backend if backend.is_empty() => "off".to_owned(),
        backend => backend,
    }
}

/// `Mesh`, `MeshService/backend`, `Dataplane{app=web}`.
fn target(of: &Value) -> String {
    let kind = text(&of["kind"]);
    if kind.is_empty() {
        return "Mesh".to_owned();
    }
    let name = text(&of["name"]);
    let pairs: Vec<String> = ["labels", "tags"]
        .iter()
        .flat_map(|field| of[*field].as_object().into_iter().flatten())
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect();
    let section = text(&of["sectionName"]);
    let mut shown = kind;
    if !name.is_empty() {
        shown = format!("{shown}/{name}");
    }
    if !pairs.is_empty() {
        shown = format!("{shown}{{{}}}", pairs.join(","));
    }
    if section.is_empty() { shown } else { format!("{shown}:{section}") }
}

/// What a policy applies to, by its lists: `to MeshService/backend; rules 2`.
fn selects(item: &Value) -> String {
    let mut parts = Vec::new();
    for field in ["to", "from"] {
        let targets = list(&item["spec"][field], |entry| target(&entry["targetRef"]));
        if !targets.is_empty() {
            parts.push(format!("{field} {targets}"));
        }
    }
    if let Some(rules) = item["spec"]["rules"].as_array().filter(|rules| !rules.is_empty()) {
        parts.push(format!("rules {}", rules.len()));
    }
    parts.join("; ")
}

fn online(item: &Value) -> String {
    if insight::is_online(item) { "yes" } else { "no" }.to_owned()
}

fn age(item: &Value) -> String {
    since(&item["creationTime"])
}

/// A mesh that does not say anything about MeshServices has none.
fn mode(item: &Value) -> String {
    match text(&item["meshServices"]["mode"]) {
        mode if mode.is_empty() => "Disabled".to_owned(),
        mode => mode,
    }
}
