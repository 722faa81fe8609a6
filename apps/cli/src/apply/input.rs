//! The flags of every command that reads resources from files.

use clap::Args;
use resources::Key;

use super::{
    count,
    plan::{self, ApplyPlan, PlannedResource},
    sources,
};
use crate::{
    cli::Global,
    control_planes::pair,
    failure::{Failure, Result},
    terminal,
};

#[derive(Debug, Args)]
pub struct Input {
    /// File, directory, URL, or - for stdin; repeatable
    #[arg(short, long = "file", value_name = "SOURCE")]
    files: Vec<String>,
    /// Read subdirectories, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Value for {{ KEY }} in the input; repeatable
    #[arg(short = 'v', long = "var", value_name = "KEY=VALUE", value_parser = pair)]
    vars: Vec<(String, String)>,
    /// Refuse fields that a kind does not have, instead of a warning
    #[arg(long)]
    strict: bool,
    /// Leave out resources of unknown types and those that control planes write themselves, and list them
    #[arg(long)]
    skip_unknown: bool,
}

impl Input {
    /// True if a source is named.
    pub fn is_given(&self) -> bool {
        !self.files.is_empty()
    }

    /// Keys of the resources in the input; nothing else in it is looked at.
    pub fn keys(&self, global: &Global) -> Result<Vec<Key>> {
        if self.strict {
            let why = "--strict is about fields, and nothing but types and names is read here; leave it out";
            return Err(Failure::invalid(why));
        }
        let texts = sources::read(&self.files, self.recursive, global.api_timeout)?;
        let keys = plan::keys(&texts, &self.vars.iter().cloned().collect(), self.skip_unknown)?;
        if keys.is_empty() {
            return Err(sources::nothing(&self.files));
        }
        Ok(keys)
    }

    /// Reads and checks everything.
    pub fn read(&self, global: &Global) -> Result<Vec<PlannedResource>> {
        self.plan(global).map(|plan| plan.planned)
    }

    /// The same, with what was skipped.
    pub fn plan(&self, global: &Global) -> Result<ApplyPlan> {
        let texts = sources::read(&self.files, self.recursive, global.api_timeout)?;
        let vars = self.vars.iter().cloned().collect();
        let plan = plan::make(texts, &vars, self.skip_unknown)?;
        let ApplyPlan { planned, skipped } = &plan;
        if !skipped.is_empty() {
            terminal::warn(&format!("{} skipped:\n* {}", count(skipped.len()), skipped.join("\n* ")));
        }
        if planned.is_empty() && skipped.is_empty() {
            return Err(sources::nothing(&self.files));
        }
        if self.strict {
            plan::check_fields(planned)?;
        }
        Ok(plan)
    }
}
