//! `get TYPE [NAME…]`: one resource, several, a list, or a list that is watched for changes.

mod columns;
mod watch;

use clap::Args;
use serde_json::Value;

use crate::{
    client::ApiClient,
    failure::{Failure, Result},
    output::{self, Output, OutputFormat},
    pages::{self, ListedItems},
    selector::{self, Selector},
    target::{NamedResource, Targets},
    terminal,
    types::{self, DEFAULT_MESH, Type},
};

const EXAMPLES: &str = "\
Examples:
  kumactl get meshes
  kumactl get dataplanes -m shop -l 'team in (web,api),!canary' -o wide
  kumactl get meshtimeout/slow -o yaml
  kumactl get meshservices -A -w";

/// Show resources
///
/// Resources are named as TYPE NAME… or TYPE/NAME…, as `-o name` prints them, or with their mesh as TYPE/MESH/NAME…, as
/// `-A -o name` prints them; a type alone means all of it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", types::listing()))]
pub struct Get {
    /// Type of the resources, such as meshes, dataplane, mtp or virtual-outbounds; --help lists all. Or TYPE/NAME
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Names of resources; all of the type without them
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    output: Output,
    /// Mesh of the resources
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    #[arg(short = 'l', long = "selector", value_name = "SELECTOR", help = selector::HELP, conflicts_with = "names")]
    selectors: Vec<Selector>,
    /// Resources of all meshes
    #[arg(short = 'A', long, conflicts_with_all = ["names", "mesh"])]
    all_meshes: bool,
    /// Keep running and show what changes, until interrupted
    #[arg(short, long, conflicts_with_all = ["size", "offset"])]
    watch: bool,
    /// Interval of looking for changes
    #[arg(long, value_name = "DURATION", default_value = "1s", requires = "watch", value_parser = crate::client::parse_timeout)]
    interval: std::time::Duration,
    /// Show at most this many [default: all]
    #[arg(long, conflicts_with = "names", value_parser = clap::value_parser!(u32).range(1..=1000))]
    size: Option<u32>,
    /// Leave out this many at the beginning
    #[arg(long, conflicts_with = "names")]
    offset: Option<u32>,
}

impl Get {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let targets = match Targets::read(&self.kind, &self.names, &self.mesh, client)? {
            Targets::All(kind) if self.watch => return watch::run(self, &kind, None, client),
            Targets::All(kind) => return self.list(&kind, client),
            Targets::Named(targets) => targets,
        };
        if self.all_meshes || !self.selectors.is_empty() || self.size.is_some() || self.offset.is_some() {
            return Err(Failure::invalid(
                "-A, -l, --size and --offset are for lists, not for named resources",
            ));
        }
        match targets.as_slice() {
            [one] if self.watch => watch::run(self, &one.kind, Some(&one.name), client),
            _ if self.watch => {
                Err(Failure::invalid("one resource or a list can be watched, not several by name"))
            }
            [one] => {
                let item = read(one, client)?.ok_or_else(|| missing(&[one]))?;
                let text = match self.output.format {
                    OutputFormat::Json => output::json(&item),
                    OutputFormat::Yaml => output::yaml(&item),
                    format => columns::render(&one.kind, std::slice::from_ref(&item), format),
                };
                Ok(terminal::data(&text)?)
            }
            several => self.several(several, client),
        }
    }

    /// Resources by name, perhaps of several types.
    fn several(&self, targets: &[NamedResource], client: &ApiClient) -> Result<()> {
        let mut found: Vec<(&Type, Vec<Value>)> = Vec::new();
        let mut absent: Vec<&NamedResource> = Vec::new();
        for target in targets {
            match read(target, client)? {
                None => absent.push(target),
                Some(item) => match found.iter_mut().find(|(kind, _)| **kind == target.kind) {
                    Some((_, items)) => items.push(item),
                    None => found.push((&target.kind, vec![item])),
                },
            }
        }
        if !absent.is_empty() {
            return Err(missing(&absent));
        }
        let list = || {
            let items: Vec<Value> = found.iter().flat_map(|(_, items)| items.iter().cloned()).collect();
            ListedItems::complete(items).to_json()
        };
        let text = match self.output.format {
            OutputFormat::Json => output::json(&list()),
            OutputFormat::Yaml => output::yaml(&list()),
            format => {
                let tables: Vec<String> =
                    found.iter().map(|(kind, items)| columns::render(kind, items, format)).collect();
                tables.join(if format == OutputFormat::Name { "" } else { "\n" })
            }
        };
        Ok(terminal::data(&text)?)
    }

    fn list(&self, kind: &Type, client: &ApiClient) -> Result<()> {
        let found = self.look(kind, None, client)?;
        let text = match self.output.format {
            OutputFormat::Json => output::json(&found.to_json()),
            OutputFormat::Yaml => output::yaml(&found.to_json()),
            OutputFormat::Name => columns::names(kind, &found.items, self.all_meshes),
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

    /// One resource if it is named, one page if the user asked for one, else everything.
    fn look(&self, kind: &Type, name: Option<&str>, client: &ApiClient) -> Result<ListedItems> {
        if let Some(name) = name {
            let mesh = self.mesh.clone();
            let name = name.to_owned();
            let item = read(&NamedResource { kind: kind.clone(), mesh, name }, client)?;
            return Ok(ListedItems::complete(item.into_iter().collect()));
        }
        let collection = kind.collection((!self.all_meshes).then_some(self.mesh.as_str()));
        let selector = Selector::all(&self.selectors);
        let offset = u64::from(self.offset.unwrap_or(0));
        if selector.is_served() {
            return pages::read(client, &collection, &selector.query(), self.size, offset);
        }
        // The control plane's pages contain what is left out here, so pages are made here, too.
        let mut found = pages::all(client, &collection, &selector.query())?;
        found.items.retain(|item| selector.matches(item));
        Ok(found.cut(self.size, offset))
    }
}

fn read(target: &NamedResource, client: &ApiClient) -> Result<Option<Value>> {
    let answer = client.get(&target.path())?;
    if answer.is_missing() {
        return Ok(None);
    }
    answer.json(&format!("could not read {}", target.describe())).map(Some)
}

fn missing(targets: &[&NamedResource]) -> Failure {
    let all: Vec<String> =
        targets.iter().map(|target| format!("there is no {}", target.describe())).collect();
    Failure::failed(all.join("\n"))
}
