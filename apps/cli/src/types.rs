//! Types of resources by the user's spelling, and their paths in the REST API.
//!
//! Types this client knows are found without asking. Any other spelling is looked up in what the
//! control plane says it serves, so that a newer control plane's types can be read and deleted.

use contract::index::ResourceType;
use resources::{Kind, Scope, nearest::nearest, superseded::SUPERSEDED};

use crate::{
    client::{ApiClient, segment},
    failure::{Failure, Result},
    terminal,
};

/// The mesh used when `-m` is not given.
pub const DEFAULT_MESH: &str = "default";

/// A type of resource, as far as the REST API is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    pub name: String,
    pub path: String,
    pub in_mesh: bool,
    /// Known to this client, with its columns and checks.
    pub kind: Option<Kind>,
}

impl Type {
    pub fn of_kind(kind: Kind) -> Type {
        let descriptor = kind.descriptor();
        Type {
            name: descriptor.name.to_owned(),
            path: descriptor.path.to_owned(),
            in_mesh: descriptor.scope == Scope::Mesh,
            kind: Some(kind),
        }
    }

    /// Reads `mesh`, `meshes`, `virtual-outbound`, `MeshTimeout`, `mt`, ….
    pub fn resolve(spelling: &str, client: &ApiClient) -> Result<Type> {
        let wanted = normal(spelling);
        if let Some(kind) = served_kinds().find(|kind| spellings(*kind).contains(&wanted)) {
            return Ok(Type::of_kind(kind));
        }
        let served =
            client.resource_types().and_then(|reply| reply.read("listing types")).unwrap_or_default();
        let found = served.resources.iter().find(|served| {
            let ResourceType { name, path, short_name, singular_display_name, plural_display_name, .. } =
                served;
            [&**name, &**path, &**short_name, singular_display_name, plural_display_name]
                .iter()
                .any(|spelling| normal(spelling) == wanted)
                || format!("{}s", normal(name)) == wanted
        });
        found.map(Type::served).ok_or_else(|| Failure::invalid(unknown(spelling)))
    }

    /// A type as the control plane describes it among those it serves.
    pub fn served(served: &ResourceType) -> Type {
        let name = terminal::one_line(&served.name);
        Type {
            kind: Kind::by_name(&name),
            name,
            path: served.path.clone().into_owned(),
            in_mesh: served.scope == "Mesh",
        }
    }

    /// The collection: of one mesh, or of all of them.
    pub fn collection(&self, mesh: Option<&str>) -> String {
        match mesh {
            Some(mesh) if self.in_mesh => format!("/meshes/{}/{}", segment(mesh), self.path),
            _ => format!("/{}", self.path),
        }
    }

    pub fn item(&self, mesh: &str, name: &str) -> String {
        format!("{}/{}", self.collection(Some(mesh)), segment(name))
    }

    /// "Mesh \"a\"" or "MeshTimeout \"a\" in mesh \"b\"".
    pub fn describe(&self, mesh: &str, name: &str) -> String {
        if self.in_mesh {
            format!("{} {name:?} in mesh {mesh:?}", self.name)
        } else {
            format!("{} {name:?}", self.name)
        }
    }
}

/// Error for an unknown type, with the one that may be meant.
fn unknown(spelling: &str) -> String {
    let wanted = normal(spelling);
    let superseded = SUPERSEDED.iter().find(|kind| {
        [normal(kind.name), format!("{}s", normal(kind.name)), normal(kind.path)].contains(&wanted)
    });
    if let Some(kind) = superseded {
        return kind.refusal();
    }
    let known: Vec<&str> = served_kinds().map(|kind| kind.descriptor().path).collect();
    let names = served_kinds().map(Kind::name).chain(SUPERSEDED.iter().map(|kind| kind.name));
    if let Some(near) = nearest(spelling, known.iter().copied().chain(names)) {
        return format!(
            "unknown resource type {spelling:?}; did you mean {near:?}? `kumactl get --help` lists all types"
        );
    }
    format!("unknown resource type {spelling:?}; known types: {}", known.join(", "))
}

/// The kinds that the REST API serves.
fn served_kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| !kind.descriptor().path.is_empty())
}

/// All types with their short names, for help.
pub fn listing() -> String {
    let group = |title: &str, wanted: fn(Kind) -> bool| {
        let mut kinds: Vec<Kind> = served_kinds().filter(|kind| wanted(*kind)).collect();
        kinds.sort_by_key(|kind| kind.name());
        let line =
            |kind: &Kind| format!("  {:<28}{}", kind.name(), kind.descriptor().short.unwrap_or_default());
        let lines: Vec<String> = kinds.iter().map(|kind| line(kind).trim_end().to_owned()).collect();
        format!("{title}:\n{}\n", lines.join("\n"))
    };
    let is_policy = |kind: Kind| Kind::POLICIES.contains(&kind);
    let is_other = |kind: Kind| !Kind::POLICIES.contains(&kind) && !kind.descriptor().read_only;
    let superseded: Vec<&str> = SUPERSEDED.iter().map(|kind| kind.name).collect();
    format!(
        "Types and their short names; plurals and any case work, too.\n{}{}{}Known in Kuma, not supported by kuma-rs: {}.",
        group("Policies", is_policy),
        group("Other types", is_other),
        group("Types that only control planes write", |kind| kind.descriptor().read_only),
        superseded.join(", ")
    )
}

fn spellings(kind: Kind) -> Vec<String> {
    let descriptor = kind.descriptor();
    let mut all = vec![
        normal(descriptor.name),
        format!("{}s", normal(descriptor.name)),
        normal(descriptor.path),
        normal(&descriptor.plural_display_name()),
    ];
    all.extend(descriptor.alias.map(normal));
    all.extend(descriptor.short.map(normal));
    all
}

/// Case, hyphens and spaces do not matter.
fn normal(spelling: &str) -> String {
    spelling.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}
