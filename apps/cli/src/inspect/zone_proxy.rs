//! `inspect zone-ingress NAME` and `inspect zone-egress NAME`: what one zone proxy says about itself.

use clap::{Args, ValueEnum};
use resources::Kind;

use crate::{
    client::{ApiClient, ApiResponse},
    failure::{Failure, Result},
    output, terminal,
    types::Type,
};

/// What to show of which zone proxy.
#[derive(Debug, Args)]
pub struct InspectZoneProxy {
    /// Name of the zone proxy
    name: String,
    /// What to show
    #[arg(long = "type", value_name = "TYPE", default_value = "config-dump")]
    view: View,
    /// Which of Envoy's own forms to show statistics and clusters in
    #[arg(long)]
    format: Option<Format>,
    /// Endpoints too, with --type config-dump
    #[arg(long)]
    include_eds: bool,
    /// Statistics that never changed too, with --type stats
    #[arg(long)]
    include_unused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum View {
    /// What the proxy runs
    ConfigDump,
    /// The proxy's statistics
    Stats,
    /// The proxy's clusters and their endpoints
    Clusters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Envoy's text
    Text,
    /// Envoy's JSON
    Json,
}

impl InspectZoneProxy {
    pub fn run(&self, kind: Kind, client: &ApiClient) -> Result<()> {
        self.check()?;
        let kind = Type::of_kind(kind);
        let attempted = format!("could not inspect {}", kind.describe("", &self.name));
        let answer = self.ask(&kind, client)?;
        let shown = match self.view {
            View::ConfigDump => output::json(&answer.json(&attempted)?),
            View::Stats | View::Clusters => answer.accepted(&attempted)?.body,
        };
        Ok(terminal::data(&shown)?)
    }

    /// A flag that would change nothing is a misunderstanding.
    fn check(&self) -> Result<()> {
        if self.format.is_some() && self.view == View::ConfigDump {
            return Err(Failure::invalid("--format is for --type stats and clusters"));
        }
        if self.include_eds && self.view != View::ConfigDump {
            return Err(Failure::invalid("--include-eds is for --type config-dump"));
        }
        if self.include_unused && self.view != View::Stats {
            return Err(Failure::invalid("--include-unused is for --type stats"));
        }
        Ok(())
    }

    fn ask(&self, kind: &Type, client: &ApiClient) -> Result<ApiResponse> {
        let view = match self.view {
            View::ConfigDump => "xds",
            View::Stats => "stats",
            View::Clusters => "clusters",
        };
        let json = self.format == Some(Format::Json);
        let options = [
            (self.include_eds, "include_eds=true"),
            (json, "format=json"),
            (self.include_unused, "usedonly=false"),
        ];
        let query: Vec<&str> = options.into_iter().filter_map(|(on, option)| on.then_some(option)).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let answer = client.get(&format!("{}/{view}{query}", kind.item("", &self.name)))?;
        if answer.is_missing() {
            return Err(Failure::failed(format!("there is no {}", kind.describe("", &self.name))));
        }
        Ok(answer)
    }
}
