//! Parts of the demo: addresses, and the resources that are applied.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use anyhow::Context;

use super::{network::Network, ports::Chooser};

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Every proxy has the same ports, on an address of its own.
const INBOUND: u16 = 5050;
const ADMIN: u16 = 9901;
/// Port of the page in its namespace. Browsers have no certificate of the mesh, so this port is not redirected.
const PAGE: u16 = 8080;
/// Readiness port of an agent that has its machine to itself.
const READINESS: u16 = 9902;
/// Name of the store in the mesh: every service has a name like this.
pub const KV: &str = "kv.svc.mesh.local";

pub const MESH: &str = "\
# Mutual TLS between all proxies, by a CA that the control plane makes.
type: Mesh
name: default
meshServices:
  mode: Exclusive
mtls:
  enabledBackend: ca-1
  backends:
    - name: ca-1
      type: builtin
";

pub const PERMISSION: &str = "\
# With mutual TLS no service may call another, unless a policy like this allows it.
type: MeshTrafficPermission
mesh: default
name: web-to-kv
spec:
  targetRef:
    kind: Dataplane
    labels:
      app: kv
  rules:
    - default:
        allow:
          - spiffeID:
              type: Exact
              value: spiffe://default/web
";

/// Addresses that each process listens at.
pub struct DemoPlan {
    pub api: SocketAddr,
    pub diagnostics: SocketAddr,
    pub monitoring: SocketAddr,
    https: SocketAddr,
    pub dp_server: SocketAddr,
    /// kv first, so that callers find it. One proxy has legacy names, the other one unified names.
    pub proxies: [DemoProxy; 2],
    /// Addresses by which web finds kv by its name, where nothing is redirected.
    pub listed: Option<Listed>,
}

/// One of the two proxies.
pub struct DemoProxy {
    pub service: &'static str,
    pub inbound: SocketAddr,
    pub application: SocketAddr,
    pub readiness: SocketAddr,
    pub unified_names: bool,
}

/// A name without redirection: an outbound of web's proxy, and the DNS server of its agent.
pub struct Listed {
    outbound: SocketAddr,
    pub dns: SocketAddr,
}

impl DemoPlan {
    /// Everything on loopback addresses.
    pub fn on_loopback() -> anyhow::Result<DemoPlan> {
        let mut ports = Chooser::default();
        let mut address = |free: &[u16]| anyhow::Ok(SocketAddr::from((ports.own_address(free)?, INBOUND)));
        let web = address(&[INBOUND, ADMIN])?;
        let kv = address(&[INBOUND, ADMIN])?;
        let listed = Listed { outbound: address(&[INBOUND])?, dns: ports.choose_for_names(LOCAL, 15053)? };
        let web = DemoProxy {
            service: "web",
            inbound: web,
            application: ports.choose(LOCAL, 5050)?,
            readiness: ports.choose(LOCAL, READINESS)?,
            unified_names: true,
        };
        let kv = DemoProxy {
            service: "kv",
            inbound: kv,
            application: ports.choose(LOCAL, 5051)?,
            readiness: ports.choose(LOCAL, READINESS + 1)?,
            unified_names: false,
        };
        DemoPlan::of(&mut ports, LOCAL, [kv, web], Some(listed))
    }

    /// A namespace for each service; the control plane is outside of them.
    pub fn in_namespaces(network: &Network) -> anyhow::Result<DemoPlan> {
        let proxy = |service, port, unified_names| {
            let address = network.address(service);
            DemoProxy {
                service,
                inbound: SocketAddr::from((address, INBOUND)),
                application: SocketAddr::from((address, port)),
                readiness: SocketAddr::from((LOCAL, READINESS)),
                unified_names,
            }
        };
        let proxies = [proxy("kv", INBOUND, false), proxy("web", PAGE, true)];
        DemoPlan::of(&mut Chooser::default(), network.host(), proxies, None)
    }

