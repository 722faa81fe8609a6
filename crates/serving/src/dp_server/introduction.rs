//! The first message of a stream, read in steps: more is read as the sender proves more.
//!
//! First the sender's name alone, which says whose keys verify its token. Then, for a sender with a good token, the
//! sizes of what it tells about itself. What is within the limits is parsed, and kept as long as the stream.

use envoy::kafka;
use memchr::memmem;
use prost::Message;
use resources::{
    Draft,
    kinds::dataplane::{Dataplane, Inbound},
};
use tonic::Status;
use xds::message::{Node, UnreadNode};

/// Bytes of the Dataplane that a proxy brings along. One with a thousand outbounds has about 100 KB.
pub const MAX_DATAPLANE: usize = 256 << 10;
/// Bytes of everything else in the metadata of a node. All of it is kept in the proxy's insight.
pub const MAX_METADATA: usize = 64 << 10;

/// Inbounds of a Dataplane that a proxy brings along: each may be a service of its own, which outlives the Dataplane.
pub const MAX_INBOUNDS: usize = 128;
/// Tags of an inbound: all clients of the service receive them.
pub const MAX_TAGS: usize = 64;

const DATAPLANE: &str = "dataplane.resource";

/// Reads the sender of a whole message.
pub fn sender<S: Message + Default>(
    message: &[u8],
    node: impl FnOnce(S) -> Option<UnreadNode>,
) -> Result<UnreadNode, Status> {
    let sender = S::decode(message).map_err(|error| undecodable(&error))?;
    Ok(node(sender).unwrap_or_default())
}

pub fn undecodable(error: &prost::DecodeError) -> Status {
    Status::invalid_argument(format!("cannot decode: {error}"))
}

/// True if the sender of a whole message lists the filter that counts requests to Kafka brokers. A list of extensions
/// has hundreds of entries, of which this one counts, so it is looked for instead of parsed.
pub fn has_kafka_filter(message: &[u8]) -> bool {
    // The name as the first field of a message, so that no text in the metadata is taken for it.
    let name = kafka::FILTER.as_bytes();
    let Ok(length) = u8::try_from(name.len()) else { return false };
    memmem::find(message, &[&[0x0a, length], name].concat()).is_some()
}

/// Refuses metadata that is too long to be parsed.
pub fn check_unread(node: &UnreadNode) -> Result<(), Status> {
    check("node metadata", node.metadata.len(), MAX_DATAPLANE + MAX_METADATA)
}

/// Refuses metadata that is too long to be kept.
pub fn check_read(node: &Node) -> Result<(), Status> {
    let dataplane = xds::identify::metadata(node).string(DATAPLANE).map_or(0, str::len);
    check("Dataplane in the node metadata", dataplane, MAX_DATAPLANE)?;
    let all = node.metadata.as_ref().map_or(0, Message::encoded_len);
    check("node metadata beside the Dataplane", all.saturating_sub(dataplane), MAX_METADATA)
}

/// Limit of what a proxy tells about itself that is exceeded. The same proxy fails the same way, so the text must not
/// read like something that passes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {owner} has {count} {counted}, and the limit is {limit}: make it smaller and start the proxy again"
)]
pub struct ExceededLimit {
    owner: String,
    count: usize,
    counted: &'static str,
    limit: usize,
}

/// Refuses a Dataplane with too much in it to be stored: what a proxy brings along is copied into services and to
/// clients.
pub fn check_definition(definition: &Draft) -> Result<(), ExceededLimit> {
    let inbounds = definition.spec.get::<Dataplane>().map_or(&[][..], Dataplane::inbounds);
    check_count("Dataplane", inbounds.len(), "inbounds", MAX_INBOUNDS)?;
    let of_inbound = |inbound: &Inbound| {
        check_count(&format!("inbound at port {}", inbound.port), inbound.tags.len(), "tags", MAX_TAGS)
    };
    inbounds.iter().try_for_each(of_inbound)
}

fn check(what: &str, bytes: usize, limit: usize) -> Result<(), Status> {
    let checked = check_count(what, bytes, "bytes", limit);
    checked.map_err(|exceeded| Status::invalid_argument(exceeded.to_string()))
}

fn check_count(owner: &str, count: usize, counted: &'static str, limit: usize) -> Result<(), ExceededLimit> {
    if count <= limit {
        return Ok(());
    }
    Err(ExceededLimit { owner: owner.to_owned(), count, counted, limit })
}
