//! `diff`: what applying the input would change, and for which proxies.

use clap::Args;

use crate::{
    apply::input::Input,
    cli::Global,
    client::ApiClient,
    config::ClientSettings,
    failure::{CommandResult, Failure, Result},
    output::TableFormat,
    target::NamedResource,
    terminal,
    types::{DEFAULT_MESH, Type},
    what_if::{self, WhatIfQuestion},
};

const MEANING: &str = "\
Exit codes:
  0  nothing would change
  1  something would
  2  the difference could not be determined: the input is not valid, or the control plane refuses it or does not answer";

/// Show what applying resources would change, without changing it
///
/// The control plane computes which proxies would get another configuration and how it would differ, which
/// calls would be allowed or denied, and which policies would have no effect. Reads what apply reads.
#[derive(Debug, Args)]
#[command(after_help = MEANING)]
pub struct Diff {
    #[command(flatten)]
    input: Input,
    /// Also show the effect of deleting this resource; repeatable
    #[arg(long, value_name = "TYPE/NAME", value_parser = named)]
    delete: Vec<(String, String)>,
    /// Mesh of what would be deleted
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Show the configuration of this proxy as a difference; * for several; repeatable
    #[arg(long, value_name = "NAME")]
    proxy: Vec<String>,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    format: TableFormat,
}

impl Diff {
    /// As for other programs of this name, 1 is an answer, and whatever goes wrong is more than that.
    pub fn run(&self, global: &Global) -> Result<CommandResult> {
        self.tell(global).map_err(|failure| match failure {
            Failure::Failed(error) | Failure::Invalid(error) => Failure::Invalid(error),
        })
    }

    fn tell(&self, global: &Global) -> Result<CommandResult> {
        let planned = if self.input.is_given() || self.delete.is_empty() {
            self.input.read(global)?
        } else {
            Vec::new()
        };
        let client = ClientSettings::load(global)?.client()?;
        let deletions = self.deletions(&client)?;
        let mesh = self.mesh.as_str();
        let proxies = self.proxy.as_slice();
        let answer =
            WhatIfQuestion { planned: &planned, deletions: &deletions, mesh, proxies }.ask(&client)?;
        what_if::warnings(&answer.read).iter().for_each(|warning| terminal::warn(warning));
        terminal::data(&self.format.render(&answer.sent, || what_if::table(&answer.read)))?;
        Ok(if what_if::differs(&answer.read) { CommandResult::Differs } else { CommandResult::Done })
    }

    fn deletions(&self, client: &ApiClient) -> Result<Vec<NamedResource>> {
        let resolved = |(kind, name): &(String, String)| {
            let mesh = self.mesh.clone();
            let name = name.clone();
            Ok(NamedResource { kind: Type::resolve(kind, client)?, mesh, name })
        };
        self.delete.iter().map(resolved).collect()
    }
}

/// `meshtimeout/slow`, as `get -o name` prints it.
fn named(text: &str) -> std::result::Result<(String, String), String> {
    let parts = text.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty());
    let (kind, name) = parts.ok_or_else(|| "expected TYPE/NAME, such as meshtimeout/slow".to_owned())?;
    Ok((kind.to_owned(), name.to_owned()))
}
