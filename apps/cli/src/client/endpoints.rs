//! The endpoints of the REST API that this client uses: path, query and type of the answer of each, in one place.

use std::marker::PhantomData;

use contract::{
    access::Access,
    findings::ProblemList,
    graph::AccessGraph,
    hostnames::HostnameList,
    index::{Configuration, Index, ResourceTypes, User},
    layout::ProxyLayout,
    logging::ProxyLogLevels,
    observed::ObservedCalls,
    pages::Listing,
    policies::{PolicyList, RouteList},
    reachability::{DestinationReachability, ProxyReachability},
    rules::ProxyRules,
    signals::SignalList,
    sni::KnownSni,
    stats::StatsSummary,
    suggestions::Suggestions,
    sync::ProxySync,
    tokens::{DataplaneTokenRequest, UserTokenRequest, ZoneTokenRequest},
    what_if::{WhatIf, WhatIfRequest},
};
use resources::Kind;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{ApiClient, ApiResponse, Document, document, query_value, segment};
use crate::{
    failure::{Failure, Result},
    types::Type,
};

/// An answer whose type is known, and which may be a refusal.
#[derive(Debug)]
pub struct Reply<T> {
    pub answer: ApiResponse,
    of: PhantomData<T>,
}

impl<T: DeserializeOwned> Reply<T> {
    fn new(answer: ApiResponse) -> Reply<T> {
        Reply { answer, of: PhantomData }
    }

    /// The answer as it was sent and as its type, or the server's refusal as a failure.
    pub fn document(self, attempted: &str) -> Result<Document<T>> {
        self.answer.document(attempted)
    }

    /// The answer as its type alone.
    pub fn read(self, attempted: &str) -> Result<T> {
        let sent = self.answer.json(attempted)?;
        document::read(&sent, attempted)
    }
}

/// A path and its query.
struct Address {
    text: String,
    queried: bool,
}

impl Address {
    fn at(path: impl Into<String>) -> Address {
        Address { text: path.into(), queried: false }
    }

    /// A view of a mesh, such as `_access`.
    fn of_mesh(mesh: &str, view: &str) -> Address {
        Address::at(format!("/meshes/{}/{view}", segment(mesh)))
    }

    /// A view of a proxy, such as `_layout`.
    fn of_proxy(proxy: &Proxy<'_>, view: &str) -> Address {
        let item = Type::of_kind(Kind::Dataplane).item(proxy.mesh, proxy.name);
        Address::at(format!("{item}/{view}"))
    }

    fn with(mut self, name: &str, value: &str) -> Address {
        let sign = if self.queried { '&' } else { '?' };
        self.text.push_str(&format!("{sign}{name}={}", query_value(value)));
        self.queried = true;
        self
    }

    fn maybe(self, name: &str, value: Option<&str>) -> Address {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

/// A Dataplane by name.
#[derive(Debug, Clone, Copy)]
pub struct Proxy<'a> {
    pub mesh: &'a str,
    pub name: &'a str,
}

impl Proxy<'_> {
    /// `Dataplane "web" in mesh "default"`.
    pub fn describe(&self) -> String {
        Type::of_kind(Kind::Dataplane).describe(self.mesh, self.name)
    }

    pub fn missing(&self) -> Failure {
        Failure::failed(format!("there is no {}", self.describe()))
    }
}

/// A call from one workload to another.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub mesh: &'a str,
    pub from: &'a str,
    pub to: &'a str,
    pub port: Option<&'a str>,
}

/// A question about rates and latencies.
#[derive(Debug, Clone, Copy)]
pub struct SignalQuestion<'a> {
    pub by: &'a str,
    pub window: &'a str,
    pub client: Option<&'a str>,
    pub server: Option<&'a str>,
    pub zone: Option<&'a str>,
}

/// A request for a token.
pub trait TokenRequest: Serialize {
    const PATH: &'static str;
}

impl TokenRequest for DataplaneTokenRequest {
    const PATH: &'static str = "/tokens/dataplane";
}

