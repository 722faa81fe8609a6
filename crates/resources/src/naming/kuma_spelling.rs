//! Kuma's spelling of what belongs to a proxy, for those who look for it: `self_inbound_dp_http` for `self_http`.

use std::collections::HashMap;

use super::{SelfName, self_name::PASSTHROUGHS};
use crate::{Resource, Spec};

/// Characters that end the name of an object in Envoy's output, apart from the dots inside.
const ENDS: [char; 5] = ['"', ':', '\n', ' ', '\r'];

/// The names of one proxy that Kuma spells otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KumaSpelling(HashMap<String, String>);

impl KumaSpelling {
    /// The names of the proxy that the resource describes; none for resources of other kinds.
    pub fn of(proxy: &Resource) -> KumaSpelling {
        let of_port = |port: u32, kind: &str| (format!("self_{port}"), format!("self_inbound_{kind}_{port}"));
        KumaSpelling(match &proxy.spec {
            Spec::Dataplane(dataplane) => {
                let sections =
                    dataplane.inbounds().iter().filter_map(|inbound| inbound.section_name().parse().ok());
                let passthroughs = PASSTHROUGHS.into_iter().map(|(ip, way)| SelfName::Passthrough(ip, way));
                let names = sections.map(SelfName::Inbound).chain(passthroughs);
                names.map(|name| (name.to_string(), name.shipped_alias())).collect()
            }
            Spec::ZoneIngress(ingress) => {
                ingress.networking.iter().map(|at| of_port(at.port, "zi")).collect()
            }
            Spec::ZoneEgress(egress) => egress.networking.iter().map(|at| of_port(at.port, "ze")).collect(),
            _ => HashMap::new(),
        })
    }

    /// Kuma's spelling of one name; the name itself where that is the same.
    pub fn name<'n>(&'n self, name: &'n str) -> &'n str {
        self.0.get(name).map_or(name, String::as_str)
    }

    /// Rewrites Envoy's output, text or JSON, to Kuma's spelling of each name that stands alone, in quotes,
    /// or between the dots of a statistic.
    pub fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 8);
        let mut written = 0;
        for (at, _) in text.match_indices("self_") {
            let begins =
                text[..at].chars().next_back().is_none_or(|before| before == '.' || ENDS.contains(&before));
            if at < written || !begins {
                continue;
            }
            if let Some((name, spelled)) = self.longest(&text[at..]) {
                out.push_str(&text[written..at]);
                out.push_str(spelled);
                written = at + name.len();
            }
        }
        out.push_str(&text[written..]);
        out
    }

    /// The longest of the names that the text begins with: names have dots inside, so one may begin another.
    fn longest<'t>(&self, text: &'t str) -> Option<(&'t str, &str)> {
        let mut name = &text[..text.find(ENDS).unwrap_or(text.len())];
        loop {
            if let Some(spelled) = self.0.get(name) {
                return Some((name, spelled));
            }
            name = &name[..name.rfind('.')?];
        }
    }
}
