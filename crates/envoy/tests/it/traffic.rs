//! A real Envoy sends requests and connections where routes say, and waits as long as timeouts say.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use envoy::bootstrap::ClusterNames;
use plan::{ProxyPlan, ProxyTraits};
use serde_json::Value;

use crate::{
    enforcement::free_port,
    live::Live,
    support::{PLAIN, plan, traits, unified, web},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// More than any fair coin needs to show both sides.
const MANY: usize = 200;

/// An application that says its name and what it was asked; `/slow` it never answers.
pub fn application(name: &'static str) -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in socket.incoming().flatten() {
            std::thread::spawn(move || answer(name, client));
        }
    });
    port
}

fn answer(name: &str, client: TcpStream) {
    let mut client = BufReader::new(client);
    let mut asked = String::new();
    if client.read_line(&mut asked).is_err() {
        return;
    }
    let asked = asked.trim_end();
    if !asked.contains("HTTP/") {
        let _ = client.get_mut().write_all(format!("{name}\n").as_bytes());
        return;
    }
    let mut headers = String::new();
    while client.read_line(&mut headers).is_ok_and(|length| length > 2) {}
    if asked.contains("/slow") {
        // Until the client has gone.
        let _ = client.read_line(&mut headers);
        return;
    }
    let added = headers.lines().find(|line| line.starts_with("x-added")).unwrap_or_default();
    let said = format!("{name} {asked} {added}");
    let _ = write!(
        client.get_mut(),
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{said}",
        said.len()
    );
}

/// Two services behind the proxy's own inbounds; the proxy calls the first of them.
pub struct World {
    pub envoy: Live,
    pub outbound: u16,
}

impl World {
    pub fn with(protocol: &str, policies: &str, traits: &ProxyTraits) -> World {
        World::calling("backendRef: { kind: MeshService, name: one, port: 80 }", protocol, policies, traits)
    }

    /// The outbound names its destination as `called` does.
    fn calling(called: &str, protocol: &str, policies: &str, traits: &ProxyTraits) -> World {
        let outbound = free_port();
        let plan = planned(protocol, policies, traits, &format!("port: {outbound}, {called}"));
        assert_eq!(plan.findings(), []);
        let names = if traits.unified_naming { ClusterNames::UNIFIED } else { ClusterNames::LEGACY };
        World { envoy: Live::start(&plan, names), outbound }
    }

    /// Status and body of an answer.
    pub fn get(&self, path: &str, headers: &str) -> (String, String) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: one\r\nconnection: close\r\n{headers}\r\n");
        let answer = self.say(&request);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap();
        let location = head.lines().find_map(|line| line.strip_prefix("location: "));
        (status.to_owned(), location.unwrap_or(body).trim_end().to_owned())
    }

    fn say(&self, words: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.outbound)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(words.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The names of all routes in what Envoy runs.
    fn routes(&self) -> BTreeSet<String> {
        let dump: Value = serde_json::from_str(&self.envoy.get("/config_dump")).unwrap();
        let mut names = BTreeSet::new();
        collect_routes(&dump, &mut names);
        names
    }
}

fn collect_routes(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_routes(item, names)),
        Value::Object(fields) => {
            let routes = fields.get("routes").and_then(Value::as_array).into_iter().flatten();
            names.extend(routes.filter_map(|route| route["name"].as_str()).map(str::to_owned));
            fields.values().for_each(|field| collect_routes(field, names));
        }
        _ => {}
    }
}

fn planned(protocol: &str, policies: &str, traits: &ProxyTraits, outbound: &str) -> ProxyPlan {
    let mut documents = vec![PLAIN.to_owned(), policies.to_owned()];
    let mut inbounds = Vec::new();
    for name in ["one", "two"] {
        let port = free_port();
        let application = application(name);
        inbounds.push(format!(
            "{{ name: {name}, address: 127.0.0.1, port: {port}, servicePort: {application}, \
             tags: {{ kuma.io/service: {name}, kuma.io/protocol: {protocol} }} }}"
        ));
        documents.push(format!(
            "type: MeshService\nmesh: default\nname: {name}\nspec:\n\
             \x20 selector: {{ dataplaneTags: {{ kuma.io/service: {name} }} }}\n\
             \x20 ports: [{{ port: 80, targetPort: {port}, appProtocol: {protocol} }}]"
        ));
    }
    documents.push(web(&format!("inbound: [{}]\noutbound: [{{ {outbound} }}]", inbounds.join(", "))));
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    plan(&documents, &ProxyTraits { admin_port: 0, ..traits.clone() })
}

const ROUTES: &str = r#"
type: MeshHTTPRoute
mesh: default
name: shape
spec:
  to:
    - targetRef: { kind: MeshService, name: one }
      rules:
        - matches:
            - { path: { type: Exact, value: /two } }
            - { headers: [{ name: x-version, value: two }] }
            - { headers: [{ type: Prefix, name: x-given }, { type: RegularExpression, name: x-empty }], queryParams: [{ type: RegularExpression, name: q, value: '' }] }
          default: { backendRefs: [{ kind: MeshService, name: two, port: 80 }] }
        - matches: [{ path: { type: PathPrefix, value: /split } }]
          default: { backendRefs: [{ kind: MeshService, name: one, port: 80 }, { kind: MeshService, name: two, port: 80 }] }
        - matches: [{ path: { type: PathPrefix, value: /v1 }, method: GET }]
          default:
            filters:
              - { type: URLRewrite, urlRewrite: { path: { type: ReplacePrefixMatch, replacePrefixMatch: /v2 } } }
              - { type: RequestHeaderModifier, requestHeaderModifier: { add: [{ name: x-added, value: '5%% %REQ(x-sent)%' }] } }
        - matches: [{ path: { type: Exact, value: /relative } }]
          default: { filters: [{ type: URLRewrite, urlRewrite: { path: { type: ReplaceFullPath, replaceFullPath: somewhere } } }] }
        - matches: [{ path: { type: Exact, value: /moved } }]
          default: { filters: [{ type: RequestRedirect, requestRedirect: { hostname: other.test, path: { type: ReplaceFullPath, replaceFullPath: /here } } }] }
