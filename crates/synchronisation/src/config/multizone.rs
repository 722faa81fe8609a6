//! The settings of synchronisation between control planes.

use std::net::IpAddr;

use resources::{duration::GoDuration, naming::dns};
use settings::{EVERYWHERE, section};

section! {
    /// This control plane as the global one.
    pub struct Global {
        section kds: GlobalKds, "kds";
    }
}

section! {
    /// The server for zones.
    pub struct GlobalKds {
        /// Address to listen on.
        interface: IpAddr = EVERYWHERE, "interface", "KUMA_MULTIZONE_GLOBAL_KDS_INTERFACE";
        /// Port that zones connect to; 0 means any free one.
        grpc_port: u16 = 5685, "grpcPort", "KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT";
        /// Serves zones with TLS (`grpcs://`).
        tls_enabled: bool = true, "tlsEnabled", "KUMA_MULTIZONE_GLOBAL_KDS_TLS_ENABLED";
        /// TLS certificate (PEM file) that zones see; empty means the one of `general`.
        tls_cert_file: String = String::new(), "tlsCertFile", "KUMA_MULTIZONE_GLOBAL_KDS_TLS_CERT_FILE";
        /// Private key (PEM file) of that certificate.
        tls_key_file: String = String::new(), "tlsKeyFile", "KUMA_MULTIZONE_GLOBAL_KDS_TLS_KEY_FILE";
        /// Bytes of a message. Zones need the same. To zones of Kuma all resources of a kind must fit into one.
        max_msg_size: u32 = 10 << 20, "maxMsgSize", "KUMA_MULTIZONE_GLOBAL_KDS_MAX_MSG_SIZE";
        /// Longest time for a zone to receive a message.
        msg_send_timeout: GoDuration = GoDuration::from_secs(60), "msgSendTimeout",
            "KUMA_MULTIZONE_GLOBAL_KDS_MSG_SEND_TIMEOUT";
        /// Silence of a connection after which a keepalive is sent to the zone. This key is not Kuma's.
        keep_alive_interval: GoDuration = GoDuration::from_secs(15), "keepAliveInterval",
            "KUMA_MULTIZONE_GLOBAL_KDS_KEEP_ALIVE_INTERVAL";
        /// Longest time for the zone to answer it before the connection is closed. This key is not Kuma's.
        keep_alive_timeout: GoDuration = GoDuration::from_secs(10), "keepAliveTimeout",
            "KUMA_MULTIZONE_GLOBAL_KDS_KEEP_ALIVE_TIMEOUT";
        /// Longest delay until the insight of a zone shows what was sent and acknowledged. Connections, disconnections
        /// and problems are written at once.
        zone_insight_flush_interval: GoDuration = GoDuration::from_secs(10), "zoneInsightFlushInterval",
            "KUMA_MULTIZONE_GLOBAL_KDS_ZONE_INSIGHT_FLUSH_INTERVAL";
        /// Requires a zone token with the scope `cp` from zones. This key is not Kuma's.
        zone_token_required: bool = false, "zoneTokenRequired", "KUMA_MULTIZONE_GLOBAL_KDS_ZONE_TOKEN_REQUIRED";
        /// Largest number of Zones that are created automatically when a zone connects; others must be
        /// created by hand. This key is not Kuma's.
        max_zones: u32 = 1000, "maxZones", "KUMA_MULTIZONE_GLOBAL_KDS_MAX_ZONES";
        /// Largest number of resources of one kind that are stored of one zone. More are refused, which `kumactl
        /// inspect zones` shows; those that are stored stay. This key is not Kuma's.
        max_resources_per_kind: u32 = 20_000, "maxResourcesPerKind",
            "KUMA_MULTIZONE_GLOBAL_KDS_MAX_RESOURCES_PER_KIND";
        /// Time that a zone may be away before other zones stop calling its ingresses; 0s means forever. While no zone
        /// is connected no time passes. This key is not Kuma's.
        zone_withdraw_after: GoDuration = GoDuration::from_secs(300), "zoneWithdrawAfter",
            "KUMA_MULTIZONE_GLOBAL_KDS_ZONE_WITHDRAW_AFTER";
        /// A zone that connects and lacks more than this share of the resources of a kind, in percent, does
        /// not delete them at once: they are deleted when it connects again and lacks the same ones. 100
        /// disables this. This key is not
        /// Kuma's.
        hold_back_deletions: u32 = 20, "holdBackDeletions", "KUMA_MULTIZONE_GLOBAL_KDS_HOLD_BACK_DELETIONS";
        section labels: GlobalLabels, "labels";
    }
}

section! {
    /// Labels of resources that are sent.
    pub struct GlobalLabels {
        /// Labels with these prefixes are not sent.
        skip_prefixes: Vec<String> = Vec::new(), "skipPrefixes", "KUMA_MULTIZONE_GLOBAL_KDS_LABELS_SKIP_PREFIXES";
    }
}

