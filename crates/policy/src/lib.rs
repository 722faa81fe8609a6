//! Policies resolved for proxies and destinations: their selection, order and merge, and the origin of each
//! conf.
//!
//! ```text
//!   policies of a kind ──select──▶ those of a proxy or inbound ──order──▶ lowest precedence first
//!       ──▶ permission  who may call            (MeshTrafficPermission)
//!       ──▶ inbound     rules kept apart        (`rules`, `from`)
//!       ──▶ outbound    one merged conf per destination (`to`)
//! ```
//!
//! [`PolicyView`] shows any kind of policy as JSON confs, as its row in [`resources::policy`] says, so that
//! a policy to come needs no code here.
//!
//! Invariant: pure, and linear in the number of policies and rules: no partition of clients is ever
//! enumerated.

pub mod conf;
pub mod inbound;
mod merge;
pub mod order;
pub mod outbound;
pub mod permission;
pub mod select;
pub mod view;

pub use conf::{Conf, MergedPolicy};
pub use inbound::{FromRule, InboundRule};
pub use order::Precedence;
pub use outbound::{Destinations, ResourceRule, ResourceRules};
pub use permission::{Client, ClientMatch, Decision, Effect, Permissions, Rule};
pub use select::{NameScope, PolicySelector, Selection};
pub use view::{Policy, PolicyView};
