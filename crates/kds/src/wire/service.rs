//! The gRPC services of a global control plane, all of them called by zones.

/// Resources from global, as delta discovery: the zone sends requests and is answered with responses.
pub const GLOBAL_TO_ZONE_SYNC: &str = "/kuma.mesh.v1alpha1.KDSSyncService/GlobalToZoneSync";
/// Resources from the zone, as delta discovery: the zone sends responses and is answered with requests.
pub const ZONE_TO_GLOBAL_SYNC: &str = "/kuma.mesh.v1alpha1.KDSSyncService/ZoneToGlobalSync";

/// Everything else: questions of global about proxies of the zone, and the sign of life of the zone.
pub const GLOBAL: &str = "kuma.mesh.v1alpha1.GlobalKDSService";
/// The zone sends [`XdsConfigResponse`](super::XdsConfigResponse)s and is sent requests.
pub const STREAM_XDS_CONFIGS: &str = "/kuma.mesh.v1alpha1.GlobalKDSService/StreamXDSConfigs";
/// The zone sends [`StatsResponse`](super::StatsResponse)s and is sent requests.
pub const STREAM_STATS: &str = "/kuma.mesh.v1alpha1.GlobalKDSService/StreamStats";
/// The zone sends [`ClustersResponse`](super::ClustersResponse)s and is sent requests.
pub const STREAM_CLUSTERS: &str = "/kuma.mesh.v1alpha1.GlobalKDSService/StreamClusters";
/// A single call.
pub const HEALTH_CHECK: &str = "/kuma.mesh.v1alpha1.GlobalKDSService/HealthCheck";
