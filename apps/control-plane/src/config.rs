//! The configuration of `kuma-cp`: a YAML file, then `KUMA_*` environment variables, over defaults.
//!
//! Keys and variables are Kuma's. Each setting is declared once, below; [`source`] reads them,
//! [`print`] writes the defaults file and the reference page from the same declaration, and
//! [`without_effect`] lists what Kuma has and has no effect in this control plane.

mod access;
mod audit;
mod bootstrap_server;
mod check;
mod dns_server;
mod document;
mod dp_server;
mod inter_cp;
mod ipam;
mod multizone;
mod nearest;
pub mod print;
pub mod section;
pub mod setting;
mod sni;
pub mod source;
pub mod without_effect;

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use resources::duration::GoDuration;
use runtime::{
    logs::{Format, Level},
    tls::MinVersion,
};

pub use self::{
    access::Access,
    audit::Audit,
    bootstrap_server::{BootstrapParams, BootstrapServer, Proxies},
    dns_server::DnsServer,
    dp_server::{DpLimits, DpServer, HealthCheckDefaults, HealthDiscovery},
    inter_cp::InterCp,
    ipam::Ipam,
    multizone::{Global, GlobalKds, ZoneKds},
    sni::Sni,
};
use self::{
    section::section,
    setting::{AuthnType, Environment, Mode, Password, PostgresTls, StoreType},
};

const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

section! {
    /// The control plane.
    pub struct Config {
        /// Where the control plane runs. Only `universal` is supported.
        environment: Environment = Environment::Universal, "environment", "KUMA_ENVIRONMENT";
        /// `zone`: manages proxies, alone or federated with a global control plane.
        /// `global`: manages zones. `standalone` is an old name of `zone`.
        mode: Mode = Mode::Zone, "mode", "KUMA_MODE";
        section general: General, "general";
        section store: Store, "store";
        section api_server: ApiServer, "apiServer";
        section dp_server: DpServer, "dpServer";
        section bootstrap_server: BootstrapServer, "bootstrapServer";
        section proxy: Proxies, "proxy";
        section xds_server: XdsServer, "xdsServer";
        section mesh_service: MeshServices, "meshService";
        section ipam: Ipam, "ipam";
        section dns_server: DnsServer, "dnsServer";
        section multizone: Multizone, "multizone";
        section inter_cp: InterCp, "interCp";
        section diagnostics: Diagnostics, "diagnostics";
        section audit: Audit, "audit";
        section defaults: Defaults, "defaults";
        section access: Access, "access";
        section experimental: Experimental, "experimental";
    }
}

section! {
    /// What Kuma calls experimental.
    pub struct Experimental {
        /// Offers proxies only the destinations that MeshTrafficPermissions let them call, in all meshes and of all
        /// proxies that do not say otherwise with the label `reachability.kuma.io/mode`. A mesh without mTLS or without
        /// any MeshTrafficPermission is left alone.
        auto_reachable_services: bool = false, "autoReachableServices", "KUMA_EXPERIMENTAL_AUTO_REACHABLE_SERVICES";
    }
}

section! {
    /// Settings of the whole process.
    pub struct General {
        /// Directory for everything the control plane keeps: TLS certificate, SQLite database.
        /// Empty means `$HOME/.kuma`. It is created when it does not exist.
        work_dir: String = String::new(), "workDir", "KUMA_GENERAL_WORK_DIR";
        /// TLS certificate (PEM file) of all servers. Empty means one is generated into the work
        /// directory as `kuma-cp.crt`, once.
        tls_cert_file: String = String::new(), "tlsCertFile", "KUMA_GENERAL_TLS_CERT_FILE";
        /// Private key (PEM file) of the TLS certificate.
        tls_key_file: String = String::new(), "tlsKeyFile", "KUMA_GENERAL_TLS_KEY_FILE";
        /// The oldest version of TLS the servers accept.
        tls_min_version: MinVersion = MinVersion::Tls12, "tlsMinVersion", "KUMA_GENERAL_TLS_MIN_VERSION";
        /// Directory with the files that a Mesh may name as its certificate authority's (`file` of a
        /// `provided` backend). Files elsewhere are not read. Empty means `data-sources` in the work
        /// directory.
        data_source_dir: String = String::new(), "dataSourceDir", "KUMA_GENERAL_DATA_SOURCE_DIR";
        /// How long to wait before a connection to the global control plane is tried again, at first ...
        resilient_component_base_backoff: GoDuration = GoDuration::from_secs(5), "resilientComponentBaseBackoff",
            "KUMA_GENERAL_RESILIENT_COMPONENT_BASE_BACKOFF";
        /// ... and at most.
        resilient_component_max_backoff: GoDuration = GoDuration::from_secs(60), "resilientComponentMaxBackoff",
            "KUMA_GENERAL_RESILIENT_COMPONENT_MAX_BACKOFF";
        /// How much is logged. The flag `--log-level` takes precedence.
        log_level: Level = Level::Info, "logLevel", "KUMA_GENERAL_LOG_LEVEL";
        /// How a log line looks. The flag `--log-format` takes precedence.
        log_format: Format = Format::Text, "logFormat", "KUMA_GENERAL_LOG_FORMAT";
    }
}

