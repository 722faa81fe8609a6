//! `describe TYPE NAME`: everything the control plane knows about one resource, for reading.

use clap::Args;
use contract::{
    findings::FoundProblem,
    lenient::read_partly,
    overview::{DataplaneOverview, ZoneEgressOverview, ZoneIngressOverview, ZoneOverview},
    policies::AttachmentList,
    resource::{Metadata, ShownResource},
};
use jiff::Timestamp;
use resources::{
    Kind,
    kinds::{
        dataplane_insight::{DiscoverySubscription, ProxyVersion},
        service_status::Condition,
        zone_insight::ZoneVersion,
    },
    labels,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cell::{self, Column, ago, line, since},
    client::ApiClient,
    document::{SentItems, parts},
    failure::{Failure, Result},
    insight,
    output::{self, PlainOutput},
    pages,
    proxy::status::{self, ProxyStatus},
    target::OneResource,
    types::Type,
};

/// So many proxies are listed by name; of more, only the number is said.
const LISTED: u32 = 20;

const EXAMPLES: &str = "\
Examples:
  kumactl describe dataplane web-1
  kumactl describe meshtrafficpermission allow-web -m shop
  kumactl describe meshservice backend -o json";

/// Show everything about one resource: what it says, what it selects, and what is wrong with it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Describe {
    #[command(flatten)]
    resource: OneResource,
    #[command(flatten)]
    output: PlainOutput,
}

/// Everything known about a resource.
#[derive(Serialize)]
struct Description {
    resource: Value,
    findings: Part<Findings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<Part<Connection>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policies: Option<Part<Vec<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selects: Option<Part<Selection>>,
}

/// A part that was read, or why it could not be: that is not the same as nothing.
#[derive(Serialize)]
#[serde(untagged)]
enum Part<T> {
    Read(T),
    Unreadable { error: String },
}

/// Findings as they were sent and as they are read.
#[derive(Serialize)]
#[serde(transparent)]
struct Findings {
    sent: Value,
    #[serde(skip)]
    read: Vec<FoundProblem>,
}

/// Connection of the proxy or the zone, and its health.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Connection {
    online: bool,
    last_connected: Option<Timestamp>,
    last_disconnected: Option<Timestamp>,
    version: Option<Versions>,
    #[serde(flatten)]
    sidecar: Option<SidecarConnection>,
}

/// The part that only insights of sidecars tell.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SidecarConnection {
    state: Option<status::State>,
    rejections: Vec<status::Rejection>,
    certificate_expiration_time: Option<Timestamp>,
}

/// Versions of the programs at the other end.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Versions {
    Proxy(ProxyVersion),
    Zone(ZoneVersion),
}

/// The proxies that a policy or a service selects.
#[derive(Serialize)]
struct Selection {
    total: u64,
    /// Names of the first ones.
    dataplanes: Vec<String>,
}

impl<T> From<Result<T>> for Part<T> {
    fn from(read: Result<T>) -> Part<T> {
        match read {
            Ok(read) => Part::Read(read),
            Err(failure) => Part::Unreadable { error: failure.to_string() },
        }
    }
}

impl Describe {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let target = self.resource.target(client)?;
        let what = target.describe();
        let item = target.path();
        let kind = &target.kind;
        let answer = client.get(&item)?;
        if answer.is_missing() {
            return Err(Failure::failed(format!("there is no {what}")));
        }
        let resource = answer.json(&format!("could not read {what}"))?;
        let metadata: Metadata = read_partly(&resource);
        let insight = kind.kind.and_then(|kind| kind.descriptor().insight);
        let connection = insight.map(|insight| {
            let overview =
                client.get(&format!("{item}/_overview")).and_then(|answer| answer.json("overview"));
            overview.map(|overview| Connection::of(insight, &overview, client)).into()
        });
        let is_proxy = kind.kind == Some(Kind::Dataplane);
        let description = Description {
            findings: findings(client, kind, &target.mesh, &metadata).into(),
            connection,
            policies: is_proxy.then(|| policies_of(client, &item).into()),
            selects: selects(kind).then(|| selected(client, &item).into()),
            resource,
        };
        self.output.show(&json!(description), || description.text(kind, &metadata))
    }
}

impl Connection {
    fn of(insight: Kind, overview: &Value, client: &ApiClient) -> Connection {
        let connection = insight::Connection::of(insight, overview);
        let mut sidecar = None;
        let version = match insight {
            Kind::DataplaneInsight => {
                let overview: ShownResource<DataplaneOverview> = ShownResource::read(overview);
                sidecar = Some(SidecarConnection::of(&overview, client));
                proxy_version(&overview.of.dataplane_insight.subscriptions)
            }
            Kind::ZoneIngressInsight => {
                let overview: ZoneIngressOverview = read_partly(overview);
                proxy_version(&overview.zone_ingress_insight.subscriptions)
            }
            Kind::ZoneEgressInsight => {
                let overview: ZoneEgressOverview = read_partly(overview);
                proxy_version(&overview.zone_egress_insight.subscriptions)
            }
            _ => {
                let overview: ZoneOverview = read_partly(overview);
                let latest = insight::latest(&overview.zone_insight.subscriptions);
                latest.and_then(|latest| latest.version.clone()).map(Versions::Zone)
            }
        };
        Connection {
            online: connection.online,
            last_connected: connection.connect_time,
            last_disconnected: connection.disconnect_time,
            version,
            sidecar,
        }
    }
}

