//! Filters in the order in which Envoy runs them.
//!
//! Code that adds a filter names its slot and nothing about the others; the order of slots is Kuma's.

/// The place of an HTTP filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpSlot {
    Permission,
    GrpcStats,
    Fault,
    RateLimit,
    Router,
}

/// The place of a network filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkSlot {
    Permission,
    /// Sets the state by which later filters distinguish clients.
    ClientState,
    RateLimit,
    /// Counts requests to a Kafka broker.
    Kafka,
    /// Takes the bytes in the end.
    Handler,
}

/// A kind of slots.
pub(crate) trait Slot: Copy + PartialEq + 'static {
    /// Every slot, in the order in which filters are asked.
    const ORDER: &'static [Self];
}

impl Slot for HttpSlot {
    const ORDER: &'static [HttpSlot] =
        &[HttpSlot::Permission, HttpSlot::GrpcStats, HttpSlot::Fault, HttpSlot::RateLimit, HttpSlot::Router];
}

impl Slot for NetworkSlot {
    const ORDER: &'static [NetworkSlot] = &[
        NetworkSlot::Permission,
        NetworkSlot::ClientState,
        NetworkSlot::RateLimit,
        NetworkSlot::Kafka,
        NetworkSlot::Handler,
    ];
}

/// Filters by slot, added in any order; several in one slot keep theirs.
pub(crate) struct Chain<S, F>(Vec<(S, F)>);

impl<S: Slot, F> Chain<S, F> {
    pub(crate) fn empty() -> Chain<S, F> {
        Chain(Vec::new())
    }

    pub(crate) fn with(mut self, slot: S, filters: impl IntoIterator<Item = F>) -> Chain<S, F> {
        self.0.extend(filters.into_iter().map(|filter| (slot, filter)));
        self
    }

    pub(crate) fn in_order(mut self) -> Vec<F> {
        self.0.sort_by_key(|(slot, _)| S::ORDER.iter().position(|known| known == slot));
        self.0.into_iter().map(|(_, filter)| filter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_stand_in_the_order_of_slots_whatever_the_order_of_policies() {
        let chain = Chain::empty()
            .with(HttpSlot::Router, ["router"])
            .with(HttpSlot::Fault, ["fault 1", "fault 2"])
            .with(HttpSlot::Permission, Some("rbac"))
            .with(HttpSlot::RateLimit, ["rate limit"])
            .with(HttpSlot::GrpcStats, None);
        assert_eq!(chain.in_order(), ["rbac", "fault 1", "fault 2", "rate limit", "router"]);
        let chain = Chain::empty()
            .with(NetworkSlot::Handler, ["tcp"])
            .with(NetworkSlot::ClientState, ["state"])
            .with(NetworkSlot::Permission, ["rbac"]);
        assert_eq!(chain.in_order(), ["rbac", "state", "tcp"]);
    }
}
