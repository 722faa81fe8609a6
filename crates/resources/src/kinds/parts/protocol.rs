//! Protocol of a port.

use crate::kinds::open_enum::open_enum;

open_enum! {
    /// The protocol of a port; anything unknown is proxied as TCP.
    Protocol { Grpc = "grpc", Http = "http", Http2 = "http2", Kafka = "kafka", Tcp = "tcp" }
}
