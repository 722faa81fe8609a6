//! Findings about proxies from their insights.

use std::sync::Arc;

use findings::ProxyFindings;
use resources::{Kind, Resource, Spec, kinds::dataplane_insight::DataplaneInsight};
use serde_json::{Value, json};

use crate::support::{WEB, line, resources};

fn dataplane(name: &str) -> Resource {
    resources(&[&WEB.replace("name: web\n", &format!("name: {name}\n"))]).remove(0)
}

fn insight(value: Value) -> DataplaneInsight {
    let spec = Spec::from_json(Kind::DataplaneInsight, value, &mut Vec::new()).unwrap();
    spec.get::<DataplaneInsight>().unwrap().clone()
}

fn rejecting(disconnected: bool) -> DataplaneInsight {
    let mut subscription = json!({
        "connectTime": "2026-01-01T00:00:00Z",
        "status": { "rejections": [{
            "type": "lds", "name": "self_http", "message": "no such filter", "policies": ["kri_mpp_default___bad_"],
        }] },
    });
    if disconnected {
        subscription["disconnectTime"] = json!("2026-01-02T00:00:00Z");
    }
    insight(json!({ "subscriptions": [subscription] }))
}

#[track_caller]
fn check(proxies: &ProxyFindings, now: &str, expected: &[&str]) {
    let found: Vec<String> = proxies.list(now.parse().unwrap()).iter().map(line).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_policy_that_several_proxies_reject_is_blamed() {
    let now = "2026-01-03T00:00:00Z";
    let mut proxies = ProxyFindings::default();
    let one = "rejected kri_dp_default___web_: rejects lds self_http (policies: kri_mpp_default___bad_): no such filter";
    let two = one.replace("___web_", "___web-2_");
    proxies.apply(&Arc::from("web"), Some((&dataplane("web"), &rejecting(false))));
    check(&proxies, now, &[one]);
    proxies.apply(&Arc::from("web-2"), Some((&dataplane("web-2"), &rejecting(false))));
    let blamed =
        "policy-rejected kri_mpp_default___bad_: 2 proxies reject what it makes, web, web-2 among them";
    check(&proxies, now, &[one, &two, blamed]);
    // Who is away rejects nothing, and so does who is gone.
    proxies.apply(&Arc::from("web-2"), Some((&dataplane("web-2"), &rejecting(true))));
    check(&proxies, now, &[one]);
    proxies.apply(&Arc::from("web"), None);
    check(&proxies, now, &[]);
}

#[test]
fn a_certificate_that_was_not_renewed_in_time_is_found() {
    let ends = |time: &str| {
        insight(json!({
            "subscriptions": [{ "connectTime": "2026-01-01T00:00:00Z" }],
            "mTLS": { "lastCertificateRegeneration": "2026-01-01T00:00:00Z", "certificateExpirationTime": time },
        }))
    };
    let mut proxies = ProxyFindings::default();
    let (web, name) = (dataplane("web"), Arc::from("web"));
    proxies.apply(&name, Some((&web, &ends("2026-01-11T00:00:00Z"))));
    check(&proxies, "2026-01-09T23:59:59Z", &[]);
    let overdue = "certificate-expiring kri_dp_default___web_: its certificate ends at 2026-01-11T00:00:00Z and was not renewed";
    check(&proxies, "2026-01-10T00:00:00Z", &[overdue]);
    proxies.apply(&name, Some((&web, &ends("2026-01-21T00:00:00Z"))));
    check(&proxies, "2026-01-10T00:00:00Z", &[]);
}
