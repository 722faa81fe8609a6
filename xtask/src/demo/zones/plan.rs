//! Parts of the demo with zones: addresses, and the resources that are applied.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use anyhow::Context;

use crate::demo::{mesh, ports::Chooser};

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;
const NAMES: [&str; 4] = ["east", "west", "north", "south"];
/// Every proxy has the same ports, on an address of its own.
const INBOUND: u16 = 5050;
const INGRESS: u16 = 10001;
const EGRESS: u16 = 10002;
const ADMIN: u16 = 9901;
/// The name of the global control plane's process.
pub const GLOBAL: &str = "kuma-cp-global";
/// Name of the stores of all zones together.
const KV: &str = "kv.mzsvc.mesh.local";

const MULTI_ZONE_SERVICE: &str = "\
# The stores of all zones under one name: whatever is called kv where it is.
type: MeshMultiZoneService
mesh: default
name: kv
spec:
  selector:
    meshService:
      matchLabels:
        kuma.io/display-name: kv
  ports:
    - name: http
      port: 5050
      appProtocol: http
";

const SPREAD: &str = "\
# Without this the stores of the caller's own zone would be called as long as there is one.
type: MeshLoadBalancingStrategy
mesh: default
name: spread
spec:
  to:
    - targetRef:
        kind: Mesh
      default:
        localityAwareness:
          disabled: true
";

const RETRY: &str = "\
# A call that fails is made once more, at another store.
type: MeshRetry
mesh: default
name: another-store
spec:
  to:
    - targetRef:
        kind: Mesh
      default:
        http:
          numRetries: 5
          backOff:
            baseInterval: 25ms
            maxInterval: 250ms
          retryOn:
            - 5xx
          hostSelection:
            - predicate: OmitPreviousHosts
          hostSelectionMaxAttempts: 5
";

/// Addresses that each process listens at.
pub struct ZonesPlan {
    pub global: PlannedControlPlane,
    pub zones: Vec<Zone>,
    pub services: Vec<PlannedService>,
    kds: SocketAddr,
}

pub struct PlannedControlPlane {
    pub api: SocketAddr,
    https: SocketAddr,
    pub diagnostics: SocketAddr,
    pub monitoring: SocketAddr,
}

pub struct Zone {
    pub name: &'static str,
    pub control_plane: PlannedControlPlane,
    pub dp_server: SocketAddr,
    pub ingress: PlannedZoneProxy,
    pub egress: PlannedZoneProxy,
}

pub struct PlannedZoneProxy {
    /// Of the process and of the resource.
    pub name: String,
    pub listens: SocketAddr,
    readiness: SocketAddr,
}

/// An application in a zone, with its proxy.
pub struct PlannedService {
    pub service: &'static str,
    pub zone: &'static str,
    /// Of the process and of the resource.
    pub name: String,
    pub inbound: SocketAddr,
    pub application: SocketAddr,
    readiness: SocketAddr,
    pub calls: Option<Calls>,
}

/// A name without redirection: an outbound of the proxy, and the DNS server of its agent.
pub struct Calls {
    outbound: SocketAddr,
    pub dns: SocketAddr,
}

/// Service or zone proxy that an agent is started for.
pub struct ZoneDemoProxy<'a> {
    pub zone: &'static str,
    pub name: &'a str,
    pub readiness: SocketAddr,
    /// `ingress` or `egress`.
    pub zone_proxy: Option<&'static str>,
    calls: Option<&'a Calls>,
}

impl ZoneDemoProxy<'_> {
    /// Flags of the agent that others do not have.
    pub fn arguments(&self) -> Vec<String> {
        let kind = self.zone_proxy.map(|kind| format!("--proxy-type={kind}"));
        let dns = self.calls.map(|calls| format!("--dns-proxy-port={}", calls.dns.port()));
        kind.into_iter().chain(dns).collect()
    }
}

impl Zone {
    pub fn control_plane_name(&self) -> String {
        format!("kuma-cp-{}", self.name)
    }
}

impl ZonesPlan {
    pub fn of(zones: u8) -> anyhow::Result<ZonesPlan> {
        let mut ports = Chooser::default();
        let names = &NAMES[..usize::from(zones)];
        let page = names.first().map(|zone| service(&mut ports, "web", zone)).transpose()?;
        let stores = names.iter().map(|zone| service(&mut ports, "kv", zone));
        let services = page.into_iter().map(Ok).chain(stores).collect::<anyhow::Result<_>>()?;
        let global = control_plane(&mut ports, 0)?;
        let kds = ports.choose(LOCAL, 5685)?;
        let zones = (1..).zip(names).map(|(number, name)| zone(&mut ports, number, name));
        Ok(ZonesPlan { global, zones: zones.collect::<anyhow::Result<_>>()?, services, kds })
    }