impl SidecarConnection {
    fn of(overview: &ShownResource<DataplaneOverview>, client: &ApiClient) -> SidecarConnection {
        let mut status = ProxyStatus::read(overview);
        status::catch_up(std::slice::from_mut(&mut status), client);
        let certificate = overview.of.dataplane_insight.mtls.as_ref();
        SidecarConnection {
            state: status.state,
            rejections: status.rejections,
            certificate_expiration_time: certificate.and_then(|it| it.certificate_expiration_time),
        }
    }
}

fn proxy_version(subscriptions: &[DiscoverySubscription]) -> Option<Versions> {
    insight::latest(subscriptions).and_then(|latest| latest.version.clone()).map(Versions::Proxy)
}

/// The policies that select a proxy: `Type/name`.
fn policies_of(client: &ApiClient, item: &str) -> Result<Vec<String>> {
    let answer = client.get(&format!("{item}/policies"))?.json("policies")?;
    let attachments: AttachmentList = read_partly(&answer);
    let by_kind = attachments.items.into_iter().flat_map(|item| item.matched_policies);
    let names = by_kind.flat_map(|(kind, policies)| {
        policies.into_iter().map(move |policy| format!("{kind}/{}", line(&policy.name)))
    });
    Ok(names.collect())
}

/// True if resources of the type select proxies.
fn selects(kind: &Type) -> bool {
    kind.kind.is_some_and(|kind| {
        kind == Kind::MeshService || kind.descriptor().policy.is_some_and(|policy| policy.top.is_some())
    })
}

fn selected(client: &ApiClient, item: &str) -> Result<Selection> {
    let found = pages::read(client, &format!("{item}/_resources/dataplanes"), "", Some(LISTED), 0)?;
    let names = found.items.iter().map(|proxy| read_partly::<Metadata>(proxy).name);
    Ok(Selection { total: found.total, dataplanes: names.collect() })
}

/// Findings of the control plane about the resource.
fn findings(client: &ApiClient, kind: &Type, mesh: &str, resource: &Metadata) -> Result<Findings> {
    let about = match (kind.in_mesh, kind.kind) {
        (true, _) => mesh,
        (false, Some(Kind::Mesh)) => &resource.name,
        (false, _) => return Ok(Findings { sent: json!([]), read: Vec::new() }),
    };
    let Some(kri) = resource.kri.as_deref().filter(|kri| !kri.is_empty()) else {
        return Ok(Findings { sent: json!([]), read: Vec::new() });
    };
    let found = client.findings_about(about, kri)?.document("findings")?;
    Ok(Findings { sent: parts::<SentItems>(&found.sent).items.into(), read: found.read.items })
}

impl Description {
    fn text(&self, kind: &Type, metadata: &Metadata) -> String {
        let mut out = metadata_lines(kind, metadata);
        if let Some(connection) = &self.connection {
            section(&mut out, "Connection", &connection.text(Connection::text));
        }
        let spec = self.resource.get("spec").cloned().unwrap_or_else(|| inline(&self.resource));
        section(&mut out, "Spec", &yaml(&spec));
        let mut status = self.resource.get("status").cloned().unwrap_or_default();
        let conditions = status.as_object_mut().and_then(|status| status.shift_remove("conditions"));
        section(&mut out, "Status", &yaml(&status));
        let conditions: Vec<Condition> = read_partly(&conditions.unwrap_or_default());
        if !conditions.is_empty() {
            let (titles, rows) = cell::grid(&CONDITIONS, &conditions);
            section(&mut out, "Conditions", &output::table(&titles, rows));
        }
        if let Some(policies) = &self.policies {
            out.push_str(&policies.below("Policies that select it", |policies| list_of(policies)));
        }
        if let Some(selects) = &self.selects {
            out.push_str(&selects.below("Proxies it selects", Selection::text));
        }
        out.push_str(&self.findings.below("Findings", Findings::text));
        if metadata.label(labels::EFFECT) == "shadow" {
            out.push_str("\nIt is a shadow (kuma.io/effect): it has no effect on what it selects.\n");
        }
        out
    }
}

impl<T> Part<T> {
    fn text(&self, show: impl FnOnce(&T) -> String) -> String {
        match self {
            Part::Read(read) => show(read),
            Part::Unreadable { error } => format!("could not be read: {error}"),
        }
    }

    /// The part with its own title, or with this one if it could not be read.
    fn below(&self, title: &str, show: impl FnOnce(&T) -> String) -> String {
        match self {
            Part::Read(read) => show(read),
            Part::Unreadable { error } => format!("\n{title}: could not be read: {error}\n"),
        }
    }
}

fn list_of(policies: &[String]) -> String {
    let mut out = format!("\nPolicies that select it ({}):\n", policies.len());
    policies.iter().for_each(|policy| out.push_str(&format!("  {}\n", line(policy))));
    out
}

