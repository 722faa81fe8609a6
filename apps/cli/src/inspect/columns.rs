//! What the tables of `inspect` show: the titles Kuma gives them, the most asked for by default.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::{
    cell::{Column, list, number, since, text, time},
    insight::{self, is_online, last_connected, last_updated, total, version},
};

pub fn dataplanes(wide: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("MESH", |item| text(&item["mesh"])),
        ("NAME", |item| text(&item["name"])),
        ("TAGS", tags),
        ("STATUS", proxy_status),
        ("LAST CONNECTED AGO", |item| last_connected(&item["dataplaneInsight"])),
        ("LAST UPDATED AGO", |item| last_updated(&item["dataplaneInsight"])),
        ("TOTAL UPDATES", |item| total(&item["dataplaneInsight"], "responsesSent")),
        ("TOTAL ACKNOWLEDGED", |item| total(&item["dataplaneInsight"], "responsesAcknowledged")),
        ("TOTAL ERRORS", |item| total(&item["dataplaneInsight"], "responsesRejected")),
        ("NAMES", |item| insight::naming(&item["dataplaneInsight"])),
    ];
    if wide {
        columns.extend::<[Column; 6]>([
            ("CERT REGENERATED AGO", |item| since(&certificate(item)["lastCertificateRegeneration"])),
            ("CERT EXPIRATION", |item| moment(&certificate(item)["certificateExpirationTime"])),
            ("CERT REGENERATIONS", |item| text(&certificate(item)["certificateRegenerations"])),
            ("CERT BACKEND", |item| text(&certificate(item)["issuedBackend"])),
            ("KUMA-DP VERSION", |item| text(&version(&item["dataplaneInsight"])["kumaDp"]["version"])),
            ("ENVOY VERSION", |item| text(&version(&item["dataplaneInsight"])["envoy"]["version"])),
        ]);
    }
    columns
}

pub fn zones(wide: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("NAME", |item| text(&item["name"])),
        ("STATUS", zone_status),
        ("SINCE", |item| moment(zone_status_since(item))),
        ("LAST CONNECTED AGO", |item| last_connected(&item["zoneInsight"])),
        ("LAST UPDATED AGO", |item| last_updated(&item["zoneInsight"])),
        ("TOTAL UPDATES", |item| total(&item["zoneInsight"], "responsesSent")),
        ("TOTAL ERRORS", |item| total(&item["zoneInsight"], "responsesRejected")),
        ("ZONE-CP VERSION", |item| text(&version(&item["zoneInsight"])["kumaCp"]["version"])),
        ("PROBLEMS", problems),
    ];
    if wide {
        columns.push(("ENABLED", |item| if is_disabled(item) { "no" } else { "yes" }.to_owned()));
        columns.push(("ZONE-CP INSTANCE", |item| {
            text(&insight::latest(&item["zoneInsight"])["zoneInstanceId"])
        }));
    }
    columns
}

pub fn zone_ingresses(wide: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("ZONE", |item| text(&item["zoneIngress"]["zone"])),
        ("NAME", |item| text(&item["name"])),
        ("ADVERTISED", |item| {
            let networking = &item["zoneIngress"]["networking"];
            place(&networking["advertisedAddress"], &networking["advertisedPort"])
        }),
        ("STATUS", |item| online_or_not(&item["zoneIngressInsight"])),
        ("LAST CONNECTED AGO", |item| last_connected(&item["zoneIngressInsight"])),
        ("LAST UPDATED AGO", |item| last_updated(&item["zoneIngressInsight"])),
        ("TOTAL UPDATES", |item| total(&item["zoneIngressInsight"], "responsesSent")),
        ("TOTAL ERRORS", |item| total(&item["zoneIngressInsight"], "responsesRejected")),
        ("NAMES", |item| insight::naming(&item["zoneIngressInsight"])),
    ];
    if wide {
        columns.push(("ADDRESS", |item| {
            let networking = &item["zoneIngress"]["networking"];
            place(&networking["address"], &networking["port"])
        }));
        columns.push(("KUMA-DP VERSION", |item| {
            text(&version(&item["zoneIngressInsight"])["kumaDp"]["version"])
        }));
        columns
            .push(("ENVOY VERSION", |item| text(&version(&item["zoneIngressInsight"])["envoy"]["version"])));
    }
    columns
}

pub fn zone_egresses(wide: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("ZONE", |item| text(&item["zoneEgress"]["zone"])),
        ("NAME", |item| text(&item["name"])),
        ("ADDRESS", |item| {
            let networking = &item["zoneEgress"]["networking"];
            place(&networking["address"], &networking["port"])
        }),
        ("STATUS", |item| online_or_not(&item["zoneEgressInsight"])),
        ("LAST CONNECTED AGO", |item| last_connected(&item["zoneEgressInsight"])),
        ("LAST UPDATED AGO", |item| last_updated(&item["zoneEgressInsight"])),
        ("TOTAL UPDATES", |item| total(&item["zoneEgressInsight"], "responsesSent")),
        ("TOTAL ERRORS", |item| total(&item["zoneEgressInsight"], "responsesRejected")),
        ("NAMES", |item| insight::naming(&item["zoneEgressInsight"])),
    ];
    if wide {
        columns.push(("KUMA-DP VERSION", |item| {
            text(&version(&item["zoneEgressInsight"])["kumaDp"]["version"])
        }));
        columns
            .push(("ENVOY VERSION", |item| text(&version(&item["zoneEgressInsight"])["envoy"]["version"])));
    }
    columns
}

/// `192.168.0.1:10001`; empty where none is advertised.
fn place(address: &Value, port: &Value) -> String {
    if address.is_null() { String::new() } else { format!("{}:{}", text(address), number(port)) }
}

