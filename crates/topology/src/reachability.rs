//! Which destinations a client may call at all: the permissions of servers, seen from their clients.

pub mod explain;
mod mode;

pub use mode::{Inactive, Mode, Said, Trimming};
