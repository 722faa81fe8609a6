//! The simulated Envoy asks and answers as a real one does.

use super::*;

const NODE: &[u8] = b"\x0a\x01n";

fn envoy(variant: Variant) -> (Envoy, Texts) {
    let secrets = vec![Bytes::from_static(b"ca"), Bytes::from_static(b"identity")];
    (Envoy::new(variant, Bytes::from_static(NODE), secrets), Texts::default())
}

/// A cluster that discovers its endpoints and names a secret.
fn cluster(name: &str, more: &str) -> Vec<u8> {
    let mut body = vec![0x0a, name.len() as u8];
    body.extend(name.bytes());
    body.extend([0x10, 3, 0x7a, more.len() as u8]);
    body.extend(more.bytes());
    body
}

fn response(kind: Kind, nonce: &str, resources: &[(&str, &str, Vec<u8>)], removed: &[&str]) -> Bytes {
    let resource = |(name, version, body): &(&str, &str, Vec<u8>)| {
        let any = Some(Any { value: body.clone().into() });
        let name = Bytes::from((*name).to_owned());
        let version = Bytes::from((*version).to_owned());
        Bytes::from(WireResource { version, any, name }.encode_to_vec())
    };
    let response = DeltaResponse {
        resources: resources.iter().map(resource).collect(),
        type_url: Bytes::from_static(kind.url().as_bytes()),
        nonce: Bytes::from(nonce.to_owned()),
        removed: removed.iter().map(|name| Bytes::from((*name).to_owned())).collect(),
    };
    response.encode_to_vec().into()
}

/// Requests as text: type, node, names, what is known, nonce and error.
fn told(requests: &[Bytes]) -> Vec<String> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let one = |request: &Bytes| {
        let request = DeltaRequest::decode(request.clone()).unwrap();
        let mut words = vec![format!("{:?}", Kind::by_url(&request.type_url).unwrap())];
        words.extend((!request.node.is_empty()).then(|| "node".to_owned()));
        let mut names: Vec<String> =
            request.subscribe.iter().map(|name| format!("+{}", text(name))).collect();
        names.extend(request.unsubscribe.iter().map(|name| format!("-{}", text(name))));
        let known = |entry: &MapEntry| format!("{}@{}", text(&entry.key), text(&entry.value));
        names.extend(request.initial_versions.iter().map(known));
        names.sort();
        words.extend(names);
        words.extend((!request.nonce.is_empty()).then(|| format!("nonce {}", text(&request.nonce))));
        words.extend(request.error.map(|_| "rejected".to_owned()));
        words.join(" ")
    };
    requests.iter().map(one).collect()
}

fn take(envoy: &mut Envoy, texts: &mut Texts, response: &Bytes) -> Vec<String> {
    told(&envoy.take(response, texts, |_, _| ()).unwrap().requests)
}

#[test]
fn it_asks_for_clusters_then_what_they_name_then_listeners() {
    let (mut envoy, mut texts) = envoy(Variant::Delta);
    assert_eq!(told(&envoy.opening(&texts)), ["Cluster node"]);
    let clusters = response(
        Kind::Cluster,
        "1",
        &[("a", "v1", cluster("a", "ca")), ("b", "v1", cluster("b", "identity"))],
        &[],
    );
    let asked = take(&mut envoy, &mut texts, &clusters);
    assert_eq!(asked, ["Cluster nonce 1", "Endpoint +a +b", "Secret +ca +identity"]);
    let first = response(Kind::Endpoint, "2", &[("a", "v1", b"1".to_vec())], &[]);
    assert_eq!(take(&mut envoy, &mut texts, &first), ["Endpoint nonce 2"]);
    let second = response(Kind::Endpoint, "3", &[("b", "v1", b"2".to_vec())], &[]);
    assert_eq!(take(&mut envoy, &mut texts, &second), ["Endpoint nonce 3", "Listener"]);
    let secrets = [("ca", "v1", b"c".to_vec()), ("identity", "v1", b"i".to_vec())];
    take(&mut envoy, &mut texts, &response(Kind::Secret, "4", &secrets, &[]));
    assert_eq!(envoy.destinations(), 0, "there are no listeners");
    let listeners = [("l1", "v1", b"l".to_vec()), ("l2", "v1", b"l".to_vec())];
    take(&mut envoy, &mut texts, &response(Kind::Listener, "5", &listeners, &[]));
    assert_eq!((envoy.destinations(), envoy.resources()), (2, 8));
    let gone = response(Kind::Cluster, "6", &[], &["b"]);
    assert_eq!(take(&mut envoy, &mut texts, &gone), ["Cluster nonce 6", "Endpoint -b"]);
}

