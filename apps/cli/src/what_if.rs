//! Consequences of applying something, computed by the control plane: for `apply --dry-run=server` and `diff`.

use contract::{
    access::AccessVerdict,
    problem::InvalidParameter,
    what_if::{
        WhatIf, WhatIfAction, WhatIfChange, WhatIfClass, WhatIfConsequences, WhatIfDeletion, WhatIfDiff,
        WhatIfEdge, WhatIfEdges, WhatIfName, WhatIfPolicy, WhatIfProblem, WhatIfProxies, WhatIfRefusal,
        WhatIfRequest, WhatIfResourceAction,
    },
};
use resources::{Kind, Scope};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    apply::plan::PlannedResource,
    cell::{self, Column, line},
    client::{ApiClient, Document},
    document,
    failure::{Failure, Result},
    output,
    target::NamedResource,
    types::DEFAULT_MESH,
};

/// Question to the control plane.
pub struct WhatIfQuestion<'a> {
    pub planned: &'a [PlannedResource],
    pub deletions: &'a [NamedResource],
    /// The mesh to ask about where no resource says one.
    pub mesh: &'a str,
    /// The proxies whose configuration is shown as a difference; `*` for all.
    pub proxies: &'a [String],
}

impl WhatIfQuestion<'_> {
    /// Asks the control plane. What it would refuse is a failure.
    pub fn ask(&self, client: &ApiClient) -> Result<Document<WhatIf>> {
        let deletion = |NamedResource { kind, mesh, name }: &NamedResource| WhatIfDeletion {
            r#type: kind.name.clone(),
            name: name.clone(),
            mesh: kind.in_mesh.then(|| mesh.clone()),
        };
        let request = WhatIfRequest {
            resources: self.planned.iter().map(|planned| planned.body.clone()).collect(),
            delete: self.deletions.iter().map(deletion).collect(),
        };
        let attempted = "could not determine what this would do";
        let answer = client.what_if(&self.about(), &request, self.proxies)?.document(attempted)?;
        match refusals(&answer.read) {
            None => Ok(answer),
            Some(refusals) => {
                Err(Failure::failed(format!("the control plane would refuse this\n{refusals}")))
            }
        }
    }

    /// The mesh that the question is put to.
    fn about(&self) -> String {
        let in_mesh = |planned: &&PlannedResource| planned.draft.kind().descriptor().scope == Scope::Mesh;
        let is_mesh = |planned: &&PlannedResource| planned.draft.kind() == Kind::Mesh;
        let keys = || self.planned.iter();
        let mesh = keys().find(in_mesh).map(|planned| planned.draft.key.mesh.to_string());
        let mesh = mesh.or_else(|| keys().find(is_mesh).map(|planned| planned.draft.key.name.to_string()));
        match mesh {
            Some(mesh) => mesh,
            None if self.deletions.is_empty() => DEFAULT_MESH.to_owned(),
            None => self.mesh.to_owned(),
        }
    }
}

/// True if anything would be different.
pub fn differs(answer: &WhatIf) -> bool {
    answer.changes.iter().any(|change| change.action != WhatIfAction::Unchanged)
}

/// Warnings of the control plane, which would accept everything.
pub fn warnings(answer: &WhatIf) -> Vec<String> {
    let of = |change: &WhatIfChange| -> Vec<String> {
        let label = label(&change.of);
        change.warnings.iter().map(|warning| format!("{label}: {}", line(warning))).collect()
    };
    answer.changes.iter().flat_map(of).collect()
}

/// The answer for a reader.
pub fn table(answer: &WhatIf) -> String {
    let mut out = String::new();
    for change in &answer.changes {
        let action = match change.action {
            WhatIfAction::Create => "would be created",
            WhatIfAction::Update => "would be updated",
            WhatIfAction::Delete => "would be deleted",
            WhatIfAction::Unchanged => "is unchanged",
        };
        out.push_str(&format!("{} {action}\n", label(&change.of)));
    }
    let WhatIfConsequences {
        proxies: changed,
        problems: wrong,
        edges: access,
        policies: idle,
        not_looked_at: left_out,
    } = &answer.consequences;
    out + &proxies(changed)
        + &problems(wrong)
        + &edges(access)
        + &policies(idle)
        + &not_looked_at(left_out)
        + &diffs(&changed.diffs)
}

