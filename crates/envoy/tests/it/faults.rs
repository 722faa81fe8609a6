//! A real Envoy makes the faults that policies ask for, as often as they ask, for the clients they mean.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use envoy::bootstrap::ClusterNames;
use plan::ProxyTraits;
use serde_json::{Value, json};
use xds::Type;

use crate::{
    enforcement::{LET_IN, NOBODY, Running, everyone, free_port},
    live::Live,
    support::{PLAIN, SECURED, plan, traits, unified},
    view::{check, shown, target},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A client that stays connected.
pub struct Caller(BufReader<TcpStream>);

/// Answer to a request.
pub struct HttpResponse {
    pub status: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
}

impl HttpResponse {
    pub fn header(&self, wanted: &str) -> Vec<&str> {
        let same = self.headers.iter().filter(|(name, _)| name == wanted);
        same.map(|(_, value)| value.as_str()).collect()
    }
}

impl Caller {
    pub fn of(port: u16) -> Caller {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Caller(BufReader::new(socket))
    }

    pub fn get(&mut self) -> HttpResponse {
        self.0.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: web\r\n\r\n").unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).expect("a status").to_owned();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_owned(), value.to_owned()));
        }
        let answer = HttpResponse { status, headers };
        let length = answer.header("content-length").first().map_or(0, |length| length.parse().unwrap());
        self.0.read_exact(&mut vec![0; length]).unwrap();
        answer
    }
}

/// A proxy with the label `app: backend`.
pub fn backend(inbounds: &Value) -> String {
    json!({"type": "Dataplane", "mesh": "default", "name": "web", "labels": {"app": "backend"},
        "networking": {"address": "127.0.0.1", "inbound": inbounds}})
    .to_string()
}

pub fn inbound(name: &str, port: u16, application: u16, protocol: &str) -> Value {
    json!({"name": name, "port": port, "servicePort": application,
        "tags": {"kuma.io/service": "web", "kuma.io/protocol": protocol}})
}

pub fn stat(envoy: &Live, name: &str) -> u64 {
    let all = envoy.get("/stats");
    let found = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no {name} in {all}")).parse().unwrap()
}

/// As the naming document writes it.
const ONLY_BACKEND_API: &str = "
apiVersion: kuma.io/v1alpha1
kind: MeshFaultInjection
metadata:
  name: only-backend-api-inbound
  namespace: kuma-demo
spec:
  targetRef:
    kind: Dataplane
    labels:
      app: backend
    sectionName: backend-api
  from:
  - targetRef:
      kind: Mesh
    default:
      http:
      - abort:
          httpStatus: 500
          percentage: '2.5'
";

#[test]
fn the_documented_fault_hits_its_share_of_requests_of_one_inbound() {
    const REQUESTS: usize = 4000;
    // On average 100, with a deviation of 9.9: six of those to either side.
    const EXPECTED: std::ops::Range<usize> = 40..160;
    let named = free_port();
    let other = free_port();
    let inbounds =
        json!([inbound("backend-api", named, NOBODY, "http"), inbound("other", other, NOBODY, "http")]);
    // The second policy is the same by the port, whether or not the inbound has a name.
    let by_port = ONLY_BACKEND_API.replace("backend-api\n", &format!("'{named}'\n"));
    for (document, traits, names, prefix) in [
        (ONLY_BACKEND_API, unified("web"), ClusterNames::UNIFIED, "self_backend-api".to_owned()),
        (&by_port, traits("web"), ClusterNames::LEGACY, format!("localhost_{NOBODY}")),
    ] {
        let traits = ProxyTraits { admin_port: 0, ..traits };
        let plan = plan(&[PLAIN, document, &backend(&inbounds)], &traits);
        assert_eq!(plan.findings(), []);
        let envoy = Live::start(&plan, names);
        let mut caller = Caller::of(named);
        let statuses: Vec<String> = (0..REQUESTS).map(|_| caller.get().status).collect();
        let faults = statuses.iter().filter(|status| *status == "500").count();
        assert!(EXPECTED.contains(&faults), "{faults} of {REQUESTS}");
        // No application answers behind the proxy.
        assert!(statuses.iter().all(|status| ["500", "503"].contains(&status.as_str())), "{statuses:?}");
        assert_eq!(stat(&envoy, &format!("http.{prefix}.fault.aborts_injected")), faults as u64);
        let mut caller = Caller::of(other);
        assert!((0..REQUESTS / 10).all(|_| caller.get().status == "503"));
    }
}

