//! The right to administer, as far as a kind asks for it.

/// Access to a kind that takes the right to administer (`access.static.adminResources`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Administered {
    Nothing,
    /// Writing and deleting, for kinds that decide who a workload is: who may write them may be every workload.
    Writes,
    /// Reading, too.
    Everything,
}

impl Administered {
    pub fn covers_reads(self) -> bool {
        self == Administered::Everything
    }

    pub fn covers_writes(self) -> bool {
        self != Administered::Nothing
    }
}
