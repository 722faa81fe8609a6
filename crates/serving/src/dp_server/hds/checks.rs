//! Health checks of a Dataplane, and the effect of a report.

use std::{net::IpAddr, time::Duration};

use envoy::health::{Probe, ProbeTiming, ReportedHealth};
use plan::Redirection;
use resources::{
    duration::{GoDuration, ProtoDuration},
    kinds::dataplane::{Dataplane, Health as Ready, Inbound, InboundState, Networking, ServiceProbe},
};

use crate::config::HealthCheckDefaults;

/// Checks whose probe does not say otherwise.
pub fn defaults(settings: &HealthCheckDefaults) -> ProbeTiming {
    let duration = |duration: GoDuration| duration.to_std().unwrap_or_default();
    ProbeTiming {
        timeout: duration(settings.timeout),
        interval: duration(settings.interval),
        no_traffic_interval: duration(settings.no_traffic_interval),
        healthy_threshold: settings.healthy_threshold,
        unhealthy_threshold: settings.unhealthy_threshold,
    }
}

/// The applications to check: those of inbounds with a probe.
pub fn probes(dataplane: &Dataplane, told: Option<Redirection>, defaults: ProbeTiming) -> Vec<Probe> {
    let Some(networking) = &dataplane.networking else { return Vec::new() };
    let redirected = told.map_or(networking.transparent_proxying.is_some(), |told| told.enabled);
    let probe = |inbound: &Inbound| {
        let settings = inbound.service_probe.as_ref()?;
        let (address, port) = workload(inbound, networking)?;
        let is_usual = [IpAddr::from([127, 0, 0, 1]), "::1".parse().ok()?].contains(&address);
        Some(Probe {
            address,
            port,
            from_loopback_source: redirected && !is_usual,
            check: check(settings, defaults),
        })
    };
    networking.inbound.iter().filter_map(probe).collect()
}

fn workload(inbound: &Inbound, networking: &Networking) -> Option<(IpAddr, u16)> {
    let address = inbound.service_address_in(networking).parse().ok()?;
    Some((address, u16::try_from(inbound.service_port()).ok()?))
}

fn check(probe: &ServiceProbe, defaults: ProbeTiming) -> ProbeTiming {
    let or = |duration: Option<ProtoDuration>, default: Duration| {
        duration.and_then(ProtoDuration::to_std).unwrap_or(default)
    };
    ProbeTiming {
        timeout: or(probe.timeout, defaults.timeout),
        interval: or(probe.interval, defaults.interval),
        healthy_threshold: probe.healthy_threshold.unwrap_or(defaults.healthy_threshold),
        unhealthy_threshold: probe.unhealthy_threshold.unwrap_or(defaults.unhealthy_threshold),
        ..defaults
    }
}

