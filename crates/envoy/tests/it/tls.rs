//! A real Envoy negotiates the versions and ciphers that MeshTLS says, and serves plain clients when it may.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
    time::Duration,
};

use envoy::{Encoder, json};
use serde_json::json;
use xds::Type;

use crate::{
    enforcement::{Authority, LET_IN, NOBODY, Running, free_port},
    support::{BACKEND, SECURED, plan, unified, web},
    view::{check, shown, target},
};

const PATIENCE: Duration = Duration::from_secs(20);
const ALLOW_ALL: &str = "type: MeshTrafficPermission\nmesh: default\nname: all\nspec: { from: [{ targetRef: { kind: Mesh }, default: { action: Allow } }] }\n";

const TRUST: &str = "type: MeshTrust\nmesh: default\nname: t\nspec: { trustDomain: td, caBundles: [{ type: Pem, pem: { value: \"-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\" } }] }\n";

fn permissive() -> String {
    SECURED.replace("type: builtin", "type: builtin, mode: PERMISSIVE")
}

fn policy(conf: &str) -> String {
    format!("type: MeshTLS\nmesh: default\nname: tls\nspec: {{ rules: [{{ default: {conf} }}] }}\n")
}

/// An inbound of a mesh under a MeshTLS with this conf, and where it listens.
fn serving(mesh: &str, conf: &str) -> (Running, SocketAddr) {
    let port = free_port();
    let admin = free_port();
    let dataplane = web(&format!(
        "inbound: [{{ name: main, address: 127.0.0.1, port: {port}, servicePort: {NOBODY}, tags: {{ kuma.io/service: web, kuma.io/protocol: http }} }}]"
    ));
    let traits = plan::ProxyTraits { admin_port: 0, ..unified("web") };
    let plan = plan(&[mesh, ALLOW_ALL, &policy(conf), &dataplane], &traits);
    let inbound = ([127, 0, 0, 1], port).into();
    (Running::of(&plan, inbound, admin), inbound)
}

/// The version and the cipher that `openssl s_client` agrees on with the inbound; `None` where it cannot.
fn negotiated(running: &Running, inbound: SocketAddr, options: &[&str]) -> Option<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = running.authority.sign(&["spiffe://default/client"]);
    let [certificate_file, key_file] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&certificate_file, certificate).unwrap();
    std::fs::write(&key_file, key).unwrap();
    let mut command = Command::new("openssl");
    command.args([
        "s_client",
        "-connect",
        &inbound.to_string(),
        "-servername",
        "web",
        "-alpn",
        "kuma",
        "-brief",
    ]);
    // Which version is refused is up to Envoy, not to the client's own rules.
    command.args(["-cipher", "ALL:@SECLEVEL=0"]).args(options);
    command.arg("-cert").arg(certificate_file).arg("-key").arg(key_file);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().expect("the tests use the program openssl: `cargo xtask test` installs it");
    let said = String::from_utf8_lossy(&output.stderr);
    let line = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let version = line("Protocol version:")?;
    Some((version.to_owned(), line("Ciphersuite:").unwrap_or_default().to_owned()))
}

/// The status line a client without TLS gets; `None` when it gets no answer.
fn plain(inbound: SocketAddr) -> Option<String> {
    let mut socket = TcpStream::connect(inbound).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    BufReader::new(socket).read_line(&mut answer).ok()?;
    Some(answer.trim_end().to_owned()).filter(|answer| !answer.is_empty())
}

#[test]
fn a_plain_client_is_served_in_permissive_mode_and_refused_in_strict_mode() {
    for (mesh, mode, expected) in [
        (SECURED, "Permissive", Some(LET_IN)),
        (&permissive(), "Strict", None),
        (&permissive(), "Permissive", Some(LET_IN)),
    ] {
        let (running, inbound) = serving(mesh, &format!("{{ mode: {mode} }}"));
        assert_eq!(plain(inbound).as_deref(), expected, "{mode} over {mesh}");
        assert!(negotiated(&running, inbound, &[]).is_some(), "{mode}: clients of the mesh are served");
    }
}

#[test]
fn only_the_versions_between_minimum_and_maximum_are_negotiated() {
    for (conf, older, newer) in [
        ("{ tlsVersion: { min: TLS13 } }", false, true),
        ("{ tlsVersion: { max: TLS12 } }", true, false),
        ("{ tlsVersion: { min: TLS12, max: TLS13 } }", true, true),
    ] {
        let (running, inbound) = serving(SECURED, conf);
        let version = |option: &str| negotiated(&running, inbound, &[option]).map(|(version, _)| version);
        assert_eq!(version("-tls1_2"), older.then(|| "TLSv1.2".to_owned()), "{conf}");
        assert_eq!(version("-tls1_3"), newer.then(|| "TLSv1.3".to_owned()), "{conf}");
        assert_eq!(version("-tls1_1"), None, "{conf}");
    }
}

