//! Effects of MeshTLS on inbounds, on passthrough and on outbounds.

use plan::{ProxyTraits, ServerTls, TlsParameters, TlsVersion};
use resources::kinds::tls::TlsCipher;

use crate::{
    planned::{Planned, planned},
    support::{PLAIN, SECURED, traits},
};

const INBOUNDS: &str = "inbound: [{ name: main, port: 80 }, { name: side, port: 81 }]\n";

fn permissive() -> String {
    SECURED.replace("type: builtin", "type: builtin, mode: PERMISSIVE")
}

fn policy(name: &str, target: &str, conf: &str) -> String {
    format!(
        "type: MeshTLS\nmesh: default\nname: {name}\nspec: {{ targetRef: {target}, rules: [{{ default: {conf} }}] }}\n"
    )
}

fn serving(mesh: &str, policies: &[String], networking: &str) -> Planned {
    let policies: Vec<&str> = policies.iter().map(String::as_str).collect();
    let traits = ProxyTraits { strict_inbound_ports: true, ..traits("web") };
    planned().in_mesh(mesh).backend().with(&policies).web(networking).traits(&traits)
}

fn modes(mesh: &str, policies: &[String]) -> Vec<ServerTls> {
    serving(mesh, policies, INBOUNDS).plan().own.inbounds.iter().map(|inbound| inbound.tls).collect()
}

#[test]
fn a_policy_decides_over_the_mode_of_the_mesh_for_what_it_selects() {
    use ServerTls::{Off, Permissive, Strict};
    let all = |mode: &str| policy("all", "{ kind: Mesh }", &format!("{{ mode: {mode} }}"));
    let side = |mode: &str| {
        policy("side", "{ kind: Dataplane, name: web, sectionName: side }", &format!("{{ mode: {mode} }}"))
    };
    for (mesh, policies, expected) in [
        (SECURED, vec![], [Strict, Strict]),
        (SECURED, vec![all("Permissive")], [Permissive, Permissive]),
        (&permissive(), vec![all("Strict")], [Strict, Strict]),
        (SECURED, vec![side("Permissive")], [Strict, Permissive]),
        (&permissive(), vec![all("Permissive"), side("Strict")], [Permissive, Strict]),
        (PLAIN, vec![all("Strict")], [Off, Off]),
    ] {
        assert_eq!(modes(mesh, &policies), expected, "{policies:?}");
    }
    let older = all("Permissive").replace("rules: [{", "from: [{ targetRef: { kind: Mesh },");
    assert_eq!(modes(SECURED, &[older]), [Permissive, Permissive]);
}

#[test]
fn redirected_traffic_to_other_ports_ends_once_an_inbound_is_strict() {
    let redirected = format!("{INBOUNDS}transparentProxying: {{}}\n");
    let let_in = |mesh: &str, policies: &[String]| {
        let plan = serving(mesh, policies, &redirected).plan();
        let inbound = |it: &&plan::Passthrough| it.direction == resources::naming::Direction::Inbound;
        let all: Vec<bool> = plan.own.passthrough.iter().filter(inbound).map(|it| it.allowed).collect();
        assert_eq!(all.len(), 2, "of either IP version");
        all[0]
    };
    let all = |mode: &str| [policy("all", "{ kind: Mesh }", &format!("{{ mode: {mode} }}"))];
    assert!(let_in(SECURED, &all("Permissive")));
    assert!(!let_in(&permissive(), &all("Strict")));
    let side = policy("side", "{ kind: Dataplane, name: web, sectionName: side }", "{ mode: Strict }");
    assert!(!let_in(&permissive(), &[side]));
}

#[test]
fn versions_and_ciphers_hold_for_both_sides_of_a_proxy() {
    let conf = "{ tlsVersion: { min: TLS12, max: TLSAuto },
        tlsCiphers: [ECDHE-RSA-AES256-GCM-SHA384, ECDHE-ECDSA-AES128-GCM-SHA256] }";
    let plan = serving(SECURED, &[policy("all", "{ kind: Mesh }", conf)], INBOUNDS).plan();
    let parameters = plan.own.security.unwrap().parameters.unwrap();
    assert_eq!(
        *parameters,
        TlsParameters {
            min: Some(TlsVersion::Tls12),
            max: None,
            // Proxies have keys of either kind.
            ciphers: vec![
                TlsCipher::RsaAes256,
                TlsCipher::EcdsaAes256,
                TlsCipher::EcdsaAes128,
                TlsCipher::RsaAes128,
            ],
        }
    );
    assert_eq!(plan.own.inbounds[0].tls, ServerTls::Strict, "the mode stays that of the mesh");
    let without = serving(SECURED, &[policy("all", "{ kind: Mesh }", "{ mode: Strict }")], INBOUNDS).plan();
    assert_eq!(without.own.security.unwrap().parameters, None);
}
