//! `kumactl install observability`: manifests, files and a Compose file, checked as their readers read them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use resources::format::yaml;
use serde_json::{Value, json};

use crate::program::{Program, Ran};

const INSTALL: [&str; 2] = ["install", "observability"];

fn install(more: &[&str]) -> Ran {
    Program::new().run(&[&INSTALL, more].concat())
}

fn documents(text: &str) -> Vec<Value> {
    yaml::documents(text).unwrap().into_iter().map(|document| document.value).collect()
}

fn manifests(more: &[&str]) -> Vec<Value> {
    documents(&install(more).ok().out)
}

fn names(manifests: &[Value]) -> BTreeSet<String> {
    let name =
        |it: &Value| format!("{} {}", it["kind"].as_str().unwrap(), it["metadata"]["name"].as_str().unwrap());
    manifests.iter().map(name).collect()
}

fn find<'a>(manifests: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
    manifests.iter().find(is).unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Specs of the pods of all workloads.
fn pods(manifests: &[Value]) -> Vec<&Value> {
    manifests.iter().map(|it| &it["spec"]["template"]["spec"]).filter(|spec| spec.is_object()).collect()
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            found.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    found
}

fn committed_dashboards() -> BTreeMap<String, Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../observability/grafana");
    files(&folder).into_iter().map(|(name, text)| (name, serde_json::from_str(&text).unwrap())).collect()
}

/// Lets promtool look at a configuration of Prometheus with the rules beside it.
fn promtool_accepts(folder: &Path) {
    let output =
        Command::new("promtool").args(["check", "config"]).arg(folder.join("prometheus.yaml")).output();
    let output = output.expect("promtool comes with Prometheus, which `cargo xtask test` installs");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{said:?}");
    assert!(said[0].contains("2 rule files found"), "{said:?}");
}

#[test]
fn manifests_have_names_and_the_namespace_that_was_asked_for() {
    for namespace in ["mesh-observability", "watching"] {
        let all = manifests(&["--namespace", namespace]);
        for manifest in &all {
            assert!(manifest["apiVersion"].is_string() && manifest["kind"].is_string(), "{manifest}");
            assert!(!manifest["metadata"]["name"].as_str().unwrap().is_empty());
            let kind = manifest["kind"].as_str().unwrap();
            let of_cluster = matches!(kind, "Namespace" | "ClusterRole" | "ClusterRoleBinding");
            assert_eq!(manifest["metadata"]["namespace"] == namespace, !of_cluster, "{manifest}");
        }
        assert_eq!(names(&all).len(), all.len(), "two manifests have one name");
        assert_eq!(all[0]["kind"], "Namespace");
        assert_eq!(all[0]["metadata"]["name"], namespace);
        let sources = &find(&all, "ConfigMap", "grafana-datasources")["data"]["kuma.yaml"];
        for url in ["http://prometheus-server.", "http://loki.", "http://jaeger-query."] {
            assert!(sources.as_str().unwrap().contains(&format!("{url}{namespace}")), "{sources}");
        }
    }
}

#[test]
fn images_have_versions_and_containers_have_no_rights() {
    let all = manifests(&[]);
    let pods = pods(&all);
    assert_eq!(pods.len(), 5);
    for pod in pods {
        let [container] = &pod["containers"].as_array().unwrap()[..] else { panic!("{pod}") };
        let image = container["image"].as_str().unwrap();
        let (_, version) = image.rsplit_once(':').unwrap();
        assert!(version.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()), "{image}");
        assert!(version.matches('.').count() == 2, "{image}");
        let own = &container["securityContext"];
        assert_eq!(own["allowPrivilegeEscalation"], false);
        assert_eq!(own["readOnlyRootFilesystem"], true);
        assert_eq!(own["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        // The logs of pods belong to root, and only their reader asks Kubernetes anything.
        let reads_logs = container["name"] == "promtail";
        assert_eq!(pod["securityContext"]["runAsNonRoot"], !reads_logs);
        assert_eq!(pod["automountServiceAccountToken"], reads_logs);
        assert!(container["resources"]["limits"]["memory"].is_string());
        // What is not scratch space is only read.
        for mount in container["volumeMounts"].as_array().unwrap() {
            let volumes = pod["volumes"].as_array().unwrap();
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            assert_eq!(mount["readOnly"] == false, volume.get("emptyDir").is_some(), "{mount}");
        }
    }
    let role = find(&all, "ClusterRole", "promtail-mesh-observability");
    assert_eq!(
        role["rules"],
        json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}])
    );
    let text = install(&[]).ok().out;
    assert!(!text.contains("latest"), "{text}");
}

