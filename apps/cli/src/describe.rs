//! `describe TYPE NAME`: everything the control plane knows about one resource, for reading.

use clap::Args;
use resources::{Kind, labels};
use serde_json::{Map, Value, json};

use crate::{
    cell::{self, Column, number, since, text},
    client::{Client, query_value, segment},
    failure::{Failure, Result},
    insight,
    output::{self, PlainOutput},
    pages,
    proxy::status,
    target::OneResource,
    terminal,
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

impl Describe {
    pub fn run(&self, client: &Client) -> Result<()> {
        let target = self.resource.target(client)?;
        let (what, item) = (target.describe(), target.path());
        let kind = &target.kind;
        let answer = client.get(&item)?;
        if answer.is_missing() {
            return Err(Failure::failed(format!("there is no {what}")));
        }
        let resource = answer.json(&format!("could not read {what}"))?;
        let mut document = Map::new();
        document.insert("resource".into(), resource.clone());
        let mut parts = vec![("findings", findings(client, kind, &target.mesh, &resource))];
        if let Some(insight) = kind.kind.and_then(|kind| kind.descriptor().insight) {
            let overview =
                client.get(&format!("{item}/_overview")).and_then(|answer| answer.json("overview"));
            parts.push(("connection", overview.map(|overview| connection(insight, &overview, client))));
        }
        if kind.kind == Some(Kind::Dataplane) {
            parts.push(("policies", policies_of(client, &item)));
        }
        if selects(kind) {
            parts.push(("selects", selected(client, &item)));
        }
        for (part, found) in parts {
            // What could not be read is not the same as nothing.
            let found = found.unwrap_or_else(|failure| json!({ UNREADABLE: failure.to_string() }));
            document.insert(part.into(), found);
        }
        let document = Value::Object(document);
        self.output.show(&document, || described(kind, &document))
    }
}

/// How the proxy or the zone is doing.
fn connection(kind: Kind, overview: &Value, client: &Client) -> Value {
    let insight = insight::of(kind, overview);
    let mut connection = json!({
        "online": insight::is_online(insight),
        "lastConnected": insight::latest(insight)["connectTime"],
        "lastDisconnected": insight::latest(insight)["disconnectTime"],
        "version": insight::version(insight),
    });
    // Only insights of sidecars say what was acknowledged.
    if kind == Kind::DataplaneInsight {
        let mut status = status::status(overview);
        status::catch_up(std::slice::from_mut(&mut status), client);
        connection["state"] = status["state"].clone();
        connection["rejections"] = status["rejections"].clone();
        connection["certificateExpirationTime"] = insight["mTLS"]["certificateExpirationTime"].clone();
    }
    connection
}

/// The policies that select a proxy: `Type/name`.
fn policies_of(client: &Client, item: &str) -> Result<Value> {
    let answer = client.get(&format!("{item}/policies"))?.json("policies")?;
    let items = answer["items"].as_array().into_iter().flatten();
    let matched = items.filter_map(|item| item["matchedPolicies"].as_object());
    let names = matched.flatten().flat_map(|(kind, policies)| {
        policies
            .as_array()
            .into_iter()
            .flatten()
            .map(move |policy| format!("{kind}/{}", text(&policy["name"])))
    });
    Ok(names.collect())
}

/// Whether resources of the type select proxies.
fn selects(kind: &Type) -> bool {
    kind.kind.is_some_and(|kind| {
        kind == Kind::MeshService || kind.descriptor().policy.is_some_and(|policy| policy.top.is_some())
    })
}

/// The proxies that a policy or a service selects.
fn selected(client: &Client, item: &str) -> Result<Value> {
    let found = pages::read(client, &format!("{item}/_resources/dataplanes"), "", Some(LISTED), 0)?;
    let names: Vec<Value> = found.items.iter().map(|proxy| proxy["name"].clone()).collect();
    Ok(json!({ "total": found.total, "dataplanes": names }))
}

/// What the control plane finds wrong with the resource.
fn findings(client: &Client, kind: &Type, mesh: &str, resource: &Value) -> Result<Value> {
    let about = match (kind.in_mesh, kind.kind) {
        (true, _) => mesh,
        (false, Some(Kind::Mesh)) => resource["name"].as_str().unwrap_or_default(),
        (false, _) => return Ok(json!([])),
    };
    let Some(kri) = resource["kri"].as_str().filter(|kri| !kri.is_empty()) else { return Ok(json!([])) };
    let path = format!("/meshes/{}/_problems?kri={}", segment(about), query_value(kri));
    Ok(client.get(&path)?.json("findings")?["items"].take())
}

fn described(kind: &Type, document: &Value) -> String {
    let resource = &document["resource"];
    let mut out = metadata(kind, resource);
    section(&mut out, "Connection", &document["connection"], connected);
    let spec = match resource.get("spec") {
        Some(spec) => spec.clone(),
        None => inline(resource),
    };
    section(&mut out, "Spec", &spec, output::yaml);
    let mut status = resource["status"].clone();
    let conditions = status.as_object_mut().and_then(|status| status.shift_remove("conditions"));
    section(&mut out, "Status", &status, output::yaml);
    section(&mut out, "Conditions", &conditions.unwrap_or_default(), |conditions| {
        let (titles, rows) = cell::grid(&CONDITIONS, conditions.as_array().into_iter().flatten());
        output::table(&titles, rows)
    });
    for (part, title, show) in PARTS {
        let Some(found) = document.get(part) else { continue };
        match found[UNREADABLE].as_str() {
            Some(why) => out.push_str(&format!("\n{title}: could not be read: {why}\n")),
            None => out.push_str(&show(found)),
        }
    }
    if labelled_shadow(resource) {
        out.push_str("\nIt is a shadow (kuma.io/effect): it has no effect on what it selects.\n");
    }
    out
}

/// What an error is called in place of a part that could not be read.
const UNREADABLE: &str = "error";

/// What is listed below the resource, its title, and how it is shown.
type Part = (&'static str, &'static str, fn(&Value) -> String);

const PARTS: [Part; 3] = [
    ("policies", "Policies that select it", policies),
    ("selects", "Proxies it selects", selection),
    ("findings", "Findings", found),
];

fn labelled_shadow(resource: &Value) -> bool {
    resource["labels"][labels::EFFECT] == "shadow"
}

fn policies(policies: &Value) -> String {
    let policies = policies.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out = format!("\nPolicies that select it ({}):\n", policies.len());
    policies.iter().for_each(|policy| out.push_str(&format!("  {}\n", text(policy))));
    out
}

fn found(findings: &Value) -> String {
    let findings = findings.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out = (if findings.is_empty() { "\nFindings: none\n" } else { "\nFindings:\n" }).to_owned();
    for finding in findings {
        let word = |field: &str| text(&finding[field]);
        out.push_str(&format!("  {} {}: {}\n", word("severity"), word("code"), word("message")));
        out.push_str(&format!("    {}\n", word("fix")));
    }
    out
}

const CONDITIONS: [Column; 4] = [
    ("TYPE", |item| text(&item["type"])),
    ("STATUS", |item| text(&item["status"])),
    ("REASON", |item| text(&item["reason"])),
    ("MESSAGE", |item| text(&item["message"])),
];

fn metadata(kind: &Type, resource: &Value) -> String {
    let time = |field: &str| match &resource[field] {
        Value::Null => String::new(),
        time => format!("{} ({} ago)", text(time), since(time)),
    };
    let lines = [
        ("Type", kind.name.clone()),
        ("Name", text(&resource["name"])),
        ("Mesh", text(&resource["mesh"])),
        ("KRI", text(&resource["kri"])),
        ("Created", time("creationTime")),
        ("Modified", time("modificationTime")),
    ];
    let mut out = String::new();
    for (label, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        out.push_str(&format!("{:<10} {value}\n", format!("{label}:")));
    }
    let labels = resource["labels"].as_object().into_iter().flatten();
    for (index, (key, value)) in labels.enumerate() {
        let label = if index == 0 { "Labels:" } else { "" };
        out.push_str(&format!("{label:<10} {}={}\n", terminal::one_line(key), text(value)));
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

/// A title and what is below it, unless there is nothing.
fn section(out: &mut String, title: &str, value: &Value, show: impl FnOnce(&Value) -> String) {
    let empty = match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if empty {
        return;
    }
    out.push_str(&format!("\n{title}:\n"));
    show(value).lines().for_each(|line| out.push_str(&format!("  {line}\n")));
}

fn connected(connection: &Value) -> String {
    if let Some(why) = connection[UNREADABLE].as_str() {
        return format!("could not be read: {why}");
    }
    let mut lines = match connection["online"] == true {
        true => match connection.get("state") {
            Some(state) => format!("online, {}\n", state.as_str().unwrap_or("nothing was sent yet")),
            None => format!("online: connected {} ago\n", since(&connection["lastConnected"])),
        },
        false if connection["lastConnected"].is_null() => "offline: it has never connected\n".to_owned(),
        false => {
            let began = since(&connection["lastConnected"]);
            let ended = &connection["lastDisconnected"];
            format!(
                "offline: its last connection began {began} ago and ended {} ago ({})\n",
                since(ended),
                text(ended)
            )
        }
    };
    let version = &connection["version"];
    let versions = [
        ("kuma-cp", &version["kumaCp"]["version"]),
        ("kuma-dp", &version["kumaDp"]["version"]),
        ("Envoy", &version["envoy"]["version"]),
    ];
    for (program, version) in versions.iter().filter(|(_, version)| version.is_string()) {
        lines.push_str(&format!("{program} {}\n", text(version)));
    }
    let expires = text(&connection["certificateExpirationTime"]);
    if !expires.is_empty() {
        lines.push_str(&format!("certificate valid until {expires}\n"));
    }
    for rejection in connection["rejections"].as_array().into_iter().flatten() {
        let word = |field: &str| text(&rejection[field]);
        lines.push_str(&format!("rejected {}: {}\n", word("name"), word("message")));
    }
    lines
}

fn selection(selects: &Value) -> String {
    let total = number(&selects["total"]);
    if total == 0 {
        return "\nSelects no proxy.\n".to_owned();
    }
    let names = selects["dataplanes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out = format!("\nSelects {total} {}:\n", if total == 1 { "proxy" } else { "proxies" });
    names.iter().for_each(|name| out.push_str(&format!("  {}\n", text(name))));
    let listed = u64::try_from(names.len()).unwrap_or(total);
    if listed < total {
        out.push_str(&format!("  and {} more\n", total - listed));
    }
    out
}
