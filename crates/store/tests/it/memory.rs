use std::sync::Arc;

use store::{Memory, conformance::Fixture, conformance_tests};

async fn empty() -> Fixture {
    Fixture::new(Arc::new(Memory::default()), ())
}

conformance_tests!(empty);

/// Conformance of a store that has only the provided methods beside the write of a batch.
mod without_transactions {
    use store::conformance::Piecewise;

    use super::*;

    async fn empty() -> Fixture {
        Fixture::new(Arc::new(Piecewise::default()), ())
    }

    conformance_tests! { empty:
        a_store_that_has_caught_up_shows_every_write
        each_write_has_an_outcome_of_its_own
        each_write_sees_those_before_it
        only_those_of_each_that_were_written_are_reported
        when_each_write_is_refused_nothing_happens
    }
}
