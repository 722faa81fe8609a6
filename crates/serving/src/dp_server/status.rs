//! The state of a proxy for its insight: what it was sent, what it accepted, what it rejects.

use jiff::Timestamp;
use plan::ProxyTraits;
use resources::{
    kinds::dataplane_insight::{DiscoveryStatus, ResourceRejection, ResponseCounts},
    naming::Kri,
};
use topology::MeshSnapshot;
use xds::Type;

/// Maximum rejections listed.
const REJECTIONS: usize = 20;
/// Maximum bytes of Envoy's error message kept.
const MESSAGE: usize = 1024;

/// Origins of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlamedOrigins {
    /// The resource of the mesh it stands for.
    pub kri: Option<Kri>,
    /// The policies in effect for that part of the proxy, and for the proxy as a whole.
    pub policies: Vec<Kri>,
}

/// Finds the origins of the resources of these names in the configuration of a proxy.
pub type Blame = fn(Option<&MeshSnapshot>, &ProxyTraits, &[&str]) -> Vec<BlamedOrigins>;

/// The status of a stream, if it is another one than `before`. `blame` finds what in the mesh the resources of a proxy
/// were made from; it is asked only about what is refused.
pub fn news(
    stream: &[xds::Status],
    before: &DiscoveryStatus,
    blame: impl FnOnce(&[&str]) -> Vec<BlamedOrigins>,
    now: Timestamp,
) -> Option<DiscoveryStatus> {
    let mut status =
        DiscoveryStatus { last_update_time: before.last_update_time, ..DiscoveryStatus::default() };
    for of_type in stream {
        let counters = of_type.counters;
        let counts = ResponseCounts {
            responses_sent: counters.sent,
            responses_acknowledged: counters.acked,
            responses_rejected: counters.rejected,
        };
        status.total.responses_sent += counters.sent;
        status.total.responses_acknowledged += counters.acked;
        status.total.responses_rejected += counters.rejected;
        *match of_type.kind {
            Type::Cluster => &mut status.cds,
            Type::Endpoint => &mut status.eds,
            Type::Listener => &mut status.lds,
            Type::Route => &mut status.rds,
            Type::Secret => &mut status.sds,
        } = counts;
    }
    status.rejections = rejections(stream, before, blame, now);
    if status == *before {
        return None;
    }
    status.last_update_time = Some(now);
    Some(status)
}

fn rejections(
    stream: &[xds::Status],
    before: &DiscoveryStatus,
    blame: impl FnOnce(&[&str]) -> Vec<BlamedOrigins>,
    now: Timestamp,
) -> Vec<ResourceRejection> {
    let refused: Vec<(&'static str, &xds::Rejection)> = stream
        .iter()
        .flat_map(|status| status.rejected.iter().map(|refused| (word(status.kind), refused)))
        .take(REJECTIONS)
        .collect();
    if refused.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = refused.iter().map(|(_, refused)| &*refused.name).collect();
    let told = refused.iter().zip(blame(&names)).map(|((kind, refused), blamed)| {
        let message = shortened(&refused.message);
        let known = before
            .rejections
            .iter()
            .find(|known| known.kind == *kind && known.name == *refused.name && known.message == message);
        ResourceRejection {
            kind: (*kind).to_owned(),
            name: refused.name.to_string(),
            kri: blamed.kri,
            policies: blamed.policies,
            message: message.to_owned(),
            time: known.and_then(|known| known.time).or(Some(now)),
        }
    });
    told.collect()
}

/// Name of a type in insights and messages.
pub fn word(kind: Type) -> &'static str {
    match kind {
        Type::Cluster => "cds",
        Type::Endpoint => "eds",
        Type::Listener => "lds",
        Type::Route => "rds",
        Type::Secret => "sds",
    }
}

fn shortened(message: &str) -> &str {
    let mut end = message.len().min(MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

#[cfg(test)]
mod tests {
    use xds::{Counters, Rejection};

    use super::*;

    fn stream(kind: Type, sent: u64, acked: u64, refused: &[(&str, &str)]) -> xds::Status {
        let rejected = refused
            .iter()
            .map(|(name, message)| Rejection {
                name: (*name).into(),
                version: 1,
                message: (*message).to_owned(),
                has_another: false,
            })
            .collect::<Vec<_>>();
        let counters = Counters { sent, acked, rejected: rejected.len() as u64, resources: 0 };
        xds::Status { kind, requested: true, pending: 0, rejected, counters }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn from_name(names: &[&str]) -> Vec<BlamedOrigins> {
        let policy = || "kri_mt_default___slow_".parse().into_iter().collect();
        names.iter().map(|name| BlamedOrigins { kri: name.parse().ok(), policies: policy() }).collect()
    }

    #[test]
    fn responses_are_counted_per_type_and_in_total() {
        let streams = [stream(Type::Cluster, 3, 2, &[]), stream(Type::Secret, 1, 1, &[])];
        let status = news(&streams, &DiscoveryStatus::default(), from_name, at(1)).unwrap();
        assert_eq!((status.total.responses_sent, status.total.responses_acknowledged), (4, 3));
        assert_eq!((status.cds.responses_sent, status.sds.responses_sent), (3, 1));
        assert_eq!(status.last_update_time, Some(at(1)));
        assert_eq!(news(&streams, &status, from_name, at(2)), None, "nothing happened since");
    }

    #[test]
    fn a_rejection_is_told_since_it_began_and_until_it_is_over() {
        let kri = "kri_msvc_default_east__backend_http";
        let refusing = [stream(Type::Cluster, 1, 0, &[(kri, "bad timeout")])];
        let first = news(&refusing, &DiscoveryStatus::default(), from_name, at(1)).unwrap();
        let [told] = &first.rejections[..] else { panic!("{first:?}") };
        assert_eq!(
            (told.kind.as_str(), told.name.as_str(), told.message.as_str()),
            ("cds", kri, "bad timeout")
        );
        assert_eq!(
            (told.kri.as_ref().map(ToString::to_string).as_deref(), told.time),
            (Some(kri), Some(at(1)))
        );
        assert_eq!(told.policies, ["kri_mt_default___slow_".parse().unwrap()]);

        let still = [stream(Type::Cluster, 2, 1, &[(kri, "bad timeout")])];
        let later = news(&still, &first, from_name, at(2)).unwrap();
        assert_eq!((later.rejections[0].time, later.last_update_time), (Some(at(1)), Some(at(2))));

        let over = news(&[stream(Type::Cluster, 3, 2, &[])], &later, from_name, at(3)).unwrap();
        assert_eq!(over.rejections, []);
    }

    #[test]
    fn many_and_long_complaints_are_cut_short() {
        let long = "ä".repeat(MESSAGE);
        let refused: Vec<(&str, &str)> = vec![("a", &long); REJECTIONS + 5];
        let status =
            news(&[stream(Type::Listener, 1, 0, &refused)], &DiscoveryStatus::default(), from_name, at(1));
        let rejections = status.unwrap().rejections;
        assert_eq!((rejections.len(), rejections[0].message.len()), (REJECTIONS, MESSAGE));
    }
}
