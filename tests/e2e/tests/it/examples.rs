//! Everything in `examples/` can be applied as it is.

use std::{fs, path::Path};

use e2e::{ControlPlane, Setup};

#[test]
fn every_example_is_accepted_without_a_warning() {
    let work_dir = tempfile::tempdir().unwrap();
    let home = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(work_dir.path(), Setup::default()).unwrap();
    let address = control_plane.address();
    let add = ["config", "control-planes", "add", "--name", "e2e", "--address", &address];
    assert!(e2e::kumactl(home.path(), &add).unwrap().status.success());

    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut applied = 0;
    for entry in fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            continue;
        }
        let output = e2e::kumactl(home.path(), &["apply", "-f", &path.display().to_string()]).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", path.display());
        // There are no proxies here that a policy could select.
        let warned = stderr
            .lines()
            .any(|line| line.to_lowercase().contains("warning") && !line.ends_with("selects 0 proxies"));
        assert!(!warned, "{}: {stderr}", path.display());
        applied += 1;
    }
    assert!(applied >= 3, "only {applied} examples found");
}
