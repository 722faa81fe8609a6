//! `--type hostnames`: what the application behind a proxy can call by name, and where that leads.

use serde_json::Value;

use crate::{cell::text, output};

pub fn table(hostnames: &Value) -> String {
    let mut cells = Vec::new();
    for item in array(&hostnames["items"]) {
        let addresses: Vec<String> = array(&item["addresses"]).map(text).collect();
        for port in array(&item["ports"]) {
            let named = format!("{}:{}", text(&item["hostname"]), text(&port["port"]));
            cells.push(vec![named, addresses.join(","), origin(port), destination(port)]);
        }
    }
    let mut out = output::table(&["HOSTNAME", "ADDRESSES", "FROM", "LEADS TO"], cells);
    for lost in array(&hostnames["conflicts"]) {
        out.push_str(&format!(
            "\nConflict: {}:{} is claimed by {} (has it) and by {}\n",
            text(&lost["hostname"]),
            text(&lost["port"]),
            origin(&lost["winner"]),
            origin(&lost["loser"]),
        ));
    }
    if hostnames["resolver"] == false {
        out.push_str("\nThe agent of this proxy answers no queries for hostnames of the mesh.\n");
    }
    out
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn origin(claim: &Value) -> String {
    let origin = &claim["origin"];
    let by = text(&origin["hostnameGenerator"]);
    let by = if by.is_empty() { String::new() } else { format!(" by HostnameGenerator/{by}") };
    format!("{}/{}{by}", text(&origin["kind"]), text(&origin["name"]))
}

fn destination(claim: &Value) -> String {
    let tags: Vec<String> = claim["tags"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}={}", text(value)))
        .collect();
    if tags.is_empty() { text(&claim["kri"]) } else { tags.join(" ") }
}