section! {
    /// The stores of resources.
    pub struct Store {
        /// `sqlite`: a file under the work directory, for one control plane. `postgres`: for several.
        /// `memory`: lost when the process ends.
        kind: StoreType = StoreType::Sqlite, "type", "KUMA_STORE_TYPE";
        /// Allows deleting meshes that still have proxies and zones that are online.
        unsafe_delete: bool = false, "unsafeDelete", "KUMA_STORE_UNSAFE_DELETE";
        section sqlite: Sqlite, "sqlite";
        section postgres: Postgres, "postgres";
    }
}

section! {
    /// Used when `store.type` is `sqlite`.
    pub struct Sqlite {
        /// The database file. Empty means `kuma.db` in the work directory.
        path: String = String::new(), "path", "KUMA_STORE_SQLITE_PATH";
    }
}

section! {
    /// Used when `store.type` is `postgres`.
    pub struct Postgres {
        /// Host name or address of the database server.
        host: String = "127.0.0.1".to_owned(), "host", "KUMA_STORE_POSTGRES_HOST";
        /// Port of the database server.
        port: u16 = 15432, "port", "KUMA_STORE_POSTGRES_PORT";
        /// User of the database.
        user: String = "kuma".to_owned(), "user", "KUMA_STORE_POSTGRES_USER";
        /// Password of the user.
        password: Password = Password("kuma".to_owned()), "password", "KUMA_STORE_POSTGRES_PASSWORD";
        /// Name of the database.
        db_name: String = "kuma".to_owned(), "dbName", "KUMA_STORE_POSTGRES_DB_NAME";
        /// Seconds to wait for a connection.
        connection_timeout: u32 = 5, "connectionTimeout", "KUMA_STORE_POSTGRES_CONNECTION_TIMEOUT";
        /// How many connections may be open at once; 0 means no limit of our own.
        max_open_connections: u32 = 50, "maxOpenConnections", "KUMA_STORE_POSTGRES_MAX_OPEN_CONNECTIONS";
        section tls: PostgresTlsFiles, "tls";
    }
}

section! {
    /// TLS towards PostgreSQL.
    pub struct PostgresTlsFiles {
        /// `verifyNone` encrypts, `verifyCa` also checks who signed the server's certificate,
        /// `verifyFull` also checks the server's name.
        mode: PostgresTls = PostgresTls::Disable, "mode", "KUMA_STORE_POSTGRES_TLS_MODE";
        /// Client certificate (PEM file).
        cert_path: String = String::new(), "certPath", "KUMA_STORE_POSTGRES_TLS_CERT_PATH";
        /// Key of the client certificate (PEM file).
        key_path: String = String::new(), "keyPath", "KUMA_STORE_POSTGRES_TLS_KEY_PATH";
        /// CA certificates (PEM file) for `verifyCa` and `verifyFull`.
        ca_path: String = String::new(), "caPath", "KUMA_STORE_POSTGRES_TLS_CA_PATH";
    }
}

section! {
    /// The REST API.
    pub struct ApiServer {
        /// Refuses every write by users. Proxies can still register.
        read_only: bool = false, "readOnly", "KUMA_API_SERVER_READ_ONLY";
        /// Origins that browsers may call the API from; `.*` means all.
        cors_allowed_domains: Vec<String> = Vec::new(), "corsAllowedDomains", "KUMA_API_SERVER_CORS_ALLOWED_DOMAINS";
        /// Host names by which callers without a token may ask over loopback. The names of the machine, addresses and the
        /// hosts of `rootUrl` need not be listed; any other name may be a web page's that makes a browser call here.
        allowed_hosts: Vec<String> = Vec::new(), "allowedHosts", "KUMA_API_SERVER_ALLOWED_HOSTS";
        /// How clients reach the API, when that is not the address they ask for (behind a proxy).
        root_url: String = String::new(), "rootUrl", "KUMA_API_SERVER_ROOT_URL";
        /// Path the API is served below.
        base_path: String = "/".to_owned(), "basePath", "KUMA_API_SERVER_BASE_PATH";
        /// How long the head of a request may take.
        read_header_timeout: GoDuration = GoDuration::from_secs(1), "readHeaderTimeout", "KUMA_API_SERVER_READ_HEADER_TIMEOUT";
        /// How long reading a whole request may take.
        read_timeout: GoDuration = GoDuration::from_secs(10), "readTimeout", "KUMA_API_SERVER_READ_TIMEOUT";
        /// How long answering a request may take.
        write_timeout: GoDuration = GoDuration::from_secs(30), "writeTimeout", "KUMA_API_SERVER_WRITE_TIMEOUT";
        /// How long a connection may be idle.
        idle_timeout: GoDuration = GoDuration::from_secs(120), "idleTimeout", "KUMA_API_SERVER_IDLE_TIMEOUT";
        section http: Http, "http";
        section https: Https, "https";
        section authn: Authn, "authn";
        section auth: Auth, "auth";
        section gui: Gui, "gui";
    }
}

