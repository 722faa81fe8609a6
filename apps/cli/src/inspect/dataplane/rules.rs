//! What applies to a proxy of a mesh that has destinations other than MeshServices: rules by type of
//! policy, grouped here by the part of the proxy they apply to.

use resources::{
    labels,
    naming::{Kri, KriFields, ShortName},
};
use serde_json::Value;

use super::{ask, attempted, sections::Sections};
use crate::{
    cell::{list, text},
    client::Client,
    failure::Result,
    output::TableFormat,
    terminal,
};

pub fn show(client: &Client, mesh: &str, name: &str, format: TableFormat) -> Result<String> {
    let document = ask(client, mesh, name, "_rules")?.json(&attempted(mesh, name))?;
    for rule in each(&document["rules"]) {
        for warning in each(&rule["warnings"]) {
            terminal::warn(&format!("{}: {}", text(&rule["type"]), text(warning)));
        }
    }
    Ok(format.render(&document, || table(&document)))
}

const ALL_OUTBOUNDS: &str = "All outbounds";

fn each(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

fn table(document: &Value) -> String {
    let rules: Vec<&Value> = each(&document["rules"]).collect();
    let mut sections = Sections::default();
    sections.begin("Proxy");
    for of in &rules {
        if !of["proxyRule"].is_null() {
            lines("Proxy", of, &of["proxyRule"], "", &mut sections);
        }
    }
    for of in &rules {
        for part in each(&of["fromRules"]) {
            let title = inbound(&part["inbound"]);
            each(&part["rules"]).for_each(|rule| lines(&title, of, rule, &matchers(rule), &mut sections));
        }
        for part in each(&of["inboundRules"]) {
            let title = inbound(&part["inbound"]);
            let matching = |rule: &Value| {
                if rule["match"].is_null() { String::new() } else { rule["match"].to_string() }
            };
            each(&part["rules"]).for_each(|rule| lines(&title, of, rule, &matching(rule), &mut sections));
        }
    }
    for of in &rules {
        for rule in each(&of["toResourceRules"]) {
            let title = match &rule["resourceMeta"] {
                meta if meta["type"] == "Mesh" => ALL_OUTBOUNDS.to_owned(),
                meta => format!("Outbound {}", kri(meta, &text(&rule["resourceSectionName"]))),
            };
            lines(&title, of, rule, "", &mut sections);
        }
        for rule in each(&of["toRules"]) {
            let to = matchers(rule);
            let title = if to.is_empty() { ALL_OUTBOUNDS.to_owned() } else { format!("Outbounds with {to}") };
            lines(&title, of, rule, "", &mut sections);
        }
    }
    sections.render()
}

/// One line per configuration; rules by resource have a list of them.
fn lines(title: &str, of: &Value, rule: &Value, matching: &str, sections: &mut Sections) {
    let one = std::slice::from_ref(&rule["conf"]);
    for conf in rule["conf"].as_array().map_or(one, Vec::as_slice) {
        let origins = list(&rule["origin"], |origin| match &origin["resourceMeta"] {
            Value::Null => kri(origin, ""),
            meta => kri(meta, &format!("rule_{}", text(&origin["ruleIndex"]))),
        });
        let conf = format!("{matching} {conf}").trim().to_owned();
        sections.add(title, vec![text(&of["type"]), origins, conf]);
    }
}

/// `Inbound http (port 80)`.
fn inbound(of: &Value) -> String {
    let tags = &of["tags"][labels::SERVICE];
    let known: Vec<String> = [&of["name"], tags].into_iter().map(text).filter(|t| !t.is_empty()).collect();
    format!("Inbound port {} {}", text(&of["port"]), known.join(" ")).trim_end().to_owned()
}

/// `kuma.io/service=web version!=1`.
pub fn matchers(rule: &Value) -> String {
    let shown = each(&rule["matchers"]).map(|matcher| {
        let sign = if matcher["not"] == true { "!=" } else { "=" };
        format!("{}{sign}{}", text(&matcher["key"]), text(&matcher["value"]))
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The identifier of a resource, from what the control plane says of it.
fn kri(meta: &Value, section: &str) -> String {
    let label = |label: &str| text(&meta["labels"][label]);
    let name = match label(labels::DISPLAY_NAME) {
        name if name.is_empty() => text(&meta["name"]),
        name => name,
    };
    match ShortName::of_type(&text(&meta["type"])) {
        Some(short) => Kri::from(KriFields {
            short,
            mesh: text(&meta["mesh"]),
            zone: label(labels::ZONE),
            namespace: label(labels::K8S_NAMESPACE),
            name,
            section: section.to_owned(),
        })
        .to_string(),
        None => format!("{} {name}", text(&meta["type"])),
    }
}
