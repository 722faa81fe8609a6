//! The findings of proxies as their insights show them, kept up to date.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use resources::{
    Resource,
    finding::{Code, Finding},
    kinds::dataplane_insight::{CertificateStatus, DataplaneInsight, ResourceRejection},
    naming::Kri,
};

/// So many proxies must reject what a policy made before the policy is blamed; one may have a fault of its own.
const SEVERAL: usize = 2;

/// Findings from reports of a mesh's proxies.
#[derive(Debug, Clone, Default)]
pub struct ProxyFindings {
    /// Only those that reject something.
    rejecting: BTreeMap<Arc<str>, RejectingProxy>,
    /// Proxies that reject the result of a policy.
    blamed: BTreeMap<Kri, BTreeSet<Arc<str>>>,
    /// Certificates by the time when they should have been renewed: owner and end.
    renewals: BTreeMap<(Timestamp, Arc<str>), (Kri, Timestamp)>,
    /// The same by proxy.
    due: BTreeMap<Arc<str>, Timestamp>,
}

#[derive(Debug, Clone)]
struct RejectingProxy {
    findings: Vec<Finding>,
    policies: BTreeSet<Kri>,
}

impl ProxyFindings {
    /// Takes in the insight of a proxy as it is now, with its Dataplane; `None` for one that is gone.
    pub fn apply(&mut self, name: &Arc<str>, now: Option<(&Resource, &DataplaneInsight)>) {
        self.forget(name);
        let Some((dataplane, insight)) = now else { return };
        let Some(kri) = dataplane.kri("") else { return };
        // Who is away neither takes nor rejects anything, and gets a certificate when it is back.
        let mut newest_first = insight.subscriptions.iter().rev();
        let Some(subscription) = newest_first.find(|subscription| subscription.is_online()) else { return };
        let rejections = subscription.status.as_ref().map_or(&[][..], |status| &status.rejections);
        if !rejections.is_empty() {
            let findings = rejections.iter().map(|rejection| rejected(&kri, rejection)).collect();
            let policies: BTreeSet<Kri> =
                rejections.iter().flat_map(|r| r.policies.iter().cloned()).collect();
            for policy in &policies {
                self.blamed.entry(policy.clone()).or_default().insert(name.clone());
            }
            self.rejecting.insert(name.clone(), RejectingProxy { findings, policies });
        }
        if let Some((due, ends)) = insight.mtls.as_ref().and_then(renewal) {
            self.renewals.insert((due, name.clone()), (kri, ends));
            self.due.insert(name.clone(), due);
        }
    }

    fn forget(&mut self, name: &Arc<str>) {
        if let Some(due) = self.due.remove(name) {
            self.renewals.remove(&(due, name.clone()));
        }
        let Some(RejectingProxy { policies, .. }) = self.rejecting.remove(name) else { return };
        for policy in policies {
            let Some(proxies) = self.blamed.get_mut(&policy) else { continue };
            proxies.remove(name);
            if proxies.is_empty() {
                self.blamed.remove(&policy);
            }
        }
    }

    /// Lists the findings at this time.
    pub fn list(&self, now: Timestamp) -> Vec<Finding> {
        let mut found: Vec<Finding> =
            self.rejecting.values().flat_map(|rejecting| rejecting.findings.iter().cloned()).collect();
        for (policy, proxies) in self.blamed.iter().filter(|(_, proxies)| proxies.len() >= SEVERAL) {
            let some: Vec<&str> = proxies.iter().take(3).map(|name| &**name).collect();
            let text =
                format!("{} proxies reject what it makes, {} among them", proxies.len(), some.join(", "));
            found.push(Finding::about(Code::PolicyRejected, policy.clone(), text));
        }
        let overdue = self.renewals.iter().take_while(|((due, _), _)| *due <= now);
        found.extend(overdue.map(|(_, (kri, ends))| {
            let text = format!("its certificate ends at {ends} and was not renewed");
            Finding::about(Code::CertificateExpiring, kri.clone(), text)
        }));
        found
    }
}

fn rejected(proxy: &Kri, rejection: &ResourceRejection) -> Finding {
    let ResourceRejection { kind, name, message, policies, .. } = rejection;
    let made_by: Vec<String> = policies.iter().map(Kri::to_string).collect();
    let made_by =
        if made_by.is_empty() { String::new() } else { format!(" (policies: {})", made_by.join(", ")) };
    Finding::about(Code::Rejected, proxy.clone(), format!("rejects {kind} {name}{made_by}: {message}"))
}

/// Returns the time when a certificate should have been renewed, and its end. Renewal begins at four fifths
/// of its time; at nine tenths something is wrong.
fn renewal(certificate: &CertificateStatus) -> Option<(Timestamp, Timestamp)> {
    let made = certificate.last_certificate_regeneration?;
    let ends = certificate.certificate_expiration_time?;
    let lifetime = ends.as_second().saturating_sub(made.as_second());
    let due = Timestamp::from_second(ends.as_second() - lifetime / 10).ok()?;
    Some((due, ends))
}
