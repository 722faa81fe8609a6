//! `--type policies`: what applies to a proxy as a whole, to each inbound and to each outbound.
//!
//! A mesh whose destinations are all MeshServices answers per inbound and outbound. Any other mesh
//! refuses to, and [`rules`] reads its rules instead.

use contract::{
    layout::ProxyLayoutItem,
    lenient::read_partly,
    policies::{EffectivePolicy, PolicyOrigin, RouteRule},
};
use resources::kinds::mesh_http_route::{Match, PathMatch};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Map, Value, json};

use super::{attempted, present, rules, sections::Sections};
use crate::{
    cell::{line, lines},
    client::{ApiClient, Proxy, Reply, read_as},
    document::{overwrite, parts},
    failure::Result,
    output::TableFormat,
    parallel,
};

pub fn show(client: &ApiClient, proxy: &Proxy<'_>, format: TableFormat) -> Result<String> {
    let whole = present(proxy, client.policies(proxy)?)?;
    if whole.answer.status == 400 {
        return rules::show(client, proxy, format);
    }
    let attempted = attempted(proxy.mesh, proxy.name);
    let proxy = InspectedProxy { client, proxy, attempted: &attempted };
    let SentPolicies { policies } = proxy.sent(whole)?;
    let document = proxy.document(&policies)?;
    let read: Inspected = read_as(&document, &attempted)?;
    Ok(format.render(&document, || table(&read)))
}

/// The layout of a proxy with the policies of each part.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Inspected {
    policies: Vec<EffectivePolicy>,
    inbounds: Vec<Part>,
    outbounds: Vec<Part>,
    problems: Vec<String>,
}

/// An inbound or outbound.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    #[serde(flatten)]
    item: ProxyLayoutItem,
    policies: Vec<EffectivePolicy>,
    routes: Vec<Routes>,
}

/// The routes of one kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Routes {
    kind: String,
    origins: Vec<PolicyOrigin>,
    rules: Vec<Route>,
}

/// A route with its own policies.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Route {
    #[serde(flatten)]
    rule: RouteRule,
    policies: Vec<EffectivePolicy>,
}

/// The source of the answers about one proxy.
struct InspectedProxy<'a> {
    client: &'a ApiClient,
    proxy: &'a Proxy<'a>,
    attempted: &'a str,
}

