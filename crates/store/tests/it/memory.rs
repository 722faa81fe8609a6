use std::sync::Arc;

use store::{Memory, conformance::Fixture, conformance_tests};

async fn empty() -> Fixture {
    Fixture::new(Arc::new(Memory::default()), ())
}

conformance_tests!(empty);
