//! Policies about destinations that are known by their `kuma.io/service` tag only.

use std::{collections::BTreeMap, sync::Arc};

use policy::{MergedPolicy, PolicyView, outbound};
use resources::{
    Kind,
    kinds::{
        mesh_http_route::{MeshHTTPRoute, Rule, ToEntry},
        target_ref::TargetRefKind,
    },
    labels, policy as row,
};

use super::{Effective, EffectiveConf, MeshReferences, merge_of, read};

/// The service that tags name.
pub(super) fn service(tags: &BTreeMap<String, String>) -> &str {
    tags.get(labels::SERVICE).map_or("", String::as_str)
}

impl Effective<'_> {
    /// The conf of a kind for a destination that is known by its `kuma.io/service` tag only.
    pub fn for_service(&self, kind: Kind, service: &str) -> Option<Arc<MergedPolicy>> {
        self.about_service(kind, service, |_| false)
    }

    /// The confs of a kind for requests to such a destination that match rules of routes, with the names of the
    /// rules; none for rules whose requests are treated like all others.
    pub fn for_rules_of_service(&self, kind: Kind, service: &str) -> Vec<(String, Arc<MergedPolicy>)> {
        if !self.has_routes_at_the_top(kind) {
            return Vec::new();
        }
        let routes = self.for_service(Kind::MeshHTTPRoute, service);
        let Some(routes) = routes.and_then(|merged| merged.typed::<ToEntry>().ok()) else {
            return Vec::new();
        };
        let all = self.for_service(kind, service);
        let own = |rule: &Rule| {
            let merged = self.for_rule(kind, service, rule).filter(|own| Some(own) != all.as_ref())?;
            Some((rule.name_by_matches(), merged))
        };
        routes.rules.iter().filter_map(own).collect()
    }

    /// As [`Effective::conf`], for requests to a destination by tags that match a rule of a route.
    pub fn conf_of_rule<P: row::Policy>(
        &self,
        tags: &BTreeMap<String, String>,
        rule: &Rule,
    ) -> Result<Option<EffectiveConf<P::To>>, String> {
        self.for_rule(P::KIND, service(tags), rule).map(read).transpose()
    }

    fn for_rule(&self, kind: Kind, service: &str, rule: &Rule) -> Option<Arc<MergedPolicy>> {
        self.about_service(kind, service, |policy| self.is_of_route(policy, service, rule))
    }

    fn about_service(
        &self,
        kind: Kind,
        service: &str,
        takes: impl Fn(&PolicyView) -> bool,
    ) -> Option<Arc<MergedPolicy>> {
        // Tags are the same in every zone; a policy of another zone is about the services of that zone alone.
        let own = |view: &&PolicyView| !self.snapshot.zones.is_other(&view.kri.zone);
        let views = self.policies(kind).iter().map(|policy| &policy.view).filter(own);
        outbound::for_service(views, service, takes, merge_of(kind)?)
    }

    fn has_routes_at_the_top(&self, kind: Kind) -> bool {
        self.policies(kind).iter().any(|policy| policy.view.top.kind == TargetRefKind::MeshHttpRoute)
    }

    /// The route at the top of a policy has the rule for the service. Rules of several routes with the same
    /// matches are one, so that comparing matches is enough.
    fn is_of_route(&self, policy: &PolicyView, service: &str, rule: &Rule) -> bool {
        let known = MeshReferences { snapshot: self.snapshot, routes: self.routes() };
        let routes = outbound::named(&known, &policy.kri, &policy.top).into_iter();
        let specs = routes.filter_map(|kri| self.route(&kri)?.spec.get::<MeshHTTPRoute>());
        let mut entries = specs.flat_map(|route| &route.to);
        entries.any(|entry| {
            outbound::is_about_service(&entry.target_ref, service)
                && entry.rules.iter().any(|own| own.matches == rule.matches)
        })
    }
}
