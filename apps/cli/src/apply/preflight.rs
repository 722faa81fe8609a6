//! Asks the control plane whether it accepts every resource of the input, before the first is written. Writes are
//! independent of each other, so a refusal in the middle would leave half of the input applied.

use std::collections::BTreeMap;

use resources::Kind;
use serde_json::{Value, json};

use super::plan::Planned;
use crate::{
    client::{Client, segment},
    failure::{Failure, Result},
    types::DEFAULT_MESH,
    what_if,
};

/// How much one question is about at most. The meshes of what is asked come on top of it, and together they stay below
/// what a control plane answers at once.
const MOST: usize = 500;
const MOST_BYTES: usize = 1024 * 1024;

/// Refuses input of which the control plane would refuse a part. One resource is not asked about: nothing is written
/// when it is refused.
pub fn check(planned: &[Planned], client: &Client) -> Result<()> {
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
fn questions(planned: &[Planned]) -> Vec<Vec<&Planned>> {
    let is_mesh = |planned: &&Planned| planned.draft.kind() == Kind::Mesh;
    let meshes: BTreeMap<&str, &Planned> =
        planned.iter().filter(is_mesh).map(|mesh| (&*mesh.draft.key.name, mesh)).collect();
    let mut parts: Vec<Vec<&Planned>> = Vec::new();
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
        let mut missing: BTreeMap<&str, &Planned> = BTreeMap::new();
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
fn ask(asked: &[&Planned], client: &Client) -> Result<Option<Value>> {
    let resources: Vec<&Value> = asked.iter().map(|planned| &planned.body).collect();
    let path = format!("/meshes/{}/_what-if?only=admission", segment(DEFAULT_MESH));
    let answer = client.post(&path, &json!({ "resources": resources }))?;
    if matches!(answer.status, 404 | 405) {
        return Ok(None);
    }
    answer.json("nothing was written, because the control plane could not check it").map(Some)
}

/// A line for each reason, at the line of its field.
fn refused(asked: &[&Planned], answer: &Value) -> Vec<String> {
    let of = |refusal: &Value| {
        let place = refusal["place"].as_str().unwrap_or_default();
        let at =
            place.strip_prefix("resources[").and_then(|rest| rest.strip_suffix(']')?.parse::<usize>().ok());
        let resource = at.and_then(|at| asked.get(at).copied());
        what_if::reasons(refusal).into_iter().map(move |(field, reason)| match resource {
            Some(resource) => format!("{}: {reason}", resource.at(&field)),
            None => reason,
        })
    };
    answer["refused"].as_array().into_iter().flatten().flat_map(of).collect()
}
