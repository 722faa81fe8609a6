//! Durations in Go and protobuf spelling.
