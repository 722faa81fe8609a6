//! Traits of every policy, one row each.
//!
//! A row has no defaults, so the compiler names what a new policy has to answer; code that treats
//! policies by kind (validation, resolving, planning, inspection, the REST API) reads it here.

use serde::de::DeserializeOwned;

use crate::{
    kind::TypedSpec,
    kinds::target_ref::{TargetRef, TargetRefKind as K},
};

/// Everything that is the same for all policies of a kind, and different between kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyTraits {
    /// Kinds that `targetRef` may name; `None` for policies from before `targetRef`.
    pub top: Option<Targets>,
    pub to: Option<Entries>,
    pub from: Option<Entries>,
    pub rules: Option<Rules>,
    /// `default` at the top holds a conf for the whole proxy.
    pub default: bool,
    /// Rules for merging the confs of several policies.
    pub merge: Shape,
    /// Effect on proxies; `None` for a policy that is stored and has no effect.
    pub effect: Option<Effect>,
}

/// The kinds that `targetRef` at the top may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Targets {
    pub any_role: &'static [K],
    /// In policies of the system, which alone may select gateways.
    pub system: &'static [K],
}

/// The entries of `to` or `from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entries {
    /// The kinds that `targetRef` of an entry may name. Where a policy is about gateways or routes, its
    /// validation narrows this.
    pub targets: &'static [K],
    pub conf: ConfAt,
}

/// Place of an entry's conf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfAt {
    /// In `default`.
    Default,
    /// In its fields beside `targetRef`.
    Beside,
}

/// The entries of `rules`, which hold for incoming traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Entries of `from` count as rules without a condition.
    pub from_counts: bool,
}

/// Exceptions in merging the confs of a kind; otherwise objects merge field by field and everything else
/// replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    /// The list of rules inside a conf. Where each of its entries came from is remembered.
    pub rules: Option<RuleList>,
    /// A list of strings; each of its values gets a merged conf of its own.
    pub grouped: Option<&'static str>,
}

/// Rule for merging the `rules` inside confs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuleList {
    /// The list of the highest precedence replaces the others.
    Replaced,
    /// Rules that agree in this field merge, and those of the highest precedence come first.
    ByField(&'static str),
}

/// Effect of a policy on proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    /// Parts of a proxy that the policy configures; never empty.
    pub sides: &'static [ProxySide],
    pub shown: PolicyPresentation,
}

/// A part of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxySide {
    Inbound,
    Outbound,
    Proxy,
    /// Destinations behind an egress, if the policy is for the whole mesh.
    Egress,
}

/// Form in which inspection shows the result of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyPresentation {
    /// As confs.
    Confs,
    /// As what holds for which clients.
    Clients,
    /// As where traffic goes. `with_matches` if a route is for a part of it.
    Routes { with_matches: bool },
}

impl PolicyTraits {
    /// True if the policy configures this side.
    pub fn is_about(&self, side: ProxySide) -> bool {
        self.effect.is_some_and(|effect| effect.sides.contains(&side))
    }
}

/// The spec of a policy, with the types of its confs.
pub trait Policy: TypedSpec {
    /// The conf of an entry of `to`, as it is after merging; [`serde::de::IgnoredAny`] without `to`.
    type To: DeserializeOwned + Send + Sync + 'static;

    /// `None` where it was left out, which means the whole mesh.
    fn target_ref(&self) -> Option<&TargetRef>;
}

const PLAIN: Shape = Shape { rules: None, grouped: None };

const SIDECARS: &[K] = &[K::Mesh, K::MeshSubset, K::MeshService, K::MeshServiceSubset, K::Dataplane];
const SIDECARS_AND_GATEWAYS: &[K] =
    &[K::Mesh, K::MeshSubset, K::MeshService, K::MeshServiceSubset, K::Dataplane, K::MeshGateway];
