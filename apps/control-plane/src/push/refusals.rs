//! Proxies that may not connect, because their tokens do not bind what a MeshIdentity names them by.
//!
//! They are remembered for a while, for the finding on the MeshIdentity: nothing else tells of a proxy that is not
//! connected.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use findings::{Code, Finding};
use resources::{Key, Resource};
use tokio::time::Instant;
use topology::MeshSnapshot;

use super::lock;

/// How long a proxy is remembered that does not try again. Proxies try again every few seconds.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);
/// How many proxies are remembered for an identity.
const MOST: usize = 1000;
/// How many proxies a finding names.
const EXAMPLES: usize = 3;

/// Proxies that were refused, by MeshIdentity.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<HashMap<Key, Refused>>);

#[derive(Debug)]
struct Refused {
    identity: Arc<Resource>,
    labels: BTreeSet<String>,
    /// By name, with the time of the last attempt.
    proxies: BTreeMap<Arc<str>, Instant>,
}

impl Refusals {
    pub fn add(&self, identity: &Arc<Resource>, proxy: &Arc<str>, labels: &BTreeSet<String>) {
        let now = Instant::now();
        let mut all = lock(&self.0);
        let fresh =
            || Refused { identity: identity.clone(), labels: BTreeSet::new(), proxies: BTreeMap::new() };
        let refused = all.entry(identity.key.clone()).or_insert_with(fresh);
        if refused.identity.spec != identity.spec {
            *refused = fresh();
        }
        if refused.proxies.len() >= MOST {
            refused.forget_old(now);
        }
        if refused.proxies.len() < MOST || refused.proxies.contains_key(proxy) {
            refused.proxies.insert(proxy.clone(), now);
            refused.labels.extend(labels.iter().cloned());
        }
    }

    pub fn remove(&self, proxy: &Key) {
        lock(&self.0).retain(|identity, refused| {
            if identity.mesh == proxy.mesh {
                refused.proxies.remove(&proxy.name);
            }
            !refused.proxies.is_empty()
        });
    }

    /// One finding for each MeshIdentity of a mesh that proxies were refused for and that is still the same.
    pub fn findings(&self, mesh: &MeshSnapshot) -> Vec<Finding> {
        let now = Instant::now();
        let mut all = lock(&self.0);
        all.retain(|identity, refused| {
            refused.forget_old(now);
            let is_known = || mesh.identities.iter().any(|known| known.spec == refused.identity.spec);
            !refused.proxies.is_empty() && (*identity.mesh != *mesh.name || is_known())
        });
        let of_mesh = all.values().filter(|refused| refused.identity.mesh() == &*mesh.name);
        of_mesh.filter_map(Refused::finding).collect()
    }
}

impl Refused {
    fn forget_old(&mut self, now: Instant) {
        self.proxies.retain(|_, tried| now.saturating_duration_since(*tried) < REMEMBERED);
    }

    fn finding(&self) -> Option<Finding> {
        let shown: Vec<&str> = self.proxies.keys().take(EXAMPLES).map(|name| &**name).collect();
        let count = self.proxies.len();
        let refused = match count {
            1 => "a proxy is refused,".to_owned(),
            MOST.. => format!("at least {MOST} proxies are refused, such as"),
            _ => format!("{count} proxies are refused, such as"),
        };
        let flags = self.labels.iter().map(|label| (label.as_str(), "VALUE"));
        let text = format!(
            "{refused} {}: the identity names them by {}, and their tokens do not \
             bind that: start them with tokens of 'kumactl generate dataplane-token {}'",
            shown.join(", "),
            plan::in_words(&self.labels),
            plan::token_flags(flags),
        );
        Some(Finding::about(Code::IdentityNotVouched, self.identity.kri("")?, text))
    }
}