impl Findings {
    fn text(&self) -> String {
        let mut out = (if self.read.is_empty() { "\nFindings: none\n" } else { "\nFindings:\n" }).to_owned();
        for finding in &self.read {
            let FoundProblem { code, severity, message, fix, .. } = finding;
            out.push_str(&format!("  {} {}: {}\n", line(severity), line(code), line(message)));
            out.push_str(&format!("    {}\n", line(fix)));
        }
        out
    }
}

const CONDITIONS: [Column<Condition>; 4] = [
    ("TYPE", |condition| line(&condition.type_)),
    ("STATUS", |condition| line(&condition.status)),
    ("REASON", |condition| line(&condition.reason)),
    ("MESSAGE", |condition| line(&condition.message)),
];

fn metadata_lines(kind: &Type, metadata: &Metadata) -> String {
    let text = |text: &Option<String>| text.as_deref().map(line).unwrap_or_default();
    let time = |time: &Option<String>| match time {
        None => String::new(),
        Some(time) => format!("{} ({} ago)", line(time), since(time)),
    };
    let lines = [
        ("Type", kind.name.clone()),
        ("Name", line(&metadata.name)),
        ("Mesh", line(&metadata.mesh)),
        ("KRI", text(&metadata.kri)),
        ("Created", time(&metadata.creation_time)),
        ("Modified", time(&metadata.modification_time)),
    ];
    let mut out = String::new();
    for (label, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        out.push_str(&format!("{:<10} {value}\n", format!("{label}:")));
    }
    for (index, (key, value)) in metadata.labels.iter().enumerate() {
        let label = if index == 0 { "Labels:" } else { "" };
        out.push_str(&format!("{label:<10} {}={}\n", line(key), line(value)));
    }
    out
}

/// The fields of a resource that has no `spec`.
fn inline(resource: &Value) -> Value {
    const METADATA: [&str; 8] =
        ["type", "mesh", "name", "creationTime", "modificationTime", "labels", "kri", "status"];
    let mut fields = resource.as_object().cloned().unwrap_or_default();
    fields.retain(|field, _| !METADATA.contains(&field.as_str()));
    Value::Object(fields)
}

/// A value in YAML; nothing for one without content.
fn yaml(value: &Value) -> String {
    let empty = match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if empty { String::new() } else { output::yaml(value) }
}

/// A title and what is below it, unless there is nothing.
fn section(out: &mut String, title: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    out.push_str(&format!("\n{title}:\n"));
    text.lines().for_each(|line| out.push_str(&format!("  {line}\n")));
}

impl Connection {
    fn text(&self) -> String {
        let mut text = match (&self.sidecar, self.last_connected) {
            (Some(sidecar), _) if self.online => {
                format!("online, {}\n", sidecar.state.map_or("nothing was sent yet", status::State::name))
            }
            (None, connected) if self.online => format!("online: connected {} ago\n", ago(connected)),
            (_, None) => "offline: it has never connected\n".to_owned(),
            (_, began) => format!(
                "offline: its last connection began {} ago and ended {} ago ({})\n",
                ago(began),
                ago(self.last_disconnected),
                self.last_disconnected.map(|ended| ended.to_string()).unwrap_or_default()
            ),
        };
        let programs = self.version.as_ref().map(Versions::programs).unwrap_or_default();
        for (program, version) in programs.iter().filter(|(_, version)| !version.is_empty()) {
            text.push_str(&format!("{program} {}\n", line(version)));
        }
        let Some(sidecar) = &self.sidecar else { return text };
        if let Some(expires) = sidecar.certificate_expiration_time {
            text.push_str(&format!("certificate valid until {expires}\n"));
        }
        for rejection in &sidecar.rejections {
            text.push_str(&format!("rejected {}: {}\n", line(&rejection.name), line(&rejection.message)));
        }
        text
    }
}

impl Versions {
    /// Name and version of each program.
    fn programs(&self) -> Vec<(&'static str, String)> {
        match self.clone() {
            Versions::Zone(ZoneVersion { kuma_cp }) => {
                vec![("kuma-cp", kuma_cp.unwrap_or_default().version)]
            }
            Versions::Proxy(ProxyVersion { kuma_dp, envoy, dependencies: _ }) => vec![
                ("kuma-dp", kuma_dp.unwrap_or_default().version),
                ("Envoy", envoy.unwrap_or_default().version),
            ],
        }
    }
}

impl Selection {
    fn text(&self) -> String {
        let Selection { total, dataplanes } = self;
        if *total == 0 {
            return "\nSelects no proxy.\n".to_owned();
        }
        let mut out = format!("\nSelects {total} {}:\n", if *total == 1 { "proxy" } else { "proxies" });
        dataplanes.iter().for_each(|name| out.push_str(&format!("  {}\n", line(name))));
        let listed = u64::try_from(dataplanes.len()).unwrap_or(*total);
        if listed < *total {
            out.push_str(&format!("  and {} more\n", total - listed));
        }
        out
    }
}
