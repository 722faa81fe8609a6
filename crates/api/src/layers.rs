//! Layers around every request, whatever its route.

mod authenticate;
mod cors;
mod local;
mod observe;
mod stale;

pub use authenticate::authenticate;
pub use cors::cors;
pub use observe::observe;
pub use stale::mark_stale;
