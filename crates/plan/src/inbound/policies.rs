//! The policies of an inbound, and which parts of them cannot be applied.

use std::collections::BTreeSet;

use policy::{ClientMatch, FromRule, InboundRule};
use resources::{Kind, kinds::dataplane, naming::Kri};

use crate::{Code, Effective, Finding, ServerTls};

/// Fields of a rule that hold for all clients of an inbound or for none.
const OF_ALL_CLIENTS: [&str; 6] = [
    "/connectionTimeout",
    "/idleTimeout",
    "/http/maxStreamDuration",
    "/http/maxConnectionDuration",
    "/http/requestHeadersTimeout",
    "/local/tcp",
];

/// The rules of the policies that apply to an inbound, by kind.
pub(super) struct InboundPolicies {
    pub timeouts: Vec<InboundRule>,
    pub breakers: Vec<InboundRule>,
    pub faults: Vec<InboundRule>,
    pub faults_from: Vec<FromRule>,
    pub limits: Vec<InboundRule>,
    pub logs: Vec<InboundRule>,
}

impl InboundPolicies {
    pub fn of(effective: &Effective<'_>, inbound: &dataplane::Inbound) -> InboundPolicies {
        let rules = |kind| effective.inbound_rules(kind, inbound);
        InboundPolicies {
            timeouts: rules(Kind::MeshTimeout),
            breakers: rules(Kind::MeshCircuitBreaker),
            faults: rules(Kind::MeshFaultInjection),
            faults_from: effective.inbound_from(Kind::MeshFaultInjection, inbound),
            limits: rules(Kind::MeshRateLimit),
            logs: rules(Kind::MeshAccessLog),
        }
    }

    /// Adds what cannot be, once for each policy.
    pub fn report(&self, whose: &str, tls: ServerTls, findings: &mut Vec<Finding>) {
        let rules = || self.timeouts.iter().chain(&self.faults).chain(&self.limits);
        if tls == ServerTls::Off {
            let told_apart = |client: &Option<ClientMatch>| *client != Some(ClientMatch::Anyone);
            let from = self.faults_from.iter().filter(|rule| told_apart(&rule.client));
            let conditions = rules().filter(|rule| rule.client.is_some()).map(|rule| &rule.conf);
            for policy in policies(conditions.chain(from.map(|rule| &rule.conf)).map(|conf| &conf.origin)) {
                let text = format!(
                    "{whose}: {policy} distinguishes clients, which a mesh without mTLS cannot do; only its \
                    entries for all clients apply"
                );
                findings.push(Finding::about(Code::NeedsMtls, policy, text));
            }
            return;
        }
        let unknown = self.faults_from.iter().filter(|rule| rule.client.is_none());
        for policy in policies(unknown.map(|rule| &rule.conf.origin)) {
            let text = format!("{whose}: clients cannot be identified by the labels in 'from' of {policy}");
            findings.push(Finding::about(Code::IndistinctClients, policy, text));
        }
        let says =
            |rule: &InboundRule| OF_ALL_CLIENTS.iter().find(|at| rule.conf.value.pointer(at).is_some());
        for rule in rules().filter(|rule| rule.client.is_some()) {
            let Some(part) = says(rule) else { continue };
            let policy = rule.conf.origin.without_section();
            let field = part[1..].replace('/', ".");
            let text = format!("{whose}: {field} in a rule for certain clients of {policy} has no effect");
            let finding = Finding::about(Code::UnsupportedCondition, policy, text);
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
}

/// The policies of entries, each once.
fn policies<'a>(entries: impl Iterator<Item = &'a Kri>) -> BTreeSet<Kri> {
    entries.map(Kri::without_section).collect()
}
