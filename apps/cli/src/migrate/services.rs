//! ExternalService and ProxyTemplate.

use contract::lenient::read_partly;
use resources::{kinds::host_port::HostPort, labels};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    calls::capitalised,
    legacy::{
        Legacy, Translation, given,
        services::{ExternalService, ExternalTls, Modification, TemplateConf},
    },
};

#[derive(Debug, Serialize)]
struct MeshExternalServiceSpec {
    r#match: Value,
    endpoints: Value,
    tls: Option<Map<String, Value>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NewTls {
    enabled: bool,
    verification: Option<Map<String, Value>>,
    allow_renegotiation: Option<bool>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Verification {
    server_name: Option<Value>,
    mode: Option<&'static str>,
    ca_cert: Option<Map<String, Value>>,
    client_cert: Option<Map<String, Value>>,
    client_key: Option<Map<String, Value>>,
}

pub fn external(legacy: &Legacy<'_>) -> Translation {
    let ExternalService { tags, networking } = legacy.spec();
    let address = &networking.address;
    let Some((host, port)) = HostPort::with_port(address) else {
        return Translation::nothing(format!("networking.address {address:?} is not an address and a port"));
    };
    let mut made = Translation::default();
    made.note(
        "applications call a MeshExternalService by another name: the one that a HostnameGenerator gives it, not that of its \
         kuma.io/service",
    );
    let protocol = tags.get(labels::PROTOCOL).map_or("tcp", String::as_str);
    let spec = MeshExternalServiceSpec {
        r#match: json!({ "type": "HostnameGenerator", "port": port, "protocol": protocol }),
        endpoints: json!([{ "address": host, "port": port }]),
        tls: networking.tls.enabled.then(|| tls(networking.tls)),
    };
    made.add("MeshExternalService", Value::Object(given(&spec)));
    made
}

fn tls(old: ExternalTls) -> Map<String, Value> {
    let verification = given(&Verification {
        ca_cert: old.ca_cert.as_ref().map(given),
        client_cert: old.client_cert.as_ref().map(given),
        client_key: old.client_key.as_ref().map(given),
        mode: old.skip_hostname_verification.then_some("SkipSAN"),
        server_name: old.server_name,
    });
    given(&NewTls {
        enabled: true,
        verification: Some(verification).filter(|it| !it.is_empty()),
        allow_renegotiation: old.allow_renegotiation.then_some(true),
    })
}

pub fn proxy_template(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    let conf: TemplateConf = legacy.conf();
    if conf.resources.is_some() {
        made.note("resources of its own have no equivalent: write them as modifications with operation Add");
    }
    let mut modifications = Vec::new();
    for (part, change) in conf.modifications.iter().filter_map(|modification| modification.iter().next()) {
        let change: Modification = read_partly(change);
        let change = Modification { operation: capitalised(&change.operation), ..change };
        modifications.push(json!({ part: given(&change) }));
    }
    if modifications.is_empty() {
        made.note("none of its changes has an equivalent");
        return made;
    }
    for selector in &legacy.selectors {
        match selector.reference() {
            Ok(target) => {
                let default = json!({ "appendModifications": modifications });
                made.add("MeshProxyPatch", json!({ "targetRef": target, "default": default }));
            }
            Err(why) => made.note(why),
        }
    }
    made
}