impl TokenRequest for ZoneTokenRequest {
    const PATH: &'static str = "/tokens/zone";
}

impl TokenRequest for UserTokenRequest {
    const PATH: &'static str = "/tokens/user";
}

impl ApiClient {
    fn ask<T: DeserializeOwned>(&self, address: &Address) -> Result<Reply<T>> {
        self.get(&address.text).map(Reply::new)
    }

    fn send<T: DeserializeOwned>(&self, address: &Address, body: &impl Serialize) -> Result<Reply<T>> {
        self.post(&address.text, &as_sent(body)?).map(Reply::new)
    }

    /// A token, as text.
    pub fn token<R: TokenRequest>(&self, request: &R) -> Result<ApiResponse> {
        self.post(R::PATH, &as_sent(request)?)
    }

    /// The control plane itself.
    pub fn index(&self) -> Result<Reply<Index>> {
        self.ask(&Address::at("/"))
    }

    /// The configuration of the control plane, for users who may read it.
    pub fn configuration(&self) -> Result<Reply<Configuration>> {
        self.ask(&Address::at("/config"))
    }

    /// The user that this client is.
    pub fn user(&self) -> Result<Reply<User>> {
        self.ask(&Address::at("/who-am-i"))
    }

    /// The types that the control plane serves.
    pub fn resource_types(&self) -> Result<Reply<ResourceTypes>> {
        self.ask(&Address::at("/_resources"))
    }

    /// Access of one workload to another.
    pub fn access(&self, call: &Call<'_>) -> Result<Reply<Access>> {
        let Call { mesh, from, to, port } = *call;
        let address = Address::of_mesh(mesh, "_access").with("from", from).with("to", to);
        self.ask(&address.maybe("port", port))
    }

    /// The graph of access; with a service, only that one and those beside it.
    pub fn graph(&self, mesh: &str, service: Option<&str>) -> Result<Reply<AccessGraph>> {
        self.ask(&Address::of_mesh(mesh, "_graph").maybe("service", service))
    }

    /// Rates and latencies of calls.
    pub fn signals(&self, mesh: &str, question: &SignalQuestion<'_>) -> Result<Reply<SignalList>> {
        let SignalQuestion { by, window, client, server, zone } = question;
        let address = Address::of_mesh(mesh, "_signals").with("by", by).with("window", window);
        self.ask(&address.maybe("client", *client).maybe("server", *server).maybe("zone", *zone))
    }

    /// Permissions for observed calls.
    pub fn suggestions(&self, mesh: &str, service: Option<&str>) -> Result<Reply<Suggestions>> {
        self.ask(&Address::of_mesh(mesh, "_suggestions").maybe("service", service))
    }

    /// Calls that would be trimmed.
    pub fn would_be_trimmed(&self, mesh: &str) -> Result<Reply<ObservedCalls>> {
        self.ask(&Address::of_mesh(mesh, "_observed").with("wouldBeTrimmed", "true"))
    }

    /// The worst findings of a mesh.
    pub fn worst_findings(&self, mesh: &str, most: usize) -> Result<Reply<ProblemList>> {
        self.ask(&Address::of_mesh(mesh, "_problems").with("size", &most.to_string()))
    }

    /// Findings about one resource.
    pub fn findings_about(&self, mesh: &str, kri: &str) -> Result<Reply<ProblemList>> {
        self.ask(&Address::of_mesh(mesh, "_problems").with("kri", kri))
    }

    /// The destinations of a server name.
    pub fn known_sni(&self, mesh: &str, value: &str) -> Result<Reply<Listing<KnownSni>>> {
        self.ask(&Address::of_mesh(mesh, "_sni").with("value", value))
    }

    /// The effect of changes. `proxies`: those whose configuration is compared, `*` for all.
    pub fn what_if(&self, mesh: &str, request: &WhatIfRequest, proxies: &[String]) -> Result<Reply<WhatIf>> {
        let address = Address::of_mesh(mesh, "_what-if");
        self.send(&proxies.iter().fold(address, |address, name| address.with("diff", name)), request)
    }

