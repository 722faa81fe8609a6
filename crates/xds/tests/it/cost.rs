//! Cost follows the change: how often names are looked at, counted.

use std::sync::Arc;

use xds::{
    Action, Encoded, Layer, Target, Type, delta,
    message::{DeltaRequest, Node, Request},
    sotw,
};

fn service(layer: &mut Layer, index: usize, version: u128) {
    let name = format!("service-{index:05}");
    for kind in [Type::Cluster, Type::Endpoint, Type::Listener] {
        layer.insert(kind, Arc::new(Encoded::new(kind, &name, version, &[0; 500])));
    }
}

fn services(count: usize) -> Layer {
    let mut layer = Layer::default();
    (0..count).for_each(|index| service(&mut layer, index, 1));
    layer
}

fn node() -> Option<Node> {
    Some(Node { id: "default.web".into(), ..Node::default() })
}

/// Plays an Envoy that takes everything and subscribes to the endpoints of the clusters it gets.
fn settle(stream: &mut delta::Stream, mut actions: Vec<delta::Action>) {
    while let Some(action) = actions.pop() {
        let Action::Send(response) = action else { continue };
        if response.type_url == Type::Cluster.url() {
            let names = response.decoded().unwrap().into_iter().map(|resource| resource.name);
            let subscribe = DeltaRequest {
                type_url: Type::Endpoint.url().into(),
                resource_names_subscribe: names.collect(),
                ..DeltaRequest::default()
            };
            actions.extend(stream.on_request(subscribe));
        }
        let type_url = response.type_url;
        let response_nonce = response.nonce;
        actions.extend(stream.on_request(DeltaRequest {
            type_url,
            response_nonce,
            ..DeltaRequest::default()
        }));
    }
}

fn connected(shared: Arc<Layer>) -> delta::Stream {
    let mut stream = delta::Stream::new();
    for kind in [Type::Cluster, Type::Listener] {
        let type_url = kind.url().into();
        stream.on_request(DeltaRequest { node: node(), type_url, ..DeltaRequest::default() });
    }
    let actions = stream.set_target(Arc::new(Target { shared, ..Target::default() }));
    settle(&mut stream, actions);
    assert!(stream.status().iter().all(|status| status.pending == 0));
    stream
}

#[test]
fn a_cold_start_looks_at_every_name_a_constant_number_of_times() {
    for count in [100, 1_000, 10_000] {
        let stream = connected(Arc::new(services(count)));
        let sent: u64 = stream.status().iter().map(|status| status.counters.resources).sum();
        assert_eq!(sent, 3 * count as u64);
        assert!(stream.visits() <= 4 * sent, "{count} services: {} visits", stream.visits());
    }
}

#[test]
fn one_change_looks_at_as_many_names_in_a_large_mesh_as_in_a_small_one() {
    let visits = [100, 10_000].map(|count| {
        let mut shared = services(count);
        let mut stream = connected(Arc::new(shared.clone()));
        let before = stream.visits();
        service(&mut shared, 7, 2);
        let actions = stream.set_target(Arc::new(Target { shared: Arc::new(shared), ..Target::default() }));
        settle(&mut stream, actions);
        stream.visits() - before
    });
    assert_eq!(visits[0], visits[1]);
    assert!(visits[0] < 20, "{visits:?}");
}

#[test]
fn an_answer_about_the_state_of_the_world_looks_at_no_resource() {
    let mut stream = sotw::Stream::new();
    stream.set_target(Arc::new(Target { shared: Arc::new(services(1_000)), ..Target::default() }));
    let request = Request { node: node(), type_url: Type::Cluster.url().into(), ..Request::default() };
    let actions = stream.on_request(request.clone());
    let [Action::Send(response)] = &actions[..] else { panic!("{} actions", actions.len()) };
    let before = stream.visits();
    let version_info = response.version_info.clone();
    let response_nonce = response.nonce.clone();
    stream.on_request(Request { version_info, response_nonce, ..request });
    assert_eq!(stream.visits(), before);
}
