//! Which destinations a client may call at all: the permissions of servers, seen from their clients.

mod mode;
pub mod suggest;

pub use mode::{Inactive, Mode, Said, Trimming};