    /// Admission of changes, without their effect.
    pub fn admission(&self, mesh: &str, resources: &[&Value]) -> Result<Reply<WhatIf>> {
        let address = Address::of_mesh(mesh, "_what-if").with("only", "admission");
        self.send(&address, &json!({ "resources": resources }))
    }

    pub fn layout(&self, proxy: &Proxy<'_>) -> Result<Reply<ProxyLayout>> {
        self.ask(&Address::of_proxy(proxy, "_layout"))
    }

    pub fn hostnames(&self, proxy: &Proxy<'_>) -> Result<Reply<HostnameList>> {
        self.ask(&Address::of_proxy(proxy, "_hostnames"))
    }

    pub fn rules(&self, proxy: &Proxy<'_>) -> Result<Reply<ProxyRules>> {
        self.ask(&Address::of_proxy(proxy, "_rules"))
    }

    /// Policies of the proxy as a whole.
    pub fn policies(&self, proxy: &Proxy<'_>) -> Result<Reply<PolicyList>> {
        self.ask(&Address::of_proxy(proxy, "_policies"))
    }

    pub fn inbound_policies(&self, proxy: &Proxy<'_>, inbound: &str) -> Result<Reply<PolicyList>> {
        self.ask(&Address::of_proxy(proxy, &format!("_inbounds/{}/_policies", segment(inbound))))
    }

    pub fn outbound_policies(&self, proxy: &Proxy<'_>, outbound: &str) -> Result<Reply<PolicyList>> {
        self.ask(&Address::of_proxy(proxy, &format!("_outbounds/{}/_policies", segment(outbound))))
    }

    pub fn routes(&self, proxy: &Proxy<'_>, outbound: &str) -> Result<Reply<RouteList>> {
        self.ask(&Address::of_proxy(proxy, &format!("_outbounds/{}/_routes", segment(outbound))))
    }

    pub fn route_policies(
        &self,
        proxy: &Proxy<'_>,
        outbound: &str,
        route: &str,
    ) -> Result<Reply<PolicyList>> {
        let view = format!("_outbounds/{}/_routes/{}/_policies", segment(outbound), segment(route));
        self.ask(&Address::of_proxy(proxy, &view))
    }

    /// All destinations of a proxy.
    pub fn reachability(&self, proxy: &Proxy<'_>) -> Result<Reply<ProxyReachability>> {
        self.ask(&Address::of_proxy(proxy, "_reachability"))
    }

    /// One destination of a proxy, explained.
    pub fn destination_reachability(
        &self,
        proxy: &Proxy<'_>,
        to: &str,
    ) -> Result<Reply<DestinationReachability>> {
        self.ask(&Address::of_proxy(proxy, "_reachability").with("to", to))
    }

    pub fn proxy_sync(&self, proxy: &Proxy<'_>) -> Result<Reply<ProxySync>> {
        self.ask(&Address::of_proxy(proxy, "_sync"))
    }

    pub fn log_levels(&self, proxy: &Proxy<'_>) -> Result<Reply<ProxyLogLevels>> {
        self.ask(&Address::of_proxy(proxy, "logging"))
    }

    /// Changes the level of one logger, or of all.
    pub fn set_log_level(
        &self,
        proxy: &Proxy<'_>,
        level: &str,
        logger: Option<&str>,
    ) -> Result<Reply<ProxyLogLevels>> {
        let address = Address::of_proxy(proxy, "logging").with("level", level).maybe("logger", logger);
        self.send(&address, &json!({}))
    }

    /// Statistics by resource. `unused`: those that never changed too.
    pub fn stats_summary(&self, proxy: &Proxy<'_>, unused: bool) -> Result<Reply<StatsSummary>> {
        let address = Address::of_proxy(proxy, "stats").with("format", "summary");
        self.ask(&if unused { address.with("usedonly", "false") } else { address })
    }
}

fn as_sent(body: &impl Serialize) -> Result<Value> {
    serde_json::to_value(body)
        .map_err(|error| Failure::failed(format!("could not write the request: {error}")))
}
