//! Synchronisation of control planes: the discovery service between a global control plane and its zones.
//!
//! ```text
//!   store::Changes ─▶ Provider ── response ──▶ Receiver ─▶ Plan ─▶ Store::write_each
//!     dirty keys      Selection   ◀─ ACK/NACK ─  Guard      writes, and what was refused
//! ```
//!
//! A [`select::Selection`] says which resources go to a peer and what they are called there. A
//! [`provider::Provider`] is one peer's subscriptions: what the peer was sent, what is to be sent next. A
//! [`receiver::Receiver`] turns responses into writes. Either end of a link has one of each. [`wire`] is what they look
//! like on the way.
//!
//! Invariants: no clock, no task, no socket. What a peer owns is changed by that peer's messages and by nothing
//! else: a disconnect deletes nothing, and a first response that would delete much is held back by the
//! [`guard::Guard`].

pub mod guard;
pub mod mapping;
pub mod provider;
pub mod quota;
pub mod receiver;
pub mod rights;
pub mod select;
pub mod unreceived;
pub mod wire;

pub use wire::Synced;
