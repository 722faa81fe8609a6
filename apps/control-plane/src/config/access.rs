//! The settings of access: the users and groups that may do what others may not.

use settings::section;

const ADMIN: &str = "mesh-system:admin";

fn admin() -> Vec<String> {
    vec![ADMIN.to_owned()]
}

fn anyone() -> Vec<String> {
    vec!["mesh-system:unauthenticated".to_owned(), "mesh-system:authenticated".to_owned()]
}

section! {
    /// Rights of users and groups.
    pub struct AccessSettings {
        section fixed: StaticAccess, "static";
    }
}

section! {
    /// Rules in this configuration.
    pub struct StaticAccess {
        section admin_resources: AdminResources, "adminResources";
        section generate_dp_token: GenerateDpToken, "generateDpToken";
        section generate_user_token: GenerateUserToken, "generateUserToken";
        section generate_zone_token: GenerateZoneToken, "generateZoneToken";
        section view_config_dump: ViewConfigDump, "viewConfigDump";
        section view_stats: ViewStats, "viewStats";
        section view_clusters: ViewClusters, "viewClusters";
        section control_plane_metadata: ControlPlaneMetadata, "controlPlaneMetadata";
    }
}

/// The sections of `access.static` differ in their names only.
macro_rules! allowed {
    ($name:ident, $doc:literal, $users:expr, $groups:expr, $users_env:literal, $groups_env:literal) => {
        section! {
            #[doc = $doc]
            pub struct $name {
                /// Users with this permission.
                users: Vec<String> = $users, "users", $users_env;
                /// Groups whose members have this permission.
                groups: Vec<String> = $groups, "groups", $groups_env;
            }
        }

        impl $name {
            pub fn to_allowed(&self) -> api::Allowed {
                api::Allowed { users: self.users.clone(), groups: self.groups.clone() }
            }
        }
    };
}

allowed!(
    AdminResources,
    " Users who may read and write secrets, and change the mTLS settings of meshes.",
    admin(),
    admin(),
    "KUMA_ACCESS_STATIC_ADMIN_RESOURCES_USERS",
    "KUMA_ACCESS_STATIC_ADMIN_RESOURCES_GROUPS"
);
allowed!(
    GenerateDpToken,
    " Users who may generate dataplane tokens.",
    admin(),
    admin(),
    "KUMA_ACCESS_STATIC_GENERATE_DP_TOKEN_USERS",
    "KUMA_ACCESS_STATIC_GENERATE_DP_TOKEN_GROUPS"
);
allowed!(
    GenerateUserToken,
    " Users who may generate user tokens.",
    admin(),
    admin(),
    "KUMA_ACCESS_STATIC_GENERATE_USER_TOKEN_USERS",
    "KUMA_ACCESS_STATIC_GENERATE_USER_TOKEN_GROUPS"
);
allowed!(
    GenerateZoneToken,
    " Users who may generate zone tokens.",
    admin(),
    admin(),
    "KUMA_ACCESS_STATIC_GENERATE_ZONE_TOKEN_USERS",
    "KUMA_ACCESS_STATIC_GENERATE_ZONE_TOKEN_GROUPS"
);
allowed!(
    ViewConfigDump,
    " Users who may see the configuration of proxies: what they have, and what they would be sent.",
    Vec::new(),
    anyone(),
    "KUMA_ACCESS_STATIC_VIEW_CONFIG_DUMP_USERS",
    "KUMA_ACCESS_STATIC_VIEW_CONFIG_DUMP_GROUPS"
);
allowed!(
    ViewStats,
    " Users who may see the statistics of proxies.",
    Vec::new(),
    anyone(),
    "KUMA_ACCESS_STATIC_VIEW_STATS_USERS",
    "KUMA_ACCESS_STATIC_VIEW_STATS_GROUPS"
);
allowed!(
    ViewClusters,
    " Users who may see the clusters of proxies.",
    Vec::new(),
    anyone(),
    "KUMA_ACCESS_STATIC_VIEW_CLUSTERS_USERS",
    "KUMA_ACCESS_STATIC_VIEW_CLUSTERS_GROUPS"
);
allowed!(
    ControlPlaneMetadata,
    " Users who may see the configuration of the control plane.",
    Vec::new(),
    anyone(),
    "KUMA_ACCESS_STATIC_CONTROL_PLANE_METADATA_USERS",
    "KUMA_ACCESS_STATIC_CONTROL_PLANE_METADATA_GROUPS"
);
