//! ExternalService and ProxyTemplate.

use resources::{kinds::host_port::HostPort, labels};
use serde_json::json;

use super::legacy::{Legacy, Translation, renamed, says_something};

pub fn external(legacy: &Legacy<'_>) -> Translation {
    let networking = &legacy.spec["networking"];
    let address = networking["address"].as_str().unwrap_or_default();
    let Some((host, port)) = HostPort::with_port(address) else {
        return Translation::nothing(format!("networking.address {address:?} is not an address and a port"));
    };
    let mut made = Translation::default();
    made.note(
        "applications call a MeshExternalService by another name: the one that a HostnameGenerator gives it, not that of its \
         kuma.io/service",
    );
    let protocol = legacy.spec["tags"][labels::PROTOCOL].as_str().unwrap_or("tcp");
    let mut spec = json!({
        "match": { "type": "HostnameGenerator", "port": port, "protocol": protocol },
        "endpoints": [{ "address": host, "port": port }],
    });
    let tls = &networking["tls"];
    if tls["enabled"] == true {
        let mut verification = renamed(tls, &[("serverName", "serverName")]);
        if tls["skipHostnameVerification"] == true {
            verification["mode"] = json!("SkipSAN");
        }
        for (old, new) in [("caCert", "caCert"), ("clientCert", "clientCert"), ("clientKey", "clientKey")] {
            let Some(source) = tls.get(old).filter(|source| says_something(source)) else { continue };
            // They hold the same: a secret by name, or the bytes themselves.
            verification[new] = renamed(
                source,
                &[("secret", "secret"), ("inline", "inline"), ("inlineString", "inlineString")],
            );
        }
        spec["tls"] = json!({ "enabled": true });
        if says_something(&verification) {
            spec["tls"]["verification"] = verification;
        }
        if tls["allowRenegotiation"] == true {
            spec["tls"]["allowRenegotiation"] = json!(true);
        }
    }
    made.add("MeshExternalService", spec);
    made
}

pub fn proxy_template(legacy: &Legacy<'_>) -> Translation {
    let mut made = Translation::default();
    if !legacy.conf()["resources"].is_null() {
        made.note("resources of its own have no equivalent: write them as modifications with operation Add");
    }
    let mut modifications = Vec::new();
    for modification in legacy.conf()["modifications"].as_array().into_iter().flatten() {
        let Some((part, change)) = modification.as_object().and_then(|fields| fields.iter().next()) else {
            continue;
        };
        let mut new = renamed(change, &[("match", "match"), ("value", "value")]);
        let operation = change["operation"].as_str().unwrap_or_default();
        let mut letters = operation.chars();
        let capital = letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>());
        new["operation"] = json!(capital.unwrap_or_default());
        modifications.push(json!({ part: new }));
    }
    if modifications.is_empty() {
        made.note("none of its changes has an equivalent");
        return made;
    }
    for selector in legacy.selectors("selectors") {
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
