//! Every name that leaves the control plane, built and read in one place.

pub mod dns;
pub mod kri;
pub mod sni;
