//! Declarations of settings: key, environment variable, default and sentence of each, once.
//!
//! A part declares its configuration with [`section!`], the program composes those of its parts. What reads files and
//! the environment, writes the defaults and the reference page walks over the declaration.
//!
//! Invariant: a setting that is not declared cannot be read, and one that is declared is in the reference.

mod section;
mod setting;

use std::net::{IpAddr, Ipv4Addr};

pub use section::{Entry, Leaf, Section, join, walk};
pub use serde_json::Value;
pub use setting::{InvalidValue, Password, Setting, text};

/// Address of servers that listen at every address of the machine.
pub const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