    fn of(
        ports: &mut Chooser,
        control_plane: Ipv4Addr,
        proxies: [DemoProxy; 2],
        listed: Option<Listed>,
    ) -> anyhow::Result<DemoPlan> {
        Ok(DemoPlan {
            api: ports.choose(LOCAL, 5681)?,
            https: ports.choose(LOCAL, 5682)?,
            diagnostics: ports.choose(LOCAL, 5680)?,
            monitoring: ports.choose(LOCAL, 5676)?,
            dp_server: ports.choose(control_plane, 5678)?,
            proxies,
            listed,
        })
    }

    pub fn web(&self) -> &DemoProxy {
        &self.proxies[1]
    }

    pub fn proxy(&self, service: &str) -> anyhow::Result<&DemoProxy> {
        let found = self.proxies.iter().find(|proxy| proxy.service == service);
        found.with_context(|| format!("the demo has no service {service}"))
    }

    /// The environment of `kuma-cp`.
    pub fn control_plane_settings(&self, home: &Path) -> Vec<(&'static str, String)> {
        vec![
            ("KUMA_GENERAL_WORK_DIR", home.join("kuma-cp").display().to_string()),
            ("KUMA_STORE_TYPE", "memory".to_owned()),
            ("KUMA_API_SERVER_HTTP_INTERFACE", LOCAL.to_string()),
            ("KUMA_API_SERVER_HTTP_PORT", self.api.port().to_string()),
            ("KUMA_API_SERVER_HTTPS_INTERFACE", LOCAL.to_string()),
            ("KUMA_API_SERVER_HTTPS_PORT", self.https.port().to_string()),
            ("KUMA_DIAGNOSTICS_INTERFACE", LOCAL.to_string()),
            ("KUMA_DIAGNOSTICS_SERVER_PORT", self.diagnostics.port().to_string()),
            ("KUMA_MONITORING_ASSIGNMENT_SERVER_INTERFACE", LOCAL.to_string()),
            ("KUMA_MONITORING_ASSIGNMENT_SERVER_PORT", self.monitoring.port().to_string()),
            ("KUMA_DP_SERVER_INTERFACE", self.dp_server.ip().to_string()),
            ("KUMA_DP_SERVER_PORT", self.dp_server.port().to_string()),
        ]
    }

    /// Files that stay, to be read, changed and applied again.
    pub fn write_files(&self, home: &Path) -> anyhow::Result<()> {
        let outbound = self.listed.as_ref().map_or_else(String::new, |listed| {
            format!(
                "  outbound:\n    - hostname: {KV}\n      address: {}\n      port: {}\n      backendRef:\n        \
                 kind: MeshService\n        name: kv\n        port: {INBOUND}\n",
                listed.outbound.ip(),
                listed.outbound.port(),
            )
        });
        let files = [
            ("mesh.yaml", MESH.to_owned()),
            ("permission.yaml", PERMISSION.to_owned()),
            ("kv.yaml", dataplane(&self.proxies[0])),
            ("web.yaml", dataplane(self.web()) + &outbound),
        ];
        fs::create_dir(home.join("kuma-cp"))?;
        for (name, text) in files {
            fs::write(home.join(name), text).with_context(|| format!("writing {name}"))?;
        }
        Ok(())
    }
}

/// URL that web calls, whether or not it knows of its proxy.
pub fn store_url() -> String {
    format!("http://{KV}:{INBOUND}")
}

fn dataplane(proxy: &DemoProxy) -> String {
    let DemoProxy { service, inbound, application, .. } = proxy;
    // In a namespace the application is at the proxy's own address, as that of any other machine.
    let elsewhere = match application.ip() {
        same if same == inbound.ip() => String::new(),
        other => format!("      serviceAddress: {other}\n"),
    };
    format!(
        "type: Dataplane\nmesh: default\nname: {service}\nlabels:\n  app: {service}\nnetworking:\n  \
         address: {}\n  inbound:\n    - name: http\n      port: {}\n{elsewhere}      \
         servicePort: {}\n      tags:\n        kuma.io/service: {service}\n        kuma.io/protocol: http\n",
        inbound.ip(),
        inbound.port(),
        application.port(),
    )
}
