//! `version`: of this client and of the control plane.

use clap::Args;
use contract::lenient::read_partly;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    cell::{self, line},
    cli::Global,
    config::ClientSettings,
    failure::Result,
    output::PlainOutput,
    terminal,
};

/// The version of Kuma whose API this client speaks.
pub const SPEAKS: &str = "2.14";

/// Show the version of this client and of the control plane
#[derive(Debug, Args)]
pub struct Version {
    /// Show everything known about both
    #[arg(short = 'a', long)]
    detailed: bool,
    #[command(flatten)]
    output: PlainOutput,
}

impl Version {
    pub fn run(&self, global: &Global) -> Result<()> {
        let server = server(global);
        if let Err(failure) = &server {
            terminal::warn(&format!("the version of the control plane is unknown: {failure}"));
        }
        let client = json!({
            "product": "kuma-rs", "version": ::version::VERSION, "commit": ::version::COMMIT, "compatibleWith": SPEAKS,
            "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
        });
        let versions = Versions { client, server: server.ok() };
        let shown = serde_json::to_value(&versions).unwrap_or_default();
        self.output.show(&shown, || if self.detailed { detailed(&versions) } else { brief(&versions) })
    }
}

/// Versions as each side says them.
#[derive(Debug, Serialize)]
struct Versions {
    client: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Value>,
}

impl Versions {
    /// Both sides with their labels.
    fn sides(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        [("Client", &self.client)].into_iter().chain(self.server.iter().map(|server| ("Server", server)))
    }
}

/// A product and its version; both are absent where no control plane answers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProductVersion {
    product: Option<String>,
    version: Option<String>,
    implementation: Option<String>,
    implementation_version: Option<String>,
}

fn server(global: &Global) -> Result<Value> {
    ClientSettings::load(global)?.client()?.get("/")?.json("asking the control plane for its version")
}

fn brief(versions: &Versions) -> String {
    let brief = |(label, side): (&str, &Value)| {
        let of: ProductVersion = read_partly(side);
        let product = line(&of.product?);
        let version = line(&of.version?);
        // A control plane of ours says which Kuma it speaks where clients of Kuma look for it.
        Some(match of.implementation.zip(of.implementation_version) {
            Some((own, own_version)) => {
                format!("{label}: {} {}, speaks {product} {version}\n", line(&own), line(&own_version))
            }
            None => format!("{label}: {product} {version}\n"),
        })
    };
    versions.sides().filter_map(brief).collect()
}

fn detailed(versions: &Versions) -> String {
    let mut text = String::new();
    for (label, side) in versions.sides() {
        let Some(fields) = side.as_object() else { continue };
        text.push_str(&format!("{label}\n"));
        for (field, value) in fields {
            let value = cell::text(value);
            let field = terminal::one_line(field);
            text.push_str(&format!("  {field}: {}\n", if value.is_empty() { "-" } else { &value }));
        }
    }
    text
}
