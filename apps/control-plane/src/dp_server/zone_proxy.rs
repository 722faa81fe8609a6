//! What is stored of a zone proxy that brings its ZoneIngress or ZoneEgress along.

use resources::{Draft, Spec};

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

/// The same with what the control plane wrote into the stored one: the services that an ingress leads to.
pub fn keeping(mut draft: Draft, stored: Option<&Spec>) -> Draft {
    if let (Spec::ZoneIngress(brought), Some(Spec::ZoneIngress(stored))) = (&draft.spec, stored) {
        let mut ingress = (**brought).clone();
        ingress.available_services.clone_from(&stored.available_services);
        draft.spec = Spec::from(ingress);
    }
    draft
}
