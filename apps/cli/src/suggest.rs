//! `suggest permissions`: what to write before everything else is refused.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::{
    cell::{number, text},
    client::{Client, query_value, segment},
    failure::Result,
    output::{self, TableFormat},
    terminal,
    types::DEFAULT_MESH,
};

#[derive(Debug, Subcommand)]
pub enum Suggest {
    Permissions(Permissions),
}

/// Suggest MeshTrafficPermissions for the calls that were seen
///
/// Proxies report what they call. For every call that no rule mentions there is a permission, for exactly
/// the called proxies and exactly the client; permissions that allow everyone are treated as deleted. A call
/// that a rule denies stays denied and is listed on stderr, like everything else that these suggestions may
/// lack. The YAML can be piped
/// into `kumactl apply -f -`; who called is in its comments.
#[derive(Debug, Args)]
pub struct Permissions {
    /// Mesh of the calls
    #[arg(short, long, default_value = DEFAULT_MESH)]
    mesh: String,
    /// Only what calls this need: the name of a MeshService, a value of kuma.io/service or a KRI
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Form of the output
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "yaml")]
    format: TableFormat,
}

impl Suggest {
    pub fn run(&self, client: &Client) -> Result<()> {
        let Suggest::Permissions(permissions) = self;
        permissions.run(client)
    }
}

impl Permissions {
    fn run(&self, client: &Client) -> Result<()> {
        let answer = ask(client, &self.mesh, self.service.as_deref())?;
        warnings(&answer).iter().for_each(|warning| terminal::warn(warning));
        let permissions = items(&answer["permissions"]);
        if permissions.is_empty() {
            let allowed = match number(&answer["alreadyAllowed"]) {
                1 => "1 observed call is".to_owned(),
                allowed => format!("{allowed} observed calls are"),
            };
            terminal::talk(&format!("nothing to suggest: {allowed} allowed already"));
        }
        let text = match self.format {
            TableFormat::Yaml => documents(permissions),
            TableFormat::Json => output::json(&answer),
            TableFormat::Table => table(permissions),
        };
        Ok(terminal::data(&text)?)
    }
}

/// What the control plane suggests.
pub fn ask(client: &Client, mesh: &str, service: Option<&str>) -> Result<Value> {
    let query = service.map(|service| format!("?service={}", query_value(service))).unwrap_or_default();
    let path = format!("/meshes/{}/_suggestions{query}", segment(mesh));
    client.get(&path)?.json(&format!("could not get suggestions for mesh {mesh:?}"))
}

/// What suggestions lack, in sentences.
pub fn warnings(answer: &Value) -> Vec<String> {
    let mut said: Vec<String> = items(&answer["warnings"]).iter().map(text).collect();
    said.extend(items(&answer["denied"]).iter().map(denial));
    let unseen = items(&answer["unseen"]).iter().map(text);
    said.extend(
        unseen
            .map(|it| format!("{it} was called by no one: once all else is refused, no client can call it")),
    );
    said
}

/// A call that stays refused.
pub fn denial(call: &Value) -> String {
    let now = if call["getsThrough"] == true { "; some of these calls get through now" } else { "" };
    format!(
        "{} called {} (calls: {}, last {}); {} denies it, and no suggestion allows it{now}",
        text(&call["caller"]),
        text(&call["destination"]),
        number(&call["count"]),
        text(&call["lastSeen"]),
        text(&call["policy"])
    )
}

/// Permissions as YAML, with who called in comments.
pub fn documents(permissions: &[Value]) -> String {
    let documents = permissions.iter().map(|permission| {
        let seen = items(&permission["evidence"]).iter().map(evidence);
        let notes = items(&permission["notes"]).iter().map(|note| format!("note: {}", text(note)));
        let comments = seen.chain(notes).map(|line| format!("# {line}\n"));
        format!("{}{}", comments.collect::<String>(), output::yaml(&permission["resource"]))
    });
    documents.collect::<Vec<String>>().join("---\n")
}

fn evidence(call: &Value) -> String {
    format!(
        "{} called {} (calls: {}, first {}, last {}){}",
        text(&call["caller"]),
        text(&call["destination"]),
        number(&call["count"]),
        text(&call["firstSeen"]),
        text(&call["lastSeen"]),
        if call["refused"] == true { "; it is refused now" } else { "" }
    )
}

fn table(permissions: &[Value]) -> String {
    let mut rows = Vec::new();
    for permission in permissions {
        for call in items(&permission["evidence"]) {
            rows.push(vec![
                text(&permission["resource"]["name"]),
                text(&call["caller"]),
                text(&call["destination"]),
                number(&call["count"]).to_string(),
                text(&call["firstSeen"]),
                text(&call["lastSeen"]),
            ]);
        }
    }
    output::table(&["PERMISSION", "CALLER", "DESTINATION", "CALLS", "FIRST SEEN", "LAST SEEN"], rows)
}

pub fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}
