//! `get TYPE [NAME]`: one resource, a list, or a list that keeps telling what changes.

mod columns;
mod watch;

use clap::Args;
use serde_json::Value;

use crate::{
    client::{Client, query_value},
    control_planes::pair,
    failure::{Failure, Result},
    output::{self, Format, Output},
    pages::{self, Found},
    terminal,
    types::{DEFAULT_MESH, Type},
};

/// Show resources
#[derive(Debug, Args)]
pub struct Get {
    /// Type of the resources, such as meshes, dataplane, mtp or virtual-outbounds
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Name of one resource; all of the type without it
    name: Option<String>,
    #[command(flatten)]
    output: Output,
    /// Mesh of the resources
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Only resources with this label; repeatable, all must match
    #[arg(short = 'l', long = "selector", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair, conflicts_with = "name")]
    labels: Vec<(String, String)>,
    /// Resources of all meshes
    #[arg(short = 'A', long, conflicts_with_all = ["name", "mesh"])]
    all_meshes: bool,
    /// Keep running and show what changes, until interrupted
    #[arg(short, long, conflicts_with_all = ["size", "offset"])]
    watch: bool,
    /// How often to look for changes
    #[arg(long, value_name = "DURATION", default_value = "1s", requires = "watch", value_parser = crate::client::parse_timeout)]
    interval: std::time::Duration,
    /// Show at most this many [default: all]
    #[arg(long, conflicts_with = "name", value_parser = clap::value_parser!(u32).range(1..=1000))]
    size: Option<u32>,
    /// Leave out this many at the beginning
    #[arg(long, conflicts_with = "name")]
    offset: Option<u32>,
}

impl Get {
    pub fn run(&self, client: &Client) -> Result<()> {
        let kind = Type::resolve(&self.kind, client)?;
        if self.watch {
            return watch::run(self, &kind, client);
        }
        match &self.name {
            Some(name) => {
                let item = self.one(&kind, name, client)?.ok_or_else(|| {
                    Failure::failed(format!("there is no {}", kind.describe(&self.mesh, name)))
                })?;
                let text = match self.output.format {
                    Format::Json => output::json(&item),
                    Format::Yaml => output::yaml(&item),
                    format => columns::render(&kind, std::slice::from_ref(&item), format),
                };
                Ok(terminal::data(&text)?)
            }
            None => self.list(&kind, client),
        }
    }

    fn list(&self, kind: &Type, client: &Client) -> Result<()> {
        let found = self.look(kind, client)?;
        let text = match self.output.format {
            Format::Json => output::json(&found.to_json()),
            Format::Yaml => output::yaml(&found.to_json()),
            format => columns::render(kind, &found.items, format),
        };
        terminal::data(&text)?;
        if let Some(next) = found.next_offset {
            terminal::talk(&format!(
                "{} of {} shown; continue with --offset {next}",
                found.items.len(),
                found.total
            ));
        }
        Ok(())
    }

    fn one(&self, kind: &Type, name: &str, client: &Client) -> Result<Option<Value>> {
        let answer = client.get(&kind.item(&self.mesh, name))?;
        if answer.is_missing() {
            return Ok(None);
        }
        answer.json(&format!("could not read {}", kind.describe(&self.mesh, name))).map(Some)
    }

    /// One page if the user asked for one, else everything.
    fn look(&self, kind: &Type, client: &Client) -> Result<Found> {
        if let Some(name) = &self.name {
            let items: Vec<Value> = self.one(kind, name, client)?.into_iter().collect();
            let total = items.len() as u64;
            return Ok(Found { total, items, next_offset: None, revision: None, rest: Value::Null });
        }
        let mesh = (!self.all_meshes).then_some(self.mesh.as_str());
        let filters: String = self
            .labels
            .iter()
            .map(|(key, value)| {
                format!("&{}={}", query_value(&format!("filter[labels.{key}]")), query_value(value))
            })
            .collect();
        let offset = u64::from(self.offset.unwrap_or(0));
        pages::read(client, &kind.collection(mesh), &filters, self.size, offset)
    }
}
