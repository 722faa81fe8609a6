//! `migrate policies`: what Kuma's policies from before `targetRef` become. `migrate permissions`: a whole mesh.

mod callers;
mod calls;
mod legacy;
mod meshes;
mod observability;
mod permissions;
mod route;
mod selector;
mod services;

use clap::{Args, Subcommand};
use resources::{
    format::{self, kubernetes},
    superseded,
};
use serde_json::{Value, json};

use crate::{
    apply,
    cli::Global,
    config::ClientSettings,
    failure::{CommandResult, Failure, Result},
    output, terminal,
};
use legacy::{Legacy, Translation};
use meshes::Meshes;

#[derive(Debug, Subcommand)]
pub enum Migrate {
    Policies(Policies),
    Permissions(permissions::MigratePermissions),
}

const MEANING: &str = "\
Exit codes:
  0  everything was translated
  4  something has no exact equivalent; stderr says what and why";

/// Translate policies from before targetRef into their successors
///
/// Reads YAML or JSON in Universal or Kubernetes form and writes YAML in the same form to stdout. Warnings on stderr
/// name what has no equivalent, and where the meaning of the translation differs. Other resources of the input are
/// left out. TrafficLog and TrafficTrace need their Mesh, which holds their backends: it is taken from the input or,
/// with --control-plane, from there. Otherwise no control plane is asked.
#[derive(Debug, Args)]
#[command(after_help = MEANING)]
pub struct Policies {
    /// File, directory, URL, or - for stdin; repeatable
    #[arg(short, long = "file", value_name = "SOURCE")]
    files: Vec<String>,
    /// Read directories below the given ones, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Take Meshes that are not in the input from the control plane
    #[arg(long)]
    control_plane: bool,
}

impl Migrate {
    pub fn run(&self, global: &Global) -> Result<CommandResult> {
        match self {
            Migrate::Policies(policies) => policies.run(global),
            Migrate::Permissions(permissions) => permissions.run(global),
        }
    }
}

impl Policies {
    fn run(&self, global: &Global) -> Result<CommandResult> {
        let documents = apply::documents(&self.files, self.recursive, global.api_timeout)?;
        let client = self.control_plane.then(|| ClientSettings::load(global)?.client()).transpose()?;
        let mut meshes = Meshes::of(documents.iter().map(|(_, value)| value), client);
        let mut written = Vec::new();
        let mut outcome = CommandResult::Done;
        let mut found = false;
        for (place, value) in &documents {
            let Some(legacy) = Legacy::of(value) else { continue };
            found = true;
            let Translation { policies, notes } = translate(&legacy, &mut meshes);
            let (policies, wrong) = checked(&legacy, policies);
            for note in notes.iter().chain(&wrong) {
                terminal::warn(&format!("{place}: {} {:?}: {note}", legacy.kind, legacy.name));
                outcome = CommandResult::Partly;
            }
            written.extend(policies.iter().map(output::yaml));
        }
        if !found {
            return Err(Failure::invalid("the input holds no policies from before targetRef"));
        }
        terminal::data(&written.join("---\n"))?;
        Ok(outcome)
    }
}

/// Translates a policy into specs with their types.
fn translate(legacy: &Legacy<'_>, meshes: &mut Meshes) -> Translation {
    match legacy.kind {
        "TrafficPermission" => callers::translate(legacy),
        "FaultInjection" => callers::fault_injection(legacy),
        "RateLimit" => callers::rate_limit(legacy),
        "TrafficRoute" => route::translate(legacy),
        "Timeout" => calls::timeout(legacy),
        "Retry" => calls::retry(legacy),
        "CircuitBreaker" => calls::circuit_breaker(legacy),
        "HealthCheck" => calls::health_check(legacy),
        "ExternalService" => services::external(legacy),
        "ProxyTemplate" => services::proxy_template(legacy),
        "TrafficLog" => observability::traffic_log(legacy, meshes),
        "TrafficTrace" => observability::traffic_trace(legacy, meshes),
        other => {
            let why = superseded::by_name(other).map(superseded::Superseded::refusal);
            Translation::nothing(why.unwrap_or_default())
        }
    }
}

/// The resources made of specs that this client can read back and finds nothing wrong with, and what is wrong with
/// the others. Of a kind that is not known here yet nothing can be said.
fn checked(legacy: &Legacy<'_>, policies: Vec<(&'static str, Value)>) -> (Vec<Value>, Vec<String>) {
    let mut good = Vec::new();
    let mut wrong = Vec::new();
    let several = |kind: &str| policies.iter().filter(|(other, _)| *other == kind).count() > 1;
    let mut count = 0;
    for (kind, spec) in &policies {
        count += 1;
        let name = if several(kind) { format!("{}-{count}", legacy.name) } else { legacy.name.clone() };
        let resource = resource(legacy, kind, &name, spec.clone());
        match format::parse(resource.clone()) {
            Ok(parsed) => {
                let violations: Vec<_> = parsed.draft.validate().into_vec();
                if violations.is_empty() {
                    good.push(resource);
                } else {
                    let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
                    wrong.push(format!("{kind} would not be valid: {}", texts.join("; ")));
                }
            }
            Err(format::Error::UnknownKind { .. }) => good.push(resource),
            Err(error) => wrong.push(format!("{kind} would not be valid: {error}")),
        }
    }
    (good, wrong)
}

/// A resource in the form of the one it replaces.
fn resource(legacy: &Legacy<'_>, kind: &str, name: &str, spec: Value) -> Value {
    if legacy.kubernetes {
        return json!({
            "apiVersion": kubernetes::API_VERSION,
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": kubernetes::SYSTEM_NAMESPACE,
                "labels": { resources::labels::MESH: legacy.mesh },
            },
            "spec": spec,
        });
    }
    json!({ "type": kind, "mesh": legacy.mesh, "name": name, "spec": spec })
}
