//! What cannot be planned.
//!
//! A problem is a finding: `about` names a policy or another resource whose fault it is, and without one it is
//! about the proxy.

pub use resources::finding::{Code, Finding as Problem};
