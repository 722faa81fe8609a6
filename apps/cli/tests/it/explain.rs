//! `explain`: fields, their types and what they mean, without a control plane.

use resources::Kind;
use serde_json::{Value, json};

use crate::program::Program;

#[test]
fn a_field_is_explained_with_its_type_and_the_fields_below() {
    let program = Program::new();
    let ran = program.run(&["explain", "meshtimeout.spec.to"]).ok();
    assert_eq!(ran.lines()[..2], ["TYPE:   MeshTimeout", "FIELD:  spec.to <[]object>"]);
    assert!(
        ran.out.contains(
            "\n  targetRef <object> required\n    The destinations (in `to`) or clients (in `from`)"
        ),
        "{ran:#?}"
    );
    assert!(ran.out.contains("\n  default <object>\n"), "{ran:#?}");
    // The spec may be left out, and so may the brackets of lists.
    let short = program.run(&["explain", "mt.to[].targetRef.kind"]).ok();
    assert_eq!(short.lines()[1], "FIELD:  spec.to.targetRef.kind <string> required");
    assert!(short.out.contains("One of: Mesh, MeshSubset, "), "{short:#?}");
    let tags = program.run(&["explain", "dataplane.networking.inbound.tags"]).ok();
    assert_eq!(tags.lines()[1], "FIELD:  networking.inbound.tags <map[string]string>");
}

#[test]
fn every_field_has_a_meaning() {
    let program = Program::new();
    let json = program.run(&["explain", "meshtimeout.spec.to.default.http", "-o", "json"]).ok().json();
    for field in json["fields"].as_array().unwrap() {
        assert!(field["description"].as_str().is_some_and(|text| text.starts_with("Longest")), "{field}");
    }
    let ran = program.run(&["explain", "meshtimeout.spec.to.default.http.requestTimeout"]).ok();
    assert!(ran.out.contains("\nLongest time for the whole response; 15s by default"), "{ran:#?}");
}

#[test]
fn descriptions_are_wrapped_anew_and_zeros_of_the_schema_are_left_out() {
    let program = Program::new();
    let ran = program.run(&["explain", "meshretry.spec.to.default.http"]).ok();
    let lines = ran.lines();
    let start = lines.iter().position(|line| line.starts_with("  retryOn ")).unwrap() + 1;
    let text: Vec<&str> =
        lines[start..].iter().take_while(|line| line.starts_with("    ")).copied().collect();
    let (last, full) = text.split_last().unwrap();
    assert!(last.ends_with("refused streams."), "{text:#?}");
    // The next word had no room in any line but the last.
    for (line, next) in full.iter().zip(&text[1..]) {
        let word = next.split_whitespace().next().unwrap();
        assert!(line.len() + 1 + word.len() > 100, "{text:#?}");
    }
    let abort = program.run(&["explain", "meshfaultinjection.spec.rules.default.http.abort"]).ok();
    assert!(abort.out.contains("httpStatus <integer> required\n"), "{abort:#?}");
    let address = program.run(&["explain", "meshservice.status.addresses"]).ok();
    let inbound = program.run(&["explain", "dataplane.networking.inbound"]).ok();
    for ran in [abort, address, inbound] {
        assert!(!ran.out.contains("Default:") && !ran.out.contains("Minimum: 0"), "{ran:#?}");
    }
}

#[test]
fn the_whole_tree_is_shown_on_request_and_ends() {
    let program = Program::new();
    for &kind in Kind::ALL.iter().filter(|kind| !kind.descriptor().path.is_empty()) {
        let ran = program.run(&["explain", kind.name(), "--recursive"]).ok();
        assert!(ran.out.contains("\n  name <string> required\n"), "{kind}: {ran:#?}");
    }
    let ran = program.run(&["explain", "meshtimeout", "-R"]).ok();
    assert!(ran.out.contains("\n      default <object>\n        connectionTimeout <string>\n"), "{ran:#?}");
    let json = program.run(&["explain", "mesh.mtls.backends", "-R", "-o", "json"]).ok().json();
    assert_eq!((&json["type"], &json["field"]), (&json!("Mesh"), &json!("mtls.backends")));
    let names: Vec<&Value> = json["fields"].as_array().unwrap().iter().map(|field| &field["name"]).collect();
    assert!(names.contains(&&json!("name")), "{names:?}");
}

#[test]
fn what_does_not_exist_is_answered_with_what_does() {
    let program = Program::new();
    program
        .run(&["explain", "meshtimeout.spec.too"])
        .failed(2)
        .says("MeshTimeout.spec has no field \"too\"; its fields are targetRef, to, from, rules");
    program
        .run(&["explain", "mesh.name.first"])
        .failed(2)
        .says("Mesh.name has no fields, so it has no field \"first\"");
    program.run(&["explain", "nothing"]).failed(2).says("unknown resource type");
}
