//! `--type policies`: what applies to a proxy as a whole, to each inbound and to each outbound.
//!
//! A mesh whose destinations are all MeshServices answers per inbound and outbound. Any other mesh
//! refuses to, and [`rules`] reads its rules instead.

use resources::Kind;
use serde_json::{Value, json};

use super::{ask, attempted, rules, sections::Sections};
use crate::{
    cell::{list, text},
    client::{Client, segment},
    failure::Result,
    output::TableFormat,
    parallel,
    types::Type,
};

pub fn show(client: &Client, mesh: &str, name: &str, format: TableFormat) -> Result<String> {
    let whole = ask(client, mesh, name, "_policies")?;
    if whole.status == 400 {
        return rules::show(client, mesh, name, format);
    }
    let proxy = InspectedProxy { client, mesh, name };
    let policies = whole.json(&attempted(mesh, name))?["policies"].take();
    let document = proxy.document(policies)?;
    Ok(format.render(&document, || table(&document)))
}

/// Where the answers about one proxy come from.
struct InspectedProxy<'a> {
    client: &'a Client,
    mesh: &'a str,
    name: &'a str,
}

impl InspectedProxy<'_> {
    /// The layout of the proxy with what applies to each of its parts.
    fn document(&self, policies: Value) -> Result<Value> {
        let mut document = json!({ "mesh": self.mesh, "name": self.name, "policies": policies });
        let layout = self.get("_layout")?;
        for (field, value) in layout.as_object().into_iter().flatten() {
            document[field] = value.clone();
        }
        document["inbounds"] = self.parts(&layout["inbounds"], |part, kri| self.inbound(part, kri))?;
        document["outbounds"] = self.parts(&called(&layout), |part, kri| self.outbound(part, kri))?;
        Ok(document)
    }

    fn parts(&self, of: &Value, complete: impl Fn(&mut Value, &str) -> Result<()> + Sync) -> Result<Value> {
        let parts = of.as_array().map(Vec::as_slice).unwrap_or_default();
        let completed = parallel::map(parts, |part| {
            let mut part = part.clone();
            if let Some(kri) = part["kri"].as_str().filter(|kri| !kri.is_empty()).map(segment) {
                complete(&mut part, &kri)?;
            }
            Ok(part)
        });
        completed.map(Value::Array)
    }

    fn inbound(&self, part: &mut Value, kri: &str) -> Result<()> {
        part["policies"] = self.get(&format!("_inbounds/{kri}/_policies"))?["policies"].take();
        Ok(())
    }

    /// The routes of an outbound may have policies of their own.
    fn outbound(&self, part: &mut Value, kri: &str) -> Result<()> {
        part["policies"] = self.get(&format!("_outbounds/{kri}/_policies"))?["policies"].take();
        let mut routes = self.get(&format!("_outbounds/{kri}/_routes"))?["routes"].take();
        for rule in routes.as_array_mut().into_iter().flatten().flat_map(rules_of) {
            if let Some(route) = rule["kri"].as_str().filter(|route| !route.is_empty()).map(segment) {
                let path = format!("_outbounds/{kri}/_routes/{route}/_policies");
                rule["policies"] = self.get(&path)?["policies"].take();
            }
        }
        part["routes"] = routes;
        Ok(())
    }

    /// The proxy was there when it was first asked for; what is missing now is reported in the server's words.
    fn get(&self, view: &str) -> Result<Value> {
        let proxy = Type::of_kind(Kind::Dataplane).item(self.mesh, self.name);
        self.client.get(&format!("{proxy}/{view}"))?.json(&attempted(self.mesh, self.name))
    }
}

/// The outbounds that the proxy has. Only our layouts tell them from other destinations; they list passthrough, too.
fn called(layout: &Value) -> Value {
    let told = layout.get("passthrough").is_some();
    each(layout, "outbounds")
        .filter(|outbound| !told || outbound.get("proxyResources").is_some())
        .cloned()
        .collect()
}

fn rules_of(route: &mut Value) -> impl Iterator<Item = &mut Value> {
    route["rules"].as_array_mut().into_iter().flatten()
}

