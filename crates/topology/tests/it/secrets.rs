//! Certificates and keys that MeshExternalServices take from secrets.

use resources::{Key, Kind, Resource};
use serde_json::json;
use topology::AllMeshes;

use crate::fixtures::{destination, gone, mesh, present, resource, spelled, state};

const SHOP: &str = "kri_extsvc_default___shop_443";

fn shop() -> Resource {
    let verification = json!({
        "caCert": { "secret": "ca" },
        "clientCert": { "inlineString": "certificate" },
        "clientKey": { "secret": "key" },
    });
    let spec = json!({
        "match": { "port": 443 },
        "endpoints": [{ "address": "shop.example", "port": 443 }],
        "tls": { "enabled": true, "verification": verification },
    });
    resource(Kind::MeshExternalService, "shop", &[], spec)
}

/// `data` is in base64.
fn secret(name: &str, data: &str) -> Resource {
    resource(Kind::Secret, name, &[], json!({ "data": data }))
}

/// Returns the texts that the service verifies with: a secret that is missing has its name in angle brackets.
fn material(state: &AllMeshes) -> [String; 3] {
    let destination = destination(state.mesh("default").unwrap(), SHOP);
    let tls = destination.external.as_ref().unwrap().tls.as_ref().unwrap();
    let verification = tls.verification.as_ref().unwrap();
    let sources = [&verification.ca_cert, &verification.client_cert, &verification.client_key];
    sources.map(|source| {
        let source = source.as_ref().unwrap();
        source.inline_string.clone().unwrap_or_else(|| format!("<{}>", source.secret.as_ref().unwrap()))
    })
}

#[test]
fn a_service_has_what_its_secrets_hold_whichever_comes_first() {
    let ca = secret("ca", "Y2E=");
    let key = secret("key", "a2V5");
    let expected = ["ca", "certificate", "key"].map(str::to_owned);
    assert_eq!(material(&state([mesh(""), shop(), ca.clone(), key.clone()])), expected);
    assert_eq!(material(&state([ca.clone(), key, mesh(""), shop()])), expected);
    let mut state = state([mesh(""), shop(), ca]);
    assert_eq!(material(&state), ["ca", "certificate", "<key>"]);
    state.apply(&[present(secret("ca", "b3RoZXI="))]);
    assert_eq!(material(&state), ["other", "certificate", "<key>"]);
    state.apply(&[gone(&secret("ca", ""))]);
    assert_eq!(material(&state), ["<ca>", "certificate", "<key>"]);
}

#[test]
fn a_secret_concerns_the_services_that_refer_to_it_only() {
    let mut state = state([mesh(""), shop()]);
    let mut affected = |secret: Resource| {
        let updates = state.apply(&[present(secret)]);
        let destinations = updates.iter().flat_map(|update| &update.affected.destinations);
        destinations.map(spelled).collect::<Vec<_>>()
    };
    assert_eq!(affected(secret("other", "Y2E=")), Vec::<String>::new());
    assert_eq!(affected(secret("ca", "Y2E=")), [SHOP]);
    // The same again.
    assert_eq!(affected(secret("ca", "Y2E=")), Vec::<String>::new());
}

#[test]
fn what_the_control_plane_signs_with_is_not_for_proxies() {
    let of_identity = Resource {
        owner: Some(Key::new(Kind::MeshIdentity, "default", "identity")),
        ..secret("identity-private-key", "a2V5")
    };
    let signing = [
        secret("default.ca-builtin-key-ca-1", "a2V5"),
        secret("dataplane-token-signing-key-default-1", "a2V5"),
        of_identity,
    ];
    for key in signing {
        let mut spec = shop().spec.to_json();
        spec["tls"]["verification"]["clientKey"] = json!({ "secret": key.name() });
        let shop = resource(Kind::MeshExternalService, "shop", &[], spec);
        let expected = format!("<{}>", key.name());
        assert_eq!(material(&state([mesh(""), shop, key]))[2], expected);
    }
}

#[test]
fn keys_are_not_shown() {
    let state = state([mesh(""), shop(), secret("key", "aHVzaC1odXNo")]);
    assert_eq!(material(&state)[2], "hush-hush");
    assert!(!format!("{state:?}").contains("hush-hush"));
}

#[test]
fn the_key_of_an_authority_is_for_no_proxy_also_when_a_user_wrote_it() {
    let hidden = ["ca", "certificate", "<key>"].map(str::to_owned);
    let mut state = state([mesh(""), shop(), secret("ca", "Y2E="), secret("key", "a2V5")]);
    let given = json!({ "type": "Secret", "secretRef": { "kind": "Secret", "name": "key" } });
    let bundled = json!({ "ca": { "certificate": given, "privateKey": given } });
    let spec = json!({ "provider": { "type": "Bundled", "bundled": bundled } });
    let identity = resource(Kind::MeshIdentity, "own", &[], spec);
    state.apply(&[present(identity.clone())]);
    assert_eq!(material(&state), hidden);
    state.apply(&[gone(&identity)]);
    assert_eq!(material(&state), ["ca", "certificate", "key"]);

    let conf = json!({ "cert": { "secret": "certificate" }, "key": { "secret": "key" } });
    let backends = json!([{ "name": "own", "type": "provided", "conf": conf }]);
    let spec = json!({ "mtls": { "backends": backends } });
    let listing = resource(Kind::Mesh, "default", &[], spec);
    let mesh = Resource { key: Key::global(Kind::Mesh, "default"), ..listing };
    state.apply(&[present(mesh)]);
    assert_eq!(material(&state), hidden);
}

#[test]
fn a_generated_key_that_was_restored_without_its_owner_is_for_no_proxy() {
    let identity = resource(Kind::MeshIdentity, "all", &[], json!({ "selector": { "dataplane": {} } }));
    let mut service = shop().spec.to_json();
    service["tls"]["verification"]["clientKey"] = json!({ "secret": "all-private-key" });
    let service = resource(Kind::MeshExternalService, "shop", &[], service);
    let restored = secret("all-private-key", "a2V5");
    let state = state([mesh(""), service, secret("ca", "Y2E="), restored, identity]);
    assert_eq!(material(&state), ["ca", "certificate", "<all-private-key>"]);
}
