//! `~/.kumactl/config`: which control planes this client knows and which one it talks to.
//!
//! The file is the one Kuma's own client writes; fields only that client knows are kept.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use resources::format::yaml;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    bounded,
    cli::{Global, LogLevel},
    client::ApiClient,
    failure::{Failure, Result},
};

/// Default address of a control plane.
const DEFAULT_URL: &str = "http://localhost:5681";
const DEFAULT_NAME: &str = "local";

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<NamedContext>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub control_planes: Vec<NamedControlPlane>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_context: String,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A named choice of a control plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedContext {
    pub control_plane: String,
    pub name: String,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A control plane and how to reach it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedControlPlane {
    pub coordinates: Coordinates,
    pub name: String,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Coordinates {
    pub api_server: ApiServer,
}

/// The REST API of a control plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiServer {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub auth_conf: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub auth_type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_cert_file: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_cert_file: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_key_file: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skip_verify: bool,
    pub url: String,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub key: String,
    pub value: String,
}

impl Config {
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn with_default_control_plane() -> Config {
        let api_server = ApiServer { url: DEFAULT_URL.to_owned(), ..ApiServer::default() };
        Config {
            contexts: vec![NamedContext {
                control_plane: DEFAULT_NAME.to_owned(),
                name: DEFAULT_NAME.to_owned(),
                rest: Map::new(),
            }],
            control_planes: vec![NamedControlPlane {
                coordinates: Coordinates { api_server },
                name: DEFAULT_NAME.to_owned(),
                rest: Map::new(),
            }],
            current_context: DEFAULT_NAME.to_owned(),
            rest: Map::new(),
        }
    }

    pub fn control_plane(&self, name: &str) -> Option<&NamedControlPlane> {
        self.control_planes.iter().find(|cp| cp.name == name)
    }

    /// The control plane a context stands for.
    fn of_context(&self, context: &str) -> Result<&NamedControlPlane> {
        let found = self.contexts.iter().find(|c| c.name == context).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.iter().map(|c| c.name.as_str()).collect();
            Failure::invalid(format!(
                "there is no context {context:?} in the configuration; known: {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            ))
        })?;
        self.control_plane(&found.control_plane).ok_or_else(|| {
            Failure::invalid(format!(
                "context {context:?} refers to control plane {:?}, which the configuration does not have; \
                 add it with `kumactl config control-planes add`",
                found.control_plane
            ))
        })
    }
}

/// The configuration in use, where it came from, and the flags that change its meaning.
#[derive(Debug)]
pub struct ClientSettings {
    pub config: Config,
    /// `None` with `--no-config`.
    pub path: Option<PathBuf>,
    context: Option<String>,
    timeout: std::time::Duration,
    trace: bool,
}

impl ClientSettings {
    pub fn load(global: &Global) -> Result<ClientSettings> {
        let path = if global.no_config { None } else { Some(path_of(global)?) };
        let config = match &path {
            None => Config::with_default_control_plane(),
            Some(path) => match bounded::file(path, bounded::MOST_OF_SETTINGS) {
                Ok(bytes) => read(path, &bytes)?,
                // The first `config control-planes add` is what makes the file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Config::with_default_control_plane(),
                Err(error) => {
                    return Err(Failure::failed(format!(
                        "reading configuration {}: {error}",
                        path.display()
                    )));
                }
            },
        };
        Ok(ClientSettings {
            config,
            path,
            context: global.context.clone(),
            timeout: global.api_timeout,
            trace: global.log_level == LogLevel::Debug,
        })
    }

    /// The context in use: the flag's, else the configuration's current one.
    pub fn context(&self) -> &str {
        self.context.as_deref().unwrap_or(&self.config.current_context)
    }

    pub fn client(&self) -> Result<ApiClient> {
        if self.context().is_empty() {
            return Err(Failure::invalid(
                "no control plane is chosen; choose one with `kumactl config control-planes switch --name NAME`",
            ));
        }
        let control_plane = self.config.of_context(self.context())?;
        self.client_of(&control_plane.coordinates.api_server, self.context())
    }

    pub fn client_of(&self, server: &ApiServer, context: &str) -> Result<ApiClient> {
        ApiClient::new(server, context, self.timeout, self.trace)
    }

    /// Writes the configuration; readable by its owner only, as it may hold tokens.
    pub fn save(&self) -> Result<()> {
        let Some(path) = &self.path else {
            return Err(Failure::invalid("--no-config leaves no configuration file to write to"));
        };
        write_private(path, &yaml::to_string(&self.config.to_json()))
            .map_err(|error| Failure::failed(format!("writing configuration {}: {error}", path.display())))
    }
}

fn path_of(global: &Global) -> Result<PathBuf> {
    if let Some(path) = &global.config_file {
        return Ok(path.clone());
    }
    let home = env::var_os("HOME").filter(|home| !home.is_empty()).ok_or_else(|| {
        Failure::invalid(
            "HOME is not set, so there is no ~/.kumactl/config; pass --config-file or --no-config",
        )
    })?;
    Ok(Path::new(&home).join(".kumactl").join("config"))
}

fn read(path: &Path, bytes: &[u8]) -> Result<Config> {
    let wrong = |what: String| Failure::invalid(format!("configuration {}: {what}", path.display()));
    let mut documents = yaml::from_bytes(bytes).map_err(|error| wrong(error.to_string()))?;
    match documents.len() {
        0 => Ok(Config::with_default_control_plane()),
        1 => serde_json::from_value(documents.remove(0).value).map_err(|error| wrong(error.to_string())),
        more => Err(wrong(format!("expected one YAML document, found {more}"))),
    }
}

/// Replaces a file in one step, so that an interruption leaves the old one or the new one.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}