const SIDECARS_GATEWAYS_AND_ROUTES: &[K] = &[
    K::Mesh,
    K::MeshSubset,
    K::MeshService,
    K::MeshServiceSubset,
    K::Dataplane,
    K::MeshGateway,
    K::MeshHttpRoute,
];
/// Whole proxies, which nothing of a service distinguishes.
const PROXIES: &[K] = &[K::Mesh, K::MeshSubset, K::Dataplane];
const CLIENTS: &[K] = &[K::Mesh, K::MeshSubset, K::MeshService, K::MeshServiceSubset];
const SERVICES: &[K] = &[K::MeshService, K::MeshExternalService, K::MeshMultiZoneService];
const SERVICES_AND_ROUTES: &[K] =
    &[K::Mesh, K::MeshService, K::MeshExternalService, K::MeshMultiZoneService, K::MeshHttpRoute];

pub const MESH_ACCESS_LOG: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_AND_GATEWAYS }),
    to: Some(Entries { targets: SERVICES_AND_ROUTES, conf: ConfAt::Default }),
    from: Some(Entries { targets: &[K::Mesh], conf: ConfAt::Default }),
    rules: Some(Rules { from_counts: true }),
    default: false,
    merge: PLAIN,
    effect: Some(Effect {
        sides: &[ProxySide::Inbound, ProxySide::Outbound],
        shown: PolicyPresentation::Confs,
    }),
};

pub const MESH_CIRCUIT_BREAKER: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_AND_GATEWAYS }),
    to: Some(Entries {
        targets: &[K::Mesh, K::MeshService, K::MeshExternalService, K::MeshMultiZoneService],
        conf: ConfAt::Default,
    }),
    from: Some(Entries { targets: &[K::Mesh], conf: ConfAt::Default }),
    rules: Some(Rules { from_counts: true }),
    default: false,
    merge: PLAIN,
    effect: Some(Effect {
        sides: &[ProxySide::Inbound, ProxySide::Outbound, ProxySide::Egress],
        shown: PolicyPresentation::Confs,
    }),
};

pub const MESH_FAULT_INJECTION: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_AND_GATEWAYS }),
    to: Some(Entries { targets: &[K::Mesh], conf: ConfAt::Default }),
    from: Some(Entries { targets: CLIENTS, conf: ConfAt::Default }),
    rules: Some(Rules { from_counts: false }),
    default: false,
    merge: PLAIN,
    effect: Some(Effect { sides: &[ProxySide::Inbound], shown: PolicyPresentation::Clients }),
};

pub const MESH_HEALTH_CHECK: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_AND_GATEWAYS }),
    to: Some(Entries {
        targets: &[K::Mesh, K::MeshService, K::MeshExternalService, K::MeshMultiZoneService],
        conf: ConfAt::Default,
    }),
    from: None,
    rules: None,
    default: false,
    merge: PLAIN,
    effect: Some(Effect {
        sides: &[ProxySide::Outbound, ProxySide::Egress],
        shown: PolicyPresentation::Confs,
    }),
};

pub const MESH_HTTP_ROUTE: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_AND_GATEWAYS }),
    to: Some(Entries { targets: SERVICES, conf: ConfAt::Beside }),
    from: None,
    rules: None,
    default: false,
    merge: Shape { rules: Some(RuleList::ByField("matches")), grouped: Some("hostnames") },
    effect: Some(Effect {
        sides: &[ProxySide::Outbound],
        shown: PolicyPresentation::Routes { with_matches: true },
    }),
};

pub const MESH_LOAD_BALANCING_STRATEGY: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS_AND_GATEWAYS, system: SIDECARS_AND_GATEWAYS }),
    to: Some(Entries {
        targets: &[K::Mesh, K::MeshService, K::MeshMultiZoneService, K::MeshHttpRoute],
        conf: ConfAt::Default,
    }),
    from: None,
    rules: None,
    default: false,
    merge: PLAIN,
    effect: Some(Effect {
        sides: &[ProxySide::Outbound, ProxySide::Egress],
        shown: PolicyPresentation::Confs,
    }),
};

pub const MESH_METRIC: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_AND_GATEWAYS }),
    to: None,
    from: None,
    rules: None,
    default: true,
    merge: PLAIN,
    effect: Some(Effect { sides: &[ProxySide::Proxy], shown: PolicyPresentation::Confs }),
};

