//! Stored form of a zone proxy that brings its ZoneIngress or ZoneEgress along.

use resources::{Draft, Resource, Spec, kinds::zone_ingress::ZoneIngress, labels};

/// The definition of a zone proxy as that of this zone; `None` for other proxies. A proxy cannot be in another zone
/// than its control plane.
pub fn in_zone(draft: &Draft, zone: &str) -> Option<Draft> {
    let mut draft = draft.clone();
    draft.spec = match &draft.spec {
        Spec::ZoneIngress(ingress) => {
            let mut ingress = (**ingress).clone();
            zone.clone_into(&mut ingress.zone);
            Spec::from(ingress)
        }
        Spec::ZoneEgress(egress) => {
            let mut egress = (**egress).clone();
            zone.clone_into(&mut egress.zone);
            Spec::from(egress)
        }
        _ => return None,
    };
    Some(draft)
}

/// The same with what the control plane wrote into the stored one, and nothing that is the control plane's to write: the
/// services that an ingress leads to, and whether its zone has permissions of its own. Other zones believe both.
pub fn keeping(mut draft: Draft, stored: Option<&Resource>) -> Draft {
    let written = stored.and_then(|stored| stored.spec.get::<ZoneIngress>());
    if let Spec::ZoneIngress(brought) = &draft.spec {
        let mut ingress = (**brought).clone();
        ingress.available_services = written.map(|it| it.available_services.clone()).unwrap_or_default();
        draft.spec = Spec::from(ingress);
    }
    if let Some(value) = stored.and_then(|stored| stored.label(labels::OWN_PERMISSIONS)) {
        draft.labels.insert(labels::OWN_PERMISSIONS.to_owned(), value.to_owned());
    }
    draft
}

#[cfg(test)]
mod tests {
    use resources::{Key, Kind};
    use serde_json::{Value, json};
    use testkit::resource::{of_draft, stored};

    use super::*;

    fn ingress(services: Value) -> Resource {
        let networking = json!({ "address": "127.0.0.7", "port": 10001 });
        let spec = json!({ "networking": networking, "availableServices": services });
        stored(Key::global(Kind::ZoneIngress, "gate"), &[], spec)
    }

    #[test]
    fn what_others_believe_of_an_ingress_is_what_the_control_plane_wrote() {
        let of = |service: &str| json!([{ "tags": { "kuma.io/service": service }, "instances": 1, "mesh": "default" }]);
        let brought = Draft::new(Key::global(Kind::ZoneIngress, "gate"), ingress(of("payments")).spec);
        let services = |draft: &Draft| draft.spec.to_json().get("availableServices").cloned();
        assert_eq!(
            services(&keeping(brought.clone(), None)),
            services(&Draft::new(brought.key.clone(), ingress(json!([])).spec))
        );

        let mut known = ingress(of("web"));
        known.labels.insert(labels::OWN_PERMISSIONS.to_owned(), "true".to_owned());
        let kept = keeping(brought, Some(&known));
        assert_eq!(services(&kept), Some(of("web")));
        assert_eq!(of_draft(kept).label(labels::OWN_PERMISSIONS), Some("true"));
    }
}