/// `MeshTimeout "slow" in mesh "default"`.
fn label(of: &WhatIfName) -> String {
    labelled(&of.r#type, &of.name, &of.mesh)
}

fn labelled(kind: &str, name: &str, mesh: &str) -> String {
    let kind = line(kind);
    let name = line(name);
    let mesh = line(mesh);
    if mesh.is_empty() { format!("{kind} {name:?}") } else { format!("{kind} {name:?} in mesh {mesh:?}") }
}

fn refusals(answer: &WhatIf) -> Option<String> {
    let told: Vec<String> = answer.refused.iter().flat_map(reasons).map(|reason| reason.text).collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

/// A reason why a resource would be refused.
#[derive(Debug)]
pub struct RefusalReason {
    /// Empty for what is not about a field.
    pub field: String,
    /// A sentence that names the resource.
    pub text: String,
}

pub fn reasons(of: &WhatIfRefusal) -> Vec<RefusalReason> {
    let label = label(&of.of);
    let problem = &of.problem;
    if problem.invalid_parameters.is_empty() {
        let text = format!("{label}: {}: {}", line(&problem.title), line(&problem.detail));
        return vec![RefusalReason { field: String::new(), text }];
    }
    let reason = |parameter: &InvalidParameter| {
        let field = line(&parameter.field);
        RefusalReason { text: format!("{label}: {field}: {}", line(&parameter.reason)), field }
    };
    problem.invalid_parameters.iter().map(reason).collect()
}

const CLASSES: [Column<WhatIfClass>; 6] = [
    ("MESH", |class| line(&class.mesh)),
    ("PROXIES", |class| match class.count {
        0 | 1 => first(class),
        count => format!("{} and {} alike", first(class), count - 1),
    }),
    ("ADDED", |class| class.added.to_string()),
    ("CHANGED", |class| class.changed.to_string()),
    ("REMOVED", |class| class.removed.to_string()),
    ("BYTES", |class| format!("{} → {}", class.bytes_before, class.bytes_after)),
];

fn first(class: &WhatIfClass) -> String {
    class.proxies.first().map(|name| line(name)).unwrap_or_default()
}

fn proxies(proxies: &WhatIfProxies) -> String {
    let WhatIfProxies { connected, affected, compared, changed, classes, diffs: _ } = proxies;
    if *changed == 0 && compared == affected {
        return format!("\nNo configuration of the {connected} connected proxies would change.\n");
    }
    let mut out =
        format!("\n{changed} of {connected} connected proxies would get another configuration:\n\n");
    if compared < affected {
        out = format!(
            "\nOf {connected} connected proxies {affected} would look again. {compared} of these were compared, and \
             {changed} would get another configuration:\n\n"
        );
    }
    let (titles, rows) = cell::grid(&CLASSES, classes);
    out.push_str(&output::table(&titles, rows));
    for class in classes {
        out.push_str(&format!("\n{}:\n", first(class)));
        for resource in &class.resources {
            let sign = match resource.action {
                WhatIfResourceAction::Added => '+',
                WhatIfResourceAction::Removed => '-',
                WhatIfResourceAction::Changed => '~',
            };
            out.push_str(&format!("  {sign} {} {}\n", line(&resource.r#type), line(&resource.name)));
        }
        if class.truncated {
            out.push_str("  …\n");
        }
    }
    out
}

fn problems(problems: &[WhatIfProblem]) -> String {
    let shown = problems.iter().map(|problem| {
        let proxies = match problem.count {
            0 | 1 => line(&problem.proxy),
            count => format!("{} and {} alike", line(&problem.proxy), count - 1),
        };
        format!("{proxies}: {} ({})\n", line(&problem.text), line(&problem.code))
    });
    let shown: String = shown.collect();
    if shown.is_empty() { shown } else { format!("\nWhat proxies could not do:\n\n{shown}") }
}

fn edges(edges: &WhatIfEdges) -> String {
    let listed = |title: &str, list: &[WhatIfEdge]| -> String {
        let rows = list.iter().map(|edge| {
            let to = format!("{}:{}", line(&edge.to), line(&edge.inbound));
            let verdicts = format!("{} → {}", verdict(edge.before), verdict(edge.after));
            vec![line(&edge.mesh), line(&edge.from), to, verdicts, line(&edge.reason)]
        });
        let rows: Vec<Vec<String>> = rows.collect();
        if rows.is_empty() {
            return String::new();
        }
        format!("\n{title}\n\n{}", output::table(&["MESH", "FROM", "TO", "ACCESS", "REASON"], rows))
    };
    let mut out = listed("Who could call, and cannot now:", &edges.opened);
    out.push_str(&listed("Who can call now, and could not any more:", &edges.closed));
    if edges.truncated {
        out.push_str("\nThe list of allowed and denied calls may be incomplete.\n");
    }
    out
}

fn verdict(verdict: Option<AccessVerdict>) -> &'static str {
    match verdict {
        Some(AccessVerdict::Allowed) => "Allowed",
        Some(AccessVerdict::Denied) => "Denied",
        Some(AccessVerdict::Mixed) => "Mixed",
        None => "-",
    }
}

fn policies(policies: &[WhatIfPolicy]) -> String {
    let shown = policies.iter().map(|policy| {
        format!("{}: {}\n", labelled(&policy.r#type, &policy.name, &policy.mesh), line(&policy.text))
    });
    let shown: String = shown.collect();
    if shown.is_empty() { shown } else { format!("\nPolicies that would have no effect:\n\n{shown}") }
}

/// Things that the answer says nothing about.
fn not_looked_at(left_out: &[String]) -> String {
    let shown: String = left_out.iter().map(|what| format!("  {}\n", line(what))).collect();
    if shown.is_empty() {
        shown
    } else {
        format!("\nThis answer is incomplete, because the work for one question is limited:\n\n{shown}")
    }
}

fn diffs(diffs: &[WhatIfDiff]) -> String {
    let mut out = String::new();
    for diff in diffs {
        out.push_str(&format!("\n{}:\n{}", line(&diff.name), patch(&diff.patch)));
    }
    out
}

/// A step of a JSON patch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PatchOperation {
    op: String,
    path: String,
    value: Value,
}

/// A JSON patch for a reader: what goes and what comes, each with its place.
pub fn patch(patch: &[Value]) -> String {
    let mut out = String::new();
    let mut place = String::new();
    for operation in patch {
        let PatchOperation { op, path, value } = document::parts(operation);
        let path = line(&path);
        let sign = match op.as_str() {
            "test" => '-',
            "add" | "replace" => '+',
            _ => continue,
        };
        if path != place {
            out.push_str(&format!("@ {path}\n"));
            place = path;
        }
        out.push_str(&format!("{sign} {value}\n"));
    }
    out
}