impl InspectedProxy<'_> {
    /// The layout as it was sent, with what applies to each of its parts.
    fn document(&self, policies: &Value) -> Result<Value> {
        let Proxy { mesh, name } = self.proxy;
        let mut document = json!({ "mesh": mesh, "name": name, "policies": policies });
        let layout: Value = self.sent(self.client.layout(self.proxy)?)?;
        overwrite(&mut document, &layout);
        let layout: SentLayout = parts(&layout);
        let inbounds = layout.inbounds.unwrap_or_default();
        let inbounds = self.complete(&inbounds, |part, kri| self.inbound(part, kri))?;
        // Only our layouts tell outbounds from other destinations; they list passthrough, too.
        let told = layout.passthrough.is_some();
        let mut outbounds = layout.outbounds.unwrap_or_default();
        outbounds.retain(|outbound| !told || parts::<SentPart>(outbound).proxy_resources.is_some());
        let outbounds = self.complete(&outbounds, |part, kri| self.outbound(part, kri))?;
        overwrite(&mut document, &json!({ "inbounds": inbounds, "outbounds": outbounds }));
        Ok(document)
    }

    fn complete(
        &self,
        parts: &[Value],
        complete: impl Fn(&mut Value, &str) -> Result<()> + Sync,
    ) -> Result<Vec<Value>> {
        parallel::map(parts, |part| {
            let mut completed = part.clone();
            if let Some(kri) = identifier(part) {
                complete(&mut completed, &kri)?;
            }
            Ok(completed)
        })
    }

    fn inbound(&self, part: &mut Value, kri: &str) -> Result<()> {
        let policies: SentPolicies = self.sent(self.client.inbound_policies(self.proxy, kri)?)?;
        overwrite(part, &policies);
        Ok(())
    }

    /// The routes of an outbound may have policies of their own.
    fn outbound(&self, part: &mut Value, kri: &str) -> Result<()> {
        let policies: SentPolicies = self.sent(self.client.outbound_policies(self.proxy, kri)?)?;
        overwrite(part, &policies);
        let SentRoutes { mut routes } = self.sent(self.client.routes(self.proxy, kri)?)?;
        for rule in routes.iter_mut().flatten().flat_map(|route| route.rules.iter_mut().flatten()) {
            if let Some(route) = identifier(rule) {
                let policies = self.client.route_policies(self.proxy, kri, &route)?;
                overwrite(rule, &self.sent::<_, SentPolicies>(policies)?);
            }
        }
        overwrite(part, &json!({ "routes": routes }));
        Ok(())
    }

    /// Parts of an answer as they were sent. The proxy was there when it was first asked for; what is missing now is
    /// reported in the server's words.
    fn sent<T: DeserializeOwned, S: DeserializeOwned + Default>(&self, reply: Reply<T>) -> Result<S> {
        Ok(parts(&reply.document(self.attempted)?.sent))
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SentPolicies {
    policies: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SentLayout {
    inbounds: Option<Vec<Value>>,
    outbounds: Option<Vec<Value>>,
    passthrough: Option<IgnoredAny>,
}

/// An inbound, an outbound or a rule of a route.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SentPart {
    kri: Option<String>,
    proxy_resources: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SentRoutes {
    routes: Option<Vec<SentRoute>>,
}

/// The routes of one kind, with all their fields.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SentRoute {
    #[serde(flatten)]
    rest: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<Value>>,
}

fn identifier(part: &Value) -> Option<String> {
    parts::<SentPart>(part).kri.filter(|kri| !kri.is_empty())
}

fn table(document: &Inspected) -> String {
    let mut sections = Sections::default();
    sections.begin("Proxy");
    for policy in &document.policies {
        sections
            .add("Proxy", vec![line(&policy.kind), origins(&policy.origins), shown(policy.conf.as_ref())]);
    }
    for inbound in &document.inbounds {
        let title = title("Inbound", &inbound.item);
        sections.begin(&title);
        for policy in &inbound.policies {
            for rule in policy.rules.iter().flatten() {
                let conf = format!("{} {}", rules::matchers(&rule.matchers), rule.conf).trim().to_owned();
                sections.add(&title, vec![line(&policy.kind), line(&rule.kri), conf]);
            }
        }
    }
    let mut bare = 0;
    for outbound in &document.outbounds {
        let lines = of_outbound(outbound);
        let title = title("Outbound", &outbound.item);
        bare += usize::from(lines.is_empty());
        lines.into_iter().for_each(|line| sections.add(&title, line));
    }
    for problem in &document.problems {
        sections.add("Problems", vec![line(problem)]);
    }
    let mut out = sections.render();
    if bare > 0 {
        out.push_str(&format!("\nOutbounds without policies: {bare} (-o yaml lists them)\n"));
    }
    out
}

fn shown(conf: Option<&Value>) -> String {
    conf.unwrap_or(&Value::Null).to_string()
}

fn of_outbound(outbound: &Part) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    // Routes are policies, too, and have lines of their own below.
    let is_route = |policy: &&EffectivePolicy| outbound.routes.iter().any(|route| route.kind == policy.kind);
    for policy in outbound.policies.iter().filter(|policy| !is_route(policy)) {
        rows.extend(confs(policy, ""));
    }
    for route in &outbound.routes {
        for Route { rule, policies } in &route.rules {
            let origin = if rule.kri.is_empty() { origins(&route.origins) } else { line(&rule.kri) };
            let matches = rule.matches.iter().flatten().map(matching).filter(|shown| !shown.is_empty());
            let conf = format!("{} {}", lines(matches, ","), rule.conf);
            rows.push(vec![line(&route.kind), origin.clone(), conf.trim().to_owned()]);
            // A route without policies of its own has those of its outbound, which stand above.
            let own = policies.iter().filter(|policy| !outbound.policies.contains(policy));
            let on = format!(" on {origin}");
            rows.extend(own.flat_map(|policy| confs(policy, &on)));
        }
    }
    rows
}

/// An outbound's policy has several configurations where several of its ports or routes differ.
fn confs<'a>(policy: &'a EffectivePolicy, on: &'a str) -> impl Iterator<Item = Vec<String>> {
    let confs = policy.conf.as_ref().and_then(Value::as_array).into_iter().flatten();
    confs.map(move |conf| {
        vec![format!("{}{on}", line(&policy.kind)), origins(&policy.origins), conf.to_string()]
    })
}

fn origins(origins: &[PolicyOrigin]) -> String {
    lines(origins.iter().map(|origin| &origin.kri).filter(|kri| !kri.is_empty()), ",")
}

/// `Inbound self_http (port 80, http) kri_dp_default___web_http`; a name that is the identifier is not repeated.
fn title(part: &str, of: &ProxyLayoutItem) -> String {
    let kri = line(&of.kri);
    let name = line(&of.proxy_resource_name);
    let mut title = format!("{part} {}", if kri.is_empty() { &name } else { &kri });
    let port = if of.port == 0 { String::new() } else { format!("port {}", of.port) };
    let in_envoy = if name == kri { String::new() } else { format!("in Envoy {name}") };
    let details: Vec<String> =
        [line(&of.protocol), port, in_envoy].into_iter().filter(|detail| !detail.is_empty()).collect();
    if !details.is_empty() {
        title.push_str(&format!(" ({})", details.join(", ")));
    }
    title
}

/// `PathPrefix /v2 GET +1 headers`.
fn matching(of: &Value) -> String {
    let Match { path, method, query_params, headers } = read_partly(of);
    let mut words = Vec::new();
    if let Some(PathMatch { type_, value }) = &path {
        words.extend([line(type_.as_str()), line(value)]);
    }
    words.extend(method.map(|method| line(method.as_str())));
    let headers = headers.map_or(0, |headers| headers.len());
    let parameters = query_params.map_or(0, |parameters| parameters.len());
    for (count, noun) in [(headers, "headers"), (parameters, "parameters")] {
        if count > 0 {
            words.push(format!("+{count} {noun}"));
        }
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}
