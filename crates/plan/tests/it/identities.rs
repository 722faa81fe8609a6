//! What a MeshIdentity does to the proxies that have it, and a MeshTrust to all of them.

use plan::{ProxyPlan, ProxyTraits, ServerTls};
use topology::Vouched;

use crate::support::{BACKEND, PLAIN, SECURED, mesh_in, plan, traits, web};

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

fn planned(mesh: &str, documents: &[&str]) -> ProxyPlan {
    let web = web(NETWORKING);
    let documents: Vec<&str> = [&[mesh, BACKEND], documents, &[&web]].concat();
    plan(&documents, &traits("web"))
}

#[test]
fn a_proxy_with_an_identity_asks_for_it_by_its_kri_and_asks_clients_for_theirs() {
    for (mesh, domains) in [(PLAIN, vec!["td"]), (SECURED, vec!["default", "td"])] {
        let plan = planned(mesh, &[&identity(BUNDLED, "True"), TRUST]);
        assert_eq!(plan.problems, []);
        let security = plan.security.unwrap();
        assert_eq!(security.secrets.identity, "kri_mid_default___all_");
        assert_eq!(security.secrets.authorities, "system_trust_bundle");
        assert_eq!(*security.trust_domains, domains[..]);
        assert_eq!(plan.inbounds[0].tls, ServerTls::Strict);
        assert!(plan.inbounds[0].permissions.is_some());
    }
}

#[test]
fn a_policy_may_let_plain_clients_in_while_a_mesh_gets_identities() {
    let permissive =
        "type: MeshTLS\nmesh: default\nname: tls\nspec: { rules: [{ default: { mode: Permissive } }] }\n";
    let plan = planned(PLAIN, &[&identity(BUNDLED, "True"), TRUST, permissive]);
    assert_eq!(plan.inbounds[0].tls, ServerTls::Permissive);
}

#[test]
fn a_proxy_without_an_identity_believes_those_who_have_one() {
    let plan = planned(SECURED, &[TRUST]);
    let security = plan.security.unwrap();
    assert_eq!(security.secrets.identity, "identity_cert:secret:default");
    assert_eq!(security.secrets.authorities, "system_trust_bundle");
    assert_eq!(*security.trust_domains, ["default", "td"]);
    assert_eq!(planned(PLAIN, &[TRUST]).security, None);
}

#[test]
fn an_identity_that_cannot_be_given_leaves_the_proxy_as_it_is_and_says_why() {
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
        let plan = planned(SECURED, &documents);
        let said: Vec<String> = plan.problems.iter().map(ToString::to_string).collect();
        assert_eq!(said, [expected]);
        assert_eq!(plan.security.unwrap().secrets.identity, "identity_cert:secret:default");
    }
}

const PERMISSIVE: &str =
    "type: MeshTLS\nmesh: default\nname: tls\nspec: { rules: [{ default: { mode: Permissive } }] }\n";

/// The plan of `web` in a zone.
fn in_zone(documents: &[&str], vouched: Vouched) -> ProxyPlan {
    let web = web(NETWORKING);
    let mesh = mesh_in("east", &[documents, &[BACKEND, &web]].concat());
    plan::for_proxy(&mesh, &ProxyTraits { vouched, ..traits("web") }).unwrap()
}

#[test]
fn inbounds_that_wait_for_an_identity_are_closed_unless_there_is_another_certificate() {
    let tls = |documents: &[&str]| in_zone(documents, Vouched::Everything).inbounds[0].tls;
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
    let plan = in_zone(&[PLAIN, not_ready], Vouched::Everything);
    let said = plan.problems[0].to_string();
    assert!(said.contains("it is not ready; until it can be used, inbounds end every connection"), "{said}");
}

#[test]
fn a_proxy_whose_token_does_not_vouch_for_its_identity_is_not_given_it() {
    let by_name = identity(BUNDLED, "True").replace("path: /p", "path: '/{{ .Workload }}'");
    let nothing = || Vouched::Labels(std::sync::Arc::default());
    let web = "type: Dataplane\nmesh: default\nname: web\nlabels: { kuma.io/workload: payments }\nnetworking: { address: 127.0.0.1, inbound: [{ port: 80 }] }";
    for (mesh, expected, certificate) in
        [(PLAIN, ServerTls::Closed, None), (SECURED, ServerTls::Strict, Some("identity_cert:secret:default"))]
    {
        let mesh = mesh_in("east", &[mesh, BACKEND, &by_name, TRUST, web]);
        let planned = |vouched| plan::for_proxy(&mesh, &ProxyTraits { vouched, ..traits("web") }).unwrap();
        let given = planned(Vouched::Everything);
        assert_eq!(given.security.unwrap().secrets.identity, "kri_mid_default___all_");
        let refused = planned(nothing());
        assert_eq!(refused.inbounds[0].tls, expected);
        assert_eq!(refused.security.map(|it| it.secrets.identity).as_deref(), certificate);
        let [problem] = &refused.problems[..] else { panic!("{:?}", refused.problems) };
        assert_eq!(problem.code, plan::Code::IdentityNotVouched);
        assert_eq!(problem.about.as_ref().unwrap().to_string(), "kri_mid_default___all_");
        assert!(problem.to_string().contains("dataplane-token --workload VALUE"), "{problem}");
    }
}
