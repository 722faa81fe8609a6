//! Settings of the REST API.

use std::{fmt, sync::Arc, time::Duration};

use identity::ca::Files;
use resources::naming::service_hosts::ServiceHosts;
use serde_json::Value;
use store::backup::Attachment;

use crate::{Audit, gates};

/// The names Kuma gives to the users and groups it knows by itself.
pub mod names {
    pub const ADMIN: &str = "mesh-system:admin";
    pub const ANONYMOUS: &str = "mesh-system:anonymous";
    pub const AUTHENTICATED: &str = "mesh-system:authenticated";
    pub const UNAUTHENTICATED: &str = "mesh-system:unauthenticated";
}

/// Bodies above this many bytes are refused with 413 unless configured otherwise. The largest
/// resources seen in practice (certificate chains, proxy patches) are a few hundred kilobytes.
pub const MAX_BODY: usize = 4 * 1024 * 1024;

/// Longest time for one request (`apiServer.writeTimeout` in Kuma).
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A client that takes nothing for this long does not read, however slow its network is.
pub const WATCH_PATIENCE: Duration = Duration::from_secs(10);

/// Longest time that a stream of events lasts. The rights of its caller are checked anew when it is resumed.
pub const EVENT_STREAM_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Credentials of users other than a local administrator: `apiServer.authn.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthnType {
    /// User tokens issued by this control plane.
    Tokens,
    /// A client certificate accepted by the TLS listener makes an administrator.
    AdminClientCerts,
}

/// `apiServer.authn`.
#[derive(Debug, Clone)]
pub struct Authn {
    pub kind: AuthnType,
    pub localhost_is_admin: bool,
    /// The users of this machine whose direct calls are an administrator's then.
    pub local_administrators: Vec<u32>,
    /// Lets unauthenticated users only read.
    pub require_for_writes: bool,
}

impl Default for Authn {
    fn default() -> Self {
        Authn {
            kind: AuthnType::Tokens,
            localhost_is_admin: true,
            local_administrators: vec![0],
            require_for_writes: false,
        }
    }
}

/// Kinds of tokens that this control plane issues (`…enableIssuer`).
#[derive(Debug, Clone)]
pub struct Issuers {
    pub user: bool,
    pub dataplane: bool,
    pub zone: bool,
}

/// Users with one right: any of these users, or a member of any of these groups.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    pub users: Vec<String>,
    pub groups: Vec<String>,
}

impl Allowed {
    /// Only administrators.
    pub fn admins() -> Self {
        Allowed { users: vec![names::ADMIN.into()], groups: vec![names::ADMIN.into()] }
    }

    /// Every caller, with a token or without.
    pub fn anyone() -> Self {
        Allowed {
            users: Vec::new(),
            groups: vec![names::UNAUTHENTICATED.into(), names::AUTHENTICATED.into()],
        }
    }
}

/// `access.static.*`.
#[derive(Debug, Clone)]
pub struct AccessRights {
    pub admin_resources: Allowed,
    pub generate_dataplane_token: Allowed,
    pub generate_zone_token: Allowed,
    pub generate_user_token: Allowed,
    /// `controlPlaneMetadata`: who may see the control plane's configuration.
    pub control_plane_metadata: Allowed,
    /// Users who may see the configuration of a proxy, as it has it and as it would be sent.
    pub view_config_dump: Allowed,
    pub view_stats: Allowed,
    pub view_clusters: Allowed,
}

impl Default for AccessRights {
    fn default() -> Self {
        AccessRights {
            admin_resources: Allowed::admins(),
            generate_dataplane_token: Allowed::admins(),
            generate_zone_token: Allowed::admins(),
            generate_user_token: Allowed::admins(),
            control_plane_metadata: Allowed::anyone(),
            view_config_dump: Allowed::anyone(),
            view_stats: Allowed::anyone(),
            view_clusters: Allowed::anyone(),
        }
    }
}

/// Reads the files of a backup, or says why it cannot.
pub type BackupFiles = Arc<dyn Fn() -> Result<Vec<Attachment>, String> + Send + Sync>;

/// Everything the API needs to know that is not stored.
#[derive(Clone)]
pub struct Settings {
    pub authn: Authn,
    pub issuers: Issuers,
    pub access: AccessRights,
    /// `apiServer.readOnly`: users may write nothing. Proxies register all the same.
    pub read_only: bool,
    /// `apiServer.basePath`: everything is served below it.
    pub base_path: String,
    /// `apiServer.rootUrl`: how clients reach the API, when that is not what they put into `Host`.
    pub root_url: String,
    /// Names by which callers without a token may ask over loopback, in addition to those of the machine.
    pub allowed_hosts: Vec<String>,
    /// Origins allowed by CORS: exact, or `.*` / `*` for all.
    pub cors_allowed_domains: Vec<String>,
    /// URL of the GUI, or empty when there is none.
    pub gui_url: String,
    /// The control plane's configuration with secrets masked.
    pub config: Value,
    pub instance_id: String,
    /// The cluster's id is written by whichever control plane is first, possibly after this one started.
    pub cluster_id: Arc<dyn Fn() -> String + Send + Sync>,
    pub hostname: String,
    /// The version of Kuma whose behaviour is spoken. Clients of Kuma compare it with their own.
    pub version: String,
    pub implementation_version: String,
    /// Empty when it is not known.
    pub implementation_commit: String,
    pub max_body: usize,
    pub timeout: Duration,
    /// Watches that may be open: of all clients, and of the clients at one address.
    pub max_watches: usize,
    pub max_watches_per_peer: usize,
    /// Streams of events that may be open: of all clients, and of the clients at one address.
    pub max_event_streams: usize,
    pub max_event_streams_per_peer: usize,
    pub event_stream_lifetime: Duration,
    /// Longest time for the client of a watch or of a stream of events to take one line.
    pub watch_patience: Duration,
    /// The hostnames of services in meshes whose services are called by tags, if they have any.
    pub service_hosts: Option<ServiceHosts>,
    /// Files that a mesh may name as its authority's.
    pub data_sources: Files,
    /// Destination of the records of writes.
    pub audit: Audit,
    /// The files that belong into a backup, read anew for each.
    pub backup_files: BackupFiles,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            authn: Authn::default(),
            issuers: Issuers { user: true, dataplane: true, zone: true },
            access: AccessRights::default(),
            read_only: false,
            base_path: "/".into(),
            root_url: String::new(),
            allowed_hosts: Vec::new(),
            cors_allowed_domains: Vec::new(),
            gui_url: String::new(),
            config: Value::Object(serde_json::Map::new()),
            instance_id: String::new(),
            cluster_id: Arc::new(String::new),
            hostname: String::new(),
            version: String::new(),
            implementation_version: env!("CARGO_PKG_VERSION").into(),
            implementation_commit: String::new(),
            max_body: MAX_BODY,
            timeout: TIMEOUT,
            max_watches: gates::WATCHES,
            max_watches_per_peer: gates::WATCHES_PER_PEER,
            max_event_streams: gates::EVENT_STREAMS,
            max_event_streams_per_peer: gates::EVENT_STREAMS_PER_PEER,
            event_stream_lifetime: EVENT_STREAM_LIFETIME,
            watch_patience: WATCH_PATIENCE,
            service_hosts: None,
            data_sources: Files::default(),
            audit: Audit::default(),
            backup_files: Arc::new(|| Ok(Vec::new())),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("authn", &self.authn)
            .field("instance_id", &self.instance_id)
            .finish_non_exhaustive()
    }
}
