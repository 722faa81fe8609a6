//! Effects of a MeshIdentity on the proxies that have it, and of a MeshTrust on all proxies.

use plan::{ProxyPlan, ProxyTraits, ServerTls};
use topology::VouchedLabels;

use crate::{
    planned::{Planned, planned},
    support::{BACKEND, PLAIN, SECURED, mesh_in, traits, web},
};

const TRUST: &str = "
type: MeshTrust
mesh: default
name: all
spec: { trustDomain: td, caBundles: [{ type: Pem, pem: { value: \"-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\" } }] }
";

const NETWORKING: &str = "inbound: [{ port: 80 }]\noutbound: [{ port: 10001, backendRef: { kind: MeshService, name: backend, port: 80, labels: { team: shop } } }]";

fn identity(provider: &str, ready: &str) -> String {
    format!(
        "type: MeshIdentity\nmesh: default\nname: all\nspec: {{ selector: {{ dataplane: {{}} }}, spiffeID: {{ trustDomain: td, path: /p }}, provider: {provider} }}\nstatus: {{ conditions: [{{ type: Ready, status: '{ready}' }}] }}\n"
    )
}

const BUNDLED: &str = "{ type: Bundled, bundled: { autogenerate: { enabled: true } } }";

fn caller(mesh: &str) -> Planned {
    planned().in_mesh(mesh).backend().web(NETWORKING)
}

#[test]
fn a_proxy_with_an_identity_requests_its_kri_and_clients_identities() {
    for (mesh, domains) in [(PLAIN, vec!["td"]), (SECURED, vec!["default", "td"])] {
        let plan = caller(mesh).with(&[&identity(BUNDLED, "True"), TRUST]).plan();
        assert_eq!(plan.findings(), []);
        let security = plan.own.security.unwrap();
        assert_eq!(security.secrets.identity.name(), "kri_mid_default___all_");
        assert_eq!(security.secrets.authorities.name(), "system_trust_bundle");
        assert_eq!(*security.trust_domains, domains[..]);
        assert_eq!(plan.own.inbounds[0].tls, ServerTls::Strict);
        assert!(plan.own.inbounds[0].permissions.is_some());
    }
}

#[test]
fn a_policy_may_let_plain_clients_in_while_a_mesh_gets_identities() {
    let permissive =
        "type: MeshTLS\nmesh: default\nname: tls\nspec: { rules: [{ default: { mode: Permissive } }] }\n";
    let plan = caller(PLAIN).with(&[&identity(BUNDLED, "True"), TRUST, permissive]).plan();
    assert_eq!(plan.own.inbounds[0].tls, ServerTls::Permissive);
}

#[test]
fn a_proxy_without_an_identity_believes_those_who_have_one() {
    let plan = caller(SECURED).with(&[TRUST]).plan();
    let security = plan.own.security.unwrap();
    assert_eq!(security.secrets.identity.name(), "identity_cert:secret:default");
    assert_eq!(security.secrets.authorities.name(), "system_trust_bundle");
    assert_eq!(*security.trust_domains, ["default", "td"]);
    assert_eq!(caller(PLAIN).with(&[TRUST]).plan().own.security, None);
}

#[test]
fn an_unavailable_identity_leaves_the_proxy_as_it_is_and_says_why() {
    let spire = "{ type: Spire, spire: {} }";
    for (documents, expected) in [
        (vec![identity(BUNDLED, "False"), TRUST.to_owned()], "MeshIdentity \"all\": it is not ready"),
        (
            vec![identity(spire, "False"), TRUST.to_owned()],
            "MeshIdentity \"all\": its provider is Spire, and only Bundled has an effect",
        ),
        (
            vec![identity(BUNDLED, "True")],
            "MeshIdentity \"all\": there is no MeshTrust, so no proxy would trust it",
        ),
    ] {
        let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
        let plan = caller(SECURED).with(&documents).plan();
        let said: Vec<String> = plan.findings().iter().map(ToString::to_string).collect();
        assert_eq!(said, [expected]);
        assert_eq!(plan.own.security.unwrap().secrets.identity.name(), "identity_cert:secret:default");
    }
}

const PERMISSIVE: &str =
    "type: MeshTLS\nmesh: default\nname: tls\nspec: { rules: [{ default: { mode: Permissive } }] }\n";

/// The plan of `web` in a zone.
fn in_zone(documents: &[&str], vouched: VouchedLabels) -> ProxyPlan {
    let web = web(NETWORKING);
    let mesh = mesh_in("east", &[documents, &[BACKEND, &web]].concat());
    plan::for_proxy(&mesh, &ProxyTraits { vouched, ..traits("web") }).unwrap()
}

#[test]
fn inbounds_waiting_for_an_identity_are_closed_without_any_certificate() {
    let tls = |documents: &[&str]| in_zone(documents, VouchedLabels::Everything).own.inbounds[0].tls;
    let not_ready = &*identity(BUNDLED, "False");
    let spire = &*identity("{ type: Spire, spire: {} }", "False");
    assert_eq!(tls(&[PLAIN, not_ready]), ServerTls::Closed);
    assert_eq!(tls(&[PLAIN, not_ready, TRUST]), ServerTls::Closed);
    assert_eq!(tls(&[PLAIN, &identity(BUNDLED, "True")]), ServerTls::Closed, "no proxy would trust it");
    assert_eq!(tls(&[PLAIN, spire, TRUST]), ServerTls::Closed);
    assert_eq!(tls(&[PLAIN, not_ready, PERMISSIVE]), ServerTls::Off, "as it is asked for");
    assert_eq!(tls(&[SECURED, not_ready]), ServerTls::Strict, "it has the certificate of the mesh");
    assert_eq!(tls(&[PLAIN, &identity(BUNDLED, "True"), TRUST]), ServerTls::Strict);
    // One without a provider certifies no one.
    let names_only = identity(BUNDLED, "False").replace(&format!(", provider: {BUNDLED}"), "");
    assert_eq!(tls(&[PLAIN, &names_only]), ServerTls::Off);
    let plan = in_zone(&[PLAIN, not_ready], VouchedLabels::Everything);
    let said = plan.findings()[0].to_string();
    assert!(said.contains("it is not ready; until it can be used, inbounds end every connection"), "{said}");
}

#[test]
fn a_proxy_whose_token_does_not_vouch_for_its_identity_is_not_given_it() {
    let by_name = identity(BUNDLED, "True").replace("path: /p", "path: '/{{ .Workload }}'");
    let nothing = || VouchedLabels::Labels(std::sync::Arc::default());
    let web = "type: Dataplane\nmesh: default\nname: web\nlabels: { kuma.io/workload: payments }\nnetworking: { address: 127.0.0.1, inbound: [{ port: 80 }] }";
    for (mesh, expected, certificate) in
        [(PLAIN, ServerTls::Closed, None), (SECURED, ServerTls::Strict, Some("identity_cert:secret:default"))]
    {
        let mesh = mesh_in("east", &[mesh, BACKEND, &by_name, TRUST, web]);
        let planned = |vouched| plan::for_proxy(&mesh, &ProxyTraits { vouched, ..traits("web") }).unwrap();
        let given = planned(VouchedLabels::Everything);
        assert_eq!(given.own.security.unwrap().secrets.identity.name(), "kri_mid_default___all_");
        let refused = planned(nothing());
        assert_eq!(refused.own.inbounds[0].tls, expected);
        assert_eq!(
            refused.own.security.as_ref().map(|it| it.secrets.identity.name().into_owned()).as_deref(),
            certificate
        );
        let [finding] = &refused.findings()[..] else { panic!("{:?}", refused.findings()) };
        assert_eq!(finding.code, plan::Code::IdentityNotVouched);
        assert_eq!(finding.about.as_ref().unwrap().to_string(), "kri_mid_default___all_");
        assert!(finding.to_string().contains("dataplane-token --workload VALUE"), "{finding}");
    }
}
