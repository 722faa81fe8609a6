//! Labels about trimming outbounds by permissions.

use super::*;

const MODE: &str = "reachability.kuma.io/mode";

fn labelled(labels: &[(&str, &str)]) -> Draft {
    mesh("default").labels(labels).draft()
}

fn permission() -> Draft {
    let from = json!([{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]);
    draft(json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "all", "spec": {"from": from}}))
}

#[tokio::test]
async fn an_unknown_mode_is_refused_and_the_known_ones_are_named() {
    let registrar = registrar(zone(false)).await;
    for (label, value, known) in [
        (MODE, "enforced", "off, report, shadow, enforce"),
        ("east.reachability.kuma.io/mode", "on", "off, report, shadow, enforce"),
        ("reachability.kuma.io/stub", "yes", "true, false"),
        ("reachability.kuma.io/force", "1", "true, false"),
    ] {
        let expect = format!("unknown value {value:?}, available values: {known}");
        let found = violations(&registrar, labelled(&[(label, value)])).await;
        assert_eq!(found, [(format!("labels[{label:?}]"), expect)]);
    }
    assert_eq!(violations(&registrar, proxy("none")).await.len(), 1);
    for mode in ["off", "report", "shadow"] {
        registrar.put(labelled(&[(MODE, mode), ("west.reachability.kuma.io/mode", mode)])).await.unwrap();
    }
    registrar.put(proxy("shadow")).await.unwrap();
}

/// A proxy that asks for a mode itself.
fn proxy(mode: &str) -> Draft {
    let mut proxy = sidecar();
    proxy.labels.insert(MODE.to_owned(), mode.to_owned());
    proxy
}

/// It must be able to register: its application would be cut off.
#[tokio::test]
async fn enforcing_without_permissions_gets_a_warning_unless_the_mesh_forces_it() {
    let registrar = registrar(zone(false)).await;
    let warnings = |put: Put| put.warnings;
    let found = warnings(registrar.put(proxy("enforce")).await.unwrap());
    let [text] = found.as_slice() else { panic!("{found:?}") };
    assert!(text.contains("has no effect") && text.contains("no MeshTrafficPermission"), "{text}");
    registrar.put(labelled(&[("reachability.kuma.io/force", "true")])).await.unwrap();
    assert_eq!(warnings(registrar.put(proxy("enforce")).await.unwrap()), Vec::<String>::new());
    registrar.put(labelled(&[])).await.unwrap();
    registrar.put(permission()).await.unwrap();
    assert_eq!(warnings(registrar.put(proxy("enforce")).await.unwrap()), Vec::<String>::new());
}

#[tokio::test]
async fn enforcing_without_permissions_is_refused_unless_it_is_forced() {
    let registrar = registrar(zone(false)).await;
    for label in [MODE, "east.reachability.kuma.io/mode"] {
        let found = violations(&registrar, labelled(&[(label, "enforce")])).await;
        let [(field, text)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(*field, format!("labels[{label:?}]"));
        for part in ["no MeshTrafficPermission", "\"report\"", "reachability.kuma.io/force: \"true\""] {
            assert!(text.contains(part), "{text}");
        }
    }
    let forced = [(MODE, "enforce"), ("reachability.kuma.io/force", "true")];
    registrar.put(labelled(&forced)).await.unwrap();
    registrar.put(labelled(&[])).await.unwrap();
    registrar.put(permission()).await.unwrap();
    registrar.put(labelled(&[(MODE, "enforce")])).await.unwrap();
    // Permissions that go later do not keep users from changing the mesh.
    registrar.delete(&permission().key).await.unwrap();
    registrar.put(labelled(&[(MODE, "enforce"), ("team", "shop")])).await.unwrap();
}
