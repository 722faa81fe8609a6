//! What agents can do, as they say it when they connect.

/// Asks for changes only, not for everything each time.
pub const DELTA: &str = "feature-delta-grpc";
pub const REUSE_PORT: &str = "feature-reuse-port";

/// The switch of consistent names, and how a later Kuma spells it.
pub const UNIFIED_NAMING: [&str; 2] =
    ["feature-unified-proxy-resources-and-stats-naming", "feature-unified-resource-naming"];

pub fn unified_naming<'a>(features: impl IntoIterator<Item = &'a str>) -> bool {
    features.into_iter().any(|feature| UNIFIED_NAMING.contains(&feature))
}
