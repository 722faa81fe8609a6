//! `config view` and `config control-planes add|list|remove|switch`.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    client::ApiClient,
    config::{ApiServer, ClientSettings, Config, Coordinates, Header, NamedContext, NamedControlPlane},
    failure::{Failure, Result},
    output::{self, Output, OutputFormat},
    terminal,
};

/// Name of a user who did not authenticate, as control planes call that one.
pub const ANONYMOUS: &str = "mesh-system:anonymous";

/// Show the configuration of this client
#[derive(Debug, Args)]
pub struct View {
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "yaml", value_parser = ["yaml", "json"])]
    format: String,
    /// Show tokens instead of asterisks
    #[arg(long)]
    show_secrets: bool,
}

impl View {
    pub fn run(&self, settings: &ClientSettings) -> Result<()> {
        let mut config = settings.config.clone();
        if !self.show_secrets {
            hide_secrets(&mut config);
        }
        let shown = config.to_json();
        let text = if self.format == "json" { output::json(&shown) } else { output::yaml(&shown) };
        Ok(terminal::data(&text)?)
    }
}

fn hide_secrets(config: &mut Config) {
    for control_plane in &mut config.control_planes {
        let conf = &mut control_plane.coordinates.api_server.auth_conf;
        conf.values_mut().for_each(|value| *value = "*****".to_owned());
    }
}

#[derive(Debug, Subcommand)]
pub enum ControlPlanes {
    Add(Box<Add>),
    /// Show the known control planes
    List(Output),
    /// Remove a control plane
    Remove {
        /// Name of the control plane
        #[arg(long)]
        name: String,
    },
    /// Switch to another control plane
    Switch {
        /// Name of the control plane
        #[arg(long)]
        name: String,
    },
}

/// Add a control plane and switch to it
#[derive(Debug, Args)]
pub struct Add {
    /// Name of the control plane
    #[arg(long)]
    name: String,
    /// Address of its REST API, such as https://host:5682
    #[arg(long)]
    address: String,
    /// Replace a control plane of the same name
    #[arg(long)]
    overwrite: bool,
    /// Certificate of the authority that signed the server's certificate
    #[arg(long, value_name = "FILE")]
    ca_cert_file: Option<String>,
    /// Client certificate
    #[arg(long, value_name = "FILE", requires = "client_key_file")]
    client_cert_file: Option<String>,
    /// Key of the client certificate
    #[arg(long, value_name = "FILE", requires = "client_cert_file")]
    client_key_file: Option<String>,
    /// Accept any certificate of the server
    #[arg(long)]
    skip_verify: bool,
    /// Header to send with every request
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    headers: Vec<(String, String)>,
    /// Method of authentication
    #[arg(long, value_parser = ["tokens"])]
    auth_type: Option<String>,
    /// Data to authenticate with, such as token=…
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair, requires = "auth_type")]
    auth_conf: Vec<(String, String)>,
    /// Add it without checking that it is a control plane and accepts the token
    #[arg(long)]
    skip_check: bool,
}

impl ControlPlanes {
    pub fn run(&self, mut settings: ClientSettings) -> Result<()> {
        match self {
            ControlPlanes::Add(add) => add.run(settings),
            ControlPlanes::List(output) => list(&settings, output.format),
            ControlPlanes::Remove { name } => {
                known(&settings, name)?;
                settings.config.control_planes.retain(|cp| cp.name != *name);
                let gone: Vec<String> = settings
                    .config
                    .contexts
                    .extract_if(.., |context| context.control_plane == *name)
                    .map(|context| context.name)
                    .collect();
                if gone.contains(&settings.config.current_context) {
                    settings.config.current_context.clear();
                }
                settings.save()?;
                terminal::talk(&format!("removed Control Plane {name:?}"));
                if settings.config.current_context.is_empty() {
                    terminal::warn(
                        "it was the active one; choose another with `kumactl config control-planes switch`",
                    );
                }
                Ok(())
            }
            ControlPlanes::Switch { name } => {
                known(&settings, name)?;
                switch(&mut settings, name);
                settings.save()?;
                terminal::talk(&format!("switched active Control Plane to {name:?}"));
                Ok(())
            }
        }
    }
}

impl Add {
    fn run(&self, mut settings: ClientSettings) -> Result<()> {
        if settings.config.control_plane(&self.name).is_some() && !self.overwrite {
            return Err(Failure::invalid(format!(
                "Control Plane with name {:?} already exists. Use --overwrite to replace an existing one.",
                self.name
            )));
        }
        let server = self.server();
        // Building the client finds unreadable certificates even when nothing is asked.
        let client = settings.client_of(&server, &self.name)?;
        if !self.skip_check {
            let index = client.index()?.read("asking the control plane for its version")?;
            if index.version.is_empty() {
                return Err(Failure::failed(format!(
                    "{} answers, but not as a control plane does; pass --skip-check to add it anyway",
                    self.address
                )));
            }
            self.check_user(&client)?;
        }
        settings.config.control_planes.retain(|cp| cp.name != self.name);
        settings.config.control_planes.push(NamedControlPlane {
            coordinates: Coordinates { api_server: server },
            name: self.name.clone(),
            rest: Map::new(),
        });
        switch(&mut settings, &self.name);
        settings.save()?;
        terminal::talk(&format!("added Control Plane {:?}", self.name));
        terminal::talk(&format!("switched active Control Plane to {:?}", self.name));
        Ok(())
    }

