//! Packages of `cargo xtask dist`: unpacked, looked at, and started. The programs are those of the other tests.

mod install;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::LazyLock,
};

use e2e::{Client, Profile, eventually, own_port, program};
use tempfile::TempDir;
use testkit::skip;

/// The packages, made once for all tests of this program.
static PACKAGES: LazyLock<Packages> = LazyLock::new(Packages::make);

struct Packages {
    /// In the target folder: what is static is never dropped.
    folder: PathBuf,
}

impl Packages {
    fn make() -> Packages {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        let _ = fs::remove_dir_all(&folder);
        let mut dist = Command::new(program("xtask", Profile::Same).unwrap());
        dist.args(["dist", "--profile", "dev", "--built", "--no-install", "--out"]).arg(&folder);
        let made = run(&mut dist);
        let named =
            |ending: &str| made.lines().any(|file| file.ends_with(ending) && Path::new(file).is_file());
        assert!([".tar.gz", ".deb", "SHA256SUMS"].into_iter().all(named), "{made}");
        for program in ["kuma-cp", "kuma-dp", "kumactl"] {
            let size = made.lines().find_map(|line| line.strip_prefix(program)?.strip_suffix(" MB"));
            let size: u64 = size.unwrap_or_else(|| panic!("{program}: {made}")).trim().parse().unwrap();
            assert!((1..500).contains(&size), "{program}: {size} MB");
        }
        Packages { folder }
    }

    /// The one file with this ending.
    fn file(&self, ending: &str) -> PathBuf {
        let files = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path());
        let found: Vec<PathBuf> = files.filter(|path| path.display().to_string().ends_with(ending)).collect();
        assert_eq!(found.len(), 1, "{ending}: {found:?}");
        found[0].clone()
    }

    /// The archive, unpacked.
    fn unpacked(&self) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let archive = self.file(".tar.gz");
        run(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()));
        let name = archive.file_name().unwrap().to_str().unwrap().strip_suffix(".tar.gz").unwrap().to_owned();
        let inside = folder.path().join(name);
        (folder, inside)
    }

    /// The Debian package, unpacked; nothing on systems without Debian's tools.
    fn installed(&self) -> Option<TempDir> {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            skip::say("there is no dpkg-deb to unpack the Debian package");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        run(Command::new("dpkg-deb").arg("-x").arg(self.file(".deb")).arg(folder.path()));
        Some(folder)
    }
}

/// Standard output of a command that must succeed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Names and modes of all files below a folder, by name.
fn files(folder: &Path) -> Vec<(String, u32)> {
    let listed = run(Command::new("find").arg(".").args(["-type", "f"]).current_dir(folder));
    let mode = |name: &str| fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o7777;
    let mut files: Vec<_> = listed.lines().map(|name| (name[2..].to_owned(), mode(name))).collect();
    files.sort();
    files
}

