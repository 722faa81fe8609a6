//! The first command of the README: it must work, and leave nothing behind.

mod zones;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Output},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use e2e::{Client, Profile, envoy, eventually, kumactl, program};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use tempfile::tempdir;

/// Name that web calls.
const KV: &str = "kv.svc.mesh.local";

/// `cargo xtask demo` with files of its own, so that it does not meet the demo of the user who runs the test.
fn demo(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program("xtask", Profile::Same).unwrap());
    command.arg("demo").args(arguments).arg("--home").arg(home).env("ENVOY_BIN", envoy().unwrap());
    command.output().unwrap()
}

/// One demo starts at a time: it chooses ports that are free and then starts what listens there.
static STARTING: Mutex<()> = Mutex::new(());

fn up(home: &Path, arguments: &[&str]) -> Output {
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    demo(home, &[&["--built", "--detach"], arguments].concat())
}

/// Ends the demo even when the test fails.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        demo(self.0, &["down"]);
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Lines of the summary that begin with `what`, without it.
fn said_about<'a>(said: &'a str, what: &str) -> Vec<&'a str> {
    said.lines().filter_map(|line| line.trim().strip_prefix(what)).map(str::trim).collect()
}

/// Number of queries for addresses that the agent answered by itself, by its page of metrics.
fn names_answered(metrics: &str) -> u64 {
    let counted = |line: &&str| {
        let labels = [r#"qtype="A""#, r#"source="local""#];
        line.starts_with("kuma_dp_dns_queries_total{") && labels.iter().all(|label| line.contains(label))
    };
    let value = |line: &str| line.rsplit_once(' ')?.1.parse().ok();
    metrics.lines().filter(counted).find_map(value).unwrap_or_default()
}

/// The address of a name, by a DNS server.
fn resolve(server: SocketAddr, name: &str) -> Option<Ipv4Addr> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label.bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.send_to(&query, server).unwrap();
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).ok()?;
    let answers = u16::from_be_bytes([answer[6], answer[7]]);
    // The only record is the last thing in the packet, and its address the last of it.
    let address: [u8; 4] = answer[..length].last_chunk().copied()?;
    (answers == 1).then(|| address.into())
}

/// `::1` as the kernel writes it.
const LOOPBACK_6: &str = "00000000000000000000000001000000";

/// The sockets of the demo's processes that listen at other addresses than loopback ones.
fn reachable_from_elsewhere(home: &Path) -> Vec<String> {
    let recorded = fs::read_to_string(home.join("processes")).unwrap();
    let mut pids: Vec<i32> =
        recorded.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    // Envoys are children of their agents.
    let all =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let parent = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let children: Vec<i32> =
        all.filter(|pid| parent(*pid).is_some_and(|parent| pids.contains(&parent))).collect();
    pids.extend(children);
    let mut found = Vec::new();
    for pid in &pids {
        let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        let sockets: Vec<String> = links
            .filter_map(|link| fs::read_link(link.ok()?.path()).ok())
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        for table in ["tcp", "tcp6"] {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
            for line in text.lines().skip(1) {
                let words: Vec<&str> = line.split_whitespace().collect();
                // The address is in the byte order of the machine; 0A is the state of a listener.
                let listens = words[3] == "0A" && sockets.iter().any(|socket| socket == words[9]);
                let address = words[1].split(':').next().unwrap();
                let is_loopback = address.len() == 8 && address.ends_with("7F") || address == LOOPBACK_6;
                if listens && !is_loopback {
                    found.push(format!("{pid} {table} {}", words[1]));
                }
            }
        }
    }
    found
}

fn count(web: &Client) -> Option<u64> {
    web.get("/api/counter").ok().filter(|answer| answer.status == 200)?.json()["counter"].as_u64()
}

#[test]
fn the_demo_counts_until_its_permission_goes_and_leaves_nothing_behind() {
    let dir = tempdir().unwrap();
    let home = dir.path().join("demo");
    let _down = Down(&home);
    let up = up(&home, &[]);
    assert!(up.status.success(), "{}", text(&up));
    let said = text(&up);
    let web = Client::new(said_about(&said, "page")[0]);

    for proxy in ["kv", "web"] {
        let token = fs::metadata(home.join(format!("{proxy}.token"))).unwrap();
        assert_eq!(token.permissions().mode() & 0o777, 0o600, "the token of {proxy} is for its owner alone");
    }
    let before = count(&web).unwrap();
    eventually("traffic to count", || count(&web).is_some_and(|now| now > before)).unwrap();

    assert!(said.contains("The demo itself sends 5 requests a second to the page"), "{said}");
    assert!(said.contains("It listens on loopback addresses only"), "{said}");
    assert_eq!(said_about(&said, "web calls"), [format!("http://{KV}:5050")]);
    let (dns, metrics) = said_about(&said, "names")[0].split_once(", counted at ").unwrap();
    let metrics = Client::new(metrics.strip_suffix("/metrics").unwrap());
    assert!(names_answered(&metrics.get("/metrics").unwrap().body) > 0, "web asked for its store by name");
    let address = resolve(dns.parse().unwrap(), KV).unwrap();
    let store = Client::new(format!("http://{address}:5050"));
    assert_eq!(store.get("/api/key-value/counter").unwrap().status, 200, "{address}");

    assert_eq!(reachable_from_elsewhere(&home), Vec::<String>::new());
    let again = demo(&home, &["--built", "--detach"]);
    assert!(!again.status.success() && text(&again).contains("running already"), "{}", text(&again));

    let config = home.join("kumactl.yaml").display().to_string();
    let permission = home.join("permission.yaml").display().to_string();
    let taken = ["--config-file", &config, "delete", "meshtrafficpermission", "web-to-kv"];
    assert!(kumactl(dir.path(), &taken).unwrap().status.success());
    let status = || web.get("/api/counter").map(|answer| answer.status).unwrap_or_default();
    eventually("the mesh to refuse", || status() == 403).unwrap();
    let given = ["--config-file", &config, "apply", "-f", &permission];
    assert!(kumactl(dir.path(), &given).unwrap().status.success());
    eventually("the mesh to allow", || status() == 200).unwrap();

    let down = demo(&home, &["down"]);
    assert!(down.status.success() && text(&down).contains("ended 6 processes"), "{}", text(&down));
    assert!(web.get("/api/counter").is_err());
    assert!(text(&demo(&home, &["down"])).contains("no demo is running"));
}

