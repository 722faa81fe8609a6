//! `proxy status`: whether proxies run what they were sent. `proxy config NAME WHAT`: the parts of one
//! proxy's configuration, one row each. `proxy bootstrap` and `proxy log`: what it was started with, and how
//! much it logs.

mod bootstrap;
pub mod dump;
mod log;
pub mod rows;
pub mod status;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::{
    cell::{self, Column, endpoint, list, text},
    client::Client,
    failure::{Failure, Outcome, Result},
    names::Names,
    output::{self, Format, Output},
    terminal,
    types::DEFAULT_MESH,
};
use dump::Dump;

#[derive(Debug, Subcommand)]
pub enum ProxyCommand {
    Status(status::Status),
    Config(Config),
    Bootstrap(bootstrap::Bootstrap),
    Log(log::Log),
}

/// Show the parts of a proxy's configuration
///
/// KIND says how a name is made: kri and self are unified names, legacy those of older proxies, system
/// what is internal, other what follows none of these. KRI is the resource a name stands for, if that is
/// known.
#[derive(Debug, Args)]
pub struct Config {
    /// Name of the proxy
    #[arg(value_name = "NAME")]
    proxy: String,
    /// Which parts
    #[arg(value_name = "PART")]
    part: Part,
    /// Only parts with this in their name or in the identifier of the resource it stands for
    #[arg(long, value_name = "SUBSTRING", default_value = "", hide_default_value = true)]
    name: String,
    /// Mesh of the proxy
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// What the control plane would send now, instead of what the proxy runs
    #[arg(long)]
    expected: bool,
    #[command(flatten)]
    output: Output,
}

/// The parts of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    Listeners,
    Routes,
    Clusters,
    Endpoints,
    Secrets,
}

impl ProxyCommand {
    pub fn run(&self, client: &Client) -> Result<Outcome> {
        match self {
            ProxyCommand::Status(status) => status.run(client),
            ProxyCommand::Config(config) => config.run(client).map(|()| Outcome::Done),
            ProxyCommand::Bootstrap(bootstrap) => bootstrap.run(client).map(|()| Outcome::Done),
            ProxyCommand::Log(log) => log.run(client).map(|()| Outcome::Done),
        }
    }
}

impl Config {
    fn run(&self, client: &Client) -> Result<()> {
        if self.expected && self.part == Part::Secrets {
            return Err(Failure::invalid(
                "the control plane does not show secrets: leave out --expected to see those the proxy runs",
            ));
        }
        let dump = match self.expected {
            true => Dump::of_control_plane(client, &self.mesh, &self.proxy, false, false)?,
            false => Dump::of_proxy(client, &self.mesh, &self.proxy, self.part == Part::Endpoints)?,
        };
        let names = Names::of_proxy(client, &self.mesh, &self.proxy);
        let mut items = rows::of(&dump, self.part, &names);
        items.retain(|item| self.wants(item));
        let all = || json!({ "total": items.len(), "items": items });
        let rendered = match self.output.format {
            Format::Json => output::json(&all()),
            Format::Yaml => output::yaml(&all()),
            Format::Name => {
                let mut names: Vec<String> = items
                    .iter()
                    .map(|item| format!("{}/{}\n", self.part.noun(), text(&item["name"])))
                    .collect();
                names.dedup();
                names.concat()
            }
            format => {
                let (titles, rows) = cell::grid(&columns(self.part, format == Format::Wide), &items);
                output::table(&titles, rows)
            }
        };
        Ok(terminal::data(&rendered)?)
    }

    fn wants(&self, item: &Value) -> bool {
        let mut names =
            ["name", "virtualHost", "route", "kri"].iter().filter_map(|field| item[*field].as_str());
        names.any(|name| name.contains(&self.name))
    }
}

impl Part {
    fn noun(self) -> &'static str {
        match self {
            Part::Listeners => "listener",
            Part::Routes => "route",
            Part::Clusters => "cluster",
            Part::Endpoints => "endpoint",
            Part::Secrets => "secret",
        }
    }
}

fn columns(part: Part, wide: bool) -> Vec<Column> {
    let mut columns: Vec<Column> =
        vec![("NAME", |item| text(&item["name"])), ("KIND", |item| text(&item["kind"]))];
    let (own, more): (Vec<Column>, Vec<Column>) = match part {
        Part::Listeners => (
            vec![
                ("ADDRESS", |item| endpoint(item, "address", "port")),
                ("PROTOCOL", |item| list(&item["protocols"], text)),
                ("DIRECTION", |item| text(&item["direction"])),
                ("TLS", tls),
                ("STATE", |item| text(&item["state"])),
            ],
            vec![("ERROR", |item| text(&item["error"]))],
        ),
        Part::Routes => (
            vec![
                ("VIRTUAL HOST", |item| text(&item["virtualHost"])),
                ("MATCH", |item| text(&item["match"])),
                ("DESTINATION", |item| list(&item["destinations"], text)),
            ],
            vec![
                ("ROUTE", |item| text(&item["route"])),
                ("DOMAINS", |item| list(&item["domains"], text)),
                ("STATE", |item| text(&item["state"])),
            ],
        ),
        Part::Clusters => (
            vec![
                ("TYPE", |item| text(&item["type"])),
                ("ADDRESS", |item| list(&item["endpoints"], |e| endpoint(e, "address", "port"))),
                ("PROTOCOL", |item| text(&item["protocol"])),
                ("TLS", tls),
                ("STATE", |item| text(&item["state"])),
            ],
            vec![("ERROR", |item| text(&item["error"]))],
        ),
        Part::Endpoints => (
            vec![
                ("ADDRESS", |item| endpoint(item, "address", "port")),
                ("HEALTH", |item| text(&item["health"])),
                ("WEIGHT", |item| text(&item["weight"])),
                ("ZONE", |item| text(&item["zone"])),
            ],
            vec![("PRIORITY", |item| text(&item["priority"]))],
        ),
        Part::Secrets => {
            (secret_columns(), vec![("VALID FROM", |item| text(&item["certificates"][0]["notBefore"]))])
        }
    };
    columns.extend(own);
    if wide {
        columns.extend(more);
    }
    columns.push(("KRI", |item| text(&item["kri"])));
    columns
}

fn secret_columns() -> Vec<Column> {
    vec![
        ("TYPE", |item| text(&item["type"])),
        ("STATE", |item| text(&item["state"])),
        ("SUBJECT", |item| list(&item["certificates"], subject)),
        ("ISSUER", |item| list(&item["certificates"], |of| text(&of["issuer"]))),
        ("EXPIRES", expires),
        ("LAST UPDATED AGO", |item| cell::since(&item["lastUpdated"])),
    ]
}

/// Who a certificate is for: by its alternative names, because certificates of proxies have no other.
fn subject(certificate: &Value) -> String {
    let names = list(&certificate["subjectAlternativeNames"], text);
    if names.is_empty() { text(&certificate["subject"]) } else { names }
}

/// When the first of the certificates ends.
fn expires(item: &Value) -> String {
    let ends = item["certificates"].as_array().into_iter().flatten().map(|of| &of["notAfter"]);
    ends.min_by_key(|end| cell::time(end)).map(text).unwrap_or_default()
}

fn tls(item: &Value) -> String {
    if item["tls"] == true { "yes" } else { "no" }.to_owned()
}
