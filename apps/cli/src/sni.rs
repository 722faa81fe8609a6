//! `sni encode` and `sni decode`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use resources::naming::{
    Kri,
    sni::{self, Decoded},
};
use serde_json::{Value, json};

use crate::{
    control_planes::pair,
    failure::{Failure, Result},
    kri,
    output::PlainOutput,
    terminal,
};

#[derive(Debug, Subcommand)]
pub enum Command {
    Encode(Encode),
    Decode(Decode),
}

/// Make the server name of a destination's port
///
/// From an identifier (sni.msvc.default.backend.http), from an identifier in the hashed form of older
/// proxies, or from the tags of a service (backend{version=1}).
#[derive(Debug, Args)]
pub struct Encode {
    /// Identifier of the destination, with the port as its section
    #[arg(value_name = "KRI", required_unless_present = "tag", conflicts_with = "tag")]
    kri: Option<String>,
    /// Make the hashed form
    #[arg(long, conflicts_with = "tag")]
    hashed: bool,
    /// Port of the hashed form, if the section of the identifier is a name
    #[arg(long, requires = "hashed")]
    port: Option<u16>,
    /// Narrow the hashed form to endpoints with this tag
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, requires = "hashed")]
    subset: Vec<(String, String)>,
    /// Tag of the endpoints; kuma.io/service names the service
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    tag: Vec<(String, String)>,
}

/// Show what a server name says
#[derive(Debug, Args)]
pub struct Decode {
    /// Server name of any generation
    sni: String,
    #[command(flatten)]
    output: PlainOutput,
}

impl Command {
    pub fn run(&self) -> Result<()> {
        match self {
            Command::Encode(encode) => Ok(terminal::data(&format!("{}\n", encode.sni()?))?),
            Command::Decode(decode) => {
                let value = decoded(&decode.sni)?;
                decode.output.show(&value, || kri::fields(&value))
            }
        }
    }
}

impl Encode {
    fn sni(&self) -> Result<String> {
        let Some(text) = &self.kri else {
            let tags: BTreeMap<String, String> = self.tag.iter().cloned().collect();
            if !tags.contains_key(resources::labels::SERVICE) {
                return Err(Failure::invalid("one of the tags must be kuma.io/service"));
            }
            return Ok(sni::from_tags(&tags));
        };
        let kri: Kri = text.parse().map_err(Failure::invalid)?;
        if !self.hashed {
            return sni::from_kri(&kri).map_err(Failure::invalid);
        }
        let kind = kri.kind().ok_or_else(|| {
            Failure::invalid(format!("type {} cannot be a destination of traffic", kri.type_name()))
        })?;
        let port = match self.port {
            Some(port) => port,
            None => kri.section.parse::<u16>().map_err(|_| {
                Failure::invalid(format!(
                    "the hashed form needs a port number; section {:?} is none, pass --port",
                    kri.section
                ))
            })?,
        };
        let name = match kri.namespace.as_str() {
            "" => kri.name.clone(),
            namespace => format!("{}.{namespace}", kri.name),
        };
        let subset = self.subset.iter().cloned().collect();
        sni::hashed(&name, &kri.mesh, kind, u32::from(port), &subset).map_err(Failure::invalid)
    }
}

fn decoded(text: &str) -> Result<Value> {
    match sni::decode(text) {
        Decoded::Kri(kri) => {
            let mut value = json!({ "form": "kri" });
            if let (Value::Object(out), Value::Object(fields)) = (&mut value, kri::to_json(&kri)) {
                out.extend(fields);
            }
            Ok(value)
        }
        Decoded::Hashed(hashed) => Ok(json!({
            "form": "hashed", "type": hashed.kind.name(), "mesh": hashed.mesh, "name": hashed.name,
            "port": hashed.port, "hash": format!("{:016x}", hashed.hash), "hashMatches": hashed.hash_matches,
            "trimmed": hashed.name_trimmed || hashed.mesh_trimmed,
        })),
        Decoded::Tags(tags) => Ok(json!({ "form": "tags", "tags": tags })),
        Decoded::Invalid(reason) => {
            Err(Failure::invalid(format!("{text:?} is not a server name of the mesh: {reason}")))
        }
    }
}