#[test]
fn requests_are_held_back_and_responses_are_slowed_down() {
    const BODY: usize = 16 << 10;
    let application = TcpListener::bind("127.0.0.1:0").unwrap();
    let service = application.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in application.incoming().flatten() {
            let _ = BufReader::new(&client).read_line(&mut String::new());
            let _ = write!(client, "HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n{}", "x".repeat(BODY));
        }
    });
    let slow = free_port();
    let late = free_port();
    let fault = |section: &str, fault: &str| {
        format!(
            "type: MeshFaultInjection\nmesh: default\nname: {section}\nspec:\n\
             \x20 targetRef: {{ kind: Dataplane, sectionName: {section} }}\n\
             \x20 rules: [{{ default: {{ http: [{fault}] }} }}]\n"
        )
    };
    let slowly = fault("slow", "{ responseBandwidth: { limit: 16kbps, percentage: 100 } }");
    let later = fault("late", "{ delay: { value: 300ms, percentage: '100.0' } }");
    let inbounds = json!([inbound("slow", slow, service, "http"), inbound("late", late, service, "http")]);
    let traits = ProxyTraits { admin_port: 0, ..unified("web") };
    let plan = plan(&[PLAIN, &slowly, &later, &backend(&inbounds)], &traits);
    assert_eq!(plan.findings(), []);
    let envoy = Live::start(&plan, ClusterNames::UNIFIED);
    let begin = Instant::now();
    assert_eq!(Caller::of(slow).get().status, "200");
    // The whole of it takes a second; whatever the machine does, not less than half of that.
    assert!(begin.elapsed() > Duration::from_millis(500), "{:?}", begin.elapsed());
    assert_eq!(stat(&envoy, "http.self_slow.fault.response_rl_injected"), 1);
    let begin = Instant::now();
    assert_eq!(Caller::of(late).get().status, "200");
    // Envoy counts from when it last looked at the clock, which may be a moment before.
    assert!(begin.elapsed() > Duration::from_millis(150), "{:?}", begin.elapsed());
    assert_eq!(stat(&envoy, "http.self_late.fault.delays_injected"), 1);
}

/// The answer that a fault gives.
fn status(code: u32) -> String {
    let reason = match code {
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        504 => "Gateway Timeout",
        _ => panic!("{code}"),
    };
    format!("HTTP/1.1 {code} {reason}")
}

#[test]
fn the_entry_of_from_with_the_highest_precedence_for_a_client_decides() {
    let policy = "type: MeshFaultInjection\nmesh: default\nname: faults\nspec:\n\
        \x20 targetRef: { kind: Dataplane }\n\
        \x20 from:\n\
        \x20   - { targetRef: { kind: Mesh }, default: { http: [{ abort: { httpStatus: 500, percentage: 100 } }] } }\n\
        \x20   - { targetRef: { kind: MeshSubset, tags: { team: a } }, default: { http: [{ abort: { httpStatus: 501, percentage: 0 } }, { abort: { httpStatus: 502, percentage: 100 } }] } }\n\
        \x20   - { targetRef: { kind: MeshService, name: spared }, default: { http: [] } }\n\
        \x20   - { targetRef: { kind: MeshService, name: silent }, default: {} }\n";
    let envoy = Running::under(&[policy], "http", NOBODY, everyone());
    for (uris, expected) in [
        (&["spiffe://default/x"][..], status(500)),
        (&["spiffe://default/x", "kuma://team/a"], status(502)),
        (&["spiffe://default/x", "kuma://team/ab"], status(500)),
        (&["spiffe://default/spared", "kuma://team/a"], LET_IN.to_owned()),
        (&["spiffe://default/silent", "kuma://team/a"], status(502)),
        (&["kuma://version/1", "spiffe://default/spared"], LET_IN.to_owned()),
    ] {
        assert_eq!(envoy.call(uris).unwrap(), expected, "{uris:?}");
    }
}

#[test]
fn each_rule_that_means_a_client_counts() {
    let policy = "type: MeshFaultInjection\nmesh: default\nname: faults\nspec:\n\
        \x20 targetRef: { kind: Dataplane }\n\
        \x20 rules:\n\
        \x20   - matches: [{ spiffeID: { type: Exact, value: 'spiffe://default/a' } }, { spiffeID: { type: Prefix, value: 'spiffe://default/ns/' } }]\n\
        \x20     default: { http: [{ abort: { httpStatus: 500, percentage: 100 } }] }\n\
        \x20   - matches: [{ sni: { type: Exact, value: a.mesh } }]\n\
        \x20     default: { http: [{ abort: { httpStatus: 504, percentage: 100 } }] }\n";
    let envoy = Running::under(&[policy], "grpc", NOBODY, everyone());
    for (uris, sni, expected) in [
        (&["spiffe://default/a"][..], "web", status(500)),
        (&["spiffe://default/ab"], "web", LET_IN.to_owned()),
        (&["kuma://team/a", "spiffe://default/ns/x"], "web", status(500)),
        (&["spiffe://default/b"], "a.mesh", status(504)),
        // Rules about identities come first.
        (&["spiffe://default/a"], "a.mesh", status(500)),
        (&["spiffe://default/b"], "b.mesh", LET_IN.to_owned()),
    ] {
        let certificate = envoy.authority.sign(uris);
        assert_eq!(envoy.ask(envoy.inbound, &certificate, sni).unwrap(), expected, "{uris:?} {sni}");
    }
}

