//! The configuration of `kuma-cp`: a YAML file, then `KUMA_*` environment variables, over defaults.
//!
//! Keys and variables are Kuma's. Each setting is declared once, below; [`source`] reads them,
//! [`print`] writes the defaults file and the reference page from the same declaration, and
//! [`without_effect`] lists what Kuma has and has no effect in this control plane.

mod access;
mod audit;
mod check;
mod document;
mod nearest;
pub mod print;
pub mod setting;
pub mod source;
pub mod without_effect;

use std::{net::IpAddr, path::PathBuf};

use resources::duration::GoDuration;
use runtime::{
    logs::{Level, LogFormat},
    tls::MinVersion,
};
use settings::{EVERYWHERE, section};

use self::setting::{AuthnType, Environment, Mode, Password, PostgresTls, StoreType};
pub use self::{access::AccessSettings, audit::Audit};

section! {
    /// The control plane.
    pub struct Config {
        /// Platform of the control plane. Only `universal` is supported.
        environment: Environment = Environment::Universal, "environment", "KUMA_ENVIRONMENT";
        /// `zone`: manages proxies, alone or federated with a global control plane.
        /// `global`: manages zones. `standalone` is an old name of `zone`.
        mode: Mode = Mode::Zone, "mode", "KUMA_MODE";
        section general: General, "general";
        section store: Store, "store";
        section api_server: ApiServer, "apiServer";
        section serving: serving::Config;
        section reconcilers: reconcilers::Config;
        section synchronisation: synchronisation::Config;
        section monitoring: monitoring::Config;
        section diagnostics: Diagnostics, "diagnostics";
        section audit: Audit, "audit";
        section defaults: Defaults, "defaults";
        section access: AccessSettings, "access";
        section experimental: Experimental, "experimental";
    }
}

section! {
    /// Settings that Kuma calls experimental.
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
        /// Delay before a connection to the global control plane is tried again, at first ...
        resilient_component_base_backoff: GoDuration = GoDuration::from_secs(5), "resilientComponentBaseBackoff",
            "KUMA_GENERAL_RESILIENT_COMPONENT_BASE_BACKOFF";
        /// ... and at most.
        resilient_component_max_backoff: GoDuration = GoDuration::from_secs(60), "resilientComponentMaxBackoff",
            "KUMA_GENERAL_RESILIENT_COMPONENT_MAX_BACKOFF";
        /// Log level. The flag `--log-level` takes precedence.
        log_level: Level = Level::Info, "logLevel", "KUMA_GENERAL_LOG_LEVEL";
        /// Format of log lines. The flag `--log-format` takes precedence.
        log_format: LogFormat = LogFormat::Text, "logFormat", "KUMA_GENERAL_LOG_FORMAT";
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
        /// Largest number of connections open at once; 0 means no limit of our own.
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
        /// URL at which clients reach the API, when that is not the address they ask for (behind a proxy).
        root_url: String = String::new(), "rootUrl", "KUMA_API_SERVER_ROOT_URL";
        /// Path the API is served below.
        base_path: String = "/".to_owned(), "basePath", "KUMA_API_SERVER_BASE_PATH";
        /// Longest time for the head of a request.
        read_header_timeout: GoDuration = GoDuration::from_secs(1), "readHeaderTimeout", "KUMA_API_SERVER_READ_HEADER_TIMEOUT";
        /// Longest time for reading a whole request.
        read_timeout: GoDuration = GoDuration::from_secs(10), "readTimeout", "KUMA_API_SERVER_READ_TIMEOUT";
        /// Longest time for answering a request.
        write_timeout: GoDuration = GoDuration::from_secs(30), "writeTimeout", "KUMA_API_SERVER_WRITE_TIMEOUT";
        /// Time after which an idle connection is closed.
        idle_timeout: GoDuration = GoDuration::from_secs(120), "idleTimeout", "KUMA_API_SERVER_IDLE_TIMEOUT";
        section http: HttpServer, "http";
        section https: Https, "https";
        section authn: Authn, "authn";
        section auth: Auth, "auth";
        section gui: Gui, "gui";
    }
}

section! {
    /// The API without TLS.
    pub struct HttpServer {
        /// Serves the API over plain HTTP.
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
        /// Serves the API over TLS.
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
        /// Gives administrator rights to requests from the machine itself: those that root or the user of the
        /// control plane sends directly.
        localhost_is_admin: bool = true, "localhostIsAdmin", "KUMA_API_SERVER_AUTHN_LOCALHOST_IS_ADMIN";
        /// Lets unauthenticated users only read.
        require_for_writes: bool = false, "requireForWrites", "KUMA_API_SERVER_AUTHN_REQUIRE_FOR_WRITES";
        section tokens: Tokens, "tokens";
    }
}

section! {
    /// User tokens.
    pub struct Tokens {
        /// Keeps a token of an administrator in the global secret `admin-user-token`.
        bootstrap_admin_token: bool = true, "bootstrapAdminToken", "KUMA_API_SERVER_AUTHN_TOKENS_BOOTSTRAP_ADMIN_TOKEN";
        /// Lets this control plane issue user tokens.
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
        /// Announces the web interface.
        enabled: bool = true, "enabled", "KUMA_API_SERVER_GUI_ENABLED";
        /// URL at which browsers find it.
        root_url: String = String::new(), "rootUrl", "KUMA_API_SERVER_GUI_ROOT_URL";
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
    /// Resources that are created at the first start.
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

    /// Folder of the files that meshes may name.
    pub fn data_source_dir(&self) -> PathBuf {
        match self.general.data_source_dir.as_str() {
            "" => self.work_dir().join("data-sources"),
            path => PathBuf::from(path),
        }
    }

    /// True for a zone that follows a global control plane.
    pub fn federated(&self) -> bool {
        self.mode != Mode::Global && !self.synchronisation.multizone.zone.global_address.is_empty()
    }
}
