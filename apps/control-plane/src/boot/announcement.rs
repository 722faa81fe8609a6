//! First lines of the log: identity and store of this control plane, and users who may write.

use std::path::Path;

use insights::BASED_ON_KUMA;

use crate::config::{
    Config,
    setting::{Mode, Setting, StoreType},
};

/// Says it, before anything is opened that may fail.
pub fn of(config: &Config) {
    starting(config);
    advise(config);
}

/// One line that says which control plane starts, and where its store is. The password of a database is not in it.
fn starting(config: &Config) {
    let is_global = config.mode == Mode::Global;
    let zone = (!is_global).then_some(config.synchronisation.multizone.zone.name.as_str());
    let global = config.federated().then_some(config.synchronisation.multizone.zone.global_address.as_str());
    let mode = name(&config.mode);
    let store = name(&config.store.kind);
    let path = (config.store.kind == StoreType::Sqlite).then(|| absolute(&config.sqlite_path()));
    let postgres = Some(&config.store.postgres).filter(|_| config.store.kind == StoreType::Postgres);
    tracing::info!(
        version = version::SHOWN,
        kuma_version = BASED_ON_KUMA,
        mode,
        zone,
        global,
        store,
        path,
        host = postgres.map(|postgres| postgres.host.as_str()),
        port = postgres.map(|postgres| postgres.port),
        database = postgres.map(|postgres| postgres.db_name.as_str()),
        work_dir = absolute(&config.work_dir()),
        "control plane is starting"
    );
}

/// Suggests to require authentication where others than this machine reach the API.
fn advise(config: &Config) {
    let server = &config.api_server;
    let reachable =
        [(server.http.enabled, server.http.interface), (server.https.enabled, server.https.interface)]
            .into_iter()
            .any(|(enabled, interface)| enabled && !interface.is_loopback());
    if reachable && !server.authn.require_for_writes && !server.read_only {
        tracing::warn!(
            setting = "apiServer.authn.requireForWrites",
            variable = "KUMA_API_SERVER_AUTHN_REQUIRE_FOR_WRITES",
            "other machines reach the API, and anyone there can change everything except secrets and tokens: set this to \
             true, or listen on 127.0.0.1 only"
        );
    }
}

fn name(setting: &impl Setting) -> String {
    setting.to_json().as_str().unwrap_or_default().to_owned()
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
