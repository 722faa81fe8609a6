//! The first message of a stream, read in steps: more is read as the sender proves more.
//!
//! First the sender's name alone, which says whose keys verify its token. Then, for a sender with a good token, the
//! sizes of what it tells about itself. What is within the limits is parsed, and kept as long as the stream.

use envoy::kafka;
use memchr::memmem;
use prost::Message;
use tonic::Status;
use xds::message::{Node, UnreadNode};

/// Bytes of the Dataplane that a proxy brings along. One with a thousand outbounds has about 100 KB.
pub const MAX_DATAPLANE: usize = 256 << 10;
/// Bytes of everything else in the metadata of a node. All of it is kept in the proxy's insight.
pub const MAX_METADATA: usize = 64 << 10;

const DATAPLANE: &str = "dataplane.resource";

/// Who sends, of a whole message.
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

/// Whether the sender of a whole message lists the filter that counts what is asked of Kafka brokers. A list of
/// extensions has hundreds of entries, of which this one counts, so it is looked for instead of parsed.
pub fn has_kafka_filter(message: &[u8]) -> bool {
    // The name as the first field of a message, so that no text in the metadata is taken for it.
    let name = kafka::FILTER.as_bytes();
    let Ok(length) = u8::try_from(name.len()) else { return false };
    memmem::find(message, &[&[0x0a, length], name].concat()).is_some()
}

/// Whether the metadata is worth parsing.
pub fn check_unread(node: &UnreadNode) -> Result<(), Status> {
    check("node metadata", node.metadata.len(), MAX_DATAPLANE + MAX_METADATA)
}

/// Whether the metadata is worth keeping.
pub fn check_read(node: &Node) -> Result<(), Status> {
    let dataplane = xds::identify::metadata(node).string(DATAPLANE).map_or(0, str::len);
    check("Dataplane in the node metadata", dataplane, MAX_DATAPLANE)?;
    let all = node.metadata.as_ref().map_or(0, Message::encoded_len);
    check("node metadata beside the Dataplane", all.saturating_sub(dataplane), MAX_METADATA)
}

/// The same proxy fails the same way, so this must not read like something that passes.
fn check(what: &str, bytes: usize, limit: usize) -> Result<(), Status> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "the {what} has {bytes} bytes, and the limit is {limit}: make it smaller and start the proxy again"
    )))
}
