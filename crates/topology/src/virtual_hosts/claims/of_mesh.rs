//! Hostnames that the mesh itself gives services which are called by `kuma.io/service`.
//!
//! They are computed and never stored, so they are there however the mesh came here: by a user, from a global control
//! plane, or with the data of another one. A VirtualOutbound that claims one of them has it.

use std::{cmp::Reverse, sync::Arc};

use jiff::Timestamp;
use resources::{
    kinds::{tags::Tags, virtual_outbound::Rank},
    labels,
    naming::service_hosts::ServiceHosts,
};

use super::{ChangedClaims, Claim, Claims, VirtualPort};

/// Behind all that policies claim.
const LAST: Rank = Rank { tags: 0, exact: 0 };

impl Claims {
    /// Gives services other hostnames than before; `None` for none.
    pub fn name_services(&mut self, hosts: Option<&Arc<ServiceHosts>>, touched: &mut ChangedClaims) {
        if self.services.as_ref() == hosts {
            return;
        }
        let sources: Vec<Arc<Tags>> = self.sources.keys().cloned().collect();
        for source in &sources {
            self.take_back_from_mesh(source, touched);
        }
        self.services = hosts.cloned();
        for source in &sources {
            self.claim_for_mesh(source, touched);
        }
    }

    pub(super) fn claim_for_mesh(&mut self, source: &Tags, touched: &mut ChangedClaims) {
        for (host, port, claim) in self.of_mesh(source) {
            self.keep(host, port, claim, touched);
        }
    }

    pub(super) fn take_back_from_mesh(&mut self, source: &Tags, touched: &mut ChangedClaims) {
        for (host, port, claim) in self.of_mesh(source) {
            self.drop_one(host, port, &claim, touched);
        }
    }

    /// The claims that the mesh has because of these tags.
    pub(super) fn of_mesh(&self, source: &Tags) -> Vec<(Arc<str>, u16, Claim)> {
        let Some((hosts, (name, service))) =
            self.services.as_ref().zip(source.get_key_value(labels::SERVICE))
        else {
            return Vec::new();
        };
        let tags = Arc::new(Tags::from([(name.clone(), service.clone())]));
        let port = VirtualPort { policy: None, tags };
        let claim = Claim { rank: Reverse(LAST), created: Reverse(Timestamp::MIN), port };
        hosts.of(service).into_iter().map(|host| (host.into(), hosts.port, claim.clone())).collect()
    }
}
