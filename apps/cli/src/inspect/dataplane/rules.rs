//! Rules that apply to a proxy of a mesh that has destinations other than MeshServices: rules by type of policy,
//! grouped here by the part of the proxy they apply to.

use contract::rules::{ResourceMeta, RuleInbound, RuleOrigin, RulesOfKind, TagMatcher};
use resources::{
    labels,
    naming::{Kri, KriFields, ShortName},
};
use serde_json::Value;

use super::{attempted, present, sections::Sections};
use crate::{
    cell::{line, lines},
    client::{ApiClient, Document, Proxy},
    failure::Result,
    output::TableFormat,
    terminal,
};

pub fn show(client: &ApiClient, proxy: &Proxy<'_>, format: TableFormat) -> Result<String> {
    let reply = present(proxy, client.rules(proxy)?)?;
    let Document { sent, read } = reply.document(&attempted(proxy.mesh, proxy.name))?;
    for of in &read.rules {
        for warning in &of.warnings {
            terminal::warn(&format!("{}: {}", line(&of.r#type), line(warning)));
        }
    }
    Ok(format.render(&sent, || table(&read.rules)))
}

const ALL_OUTBOUNDS: &str = "All outbounds";

fn table(rules: &[RulesOfKind]) -> String {
    let mut sections = Sections::default();
    sections.begin("Proxy");
    for of in rules {
        if let Some(rule) = &of.proxy_rule {
            sections.add("Proxy", row(of, resources(&rule.origin), "", &rule.conf));
        }
    }
    for of in rules {
        inbounds(of, &mut sections);
    }
    for of in rules {
        outbounds(of, &mut sections);
    }
    sections.render()
}

fn inbounds(of: &RulesOfKind, sections: &mut Sections) {
    for part in &of.from_rules {
        let title = inbound(&part.inbound);
        for rule in &part.rules {
            sections.add(&title, row(of, resources(&rule.origin), &matchers(&rule.matchers), &rule.conf));
        }
    }
    for part in &of.inbound_rules {
        let title = inbound(&part.inbound);
        for rule in &part.rules {
            let matching = rule.r#match.as_ref().map(Value::to_string).unwrap_or_default();
            for conf in &rule.conf {
                sections.add(&title, row(of, entries(&rule.origin), &matching, conf));
            }
        }
    }
}

fn outbounds(of: &RulesOfKind, sections: &mut Sections) {
    for rule in &of.to_resource_rules {
        let meta = &rule.resource_meta;
        let title = match &*meta.r#type {
            "Mesh" => ALL_OUTBOUNDS.to_owned(),
            _ => format!("Outbound {}", kri(meta, &rule.resource_section_name)),
        };
        for conf in &rule.conf {
            sections.add(&title, row(of, entries(&rule.origin), "", conf));
        }
    }
    for rule in &of.to_rules {
        let to = matchers(&rule.matchers);
        let title = if to.is_empty() { ALL_OUTBOUNDS.to_owned() } else { format!("Outbounds with {to}") };
        sections.add(&title, row(of, resources(&rule.origin), "", &rule.conf));
    }
}

/// The type of policy, the policies that it is from, and the configuration.
fn row(of: &RulesOfKind, origins: String, matching: &str, conf: &Value) -> Vec<String> {
    vec![line(&of.r#type), origins, format!("{matching} {conf}").trim().to_owned()]
}

/// The policies that a rule is from.
fn resources(origin: &[ResourceMeta]) -> String {
    lines(origin.iter().map(|meta| kri(meta, "")), ",")
}

/// The entries of policies that a rule is from.
fn entries(origin: &[RuleOrigin]) -> String {
    lines(origin.iter().map(|origin| kri(&origin.resource_meta, &format!("rule_{}", origin.rule_index))), ",")
}

/// `Inbound http (port 80)`.
fn inbound(of: &RuleInbound) -> String {
    let service = of.tags.get(labels::SERVICE).map(String::as_str).unwrap_or_default();
    let known = [of.name.as_str(), service].into_iter().filter(|name| !name.is_empty());
    format!("Inbound port {} {}", of.port, lines(known, " ")).trim_end().to_owned()
}

/// `kuma.io/service=web version!=1`.
pub fn matchers(matchers: &[TagMatcher]) -> String {
    let shown = matchers.iter().map(|matcher| {
        let sign = if matcher.not { "!=" } else { "=" };
        format!("{}{sign}{}", matcher.key, matcher.value)
    });
    lines(shown, " ")
}

/// The identifier of a resource, from what the control plane says of it.
fn kri(meta: &ResourceMeta, section: &str) -> String {
    let label = |label: &str| meta.labels.get(label).map(|value| line(value)).unwrap_or_default();
    let name = match label(labels::DISPLAY_NAME) {
        name if name.is_empty() => line(&meta.name),
        name => name,
    };
    match ShortName::of_type(&meta.r#type) {
        Some(short) => Kri::from(KriFields {
            short,
            mesh: line(&meta.mesh),
            zone: label(labels::ZONE),
            namespace: label(labels::K8S_NAMESPACE),
            name,
            section: line(section),
        })
        .to_string(),
        None => format!("{} {name}", line(&meta.r#type)),
    }
}
