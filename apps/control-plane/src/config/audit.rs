//! The settings of the audit log.

use settings::section;

section! {
    /// The audit log: a line for every write through the API and every token that is issued, with user, address,
    /// resource and result. These keys are not Kuma's.
    pub struct Audit {
        /// Writes the audit log.
        enabled: bool = true, "enabled", "KUMA_AUDIT_ENABLED";
        /// File that JSON lines are appended to; only its owner can read it, and it is created again if it
        /// was moved away.
        /// Empty means the log, under the target `audit` and whatever the log level is (`off` excepted).
        file: String = String::new(), "file", "KUMA_AUDIT_FILE";
    }
}
