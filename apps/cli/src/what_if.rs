//! What applying something would do, computed by the control plane: for `apply --dry-run=server` and `diff`.

use resources::{Kind, Scope};
use serde_json::{Value, json};

use crate::{
    apply::plan::Planned,
    cell::{self, Column, number, text},
    client::{Client, query_value, segment},
    failure::{Failure, Result},
    output,
    target::Target,
    types::DEFAULT_MESH,
};

/// What is asked.
pub struct Question<'a> {
    pub planned: &'a [Planned],
    pub deletions: &'a [Target],
    /// The mesh to ask about where no resource says one.
    pub mesh: &'a str,
    /// The proxies whose configuration is shown as a difference; `*` for all.
    pub proxies: &'a [String],
}

impl Question<'_> {
    /// Asks the control plane. What it would refuse is a failure.
    pub fn ask(&self, client: &Client) -> Result<Value> {
        let resources: Vec<&Value> = self.planned.iter().map(|planned| &planned.body).collect();
        let delete = self.deletions.iter().map(|Target { kind, mesh, name }| {
            let mut deletion = json!({ "type": kind.name, "name": name });
            if kind.in_mesh {
                deletion["mesh"] = json!(mesh);
            }
            deletion
        });
        let body = json!({ "resources": resources, "delete": delete.collect::<Vec<_>>() });
        let diffs: Vec<String> =
            self.proxies.iter().map(|name| format!("diff={}", query_value(name))).collect();
        let query = if diffs.is_empty() { String::new() } else { format!("?{}", diffs.join("&")) };
        let path = format!("/meshes/{}/_what-if{query}", segment(&self.about()));
        let attempted = "could not determine what this would do";
        let answer = client.post(&path, &body)?.json(attempted)?;
        if !answer["changes"].is_array() {
            return Err(Failure::failed(format!("{attempted}: the answer has no changes")));
        }
        match refusals(&answer) {
            None => Ok(answer),
            Some(refusals) => {
                Err(Failure::failed(format!("the control plane would refuse this\n{refusals}")))
            }
        }
    }

    /// The mesh that the question is put to.
    fn about(&self) -> String {
        let in_mesh = |planned: &&Planned| planned.draft.kind().descriptor().scope == Scope::Mesh;
        let is_mesh = |planned: &&Planned| planned.draft.kind() == Kind::Mesh;
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

/// Whether anything would be different.
pub fn differs(answer: &Value) -> bool {
    each(&answer["changes"]).any(|change| change["action"] != "unchanged")
}

/// Warnings of the control plane, which would accept everything.
pub fn warnings(answer: &Value) -> Vec<String> {
    let of = |change: &Value| -> Vec<String> {
        each(&change["warnings"]).map(|warning| format!("{}: {}", label(change), text(warning))).collect()
    };
    each(&answer["changes"]).flat_map(of).collect()
}

/// The answer for a reader.
pub fn table(answer: &Value) -> String {
    let mut out = String::new();
    for change in each(&answer["changes"]) {
        let action = match change["action"].as_str() {
            Some("create") => "would be created",
            Some("update") => "would be updated",
            Some("delete") => "would be deleted",
            _ => "is unchanged",
        };
        out.push_str(&format!("{} {action}\n", label(change)));
    }
    out + &proxies(&answer["proxies"])
        + &problems(&answer["problems"])
        + &edges(&answer["edges"])
        + &policies(&answer["policies"])
        + &not_looked_at(&answer["notLookedAt"])
        + &diffs(&answer["proxies"]["diffs"])
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `MeshTimeout "slow" in mesh "default"`.
fn label(of: &Value) -> String {
    let (kind, name, mesh) = (text(&of["type"]), text(&of["name"]), text(&of["mesh"]));
    if mesh.is_empty() { format!("{kind} {name:?}") } else { format!("{kind} {name:?} in mesh {mesh:?}") }
}

fn refusals(answer: &Value) -> Option<String> {
    let told: Vec<String> = each(&answer["refused"]).flat_map(reasons).map(|(_, reason)| reason).collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

/// Why a resource would be refused: fields, each with a sentence that names the resource. What is not about a field has
/// none.
pub fn reasons(of: &Value) -> Vec<(String, String)> {
    let (problem, label) = (&of["problem"], label(of));
    let causes: Vec<(String, String)> = each(&problem["invalid_parameters"])
        .map(|cause| {
            let field = text(&cause["field"]);
            let reason = format!("{label}: {field}: {}", text(&cause["reason"]));
            (field, reason)
        })
        .collect();
    match causes.is_empty() {
        true => {
            let reason = format!("{label}: {}: {}", text(&problem["title"]), text(&problem["detail"]));
            vec![(String::new(), reason)]
        }
        false => causes,
    }
}

const CLASSES: [Column; 6] = [
    ("MESH", |class| text(&class["mesh"])),
    ("PROXIES", |class| match (text(&class["proxies"][0]), number(&class["count"])) {
        (first, 0 | 1) => first,
        (first, count) => format!("{first} and {} alike", count - 1),
    }),
    ("ADDED", |class| text(&class["added"])),
    ("CHANGED", |class| text(&class["changed"])),
    ("REMOVED", |class| text(&class["removed"])),
    ("BYTES", |class| format!("{} → {}", text(&class["bytesBefore"]), text(&class["bytesAfter"]))),
];

fn proxies(proxies: &Value) -> String {
    let count = |field: &str| number(&proxies[field]);
    let (connected, affected, compared, changed) =
        (count("connected"), count("affected"), count("compared"), count("changed"));
    if changed == 0 && compared == affected {
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
    let (titles, rows) = cell::grid(&CLASSES, each(&proxies["classes"]));
    out.push_str(&output::table(&titles, rows));
    for class in each(&proxies["classes"]) {
        out.push_str(&format!("\n{}:\n", text(&class["proxies"][0])));
        for resource in each(&class["resources"]) {
            let sign = match resource["action"].as_str() {
                Some("added") => '+',
                Some("removed") => '-',
                _ => '~',
            };
            out.push_str(&format!("  {sign} {} {}\n", text(&resource["type"]), text(&resource["name"])));
        }
        if class["truncated"] == true {
            out.push_str("  …\n");
        }
    }
    out
}

fn problems(problems: &Value) -> String {
    let lines = each(problems).map(|problem| {
        let proxies = match number(&problem["count"]) {
            0 | 1 => text(&problem["proxy"]),
            count => format!("{} and {} alike", text(&problem["proxy"]), count - 1),
        };
        format!("{proxies}: {} ({})\n", text(&problem["text"]), text(&problem["code"]))
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\nWhat proxies could not do:\n\n{lines}") }
}

fn edges(edges: &Value) -> String {
    let listed = |title: &str, list: &Value| -> String {
        let rows = each(list).map(|edge| {
            let was = |verdict: &Value| if verdict.is_null() { "-".to_owned() } else { text(verdict) };
            let to = format!("{}:{}", text(&edge["to"]), text(&edge["inbound"]));
            let verdicts = format!("{} → {}", was(&edge["before"]), was(&edge["after"]));
            vec![text(&edge["mesh"]), text(&edge["from"]), to, verdicts, text(&edge["reason"])]
        });
        let rows: Vec<Vec<String>> = rows.collect();
        if rows.is_empty() {
            return String::new();
        }
        format!("\n{title}\n\n{}", output::table(&["MESH", "FROM", "TO", "ACCESS", "REASON"], rows))
    };
    let mut out = listed("Who could call, and cannot now:", &edges["opened"]);
    out.push_str(&listed("Who can call now, and could not any more:", &edges["closed"]));
    if edges["truncated"] == true {
        out.push_str("\nThe list of allowed and denied calls may be incomplete.\n");
    }
    out
}

fn policies(policies: &Value) -> String {
    let lines = each(policies).map(|policy| format!("{}: {}\n", label(policy), text(&policy["text"])));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\nPolicies that would have no effect:\n\n{lines}") }
}

/// What the answer says nothing about.
fn not_looked_at(left_out: &Value) -> String {
    let lines: String = each(left_out).map(|what| format!("  {}\n", text(what))).collect();
    if lines.is_empty() {
        lines
    } else {
        format!("\nThis answer is incomplete, because the work for one question is limited:\n\n{lines}")
    }
}

fn diffs(diffs: &Value) -> String {
    let mut out = String::new();
    for diff in each(diffs) {
        out.push_str(&format!("\n{}:\n{}", text(&diff["name"]), patch(&diff["patch"])));
    }
    out
}

/// A JSON patch for a reader: what goes and what comes, each with its place.
pub fn patch(patch: &Value) -> String {
    let mut out = String::new();
    let mut place = String::new();
    for operation in each(patch) {
        let path = text(&operation["path"]);
        let sign = match operation["op"].as_str() {
            Some("test") => '-',
            Some("add" | "replace") => '+',
            _ => continue,
        };
        if path != place {
            out.push_str(&format!("@ {path}\n"));
            place = path;
        }
        out.push_str(&format!("{sign} {}\n", operation["value"]));
    }
    out
}
