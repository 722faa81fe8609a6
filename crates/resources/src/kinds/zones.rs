//! Zones, and where they are entered.

pub mod mesh_zone_address;
pub mod zone;
