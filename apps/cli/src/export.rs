//! `export`: everything a control plane knows, in the order in which another one can be given it.

mod mesh;

use std::collections::HashSet;

use clap::{Args, ValueEnum};
use contract::{index::ResourceType, lenient::read_partly, resource::Metadata};
use resources::Kind;
use serde_json::{Value, json};

use crate::{
    cell::{line, lines},
    client::{ApiClient, query_value},
    document::{DocumentHeader, overwrite},
    failure::{Failure, Result},
    kuma_kinds, output, pages, terminal,
    types::Type,
};

const ORIGIN: &str = "kuma.io/origin";
/// Each control plane has its own of these; another one's would break its connections.
const NOT_SHARED: [&str; 3] = ["envoy-admin-ca", "inter-cp-ca", "inter-cp-certificate"];
/// Applying these replaces the keys of user tokens, so the user's own token may be refused afterwards.
const LAST: &str = "user-token-signing-key";
/// Fields that a cluster writes into an object and another one must write itself.
const OF_THE_CLUSTER: [&str; 5] =
    ["resourceVersion", "ownerReferences", "uid", "generation", "managedFields"];
/// An export of more lists, or of more bytes, does not end.
const MOST_LISTS: usize = 200_000;
const MOST_BYTES: usize = 4 * 1024 * 1024 * 1024;

/// Print the resources of the control plane, to apply them to another one
///
/// Meshes come first and are adapted: the other control plane creates no default policies for them, and gets
/// a generated authority with its certificate and key. An authority that was never made is made there.
#[derive(Debug, Args)]
pub struct Export {
    /// Selection of resources
    #[arg(short, long, value_name = "PROFILE", default_value = "federation")]
    profile: Profile,
    /// Form of the resources
    #[arg(short, long, value_name = "FORMAT", default_value = "universal")]
    format: Form,
    /// Namespace of the control plane, with --format kubernetes
    #[arg(short = 'n', long, value_name = "NAME", default_value = "kuma-system")]
    system_namespace: String,
    /// Secrets too; the profiles for federation have them in any case
    #[arg(short = 'a', long)]
    include_admin: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// Everything, what the control plane reports included
    All,
    /// Everything that a global control plane needs to take over a zone, without policies
    Federation,
    /// The same with policies
    FederationWithPolicies,
    /// Everything but Dataplanes and their insights
    NoDataplanes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Universal,
    Kubernetes,
}

/// A type that the control plane serves.
struct ServedType {
    kind: Type,
    admin_only: bool,
    in_federation: bool,
    is_target_ref: bool,
}

impl Export {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        // A reader of the file wants to know where it is from.
        let about = client.index()?.read("asking the control plane for its version")?;
        terminal::data(&format!(
            "# Product: {}, Version: {}, Hostname: {}, ClusterId: {}, InstanceId: {}\n",
            line(&about.product),
            line(&about.version),
            line(&about.hostname),
            line(&about.cluster_id),
            line(&about.instance_id)
        ))?;
        let types = self.types(client)?;
        let mut lists = Lists { client, read: 0, bytes: 0 };
        let meshes = lists.all("/meshes")?;
        let mut last = Vec::new();
        for served in &types {
            for item in lists.items(&served.kind, &meshes)? {
                let name = line(&read_partly::<Metadata>(&item).name);
                let is_global_secret = served.kind.kind == Some(Kind::GlobalSecret);
                if is_global_secret && NOT_SHARED.contains(&name.as_str()) {
                    continue;
                }
                if is_global_secret && name.starts_with(LAST) {
                    last.push((served, item));
                    continue;
                }
                self.show(client, &served.kind, item)?;
            }
        }
        last.into_iter().try_for_each(|(served, item)| self.show(client, &served.kind, item))
    }

    /// The types to show: meshes, then secrets, which others need, and at the end secrets of all meshes.
    fn types(&self, client: &ApiClient) -> Result<Vec<ServedType>> {
        let served = client.resource_types()?.read("could not list the types of resources")?;
        let (known, unknown): (Vec<&ResourceType>, Vec<&ResourceType>) =
            served.resources.iter().partition(|served| kuma_kinds::has(&line(&served.name)));
        if !unknown.is_empty() {
            let names = lines(unknown.iter().map(|served| &served.name), ", ");
            terminal::warn(&format!("not exported, because no such types are known: {names}"));
        }
        let mut types: Vec<ServedType> =
            known.into_iter().filter_map(ServedType::read).filter(|served| self.wants(served)).collect();
        let mut listed = HashSet::new();
        types.retain(|served| listed.insert(served.kind.name.clone()));
        types.sort_by_key(|served| match served.kind.name.as_str() {
            "Mesh" => 0,
            "Secret" => 1,
            "GlobalSecret" => 3,
            _ => 2,
        });
        Ok(types)
    }

    fn wants(&self, served: &ServedType) -> bool {
        if served.admin_only && !self.is_for_federation() && !self.include_admin {
            return false;
        }
        let name = served.kind.name.as_str();
        match self.profile {
            Profile::All => true,
            Profile::Federation => served.in_federation && !served.is_target_ref && name != "MeshGateway",
            Profile::FederationWithPolicies => served.in_federation,
            Profile::NoDataplanes => !matches!(name, "Dataplane" | "DataplaneInsight"),
        }
    }

    fn is_for_federation(&self) -> bool {
        matches!(self.profile, Profile::Federation | Profile::FederationWithPolicies)
    }

    fn show(&self, client: &ApiClient, kind: &Type, mut item: Value) -> Result<()> {
        if kind.kind == Some(Kind::Mesh) {
            mesh::hand_over(&mut item, |mesh, secret| exists(client, mesh, secret))?;
        }
        let shown = match self.format {
            Form::Universal => {
                if self.is_for_federation() {
                    remove(&mut item, "labels", ORIGIN);
                }
                Some(item)
            }
            Form::Kubernetes => self.object(client, kind, &item)?,
        };
        match shown {
            Some(shown) => Ok(terminal::data(&format!("---\n{}", output::yaml(&shown)))?),
            None => Ok(()),
        }
    }

    /// The object in its Kubernetes form, unless another cluster has no place for it.
    fn object(&self, client: &ApiClient, kind: &Type, item: &Value) -> Result<Option<Value>> {
        let metadata: Metadata = read_partly(item);
        let mesh = line(&metadata.mesh);
        let name = line(&metadata.name);
        let path = format!("{}?format={}", kind.item(&mesh, &name), query_value("kubernetes"));
        let attempted = format!("could not read {} in its Kubernetes form", kind.describe(&mesh, &name));
        let mut object = client.get(&path)?.json(&attempted)?;
        let namespace = DocumentHeader::of(&object).metadata.namespace;
        let is_elsewhere = namespace.is_some_and(|namespace| namespace != self.system_namespace);
        if self.profile != Profile::All && is_elsewhere {
            return Ok(None);
        }
        if let Some(metadata) = object.get_mut("metadata") {
            if let Some(fields) = metadata.as_object_mut() {
                OF_THE_CLUSTER.iter().for_each(|field| drop(fields.shift_remove(*field)));
            }
            if self.is_for_federation() {
                remove(metadata, "labels", ORIGIN);
                remove(metadata, "annotations", ORIGIN);
            }
        }
        if kind.kind == Some(Kind::Mesh) {
            overwrite(&mut object, &json!({ "spec": mesh::spec(item) }));
        }
        Ok(Some(object))
    }
}

