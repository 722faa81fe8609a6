//! Hostnames of services that are called by `kuma.io/service`: `<service>.mesh`, at port 80.

use std::{collections::BTreeSet, sync::Arc};

use super::dns;

/// The hostnames that such services have in meshes whose services are called by tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceHosts {
    pub domain: Arc<str>,
    pub port: u16,
}

impl Default for ServiceHosts {
    fn default() -> ServiceHosts {
        ServiceHosts { domain: "mesh".into(), port: 80 }
    }
}

impl ServiceHosts {
    /// Names of a service below the domain: as it is called, and with dots for underscores, which names of services
    /// from Kubernetes have (`backend_shop_svc_80`). Whatever is no DNS name is left out.
    pub fn of(&self, service: &str) -> BTreeSet<String> {
        let spelled = [service.to_owned(), service.replace('_', ".")];
        let names = spelled.into_iter().map(|name| format!("{name}.{}", self.domain).to_ascii_lowercase());
        names.filter(|name| dns::is_dns_name(name) && name.len() <= dns::HOSTNAME_MAX).collect()
    }

    /// The first of them, with the port.
    pub fn address_of(&self, service: &str) -> Option<String> {
        let as_called = format!("{service}.{}", self.domain).to_ascii_lowercase();
        self.of(service).contains(&as_called).then(|| format!("{as_called}:{}", self.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_its_name_and_one_with_dots_below_the_domain() {
        let hosts = ServiceHosts::default();
        let names = |service: &str| hosts.of(service).into_iter().collect::<Vec<_>>();
        assert_eq!(names("backend"), ["backend.mesh"]);
        assert_eq!(names("Backend"), ["backend.mesh"]);
        assert_eq!(names("example_svc_80"), ["example.svc.80.mesh", "example_svc_80.mesh"]);
        assert_eq!(names(""), [""; 0]);
        assert_eq!(names("a b"), [""; 0]);
        assert_eq!(names(&"a".repeat(64)), [""; 0]);
        assert_eq!(hosts.address_of("example_svc_80").as_deref(), Some("example_svc_80.mesh:80"));
        assert_eq!(hosts.address_of("a b"), None);
        let elsewhere = ServiceHosts { domain: "shop.internal".into(), port: 8080 };
        assert_eq!(elsewhere.address_of("web").as_deref(), Some("web.shop.internal:8080"));
    }
}
