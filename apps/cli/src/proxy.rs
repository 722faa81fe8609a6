//! `proxy status`: whether proxies run what they were sent. `proxy config NAME WHAT`: the parts of one
//! proxy's configuration, one row each. `proxy bootstrap` and `proxy log`: what it was started with, and how
//! much it logs.

mod bootstrap;
pub mod dump;
mod log;
pub mod rows;
pub mod status;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;

use crate::{
    cell::{self, Column, line, list},
    client::ApiClient,
    failure::{CommandResult, Failure, Result},
    names::ObjectNames,
    output::{self, Output, OutputFormat},
    terminal,
    types::DEFAULT_MESH,
};
use dump::Dump;
use rows::{Certificate, Cluster, Endpoint, EnvoyAddress, Listener, Route, Row, Secret};

#[derive(Debug, Subcommand)]
pub enum ProxyCommand {
    Status(status::Status),
    Config(ProxyConfig),
    Bootstrap(bootstrap::Bootstrap),
    Log(log::ProxyLog),
}

/// Show the parts of a proxy's configuration
///
/// KIND says how a name is made: kri and self are unified names, legacy those of older proxies, system
/// what is internal, other what follows none of these. KRI is the resource a name stands for, if that is
/// known.
#[derive(Debug, Args)]
pub struct ProxyConfig {
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
    pub fn run(&self, client: &ApiClient) -> Result<CommandResult> {
        match self {
            ProxyCommand::Status(status) => status.run(client),
            ProxyCommand::Config(config) => config.run(client).map(|()| CommandResult::Done),
            ProxyCommand::Bootstrap(bootstrap) => bootstrap.run(client).map(|()| CommandResult::Done),
            ProxyCommand::Log(log) => log.run(client).map(|()| CommandResult::Done),
        }
    }
}

impl ProxyConfig {
    fn run(&self, client: &ApiClient) -> Result<()> {
        if self.expected && self.part == Part::Secrets {
            return Err(Failure::invalid(
                "the control plane does not show secrets: leave out --expected to see those the proxy runs",
            ));
        }
        let dump = if self.expected {
            Dump::of_control_plane(client, &self.mesh, &self.proxy, false, false)?
        } else {
            Dump::of_proxy(client, &self.mesh, &self.proxy, self.part == Part::Endpoints)?
        };
        let names = ObjectNames::of_proxy(client, &self.mesh, &self.proxy);
        let rendered = match self.part {
            Part::Listeners => self.render(rows::listeners(&dump, &names), listener_columns()),
            Part::Routes => {
                let mut routes = rows::routes(&dump, &names);
                routes.retain(|row| {
                    let own = [&row.of.virtual_host, &row.of.route];
                    self.wants(row) || own.into_iter().flatten().any(|name| name.contains(&self.name))
                });
                self.shown(&routes, route_columns())
            }
            Part::Clusters => self.render(rows::clusters(&dump, &names), cluster_columns()),
            Part::Endpoints => self.render(rows::endpoints(&dump, &names), endpoint_columns()),
            Part::Secrets => self.render(rows::secrets(&dump, &names), secret_columns()),
        };
        Ok(terminal::data(&rendered)?)
    }

    fn render<R: Serialize>(&self, mut rows: Vec<Row<R>>, columns: Columns<R>) -> String {
        rows.retain(|row| self.wants(row));
        self.shown(&rows, columns)
    }

    fn shown<R: Serialize>(&self, rows: &[Row<R>], columns: Columns<R>) -> String {
        let all = || json!({ "total": rows.len(), "items": rows });
        match self.output.format {
            OutputFormat::Json => output::json(&all()),
            OutputFormat::Yaml => output::yaml(&all()),
            OutputFormat::Name => {
                let name = |row: &Row<R>| format!("{}/{}\n", self.part.noun(), line(&row.name));
                let mut names: Vec<String> = rows.iter().map(name).collect();
                names.dedup();
                names.concat()
            }
            format => {
                let (titles, cells) = cell::grid(&columns.around(format == OutputFormat::Wide), rows);
                output::table(&titles, cells)
            }
        }
    }