#[test]
fn grafana_downloads_nothing_and_needs_no_password() {
    let all = manifests(&[]);
    let grafana = &find(&all, "Deployment", "grafana")["spec"]["template"]["spec"];
    let environment: BTreeMap<&str, &str> = grafana["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| (variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap()))
        .collect();
    for (name, value) in [
        ("GF_PLUGINS_PREINSTALL_DISABLED", "true"),
        ("GF_ANALYTICS_CHECK_FOR_UPDATES", "false"),
        ("GF_AUTH_ANONYMOUS_ORG_ROLE", "Viewer"),
        ("GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION", "true"),
    ] {
        assert_eq!(environment.get(name), Some(&value));
    }
    assert!(!environment.contains_key("GF_INSTALL_PLUGINS") && grafana.get("initContainers").is_none());
    let text = install(&[]).ok().out;
    assert!(!text.contains("kind: Secret") && !text.contains("wget"));
}

#[test]
fn every_dashboard_is_mounted_as_it_is_committed() {
    let all = manifests(&[]);
    let grafana = &find(&all, "Deployment", "grafana")["spec"]["template"]["spec"];
    let volumes = grafana["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "dashboards").unwrap();
    let maps: Vec<&str> = volume["projected"]["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| source["configMap"]["name"].as_str().unwrap())
        .collect();
    let mut mounted = BTreeMap::new();
    for map in maps {
        let map = find(&all, "ConfigMap", map);
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        // kubectl keeps what it applied in an annotation of at most 256 KiB.
        assert!(map.to_string().len() < 200_000);
        for (name, text) in map["data"].as_object().unwrap() {
            mounted.insert(name.clone(), serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap());
        }
    }
    assert_eq!(mounted, committed_dashboards());
    let providers = find(&all, "ConfigMap", "grafana-providers")["data"]["kuma.yaml"].as_str().unwrap();
    let mounts = grafana["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["name"] == "dashboards").unwrap();
    assert_eq!(documents(providers)[0]["providers"][0]["options"]["path"], mount["mountPath"]);
}

#[test]
fn components_and_addresses_follow_the_flags() {
    let only = manifests(&["--components", "prometheus"]);
    assert_eq!(
        names(&only),
        [
            "ConfigMap prometheus",
            "Deployment prometheus",
            "Namespace mesh-observability",
            "Service prometheus-server"
        ]
        .map(str::to_owned)
        .into()
    );
    let all = manifests(&[
        "--components=grafana",
        "--prometheus-address=https://prometheus.example/p/",
        "--loki-address=http://loki.example:3100",
        "--mesh=shop",
    ]);
    let sources = find(&all, "ConfigMap", "grafana-datasources")["data"]["kuma.yaml"].as_str().unwrap();
    let sources = documents(sources)[0]["datasources"].clone();
    let urls: Vec<&str> = sources.as_array().unwrap().iter().map(|it| it["url"].as_str().unwrap()).collect();
    // Jaeger is neither installed nor given.
    assert_eq!(urls, ["https://prometheus.example/p", "http://loki.example:3100"]);
    let pod = &find(&all, "Deployment", "grafana")["spec"]["template"];
    assert_eq!(pod["metadata"]["labels"]["kuma.io/mesh"], "shop");
    let dashboards = manifests(&["--dashboards-only", "--namespace=mine"]);
    assert_eq!(dashboards.len(), committed_dashboards().len());
    assert!(dashboards.iter().all(|it| it["kind"] == "ConfigMap" && it["metadata"]["namespace"] == "mine"));
}

#[test]
fn prometheus_finds_proxies_through_the_control_plane() {
    let all = manifests(&[
        "--kuma-cp-address=http://cp.example:5676",
        "--kuma-cp-api-address=https://cp.example:5682",
    ]);
    let data = &find(&all, "ConfigMap", "prometheus")["data"];
    let mut configured = documents(data["prometheus.yaml"].as_str().unwrap()).remove(0);
    let [proxies, planes] = &configured["scrape_configs"].as_array().unwrap()[..] else {
        panic!("{configured}")
    };
    assert_eq!(proxies["kuma_sd_configs"], json!([{"server": "http://cp.example:5676"}]));
    assert_eq!(planes["static_configs"][0]["targets"], json!(["cp.example:5680"]));
    // Debian's Prometheus lacks this discovery; it checks the rest.
    let job = configured["scrape_configs"][0].as_object_mut().unwrap();
    job.remove("kuma_sd_configs");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("prometheus.yaml"), configured.to_string()).unwrap();
    for rules in ["alerts.yaml", "traffic.yaml"] {
        fs::write(folder.path().join(rules), data[rules].as_str().unwrap()).unwrap();
    }
    promtool_accepts(folder.path());
}

#[test]
fn files_are_what_prometheus_and_grafana_of_a_machine_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watch");
    let target = ["--target=files", path.to_str().unwrap()];
    let ran = install(&target).ok().says("14 files written").says("prometheus --config.file=");
    assert_eq!(ran.out, "");
    let found = files(&path);
    promtool_accepts(&path.join("prometheus"));
    let configured = documents(&found["prometheus/prometheus.yaml"]).remove(0);
    let proxies = &configured["scrape_configs"][0];
    assert_eq!(proxies["http_sd_configs"], json!([{"url": "http://localhost:5681/prometheus/targets"}]));
    let provider = documents(&found["grafana/provisioning/dashboards/kuma.yaml"]).remove(0);
    let dashboards = Path::new(provider["providers"][0]["options"]["path"].as_str().unwrap());
    assert!(dashboards.is_absolute());
    let read = files(dashboards).into_iter().map(|(name, text)| (name, serde_json::from_str(&text).unwrap()));
    assert_eq!(read.collect::<BTreeMap<String, Value>>(), committed_dashboards());
    assert!(
        documents(&found["grafana/provisioning/datasources/kuma.yaml"])[0]["datasources"][0]["isDefault"]
            == true
    );
    let loki = documents(&found["loki/loki.yaml"]).remove(0);
    assert_eq!(loki["common"]["path_prefix"], "/var/lib/loki");
    assert_eq!(loki["auth_enabled"], false);

    // A second time changes nothing; what someone has changed is kept.
    install(&target).ok();
    fs::write(path.join("prometheus/prometheus.yaml"), "mine").unwrap();
    install(&target).failed(2).says("prometheus.yaml is there and says something else; nothing was written");
    assert_eq!(files(&path)["prometheus/prometheus.yaml"], "mine");
    install(&[&target[..], &["--overwrite"]].concat()).ok();
    assert_eq!(files(&path), found);

    let other = folder.path().join("dashboards");
    install(&["--target=files", other.to_str().unwrap(), "--dashboards-only"]).ok();
    assert!(files(&other).keys().all(|name| name.starts_with("grafana/dashboards/")));
}

#[test]
fn compose_gets_one_file_with_its_configuration() {
    let document = manifests(&["--target=compose"]).remove(0);
    let services = document["services"].as_object().unwrap();
    let names: BTreeSet<&str> = services.keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["prometheus", "loki", "jaeger", "grafana"]));
    let mut used = BTreeSet::new();
    for service in services.values() {
        let image = service["image"].as_str().unwrap();
        assert!(image.rsplit_once(':').unwrap().1.matches('.').count() == 2, "{image}");
        assert_eq!(service["cap_drop"], json!(["ALL"]));
        assert_eq!(service["read_only"], true);
        // Nothing is offered to other machines.
        let ports = service["ports"].as_array().unwrap();
        assert!(ports.iter().all(|port| port.as_str().unwrap().starts_with("127.0.0.1:")));
        used.extend(service["configs"].as_array().unwrap().iter().map(|it| it["source"].as_str().unwrap()));
    }
    let configs = document["configs"].as_object().unwrap();
    assert_eq!(configs.keys().map(String::as_str).collect::<BTreeSet<_>>(), used);
    // Compose replaces `$name`; `$$` is a `$`.
    for (name, config) in configs {
        let content = config["content"].as_str().unwrap();
        assert!(!content.replace("$$", "").contains('$'), "{name}");
    }
    let read = |name: &str| configs[name]["content"].as_str().unwrap().replace("$$", "$");
    let committed = committed_dashboards();
    for (name, dashboard) in &committed {
        let stem = name.strip_suffix(".json").unwrap();
        assert_eq!(&serde_json::from_str::<Value>(&read(&format!("dashboard-{stem}"))).unwrap(), dashboard);
    }
    let prometheus = documents(&read("prometheus")).remove(0);
    let server = &prometheus["scrape_configs"][0]["kuma_sd_configs"][0]["server"];
    assert_eq!(server, "http://host.docker.internal:5676");
}

#[test]
fn wrong_flags_are_refused_with_a_reason() {
    for (arguments, reason) in [
        (&["--namespace=Not_a_name"][..], "is not a name of Kubernetes"),
        (&["--target=files"][..], "--target files needs the folder to write to"),
        (&["somewhere"][..], "somewhere is not used"),
        (&["--target=compose", "--dashboards-only"][..], "use --target files DIR"),
        (&["--kuma-cp-address=grpc://cp:5676"][..], "has to begin with http:// or https://"),
        (&["--loki-address=http://user:secret@loki"][..], "would be written into the output"),
        (&["--components=zipkin"][..], "invalid value 'zipkin'"),
        (&["--mesh=Not:a:mesh"][..], "is not a name of a mesh"),
    ] {
        install(arguments).failed(2).says(reason);
    }
}