/// The Dataplane after a report; `None` when nothing of it changes.
///
/// A probe decides about its inbound. An inbound without one follows Envoy itself: it is not ready while Envoy does
/// not serve, and ready again after that; `health` marks that it was taken out here and not by another writer. A proxy
/// that is about to stop has no inbound made ready.
pub fn judge(dataplane: &Dataplane, now: &ReportedHealth, draining: bool) -> Option<Dataplane> {
    let mut judged = dataplane.clone();
    let mut changed = false;
    for inbound in &mut judged.networking.as_mut()?.inbound {
        let is_good = match (now.admin, inbound.service_probe.is_some()) {
            (false, _) => false,
            (true, true) => match u16::try_from(inbound.service_port()) {
                Ok(port) if now.applications.contains_key(&port) => now.applications[&port],
                // Not checked yet, so nothing is known.
                _ => continue,
            },
            (true, false) if inbound.health.as_ref().is_some_and(|health| !health.ready) => true,
            (true, false) => continue,
        };
        let state = match (inbound.state, is_good) {
            (InboundState::Ready, false) => InboundState::NotReady,
            (InboundState::NotReady, true) if !draining => InboundState::Ready,
            _ => continue,
        };
        inbound.state = state;
        inbound.health = Some(Ready { ready: is_good });
        changed = true;
    }
    changed.then_some(judged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataplane(probed: InboundState, plain: InboundState) -> Dataplane {
        let inbound = |port, state, service_probe| Inbound {
            port,
            service_port: port + 8000,
            state,
            service_probe,
            ..Inbound::default()
        };
        let inbounds = vec![inbound(80, probed, Some(ServiceProbe::default())), inbound(81, plain, None)];
        let networking =
            Networking { address: "127.0.0.9".to_owned(), inbound: inbounds, ..Networking::default() };
        Dataplane { networking: Some(networking), ..Dataplane::default() }
    }

    fn health(admin: bool, application: Option<bool>) -> ReportedHealth {
        ReportedHealth { admin, applications: application.map(|good| (8080, good)).into_iter().collect() }
    }

    fn states(dataplane: &Dataplane) -> Vec<InboundState> {
        dataplane.inbounds().iter().map(|inbound| inbound.state).collect()
    }

    use InboundState::{Ignored, NotReady, Ready as IsReady};

    #[test]
    fn a_probe_decides_about_its_own_inbound_only() {
        let judged = judge(&dataplane(IsReady, IsReady), &health(true, Some(false)), false).unwrap();
        assert_eq!(states(&judged), [NotReady, IsReady]);
        assert_eq!(judged.inbounds()[0].health, Some(Ready { ready: false }));
        assert_eq!(judged.inbounds()[1].health, None);
        let judged = judge(&dataplane(NotReady, NotReady), &health(true, Some(true)), false).unwrap();
        assert_eq!(states(&judged), [IsReady, NotReady]);
        assert_eq!(judge(&dataplane(IsReady, NotReady), &health(true, Some(true)), false), None);
        assert_eq!(judge(&dataplane(NotReady, IsReady), &health(true, None), false), None);
        assert_eq!(judge(&dataplane(Ignored, IsReady), &health(true, Some(true)), false), None);
    }

    #[test]
    fn no_inbound_is_ready_while_envoy_does_not_serve() {
        let down = health(false, Some(true));
        let judged = judge(&dataplane(IsReady, IsReady), &down, false).unwrap();
        assert_eq!(states(&judged), [NotReady, NotReady]);
        let judged = judge(&judged, &health(true, Some(true)), false).unwrap();
        assert_eq!(states(&judged), [IsReady, IsReady]);
    }

    #[test]
    fn a_proxy_that_is_about_to_stop_has_no_inbound_made_ready() {
        let down = judge(&dataplane(IsReady, IsReady), &health(false, None), true).unwrap();
        assert_eq!(judge(&down, &health(true, Some(true)), true), None);
    }

    #[test]
    fn a_probe_says_how_to_check_and_defaults_say_the_rest() {
        let defaults = defaults(&HealthCheckDefaults::default());
        let mut dataplane = dataplane(IsReady, IsReady);
        let networking = dataplane.networking.as_mut().unwrap();
        networking.transparent_proxying = Some(Default::default());
        let probe = networking.inbound[0].service_probe.as_mut().unwrap();
        (probe.timeout, probe.healthy_threshold) = (Some(ProtoDuration::from_secs(7)), Some(3));
        let [probe] = &probes(&dataplane, None, defaults)[..] else { panic!("one inbound has a probe") };
        assert_eq!((probe.address, probe.port), ("127.0.0.9".parse().unwrap(), 8080));
        assert!(probe.from_loopback_source);
        let seconds = Duration::from_secs;
        let expect = ProbeTiming {
            timeout: seconds(7),
            interval: seconds(1),
            no_traffic_interval: seconds(1),
            healthy_threshold: 3,
            unhealthy_threshold: 1,
        };
        assert_eq!(probe.check, expect);
    }
}
