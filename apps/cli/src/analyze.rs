//! `analyze`: what may be wrong with a mesh, or with files before they are applied.

use std::{cmp::Reverse, collections::BTreeSet};

use clap::{Args, ValueEnum};
use contract::{findings::FoundProblem, lenient::read_partly, resource::Metadata};
use findings::{Code, Finding, Severity};
use jiff::Timestamp;
use resources::{Draft, Key, Kind, Resource, Spec};
use serde_json::{Value, json};

use crate::{
    apply::{input::Input, plan::PlannedResource},
    cell::{self, Column, line},
    cli::Global,
    client::{ApiClient, Document, segment},
    config::ClientSettings,
    document::overwrite,
    failure::{CommandResult, Result},
    output::{self, TableFormat},
    pages::{self, PagedList},
    terminal,
    types::{DEFAULT_MESH, Type},
};

const MEANING: &str = "\
Exit codes:
  0  nothing is as bad as --fail-on says
  3  something is";

/// Show what may be wrong with a mesh, the worst first
///
/// Asks the control plane; with -f, analyzes only the input, without a control plane. Every finding has a code, which
/// docs/reference/findings.md explains.
#[derive(Debug, Args)]
#[command(after_help = MEANING)]
pub struct Analyze {
    #[command(flatten)]
    input: Input,
    /// Mesh to look at
    #[arg(short, long, default_value = DEFAULT_MESH, conflicts_with = "files")]
    mesh: String,
    /// All meshes, the worst finding of any first
    #[arg(short = 'A', long, conflicts_with_all = ["files", "mesh"])]
    all_meshes: bool,
    /// Exit with code 3 if something is at least this bad
    #[arg(long, value_name = "SEVERITY")]
    fail_on: Option<AtLeast>,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    format: TableFormat,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum AtLeast {
    Info,
    #[value(alias = "warning")]
    Warn,
    Error,
}

impl From<AtLeast> for Severity {
    fn from(severity: AtLeast) -> Severity {
        match severity {
            AtLeast::Info => Severity::Info,
            AtLeast::Warn => Severity::Warning,
            AtLeast::Error => Severity::Error,
        }
    }
}

impl Analyze {
    pub fn run(&self, global: &Global) -> Result<CommandResult> {
        let found = if self.input.is_given() {
            of_files(self.input.read(global)?)
        } else if self.all_meshes {
            of_all_meshes(&ClientSettings::load(global)?.client()?)?
        } else {
            of_mesh(&ClientSettings::load(global)?.client()?, &self.mesh)?
        };
        let Document { sent, read } = found;
        terminal::data(&self.format.render(&sent, || table(&read)))?;
        let bad = |limit: AtLeast| {
            let limit = Severity::from(limit);
            read.iter().filter_map(|item| Severity::by_name(&item.severity)).any(|s| s >= limit)
        };
        Ok(if self.fail_on.is_some_and(bad) { CommandResult::No } else { CommandResult::Done })
    }
}

fn of_mesh(client: &ApiClient, mesh: &str) -> Result<Document<Vec<FoundProblem>>> {
    let path = format!("/meshes/{}/_problems", segment(mesh));
    let attempted = format!("could not analyze mesh {mesh}");
    let found = PagedList { attempted: attempted.clone(), ..PagedList::of(&path, "") }.all(client)?;
    let read = found.read(&attempted)?;
    Ok(Document { sent: json!({ "total": found.items.len(), "items": found.items }), read })
}

/// The findings of every mesh in one list; in JSON each says its mesh.
fn of_all_meshes(client: &ApiClient) -> Result<Document<Vec<FoundProblem>>> {
    let meshes = pages::all(client, &Type::of_kind(Kind::Mesh).collection(None), "")?.items;
    let mut found = Vec::new();
    for mesh in meshes.iter().map(read_partly::<Metadata>) {
        let Document { sent, read } = of_mesh(client, &mesh.name)?;
        let items = sent["items"].as_array().cloned().unwrap_or_default();
        for (mut item, problem) in items.into_iter().zip(read) {
            overwrite(&mut item, &json!({ "mesh": mesh.name }));
            found.push((item, problem));
        }
    }
    found.sort_by_key(|(_, problem)| Reverse(Severity::by_name(&problem.severity)));
    let (items, read): (Vec<Value>, Vec<FoundProblem>) = found.into_iter().unzip();
    Ok(Document { sent: json!({ "total": items.len(), "items": items }), read })
}

fn of_files(planned: Vec<PlannedResource>) -> Document<Vec<FoundProblem>> {
    let mut slips = Vec::new();
    let mut resources = Vec::new();
    for planned in planned {
        let resource = stored(planned.draft.clone());
        let about = resource.kri("");
        slips.extend(planned.unknown_fields.iter().map(|slip| {
            let text = format!("{} ({})", slip, planned.at(&slip.path));
            Finding::new(Code::UnknownField, text).or_about(about.clone())
        }));
        resources.push(resource);
    }
    resources.extend(assumed_meshes(&resources));
    let mut found = findings::of_resources(resources);
    found.extend(slips);
    found.sort_by_key(|finding| Reverse(finding.code.severity()));
    let read: Vec<FoundProblem> = found.iter().map(FoundProblem::from).collect();
    Document { sent: json!({ "total": read.len(), "items": read }), read }
}

/// A resource as a control plane would store it.
fn stored(draft: Draft) -> Resource {
    Resource {
        key: draft.key,
        labels: draft.labels,
        created: Timestamp::UNIX_EPOCH,
        modified: Timestamp::UNIX_EPOCH,
        version: 0,
        owner: None,
        spec: draft.spec,
        status: None,
    }
}

/// The meshes that resources of the input belong to and that are not in it, as they are when they are new.
fn assumed_meshes(resources: &[Resource]) -> Vec<Resource> {
    let mut missing: BTreeSet<&str> =
        resources.iter().map(Resource::mesh).filter(|mesh| !mesh.is_empty()).collect();
    for mesh in resources.iter().filter(|resource| resource.kind() == Kind::Mesh) {
        missing.remove(mesh.name());
    }
    let new = |name: &str| {
        terminal::warn(&format!(
            "mesh {name} is not in the input: assuming a new one, with MeshServices and without mutual TLS"
        ));
        let spec = json!({ "meshServices": { "mode": "Exclusive" } });
        let spec = Spec::from_json(Kind::Mesh, spec, &mut Vec::new()).ok()?;
        let key = Key::global(Kind::Mesh, name);
        Some(stored(Draft { key, labels: resources::Labels::new(), spec }))
    };
    missing.into_iter().filter_map(new).collect()
}

const COLUMNS: [Column<FoundProblem>; 4] = [
    ("SEVERITY", |item| line(&item.severity)),
    ("CODE", |item| line(&item.code)),
    ("RESOURCE", |item| line(&item.kri)),
    ("MESSAGE", |item| line(&item.message)),
];

fn table(found: &[FoundProblem]) -> String {
    if found.is_empty() {
        return "Nothing is wrong.\n".to_owned();
    }
    let (titles, rows) = cell::grid(&COLUMNS, found.iter());
    let mut fixes: Vec<String> = Vec::new();
    for item in found {
        let fix = format!("  {}: {}\n", line(&item.code), line(&item.fix));
        if !fixes.contains(&fix) {
            fixes.push(fix);
        }
    }
    format!("{}\nWhat to do:\n{}", output::table(&titles, rows), fixes.concat())
}