    pub fn zone(&self, name: &str) -> anyhow::Result<&Zone> {
        let found = self.zones.iter().find(|zone| zone.name == name);
        found.with_context(|| format!("the demo has no zone {name}"))
    }

    /// Address of the page.
    pub fn page(&self) -> SocketAddr {
        self.services[0].application
    }

    /// All agents: of zone proxies first, so that the stores of all zones can be called when the page comes.
    pub fn proxies(&self) -> impl Iterator<Item = ZoneDemoProxy<'_>> {
        let zone_proxies = self.zones.iter().flat_map(|zone| {
            [("ingress", &zone.ingress), ("egress", &zone.egress)].map(|(kind, proxy)| ZoneDemoProxy {
                zone: zone.name,
                name: &proxy.name,
                readiness: proxy.readiness,
                zone_proxy: Some(kind),
                calls: None,
            })
        });
        zone_proxies.chain(self.services.iter().rev().map(|service| ZoneDemoProxy {
            zone: service.zone,
            name: &service.name,
            readiness: service.readiness,
            zone_proxy: None,
            calls: service.calls.as_ref(),
        }))
    }

    /// The environment of the global control plane.
    pub fn global_settings(&self, home: &Path) -> Vec<(&'static str, String)> {
        let mut settings = settings(&self.global, home, GLOBAL);
        settings.extend([
            ("KUMA_MODE", "global".to_owned()),
            ("KUMA_MULTIZONE_GLOBAL_KDS_INTERFACE", LOCAL.to_string()),
            ("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", self.kds.port().to_string()),
            // A demo has less patience than five minutes.
            ("KUMA_MULTIZONE_GLOBAL_KDS_ZONE_WITHDRAW_AFTER", "1m".to_owned()),
        ]);
        settings
    }

    /// The environment of a zone's control plane.
    pub fn zone_settings(&self, home: &Path, zone: &Zone) -> Vec<(&'static str, String)> {
        let authority = home.join(GLOBAL).join("kuma-cp.crt");
        let mut settings = settings(&zone.control_plane, home, &zone.control_plane_name());
        settings.extend([
            ("KUMA_MODE", "zone".to_owned()),
            ("KUMA_DP_SERVER_INTERFACE", LOCAL.to_string()),
            ("KUMA_DP_SERVER_PORT", zone.dp_server.port().to_string()),
            ("KUMA_MULTIZONE_ZONE_NAME", zone.name.to_owned()),
            ("KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS", format!("grpcs://localhost:{}", self.kds.port())),
            ("KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE", authority.display().to_string()),
            ("KUMA_GENERAL_RESILIENT_COMPONENT_BASE_BACKOFF", "500ms".to_owned()),
            ("KUMA_GENERAL_RESILIENT_COMPONENT_MAX_BACKOFF", "5s".to_owned()),
        ]);
        settings
    }

    /// Files that stay, to be read, changed and applied again.
    pub fn write_files(&self, home: &Path) -> anyhow::Result<()> {
        // Calls to other zones leave by the egress of the caller's zone.
        let mesh = format!("{}routing:\n  zoneEgress: true\n", mesh::MESH);
        let mut files = vec![
            ("mesh".to_owned(), mesh),
            ("permission".to_owned(), mesh::PERMISSION.to_owned()),
            ("kv".to_owned(), MULTI_ZONE_SERVICE.to_owned()),
            ("spread".to_owned(), SPREAD.to_owned()),
            ("retry".to_owned(), RETRY.to_owned()),
        ];
        files.extend(self.services.iter().map(|service| (service.name.clone(), dataplane(service))));
        for zone in &self.zones {
            let address = zone.ingress.listens.ip();
            let port = zone.ingress.listens.port();
            let advertised = format!("  advertisedAddress: {address}\n  advertisedPort: {port}\n");
            files.push((zone.ingress.name.clone(), zone_proxy("ZoneIngress", &zone.ingress) + &advertised));
            files.push((zone.egress.name.clone(), zone_proxy("ZoneEgress", &zone.egress)));
            fs::create_dir(home.join(zone.control_plane_name()))?;
        }
        fs::create_dir(home.join(GLOBAL))?;
        for (name, text) in files {
            fs::write(home.join(format!("{name}.yaml")), text).with_context(|| format!("writing {name}"))?;
        }
        Ok(())
    }
}

