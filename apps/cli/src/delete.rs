//! `delete`: resources by name, or those of files.

use clap::Args;
use resources::Kind;

use crate::{
    apply::input::Input,
    cli::Global,
    client::ApiClient,
    config::ClientSettings,
    failure::{Failure, Result},
    target::{NamedResource, Targets},
    terminal,
    types::DEFAULT_MESH,
};

const EXAMPLES: &str = "\
Examples:
  kumactl delete meshtimeout slow -m shop
  kumactl delete meshtimeout/slow meshretry/often
  kumactl delete -f examples/permissions --ignore-not-found";

/// Begin of the control plane's error about a mesh that does not exist.
const NO_MESH: &str = "Failed to retrieve Mesh";

/// Delete resources
///
/// Resources are named as TYPE NAME… or TYPE/NAME…, or read from files, of which only type, mesh and name matter.
/// Meshes are deleted last. Deleting goes on after a failure; all failures are reported at the end.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Delete {
    /// Type of the resources, such as mesh, dataplanes, mtp or virtual-outbound; or TYPE/NAME
    #[arg(value_name = "TYPE", required_unless_present = "files", conflicts_with = "files")]
    kind: Option<String>,
    /// Names of the resources
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    input: Input,
    /// Mesh of the resources; resources in files name their own mesh
    #[arg(short, long, default_value = DEFAULT_MESH, conflicts_with = "files")]
    mesh: String,
    /// Succeed for resources that do not exist
    #[arg(long)]
    ignore_not_found: bool,
}

/// Result of deleting something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    Now,
    /// There was none, for this reason.
    Missing(String),
}

impl Delete {
    pub fn run(&self, global: &Global) -> Result<()> {
        let (client, targets) = match &self.kind {
            Some(kind) => {
                let client = ClientSettings::load(global)?.client()?;
                let targets = self.named(kind, &client)?;
                (client, targets)
            }
            None => {
                let targets = self.in_files(global)?;
                (ClientSettings::load(global)?.client()?, targets)
            }
        };
        let mut failures = Vec::new();
        for target in &targets {
            match delete(target, &client) {
                Ok(Deleted::Now) => terminal::talk(&format!("deleted {}", target.describe())),
                Ok(Deleted::Missing(why)) if self.ignore_not_found => {
                    terminal::talk(&format!("{why}; ignored"));
                }
                Ok(Deleted::Missing(why)) => failures.push(why),
                Err(failure) => failures.push(failure.to_string()),
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(Failure::failed(failures.join("\n"))) }
    }

    fn named(&self, kind: &str, client: &ApiClient) -> Result<Vec<NamedResource>> {
        match Targets::read(kind, &self.names, &self.mesh, client)? {
            Targets::Named(targets) => Ok(targets),
            Targets::All(kind) => {
                Err(Failure::invalid(format!("the name of a {} is missing; nothing was deleted", kind.name)))
            }
        }
    }

    fn in_files(&self, global: &Global) -> Result<Vec<NamedResource>> {
        let mut keys = self.input.keys(global)?;
        // What is in a mesh would be gone with it.
        keys.sort_by_key(|key| key.kind == Kind::Mesh);
        Ok(keys.iter().map(NamedResource::from).collect())
    }
}

/// Deletes one resource.
pub fn delete(target: &NamedResource, client: &ApiClient) -> Result<Deleted> {
    let answer = client.delete(&target.path())?;
    if answer.is_missing() {
        return Ok(Deleted::Missing(format!("there is no {}", target.describe())));
    }
    let refused = format!("could not delete {}", target.describe());
    // A resource whose mesh is gone is gone, too.
    if answer.status == 404 && answer.refusal().starts_with(NO_MESH) {
        return Ok(Deleted::Missing(format!("{refused}: {}", answer.refusal())));
    }
    answer.accepted(&refused)?;
    Ok(Deleted::Now)
}