/// Namespaces and links of demos, as `ip` lists them.
fn networks() -> String {
    let said = |arguments: &[&str]| text(&Command::new("ip").args(arguments).output().unwrap());
    said(&["netns", "list"]) + &said(&["-o", "link", "show"])
}

fn inside(namespace: &str, program: &[&str]) -> String {
    let output = Command::new("ip").args(["netns", "exec", namespace]).args(program).output().unwrap();
    text(&output)
}

#[test]
fn unmodified_services_call_by_name_and_a_killed_demo_leaves_no_namespace() {
    if !testkit::netns::available().unwrap() {
        return;
    }
    let dir = tempdir().unwrap();
    let home = dir.path().join("demo");
    let _down = Down(&home);
    let up = up(&home, &["--transparent"]);
    assert!(up.status.success(), "{}", text(&up));
    let said = text(&up);
    let web = Client::new(said_about(&said, "page")[0]);
    let before = count(&web).unwrap();
    eventually("requests to arrive", || count(&web).is_some_and(|now| now >= before + 5)).unwrap();

    let namespaces = said_about(&said, "namespace");
    let [kv_namespace, web_namespace] = namespaces[..] else { panic!("{said}") };
    let tag = web_namespace.strip_prefix("kuma-demo-").and_then(|rest| rest.strip_suffix("-web")).unwrap();
    let metrics = inside(web_namespace, &["curl", "--silent", "http://127.0.0.1:9902/metrics"]);
    assert!(names_answered(&metrics) > 0, "{metrics}");
    let address = inside(kv_namespace, &["ip", "-4", "-o", "addr", "show", "dev", "eth0"]);
    let address = address.split_whitespace().find_map(|word| word.strip_suffix("/24")).unwrap();
    // The machine has a way to the store, at whose door it is asked for a certificate.
    assert!(Client::new(format!("http://{address}:5050")).get("/api/key-value/counter").is_err());
    // Agents have a user of their own, so that whatever else runs there, as root too, calls by name through the mesh.
    let curl = said_about(&said, "ip netns exec").into_iter().find(|line| line.contains("curl")).unwrap();
    let called = Command::new("sh").arg("-c").arg(format!("ip netns exec {curl}")).output().unwrap();
    assert!(text(&called).starts_with("HTTP/1.1 200 OK"), "{curl}: {}", text(&called));
    assert!(text(&called).contains("x-envoy-upstream-service-time"), "{curl}: {}", text(&called));
    let agents = inside(web_namespace, &["pgrep", "--uid", "61235", "--list-name"]);
    assert!(agents.contains("kuma-dp") && agents.contains("envoy"), "{agents}");
    let listed = fs::read_to_string(home.join("web.yaml")).unwrap();
    assert!(!listed.contains("outbound"), "{listed}");

    let recorded = fs::read_to_string(home.join("processes")).unwrap();
    for pid in recorded.lines().filter_map(|line| line.split(' ').next()?.parse().ok()) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    assert!(networks().contains(tag));
    let down = demo(&home, &["down"]);
    assert!(
        down.status.success() && text(&down).contains("removed the network namespaces"),
        "{}",
        text(&down)
    );
    assert!(!networks().contains(tag), "{}", networks());
    assert!(!Path::new("/etc/netns").join(web_namespace).exists());
}

#[test]
fn without_the_right_to_it_nothing_is_made_and_what_works_is_said() {
    let dir = tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Where another user may run it.
    let xtask = dir.path().join("xtask");
    fs::copy(program("xtask", Profile::Same).unwrap(), &xtask).unwrap();
    let home = dir.path().join("demo");
    let mut command = Command::new(&xtask);
    command.args(["demo", "--built", "--transparent", "--home"]).arg(&home);
    if geteuid().is_root() {
        command.uid(61_234).gid(61_234);
    }
    let refused = command.output().unwrap();
    let said = text(&refused);
    assert!(!refused.status.success() && said.contains("takes root"), "{said}");
    assert!(said.contains("sudo") && said.contains("`cargo xtask demo` shows the same mesh"), "{said}");
    assert!(!home.exists());
}
