//! `suggest permissions`: what to write before everything else is refused.

use clap::{Args, Subcommand};
use contract::{
    lenient::read_partly,
    resource::Metadata,
    suggestions::{DeniedCall, SeenCall, SuggestedPermission, Suggestions},
};

use crate::{
    cell::line,
    client::{ApiClient, Document},
    failure::Result,
    output::{self, TableFormat},
    terminal,
    types::DEFAULT_MESH,
};

#[derive(Debug, Subcommand)]
pub enum Suggest {
    Permissions(SuggestPermissions),
}

/// Suggest MeshTrafficPermissions for the calls that were seen
///
/// Proxies report what they call. For every call that no rule mentions there is a permission, for exactly
/// the called proxies and exactly the client; permissions that allow everyone are treated as deleted. A call
/// that a rule denies stays denied and is listed on stderr, like everything else that these suggestions may
/// lack. The YAML can be piped
/// into `kumactl apply -f -`; who called is in its comments.
#[derive(Debug, Args)]
pub struct SuggestPermissions {
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
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let Suggest::Permissions(permissions) = self;
        permissions.run(client)
    }
}

impl SuggestPermissions {
    fn run(&self, client: &ApiClient) -> Result<()> {
        let Document { sent, read } = ask(client, &self.mesh, self.service.as_deref())?;
        warnings(&read).iter().for_each(|warning| terminal::warn(warning));
        if read.permissions.is_empty() {
            let allowed = match read.already_allowed {
                1 => "1 observed call is".to_owned(),
                allowed => format!("{allowed} observed calls are"),
            };
            terminal::talk(&format!("nothing to suggest: {allowed} allowed already"));
        }
        let text = match self.format {
            TableFormat::Yaml => documents(&read.permissions),
            TableFormat::Json => output::json(&sent),
            TableFormat::Table => table(&read.permissions),
        };
        Ok(terminal::data(&text)?)
    }
}

/// Suggestions of the control plane.
pub fn ask(client: &ApiClient, mesh: &str, service: Option<&str>) -> Result<Document<Suggestions>> {
    client.suggestions(mesh, service)?.document(&format!("could not get suggestions for mesh {mesh:?}"))
}

/// Gaps of suggestions, in sentences.
pub fn warnings(answer: &Suggestions) -> Vec<String> {
    let mut said: Vec<String> = answer.warnings.iter().map(|warning| line(warning)).collect();
    said.extend(answer.denied.iter().map(denial));
    said.extend(answer.unseen.iter().map(|it| {
        format!("{} was called by no one: once all else is refused, no client can call it", line(it))
    }));
    said
}

/// A call that stays refused.
pub fn denial(call: &DeniedCall) -> String {
    let now = if call.gets_through { "; some of these calls get through now" } else { "" };
    format!(
        "{} called {} (calls: {}, last {}); {} denies it, and no suggestion allows it{now}",
        line(&call.caller),
        line(&call.destination),
        call.count,
        line(&call.last_seen),
        line(&call.policy)
    )
}

/// Permissions as YAML, with who called in comments.
pub fn documents<'a>(permissions: impl IntoIterator<Item = &'a SuggestedPermission>) -> String {
    let documents = permissions.into_iter().map(|permission| {
        let seen = permission.evidence.iter().map(evidence);
        let notes = permission.notes.iter().map(|note| format!("note: {}", line(note)));
        let comments = seen.chain(notes).map(|line| format!("# {line}\n"));
        format!("{}{}", comments.collect::<String>(), output::yaml(&permission.resource))
    });
    documents.collect::<Vec<String>>().join("---\n")
}

fn evidence(call: &SeenCall) -> String {
    format!(
        "{} called {} (calls: {}, first {}, last {}){}",
        line(&call.caller),
        line(&call.destination),
        call.count,
        line(&call.first_seen),
        line(&call.last_seen),
        if call.refused { "; it is refused now" } else { "" }
    )
}

fn table(permissions: &[SuggestedPermission]) -> String {
    let mut rows = Vec::new();
    for permission in permissions {
        for call in &permission.evidence {
            rows.push(vec![
                line(&read_partly::<Metadata>(&permission.resource).name),
                line(&call.caller),
                line(&call.destination),
                call.count.to_string(),
                line(&call.first_seen),
                line(&call.last_seen),
            ]);
        }
    }
    output::table(&["PERMISSION", "CALLER", "DESTINATION", "CALLS", "FIRST SEEN", "LAST SEEN"], rows)
}
