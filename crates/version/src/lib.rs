//! The version of the programs, and the commit they were built from.
//!
//! Only programs depend on this crate: it changes with every commit that is released, and what depends on it is
//! built anew.

#[cfg(test)]
mod git;

/// The version alone, as other programs compare it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, shortened; empty in development builds and outside of a checkout.
pub const COMMIT: &str = env!("KUMA_RS_COMMIT_READ");

/// Text that `--version` shows: the version and the commit.
pub const SHOWN: &str = env!("KUMA_RS_SHOWN_VERSION");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_shown_with_where_it_comes_from() {
        let origin = SHOWN.strip_prefix(VERSION).unwrap();
        let expect =
            if COMMIT.is_empty() { " (development build)".to_owned() } else { format!(" (commit {COMMIT})") };
        assert!(origin == expect || (origin.is_empty() && COMMIT.is_empty()), "{SHOWN}");
    }
}
