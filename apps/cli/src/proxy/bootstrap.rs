//! `proxy bootstrap NAME`: what a proxy was started with.

use clap::Args;

use super::dump::{Dump, at, each, is_type};
use crate::{
    client::ApiClient,
    failure::{Failure, Result},
    inspect::dataplane::attempted,
    output, terminal,
    types::DEFAULT_MESH,
};

const EXAMPLES: &str = "\
Examples:
  kumactl proxy bootstrap web-1
  kumactl proxy bootstrap web-1 -m shop -o json";

/// Show what a proxy was started with, without secrets
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Bootstrap {
    /// Name of the proxy
    #[arg(value_name = "NAME")]
    proxy: String,
    /// Mesh of the proxy
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "yaml", value_parser = ["yaml", "json"])]
    format: String,
}

impl Bootstrap {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let dump = Dump::of_proxy(client, &self.mesh, &self.proxy, false)?;
        let mut sections = each(dump.configs());
        let section = sections.find(|section| is_type(section, "BootstrapConfigDump"));
        let bootstrap = section.map(|section| at(section, "bootstrap")).filter(|found| !found.is_null());
        let bootstrap = bootstrap.ok_or_else(|| {
            Failure::failed(format!("{}: its dump has no bootstrap", attempted(&self.mesh, &self.proxy)))
        })?;
        let text = if self.format == "json" { output::json(bootstrap) } else { output::yaml(bootstrap) };
        Ok(terminal::data(&text)?)
    }
}