fn each<'a>(of: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    of[field].as_array().into_iter().flatten()
}

fn table(document: &Value) -> String {
    let mut sections = Sections::default();
    sections.begin("Proxy");
    for policy in each(document, "policies") {
        sections.add("Proxy", vec![text(&policy["kind"]), origins(policy), policy["conf"].to_string()]);
    }
    for inbound in each(document, "inbounds") {
        let title = title("Inbound", inbound);
        sections.begin(&title);
        for policy in each(inbound, "policies") {
            for rule in each(policy, "rules") {
                let conf = format!("{} {}", rules::matchers(rule), rule["conf"]).trim().to_owned();
                sections.add(&title, vec![text(&policy["kind"]), text(&rule["kri"]), conf]);
            }
        }
    }
    let mut bare = 0;
    for outbound in each(document, "outbounds") {
        let lines = of_outbound(outbound);
        let title = title("Outbound", outbound);
        bare += usize::from(lines.is_empty());
        lines.into_iter().for_each(|line| sections.add(&title, line));
    }
    for problem in each(document, "problems") {
        sections.add("Problems", vec![text(problem)]);
    }
    let mut out = sections.render();
    if bare > 0 {
        out.push_str(&format!("\nOutbounds without policies: {bare} (-o yaml lists them)\n"));
    }
    out
}

fn of_outbound(outbound: &Value) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    // Routes are policies, too, and have lines of their own below.
    let is_route = |policy: &&Value| each(outbound, "routes").any(|route| route["kind"] == policy["kind"]);
    for policy in each(outbound, "policies").filter(|policy| !is_route(policy)) {
        lines.extend(confs(policy, ""));
    }
    for route in each(outbound, "routes") {
        for rule in each(route, "rules") {
            let origin = match text(&rule["kri"]) {
                kri if kri.is_empty() => origins(route),
                kri => kri,
            };
            let matches = list(&rule["matches"], matching);
            let conf = format!("{matches} {}", rule["conf"]);
            lines.push(vec![text(&route["kind"]), origin.clone(), conf.trim().to_owned()]);
            // A route without policies of its own has those of its outbound, which stand above.
            let own =
                each(rule, "policies").filter(|policy| !each(outbound, "policies").any(|p| p == *policy));
            let on = format!(" on {}", origin);
            lines.extend(own.flat_map(|policy| confs(policy, &on)));
        }
    }
    lines
}

/// An outbound's policy has several configurations where several of its ports or routes differ.
fn confs<'a>(policy: &'a Value, on: &'a str) -> impl Iterator<Item = Vec<String>> {
    each(policy, "conf")
        .map(move |conf| vec![format!("{}{on}", text(&policy["kind"])), origins(policy), conf.to_string()])
}

fn origins(policy: &Value) -> String {
    list(&policy["origins"], |origin| text(&origin["kri"]))
}

/// `Inbound self_http (port 80, http) kri_dp_default___web_http`; a name that is the identifier is not repeated.
fn title(part: &str, of: &Value) -> String {
    let (kri, name) = (text(&of["kri"]), text(&of["proxyResourceName"]));
    let mut title = format!("{part} {}", if kri.is_empty() { &name } else { &kri });
    let details: Vec<String> = [
        text(&of["protocol"]),
        of["port"].as_u64().map(|port| format!("port {port}")).unwrap_or_default(),
        if name == kri { String::new() } else { format!("in Envoy {name}") },
    ]
    .into_iter()
    .filter(|detail| !detail.is_empty())
    .collect();
    if !details.is_empty() {
        title.push_str(&format!(" ({})", details.join(", ")));
    }
    title
}

/// `PathPrefix /v2 GET +1 headers`.
pub fn matching(of: &Value) -> String {
    let mut words = vec![text(&of["path"]["type"]), text(&of["path"]["value"]), text(&of["method"])];
    for (field, noun) in [("headers", "headers"), ("queryParams", "parameters")] {
        let count = each(of, field).count();
        if count > 0 {
            words.push(format!("+{count} {noun}"));
        }
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}
