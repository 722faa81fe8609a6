//! `version`: of this client and of the control plane.

use clap::Args;
use serde_json::{Value, json};

use crate::{cell, cli::Global, config::ClientSettings, failure::Result, output::PlainOutput, terminal};

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
        let client = ::version::VERSION;
        let mut shown = json!({
            "client": {
                "product": "kuma-rs", "version": client, "commit": ::version::COMMIT, "compatibleWith": SPEAKS,
                "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
            },
        });
        if let Ok(server) = &server {
            shown["server"] = server.clone();
        }
        self.output.show(&shown, || if self.detailed { detailed(&shown) } else { brief(&shown) })
    }
}

fn server(global: &Global) -> Result<Value> {
    ClientSettings::load(global)?.client()?.get("/")?.json("asking the control plane for its version")
}

fn brief(shown: &Value) -> String {
    let line = |side: &str, label: &str| {
        let of = shown.get(side)?;
        let text = |field: &str| of.get(field).filter(|value| value.is_string()).map(cell::text);
        let product = text("product")?;
        let version = text("version")?;
        // A control plane of ours says which Kuma it speaks where clients of Kuma look for it.
        match (text("implementation"), text("implementationVersion")) {
            (Some(own), Some(own_version)) => {
                Some(format!("{label}: {own} {own_version}, speaks {product} {version}\n"))
            }
            _ => Some(format!("{label}: {product} {version}\n")),
        }
    };
    [line("client", "Client"), line("server", "Server")].into_iter().flatten().collect()
}

fn detailed(shown: &Value) -> String {
    let mut text = String::new();
    for (side, label) in [("client", "Client"), ("server", "Server")] {
        let Some(fields) = shown.get(side).and_then(Value::as_object) else { continue };
        text.push_str(&format!("{label}\n"));
        for (field, value) in fields {
            let value = cell::text(value);
            let field = terminal::one_line(field);
            text.push_str(&format!("  {field}: {}\n", if value.is_empty() { "-" } else { &value }));
        }
    }
    text
}