section! {
    /// Connection of this zone to the global control plane.
    pub struct ZoneKds {
        /// CA certificates (PEM file) that the global control plane's certificate is verified with.
        root_ca_file: String = String::new(), "rootCaFile", "KUMA_MULTIZONE_ZONE_KDS_ROOT_CA_FILE";
        /// Does not verify that certificate.
        tls_skip_verify: bool = false, "tlsSkipVerify", "KUMA_MULTIZONE_ZONE_KDS_TLS_SKIP_VERIFY";
        /// File with the zone token for the global control plane; empty means none. It is read for
        /// every connection. This key is not Kuma's.
        token_file: String = String::new(), "tokenFile", "KUMA_MULTIZONE_ZONE_KDS_TOKEN_FILE";
        /// Bytes of a message. The global control plane needs the same; Kuma's needs all resources of a kind
        /// to fit into one.
        max_msg_size: u32 = 10 << 20, "maxMsgSize", "KUMA_MULTIZONE_ZONE_KDS_MAX_MSG_SIZE";
        /// Longest time for the global control plane to receive a message.
        msg_send_timeout: GoDuration = GoDuration::from_secs(60), "msgSendTimeout",
            "KUMA_MULTIZONE_ZONE_KDS_MSG_SEND_TIMEOUT";
        /// Silence of a connection after which a keepalive is sent to the global control plane. Kuma's allows
        /// one every 15 s at most. This key is not Kuma's.
        keep_alive_interval: GoDuration = GoDuration::from_secs(15), "keepAliveInterval",
            "KUMA_MULTIZONE_ZONE_KDS_KEEP_ALIVE_INTERVAL";
        /// Longest time for it to answer before the zone reconnects. This key is not Kuma's.
        keep_alive_timeout: GoDuration = GoDuration::from_secs(10), "keepAliveTimeout",
            "KUMA_MULTIZONE_ZONE_KDS_KEEP_ALIVE_TIMEOUT";
        /// A global control plane that connects and lacks more than this share of the resources of a kind, in percent,
        /// does not delete them at once: they are deleted when the next connection lacks the same ones. 100
        /// disables this, and the protection of meshes and keys in use from another global control plane. This
        /// key is not Kuma's.
        hold_back_deletions: u32 = 20, "holdBackDeletions", "KUMA_MULTIZONE_ZONE_KDS_HOLD_BACK_DELETIONS";
        section labels: ZoneLabels, "labels";
    }
}

section! {
    /// Labels of resources that are sent.
    pub struct ZoneLabels {
        /// Labels with these prefixes are not sent.
        skip_prefixes: Vec<String> = Vec::new(), "skipPrefixes", "KUMA_MULTIZONE_ZONE_KDS_LABELS_SKIP_PREFIXES";
    }
}

/// The least that a message can be.
const SMALLEST_MESSAGE: u32 = 64 << 10;

impl super::Multizone {
    /// Names settings that cannot work.
    pub fn check(&self, refuse: &mut impl FnMut(bool, &str)) {
        let global = &self.global.kds;
        let zone = &self.zone.kds;
        for (size, key) in [(global.max_msg_size, "global"), (zone.max_msg_size, "zone")] {
            let problem = format!("multizone.{key}.kds.maxMsgSize: must be at least {SMALLEST_MESSAGE}");
            refuse(size < SMALLEST_MESSAGE, &problem);
        }
        for (duration, key) in [
            (global.keep_alive_interval, "global.kds.keepAliveInterval"),
            (global.keep_alive_timeout, "global.kds.keepAliveTimeout"),
            (zone.keep_alive_interval, "zone.kds.keepAliveInterval"),
            (zone.keep_alive_timeout, "zone.kds.keepAliveTimeout"),
        ] {
            let problem = format!("multizone.{key}: must be longer than 0s, or silent peers are never found");
            refuse(duration == GoDuration::from_secs(0), &problem);
        }
        refuse(
            global.tls_cert_file.is_empty() != global.tls_key_file.is_empty(),
            "multizone.global.kds.tlsCertFile and multizone.global.kds.tlsKeyFile: set both or neither",
        );
        refuse(
            global.zone_token_required && !global.tls_enabled,
            "multizone.global.kds.zoneTokenRequired: tokens must not travel without TLS; set \
             multizone.global.kds.tlsEnabled",
        );
    }

    /// Names settings of a global control plane that cannot work.
    pub fn check_global(&self, refuse: &mut impl FnMut(bool, &str)) {
        let problem = "multizone.zone.globalAddress: a global control plane has no global control plane";
        refuse(!self.zone.global_address.is_empty(), problem);
    }

    /// Names settings of a zone that cannot work.
    pub fn check_zone(&self, refuse: &mut impl FnMut(bool, &str)) {
        let zone = &self.zone;
        let problem = format!(
            "multizone.zone.name: {:?}: must be a name of at most 63 lowercase letters, digits and \"-\"",
            zone.name
        );
        refuse(!dns::is_rfc1123_label(&zone.name), &problem);
        let address = &zone.global_address;
        let scheme = address.starts_with("grpc://") || address.starts_with("grpcs://");
        let problem =
            format!("multizone.zone.globalAddress: {address:?}: must begin with \"grpcs://\" or \"grpc://\"");
        refuse(!address.is_empty() && !scheme, &problem);
    }
}
