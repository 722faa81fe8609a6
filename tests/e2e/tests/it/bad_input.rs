//! Mistakes of proxies: each gets an error that says what, and no other proxy notices.

use std::net::Ipv4Addr;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use e2e::{
    Setup,
    discovery::{Address, Identity, KnownVersions, Stream, send_raw},
    eventually, grpc,
    proxy::{Options, RunningProxy, own_address},
    service::{Service, dataplane, with_outbound},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::{Code, Status};
use xds::{Type, message::DeltaRequest};

use crate::world::{World, answered_by, by_reference, client};

/// A world in which two proxies talk, whatever a third one does.
struct Bystanders {
    world: World,
    address: Ipv4Addr,
    runtime: Runtime,
    _server: (Service, RunningProxy, Ipv4Addr),
    _client: RunningProxy,
}

impl Bystanders {
    fn start() -> Bystanders {
        let world = World::start(Setup::default());
        let server = world.service("web-1", "web", "http");
        let (client, address) = client(&world, "client", &[by_reference("web")]);
        let here =
            Bystanders { world, address, runtime: Runtime::new().unwrap(), _server: server, _client: client };
        here.are_served();
        here
    }

    fn are_served(&self) {
        assert_eq!(answered_by(self.address, 10001), "web-1");
        let late = own("late");
        let late = Identity::of(&self.world.control_plane, late).unwrap();
        self.runtime.block_on(async {
            let mut stream = Stream::open(&self.target(), &late, KnownVersions::default()).await.unwrap();
            stream.until(Type::Listener).await.unwrap();
        });
    }

    fn target(&self) -> Address {
        Address::of(&self.world.control_plane)
    }

    fn identity(&self, dataplane: Value) -> Identity {
        Identity::of(&self.world.control_plane, dataplane).unwrap()
    }

    fn token(&self, request: &Value) -> Option<String> {
        let answer = self.world.control_plane.client().post("/tokens/dataplane", request).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        Some(answer.body)
    }

    /// Status with which the control plane ends a stream that it refuses.
    fn refusal(&self, identity: &Identity) -> Status {
        self.runtime.block_on(async {
            match Stream::open(&self.target(), identity, KnownVersions::default()).await {
                Ok(stream) => stream.refusal().await,
                Err(status) => status,
            }
        })
    }

    fn check_refused(&self, identity: &Identity, code: Code, says: &str) {
        let status = self.refusal(identity);
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(says), "{says:?} is not in {status:?}");
    }
}

fn own(name: &str) -> Value {
    dataplane(name, name, own_address(), "http", (own_address(), 9000).into())
}

#[test]
fn a_token_that_does_not_fit_is_refused_with_the_reason() {
    let here = Bystanders::start();
    here.world.put("/meshes/other", &json!({"type": "Mesh", "name": "other"}));
    let fitting = here.identity(own("bad"));
    let check = |token: Option<String>, code, says| {
        here.check_refused(&Identity { token, ..fitting.clone() }, code, says);
    };
    check(None, Code::Unauthenticated, "no dataplane token");
    check(Some("no-token-at-all".to_owned()), Code::Unauthenticated, "refused");
    check(
        here.token(&json!({"mesh": "other", "name": "bad", "validFor": "1h"})),
        Code::Unauthenticated,
        "refused",
    );
    check(
        here.token(&json!({"mesh": "default", "name": "somebody", "validFor": "1h"})),
        Code::PermissionDenied,
        "somebody",
    );
    check(
        here.token(&json!({"mesh": "default", "tags": {"kuma.io/service": ["web"]}, "validFor": "1h"})),
        Code::PermissionDenied,
        "kuma.io/service",
    );
    let short = here.token(&json!({"mesh": "default", "name": "bad", "validFor": "1ms"}));
    let late = Identity { token: short, ..fitting.clone() };
    here.check_refused(&late, Code::Unauthenticated, "expired");
    here.are_served();
}

#[test]
fn a_token_that_is_revoked_loses_its_stream_and_gets_no_other() {
    let here = Bystanders::start();
    let revoked = here.identity(own("revoked"));
    let token = revoked.token.clone().unwrap();
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    let mut stream =
        here.runtime.block_on(Stream::open(&here.target(), &revoked, KnownVersions::default())).unwrap();
    here.runtime.block_on(stream.until(Type::Listener)).unwrap();

    let list = base64::prelude::BASE64_STANDARD.encode(claims["jti"].as_str().unwrap());
    let name = "dataplane-token-revocations-default";
    here.world.put(
        &format!("/meshes/default/secrets/{name}"),
        &json!({"type": "Secret", "mesh": "default", "name": name, "data": list}),
    );
    let ended = here.runtime.block_on(stream.refusal());
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
    assert!(ended.message().contains("revoked"), "{ended:?}");
    here.check_refused(&revoked, Code::Unauthenticated, "revoked");
    here.are_served();
}

