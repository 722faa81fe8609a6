//! KRI: the Kuma resource identifier.

use std::fmt;

use crate::Resource;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kri {
    pub short: &'static str,
}

impl Kri {
    pub fn of(_resource: &Resource, _section: &str) -> Option<Kri> {
        None
    }
}

impl fmt::Display for Kri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short)
    }
}
