//! `delete TYPE NAME`.

use clap::Args;

use crate::{
    client::Client,
    failure::{Failure, Result},
    terminal,
    types::{DEFAULT_MESH, Type},
};

/// Delete a resource
#[derive(Debug, Args)]
pub struct Delete {
    /// Type of the resource, such as mesh, dataplanes, mtp or virtual-outbound
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Name of the resource
    name: String,
    /// Mesh of the resource
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
}

impl Delete {
    pub fn run(&self, client: &Client) -> Result<()> {
        let kind = Type::resolve(&self.kind, client)?;
        let what = kind.describe(&self.mesh, &self.name);
        let answer = client.delete(&kind.item(&self.mesh, &self.name))?;
        if answer.is_missing() {
            return Err(Failure::failed(format!("there is no {what}")));
        }
        answer.accepted(&format!("could not delete {what}"))?;
        terminal::talk(&format!("deleted {what}"));
        Ok(())
    }
}