#[test]
fn it_tells_what_it_has_on_a_new_stream_unless_it_was_restarted() {
    let (mut envoy, mut texts) = envoy(Variant::Delta);
    envoy.opening(&texts);
    take(&mut envoy, &mut texts, &response(Kind::Cluster, "1", &[("a", "v1", cluster("a", ""))], &[]));
    take(&mut envoy, &mut texts, &response(Kind::Endpoint, "2", &[("a", "v2", b"1".to_vec())], &[]));
    let again = told(&envoy.opening(&texts));
    assert_eq!(again, ["Cluster node a@v1", "Endpoint +a a@v2", "Listener"]);
    envoy.forget();
    assert_eq!(told(&envoy.opening(&texts)), ["Cluster node"]);
}

#[test]
fn what_it_rejects_it_does_not_have() {
    let (mut envoy, mut texts) = envoy(Variant::Delta);
    envoy.opening(&texts);
    let clusters = response(Kind::Cluster, "1", &[("a", "v1", cluster("a", ""))], &[]);
    let taken = envoy.reject(&clusters, &mut texts).unwrap();
    assert_eq!(told(&taken.requests), ["Cluster nonce 1 rejected"]);
    assert_eq!(envoy.resources(), 0);
}

#[test]
fn bytes_are_needed_when_they_say_something_new() {
    let (mut envoy, mut texts) = envoy(Variant::Delta);
    envoy.opening(&texts);
    let mut needed = |response: &Bytes| {
        let taken = envoy.take(response, &mut texts, |_, _| ()).unwrap();
        (taken.needed, response.len())
    };
    let clusters = response(Kind::Cluster, "1", &[("a", "v1", cluster("a", ""))], &[]);
    let (first, all) = needed(&clusters);
    assert_eq!(first, all);
    assert_eq!(needed(&clusters).0, 0, "the same again");
    let endpoints = response(Kind::Endpoint, "2", &[("a", "v1", b"1".to_vec())], &[]);
    assert_eq!(needed(&endpoints).0, endpoints.len());
    assert_eq!(needed(&endpoints).0, 0);
    // Envoy waits for the endpoints of a cluster that has changed.
    needed(&response(Kind::Cluster, "3", &[("a", "v2", cluster("a", "x"))], &[]));
    assert_eq!(needed(&endpoints).0, endpoints.len());
    let both = [("a", "v2", b"2".to_vec()), ("b", "v1", b"a longer body".to_vec())];
    needed(&response(Kind::Endpoint, "4", &both[1..], &[]));
    let half = response(Kind::Endpoint, "5", &both, &[]);
    let (wanted, all) = needed(&half);
    assert!(0 < wanted && wanted + "a longer body".len() < all, "{wanted} of {all}");
}

#[test]
fn the_state_of_the_world_names_everything_and_removes_what_it_leaves_out() {
    let (mut envoy, mut texts) = envoy(Variant::World);
    envoy.opening(&texts);
    let world = |nonce: &'static str, names: &[&str]| {
        let any = |name: &&str| Bytes::from(Any { value: cluster(name, "").into() }.encode_to_vec());
        let response = WorldResponse {
            version: Bytes::from_static(b"7"),
            resources: names.iter().map(any).collect(),
            type_url: Bytes::from_static(Kind::Cluster.url().as_bytes()),
            nonce: Bytes::from_static(nonce.as_bytes()),
        };
        Bytes::from(response.encode_to_vec())
    };
    let requests = envoy.take(&world("1", &["a", "b"]), &mut texts, |_, _| ()).unwrap().requests;
    let acknowledged = WorldRequest::decode(requests[0].clone()).unwrap();
    assert_eq!((&*acknowledged.version, &*acknowledged.nonce), (&b"7"[..], &b"1"[..]));
    let asked = WorldRequest::decode(requests[1].clone()).unwrap();
    assert_eq!(asked.names.len(), 2);
    assert_eq!(envoy.resources(), 2);
    let requests = envoy.take(&world("2", &["a"]), &mut texts, |_, _| ()).unwrap().requests;
    assert_eq!(envoy.resources(), 1);
    assert_eq!(WorldRequest::decode(requests[1].clone()).unwrap().names, ["a"]);
}