#[test]
fn the_archive_has_everything_with_modes_and_checksums() {
    run(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&PACKAGES.folder));
    let sums = fs::read_to_string(PACKAGES.file("SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), 2, "{sums}");
    let (_folder, unpacked) = PACKAGES.unpacked();
    let files = files(&unpacked);
    for (name, mode) in &files {
        assert_eq!(*mode, if name.starts_with("bin/") { 0o755 } else { 0o644 }, "{name}");
    }
    for name in [
        "LICENSE",
        "CHANGELOG.md",
        "Containerfile",
        "etc/kuma/kuma-cp.yaml",
        "lib/systemd/system/kuma-cp.service",
        "lib/systemd/system/kuma-dp@.service",
        "share/doc/kuma-rs/docs/guide/install.md",
    ] {
        assert!(files.iter().any(|(file, _)| file == name), "{name} is not in the archive");
    }
    let programs: Vec<&str> = files.iter().filter_map(|(name, _)| name.strip_prefix("bin/")).collect();
    assert_eq!(programs, ["kuma-cp", "kuma-dp", "kumactl"]);
    for program in programs {
        let path = unpacked.join("bin").join(program);
        let sections = run(Command::new("readelf").args(["--section-headers", "--wide"]).arg(&path));
        assert!(sections.contains(".dynsym"), "{program}: {sections}");
        assert!(!sections.contains(".symtab") && !sections.contains(".debug_info"), "{program}: {sections}");
        let said = run(Command::new(&path).arg("--version"));
        let expect = format!("{program} {} (", env!("CARGO_PKG_VERSION"));
        assert!(said.starts_with(&expect) && said.trim_end().ends_with(')'), "{said}");
    }
}

#[test]
fn the_debian_package_has_what_the_archive_has() {
    let Some(installed) = PACKAGES.installed() else { return };
    let (_folder, unpacked) = PACKAGES.unpacked();
    let installed: Vec<String> = files(installed.path()).into_iter().map(|(name, _)| name).collect();
    // Debian has its own place for the licence, and makes users by a script.
    let only_in_the_archive = ["LICENSE", "CHANGELOG.md", "Containerfile", "lib/sysusers.d/kuma-rs.conf"];
    for (name, _) in files(&unpacked).iter().filter(|(name, _)| !only_in_the_archive.contains(&name.as_str()))
    {
        let placed = if name.starts_with("etc/") { name.clone() } else { format!("usr/{name}") };
        // Debian wants its changelog compressed.
        let compressed = format!("{placed}.gz");
        assert!(
            installed.contains(&placed) || installed.contains(&compressed),
            "{name} is not in the package"
        );
    }
    assert!(installed.iter().any(|name| name == "usr/share/doc/kuma-rs/copyright"), "{installed:?}");
    let control = run(Command::new("dpkg-deb").arg("-f").arg(PACKAGES.file(".deb")));
    for line in ["Package: kuma-rs", "Section: net", &format!("Version: {}", env!("CARGO_PKG_VERSION"))] {
        assert!(control.lines().any(|field| field == line), "{line:?} is not in\n{control}");
    }
    let depends = control.lines().find(|line| line.starts_with("Depends:")).unwrap();
    assert!(depends.contains("libc6") && depends.contains("adduser"), "{depends}");
    let scripts = tempfile::tempdir().unwrap();
    run(Command::new("dpkg-deb").arg("-e").arg(PACKAGES.file(".deb")).arg(scripts.path()));
    for script in ["postinst", "prerm", "postrm"] {
        run(Command::new("sh").arg("-n").arg(scripts.path().join(script)));
    }
    let conffiles = run(Command::new("dpkg-deb").arg("-I").arg(PACKAGES.file(".deb")).arg("conffiles"));
    assert_eq!(conffiles.lines().collect::<Vec<_>>(), ["/etc/kuma/kuma-cp.yaml", "/etc/kuma/dp.env"]);
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_control_plane_of_the_package_starts_with_its_configuration() {
    let Some(installed) = PACKAGES.installed() else { return };
    let api = own_port().unwrap();
    let diagnostics = own_port().unwrap();
    let mut command = Command::new(installed.path().join("usr/bin/kuma-cp"));
    command.arg("run").arg("--config-file").arg(installed.path().join("etc/kuma/kuma-cp.yaml"));
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if name.starts_with("KUMA_") {
            command.env_remove(name);
        }
    }
    // As root of this machine the test may write nothing outside of its folder, and others use the default ports.
    command.env("KUMA_GENERAL_WORK_DIR", installed.path().join("var"));
    for (name, port) in [
        ("KUMA_API_SERVER_HTTP_PORT", api),
        ("KUMA_API_SERVER_HTTPS_PORT", own_port().unwrap()),
        ("KUMA_DIAGNOSTICS_SERVER_PORT", diagnostics),
        ("KUMA_DP_SERVER_PORT", own_port().unwrap()),
        ("KUMA_MONITORING_ASSIGNMENT_SERVER_PORT", own_port().unwrap()),
    ] {
        command.env(name, port.to_string());
    }
    let log = fs::File::create(installed.path().join("log")).unwrap();
    let _running = Running(command.stderr(log).spawn().unwrap());
    let get = |port: u16, path: &str| Client::new(format!("http://127.0.0.1:{port}")).get(path);
    eventually("the control plane to be ready", || {
        get(diagnostics, "/ready").is_ok_and(|answer| answer.status == 200)
    })
    .unwrap_or_else(|error| {
        panic!("{error}:\n{}", fs::read_to_string(installed.path().join("log")).unwrap())
    });
    let index = get(api, "/").unwrap().json();
    assert_eq!((&index["product"], &index["implementation"]), (&"Kuma".into(), &"kuma-rs".into()), "{index}");
    let config = get(api, "/config").unwrap().json();
    assert_eq!(config["apiServer"]["authn"]["requireForWrites"], true, "{config}");
}

#[test]
fn systemd_understands_the_units_and_finds_them_confined() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        skip::say("there is no systemd-analyze to check the units");
        return;
    }
    let Some(installed) = PACKAGES.installed() else { return };
    let units = installed.path().join("usr/lib/systemd/system");
    for unit in ["kuma-cp.service", "kuma-dp@.service"] {
        // systemd looks for the program in its own root; here it is the one of the package.
        let text = fs::read_to_string(units.join(unit)).unwrap();
        let bin = format!("ExecStart={}/usr/bin/", installed.path().display());
        fs::write(units.join(unit), text.replace("ExecStart=/usr/bin/", &bin)).unwrap();
        let named = units.join(unit.replace('@', "@web-1"));
        if named != units.join(unit) {
            fs::copy(units.join(unit), &named).unwrap();
        }
        let mut verify = Command::new("systemd-analyze");
        let output = verify.args(["verify", "--man=no"]).arg(&named).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let about: Vec<&str> = said.lines().filter(|line| line.contains("kuma")).collect();
        assert!(about.is_empty(), "{unit}: {said}");
        let mut security = Command::new("systemd-analyze");
        let output =
            security.args(["security", "--offline=true", "--threshold=35"]).arg(&named).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{unit} is exposed:\n{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// A program that builds images here and now, if there is one.
fn image_builder() -> Option<&'static str> {
    let works = |program: &&str| {
        Command::new(program).arg("info").output().is_ok_and(|output| output.status.success())
    };
    ["docker", "podman"].into_iter().find(works)
}

/// Arguments of an instruction of the image's definition: the rest of each line that begins with the word.
fn instructions(definition: &str, word: &str) -> Vec<String> {
    definition
        .lines()
        .filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ').map(str::to_owned))
        .collect()
}

#[test]
fn the_image_has_the_shipped_configuration_and_no_plain_http() {
    let (_folder, unpacked) = PACKAGES.unpacked();
    let definition = fs::read_to_string(unpacked.join("Containerfile")).unwrap();
    let copied = instructions(&definition, "COPY");
    for files in copied.iter().filter(|files| !files.starts_with("--from")) {
        let source = files.split(' ').next().unwrap();
        assert!(unpacked.join(source).exists(), "{source} is not in the archive");
    }
    let configuration = "/etc/kuma/kuma-cp.yaml";
    assert!(copied.contains(&format!("etc/kuma/kuma-cp.yaml {configuration}")), "{copied:?}");
    let command = format!(r#"["kuma-cp", "run", "--config-file", "{configuration}"]"#);
    assert_eq!(instructions(&definition, "CMD"), [command]);
    let guide = fs::read_to_string(crate::documents::root().join("docs/guide/install.md")).unwrap();
    let published = guide.lines().filter(|line| line.starts_with("docker run"));
    for line in published.chain(definition.lines()) {
        assert!(!line.contains("5681"), "{line}: anyone could write there");
    }
}

/// Returns why the images that ours is built on cannot be fetched, if they cannot.
fn unfetched(builder: &str, definition: &str) -> Option<String> {
    let debian = instructions(definition, "ARG");
    let debian = debian.iter().find_map(|argument| argument.strip_prefix("DEBIAN=")).unwrap();
    instructions(definition, "FROM").into_iter().find_map(|from| {
        let image = from.split(' ').next().unwrap().replace("${DEBIAN}", debian);
        let output = Command::new(builder).args(["pull", &image]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        (!output.status.success()).then(|| format!("{image}: {}", said.lines().last().unwrap_or_default()))
    })
}

/// An image and a container of it, which end with the test.
struct Image {
    builder: &'static str,
    tag: String,
}

impl Image {
    fn run(&self, arguments: &[&str]) -> String {
        run(Command::new(self.builder).args(arguments))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        for arguments in [["rm", "--force"], ["rmi", "--force"]] {
            let _ = Command::new(self.builder).args(arguments).arg(&self.tag).output();
        }
    }
}

#[test]
fn the_image_runs_all_programs_and_not_as_root() {
    let Some(builder) = image_builder() else {
        skip::say("neither docker nor podman can build a container image here");
        return;
    };
    let (_folder, unpacked) = PACKAGES.unpacked();
    if let Some(why) = unfetched(builder, &fs::read_to_string(unpacked.join("Containerfile")).unwrap()) {
        skip::say(&format!("the image cannot be built on what cannot be fetched: {why}"));
        return;
    }
    let image = Image { builder, tag: format!("kuma-rs-test-{}", std::process::id()) };
    let tag = image.tag.as_str();
    run(Command::new(builder).args(["build", "-f", "Containerfile", "-t", tag, "."]).current_dir(unpacked));
    let script = "id -u; kuma-cp --version; kumactl --version; kuma-dp version --detailed";
    let said = image.run(&["run", "--rm", tag, "sh", "-ec", script]);
    assert!(!said.starts_with("0\n") && said.contains("kuma-cp ") && said.contains("envoy 1."), "{said}");
    image.run(&["run", "--detach", "--name", tag, tag]);
    let inside =
        |arguments: &[&str]| Command::new(builder).args(["exec", tag]).args(arguments).output().unwrap();
    eventually("the control plane of the image to answer", || {
        inside(&["kumactl", "get", "meshes"]).status.success()
    })
    .unwrap();
    let log = Command::new(builder).args(["logs", tag]).output().unwrap();
    let log = String::from_utf8_lossy(&log.stderr);
    assert!(log.contains("control plane is up") && !log.contains("requireForWrites"), "{log}");
}