section! {
    /// The API without TLS.
    pub struct Http {
        /// Whether it is served.
        enabled: bool = true, "enabled", "KUMA_API_SERVER_HTTP_ENABLED";
        /// Address to listen on.
        interface: IpAddr = EVERYWHERE, "interface", "KUMA_API_SERVER_HTTP_INTERFACE";
        /// Port to listen on; 0 means any free one.
        port: u16 = 5681, "port", "KUMA_API_SERVER_HTTP_PORT";
    }
}

section! {
    /// The API with TLS.
    pub struct Https {
        /// Whether it is served.
        enabled: bool = true, "enabled", "KUMA_API_SERVER_HTTPS_ENABLED";
        /// Address to listen on.
        interface: IpAddr = EVERYWHERE, "interface", "KUMA_API_SERVER_HTTPS_INTERFACE";
        /// Port to listen on; 0 means any free one.
        port: u16 = 5682, "port", "KUMA_API_SERVER_HTTPS_PORT";
        /// TLS certificate (PEM file) of the API; empty means the one of `general`.
        tls_cert_file: String = String::new(), "tlsCertFile", "KUMA_API_SERVER_HTTPS_TLS_CERT_FILE";
        /// Private key (PEM file) of that certificate.
        tls_key_file: String = String::new(), "tlsKeyFile", "KUMA_API_SERVER_HTTPS_TLS_KEY_FILE";
    }
}

section! {
    /// Authentication of users of the API.
    pub struct Authn {
        /// `tokens`: a user token as bearer token. `adminClientCerts`: a TLS client certificate from
        /// `apiServer.auth.clientCertsDir` makes an administrator.
        kind: AuthnType = AuthnType::Tokens, "type", "KUMA_API_SERVER_AUTHN_TYPE";
        /// Whether requests from the machine itself have administrator rights: those that root or the user
        /// of the control plane sends directly.
        localhost_is_admin: bool = true, "localhostIsAdmin", "KUMA_API_SERVER_AUTHN_LOCALHOST_IS_ADMIN";
        /// Whether unauthenticated users may only read.
        require_for_writes: bool = false, "requireForWrites", "KUMA_API_SERVER_AUTHN_REQUIRE_FOR_WRITES";
        section tokens: Tokens, "tokens";
    }
}

section! {
    /// User tokens.
    pub struct Tokens {
        /// Keeps a token of an administrator in the global secret `admin-user-token`.
        bootstrap_admin_token: bool = true, "bootstrapAdminToken", "KUMA_API_SERVER_AUTHN_TOKENS_BOOTSTRAP_ADMIN_TOKEN";
        /// Whether this control plane issues user tokens.
        enable_issuer: bool = true, "enableIssuer", "KUMA_API_SERVER_AUTHN_TOKENS_ENABLE_ISSUER";
    }
}

section! {
    /// Client certificates.
    pub struct Auth {
        /// Directory with certificates (`*.pem`, `*.crt`) that clients may identify themselves with.
        client_certs_dir: String = String::new(), "clientCertsDir", "KUMA_API_SERVER_AUTH_CLIENT_CERTS_DIR";
    }
}

section! {
    /// The web interface. None is built in yet; one that is served elsewhere can be announced.
    pub struct Gui {
        /// Whether it is announced.
        enabled: bool = true, "enabled", "KUMA_API_SERVER_GUI_ENABLED";
        /// Where browsers find it.
        root_url: String = String::new(), "rootUrl", "KUMA_API_SERVER_GUI_ROOT_URL";
    }
}

