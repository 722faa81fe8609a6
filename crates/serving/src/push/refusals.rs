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

/// Time for which a proxy is remembered that does not try again. Proxies try again every few seconds.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);
/// Largest number of proxies that are remembered for an identity.
const MOST: usize = 1000;
/// Number of proxies that a finding names.
const EXAMPLES: usize = 3;

/// Proxies that were refused, by mesh: admissions look at their own.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<HashMap<Arc<str>, RefusedInMesh>>);

/// Refused proxies by name of the MeshIdentity.
type RefusedInMesh = BTreeMap<Arc<str>, RefusedProxies>;

#[derive(Debug)]
struct RefusedProxies {
    identity: Arc<Resource>,
    labels: BTreeSet<String>,
    /// By name, with the time of the last attempt.
    proxies: BTreeMap<Arc<str>, Instant>,
}

impl Refusals {
    pub fn add(&self, identity: &Arc<Resource>, proxy: &Arc<str>, labels: &BTreeSet<String>) {
        let now = Instant::now();
        let mut all = lock(&self.0);
        let fresh = || RefusedProxies {
            identity: identity.clone(),
            labels: BTreeSet::new(),
            proxies: BTreeMap::new(),
        };
        let of_mesh = all.entry(identity.key.mesh.clone()).or_default();
        let refused = of_mesh.entry(identity.key.name.clone()).or_insert_with(fresh);
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
        let mut all = lock(&self.0);
        let Some(of_mesh) = all.get_mut(&proxy.mesh) else { return };
        // Its identity may be another one than the one that it was refused for.
        of_mesh.retain(|_, refused| {
            refused.proxies.remove(&proxy.name);
            !refused.proxies.is_empty()
        });
        if of_mesh.is_empty() {
            all.remove(&proxy.mesh);
        }
    }

    /// One finding for each MeshIdentity of a mesh that proxies were refused for and that is still the same.
    pub fn findings(&self, mesh: &MeshSnapshot) -> Vec<Finding> {
        let now = Instant::now();
        let mut all = lock(&self.0);
        all.retain(|name, of_mesh| {
            of_mesh.retain(|_, refused| {
                refused.forget_old(now);
                let is_known = || mesh.identities.iter().any(|known| known.spec == refused.identity.spec);
                !refused.proxies.is_empty() && (**name != *mesh.name || is_known())
            });
            !of_mesh.is_empty()
        });
        let of_mesh = all.get(&*mesh.name).into_iter().flat_map(BTreeMap::values);
        of_mesh.filter_map(RefusedProxies::finding).collect()
    }
}

impl RefusedProxies {
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
