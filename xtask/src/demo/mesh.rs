//! What the demo consists of: addresses, and the resources that are applied.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use anyhow::Context;

use super::ports::Chooser;

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Every proxy has the same ports, on a loopback address of its own.
const INBOUND: u16 = 5050;
const ADMIN: u16 = 9901;

const MESH: &str = "\
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

const PERMISSION: &str = "\
# With mutual TLS nobody may call anybody, unless something like this says so.
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

/// Where everybody listens.
pub struct Plan {
    pub api: SocketAddr,
    pub diagnostics: SocketAddr,
    https: SocketAddr,
    pub dp_server: SocketAddr,
    pub web: SocketAddr,
    pub kv: SocketAddr,
    /// Where web finds kv: the outbound of its proxy.
    pub outbound: SocketAddr,
    web_inbound: SocketAddr,
    kv_inbound: SocketAddr,
    readiness: [SocketAddr; 2],
}

/// One of the two proxies.
pub struct Proxy {
    pub service: &'static str,
    pub inbound: SocketAddr,
    pub application: SocketAddr,
    pub readiness: SocketAddr,
    pub unified_names: bool,
}

impl Plan {
    pub fn choose() -> anyhow::Result<Plan> {
        let mut ports = Chooser::default();
        let mut proxy_address =
            || anyhow::Ok(SocketAddr::from((ports.own_address(&[INBOUND, ADMIN])?, INBOUND)));
        let (web_inbound, kv_inbound) = (proxy_address()?, proxy_address()?);
        Ok(Plan {
            api: ports.choose(LOCAL, 5681)?,
            https: ports.choose(LOCAL, 5682)?,
            diagnostics: ports.choose_everywhere(5680)?,
            dp_server: ports.choose_everywhere(5678)?,
            web: ports.choose(LOCAL, 5050)?,
            kv: ports.choose(LOCAL, 5051)?,
            outbound: ports.choose(LOCAL, 10001)?,
            web_inbound,
            kv_inbound,
            readiness: [ports.choose(LOCAL, 9902)?, ports.choose(LOCAL, 9903)?],
        })
    }

    /// kv first: whoever calls finds it there. One proxy has the names of old, one the unified ones.
    pub fn proxies(&self) -> [Proxy; 2] {
        let [web, kv] = self.readiness;
        [
            Proxy {
                service: "kv",
                inbound: self.kv_inbound,
                application: self.kv,
                readiness: kv,
                unified_names: false,
            },
            Proxy {
                service: "web",
                inbound: self.web_inbound,
                application: self.web,
                readiness: web,
                unified_names: true,
            },
        ]
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
            ("KUMA_DIAGNOSTICS_SERVER_PORT", self.diagnostics.port().to_string()),
            ("KUMA_DP_SERVER_PORT", self.dp_server.port().to_string()),
        ]
    }

    /// Files that stay, to be read, changed and applied again.
    pub fn write_files(&self, home: &Path) -> anyhow::Result<()> {
        let outbound = format!(
            "  outbound:\n    - address: {}\n      port: {}\n      backendRef:\n        kind: MeshService\n        \
             name: kv\n        port: {}\n",
            self.outbound.ip(),
            self.outbound.port(),
            self.kv_inbound.port(),
        );
        let [kv, web] = self.proxies();
        let files = [
            ("mesh.yaml", MESH.to_owned()),
            ("permission.yaml", PERMISSION.to_owned()),
            ("kv.yaml", dataplane(&kv)),
            ("web.yaml", dataplane(&web) + &outbound),
        ];
        fs::create_dir(home.join("kuma-cp"))?;
        for (name, text) in files {
            fs::write(home.join(name), text).with_context(|| format!("writing {name}"))?;
        }
        Ok(())
    }
}

fn dataplane(proxy: &Proxy) -> String {
    let Proxy { service, inbound, application, .. } = proxy;
    format!(
        "type: Dataplane\nmesh: default\nname: {service}\nlabels:\n  app: {service}\nnetworking:\n  \
         address: {}\n  inbound:\n    - name: http\n      port: {}\n      serviceAddress: {}\n      \
         servicePort: {}\n      tags:\n        kuma.io/service: {service}\n        kuma.io/protocol: http\n",
        inbound.ip(),
        inbound.port(),
        application.ip(),
        application.port(),
    )
}
