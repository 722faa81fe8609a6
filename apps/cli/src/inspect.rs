//! `inspect`: how proxies, meshes, services and zones are doing, what applies to one proxy and what it
//! says, and which proxies a policy applies to.

mod columns;
pub mod dataplane;
mod policy;
mod reachability;
mod zone_proxy;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use contract::resource::ShownResource;
use resources::Kind;
use serde::de::DeserializeOwned;

use crate::{
    cell::{self, Column, line},
    client::{ApiClient, query_value},
    control_planes::pair,
    failure::Result,
    output::{self, Output, OutputFormat},
    pages, terminal,
    types::{DEFAULT_MESH, Type},
};

#[derive(Debug, Subcommand)]
pub enum Inspect {
    Dataplanes(Dataplanes),
    Dataplane(dataplane::Dataplane),
    Meshes(Meshes),
    Services(Services),
    Reachability(reachability::Reachability),
    Zones(InspectZones),
    #[command(alias = "zoneingresses")]
    ZoneIngresses(ZoneIngresses),
    #[command(alias = "zoneegresses")]
    ZoneEgresses(ZoneEgresses),
    /// Show what one zone ingress runs
    #[command(alias = "zoneingress")]
    ZoneIngress(zone_proxy::InspectZoneProxy),
    /// Show what one zone egress runs
    #[command(alias = "zoneegress")]
    ZoneEgress(zone_proxy::InspectZoneProxy),
    Policy(policy::InspectPolicy),
}

/// The commands of `inspect`, among them one for every type of policy.
#[derive(Debug)]
pub struct WithPolicies(pub Inspect);

impl FromArgMatches for WithPolicies {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let command = match policy::InspectPolicy::from_short(matches) {
            Some(policy) => Inspect::Policy(policy?),
            None => Inspect::from_arg_matches(matches)?,
        };
        Ok(WithPolicies(command))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = WithPolicies::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for WithPolicies {
    fn augment_subcommands(command: Command) -> Command {
        policy::InspectPolicy::add_short(Inspect::augment_subcommands(command))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        WithPolicies::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        policy::InspectPolicy::is_short(name) || Inspect::has_subcommand(name)
    }
}

/// Show whether proxies are connected, what they were sent and what they run
#[derive(Debug, Args)]
pub struct Dataplanes {
    #[command(flatten)]
    scope: InMesh,
    /// Only proxies with this tag; repeatable, all must match on one inbound
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    tag: Vec<(String, String)>,
    /// Only gateways; --gateway=builtin for one kind of them, --gateway=false for all other proxies
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = ["true", "false", "builtin", "delegated"])]
    gateway: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// Show how many proxies, services and policies meshes have
#[derive(Debug, Args)]
pub struct Meshes {
    #[command(flatten)]
    output: Output,
}

/// Show the services named by kuma.io/service and how many of their proxies are online
///
/// In a mesh with meshServices.mode Exclusive these are its delegated gateways: every other service is a MeshService, which
/// `kumactl get meshservices` lists with its state.
#[derive(Debug, Args)]
pub struct Services {
    #[command(flatten)]
    scope: InMesh,
    #[command(flatten)]
    output: Output,
}

/// Show whether the control planes of zones are connected and what they were sent
#[derive(Debug, Args)]
pub struct InspectZones {
    #[command(flatten)]
    output: Output,
}

/// Show whether zone ingresses are connected and where other zones find them
#[derive(Debug, Args)]
pub struct ZoneIngresses {
    #[command(flatten)]
    output: Output,
}

/// Show whether zone egresses are connected and where they listen
#[derive(Debug, Args)]
pub struct ZoneEgresses {
    #[command(flatten)]
    output: Output,
}

/// Which meshes to look at.
#[derive(Debug, Args)]
pub struct InMesh {
    /// Mesh to look at
    #[arg(short, long, default_value = DEFAULT_MESH)]
    pub mesh: String,
    /// Look at all meshes
    #[arg(short = 'A', long, conflicts_with = "mesh")]
    pub all_meshes: bool,
}

impl InMesh {
    pub fn collection(&self, kind: Kind) -> String {
        Type::of_kind(kind).collection((!self.all_meshes).then_some(self.mesh.as_str()))
    }
}

impl Inspect {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        match self {
            Inspect::Dataplanes(dataplanes) => dataplanes.run(client),
            Inspect::Dataplane(dataplane) => dataplane.run(client),
            Inspect::Policy(policy) => policy.run(client),
            Inspect::Reachability(reachability) => reachability.run(client),
            Inspect::ZoneIngress(proxy) => proxy.run(Kind::ZoneIngress, client),
            Inspect::ZoneEgress(proxy) => proxy.run(Kind::ZoneEgress, client),
            Inspect::Meshes(Meshes { output }) => {
                let path = Type::of_kind(Kind::MeshInsight).collection(None);
                show(client, &path, "", "mesh", output, columns::meshes)
            }
            Inspect::Services(Services { scope, output }) => {
                let path = scope.collection(Kind::ServiceInsight);
                show(client, &path, "", "service", output, columns::services)
            }
            Inspect::Zones(InspectZones { output }) => {
                let path = format!("{}/_overview", Type::of_kind(Kind::Zone).collection(None));
                show(client, &path, "", "zone", output, columns::zones)
            }
            Inspect::ZoneIngresses(ZoneIngresses { output }) => {
                let path = format!("{}/_overview", Type::of_kind(Kind::ZoneIngress).collection(None));
                show(client, &path, "", "zone-ingress", output, columns::zone_ingresses)
            }
            Inspect::ZoneEgresses(ZoneEgresses { output }) => {
                let path = format!("{}/_overview", Type::of_kind(Kind::ZoneEgress).collection(None));
                show(client, &path, "", "zone-egress", output, columns::zone_egresses)
            }
        }
    }
}

impl Dataplanes {
    fn run(&self, client: &ApiClient) -> Result<()> {
        let path = format!("{}/_overview", self.scope.collection(Kind::Dataplane));
        let mut filters = String::new();
        for (key, value) in &self.tag {
            filters.push_str(&format!("&tag={}", query_value(&format!("{key}:{value}"))));
        }
        if let Some(gateway) = &self.gateway {
            filters.push_str(&format!("&gateway={gateway}"));
        }
        show(client, &path, &filters, "dataplane", &self.output, columns::dataplanes)
    }
}

/// Lists a collection in the form asked for. `columns` gets whether there is room for all.
fn show<S: DeserializeOwned + Default>(
    client: &ApiClient,
    path: &str,
    filters: &str,
    noun: &str,
    output: &Output,
    columns: fn(bool) -> Vec<Column<ShownResource<S>>>,
) -> Result<()> {
    let found = pages::all(client, path, filters)?;
    let rows = || found.items.iter().map(ShownResource::read).collect::<Vec<ShownResource<S>>>();
    let rendered = match output.format {
        OutputFormat::Json => output::json(&found.to_json()),
        OutputFormat::Yaml => output::yaml(&found.to_json()),
        OutputFormat::Name => {
            rows().iter().map(|row| format!("{noun}/{}\n", line(&row.metadata.name))).collect()
        }
        OutputFormat::Table | OutputFormat::Wide => {
            let (titles, rows) = cell::grid(&columns(output.format == OutputFormat::Wide), &rows());
            output::table(&titles, rows)
        }
    };
    Ok(terminal::data(&rendered)?)
}