    /// Checks that the control plane accepts the token, and prints the user.
    fn check_user(&self, client: &ApiClient) -> Result<()> {
        let token = self.auth_conf.iter().find(|(key, _)| key == "token").map(|(_, token)| token.trim());
        // Kuma does not look at the token of an administrator on its own machine.
        if let Some(expired) = token.and_then(expiry).filter(|end| *end <= Timestamp::now()) {
            return Err(Failure::invalid(format!(
                "the token expired at {expired}; generate another with `kumactl generate user-token`, or pass --skip-check to \
                 add the control plane anyway"
            )));
        }
        let reply = client.user()?;
        let answer = &reply.answer;
        if answer.status == 401 || answer.status == 403 {
            return Err(Failure::failed(format!(
                "the control plane does not accept your credentials: {}\nhint: generate another token with \
                `kumactl generate user-token`, or pass --skip-check to add the control plane anyway",
                answer.refusal()
            )));
        }
        // Control planes before Kuma 2.0 do not answer this.
        let Ok(user) = reply.read("asking the control plane which user you are") else { return Ok(()) };
        match (token, user.name.as_str()) {
            (Some(_), ANONYMOUS) => {
                terminal::warn("the control plane ignores the token: its apiServer.authn.type is not tokens")
            }
            (None, ANONYMOUS) | (_, "") => {}
            (_, name) => terminal::talk(&format!("authenticated as {name:?}")),
        }
        Ok(())
    }

    fn server(&self) -> ApiServer {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        ApiServer {
            auth_conf: self.auth_conf.iter().cloned().collect::<BTreeMap<_, _>>(),
            auth_type: text(&self.auth_type),
            ca_cert_file: text(&self.ca_cert_file),
            client_cert_file: text(&self.client_cert_file),
            client_key_file: text(&self.client_key_file),
            headers: self
                .headers
                .iter()
                .map(|(key, value)| Header { key: key.clone(), value: value.clone() })
                .collect(),
            skip_verify: self.skip_verify,
            url: self.address.trim_end_matches('/').to_owned(),
            rest: Map::new(),
        }
    }
}

/// Expiry of a token, by its own claims. The control plane verifies them.
fn expiry(token: &str) -> Option<Timestamp> {
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims.exp?).ok()
}

/// The claims of a token that are shown.
#[derive(Debug, Deserialize)]
struct Claims {
    exp: Option<i64>,
}

fn known(settings: &ClientSettings, name: &str) -> Result<()> {
    match settings.config.control_plane(name) {
        Some(_) => Ok(()),
        None => Err(Failure::invalid(format!("there is no Control Plane with name {name:?}"))),
    }
}

/// Makes the control plane's context the current one; every control plane has one of its name.
fn switch(settings: &mut ClientSettings, name: &str) {
    let config = &mut settings.config;
    match config.contexts.iter_mut().find(|context| context.name == name) {
        Some(context) => context.control_plane = name.to_owned(),
        None => config.contexts.push(NamedContext {
            control_plane: name.to_owned(),
            name: name.to_owned(),
            rest: Map::new(),
        }),
    }
    config.current_context = name.to_owned();
}

fn list(settings: &ClientSettings, format: OutputFormat) -> Result<()> {
    let active = settings.config.contexts.iter().find(|c| c.name == settings.context());
    let active = active.map(|context| context.control_plane.as_str()).unwrap_or_default();
    let rows: Vec<(bool, &str, &ApiServer)> = settings
        .config
        .control_planes
        .iter()
        .map(|cp| (cp.name == active, cp.name.as_str(), &cp.coordinates.api_server))
        .collect();
    let as_value = || -> Value {
        rows.iter()
            .map(|(active, name, server)| json!({ "active": active, "name": name, "address": server.url }))
            .collect()
    };
    let cells = rows.iter().map(|(active, name, server)| {
        let mut cells =
            vec![if *active { "*" } else { "" }.to_owned(), (*name).to_owned(), server.url.clone()];
        if format == OutputFormat::Wide {
            cells.push(if server.auth_type.is_empty() { "-".to_owned() } else { server.auth_type.clone() });
            cells.push(if server.skip_verify { "skipped" } else { "yes" }.to_owned());
        }
        cells
    });
    let text = match format {
        OutputFormat::Table => output::table(&["ACTIVE", "NAME", "ADDRESS"], cells),
        OutputFormat::Wide => output::table(&["ACTIVE", "NAME", "ADDRESS", "AUTH", "VERIFIED"], cells),
        OutputFormat::Yaml => output::yaml(&as_value()),
        OutputFormat::Json => output::json(&as_value()),
        OutputFormat::Name => rows.iter().map(|(_, name, _)| format!("control-plane/{name}\n")).collect(),
    };
    Ok(terminal::data(&text)?)
}

/// `key=value`, with a key.
pub fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