impl ServedType {
    fn read(served: &ResourceType) -> Option<ServedType> {
        let kind = Some(Type::served(served)).filter(|kind| !kind.path.is_empty())?;
        Some(ServedType {
            admin_only: matches!(kind.name.as_str(), "Secret" | "GlobalSecret"),
            in_federation: served.include_in_federation,
            is_target_ref: served.policy.is_some_and(|policy| policy.is_target_ref),
            kind,
        })
    }
}

/// The lists that are read, counted: a server that makes up ever more of them is no control plane.
struct Lists<'a> {
    client: &'a ApiClient,
    read: usize,
    bytes: usize,
}

impl Lists<'_> {
    fn items(&mut self, kind: &Type, meshes: &[Value]) -> Result<Vec<Value>> {
        if kind.kind == Some(Kind::Mesh) {
            return Ok(meshes.to_vec());
        }
        if !kind.in_mesh {
            return self.all(&kind.collection(None));
        }
        let mut items = Vec::new();
        for mesh in meshes {
            let name = DocumentHeader::of(mesh).name.ok_or_else(|| Failure::failed("a mesh has no name"))?;
            items.extend(self.all(&kind.collection(Some(&name)))?);
        }
        Ok(items)
    }

    fn all(&mut self, collection: &str) -> Result<Vec<Value>> {
        let found = pages::all(self.client, collection, "")?;
        self.read += 1;
        self.bytes = self.bytes.saturating_add(found.bytes);
        if self.read > MOST_LISTS || self.bytes > MOST_BYTES {
            return Err(Failure::failed(format!(
                "the export does not end: it has more than {MOST_LISTS} lists or {MOST_BYTES} bytes; is there a control \
                 plane at this address?"
            )));
        }
        Ok(found.items)
    }
}

/// True if a mesh has a Secret. To a user who may not see Secrets, it has all that a control plane makes.
fn exists(client: &ApiClient, mesh: &str, secret: &str) -> Result<bool> {
    let answer = client.get(&Type::of_kind(Kind::Secret).item(mesh, secret))?;
    if answer.is_missing() {
        return Ok(false);
    }
    if matches!(answer.status, 401 | 403) {
        return Ok(true);
    }
    let attempted = format!("could not find out whether mesh {mesh:?} has Secret {secret:?}");
    answer.accepted(&attempted).map(|_| true)
}

/// Takes an entry out of a map, and the map out of its owner when that was all.
fn remove(owner: &mut Value, map: &str, entry: &str) {
    let Some(entries) = owner.get_mut(map).and_then(Value::as_object_mut) else { return };
    entries.shift_remove(entry);
    if entries.is_empty()
        && let Some(fields) = owner.as_object_mut()
    {
        fields.shift_remove(map);
    }
}
