//! `kri parse` and `kri build`.

use clap::{Args, Subcommand};
use resources::naming::{Kri, KriFields, ShortName};
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Result},
    output::{self, PlainOutput},
    terminal,
};

#[derive(Debug, Subcommand)]
pub enum KriCommand {
    Parse(Parse),
    Build(Build),
}

/// Show the parts of a resource identifier
#[derive(Debug, Args)]
pub struct Parse {
    /// kri_<type>_<mesh>_<zone>_<namespace>_<name>_<section>
    kri: String,
    #[command(flatten)]
    output: PlainOutput,
}

/// Build a resource identifier
#[derive(Debug, Args)]
pub struct Build {
    /// Type of the resource: its name (MeshService) or short name (msvc)
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Name of the resource
    name: String,
    /// Mesh of the resource; none for types outside meshes
    #[arg(short, long, default_value = "")]
    mesh: String,
    /// Zone the resource was created in
    #[arg(long, default_value = "")]
    zone: String,
    /// Namespace the resource was created in
    #[arg(long, default_value = "")]
    namespace: String,
    /// Part of the resource, such as a port
    #[arg(long, default_value = "")]
    section: String,
}

impl KriCommand {
    pub fn run(&self) -> Result<()> {
        match self {
            KriCommand::Parse(parse) => {
                let kri: Kri = parse.kri.parse().map_err(Failure::invalid)?;
                let value = to_json(&kri);
                parse.output.show(&value, || fields(&value))
            }
            KriCommand::Build(build) => Ok(terminal::data(&format!("{}\n", build.kri()?))?),
        }
    }
}

impl Build {
    fn kri(&self) -> Result<Kri> {
        let short = self.kind.parse::<ShortName>().ok().or_else(|| ShortName::of_type(&self.kind));
        let short = short.ok_or_else(|| {
            let known: Vec<&str> = ShortName::all().map(ShortName::type_name).collect();
            Failure::invalid(format!(
                "type {:?} has no resource identifiers; those that have: {}",
                self.kind,
                known.join(", ")
            ))
        })?;
        let parts = [&self.mesh, &self.zone, &self.namespace, &self.name];
        if let Some(part) = parts.into_iter().find(|part| part.contains('_')) {
            return Err(Failure::invalid(format!(
                "{part:?} contains `_`, which separates the parts of a KRI"
            )));
        }
        if self.name.is_empty() {
            return Err(Failure::invalid("the name must not be empty"));
        }
        Ok(Kri::from(KriFields {
            short,
            mesh: self.mesh.clone(),
            zone: self.zone.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            section: self.section.clone(),
        }))
    }
}

pub fn to_json(kri: &Kri) -> Value {
    json!({
        "kri": kri.to_string(), "type": kri.type_name(), "shortName": kri.short.as_str(), "mesh": kri.mesh,
        "zone": kri.zone, "namespace": kri.namespace, "name": kri.name, "sectionName": kri.section,
    })
}

/// One line per field; fields that are empty say so with a dash.
pub fn fields(value: &Value) -> String {
    let rows = value.as_object().into_iter().flatten().map(|(field, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        vec![field.clone(), if text.is_empty() { "-".to_owned() } else { text }]
    });
    output::table(&["FIELD", "VALUE"], rows)
}
