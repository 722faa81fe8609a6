//! The settings of several zones, and of several instances of a control plane.

mod inter_cp;
mod multizone;
mod sni;

use std::time::Duration;

use resources::duration::GoDuration;
use runtime::listen;
use settings::section;

use crate::KeepAlive;

pub use self::{
    inter_cp::InterCp,
    multizone::{Global, GlobalKds, ZoneKds},
    sni::Sni,
};

section! {
    /// Other control planes.
    pub struct Config {
        section multizone: Multizone, "multizone";
        section inter_cp: InterCp, "interCp";
    }
}

section! {
    /// Several zones.
    pub struct Multizone {
        section global: Global, "global";
        section sni: Sni, "sni";
        section zone: Zone, "zone";
    }
}

section! {
    /// This control plane as a zone.
    pub struct Zone {
        /// Name of the zone.
        name: String = "default".to_owned(), "name", "KUMA_MULTIZONE_ZONE_NAME";
        /// Address of the global control plane, such as `grpcs://global.example.com:5685`. Empty means a
        /// standalone zone.
        global_address: String = String::new(), "globalAddress", "KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS";
        /// Accepts resources without the label `kuma.io/origin: zone` in a federated zone.
        disable_origin_label_validation: bool = false, "disableOriginLabelValidation", "KUMA_MULTIZONE_ZONE_DISABLE_ORIGIN_LABEL_VALIDATION";
        section kds: ZoneKds, "kds";
    }
}

/// Time limit for the beginning of a request. A stream is one that never ends.
const BEGINNING: Duration = Duration::from_secs(60);
/// Calls at a time on a connection of a zone: it has six.
const CALLS: u32 = 32;
/// Windows of HTTP/2: a message should not need many round trips.
const WINDOWS: (u32, u32) = (256 << 10, 1 << 20);

impl GlobalKds {
    /// The limits of the listener that zones connect to.
    pub fn listener(&self, connections: usize) -> listen::Limits {
        listen::Limits {
            connections,
            // Zones may all come from one address, that of a gateway.
            per_peer: connections - connections / 4,
            streams: CALLS,
            request: BEGINNING,
            ping: Some((time(self.keep_alive_interval), time(self.keep_alive_timeout))),
            windows: WINDOWS,
            ..listen::Limits::default()
        }
    }

    /// Bytes of a message.
    pub fn message(&self) -> usize {
        count(self.max_msg_size)
    }

    /// Time limit for a zone to receive a message.
    pub fn patience(&self) -> Duration {
        time(self.msg_send_timeout)
    }
}

impl ZoneKds {
    /// Bytes of a message.
    pub fn message(&self) -> usize {
        count(self.max_msg_size)
    }

    /// Time limit for the global control plane to take a message.
    pub fn patience(&self) -> Duration {
        time(self.msg_send_timeout)
    }

    pub fn keep_alive(&self) -> KeepAlive {
        KeepAlive { interval: time(self.keep_alive_interval), timeout: time(self.keep_alive_timeout) }
    }
}

impl InterCp {
    /// The limits of the listener for other instances of a control plane.
    pub fn listener(&self, connections: usize) -> listen::Limits {
        listen::Limits { connections, per_peer: connections, request: BEGINNING, ..listen::Limits::default() }
    }
}

/// A configuration holds no negative durations.
pub(super) fn time(setting: GoDuration) -> Duration {
    setting.to_std().unwrap_or_default()
}

pub(super) fn count(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
