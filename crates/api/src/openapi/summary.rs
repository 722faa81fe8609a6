//! What each operation does, in a sentence.

use resources::Kind;

use crate::route::Operation;

/// What an operation does, in a sentence.
pub fn of(operation: Operation) -> String {
    match operation {
        Operation::Index => "Which control plane this is".into(),
        Operation::Config => "The configuration of the control plane, secrets masked".into(),
        Operation::WhoAmI => "The user making the request".into(),
        Operation::Backup => {
            "Everything that is stored, secrets included, as kuma-cp store import reads it".into()
        }
        Operation::Policies => "The policy kinds".into(),
        Operation::ResourceTypes => "The kinds of resources".into(),
        Operation::GlobalInsight => "Counts over the whole control plane".into(),
        Operation::GlobalInsights => "How many resources of each global kind there are".into(),
        Operation::ByKri => "A resource by its identifier".into(),
        Operation::DataplaneToken => "Issue a token for a dataplane proxy".into(),
        Operation::ZoneToken => "Issue a token for a zone".into(),
        Operation::UserToken => "Issue a token for a user".into(),
        Operation::Hostnames => "The hostnames of a service".into(),
        Operation::ServiceDataplanes => "The Dataplanes of a MeshService".into(),
        Operation::ProxyXds(_) => "The configuration a proxy has, as Envoy dumps it, without secrets".into(),
        Operation::ProxyStats(Kind::Dataplane) => {
            "The statistics of a proxy; with format=summary by the names of its resources".into()
        }
        Operation::ProxyStats(_) => "The statistics of a proxy".into(),
        Operation::ProxyClusters(_) => "The clusters of a proxy and how they are".into(),
        Operation::ProxyLogging => "How much a proxy logs".into(),
        Operation::ProxySetLogging => "Change how much a proxy logs, until it restarts".into(),
        Operation::ProxyConfig => "The configuration a proxy would be sent now, without secrets".into(),
        Operation::ProxyLayout => "What a proxy consists of, and what it is called in Envoy".into(),
        Operation::ProxyHostnames => "The hostnames that a proxy offers something under".into(),
        Operation::ProxyRules => "Every rule in effect for a proxy".into(),
        Operation::ProxyPolicies => "The policies in effect for a proxy as a whole".into(),
        Operation::InboundPolicies => "The policies in effect for an inbound of a proxy".into(),
        Operation::OutboundPolicies => "The policies in effect for an outbound of a proxy".into(),
        Operation::OutboundRoutes => "The routes of an outbound of a proxy".into(),
        Operation::RoutePolicies => "The policies in effect for a route of an outbound".into(),
        Operation::PolicyDataplanes(kind) => format!("The Dataplanes that a {} selects", kind.name()),
        Operation::OlderPolicies => "The policies that select a proxy, by kind".into(),
        Operation::OlderRules => "Every rule by tags in effect for a proxy".into(),
        Operation::OlderDataplanes(kind) => {
            format!("The Dataplanes that a {} selects, for older clients", kind.name())
        }
        Operation::ServiceInsightList => "What is known about services".into(),
        Operation::ServiceInsight => "What is known about a service".into(),
        Operation::List(kind) => format!("List {}", kind.descriptor().plural_display_name()),
        Operation::Get(kind) => format!("Get a {}", kind.name()),
        Operation::Put(kind) => format!("Create or replace a {}", kind.name()),
        Operation::Delete(kind) => format!("Delete a {}", kind.name()),
        Operation::OverviewList(kind) => {
            format!("List {} with their insights", kind.descriptor().plural_display_name())
        }
        Operation::Overview(kind) => format!("Get a {} with its insight", kind.name()),
        inspecting => of_mesh(inspecting).into(),
    }
}

/// Of what looks at a whole mesh, or at who may call whom in it.
fn of_mesh(operation: Operation) -> &'static str {
    match operation {
        Operation::Access => "May one workload call another, and which rule says so",
        Operation::Observed => "Who was seen calling what",
        Operation::ProxyReachability => {
            "What a proxy can reach and what is trimmed from it; with to, why it can reach a destination"
        }
        Operation::MeshReachability => "What trimming by permissions saves each proxy, or would save",
        Operation::Graph => "Who may call whom, as a graph of services",
        Operation::Problems => "What may be wrong with the mesh, the worst first",
        Operation::Snis => "Where values of SNI lead to, by value",
        Operation::SniUsage => "How many connections zone proxies saw with each value of SNI",
        Operation::ProxySync => "Whether a proxy runs what every change made until now comes to",
        Operation::Suggestions => "The MeshTrafficPermissions that observed calls need",
        Operation::WhatIf => "What writes and deletions would do; nothing is written",
        _ => "",
    }
}
