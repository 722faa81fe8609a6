//! Findings of a mesh: their selection and their presentation.

use api::{CurrentFindings, FindingFilter, InspectError, Settings};
use resources::finding::{Code, Finding};
use serde_json::{Value, json};

use crate::world::{World, zone};

/// Two findings, whatever the mesh.
#[derive(Debug)]
pub struct FakeFindings;

#[async_trait::async_trait]
impl CurrentFindings for FakeFindings {
    async fn of_mesh(&self, mesh: &str, wanted: &FindingFilter) -> Result<Vec<Finding>, InspectError> {
        let kri = |text: &str| text.parse().unwrap();
        let mut found = vec![
            Finding::about(Code::PortConflict, kri("kri_dp_default___web_"), format!("taken in {mesh}")),
            Finding::about(Code::Shadowed, kri("kri_mt_default___b_"), "overridden"),
        ];
        found.retain(|finding| wanted.has(finding));
        Ok(found)
    }

    async fn of_virtual_outbound(&self, mesh: &str, name: &str) -> Vec<String> {
        if name == "late" { vec![format!("{name} comes too late in {mesh}")] } else { Vec::new() }
    }
}

#[tokio::test]
async fn problems_are_filtered_cut_and_explained() {
    let world = World::with(zone(), Settings::default()).await;
    let check = async |query: &str, total: u64, codes: &[&str]| {
        let answer = world.get(&format!("/meshes/default/_problems{query}")).await.expect(200).json();
        let shown: Vec<Value> = codes.iter().map(|code| json!(code)).collect();
        let items = answer["items"].as_array().unwrap();
        let found: Vec<Value> = items.iter().map(|item| item["code"].clone()).collect();
        assert_eq!((&answer["total"], found), (&json!(total), shown), "{query}");
        items.first().cloned().unwrap_or_default()
    };
    let first = check("", 2, &["port-conflict", "shadowed"]).await;
    assert_eq!(first["severity"], "error");
    assert_eq!(first["kri"], "kri_dp_default___web_");
    assert_eq!(first["message"], "taken in default");
    assert_eq!(first["reference"], "docs/reference/findings.md#port-conflict");
    assert_eq!(first["fix"], Code::PortConflict.fix());
    check("?severity=error", 1, &["port-conflict"]).await;
    check("?code=shadowed", 1, &["shadowed"]).await;
    check("?kri=kri_mt_default___b_", 1, &["shadowed"]).await;
    check("?size=1&offset=1", 2, &["shadowed"]).await;
    let page = world.get("/meshes/default/_problems?size=1&severity=info").await.expect(200).json();
    let next = page["next"].as_str().unwrap();
    assert!(next.ends_with("/meshes/default/_problems?offset=1&severity=info&size=1"), "{next}");
    let last = world.get("/meshes/default/_problems?size=1&offset=1").await.expect(200).json();
    assert_eq!(last.get("next"), None);
    for (query, reason) in [
        ("?severity=bad", "bad request: severity \"bad\" is not known: it is `info`, `warning` or `error`"),
        ("?code=bad", "bad request: code \"bad\" is not known: docs/reference/findings.md lists all of them"),
    ] {
        let refused = world.get(&format!("/meshes/default/_problems{query}")).await.expect(400).json();
        assert_eq!(refused["detail"], reason);
    }
    world.get("/meshes/other/_problems").await.expect(404);
}

#[tokio::test]
async fn the_author_of_a_virtual_outbound_is_warned_of_claimed_hostnames() {
    let world = World::with(zone(), Settings::default()).await;
    for (name, expected) in [("late", json!(["late comes too late in default"])), ("first", Value::Null)] {
        let parameters = json!([{ "name": "service", "tagKey": "kuma.io/service" }]);
        let body = json!({
            "type": "VirtualOutbound", "mesh": "default", "name": name,
            "selectors": [{ "match": { "kuma.io/service": "*" } }],
            "conf": { "host": "{{.service}}.mesh", "port": "80", "parameters": parameters },
        });
        let path = format!("/meshes/default/virtual-outbounds/{name}");
        let answer = world.put(&path, &body).await.expect(201).json();
        assert_eq!(answer.get("warnings").cloned().unwrap_or_default(), expected, "{name}");
    }
}
