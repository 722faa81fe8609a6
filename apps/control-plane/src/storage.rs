//! Opens the store that the configuration names, and makes the registrar that writes to it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use admission::{Registrar, RuleSettings};
use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use resources::Environment;
use store::{Memory, Store};
use store_postgres::{Kuma, Postgres, TlsMode};
use store_sqlite::Sqlite;

use crate::{
    config::{
        Config,
        setting::{Mode, PostgresTls, StoreType},
    },
    defaults,
};

pub async fn open(config: &Config) -> Result<Arc<dyn Store>> {
    match config.store.kind {
        StoreType::Memory => Ok(Arc::new(Memory::default())),
        StoreType::Sqlite => {
            let path = config.sqlite_path();
            if let Some(directory) = path.parent() {
                create_dir(directory, config.sqlite_setting())?;
            }
            // Opening reads the whole file, which may be large.
            let opened = tokio::task::spawn_blocking(move || Sqlite::open(path)).await?;
            let store = opened.with_context(|| {
                let setting = config.sqlite_setting();
                format!("cannot open the database {} ({setting})", config.sqlite_path().display())
            })?;
            Ok(Arc::new(store))
        }
        StoreType::Postgres => {
            let postgres = &config.store.postgres;
            let store = Postgres::connect(postgres_config(config)).await.with_context(|| {
                let place = format!("{}:{}", postgres.host, postgres.port);
                format!("cannot use PostgreSQL at {place} (KUMA_STORE_POSTGRES_HOST and _PORT)")
            })?;
            Ok(Arc::new(store))
        }
        StoreType::Kubernetes => bail!("store.type: \"kubernetes\" is not supported yet"),
    }
}

/// Makes the registrar that writes to the store.
pub fn registrar(config: &Config, store: Arc<dyn Store>) -> Result<Registrar> {
    let mode = match config.mode {
        Mode::Global => admission::ControlPlaneRole::Global,
        Mode::Zone | Mode::Standalone => admission::ControlPlaneRole::Zone {
            name: config.synchronisation.multizone.zone.name.clone(),
            federated: config.federated(),
        },
    };
    let setup = RuleSettings {
        mode,
        disable_origin_label_validation: config
            .synchronisation
            .multizone
            .zone
            .disable_origin_label_validation,
        unsafe_delete: config.store.unsafe_delete,
        // The configuration refuses others.
        environment: Environment::Universal,
        health_discovery: config.mode != Mode::Global && config.serving.dp_server.hds.enabled,
        companions: defaults::companions()?,
        check: envoy::patch::check,
        now: Timestamp::now,
    };
    Ok(Registrar::new(store, setup).with_sni_formats(config.synchronisation.multizone.sni.formats.clone()))
}

/// Opens a store that is there already, to read from it: nothing is created.
pub async fn open_existing(config: &Config) -> Result<Arc<dyn Store>> {
    match config.store.kind {
        StoreType::Memory => {
            bail!("a store in memory is lost when its control plane stops: there is nothing to read")
        }
        StoreType::Sqlite if !config.sqlite_path().is_file() => bail!(
            "there is no database {} (by {}); name another one with KUMA_STORE_SQLITE_PATH or KUMA_GENERAL_WORK_DIR",
            config.sqlite_path().display(),
            config.sqlite_setting()
        ),
        _ => open(config).await,
    }
}

/// Copies everything from the tables of Kuma's own control plane in `store.postgres` into the store, which
/// must be empty; says how many resources that is, and what was left out.
pub async fn import_kuma(config: &Config) -> Result<(usize, Kuma)> {
    let postgres = &config.store.postgres;
    let place = format!("PostgreSQL at {}:{}, database {:?}", postgres.host, postgres.port, postgres.db_name);
    let mut kuma = Kuma::read(&postgres_config(config))
        .await
        .with_context(|| format!("cannot import from {place} (KUMA_STORE_POSTGRES_HOST and the like)"))?;
    let store: Arc<dyn Store> = match config.store.kind {
        StoreType::Memory => {
            bail!("a store in memory ends with this command: name another one (KUMA_STORE_TYPE)")
        }
        StoreType::Postgres => Arc::new(Postgres::connect_beside_kuma(postgres_config(config)).await?),
        StoreType::Sqlite | StoreType::Kubernetes => open(config).await?,
    };
    let resources = std::mem::take(&mut kuma.resources);
    let count = store::backup::restore(store.as_ref(), resources).await.context("nothing was imported")?;
    Ok((count, kuma))
}

/// Makes sure a directory exists; `setting` is what the operator can change about it.
pub fn create_dir(directory: &std::path::Path, setting: &str) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    // Keys are kept here, so other users have no access.
    builder.recursive(true).mode(0o700);
    let failed =
        || format!("cannot create the directory {}; choose another one with {setting}", directory.display());
    if directory.as_os_str().is_empty() { Ok(()) } else { builder.create(directory).with_context(failed) }
}

fn postgres_config(config: &Config) -> store_postgres::PostgresConfig {
    let postgres = &config.store.postgres;
    let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
    store_postgres::PostgresConfig {
        host: postgres.host.clone(),
        port: postgres.port,
        user: postgres.user.clone(),
        password: postgres.password.0.clone(),
        db_name: postgres.db_name.clone(),
        max_open_connections: postgres.max_open_connections,
        connection_timeout: Duration::from_secs(postgres.connection_timeout.into()),
        tls: store_postgres::PostgresTls {
            mode: match postgres.tls.mode {
                PostgresTls::Disable => TlsMode::Disable,
                PostgresTls::VerifyNone => TlsMode::VerifyNone,
                PostgresTls::VerifyCa => TlsMode::VerifyCa,
                PostgresTls::VerifyFull => TlsMode::VerifyFull,
            },
            cert_path: path(&postgres.tls.cert_path),
            key_path: path(&postgres.tls.key_path),
            ca_path: path(&postgres.tls.ca_path),
        },
    }
}