section! {
    /// The configuration of proxies.
    pub struct XdsServer {
        /// How long after a proxy has gone its Dataplane is deleted, if the proxy had brought it along.
        dataplane_deregistration_delay: GoDuration = GoDuration::from_secs(10), "dataplaneDeregistrationDelay",
            "KUMA_XDS_DATAPLANE_DEREGISTRATION_DELAY";
        /// How long it may take until the insight of a proxy shows what the proxy accepted and rejected.
        dataplane_status_flush_interval: GoDuration = GoDuration::from_secs(1), "dataplaneStatusFlushInterval",
            "KUMA_XDS_SERVER_DATAPLANE_STATUS_FLUSH_INTERVAL";
        /// How long at most a newly allowed destination waits for servers before it reaches clients whose destinations
        /// are trimmed: it is sent as soon as connected servers have acknowledged the permission. 0s holds nothing.
        permissions_hold: GoDuration = GoDuration::from_secs(5), "permissionsHold", "KUMA_XDS_SERVER_PERMISSIONS_HOLD";
        /// How long clients whose destinations are trimmed keep a newly denied destination. Longer than servers drain
        /// connections (`kuma-dp run --drain-time`), it is the server that refuses the call.
        permissions_drain: GoDuration = GoDuration::from_secs(35), "permissionsDrain",
            "KUMA_XDS_SERVER_PERMISSIONS_DRAIN";
    }
}

section! {
    /// MeshServices made from Dataplanes.
    pub struct MeshServices {
        /// How long a service without any Dataplane is kept.
        deletion_grace_period: GoDuration = GoDuration::from_secs(3600), "deletionGracePeriod",
            "KUMA_MESH_SERVICE_DELETION_GRACE_PERIOD";
    }
}

section! {
    /// Several zones.
    pub struct Multizone {
        section global: Global, "global";
        section sni: Sni, "sni";
        section zone: Zone, "zone";
    }
}

section! {
    /// This control plane as a zone.
    pub struct Zone {
        /// Name of the zone.
        name: String = "default".to_owned(), "name", "KUMA_MULTIZONE_ZONE_NAME";
        /// Address of the global control plane, such as `grpcs://global.example.com:5685`. Empty means a
        /// standalone zone.
        global_address: String = String::new(), "globalAddress", "KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS";
        /// Accepts resources without the label `kuma.io/origin: zone` in a federated zone.
        disable_origin_label_validation: bool = false, "disableOriginLabelValidation", "KUMA_MULTIZONE_ZONE_DISABLE_ORIGIN_LABEL_VALIDATION";
        section kds: ZoneKds, "kds";
    }
}

section! {
    /// Health and metrics of the control plane itself.
    pub struct Diagnostics {
        /// Address to listen on.
        interface: IpAddr = EVERYWHERE, "interface", "KUMA_DIAGNOSTICS_INTERFACE";
        /// Port of `/healthy`, `/ready` and `/metrics`; 0 means any free one.
        server_port: u16 = 5680, "serverPort", "KUMA_DIAGNOSTICS_SERVER_PORT";
    }
}

section! {
    /// What is created at the first start.
    pub struct Defaults {
        /// Does not create the mesh `default`.
        skip_mesh_creation: bool = false, "skipMeshCreation", "KUMA_DEFAULTS_SKIP_MESH_CREATION";
        /// Does not create the HostnameGenerators.
        skip_hostname_generators: bool = false, "skipHostnameGenerators", "KUMA_DEFAULTS_SKIP_HOSTNAME_GENERATORS";
    }
}

impl Config {
    /// The directory everything is kept in.
    pub fn work_dir(&self) -> PathBuf {
        if !self.general.work_dir.is_empty() {
            return PathBuf::from(&self.general.work_dir);
        }
        // `source::load` refuses a configuration that has neither.
        std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".kuma")
    }

    /// The variable that decides where the database is.
    pub fn sqlite_setting(&self) -> &'static str {
        match (self.store.sqlite.path.as_str(), self.general.work_dir.as_str()) {
            ("", "") => "HOME or KUMA_GENERAL_WORK_DIR",
            ("", _) => "KUMA_GENERAL_WORK_DIR",
            _ => "KUMA_STORE_SQLITE_PATH",
        }
    }

    pub fn sqlite_path(&self) -> PathBuf {
        match self.store.sqlite.path.as_str() {
            "" => self.work_dir().join("kuma.db"),
            path => PathBuf::from(path),
        }
    }

    /// Where the files are that meshes may name.
    pub fn data_source_dir(&self) -> PathBuf {
        match self.general.data_source_dir.as_str() {
            "" => self.work_dir().join("data-sources"),
            path => PathBuf::from(path),
        }
    }

    /// Whether this is a zone that follows a global control plane.
    pub fn federated(&self) -> bool {
        self.mode != Mode::Global && !self.multizone.zone.global_address.is_empty()
    }
}
