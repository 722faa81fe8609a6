//! Admission of a stream: the sender, the validity of its token, the proxy's account of itself, in this order.

use std::sync::Arc;

use prost::Message;
use tokio::sync::watch;
use tonic::{Status, metadata::MetadataMap};
use xds::message::Node;

use super::{Protocol, snapshot};
use crate::{
    dp_server::{
        ProxyContext,
        credentials::Credentials,
        grpc,
        introduction::{self, undecodable},
        proxy::{IdentifiedProxy, key_of},
        registration::Registration,
        stream_gates::{Caller, Messages, StreamPermit},
    },
    push::SecretChanges,
};

/// A stream whose proxy is registered.
pub(super) struct RegisteredStream<R> {
    pub first: R,
    pub token: Option<String>,
    pub registration: Registration,
    /// Counts against the proxy's name while the stream lives.
    pub named: StreamPermit,
    pub secrets_changed: watch::Receiver<SecretChanges>,
    /// The change of secrets as of which the token was verified.
    pub secrets_as_of: u64,
}

/// Lets a stream in. `None` when it ends before it has said anything.
pub(super) async fn enter<P: Protocol>(
    context: &Arc<ProxyContext>,
    caller: &Caller,
    metadata: MetadataMap,
    incoming: &mut Messages,
) -> Result<Option<RegisteredStream<P::Request>>, Status> {
    let _stranger = context.gates.stranger(caller).await?;
    let token = grpc::token(&metadata)?;
    // The stream lives on for days; what it came with does not.
    drop(metadata);
    if Credentials::verify_early(context, &*snapshot(context)?, token.as_deref()).await? {
        incoming.verified();
    }
    let first = context.gates.introduction(caller, incoming.next_bytes()).await?;
    let Some(first) = first else { return Ok(None) };
    let node = P::sender(&first)?;
    let key = key_of(&node.id)?;
    // From here on, so that a token revoked while the proxy is let in does not go unnoticed.
    let secrets_changed = context.push.secrets_changed();
    let secrets_as_of = secrets_changed.borrow().of(&key.mesh);
    let credentials = Credentials::verify(context, &*snapshot(context)?, &key.mesh, token.as_deref()).await?;
    credentials.allow_name(&key)?;
    introduction::check_unread(&node)?;
    let kafka_filter = introduction::has_kafka_filter(&first);
    let first = P::Request::decode(first).map_err(|error| undecodable(&error))?;
    let proxy = {
        let unnamed = Node::default();
        let node = P::node(&first).unwrap_or(&unnamed);
        introduction::check_read(node)?;
        let mut proxy = IdentifiedProxy::identify(&node.id, xds::identify::metadata(node).to_json())?;
        proxy.traits.kafka_filter = kafka_filter;
        proxy.traits.vouched = credentials.vouched();
        // The message was read twice, and the token was verified for what it said first.
        let mesh = &key.mesh;
        let name = &key.name;
        let same = |proxy: &IdentifiedProxy| proxy.traits.mesh == *mesh && proxy.traits.name == *name;
        Some(proxy).filter(same).ok_or_else(|| {
            Status::invalid_argument(format!("the node is both {key} and another one; send one node"))
        })?
    };
    credentials.allow_name(&proxy.key())?;
    let _place = context.gates.registering(caller).await?;
    proxy.check(&credentials, &*snapshot(context)?)?;
    let named = context.gates.named(caller, proxy.key())?;
    let registration = Registration::begin(context.clone(), proxy, credentials).await?;
    Ok(Some(RegisteredStream { first, token, registration, named, secrets_changed, secrets_as_of }))
}
