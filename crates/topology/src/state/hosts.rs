//! The hostnames of a mesh, settled after each round of changes.

use std::{collections::BTreeSet, sync::Arc};

use resources::{
    Key, Resource,
    kinds::{config::Config, tags::Tags},
};

use super::mesh::{MeshState, Round};
use crate::{
    VirtualHost,
    virtual_hosts::{
        claims::ChangedClaims,
        vips::{self, VipRecord},
    },
};

/// Stands in [`super::Affected::virtual_hosts`] for what has no hostname: what could not be rendered or was left out.
const NO_HOST: &str = "";

impl MeshState {
    /// Takes in the addresses of hostnames that are stored now.
    pub(super) fn take_config(&mut self, key: &Key, value: Option<&Arc<Resource>>, round: &mut Round) {
        let Some((_, VipRecord::Shard(shard))) = vips::of_config(&key.name) else { return };
        let stored = value.and_then(|config| config.spec.get::<Config>());
        let addresses = stored.map(|stored| {
            vips::read(&stored.config).into_iter().map(|(host, entry)| (host, entry.address)).collect()
        });
        self.hosts.claims.replace_addresses(shard, addresses, &mut round.touched);
    }

    /// Brings the hostnames that are offered in line with those that are claimed.
    pub(super) fn settle_hosts(&mut self, limit: usize, round: &mut Round) {
        self.hosts.claims.refill(&mut round.touched);
        let ChangedClaims { hosts, policies } = std::mem::take(&mut round.touched);
        for host in &hosts {
            self.settle_host(host, limit, round);
        }
        let mut other = false;
        for policy in policies {
            let now = self.hosts.claims.unrendered(&policy);
            other |= self.hosts.virtual_hosts.unrendered.get(&policy) != now.as_ref();
            match now {
                Some(now) => self.hosts.virtual_hosts.unrendered.insert(policy, now),
                None => self.hosts.virtual_hosts.unrendered.remove(&policy),
            };
        }
        let last = self.hosts.virtual_hosts.by_name.get_max().map(|(last, _)| last);
        let left_out = self.hosts.claims.behind(last);
        other |= left_out != self.hosts.virtual_hosts.left_out;
        self.hosts.virtual_hosts.left_out = left_out;
        if other {
            round.affected.virtual_hosts.entry(NO_HOST.into()).or_default();
        }
    }

    /// Of more hostnames than the limit the first by name are offered, in whatever order they came.
    fn settle_host(&mut self, host: &Arc<str>, limit: usize, round: &mut Round) {
        let offered = &self.hosts.virtual_hosts.by_name;
        let last = || offered.get_max().map(|(last, _)| last.clone());
        match self.hosts.claims.host(host) {
            Some((now, conflicts)) => {
                let full = offered.len() >= limit && !offered.contains_key(host);
                if let Some(last) = last().filter(|_| full) {
                    if *host > last {
                        return;
                    }
                    self.offer(&last, None, round);
                }
                self.note_conflicts(host, conflicts, round);
                self.offer(host, Some(now), round);
            }
            None if offered.contains_key(host) => {
                let next = last().and_then(|last| self.hosts.claims.after(&last));
                self.offer(host, None, round);
                if let Some((next, (now, conflicts))) =
                    next.and_then(|next| Some((next.clone(), self.hosts.claims.host(&next)?)))
                {
                    self.note_conflicts(&next, conflicts, round);
                    self.offer(&next, Some(now), round);
                }
            }
            None => {}
        }
    }

    fn note_conflicts(&mut self, host: &Arc<str>, now: Vec<crate::HostConflict>, round: &mut Round) {
        if self.hosts.virtual_hosts.replace_conflicts(host, now) {
            round.affected.virtual_hosts.entry(host.clone()).or_default();
        }
    }

    fn offer(&mut self, host: &Arc<str>, now: Option<VirtualHost>, round: &mut Round) {
        let before = self.hosts.virtual_hosts.by_name.get(host).cloned();
        if before.as_deref() == now.as_ref() {
            return;
        }
        if now.is_none() {
            self.note_conflicts(host, Vec::new(), round);
        }
        let old = before.as_deref();
        let new = now.as_ref();
        self.want_instead(&tags_of(old), &tags_of(new), round);
        let services = old.into_iter().chain(new).flat_map(VirtualHost::services).map(Arc::from);
        round.affected.virtual_hosts.entry(host.clone()).or_default().extend(services);
        match now {
            Some(now) => self.hosts.virtual_hosts.insert(now),
            None => self.hosts.virtual_hosts.remove(host),
        }
    }

    /// Notes which ports of services' hostnames VirtualOutbounds take. After the destinations are what they are now.
    pub(super) fn settle_taken_over(&mut self, round: &Round) {
        let mut hosts = self.hosts.service_hosts.take_touched();
        hosts.extend(round.affected.virtual_hosts.keys().cloned());
        for host in &hosts {
            let offered = self.hosts.virtual_hosts.by_name.get(host);
            let taken =
                offered.map(|offered| self.hosts.service_hosts.taken_by(offered, &self.offers.destinations));
            self.hosts.virtual_hosts.replace_taken_over(host, taken.unwrap_or_default());
        }
    }
}

fn tags_of(host: Option<&VirtualHost>) -> BTreeSet<Arc<Tags>> {
    host.into_iter().flat_map(|host| host.ports.values()).map(|port| port.tags.clone()).collect()
}