#[test]
fn only_the_ciphers_of_the_policy_are_negotiated() {
    let ciphers = "{ tlsVersion: { max: TLS12 }, tlsCiphers: [ECDHE-RSA-AES256-GCM-SHA384] }";
    let (running, inbound) = serving(SECURED, ciphers);
    let cipher =
        |wanted: &str| negotiated(&running, inbound, &["-tls1_2", "-cipher", wanted]).map(|(_, it)| it);
    let allowed = "ECDHE-ECDSA-AES256-GCM-SHA384";
    let other = "ECDHE-ECDSA-AES128-GCM-SHA256";
    assert_eq!(cipher(allowed).as_deref(), Some(allowed), "the same for the keys that proxies have");
    assert_eq!(cipher(other), None);
}

#[test]
fn what_a_proxy_calls_is_called_with_the_same_versions_and_ciphers() {
    let calling = web(
        "outbound: [{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80, labels: { team: shop } } }]",
    );
    let params = |conf: &str| {
        let target = target(&[SECURED, BACKEND, &policy(conf), &calling], &unified("web"));
        shown(&target, Type::Cluster, "kri_msvc_default_east__backend_http")
    };
    let at = "/transportSocket/typedConfig/commonTlsContext/tlsParams";
    let conf = "{ tlsVersion: { min: TLS11, max: TLS12 }, tlsCiphers: [ECDHE-ECDSA-AES128-GCM-SHA256] }";
    let both = json!({
        "tlsMinimumProtocolVersion": "TLSv1_1", "tlsMaximumProtocolVersion": "TLSv1_2",
        "cipherSuites": ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"]
    });
    check(&params(conf), &[(at, both)]);
    let newest = json!({ "tlsMinimumProtocolVersion": "TLSv1_3", "tlsMaximumProtocolVersion": "TLSv1_3" });
    check(&params("{ tlsVersion: { min: TLS13 } }"), &[(at, newest)]);
    check(&params("{ mode: Permissive }"), &[(at, json!(null))]);
}

#[test]
fn authorities_are_by_trust_domain_and_inbounds_require_one_of_them() {
    let bundle = [("domain-1", "123\n456"), ("domain-2", "789")];
    let bundle = bundle.map(|(domain, pem)| (domain.to_owned(), pem.to_owned()));
    let secret = Encoder::default().trust_bundle("system_trust_bundle", &bundle);
    let shown_secret = json::to_json(Type::Secret.url(), &secret.body()).unwrap();
    let domains = "/validationContext/customValidatorConfig/typedConfig/trustDomains";
    check(
        &shown_secret,
        &[
            ("/validationContext/customValidatorConfig/name", json!("envoy.tls.cert_validator.spiffe")),
            (
                domains,
                json!([
                    { "name": "domain-1", "trustBundle": { "inlineBytes": "MTIzCjQ1Ng==" } },
                    { "name": "domain-2", "trustBundle": { "inlineBytes": "Nzg5" } }
                ]),
            ),
        ],
    );
    let serving = web("inbound: [{ name: main, port: 80 }]");
    let target = target(&[SECURED, TRUST, &serving], &unified("web"));
    let listener = shown(&target, Type::Listener, "self_main");
    let context = "/filterChains/0/transportSocket/typedConfig/commonTlsContext/combinedValidationContext";
    let prefix =
        |domain: &str| json!({ "sanType": "URI", "matcher": { "prefix": format!("spiffe://{domain}/") } });
    check(
        &listener,
        &[
            (
                &format!("{context}/defaultValidationContext/matchTypedSubjectAltNames"),
                json!([prefix("default"), prefix("td")]),
            ),
            (&format!("{context}/validationContextSdsSecretConfig/name"), json!("system_trust_bundle")),
        ],
    );
}

#[test]
fn clients_of_every_trusted_domain_are_let_in_and_others_are_not() {
    let port = free_port();
    let admin = free_port();
    let serving = web(&format!(
        "inbound: [{{ name: main, address: 127.0.0.1, port: {port}, servicePort: {NOBODY}, tags: {{ kuma.io/service: web, kuma.io/protocol: http }} }}]"
    ));
    let traits = plan::ProxyTraits { admin_port: 0, ..unified("web") };
    let plan = plan(&[SECURED, TRUST, ALLOW_ALL, &serving], &traits);
    let running = Running::of(&plan, ([127, 0, 0, 1], port).into(), admin);
    let own = &running.authority;
    let other = &running.other;
    let stranger = &Authority::fresh();
    for (signer, uri, is_let_in) in [
        (own, "spiffe://default/a", true),
        (other, "spiffe://td/b", true),
        (other, "spiffe://default/a", false),
        (own, "spiffe://td/b", false),
        (own, "spiffe://elsewhere/a", false),
        (stranger, "spiffe://td/b", false),
    ] {
        let answer = running.call_signed_by(signer, &[uri]);
        assert_eq!(answer.as_deref().ok(), is_let_in.then_some(LET_IN), "{uri}: {answer:?}");
    }
}
