//! Asks the control plane whether it accepts every resource of the input, before the first is written. Writes are
//! independent of each other, so a refusal in the middle would leave half of the input applied.

use std::collections::BTreeMap;

use contract::what_if::{WhatIf, WhatIfRefusal};
use resources::Kind;
use serde_json::Value;

use super::plan::PlannedResource;
use crate::{
    client::ApiClient,
    failure::{Failure, Result},
    types::DEFAULT_MESH,
    what_if::{self, RefusalReason},
};

/// Largest number of resources in one question. The meshes that they are in come on top of it, and together they stay
/// below the most that a control plane answers at once. The meshes of what is asked come on top of it, and together
/// they stay below what a control plane answers at once.
const MOST: usize = 500;
const MOST_BYTES: usize = 1024 * 1024;

/// Refuses input of which the control plane would refuse a part. One resource is not asked about: nothing is written
/// when it is refused.
pub fn check(planned: &[PlannedResource], client: &ApiClient) -> Result<()> {
    if planned.len() < 2 {
        return Ok(());
    }
    let mut refusals = Vec::new();
    for asked in questions(planned) {
        match ask(&asked, client)? {
            Some(answer) => refusals.extend(refused(&asked, &answer)),
            // Kuma has no such question: it says what it refuses when it is written.
            None => return Ok(()),
        }
    }
    if refusals.is_empty() {
        return Ok(());
    }
    let refusals = refusals.join("\n");
    Err(Failure::failed(format!("the control plane would refuse this, nothing was written\n{refusals}")))
}

/// The input in parts that can be asked about at once, each with those meshes of the input that it needs.
fn questions(planned: &[PlannedResource]) -> Vec<Vec<&PlannedResource>> {
    let is_mesh = |planned: &&PlannedResource| planned.draft.kind() == Kind::Mesh;
    let meshes: BTreeMap<&str, &PlannedResource> =
        planned.iter().filter(is_mesh).map(|mesh| (&*mesh.draft.key.name, mesh)).collect();
    let mut parts: Vec<Vec<&PlannedResource>> = Vec::new();
    let mut bytes = 0;
    for resource in planned {
        let size = resource.body.to_string().len();
        match parts.last_mut().filter(|part| part.len() < MOST && bytes + size <= MOST_BYTES) {
            Some(part) => part.push(resource),
            None => {
                parts.push(vec![resource]);
                bytes = 0;
            }
        }
        bytes += size;
    }
    for part in &mut parts {
        let mut missing: BTreeMap<&str, &PlannedResource> = BTreeMap::new();
        for resource in part.iter() {
            missing.extend(meshes.get_key_value(&*resource.draft.key.mesh));
        }
        for mesh in part.iter().filter(|resource| is_mesh(resource)) {
            missing.remove(&*mesh.draft.key.name);
        }
        part.splice(0..0, missing.into_values());
    }
    parts
}

/// The answer, or nothing where the control plane does not answer such questions.
fn ask(asked: &[&PlannedResource], client: &ApiClient) -> Result<Option<WhatIf>> {
    let resources: Vec<&Value> = asked.iter().map(|planned| &planned.body).collect();
    let reply = client.admission(DEFAULT_MESH, &resources)?;
    if matches!(reply.answer.status, 404 | 405) {
        return Ok(None);
    }
    reply.read("nothing was written, because the control plane could not check it").map(Some)
}

/// A line for each reason, at the line of its field.
fn refused(asked: &[&PlannedResource], answer: &WhatIf) -> Vec<String> {
    let of = |refusal: &WhatIfRefusal| {
        let place = &refusal.place;
        let at =
            place.strip_prefix("resources[").and_then(|rest| rest.strip_suffix(']')?.parse::<usize>().ok());
        let resource = at.and_then(|at| asked.get(at).copied());
        what_if::reasons(refusal).into_iter().map(move |RefusalReason { field, text }| match resource {
            Some(resource) => format!("{}: {text}", resource.at(&field)),
            None => text,
        })
    };
    answer.refused.iter().flat_map(of).collect()
}
