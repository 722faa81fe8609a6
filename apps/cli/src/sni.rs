//! `sni encode`, `sni decode` and `sni usage`.

mod usage;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use contract::sni::{KnownSni, SniDestination};
use resources::naming::{
    Kri,
    sni::{self, DecodedSni},
};
use serde_json::{Value, json};

use crate::{
    cell::{self, Column, line},
    cli::Global,
    client::Document,
    config::ClientSettings,
    control_planes::pair,
    document::{self, SentItems},
    failure::{Failure, Result},
    kri,
    output::{self, PlainOutput},
    terminal,
    types::DEFAULT_MESH,
};

#[derive(Debug, Subcommand)]
pub enum SniCommand {
    Encode(Encode),
    Decode(Decode),
    Usage(usage::Usage),
}

/// Print the server name (SNI) of a destination's port
///
/// Takes an identifier (sni.msvc.default.backend.http), an identifier with --hashed for the form of older
/// proxies, or the tags of a service (backend{version=1}).
#[derive(Debug, Args)]
pub struct Encode {
    /// Identifier of the destination, with the port as its section
    #[arg(value_name = "KRI", required_unless_present = "tag", conflicts_with = "tag")]
    kri: Option<String>,
    /// Print the hashed form
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

/// Show where a server name (SNI) leads to
///
/// Asks the control plane which ports of services it leads to. A name that the control plane does not know
/// is decoded as far as possible.
#[derive(Debug, Args)]
pub struct Decode {
    /// Server name of any generation
    sni: String,
    /// Mesh in which the name is looked up [default: the one in the name, else default]
    #[arg(short, long)]
    mesh: Option<String>,
    /// Do not ask the control plane
    #[arg(long, conflicts_with = "mesh")]
    offline: bool,
    #[command(flatten)]
    output: PlainOutput,
}

impl SniCommand {
    pub fn run(&self, global: &Global) -> Result<()> {
        match self {
            SniCommand::Encode(encode) => Ok(terminal::data(&format!("{}\n", encode.sni()?))?),
            SniCommand::Decode(decode) => decode.run(global),
            SniCommand::Usage(usage) => usage.run(global),
        }
    }
}

const COLUMNS: [Column<SniDestination>; 4] = [
    ("DESTINATION", |it| line(&it.kri)),
    ("PORT", |it| it.port.to_string()),
    ("DIALLED", |it| if it.dialled { "yes" } else { "no" }.to_owned()),
    ("LISTED", |it| if it.listed { "yes" } else { "no" }.to_owned()),
];

impl Decode {
    fn run(&self, global: &Global) -> Result<()> {
        let read = sni::decode(&self.sni);
        let mesh = self.mesh.clone().or_else(|| mesh_of(&read)).unwrap_or_else(|| DEFAULT_MESH.to_owned());
        let known = if self.offline { Ok(None) } else { self.look_up(global, &mesh) };
        match known {
            Ok(Some(known)) => {
                return self.output.show(&known.sent, || {
                    let (titles, rows) = cell::grid(&COLUMNS, &known.read.destinations);
                    output::table(&titles, rows)
                });
            }
            Ok(None) if self.offline => {}
            Ok(None) => terminal::warn(&format!(
                "nothing in mesh {mesh:?} accepts this server name; decoding its text"
            )),
            Err(failure) => terminal::warn(&format!(
                "cannot look up where this server name leads to, decoding its text: {failure}"
            )),
        }
        let value = shown(&self.sni, read)?;
        self.output.show(&value, || kri::fields(&value))
    }

    /// Document of the control plane about the name; `None` if it knows nothing.
    fn look_up(&self, global: &Global, mesh: &str) -> Result<Option<Document<KnownSni>>> {
        let attempted = "could not ask the control plane for a server name";
        let reply = ClientSettings::load(global)?.client()?.known_sni(mesh, &self.sni)?;
        let Document { sent, read } = reply.document(attempted)?;
        let sent: SentItems = document::parts(&sent);
        let first = sent.items.into_iter().zip(read.items).next();
        Ok(first.map(|(sent, read)| Document { sent, read }))
    }
}

/// The mesh that a server name says, if it says it in full.
fn mesh_of(read: &DecodedSni) -> Option<String> {
    match read {
        DecodedSni::Kri(kri) => Some(kri.mesh.clone()),
        DecodedSni::Hashed(hashed) => (!hashed.mesh_trimmed).then(|| hashed.mesh.clone()),
        DecodedSni::Tags(tags) => tags.get("mesh").cloned(),
        DecodedSni::Invalid(_) => None,
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
                    "the hashed form needs a port number; section {:?} is not one, pass --port",
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

fn shown(text: &str, read: DecodedSni) -> Result<Value> {
    match read {
        DecodedSni::Kri(kri) => {
            let mut value = json!({ "form": "kri" });
            if let (Value::Object(out), Value::Object(fields)) = (&mut value, kri::to_json(&kri)) {
                out.extend(fields);
            }
            Ok(value)
        }
        DecodedSni::Hashed(hashed) => Ok(json!({
            "form": "hashed", "type": hashed.kind.name(), "mesh": hashed.mesh, "name": hashed.name,
            "port": hashed.port, "hash": format!("{:016x}", hashed.hash), "hashMatches": hashed.hash_matches,
            "trimmed": hashed.name_trimmed || hashed.mesh_trimmed,
        })),
        DecodedSni::Tags(tags) => Ok(json!({ "form": "tags", "tags": tags })),
        DecodedSni::Invalid(reason) => {
            Err(Failure::invalid(format!("{text:?} is not a server name of the mesh: {reason}")))
        }
    }
}
