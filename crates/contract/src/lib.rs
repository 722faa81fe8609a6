//! The contract between the programs: requests and answers of the REST API, and messages between agents and control
//! planes, each as one type that is written, read and described.
//!
//! A type is named as the schema of the OpenAPI document is. Writers fill every field; readers ignore fields that they do
//! not know and take absent ones for empty, because the peer may be another version, or Kuma. [`lenient::read`] reads
//! what others wrote; [`lenient::read_partly`] reads items of lists, of which one strange field hides no other.

pub mod accepted;
pub mod access;
pub mod agent;
pub mod configuration;
pub mod dns;
pub mod events;
pub mod findings;
pub mod graph;
pub mod hostnames;
pub mod index;
pub mod insight;
pub mod inspect_entries;
pub mod layout;
pub mod lenient;
pub mod logging;
pub mod monitoring;
pub mod observed;
pub mod overview;
pub mod pages;
pub mod policies;
pub mod problem;
pub mod reachability;
pub mod resource;
pub mod rules;
pub mod signals;
pub mod sni;
pub mod stats;
pub mod suggestions;
pub mod sync;
pub mod tokens;
pub mod watch;
pub mod what_if;
pub mod zones;
