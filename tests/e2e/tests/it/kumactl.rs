//! `kumactl` against a real control plane.

use std::{fs, path::Path, process::Output};

use e2e::{ControlPlane, Kumactl, Setup};
use tempfile::TempDir;

/// A control plane and a `kumactl` that points at it.
struct Session {
    control_plane: ControlPlane,
    kumactl: Kumactl,
    _work_dir: TempDir,
}

impl Session {
    fn start() -> Session {
        let work_dir = tempfile::tempdir().unwrap();
        let control_plane = ControlPlane::start(work_dir.path(), Setup::default()).unwrap();
        let kumactl = Kumactl::of(&control_plane).unwrap();
        Session { control_plane, kumactl, _work_dir: work_dir }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.kumactl.run(arguments).unwrap()
    }

    /// Standard output of a command that must succeed.
    fn ok(&self, arguments: &[&str]) -> String {
        self.kumactl.ok(arguments).unwrap()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.kumactl.home().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

const PERMISSION: &str = "\
type: MeshTrafficPermission
mesh: default
name: allow-web
spec:
  targetRef:
    kind: Mesh
  from:
    - targetRef:
        kind: MeshSubset
        tags:
          kuma.io/service: web
      default:
        action: Allow
";

const KUBERNETES_FORM: &str = "\
apiVersion: kuma.io/v1alpha1
kind: MeshTimeout
metadata:
  name: slow
  labels:
    kuma.io/mesh: default
spec:
  targetRef:
    kind: Mesh
  to:
    - targetRef:
        kind: Mesh
      default:
        connectionTimeout: 60s
";

#[test]
fn a_resource_is_applied_shown_and_deleted() {
    let session = Session::start();
    let file = session.file("permission.yaml", PERMISSION);
    let created = session.run(&["apply", "-f", &file]);
    assert!(created.status.success() && created.stdout.is_empty());
    assert!(String::from_utf8_lossy(&created.stderr).contains("created"), "{created:?}");
    let again = session.run(&["apply", "-f", &file]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("unchanged"), "{again:?}");

    let yaml = session.ok(&["get", "meshtrafficpermission", "allow-web", "-o", "yaml"]);
    assert!(yaml.contains("kri: kri_mtp_default_default__allow-web_"), "{yaml}");
    assert_eq!(
        session.ok(&["get", "meshtrafficpermissions", "-o", "name"]).trim(),
        "meshtrafficpermission/allow-web"
    );
    assert!(session.ok(&["get", "meshtrafficpermissions"]).contains("allow-web"));
    session.ok(&["delete", "meshtrafficpermission", "allow-web"]);
    let gone = session.run(&["get", "meshtrafficpermission", "allow-web"]);
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
}

#[test]
fn a_folder_with_both_forms_is_applied_whole() {
    let session = Session::start();
    session.file("mesh/permission.yaml", PERMISSION);
    session.file("mesh/timeout.yaml", KUBERNETES_FORM);
    let folder = session.kumactl.home().join("mesh").display().to_string();
    session.ok(&["apply", "-f", &folder]);
    let timeout = session.ok(&["get", "meshtimeout", "slow", "-o", "json"]);
    let timeout: serde_json::Value = serde_json::from_str(&timeout).unwrap();
    assert_eq!(timeout["spec"]["to"][0]["default"]["connectionTimeout"], "1m0s");
}

#[test]
fn what_the_control_plane_refuses_is_shown_field_by_field() {
    let session = Session::start();
    let file = session
        .file("bad.yaml", &PERMISSION.replace("Allow\n", "Perhaps\n").replace("allow-web", "Allow_Web"));
    let refused = session.run(&["apply", "-f", &file]);
    assert_ne!(refused.status.code(), Some(0));
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(stderr.contains("spec.from[0].default.action"), "{stderr}");
}

#[test]
fn unknown_fields_are_dropped_with_a_warning() {
    let session = Session::start();
    let file = session.file(
        "typo.yaml",
        &PERMISSION
            .replace("  targetRef:\n    kind: Mesh\n", "  targetRef:\n    kind: Mesh\n  colour: red\n"),
    );
    let applied = session.run(&["apply", "-f", &file]);
    let stderr = String::from_utf8_lossy(&applied.stderr).into_owned();
    assert!(applied.status.success() && stderr.contains("spec.colour"), "{stderr}");
}

#[test]
fn tokens_are_issued_by_the_control_plane() {
    let session = Session::start();
    for arguments in [
        &["generate", "dataplane-token", "--mesh", "default", "--name", "dp-1", "--valid-for", "1h"][..],
        &["generate", "zone-token", "--zone", "east", "--scope", "ingress", "--valid-for", "1h"],
        &["generate", "user-token", "--name", "jo", "--group", "team-a", "--valid-for", "1h"],
    ] {
        let token = session.ok(arguments);
        assert_eq!(token.trim().split('.').count(), 3, "{arguments:?}: {token}");
    }
}

#[test]
fn a_user_token_is_somebody_to_the_control_plane() {
    let session = Session::start();
    let token =
        session.ok(&["generate", "user-token", "--name", "jo", "--group", "team-a", "--valid-for", "1h"]);
    let address = session.control_plane.address();
    let auth = format!("token={}", token.trim());
    session.ok(&[
        "config",
        "control-planes",
        "add",
        "--name",
        "as-jo",
        "--address",
        &address,
        "--auth-type",
        "tokens",
        "--auth-conf",
        &auth,
    ]);
    session.ok(&["get", "meshes"]);
    let view = session.ok(&["config", "control-planes", "list"]);
    assert!(view.contains("as-jo") && view.contains("e2e"), "{view}");
}
