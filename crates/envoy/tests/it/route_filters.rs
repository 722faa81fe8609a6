//! Treatment of requests that take a route by a real Envoy, seen from both ends.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use envoy::bootstrap::ClusterNames;
use plan::ProxyTraits;

use crate::{
    enforcement::free_port,
    live::Live,
    support::{PLAIN, plan, traits, unified, web},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// An application that answers with its name and reports the head of every request.
fn application(name: &'static str) -> (u16, Receiver<String>) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let (reports, heads) = channel();
    std::thread::spawn(move || {
        for client in socket.incoming().flatten() {
            let reports = reports.clone();
            std::thread::spawn(move || answer(name, client, &reports));
        }
    });
    (port, heads)
}

fn answer(name: &str, client: TcpStream, reports: &Sender<String>) {
    let mut client = BufReader::new(client);
    let mut head = String::new();
    while client.read_line(&mut head).is_ok_and(|length| length > 2) {}
    if head.is_empty() {
        return;
    }
    let _ = reports.send(head);
    let length = name.len();
    let _ = write!(
        client.get_mut(),
        "HTTP/1.1 200 OK\r\nconnection: close\r\nx-set: old\r\nx-add: old\r\nx-gone: old\r\ncontent-length: {length}\r\n\r\n{name}"
    );
}

/// A proxy with two versions of one application, which has nothing but its tags, behind its own inbounds.
struct World {
    _envoy: Live,
    outbound: u16,
    first: Receiver<String>,
    second: Receiver<String>,
}

impl World {
    /// The proxy calls `called`, and `rules` are the rules for requests to the service `app`.
    fn new(called: &str, rules: &str, traits: &ProxyTraits) -> World {
        let outbound = free_port();
        let (one, first) = application("first");
        let (two, second) = application("second");
        let ports = (free_port(), free_port());
        let inbound = |port: u16, application: u16, version: &str| {
            format!(
                "{{ name: {version}, address: 127.0.0.1, port: {port}, servicePort: {application}, \
                 tags: {{ kuma.io/service: app, kuma.io/protocol: http, version: {version} }} }}"
            )
        };
        let service = format!(
            "type: MeshService\nmesh: default\nname: app\nspec:\n  selector: {{ dataplaneTags: {{ kuma.io/service: app }} }}\n\
             \x20 ports: [{{ port: 80, targetPort: {}, appProtocol: http }}, {{ port: 81, targetPort: {}, appProtocol: http }}]",
            ports.0, ports.1
        );
        let route = format!(
            "type: MeshHTTPRoute\nmesh: default\nname: r\nspec: {{ to: [{{ targetRef: {{ kind: MeshService, name: app }}, \
             rules: [{rules}] }}] }}"
        );
        let web = web(&format!(
            "inbound: [{}, {}]\noutbound: [{{ port: {outbound}, {called} }}]",
            inbound(ports.0, one, "v1"),
            inbound(ports.1, two, "v2")
        ));
        let plan = plan(&[PLAIN, &service, &route, &web], &ProxyTraits { admin_port: 0, ..traits.clone() });
        assert_eq!(plan.findings(), []);
        let names = if traits.unified_naming { ClusterNames::UNIFIED } else { ClusterNames::LEGACY };
        World { _envoy: Live::start(&plan, names), outbound, first, second }
    }

    /// The whole answer to a request.
    fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.outbound)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let headers = "x-set: old\r\nx-add: old\r\nx-gone: old\r\n";
        write!(socket, "GET {path} HTTP/1.1\r\nhost: app\r\nconnection: close\r\n{headers}\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// All values of a header, in their order.
fn header(head: &str, name: &str) -> String {
    let values = head.lines().filter_map(|line| line.split_once(": ")).filter(|(known, _)| *known == name);
    values.map(|(_, value)| value).collect::<Vec<_>>().join(" ")
}

const BY_RESOURCE: &str = "backendRef: { kind: MeshService, name: app, port: 80 }";
const BY_TAGS: &str = "tags: { kuma.io/service: app }";
const ALL: &str = "matches: [{ path: { type: PathPrefix, value: / } }]";
const FIRST: &str = "kind: MeshServiceSubset, name: app, tags: { version: v1 }";
const SECOND: &str = "kind: MeshServiceSubset, name: app, tags: { version: v2 }";

#[test]
fn requests_are_split_over_parts_of_a_service_by_weight() {
    let rule = format!(
        "{{ {ALL}, default: {{ backendRefs: [{{ {FIRST}, weight: 80 }}, {{ {SECOND}, weight: 20 }}] }} }}"
    );
    for (called, traits) in [(BY_RESOURCE, unified("web")), (BY_TAGS, traits("web"))] {
        let world = World::new(called, &rule, &traits);
        let second = (0..600).filter(|_| world.get("/").ends_with("second")).count();
        // 120 are expected with a deviation of 9.8; eight deviations to either side never happen by chance.
        assert!((42..=198).contains(&second), "{second} of 600, where one in five is asked for");
    }
}

#[test]
fn a_destination_by_tags_is_routed_by_path() {
    let rule = |path: &str, to: &str| {
        format!(
            "{{ matches: [{{ path: {{ type: Exact, value: {path} }} }}], default: {{ backendRefs: [{{ {to} }}] }} }}"
        )
    };
    let rules = format!("{}, {}", rule("/first", FIRST), rule("/second", SECOND));
    for traits in [traits("web"), unified("web")] {
        let world = World::new(BY_TAGS, &rules, &traits);
        for _ in 0..20 {
            assert!(world.get("/first").ends_with("first"));
            assert!(world.get("/second").ends_with("second"));
        }
    }
}

#[test]
fn headers_of_requests_and_responses_are_set_added_and_removed() {
    let modifier = "{ set: [{ name: x-set, value: new }], add: [{ name: x-add, value: '%PROTOCOL% 5%%' }], remove: [x-gone] }";
    let rule = format!(
        "{{ {ALL}, default: {{ backendRefs: [{{ {FIRST} }}], filters: [\
         {{ type: RequestHeaderModifier, requestHeaderModifier: {modifier} }}, \
         {{ type: RequestHeaderModifier, requestHeaderModifier: {{ set: [{{ name: host, value: other.test }}] }} }}, \
         {{ type: ResponseHeaderModifier, responseHeaderModifier: {modifier} }}] }} }}"
    );
    let world = World::new(BY_RESOURCE, &rule, &unified("web"));
    let answer = world.get("/");
    let request = world.first.recv_timeout(PATIENCE).unwrap();
    for head in [&answer, &request] {
        assert_eq!(header(head, "x-set"), "new", "{head}");
        assert_eq!(header(head, "x-add"), "old HTTP/1.1 5%", "{head}");
        assert_eq!(header(head, "x-gone"), "", "{head}");
    }
    assert_eq!(header(&request, "host"), "other.test");
}

#[test]
fn copies_of_requests_arrive_at_the_mirror() {
    let mirror = |percentage: &str| {
        format!(
            "{{ type: RequestMirror, requestMirror: {{ percentage: {percentage}, backendRef: {{ {SECOND} }} }} }}"
        )
    };
    let rule = |path: &str, percentage: &str| {
        format!(
            "{{ matches: [{{ path: {{ type: Exact, value: {path} }} }}], \
             default: {{ backendRefs: [{{ {FIRST} }}], filters: [{}] }} }}",
            mirror(percentage)
        )
    };
    for (called, traits) in [(BY_RESOURCE, unified("web")), (BY_TAGS, traits("web"))] {
        let rules = format!("{}, {}", rule("/never", "0"), rule("/always", "100"));
        let world = World::new(called, &rules, &traits);
        for _ in 0..10 {
            assert!(world.get("/never").ends_with("first"));
        }
        assert!(world.get("/always").ends_with("first"), "the caller sees nothing of the copy");
        let copy = world.second.recv_timeout(PATIENCE).unwrap();
        assert!(copy.starts_with("GET /always "), "the first copy is of the request that is copied: {copy}");
    }
}

#[test]
fn requests_are_redirected_and_rewritten() {
    let rule = |path: &str, filter: &str| {
        format!(
            "{{ matches: [{{ path: {{ type: PathPrefix, value: {path} }} }}], \
             default: {{ backendRefs: [{{ {FIRST} }}], filters: [{filter}] }} }}"
        )
    };
    let prefix = "path: { type: ReplacePrefixMatch, replacePrefixMatch: /new }";
    let rules = [
        rule(
            "/moved",
            &format!(
                "{{ type: RequestRedirect, requestRedirect: {{ scheme: https, hostname: other.test, port: 8443, statusCode: 308, {prefix} }} }}"
            ),
        ),
        rule("/old", &format!("{{ type: URLRewrite, urlRewrite: {{ hostname: other.test, {prefix} }} }}")),
        rule(
            "/any",
            r"{ type: URLRewrite, urlRewrite: { path: { type: ReplaceFullPath, replaceFullPath: '/one\1' } } }",
        ),
    ];
    for (called, traits) in [(BY_RESOURCE, unified("web")), (BY_TAGS, traits("web"))] {
        let world = World::new(called, &rules.join(", "), &traits);
        let answer = world.get("/moved/there?q=1");
        assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
        assert_eq!(header(&answer, "location"), "https://other.test:8443/new/there?q=1");
        for (path, asked, host) in [
            ("/old", "GET /new HTTP/1.1", "other.test"),
            ("/old/things?q=1", "GET /new/things?q=1 HTTP/1.1", "other.test"),
            ("/older", "GET /older HTTP/1.1", "app"),
            ("/any/thing", r"GET /one\1 HTTP/1.1", "app"),
        ] {
            world.get(path);
            let either = [&world.first, &world.second];
            let request =
                either.iter().cycle().find_map(|heads| heads.recv_timeout(Duration::from_millis(50)).ok());
            let request = request.unwrap();
            assert_eq!((request.lines().next().unwrap(), header(&request, "host")), (asked, host.to_owned()));
        }
    }
}
