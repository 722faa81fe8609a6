//! What a MeshIdentity does to the proxies that have it, and a MeshTrust to all of them.

use plan::{ProxyPlan, ServerTls};

use crate::support::{BACKEND, PLAIN, SECURED, plan, traits, web};

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