    fn wants<R>(&self, row: &Row<R>) -> bool {
        row.name.contains(&self.name) || row.kri.as_ref().is_some_and(|kri| kri.contains(&self.name))
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

/// Columns of a part: those that are always there, and those for which there must be room.
struct Columns<R> {
    always: Vec<Column<Row<R>>>,
    wide: Vec<Column<Row<R>>>,
}

impl<R> Columns<R> {
    /// With the columns that every part has.
    fn around(self, wide: bool) -> Vec<Column<Row<R>>> {
        let mut columns: Vec<Column<Row<R>>> =
            vec![("NAME", |row| line(&row.name)), ("KIND", |row| row.kind.to_owned())];
        columns.extend(self.always);
        if wide {
            columns.extend(self.wide);
        }
        columns.push(("KRI", |row| told(row.kri.as_ref())));
        columns
    }
}

fn listener_columns() -> Columns<Listener> {
    Columns {
        always: vec![
            ("ADDRESS", |row| row.of.address.cell()),
            ("PROTOCOL", |row| row.of.protocols.join(",")),
            ("DIRECTION", |row| told(row.of.direction.as_ref())),
            ("TLS", |row| yes(row.of.tls)),
            ("STATE", |row| row.of.state.to_owned()),
        ],
        wide: vec![("ERROR", |row| told(row.of.error.as_ref()))],
    }
}

fn route_columns() -> Columns<Route> {
    Columns {
        always: vec![
            ("VIRTUAL HOST", |row| told(row.of.virtual_host.as_ref())),
            ("MATCH", |row| line(&row.of.r#match)),
            ("DESTINATION", |row| list(&row.of.destinations, |to| line(to))),
        ],
        wide: vec![
            ("ROUTE", |row| told(row.of.route.as_ref())),
            ("DOMAINS", |row| list(&row.of.domains, |domain| line(domain))),
            ("STATE", |row| row.of.state.to_owned()),
        ],
    }
}

fn cluster_columns() -> Columns<Cluster> {
    Columns {
        always: vec![
            ("TYPE", |row| line(&row.of.r#type)),
            ("ADDRESS", |row| list(&row.of.endpoints, EnvoyAddress::cell)),
            ("PROTOCOL", |row| row.of.protocol.to_owned()),
            ("TLS", |row| yes(row.of.tls)),
            ("STATE", |row| row.of.state.to_owned()),
        ],
        wide: vec![("ERROR", |row| told(row.of.error.as_ref()))],
    }
}

fn endpoint_columns() -> Columns<Endpoint> {
    Columns {
        always: vec![
            ("ADDRESS", |row| row.of.address.cell()),
            ("HEALTH", |row| line(&row.of.health)),
            ("WEIGHT", |row| row.of.weight.to_string()),
            ("ZONE", |row| told(row.of.zone.as_ref())),
        ],
        wide: vec![("PRIORITY", |row| row.of.priority.to_string())],
    }
}

fn secret_columns() -> Columns<Secret> {
    Columns {
        always: vec![
            ("TYPE", |row| row.of.r#type.unwrap_or_default().to_owned()),
            ("STATE", |row| row.of.state.to_owned()),
            ("SUBJECT", |row| list(&row.of.certificates, subject)),
            ("ISSUER", |row| list(&row.of.certificates, |of| line(&of.issuer))),
            // Of the first certificate to end.
            ("EXPIRES", |row| {
                let ends = row.of.certificates.iter().map(|certificate| certificate.not_after).min();
                ends.map(|end| end.to_string()).unwrap_or_default()
            }),
            ("LAST UPDATED AGO", |row| row.of.last_updated.as_deref().map(cell::since).unwrap_or_default()),
        ],
        wide: vec![("VALID FROM", |row| {
            row.of
                .certificates
                .first()
                .map(|certificate| certificate.not_before.to_string())
                .unwrap_or_default()
        })],
    }
}

/// Subject of a certificate: its alternative names, because certificates of proxies have no other.
fn subject(certificate: &Certificate) -> String {
    let names = list(&certificate.subject_alternative_names, |name| line(name));
    if names.is_empty() { line(&certificate.subject) } else { names }
}

fn told(text: Option<&String>) -> String {
    text.map(|text| line(text)).unwrap_or_default()
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}