"#;

#[test]
fn requests_take_the_route_that_matches_in_both_schemes_of_names() {
    let default = "9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=".to_owned();
    for (traits, name) in [
        (traits("web"), "kri_mhttpr_default___shape_"),
        (unified("web"), "kri_mhttpr_default___shape_rule_0"),
    ] {
        let world = World::with("http", ROUTES, &traits);
        let sent = "x-sent: 1\r\n";
        for (path, headers, expected) in [
            ("/", "", "one GET / HTTP/1.1"),
            ("/two", "", "two GET /two HTTP/1.1"),
            ("/twofold", "", "one GET /twofold HTTP/1.1"),
            ("/any", "x-version: two\r\n", "two GET /any HTTP/1.1"),
            ("/given?q=", "x-given: 1\r\nx-empty:\r\n", "two GET /given?q= HTTP/1.1"),
            ("/given?q=1", "x-given: 1\r\nx-empty:\r\n", "one GET /given?q=1 HTTP/1.1"),
            ("/relative", "", "one GET /somewhere HTTP/1.1"),
            ("/v1", sent, "one GET /v2 HTTP/1.1 x-added: 5% 1"),
            ("/v1/things?id=7", sent, "one GET /v2/things?id=7 HTTP/1.1 x-added: 5% 1"),
            ("/v10", "", "one GET /v10 HTTP/1.1"),
        ] {
            assert_eq!(world.get(path, headers), ("200".to_owned(), expected.to_owned()), "{path}");
        }
        assert_eq!(world.get("/moved", ""), ("302".to_owned(), "http://other.test/here".to_owned()));
        let answered = (0..MANY).map(|_| world.get("/split/x", "").1[..3].to_owned());
        assert_eq!(answered.collect::<BTreeSet<_>>(), BTreeSet::from(["one".to_owned(), "two".to_owned()]));
        assert_eq!(world.routes(), BTreeSet::from([default.clone(), name.to_owned()]));
    }
}

#[test]
fn a_request_that_takes_longer_than_it_may_ends_with_504() {
    let policies = format!(
        "{ROUTES}---\ntype: MeshTimeout\nmesh: default\nname: short\nspec:\n  to:\n\
         \x20   - {{ targetRef: {{ kind: Mesh }}, default: {{ http: {{ requestTimeout: 0s }} }} }}\n\
         \x20   - {{ targetRef: {{ kind: MeshHTTPRoute, name: shape }}, default: {{ http: {{ requestTimeout: 100ms }} }} }}\n"
    );
    for traits in [traits("web"), unified("web")] {
        let world = World::with("http", &policies, &traits);
        let (status, body) = world.get("/split/slow", "");
        assert_eq!((status.as_str(), body.as_str()), ("504", "upstream request timeout"));
        // Other ways to the same destination have all the time they need, however slow this machine is.
        assert_eq!(world.get("/quick", "").0, "200");
    }
}

#[test]
fn a_policy_with_a_route_at_the_top_limits_the_requests_of_that_route() {
    let timeouts = "---\ntype: MeshTimeout\nmesh: default\nname: endless\nspec:\n\
        \x20 to: [{ targetRef: { kind: Mesh }, default: { http: { requestTimeout: 0s } } }]\n\
        ---\ntype: MeshTimeout\nmesh: default\nname: short\nspec:\n\
        \x20 targetRef: { kind: MeshHTTPRoute, name: shape }\n\
        \x20 to: [{ targetRef: { kind: Mesh }, default: { http: { requestTimeout: 100ms } } }]\n";
    for called in ["backendRef: { kind: MeshService, name: one, port: 80 }", "tags: { kuma.io/service: one }"]
    {
        let world = World::calling(called, "http", &format!("{ROUTES}{timeouts}"), &unified("web"));
        assert_eq!(world.get("/split/slow", "").0, "504", "{called}");
        // Other ways to the same destination have all the time they need, however slow this machine is.
        assert_eq!(world.get("/quick", "").0, "200", "{called}");
    }
}

#[test]
fn a_slow_application_is_given_up_by_its_own_proxy() {
    let policy = "type: MeshTimeout\nmesh: default\nname: short\nspec:\n\
        \x20 rules: [{ default: { http: { requestTimeout: 100ms } } }]\n\
        \x20 to: [{ targetRef: { kind: Mesh }, default: { http: { requestTimeout: 0s } } }]\n";
    let world = World::with("http", policy, &unified("web"));
    assert_eq!(world.get("/slow", "").0, "504");
}

#[test]
fn connections_are_spread_over_backends() {
    let policy = "type: MeshTCPRoute\nmesh: default\nname: spread\nspec: { to: [{ targetRef: { kind: MeshService, name: one }, \
        rules: [{ default: { backendRefs: [{ kind: MeshService, name: one, port: 80 }, { kind: MeshService, name: two, port: 80 }] } }] }] }";
    for traits in [traits("web"), unified("web")] {
        let world = World::with("tcp", policy, &traits);
        let answered: BTreeSet<String> = (0..MANY).map(|_| world.say("hello\n")).collect();
        assert_eq!(answered, BTreeSet::from(["one\n".to_owned(), "two\n".to_owned()]));
    }
}
