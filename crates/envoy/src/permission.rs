//! Permissions as Envoy's role based access control.

use envoy_types::pb::{
    envoy::{
        config::rbac::v3 as rbac,
        extensions::filters::{http::rbac::v3 as http, network::rbac::v3 as network},
    },
    xds::r#type::matcher::v3::{Matcher, matcher::OnMatch},
};
use policy::{Effect, Permissions};

use crate::matching;

/// Name of a refusal when no rule matched.
const NO_RULE: &str = "default";

/// Kuma's name for a decision.
const ACTION: &str = "envoy.filters.rbac.action";

/// The network filter.
pub(crate) fn network(mesh: &str, permissions: &Permissions, stats: &str) -> network::Rbac {
    network::Rbac {
        matcher: Some(matcher(mesh, permissions, false)),
        // Its own prefix holds for shadow statistics too.
        shadow_matcher: shadow(mesh, permissions),
        stat_prefix: stats.to_owned(),
        ..Default::default()
    }
}

/// The HTTP filter.
pub(crate) fn http(mesh: &str, permissions: &Permissions, stats: &str) -> http::Rbac {
    let shadow = shadow(mesh, permissions);
    http::Rbac {
        matcher: Some(matcher(mesh, permissions, false)),
        rules_stat_prefix: stats.to_owned(),
        shadow_rules_stat_prefix: shadow.as_ref().map(|_| stats.to_owned()).unwrap_or_default(),
        shadow_matcher: shadow,
        ..Default::default()
    }
}

/// Returns the decisions as if shadow denials were real; `None` when there are none.
fn shadow(mesh: &str, permissions: &Permissions) -> Option<Matcher> {
    let any = permissions.rules.iter().any(|rule| rule.effect == Effect::AllowWithShadowDeny);
    any.then(|| matcher(mesh, permissions, true))
}

fn matcher(mesh: &str, permissions: &Permissions, shadow: bool) -> Matcher {
    let rules = permissions.rules.iter().map(|rule| {
        let action = match (rule.effect, shadow) {
            (Effect::Allow, _) | (Effect::AllowWithShadowDeny, false) => rbac::rbac::Action::Allow,
            (Effect::Deny, _) | (Effect::AllowWithShadowDeny, true) => rbac::rbac::Action::Deny,
        };
        (&rule.client, decide(&rule.origin.to_string(), action))
    });
    matching::first_of(mesh, rules, Some(decide(NO_RULE, rbac::rbac::Action::Deny)))
}

fn decide(name: &str, action: rbac::rbac::Action) -> OnMatch {
    matching::action(ACTION, &rbac::Action { name: name.to_owned(), action: action.into() })
}
