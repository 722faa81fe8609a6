//! The program `meshbench` itself.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::cell::eventually;

#[test]
fn no_control_plane_outlives_a_benchmark_that_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("never-ready");
    let pid_file = folder.path().join("pid");
    fs::write(
        &program,
        format!("#!/bin/sh\necho $$ > {0}.new\nmv {0}.new {0}\nexec sleep 600\n", pid_file.display()),
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let _ = fs::remove_file(&pid_file);
        let mut bench = Command::new(env!("CARGO_BIN_EXE_meshbench"))
            .args(["run", "--cell", "1x1", "--cp-bin"])
            .arg(&program)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the control plane to start", || pid_file.exists());
        let started = Pid::from_raw(fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap());
        kill(started, None).unwrap();
        kill(Pid::from_raw(bench.id().try_into().unwrap()), signal).unwrap();
        assert!(!bench.wait().unwrap().success());
        eventually("the control plane to be gone", || kill(started, None) == Err(Errno::ESRCH));
    }
}