const RULES: &str = "
type: MeshFaultInjection
mesh: default
name: faults
spec:
  targetRef: { kind: Dataplane }
  rules:
    - default: { http: [{ abort: { httpStatus: 444, percentage: 12 } }, { delay: { value: 55s, percentage: '0.0055' }, responseBandwidth: { limit: 111Mbps, percentage: '62.9' } }] }
    - matches: [{ spiffeID: { type: Exact, value: 'spiffe://default/a' } }]
      default: { http: [{ abort: { httpStatus: 500, percentage: 1 } }] }
---
type: MeshFaultInjection
mesh: default
name: older
spec:
  targetRef: { kind: Dataplane }
  from:
    - { targetRef: { kind: Mesh }, default: { http: [{ abort: { httpStatus: 501, percentage: 1 } }] } }
    - { targetRef: { kind: MeshService, name: a }, default: { http: [] } }
";

fn http_filters(chain: &Value) -> Vec<(String, Value)> {
    let manager = chain["filters"].as_array().unwrap().last().unwrap();
    let filters = manager["typedConfig"]["httpFilters"].as_array().unwrap().iter();
    filters
        .map(|filter| (filter["name"].as_str().unwrap().to_owned(), filter["typedConfig"].clone()))
        .collect()
}

#[test]
fn faults_are_filters_with_the_names_and_shares_of_kuma() {
    let proxy = backend(&json!([inbound("main", 80, 81, "http")]));
    let permissive = SECURED.replace("type: builtin }", "type: builtin, mode: PERMISSIVE }");
    let listener =
        shown(&target(&[&permissive, RULES, &proxy], &unified("web")), Type::Listener, "self_main");
    let [plain, own, secured] = &listener["filterChains"].as_array().unwrap()[..] else {
        panic!("{listener}")
    };
    assert_eq!(own["filters"][0]["name"], "envoy.filters.network.tcp_proxy");
    let from = "envoy.filters.http.fault";
    let rules = "kri_mfi_default___faults_";
    let filters = http_filters(plain);
    let names: Vec<&str> = filters.iter().map(|(name, _)| name.as_str()).collect();
    // Clients without a certificate cannot be distinguished.
    assert_eq!(names, [from, rules, rules, "envoy.filters.http.router"]);
    check(&filters[1].1, &[("/abort", json!({"httpStatus": 444, "percentage": {"numerator": 12}}))]);
    check(
        &filters[2].1,
        &[
            (
                "/delay",
                json!({"fixedDelay": "55s", "percentage": {"numerator": 55, "denominator": "MILLION"}}),
            ),
            (
                "/responseRateLimit",
                json!({"fixedLimit": {"limitKbps": "111000"},
                    "percentage": {"numerator": 6290, "denominator": "TEN_THOUSAND"}}),
            ),
        ],
    );
    let filters = http_filters(secured);
    let names: Vec<&str> = filters.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["envoy.filters.http.rbac", from, rules, rules, rules, "envoy.filters.http.router"]);
    let only_for_a = &filters[2].1;
    assert_eq!(only_for_a["extensionConfig"]["name"], from);
    assert_eq!(only_for_a["xdsMatcher"]["matcherList"]["matchers"][0]["onMatch"]["action"]["name"], "skip");
    // Server names are not asked for, so nothing looks for them in plain connections but what tells TLS.
    assert_eq!(listener["listenerFilters"].as_array().unwrap().len(), 1);
}

#[test]
fn faults_are_for_requests() {
    let proxy = backend(&json!([inbound("main", 80, 81, "tcp")]));
    let listener = shown(&target(&[PLAIN, RULES, &proxy], &unified("web")), Type::Listener, "self_main");
    let [chain] = &listener["filterChains"].as_array().unwrap()[..] else { panic!("{listener}") };
    let [filter] = &chain["filters"].as_array().unwrap()[..] else { panic!("{chain}") };
    assert_eq!(filter["name"], "envoy.filters.network.tcp_proxy");
}
