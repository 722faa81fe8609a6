//! Limits on a control plane that means harm, and on other users of the machine.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use crate::{
    agent::{Home, http},
    control_plane::SimulatedControlPlane,
};

#[test]
fn a_socket_outside_the_work_directory_is_refused_before_envoy_starts() {
    let home = Home::new();
    let victim = home.file("passwd", "root\n");
    let control_plane = SimulatedControlPlane::with_admin_socket(&victim);
    let agent = home.run(&control_plane, &[]);
    agent.ends_with(1, &["admin.address.pipe.path is", "/passwd", "not inside the work directory"]);
    assert_eq!(fs::read_to_string(victim).unwrap(), "root\n");
}

#[test]
fn a_link_in_place_of_the_configuration_is_replaced_not_followed() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let victim = home.file("passwd", "root\n");
    fs::create_dir(home.path("work")).unwrap();
    fs::set_permissions(home.path("work"), PermissionsExt::from_mode(0o755)).unwrap();
    symlink(&victim, home.path("work/bootstrap.json")).unwrap();
    let agent = home.run(&control_plane, &[]);
    agent.wait_for_ready(&home);
    assert_eq!(fs::read_to_string(victim).unwrap(), "root\n");
    let written = fs::symlink_metadata(home.path("work/bootstrap.json")).unwrap();
    assert!(written.is_file());
    assert_eq!(written.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_work_directory_that_others_can_change_is_refused() {
    let check = |prepare: &dyn Fn(&Home), expect: &[&str]| {
        let control_plane = SimulatedControlPlane::away();
        let home = Home::new();
        prepare(&home);
        home.run(&control_plane, &[]).ends_with(1, expect);
    };
    let open = |home: &Home| {
        fs::create_dir(home.path("work")).unwrap();
        fs::set_permissions(home.path("work"), PermissionsExt::from_mode(0o770)).unwrap();
    };
    check(&open, &["other users may write to the work directory", "its mode is 0770", "chmod go-w"]);
    let linked = |home: &Home| {
        fs::create_dir(home.path("real")).unwrap();
        symlink(home.path("real"), home.path("work")).unwrap();
    };
    check(&linked, &["is a symbolic link"]);
    // Only root can give a directory away; any other user finds root's.
    let control_plane = SimulatedControlPlane::away();
    let home = Home::new();
    let others = home.path("others");
    fs::create_dir(&others).unwrap();
    let given = nix::unistd::chown(&others, Some(12345.into()), None).is_ok();
    let others = if given { others.display().to_string() } else { "/usr".to_owned() };
    home.run(&control_plane, &["--work-dir", &others]).ends_with(1, &["belongs to user", "--work-dir"]);
}

#[test]
fn a_work_directory_is_made_for_this_user_alone() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    let agent = home.run(&control_plane, &[]);
    agent.wait_for_ready(&home);
    assert_eq!(fs::metadata(home.path("work")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(http(home.readiness_port, "/ready").unwrap().0, 200);
}

#[test]
fn what_the_control_plane_says_commands_no_terminal() {
    let control_plane = SimulatedControlPlane::start();
    let home = Home::new();
    control_plane.refuse(503, "not\u{1b}[2J yet\u{9b}1m\r\n2026-01-01 ERROR forged");
    control_plane.refuse(422, "\u{1b}]0;title\u{7}never\r");
    let mut agent = home.run(&control_plane, &[]);
    agent.wait_for_end();
    agent.wait_until("both answers", |said| {
        said.contains("not\\u{1b}[2J yet\\u{9b}1m\\r\\n2026") && said.contains("\\u001b]0;title\\u0007never")
    });
    let said = agent.said();
    assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
    assert!(!said.lines().any(|line| line.starts_with("2026-01-01 ERROR forged")), "{said}");
}
