//! Parts of kinds: types of fields, and the checks that many kinds share. No kind is here.

pub(crate) mod checks;
pub(crate) mod go_template;
pub(crate) mod header_value;
pub mod host_port;
pub mod int_or_string;
pub mod open_enum;
pub mod proto;
pub mod protocol;
pub(crate) mod regex;
pub mod tags;
pub mod target_ref;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
pub(crate) mod testing;
pub mod tls;
