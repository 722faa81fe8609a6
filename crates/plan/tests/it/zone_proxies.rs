//! Proxies that serve a zone instead of a workload.

use plan::{Error, Plan, ProxyKind, ProxyTraits};

use crate::support::{PLAIN, mesh, unified};

const PROXIES: &str = r#"
type: ZoneIngress
name: gate
networking: { address: 127.0.0.7, port: 10001, advertisedAddress: 192.168.0.7, advertisedPort: 10001 }
---
type: ZoneEgress
name: gate
networking: { address: 127.0.0.8, port: 10002 }
"#;

#[test]
fn a_zone_proxy_offers_its_own_interface_where_it_runs() {
    let mesh = mesh(&[PLAIN, PROXIES]);
    let planned = |kind| plan::plan(&mesh, &ProxyTraits { kind, ..unified("gate") });
    let Ok(Plan::Ingress(ingress)) = planned(ProxyKind::Ingress) else { panic!("it is an ingress") };
    let Ok(Plan::Egress(egress)) = planned(ProxyKind::Egress) else { panic!("it is an egress") };
    for (proxy, address) in [(ingress, "127.0.0.7"), (egress, "127.0.0.8")] {
        let admin = proxy.admin.unwrap();
        assert_eq!((admin.address.to_string().as_str(), admin.port), (address, 9901));
        assert_eq!(proxy.problems, []);
    }
    assert!(matches!(planned(ProxyKind::Sidecar), Err(Error::NoDataplane { .. })));
    let missing = plan::plan(&mesh, &ProxyTraits { kind: ProxyKind::Ingress, ..unified("other") });
    assert_eq!(
        missing.unwrap_err().to_string(),
        "cannot plan proxy \"other\": there is no ZoneIngress of that name"
    );
}