#[test]
fn a_dataplane_that_cannot_be_is_refused_with_the_reason() {
    let here = Bystanders::start();
    let mut unknown = own("bad");
    unknown["networking"]["inbound"][0]["tags"]["kuma.io/protocol"] = json!("smtp");
    here.check_refused(&here.identity(unknown.clone()), Code::InvalidArgument, "smtp");

    let mut agent = RunningProxy::spawn(&here.world.control_plane, &unknown, &Options::default()).unwrap();
    assert!(!agent.ended().unwrap().success());
    assert!(agent.log().contains("smtp"), "{}", agent.log());

    let token = here.token(&json!({"mesh": "default", "name": "renamed", "validFor": "1h"}));
    let renamed = Identity { name: "renamed".to_owned(), token, ..here.identity(own("bad")) };
    here.check_refused(&renamed, Code::InvalidArgument, "default.renamed");
    let missing = Identity { dataplane: None, ..here.identity(own("missing")) };
    here.check_refused(&missing, Code::NotFound, "missing");
    here.are_served();
}

#[test]
fn what_a_dataplane_cannot_have_is_reported_and_the_rest_of_it_works() {
    let here = Bystanders::start();
    let address = own_address();
    let app = Service::start("hopeful-1", "http", (own_address(), 9000).into()).unwrap();
    let mut own = dataplane("hopeful", "hopeful", address, "http", app.address);
    // Kuma lets several inbounds share a port, so it is no reason to refuse the Dataplane.
    let mut second = own["networking"]["inbound"][0].clone();
    second["name"] = json!("second");
    second["servicePort"] = json!(9);
    own["networking"]["inbound"].as_array_mut().unwrap().push(second);
    own = with_outbound(own, address, 10001, by_reference("web"));
    own = with_outbound(own, address, 10002, by_reference("nowhere"));
    own = with_outbound(own, address, 10001, by_reference("hopeful"));
    let _proxy = here.world.proxy(&own);
    assert_eq!(answered_by(address, 10001), "web-1");
    let (_caller, caller) = client(&here.world, "caller", &[by_reference("hopeful")]);
    assert_eq!(answered_by(caller, 10001), "hopeful-1");
    let reports = [
        format!("inbound second: another inbound already listens at {address}:8080"),
        format!("outbound {address}:10002: there is no destination with MeshService \"nowhere\""),
        format!("outbound {address}:10001: the address is in use"),
    ];
    let log = || here.world.control_plane.log();
    for report in reports {
        eventually("a word about it in the log", || log().contains(&report))
            .unwrap_or_else(|error| panic!("{error}: {report} in {}", log()));
    }
    here.are_served();
}

#[test]
fn a_stream_that_makes_no_sense_is_ended_with_the_reason() {
    let here = Bystanders::start();
    let sane = here.identity(own("sane"));
    let changed = here.runtime.block_on(async {
        let mut stream = Stream::open(&here.target(), &sane, KnownVersions::default()).await.unwrap();
        stream.until(Type::Listener).await.unwrap();
        let node = Identity { name: "somebody-else".to_owned(), ..sane.clone() }.node();
        let type_url = Type::Cluster.url().to_owned();
        stream.send(DeltaRequest { node: Some(node), type_url, ..DeltaRequest::default() });
        stream.refusal().await
    });
    assert_eq!(changed.code(), Code::InvalidArgument, "{changed:?}");
    assert!(changed.message().contains("somebody-else"), "{changed:?}");

    let too_long = vec![0; (4 << 20) + 1];
    let token = sane.token.as_deref().unwrap();
    let raw = |body| here.runtime.block_on(send_raw(&here.target(), token, body)).unwrap();
    let oversized = raw(grpc::frame(&too_long));
    assert_eq!(oversized.code(), Code::ResourceExhausted, "{oversized:?}");
    assert!(oversized.message().contains("the limit is 1048576"), "{oversized:?}");
    let garbage = raw(grpc::frame(&[0xff; 64]));
    assert!(garbage.message().contains("decode"), "{garbage:?}");
    let nameless = raw(grpc::frame(&[]));
    assert_eq!(nameless.code(), Code::InvalidArgument, "{nameless:?}");
    assert!(nameless.message().contains("node id"), "{nameless:?}");
    here.are_served();
}

#[test]
fn an_agent_that_believes_another_authority_says_so() {
    let here = Bystanders::start();
    let elsewhere = World::join(Setup::default());
    let authority = elsewhere.control_plane.work_dir().join("kuma-cp.crt");
    let options = Options { authority: Some(authority), ..Options::default() };
    let mut agent = RunningProxy::spawn(&here.world.control_plane, &own("mistaken"), &options).unwrap();
    assert!(!agent.ended().unwrap().success());
    assert!(agent.log().contains("ca-cert-file"), "{}", agent.log());
    here.are_served();
}
