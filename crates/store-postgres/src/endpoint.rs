//! Connections to the database, and descriptions of their failures.

use std::{error::Error as _, future::Future, time::Duration};

use deadpool_postgres::{Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime, Timeouts};
use store::Error;
use tokio_postgres::{
    Client, Connection, Socket,
    config::{SslMode, TargetSessionAttrs},
    error::SqlState,
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{PostgresConfig, config::TlsMode, tls};

/// A server that does not answer within this time is treated as gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// Deadpool has to be given a number; this many connections is none at all.
const UNLIMITED: usize = 1000;

/// A writer that vanishes, or stands still, must not hold up the others for longer than this.
const SESSION: &str = "-c idle_in_transaction_session_timeout=10s -c lock_timeout=10s";

pub(crate) type TlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// The database, ready to be connected to.
pub(crate) struct DatabaseAddress {
    postgres: tokio_postgres::Config,
    connector: MakeRustlsConnect,
    timeout: Duration,
    max_open_connections: u32,
    /// For messages: who connects where.
    name: String,
}

impl DatabaseAddress {
    pub(crate) fn new(config: &PostgresConfig) -> Result<DatabaseAddress, Error> {
        let mut postgres = tokio_postgres::Config::new();
        postgres
            .host(&config.host)
            .port(config.port)
            .user(&config.user)
            .password(&config.password)
            .dbname(&config.db_name)
            .application_name("kuma-cp")
            .options(SESSION)
            .connect_timeout(config.connection_timeout)
            // After a failover the old primary may come back read-only under the same address.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            // A peer that vanished without a word is noticed within about ten seconds.
            .tcp_user_timeout(Duration::from_secs(10))
            .keepalives_idle(Duration::from_secs(5))
            .keepalives_interval(Duration::from_secs(2))
            .keepalives_retries(3)
            .ssl_mode(match config.tls.mode {
                TlsMode::Disable => SslMode::Disable,
                _ => SslMode::Require,
            });
        let PostgresConfig { host, port, user, db_name, .. } = config;
        Ok(DatabaseAddress {
            postgres,
            connector: tls::connector(&config.tls)?,
            timeout: config.connection_timeout,
            max_open_connections: config.max_open_connections,
            name: format!("PostgreSQL at {host}:{port}, database {db_name:?}, as user {user:?}"),
        })
    }

    /// Connections for writing. One of the allowed number is left for the listener.
    pub(crate) fn pool(&self) -> Result<Pool, Error> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(self.postgres.clone(), self.connector.clone(), recycling);
        let size = match self.max_open_connections {
            0 => UNLIMITED,
            limit => usize::try_from(limit - 1).unwrap_or(UNLIMITED).clamp(1, UNLIMITED),
        };
        let timeouts =
            Timeouts { wait: Some(self.timeout), create: Some(self.timeout), recycle: Some(self.timeout) };
        Pool::builder(manager)
            .max_size(size)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|why| Error::Unavailable(format!("cannot set up connections to {}: {why}", self.name)))
    }

    /// A connection outside of the pool; the caller has to drive it.
    pub(crate) async fn connect(&self) -> Result<(Client, Connection<Socket, TlsStream>), Error> {
        match tokio::time::timeout(self.timeout, self.postgres.connect(self.connector.clone())).await {
            Ok(connected) => connected.map_err(|why| self.unreachable(&why)),
            Err(_) => Err(self.too_slow()),
        }
    }

    pub(crate) fn no_connection(&self, error: PoolError) -> Error {
        match error {
            PoolError::Backend(why) => self.unreachable(&why),
            PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => Error::Unavailable(format!(
                "all connections to {} are busy and none became free within {:?}; \
                 store.postgres.maxOpenConnections is {}",
                self.name, self.timeout, self.max_open_connections
            )),
            PoolError::Timeout(_) => self.too_slow(),
            other => Error::Unavailable(format!("cannot connect to {}: {other}", self.name)),
        }
    }

    fn too_slow(&self) -> Error {
        Error::Unavailable(format!("cannot connect to {}: no answer within {:?}", self.name, self.timeout))
    }

    fn unreachable(&self, error: &tokio_postgres::Error) -> Error {
        let hint = match error.code() {
            Some(&SqlState::INVALID_PASSWORD) => {
                "; check store.postgres.user and store.postgres.password \
                 (KUMA_STORE_POSTGRES_USER, KUMA_STORE_POSTGRES_PASSWORD)"
            }
            Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
                "; check store.postgres.user, store.postgres.tls and pg_hba.conf of the server"
            }
            Some(&SqlState::INVALID_CATALOG_NAME) => {
                "; create it, or check store.postgres.dbName (KUMA_STORE_POSTGRES_DB_NAME)"
            }
            Some(&SqlState::TOO_MANY_CONNECTIONS) => {
                "; lower store.postgres.maxOpenConnections or raise max_connections of the server"
            }
            Some(_) => "",
            None => "; check store.postgres.host, store.postgres.port and store.postgres.tls",
        };
        Error::Unavailable(format!("cannot connect to {}: {}{hint}", self.name, describe(error)))
    }
}

/// Everything an error of the driver knows, in one line.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let detail = db.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        return format!("{}{detail}, SQLSTATE {}", db.message(), db.code().code());
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// A statement failed, and with it everything it belongs to.
pub(crate) fn failed(attempted: &str, error: &tokio_postgres::Error) -> Error {
    let hint = match error.code() {
        Some(&SqlState::LOCK_NOT_AVAILABLE) => "; another control plane holds the write lock",
        Some(&SqlState::DISK_FULL) => "; make room on the database server",
        _ => "",
    };
    Error::Unavailable(format!("cannot {attempted}: {}{hint}", describe(error)))
}

/// The text of an error without the words every unavailability begins with.
pub(crate) fn reason(error: Error) -> String {
    match error {
        Error::Unavailable(why) => why,
        other => other.to_string(),
    }
}

/// Runs statements with a limit on how long the server may take.
pub(crate) async fn within<T, E: From<Error>>(
    attempted: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| {
        let why = format!("cannot {attempted}: PostgreSQL did not answer within {PATIENCE:?}");
        Err(Error::Unavailable(why).into())
    })
}
