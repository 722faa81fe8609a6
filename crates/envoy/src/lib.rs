//! The plan in Envoy's words: the only crate that names Envoy's protobuf types.
