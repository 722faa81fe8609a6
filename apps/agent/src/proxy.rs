//! Identity of the proxy: from its definition, which is checked here before it is sent, or from its name
//! alone when the control plane knows the rest.

use std::{collections::BTreeMap, sync::Arc};

use resources::{
    Draft, Kind, Spec,
    format::{self, template, universal, yaml},
    kinds::dataplane::Dataplane,
};

use crate::{
    failure::{Failure, Result},
    settings::{self, ProxyType},
};

/// A proxy as the agent describes it to the control plane.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyIdentity {
    /// Empty for proxies of a zone, which belong to no mesh.
    pub mesh: String,
    pub name: String,
    /// The definition as JSON, if there is one.
    pub resource: Option<String>,
    /// The same, read, when the proxy stands beside a workload.
    pub dataplane: Option<Arc<Dataplane>>,
}

impl ProxyType {
    pub fn name(self) -> &'static str {
        match self {
            ProxyType::Dataplane => "dataplane",
            ProxyType::Ingress => "ingress",
            ProxyType::Egress => "egress",
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            ProxyType::Dataplane => Kind::Dataplane,
            ProxyType::Ingress => Kind::ZoneIngress,
            ProxyType::Egress => Kind::ZoneEgress,
        }
    }
}

pub fn identify(settings: &settings::ProxySettings) -> Result<ProxyIdentity> {
    match settings.definition()? {
        Some((text, origin)) => {
            let vars = settings.dataplane_var.iter().cloned().collect();
            let draft = read(&text, &origin, &vars, settings.proxy_type)?;
            let mesh = draft.key.mesh.to_string();
            let name = draft.key.name.to_string();
            agree("--name", settings.name(), &name, &origin)?;
            if !mesh.is_empty() {
                agree("--mesh", settings.mesh(), &mesh, &origin)?;
            }
            let resource = Some(universal::render_draft(&draft).to_string());
            let dataplane = match draft.spec {
                Spec::Dataplane(dataplane) => Some(dataplane),
                _ => None,
            };
            Ok(ProxyIdentity { mesh, name, resource, dataplane })
        }
        None => {
            let name = settings.name().ok_or_else(|| {
                Failure::invalid(
                    "which proxy is this? Pass its definition with --dataplane-file, \
                     or --name when the control plane knows it already",
                )
            })?;
            let mesh = match settings.proxy_type {
                ProxyType::Dataplane => settings.mesh().unwrap_or(universal::DEFAULT_MESH),
                ProxyType::Ingress | ProxyType::Egress => "",
            };
            Ok(ProxyIdentity {
                mesh: mesh.to_owned(),
                name: name.to_owned(),
                resource: None,
                dataplane: None,
            })
        }
    }
}

/// A flag may repeat what the definition says, not contradict it.
fn agree(flag: &str, given: Option<&str>, defined: &str, origin: &str) -> Result<()> {
    match given {
        Some(given) if given != defined => Err(Failure::invalid(format!(
            "{flag} is {given:?} but {origin} says {defined:?}; leave {flag} out"
        ))),
        _ => Ok(()),
    }
}

fn read(text: &[u8], origin: &str, vars: &BTreeMap<String, String>, proxy_type: ProxyType) -> Result<Draft> {
    let invalid = |what: String| Failure::invalid(format!("{origin}: {what}"));
    let documents = match std::str::from_utf8(text) {
        Ok(text) => {
            let rendered = template::render(text, vars).map_err(|missing| {
                let lines: Vec<String> = missing.iter().map(|one| format!("{origin}:{one}")).collect();
                Failure::invalid(lines.join("\n"))
            })?;
            yaml::documents(&rendered)
        }
        Err(_) => yaml::from_bytes(text),
    };
    let mut documents = documents.map_err(|error| invalid(error.to_string()))?;
    let expected = proxy_type.kind();
    let (Some(document), true) = (documents.pop(), documents.is_empty()) else {
        return Err(invalid(format!("expected one {expected} and nothing else")));
    };
    let parsed = format::parse(document.value).map_err(|error| invalid(error.to_string()))?;
    for field in parsed.unknown_fields {
        tracing::warn!(field, "unknown field in the definition of the proxy; it is ignored");
    }
    let draft = parsed.draft;
    if draft.kind() != expected {
        let got = draft.kind();
        let name = proxy_type.name();
        return Err(invalid(format!("expected a {expected}, because --proxy-type is {name}; got a {got}")));
    }
    let mut violations = draft.validate();
    violations.require(!draft.key.name.is_empty(), "name", "cannot be empty");
    if !violations.is_empty() {
        let lines: Vec<String> = violations
            .iter()
            .map(|violation| format!("  {}: {}", violation.field, violation.message))
            .collect();
        return Err(invalid(format!("this {expected} is not valid:\n{}", lines.join("\n"))));
    }
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "type: Dataplane\nmesh: default\nname: {{ name }}\nnetworking:\n  address: 127.0.0.2\n  \
                        inbound:\n  - port: 80\n    tags: {kuma.io/service: web}\n";

    fn refused(text: &str, vars: &[(&str, &str)]) -> String {
        let vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let failure = read(text.as_bytes(), "dp.yaml", &vars, ProxyType::Dataplane).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        failure.to_string()
    }

    #[test]
    fn variables_are_filled_in_before_the_definition_is_read() {
        let vars = [("name".to_owned(), "web-1".to_owned())].into_iter().collect();
        let draft = read(GOOD.as_bytes(), "dp.yaml", &vars, ProxyType::Dataplane).unwrap();
        assert_eq!(&*draft.key.name, "web-1");
        assert_eq!(refused(GOOD, &[("x", "y")]), "dp.yaml:3:7: no value for {{ name }}; pass -v name=…");
    }

    #[test]
    fn what_is_not_one_good_proxy_is_refused_with_every_reason() {
        let check = |text: &str, expect: &str| {
            let said = refused(text, &[]);
            assert!(said.contains(expect), "{text:?}: {said}");
        };
        check("", "expected one Dataplane");
        check("type: Mesh\nname: m\n", "got a Mesh");
        check("type: ZoneIngress\nname: i\n", "got a ZoneIngress");
        check("a: [", "dp.yaml: line 1");
        check("type: Dataplane\nname: a\n---\ntype: Dataplane\nname: b\n", "nothing else");
        check(
            "type: Dataplane\nname: a\nnetworking: {address: 1.1.1.1, inbound: [{port: 0}]}\n",
            "inbound[0]",
        );
        check("type: Dataplane\nmesh: m\n", "name: cannot be empty");
    }
}
