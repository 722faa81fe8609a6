//! The authorities of MeshIdentities.

use identity::{
    Authority,
    ca::{Sources, bundled},
    workload,
};
use jiff::ToSpan;
use resources::{Key, Kind, Resource, kinds::secret::Secret};
use serde_json::{Value, json};
use store::Snapshot;

use crate::{
    ca::{authority, secret},
    noon, snapshot,
};

pub fn identity(bundled: Value) -> Resource {
    let provider = json!({ "type": "Bundled", "bundled": bundled });
    let spec = json!({ "selector": { "dataplane": {} }, "provider": provider });
    testkit::resource::stored(Key::new(Kind::MeshIdentity, "default", "all"), &[], spec)
}

pub fn load(stored: &Snapshot, identity: &Resource) -> Result<Authority, String> {
    let loaded = Authority::of_identity(Sources::from(stored), identity, noon());
    loaded.map_err(|error| error.to_string())
}

pub fn texts(made: &[Resource]) -> Vec<String> {
    let text = |secret: &Resource| {
        String::from_utf8(secret.spec.get::<Secret>().unwrap().data.as_bytes().to_vec()).unwrap()
    };
    made.iter().map(text).collect()
}

#[test]
fn an_authority_is_made_once_and_signs_for_a_spiffe_id() {
    let identity = identity(json!({ "autogenerate": { "enabled": true }, "insecureAllowSelfSigned": true,
        "certificateParameters": { "expiry": "1h" } }));
    let nothing = snapshot([]);
    let made = bundled::missing(Sources::from(&nothing), &identity, "shop.example", noon()).unwrap();
    let names: Vec<&str> = made.iter().map(Resource::name).collect();
    assert_eq!(names, ["all-private-key", "all-root-ca"], "the key first");
    assert!(made.iter().all(|secret| secret.owner.as_ref() == Some(&identity.key)));
    let [key, certificate] = texts(&made).try_into().unwrap();
    let stored = snapshot([
        secret("default", "all-private-key", &key),
        secret("default", "all-root-ca", &certificate),
    ]);
    let sources = Sources::from(&stored);
    assert_eq!(bundled::missing(sources, &identity, "shop.example", noon()).unwrap(), []);
    let authority = load(&stored, &identity).unwrap();
    assert_eq!(authority.lifetime().as_secs(), 3600);
    let proxy = Key::new(Kind::Dataplane, "default", "web");
    let id = ["spiffe://shop.example/workload/web".to_owned()];
    let signed = workload::issue(&authority, &proxy, &id, noon(), None).unwrap();
    assert_eq!(signed.facts.names, id);
    let trusted = bundled::trusted(sources, &identity).unwrap();
    assert!(bundled::same_certificate(&trusted, &certificate) && !bundled::same_certificate(&trusted, &key));

    let key_alone = snapshot([secret("default", "all-private-key", &key)]);
    let rest = bundled::missing(Sources::from(&key_alone), &identity, "shop.example", noon()).unwrap();
    assert_eq!(rest.iter().map(Resource::name).collect::<Vec<_>>(), ["all-root-ca"]);
}

#[test]
fn a_given_authority_is_read_and_a_self_signed_one_only_if_allowed() {
    let (certificate, key) = authority(|_| {});
    let inline = |text: &str| json!({ "type": "InsecureInline", "insecureInline": { "value": text } });
    let by_secret = json!({ "type": "Secret", "secretRef": { "kind": "Secret", "name": "key" } });
    let ca = json!({ "certificate": inline(&certificate), "privateKey": by_secret });
    let stored = snapshot([secret("default", "key", &key)]);
    let refused = load(&stored, &identity(json!({ "ca": ca }))).unwrap_err();
    assert!(refused.ends_with("self-signed certificates are not allowed"), "{refused}");
    load(&stored, &identity(json!({ "ca": ca, "insecureAllowSelfSigned": true }))).unwrap();
    let error = load(&snapshot([]), &identity(json!({ "ca": ca }))).unwrap_err();
    assert!(error.contains("spec.provider.bundled.ca.privateKey") && error.contains("key"), "{error}");
    let unset = json!({ "type": "EnvVar", "envVar": { "name": "KUMA_NO_SUCH_VARIABLE" } });
    let ca = json!({ "certificate": inline(&certificate), "privateKey": unset });
    let error = load(&stored, &identity(json!({ "ca": ca }))).unwrap_err();
    assert!(error.contains("no environment variable \"KUMA_NO_SUCH_VARIABLE\""), "{error}");
}

#[test]
fn a_root_that_is_not_valid_yet_is_signed_again_with_its_key() {
    let identity = identity(json!({ "autogenerate": { "enabled": true }, "insecureAllowSelfSigned": true }));
    let later = noon() + 24.hours();
    let made = bundled::missing(Sources::from(&snapshot([])), &identity, "shop.example", later).unwrap();
    let [key, certificate] = texts(&made).try_into().unwrap();
    let stored = snapshot([
        secret("default", "all-private-key", &key),
        secret("default", "all-root-ca", &certificate),
    ]);
    let again = bundled::missing(Sources::from(&stored), &identity, "shop.example", noon()).unwrap();
    assert_eq!(again.iter().map(Resource::name).collect::<Vec<_>>(), ["all-root-ca"]);
    let stored = snapshot([
        secret("default", "all-private-key", &key),
        secret("default", "all-root-ca", &texts(&again)[0]),
    ]);
    load(&stored, &identity).unwrap();
    assert_eq!(bundled::missing(Sources::from(&stored), &identity, "shop.example", noon()).unwrap(), []);
}
