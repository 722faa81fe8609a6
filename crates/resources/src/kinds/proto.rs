//! The pieces of protobuf JSON that serde does not have.
