//! `inspect policy TYPE NAME` and, for every type of policy, `inspect meshtimeout NAME`: which proxies a
//! policy applies to.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use contract::resource::ShownResource;
use resources::{Kind, NoStatus, labels};

use super::show;
use crate::{
    cell::{Column, line, list},
    client::ApiClient,
    failure::{Failure, Result},
    output::Output,
    types::{DEFAULT_MESH, Type},
};

/// Show which proxies a policy applies to
///
/// Every type of policy is also a command of its own: `kumactl inspect meshtimeout NAME`.
#[derive(Debug, Args)]
pub struct InspectPolicy {
    /// Type of the policy, such as MeshTimeout or mtp
    #[arg(value_name = "TYPE")]
    kind: String,
    #[command(flatten)]
    of: PolicyName,
}

/// What remains to be said once the type is known.
#[derive(Debug, Args)]
struct PolicyName {
    /// Name of the policy
    name: String,
    /// Mesh of the policy
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    #[command(flatten)]
    output: Output,
}

impl InspectPolicy {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let kind = Type::resolve(&self.kind, client)?;
        if kind.kind.is_some_and(|kind| !is_policy(kind)) {
            return Err(Failure::invalid(format!("{} is not a policy with a targetRef", kind.name)));
        }
        let item = kind.item(&self.of.mesh, &self.of.name);
        if client.get(&item)?.is_missing() {
            return Err(Failure::failed(format!(
                "there is no {}",
                kind.describe(&self.of.mesh, &self.of.name)
            )));
        }
        let path = format!("{item}/_resources/dataplanes");
        show(client, &path, "", "dataplane", &self.of.output, columns)
    }

    /// Reads `inspect meshtimeout NAME`; nothing if it is another command.
    pub fn from_short(matches: &ArgMatches) -> Option<std::result::Result<InspectPolicy, clap::Error>> {
        let (command, matches) = matches.subcommand()?;
        policies().find(|kind| command_of(*kind) == command)?;
        Some(PolicyName::from_arg_matches(matches).map(|of| InspectPolicy { kind: command.to_owned(), of }))
    }

    /// Adds a command for every type of policy. Help has them all in `inspect policy`.
    pub fn add_short(command: Command) -> Command {
        policies().fold(command, |command, kind| {
            let about = format!("Show which proxies a {} applies to", kind.name());
            let one = PolicyName::augment_args(Command::new(command_of(kind))).about(about);
            command.subcommand(one.hide(true))
        })
    }

    pub fn is_short(name: &str) -> bool {
        policies().any(|kind| command_of(kind) == name)
    }
}

fn is_policy(kind: Kind) -> bool {
    kind.descriptor().policy.is_some_and(|policy| policy.top.is_some())
}

fn policies() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| is_policy(*kind))
}

fn command_of(kind: Kind) -> String {
    kind.name().to_lowercase()
}

/// A proxy, of which only the metadata is shown.
type Proxy = ShownResource<NoStatus>;

fn columns(wide: bool) -> Vec<Column<Proxy>> {
    let mut columns: Vec<Column<Proxy>> = vec![
        ("MESH", |proxy| line(&proxy.metadata.mesh)),
        ("NAME", |proxy| line(&proxy.metadata.name)),
        ("ZONE", |proxy| line(proxy.metadata.label(labels::ZONE))),
        ("WORKLOAD", |proxy| line(proxy.metadata.label(labels::WORKLOAD))),
    ];
    if wide {
        columns.push(("LABELS", |proxy| {
            list(&proxy.metadata.labels, |(key, value)| format!("{key}={}", line(value)))
        }));
    }
    columns
}