pub const MESH_PASSTHROUGH: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: PROXIES, system: PROXIES }),
    to: None,
    from: None,
    rules: None,
    default: true,
    merge: PLAIN,
    effect: Some(Effect { sides: &[ProxySide::Proxy], shown: PolicyPresentation::Confs }),
};

pub const MESH_PROXY_PATCH: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_AND_GATEWAYS }),
    to: None,
    from: None,
    rules: None,
    default: true,
    merge: PLAIN,
    effect: Some(Effect { sides: &[ProxySide::Proxy], shown: PolicyPresentation::Confs }),
};

pub const MESH_RATE_LIMIT: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_GATEWAYS_AND_ROUTES }),
    to: Some(Entries { targets: &[K::Mesh], conf: ConfAt::Default }),
    from: Some(Entries { targets: &[K::Mesh], conf: ConfAt::Default }),
    rules: Some(Rules { from_counts: true }),
    default: false,
    merge: PLAIN,
    effect: Some(Effect { sides: &[ProxySide::Inbound], shown: PolicyPresentation::Confs }),
};

pub const MESH_RETRY: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_GATEWAYS_AND_ROUTES }),
    to: Some(Entries { targets: SERVICES_AND_ROUTES, conf: ConfAt::Default }),
    from: None,
    rules: None,
    default: false,
    merge: PLAIN,
    effect: Some(Effect { sides: &[ProxySide::Outbound], shown: PolicyPresentation::Confs }),
};

pub const MESH_TCP_ROUTE: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_AND_GATEWAYS }),
    to: Some(Entries { targets: SERVICES, conf: ConfAt::Beside }),
    from: None,
    rules: None,
    default: false,
    merge: Shape { rules: Some(RuleList::Replaced), grouped: None },
    effect: Some(Effect {
        sides: &[ProxySide::Outbound],
        shown: PolicyPresentation::Routes { with_matches: false },
    }),
};

pub const MESH_TIMEOUT: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_GATEWAYS_AND_ROUTES }),
    to: Some(Entries { targets: SERVICES_AND_ROUTES, conf: ConfAt::Default }),
    from: Some(Entries { targets: &[K::Mesh], conf: ConfAt::Default }),
    rules: Some(Rules { from_counts: true }),
    default: false,
    merge: PLAIN,
    effect: Some(Effect {
        sides: &[ProxySide::Inbound, ProxySide::Outbound],
        shown: PolicyPresentation::Confs,
    }),
};

pub const MESH_TLS: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: PROXIES, system: PROXIES }),
    to: None,
    from: Some(Entries { targets: &[K::Mesh], conf: ConfAt::Default }),
    rules: Some(Rules { from_counts: true }),
    default: false,
    merge: PLAIN,
    // Versions and ciphers hold for what the proxy calls, too, but no destination has a conf of its own.
    effect: Some(Effect { sides: &[ProxySide::Inbound], shown: PolicyPresentation::Confs }),
};

pub const MESH_TRACE: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS_AND_GATEWAYS }),
    to: None,
    from: None,
    rules: None,
    default: true,
    merge: PLAIN,
    effect: Some(Effect { sides: &[ProxySide::Proxy], shown: PolicyPresentation::Confs }),
};

pub const MESH_TRAFFIC_PERMISSION: PolicyTraits = PolicyTraits {
    top: Some(Targets { any_role: SIDECARS, system: SIDECARS }),
    to: None,
    from: Some(Entries { targets: CLIENTS, conf: ConfAt::Default }),
    rules: Some(Rules { from_counts: false }),
    default: false,
    merge: PLAIN,
    effect: Some(Effect {
        sides: &[ProxySide::Inbound, ProxySide::Egress],
        shown: PolicyPresentation::Clients,
    }),
};

pub const VIRTUAL_OUTBOUND: PolicyTraits =
    PolicyTraits { top: None, to: None, from: None, rules: None, default: false, merge: PLAIN, effect: None };
