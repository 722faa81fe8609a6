//! Address of the database, credentials and TLS.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer};

/// Settings of the store, named and defaulted as under `store.postgres` of the configuration file.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PostgresConfig {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub db_name: String,
    /// Connections this control plane holds at most, the one that listens for changes included.
    /// 0 means no limit of ours.
    pub max_open_connections: u32,
    /// Longest wait for a connection, written as whole seconds.
    #[serde(deserialize_with = "seconds")]
    pub connection_timeout: Duration,
    pub tls: PostgresTls,
}

/// Encryption of the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PostgresTls {
    pub mode: TlsMode,
    /// The client's own certificate, if the server asks for one; PEM.
    #[serde(deserialize_with = "path")]
    pub cert_path: Option<PathBuf>,
    #[serde(deserialize_with = "path")]
    pub key_path: Option<PathBuf>,
    /// Authorities that may vouch for the server; PEM.
    #[serde(deserialize_with = "path")]
    pub ca_path: Option<PathBuf>,
}

/// Verification of the server's certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TlsMode {
    /// No encryption.
    #[default]
    Disable,
    /// Encryption, without verifying the server.
    VerifyNone,
    /// The certificate must come from `ca_path`; any name will do.
    VerifyCa,
    /// The certificate must come from `ca_path` and name the host.
    VerifyFull,
}

impl FromStr for TlsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "disable" => Ok(TlsMode::Disable),
            "verifyNone" => Ok(TlsMode::VerifyNone),
            "verifyCa" => Ok(TlsMode::VerifyCa),
            "verifyFull" => Ok(TlsMode::VerifyFull),
            other => {
                Err(format!("unknown TLS mode {other:?}: use disable, verifyNone, verifyCa or verifyFull"))
            }
        }
    }
}

impl Default for PostgresConfig {
    fn default() -> Self {
        PostgresConfig {
            host: "127.0.0.1".into(),
            port: 15432,
            user: "kuma".into(),
            password: "kuma".into(),
            db_name: "kuma".into(),
            max_open_connections: 50,
            connection_timeout: Duration::from_secs(5),
            tls: PostgresTls::default(),
        }
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PostgresConfig {
            host,
            port,
            user,
            password: _,
            db_name,
            max_open_connections,
            connection_timeout,
            tls,
        } = self;
        f.debug_struct("Config")
            .field("host", host)
            .field("port", port)
            .field("user", user)
            .field("password", &"*****")
            .field("db_name", db_name)
            .field("max_open_connections", max_open_connections)
            .field("connection_timeout", connection_timeout)
            .field("tls", tls)
            .finish()
    }
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u32::deserialize(deserializer).map(|seconds| Duration::from_secs(seconds.into()))
}

/// An empty path means none.
fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = Option::<PathBuf>::deserialize(deserializer)?;
    Ok(path.filter(|path| !path.as_os_str().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_as_in_kuma() {
        let config: PostgresConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(config, PostgresConfig::default());
        assert_eq!((config.port, config.tls.mode), (15432, TlsMode::Disable));
    }

    #[test]
    fn reads_the_names_of_the_configuration_file() {
        let text = r#"{"host":"db","dbName":"d","maxOpenConnections":7,"connectionTimeout":9,
            "tls":{"mode":"verifyCa","caPath":"/ca","certPath":""}}"#;
        let config: PostgresConfig = serde_json::from_str(text).unwrap();
        let tls =
            PostgresTls { mode: TlsMode::VerifyCa, ca_path: Some("/ca".into()), ..PostgresTls::default() };
        let expect = PostgresConfig {
            host: "db".into(),
            db_name: "d".into(),
            max_open_connections: 7,
            connection_timeout: Duration::from_secs(9),
            tls,
            ..PostgresConfig::default()
        };
        assert_eq!(config, expect);
    }

    #[test]
    fn the_password_is_not_shown() {
        let config = PostgresConfig { password: "hunter2".into(), ..PostgresConfig::default() };
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn an_unknown_tls_mode_is_refused_with_the_known_ones() {
        let refused = "require".parse::<TlsMode>().unwrap_err();
        assert!(refused.contains("\"require\"") && refused.contains("verifyFull"), "{refused}");
    }
}