fn online_or_not(insight: &Value) -> String {
    if is_online(insight) { "Online" } else { "Offline" }.to_owned()
}

pub fn meshes(wide: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("NAME", |item| text(&item["name"])),
        ("DATAPLANES", |item| online(&item["dataplanes"])),
        ("DEGRADED", |item| number(&item["dataplanes"]["partiallyDegraded"]).to_string()),
        ("SERVICES", |item| number(&item["services"]["total"]).to_string()),
        ("POLICIES", |item| {
            let policies = item["policies"].as_object().into_iter().flat_map(Map::values);
            policies.map(|policy| number(&policy["total"])).sum::<u64>().to_string()
        }),
        ("CERT BACKENDS", |item| by_key(&item["mTLS"]["issuedBackends"])),
    ];
    if wide {
        columns.push(("KUMA-DP VERSIONS", |item| by_key(&item["dpVersions"]["kumaDp"])));
        columns.push(("ENVOY VERSIONS", |item| by_key(&item["dpVersions"]["envoy"])));
        columns.push(("LAST UPDATED AGO", |item| since(&item["modificationTime"])));
    }
    columns
}

pub fn services(wide: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("MESH", |item| text(&item["mesh"])),
        ("NAME", |item| text(&item["name"])),
        ("TYPE", |item| item["serviceType"].as_str().unwrap_or("internal").to_owned()),
        ("STATUS", |item| {
            match item["status"].as_str() {
                Some("online") => "Online",
                Some("offline") => "Offline",
                Some("partially_degraded") => "Partially degraded",
                _ => "Not available",
            }
            .to_owned()
        }),
        ("DATAPLANES", |item| online(&item["dataplanes"])),
        ("ADDRESS", |item| text(&item["addressPort"])),
    ];
    if wide {
        columns.push(("ZONES", |item| list(&item["zones"], text)));
        columns.push(("CERT BACKENDS", |item| by_key(&item["issuedBackends"])));
    }
    columns
}

/// `kuma.io/protocol=http kuma.io/service=web,web-admin`: all values of a tag together.
fn tags(item: &Value) -> String {
    let networking = &item["dataplane"]["networking"];
    let inbounds = networking["inbound"].as_array().into_iter().flatten();
    let mut all: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for carrier in inbounds.chain([&networking["gateway"]]) {
        for (key, value) in carrier["tags"].as_object().into_iter().flatten() {
            all.entry(key).or_default().insert(text(value));
        }
    }
    let shown = all.into_iter().map(|(key, values)| {
        let values: Vec<String> = values.into_iter().collect();
        format!("{key}={}", values.join(","))
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// A proxy is as well as its connection and, unless it is a gateway, its inbounds.
fn proxy_status(item: &Value) -> String {
    let networking = &item["dataplane"]["networking"];
    if !is_online(&item["dataplaneInsight"]) {
        return "Offline".to_owned();
    }
    let inbounds: Vec<&Value> = networking["inbound"].as_array().into_iter().flatten().collect();
    let ready = inbounds.iter().filter(|inbound| takes_traffic(inbound)).count();
    match ready {
        _ if !networking["gateway"].is_null() => "Online",
        ready if ready == inbounds.len() => "Online",
        0 => "Offline",
        _ => "Partially degraded",
    }
    .to_owned()
}

fn takes_traffic(inbound: &Value) -> bool {
    inbound["state"] != "NotReady"
        && inbound["health"].as_object().is_none_or(|h| h.get("ready") == Some(&true.into()))
}

fn zone_status(item: &Value) -> String {
    let insight = &item["zoneInsight"];
    let away = &insight["absence"];
    match () {
        () if is_disabled(item) => "Offline",
        () if is_online(insight) => "Online",
        // Its connection is lost, and others still call it.
        () if away.is_object() && away["withdrawn"] != true => "Unknown",
        () => "Offline",
    }
    .to_owned()
}

/// When the connection came, or went.
fn zone_status_since(item: &Value) -> &Value {
    let insight = &item["zoneInsight"];
    let (latest, away) = (insight::latest(insight), &insight["absence"]["since"]);
    match () {
        () if is_disabled(item) => &Value::Null,
        () if is_online(insight) => &latest["connectTime"],
        () if away.is_null() => &latest["disconnectTime"],
        () => away,
    }
}

/// `MeshTimeout rejected by the zone: …`; a zone also says why it has no connection.
fn problems(item: &Value) -> String {
    let mut shown = list(&item["zoneInsight"]["problems"], |problem| {
        format!("{} {}: {}", text(&problem["type"]), text(&problem["what"]), text(&problem["reason"]))
    });
    if let Some(reason) = item["zoneInsight"]["absence"]["reason"].as_str() {
        let separator = if shown.is_empty() { "" } else { "," };
        shown = format!("not connected: {reason}{separator}{shown}");
    }
    shown
}

fn is_disabled(item: &Value) -> bool {
    item["zone"]["enabled"] == false
}

fn certificate(item: &Value) -> &Value {
    &item["dataplaneInsight"]["mTLS"]
}

/// `2024-05-02 10:00:00`, in UTC.
fn moment(value: &Value) -> String {
    time(value).map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default()
}

/// `3/4`: online of all.
fn online(of: &Value) -> String {
    let total = number(&of["total"]);
    if of.is_null() { String::new() } else { format!("{}/{total}", number(&of["online"])) }
}

/// `ca-1=3,ca-2=1`: how many proxies each has.
fn by_key(of: &Value) -> String {
    let counts = of.as_object().into_iter().flatten().map(|(key, count)| {
        let count = if count.is_object() { number(&count["total"]) } else { number(count) };
        format!("{key}={count}")
    });
    counts.collect::<Vec<_>>().join(",")
}
