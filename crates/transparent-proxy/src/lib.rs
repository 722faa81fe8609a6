//! Transparent proxying: firewall rules that lead the traffic of a machine through its proxy.
//!
//! [`Config`] says what is wanted, [`FirewallRules`] are what `iptables-restore` takes for it: a pure function.
//! [`Installation`] looks at the machine and installs them, [`uninstall`] removes them again.
//!
//! Invariants: the rules depend on the configuration and on what the machine can do, and on nothing else. What is removed
//! is what was installed, and no rule of others.

pub mod config;
mod dataplane;
mod exclusions;
mod failure;
mod machine;
mod rules;

pub use config::{Config, Layers};
pub use dataplane::{DataplaneConfig, DataplaneFlow, DataplaneRedirect};
pub use exclusions::Range;
pub use failure::Failure;
pub use machine::{Installation, uninstall};
pub use rules::{Environment, Family, FirewallRules, Invalid};
