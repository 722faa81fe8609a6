//! A real Envoy accepts the clients that the rules allow, and counts those it refuses.

use std::{
    io::{self, BufRead, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use envoy::Encoder;
use envoy_types::pb::envoy::{
    config::{
        bootstrap::v3 as bootstrap, cluster::v3::Cluster, core::v3 as core,
        core::v3::transport_socket::ConfigType, listener::v3::Listener,
    },
    extensions::transport_sockets::tls::v3::{DownstreamTlsContext, Secret, common_tls_context},
};
use plan::ProxyPlan;
use policy::{ClientMatch, Effect, Permissions, Rule};
use prost::{Message, Name};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use xds::Type;

use crate::{
    real_envoy::envoy_binary,
    support::{SECURED, plan, unified, web},
};

/// A port where no application listens.
pub const NOBODY: u16 = 9;
const PATIENCE: Duration = Duration::from_secs(20);

/// Names that clients may ask for.
const NAMES: [&str; 3] = ["web", "a.mesh", "b.mesh"];

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn fresh() -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority of the test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate with these URIs, and its key.
    pub fn sign(&self, uris: &[&str]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(NAMES.map(str::to_owned)).unwrap();
        params.subject_alt_names.extend(uris.iter().map(|&uri| SanType::URI(uri.try_into().unwrap())));
        // Where trust domains are distinguished, Envoy takes a certificate that does not say it for one of
        // an authority.
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// An Envoy that ends with the test.
pub struct Running {
    envoy: Child,
    pub inbound: SocketAddr,
    admin: u16,
    /// Signs for the mesh and its trust domain.
    pub authority: Authority,
    /// Signs for the trust domain `td`, where a MeshTrust says so.
    pub other: Authority,
    _folder: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.envoy.kill();
        let _ = self.envoy.wait();
    }
}

impl Running {
    /// An inbound of this protocol, with the application at a port of its own address.
    fn with(protocol: &str, application: u16, permissions: Permissions) -> Running {
        Running::under(&[], protocol, application, permissions)
    }

    /// The same with policies in the mesh.
    pub fn under(policies: &[&str], protocol: &str, application: u16, permissions: Permissions) -> Running {
        let inbound = free_port();
        let admin = free_port();
        let dataplane = web(&format!(
            "inbound: [{{ name: main, address: 127.0.0.1, port: {inbound}, servicePort: {application}, tags: {{ kuma.io/service: web, kuma.io/protocol: {protocol} }} }}]"
        ));
        let traits = plan::ProxyTraits { admin_port: 0, ..unified("web") };
        let documents: Vec<&str> =
            [SECURED].into_iter().chain(policies.iter().copied()).chain([dataplane.as_str()]).collect();
        let mut plan = plan(&documents, &traits);
        plan.own.inbounds[0].permissions = Some(permissions);
        Running::of(&plan, ([127, 0, 0, 1], inbound).into(), admin)
    }

    /// With these inbounds, the first of which listens at `inbound`.
    pub fn of(plan: &ProxyPlan, inbound: SocketAddr, admin: u16) -> Running {
        let authority = Authority::fresh();
        let other = Authority::fresh();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bootstrap.pb");
        std::fs::write(&file, self_contained(plan, [&authority, &other], admin).encode_to_vec()).unwrap();
        let mut command = Command::new(envoy_binary());
        command
            .args(["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error", "-c"])
            .arg(&file);
        let envoy = command.stdout(Stdio::null()).spawn().unwrap();
        let running = Running { envoy, inbound, admin, authority, other, _folder: folder };
        poll("Envoy to listen", || TcpStream::connect(inbound).ok());
        running
    }

    /// The status line a client with these URIs gets; an error when it is not let into TLS.
    pub fn call(&self, uris: &[&str]) -> io::Result<String> {
        self.call_signed_by(&self.authority, uris)
    }

    pub fn call_signed_by(&self, signer: &Authority, uris: &[&str]) -> io::Result<String> {
        self.ask(self.inbound, &signer.sign(uris), "web")
    }

    /// The same anywhere, for a client with this certificate and key that asks for this server name.
    pub fn ask(
        &self,
        inbound: SocketAddr,
        (certificate, key): &(String, String),
        sni: &str,
    ) -> io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = config.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        let session =
            ClientConnection::new(Arc::new(config), ServerName::try_from(sni.to_owned()).unwrap()).unwrap();
        let socket = TcpStream::connect(inbound)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut stream = StreamOwned::new(session, socket);
        stream.write_all(b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n")?;
        // Envoy keeps a connection open for a while after it has answered.
        let mut answer = String::new();
        io::BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }

    pub fn stat(&self, name: &str) -> u64 {
        let mut socket = TcpStream::connect(("127.0.0.1", self.admin)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(socket, "GET /stats?filter=rbac HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let known: Vec<_> = answer.lines().filter(|line| line.contains("rbac")).collect();
        let found = known.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.unwrap_or_else(|| panic!("no {name} in {known:#?}")).parse().unwrap()
    }
}

/// A port of 127.0.0.1 where nothing listens.
pub fn free_port() -> u16 {
    testkit::ports::own_port().unwrap()
}

#[track_caller]
fn poll<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < deadline, "waited for {what} for {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The proxy's resources with its secrets beside them, because there is no server to ask for them.
fn self_contained(plan: &ProxyPlan, [authority, other]: [&Authority; 2], admin: u16) -> bootstrap::Bootstrap {
    let encoder = Encoder::default();
    let target = encoder.lower(plan);
    let names = &plan.own.security.as_ref().unwrap().secrets;
    let (certificate, key) = authority.sign(&["spiffe://default/web"]);
    let trusted = match names.authorities.name() {
        "system_trust_bundle" => {
            let domains = [("default", authority), ("td", other)];
            let domains = domains.map(|(domain, authority)| (domain.to_owned(), authority.0.pem()));
            encoder.trust_bundle(names.authorities.name(), &domains)
        }
        name => encoder.authorities(name, &authority.0.pem()),
    };
    let secrets = [encoder.secret(&names.identity.name(), &certificate, &key), trusted];
    let listeners = target.of(Type::Listener).values().map(|encoded| {
        let mut listener = Listener::decode(&*encoded.body()).unwrap();
        listener.filter_chains.iter_mut().for_each(|chain| {
            chain.transport_socket.iter_mut().for_each(with_secrets_beside);
        });
        listener
    });
    let socket = core::SocketAddress {
        address: "127.0.0.1".to_owned(),
        port_specifier: Some(core::socket_address::PortSpecifier::PortValue(admin.into())),
        ..Default::default()
    };
    bootstrap::Bootstrap {
        admin: Some(bootstrap::Admin {
            address: Some(core::Address { address: Some(core::address::Address::SocketAddress(socket)) }),
            ..Default::default()
        }),
        static_resources: Some(bootstrap::bootstrap::StaticResources {
            listeners: listeners.collect(),
            clusters: target
                .of(Type::Cluster)
                .values()
                .map(|c| Cluster::decode(&*c.body()).unwrap())
                .collect(),
            secrets: secrets.iter().map(|secret| Secret::decode(&*secret.body()).unwrap()).collect(),
        }),
        ..Default::default()
    }
}

fn with_secrets_beside(socket: &mut core::TransportSocket) {
    let Some(ConfigType::TypedConfig(any)) = &mut socket.config_type else { panic!("TLS has settings") };
    assert_eq!(any.type_url, DownstreamTlsContext::type_url());
    let mut tls = DownstreamTlsContext::decode(&*any.value).unwrap();
    let common = tls.common_tls_context.as_mut().unwrap();
    common.tls_certificate_sds_secret_configs[0].sds_config = None;
    let Some(common_tls_context::ValidationContextType::CombinedValidationContext(combined)) =
        &mut common.validation_context_type
    else {
        panic!("clients are verified")
    };
    combined.validation_context_sds_secret_config.as_mut().unwrap().sds_config = None;
    any.value = tls.encode_to_vec();
}

fn permissions() -> Permissions {
    let tag = |name: &str, value: &str| ClientMatch::Tags([(name.to_owned(), value.to_owned())].into());
    let rules = [
        (tag("kuma.io/service", "bad"), Effect::Deny),
        (tag("kuma.io/service", "maybe"), Effect::AllowWithShadowDeny),
        (tag("team", "a"), Effect::Allow),
        (ClientMatch::SpiffePrefix("spiffe://default/ns/".parse().unwrap()), Effect::Allow),
        (ClientMatch::SpiffeExact("spiffe://default/exact".parse().unwrap()), Effect::Allow),
    ];
    let rule = |((client, effect), index): ((ClientMatch, Effect), usize)| {
        let origin = format!("kri_mtp_default___rules_rule_{index}").parse().unwrap();
        Rule { client, effect, origin }
    };
    Permissions { rules: rules.into_iter().zip(0..).map(rule).collect() }
}

pub const REFUSED: &str = "HTTP/1.1 403 Forbidden";
/// Let in, and then no application answers.
pub const LET_IN: &str = "HTTP/1.1 503 Service Unavailable";

#[test]
fn the_first_matching_rule_lets_a_request_in_and_refusals_are_counted() {
    let envoy = Running::with("http", NOBODY, permissions());
    for (uris, expected) in [
        (&["spiffe://default/bad", "kuma://team/a"][..], REFUSED),
        (&["spiffe://default/maybe"], LET_IN),
        (&["spiffe://default/x", "kuma://team/a"], LET_IN),
        (&["spiffe://default/x", "kuma://team/a", "kuma://version/v1"], LET_IN),
        (&["kuma://team/a", "spiffe://default/x"], LET_IN),
        (&["spiffe://default/x", "kuma://team/ab"], REFUSED),
        (&["spiffe://default/x", "kuma://steam/a"], REFUSED),
        (&["spiffe://default/ns/y"], LET_IN),
        (&["kuma://team/b", "spiffe://default/ns/y"], LET_IN),
        (&["spiffe://default/exact"], LET_IN),
        (&["spiffe://default/exactly"], REFUSED),
        (&["spiffe://default/nobody"], REFUSED),
    ] {
        assert_eq!(envoy.call(uris).unwrap(), expected, "{uris:?}");
    }
    assert_eq!(envoy.stat("http.self_main.rbac.self_main.denied"), 5);
    assert_eq!(envoy.stat("http.self_main.rbac.self_main.allowed"), 7);
    assert_eq!(envoy.stat("http.self_main.rbac.self_main.shadow_denied"), 6);
}

/// Answer of an application to clients that were allowed.
pub const GREETING: &str = "hello";

/// The port of an application that greets.
pub fn greeting_application() -> u16 {
    let application = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = application.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in application.incoming().flatten() {
            // Only clients that were let in send anything.
            let mut client = io::BufReader::new(client);
            if client.read_line(&mut String::new()).is_ok_and(|length| length > 0) {
                let _ = writeln!(client.get_mut(), "{GREETING}");
            }
        }
    });
    port
}

#[test]
fn connections_are_cut_when_no_rule_lets_them_in() {
    let envoy = Running::with("tcp", greeting_application(), permissions());
    // Envoy ends TLS and the connection in order, once the client has said something: it sees the end
    // before any answer.
    assert_eq!(envoy.call(&["spiffe://default/bad"]).unwrap(), "");
    assert_eq!(envoy.stat("self_main.rbac.denied"), 1);
    assert_eq!(envoy.call(&["spiffe://default/maybe"]).unwrap(), GREETING);
    assert_eq!(envoy.stat("self_main.rbac.allowed"), 1);
    assert_eq!(envoy.stat("self_main.rbac.shadow_denied"), 2);
}

#[test]
fn clients_of_another_mesh_or_another_authority_are_not_let_into_tls() {
    let envoy = Running::with("http", NOBODY, Permissions { rules: Vec::new() });
    assert_eq!(envoy.call(&["spiffe://default/x"]).unwrap(), REFUSED);
    envoy.call(&["spiffe://other/x"]).unwrap_err();
    envoy.call_signed_by(&Authority::fresh(), &["spiffe://default/x"]).unwrap_err();
}

/// An application that answers its first client when its second one has lost patience.
fn application_with_two_clients() -> (u16, Receiver<()>) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let (asked, is_asked) = channel();
    std::thread::spawn(move || {
        let mut clients = socket.incoming().flatten();
        let mut first = io::BufReader::new(clients.next().unwrap());
        first.read_line(&mut String::new()).unwrap();
        asked.send(()).unwrap();
        let mut second = clients.next().unwrap();
        let _ = second.read_to_end(&mut Vec::new());
        let _ = first.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    (port, is_asked)
}

pub fn everyone() -> Permissions {
    let origin = "kri_mtp_default___all_rule_0".parse().unwrap();
    Permissions { rules: vec![Rule { client: ClientMatch::Anyone, effect: Effect::Allow, origin }] }
}

#[test]
fn a_client_has_the_time_that_is_given_to_the_server_name_it_asks_for() {
    let timeouts = "type: MeshTimeout\nmesh: default\nname: t\nspec:\n  rules:\n\
        \x20   - { default: { http: { requestTimeout: 0s, streamIdleTimeout: 0s } } }\n\
        \x20   - { matches: [{ sni: { type: Exact, value: web } }], default: { http: { requestTimeout: 100ms } } }\n";
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let envoy = Running::under(&[timeouts], "http", port, everyone());
    assert_eq!(envoy.call(&["spiffe://default/x"]).unwrap(), "HTTP/1.1 504 Gateway Timeout");
}

#[test]
fn a_client_has_the_time_that_is_given_to_its_identity() {
    let timeouts = "type: MeshTimeout\nmesh: default\nname: t\nspec:\n  rules:\n\
        \x20   - { default: { http: { requestTimeout: 0s, streamIdleTimeout: 0s } } }\n\
        \x20   - { matches: [{ spiffeID: { type: Exact, value: 'spiffe://default/hasty' } }], \
                default: { http: { requestTimeout: 100ms } } }\n";
    let (port, is_asked) = application_with_two_clients();
    let envoy = &Running::under(&[timeouts], "http", port, everyone());
    std::thread::scope(|scope| {
        let patient = scope.spawn(|| envoy.call(&["spiffe://default/hastyless", "kuma://team/a"]).unwrap());
        is_asked.recv_timeout(PATIENCE).unwrap();
        let hasty = envoy.call(&["kuma://team/a", "spiffe://default/hasty", "kuma://version/v1"]);
        assert_eq!(hasty.unwrap(), "HTTP/1.1 504 Gateway Timeout");
        assert_eq!(patient.join().unwrap(), "HTTP/1.1 200 OK");
    });
}
