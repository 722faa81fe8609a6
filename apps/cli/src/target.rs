//! Resources that a user names on the command line: `TYPE NAME…`, `TYPE/NAME…` or `TYPE/MESH/NAME…`.

use clap::Args;
use resources::Key;

use crate::{
    client::ApiClient,
    failure::{Failure, Result},
    types::{DEFAULT_MESH, Type},
};

/// The one resource that a command is about, as its arguments.
#[derive(Debug, Args)]
pub struct OneResource {
    /// Type of the resource, such as dataplane, meshservice or mtp, or TYPE/NAME
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Name of the resource
    name: Option<String>,
    /// Mesh of the resource
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
}

impl OneResource {
    pub fn target(&self, client: &ApiClient) -> Result<NamedResource> {
        let names: Vec<String> = self.name.iter().cloned().collect();
        let mut named = match Targets::read(&self.kind, &names, &self.mesh, client)? {
            Targets::Named(named) => named.into_iter(),
            Targets::All(kind) => {
                return Err(Failure::invalid(format!("which {}? Write TYPE NAME or TYPE/NAME", kind.name)));
            }
        };
        match (named.next(), named.next()) {
            (Some(target), None) => Ok(target),
            _ => Err(Failure::invalid("this command is about one resource: write TYPE NAME or TYPE/NAME")),
        }
    }
}

/// One resource that is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedResource {
    pub kind: Type,
    /// Ignored for types that are in no mesh.
    pub mesh: String,
    pub name: String,
}

/// Resources that a command is about.
#[derive(Debug)]
pub enum Targets {
    /// Every resource of a type.
    All(Type),
    Named(Vec<NamedResource>),
}

impl Targets {
    /// Reads the words after a command: a type, a type and names, or types with names as `-o name` prints them.
    pub fn read(kind: &str, names: &[String], mesh: &str, client: &ApiClient) -> Result<Targets> {
        if kind.contains('/') {
            let words = std::iter::once(kind).chain(names.iter().map(String::as_str));
            let named = words.map(|word| {
                let (kind, own_mesh, name) = split(word)?;
                let kind = Type::resolve(kind, client)?;
                if let Some(own_mesh) = own_mesh.filter(|_| !kind.in_mesh) {
                    return Err(Failure::invalid(format!(
                        "a {} is in no mesh: write {}/{name} instead of {word:?}, without {own_mesh:?}",
                        kind.name,
                        kind.name.to_lowercase()
                    )));
                }
                Ok(NamedResource { kind, mesh: own_mesh.unwrap_or(mesh).to_owned(), name: name.to_owned() })
            });
            return Ok(Targets::Named(named.collect::<Result<_>>()?));
        }
        let kind = Type::resolve(kind, client)?;
        if names.is_empty() {
            return Ok(Targets::All(kind));
        }
        let named = names.iter().map(|name| {
            if name.contains('/') {
                Err(Failure::invalid(format!(
                    "{name:?} is not a name: write either TYPE NAME… or TYPE/NAME…, such as {}/{}",
                    kind.name.to_lowercase(),
                    name.rsplit('/').next().unwrap_or_default()
                )))
            } else {
                Ok(NamedResource { kind: kind.clone(), mesh: mesh.to_owned(), name: name.clone() })
            }
        });
        Ok(Targets::Named(named.collect::<Result<_>>()?))
    }
}

impl NamedResource {
    /// The path in the REST API.
    pub fn path(&self) -> String {
        self.kind.item(&self.mesh, &self.name)
    }

    /// `MeshTimeout "slow" in mesh "default"`.
    pub fn describe(&self) -> String {
        self.kind.describe(&self.mesh, &self.name)
    }
}

impl From<&Key> for NamedResource {
    fn from(key: &Key) -> NamedResource {
        NamedResource {
            kind: Type::of_kind(key.kind),
            mesh: key.mesh.to_string(),
            name: key.name.to_string(),
        }
    }
}

/// The parts of `meshtimeout/slow`, or of `meshtimeout/shop/slow`.
fn split(word: &str) -> Result<(&str, Option<&str>, &str)> {
    let parts: Vec<&str> = word.split('/').collect();
    match parts.as_slice() {
        [kind, name] if !kind.is_empty() && !name.is_empty() => Ok((*kind, None, *name)),
        [kind, mesh, name] if parts.iter().all(|part| !part.is_empty()) => Ok((*kind, Some(*mesh), *name)),
        _ => Err(Failure::invalid(format!(
            "expected TYPE/NAME, such as meshtimeout/slow, or TYPE/MESH/NAME instead of {word:?}"
        ))),
    }
}