fn control_plane(ports: &mut Chooser, number: u16) -> anyhow::Result<PlannedControlPlane> {
    let more = number * 10_000;
    Ok(PlannedControlPlane {
        api: ports.choose(LOCAL, 5681 + more)?,
        https: ports.choose(LOCAL, 5682 + more)?,
        diagnostics: ports.choose(LOCAL, 5680 + more)?,
        monitoring: ports.choose(LOCAL, 5676 + more)?,
    })
}

fn zone(ports: &mut Chooser, number: u16, name: &'static str) -> anyhow::Result<Zone> {
    let mut proxy = |kind: &str, port: u16| {
        anyhow::Ok(PlannedZoneProxy {
            name: format!("{kind}-{name}"),
            listens: (ports.own_address(&[port, ADMIN])?, port).into(),
            readiness: ports.choose(LOCAL, 0)?,
        })
    };
    let ingress = proxy("ingress", INGRESS)?;
    let egress = proxy("egress", EGRESS)?;
    let control_plane = control_plane(ports, number)?;
    let dp_server = ports.choose(LOCAL, 5678 + number * 10_000)?;
    Ok(Zone { name, control_plane, dp_server, ingress, egress })
}

fn service(ports: &mut Chooser, service: &'static str, zone: &'static str) -> anyhow::Result<PlannedService> {
    let inbound = ports.own_address(&[INBOUND, ADMIN])?;
    let calls = match service {
        "web" => Some(Calls {
            outbound: (ports.own_address(&[INBOUND])?, INBOUND).into(),
            dns: ports.choose_for_names(LOCAL, 15053)?,
        }),
        _ => None,
    };
    Ok(PlannedService {
        service,
        zone,
        name: format!("{service}-{zone}"),
        inbound: (inbound, INBOUND).into(),
        application: ports.choose(LOCAL, if service == "web" { 5050 } else { 0 })?,
        readiness: ports.choose(LOCAL, 0)?,
        calls,
    })
}

fn settings(control_plane: &PlannedControlPlane, home: &Path, name: &str) -> Vec<(&'static str, String)> {
    vec![
        ("KUMA_GENERAL_WORK_DIR", home.join(name).display().to_string()),
        ("KUMA_API_SERVER_HTTP_INTERFACE", LOCAL.to_string()),
        ("KUMA_API_SERVER_HTTP_PORT", control_plane.api.port().to_string()),
        ("KUMA_API_SERVER_HTTPS_INTERFACE", LOCAL.to_string()),
        ("KUMA_API_SERVER_HTTPS_PORT", control_plane.https.port().to_string()),
        ("KUMA_DIAGNOSTICS_INTERFACE", LOCAL.to_string()),
        ("KUMA_DIAGNOSTICS_SERVER_PORT", control_plane.diagnostics.port().to_string()),
        ("KUMA_MONITORING_ASSIGNMENT_SERVER_INTERFACE", LOCAL.to_string()),
        ("KUMA_MONITORING_ASSIGNMENT_SERVER_PORT", control_plane.monitoring.port().to_string()),
    ]
}

/// URL that the page calls.
pub fn store_url() -> String {
    format!("http://{KV}:{INBOUND}")
}

fn dataplane(service: &PlannedService) -> String {
    let PlannedService { service: app, name, inbound, application, calls, .. } = service;
    let outbound = calls.as_ref().map_or_else(String::new, |Calls { outbound, .. }| {
        format!(
            "  outbound:\n    - hostname: {KV}\n      address: {}\n      port: {}\n      backendRef:\n        \
             kind: MeshMultiZoneService\n        labels:\n          kuma.io/display-name: kv\n        \
             port: {INBOUND}\n",
            outbound.ip(),
            outbound.port(),
        )
    });
    format!(
        "type: Dataplane\nmesh: default\nname: {name}\nlabels:\n  app: {app}\nnetworking:\n  \
         address: {}\n  inbound:\n    - name: http\n      port: {}\n      serviceAddress: {}\n      \
         servicePort: {}\n      tags:\n        kuma.io/service: {app}\n        kuma.io/protocol: http\n{outbound}",
        inbound.ip(),
        inbound.port(),
        application.ip(),
        application.port(),
    )
}

fn zone_proxy(kind: &str, PlannedZoneProxy { name, listens, .. }: &PlannedZoneProxy) -> String {
    format!(
        "type: {kind}\nname: {name}\nnetworking:\n  address: {}\n  port: {}\n",
        listens.ip(),
        listens.port()
    )
}
