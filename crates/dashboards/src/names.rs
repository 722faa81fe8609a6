//! Names in Envoy, as queries select them: the older ones, the unified ones, and the spelling of Kuma 2.14.
//!
//! This is the only place that knows them. Prometheus has no look-ahead, so destinations, which may have any name that
//! a service by tag has, are what is none of the others.

/// Label that holds the resource's name after [`by_destination`].
pub const DESTINATION: &str = "destination";

/// An inbound of the proxy's own Dataplane: its cluster, and the prefix of its statistics of requests or connections.
pub const INBOUND: &str = "localhost_[0-9]+|self_[^_]+|self_inbound_dp_[^_]+";

/// Traffic that is redirected and not for the mesh, and what a MeshPassthrough lets out.
pub const PASSTHROUGH: &str = "(in|out)bound_passthrough_ipv[46]|self_passthrough_ipv[46]_(in|out)bound|\
                               self_transparentproxy_passthrough_(in|out)bound_ipv[46]|meshpassthrough_.+";

/// Calls to destinations that permissions trimmed from the proxy.
pub const TRIMMED: &str = "system_trimmed_outbound|outbound_trimmed";

/// Names of what a proxy needs for itself, and listeners of zone proxies.
pub const SYSTEM: &str = "system_.+|_kuma_.+|kuma_.+|ads_cluster|access_log_sink|admin|async-client|outbound_trimmed|\
                          meshaccesslog_.+|meshtrace_.+|tracing.*|plugins_bootstrap_.+|\
                          self_zone(ingress|egress)_.+";

/// Kinds of services that have KRIs.
const KINDS: &str = "msvc|mzsvc|extsvc";

/// The hash in the name of a part of a service by tags.
const SUBSET: &str = "-[0-9a-f]{16}";

/// Labels that hold names in Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameLabel {
    Cluster,
    HttpPrefix,
    TcpPrefix,
}

impl NameLabel {
    pub fn as_str(self) -> &'static str {
        match self {
            NameLabel::Cluster => "envoy_cluster_name",
            NameLabel::HttpPrefix => "envoy_http_conn_manager_prefix",
            NameLabel::TcpPrefix => "envoy_tcp_prefix",
        }
    }

    /// Selects inbounds.
    pub fn inbound(self) -> String {
        format!("{}=~\"{INBOUND}\"", self.as_str())
    }

    /// Selects destinations: services by reference of every kind, and services by tag.
    pub fn outbound(self) -> String {
        format!("{}!~\"{INBOUND}|{PASSTHROUGH}|{SYSTEM}\"", self.as_str())
    }

    /// Selects passthrough.
    pub fn passthrough(self) -> String {
        format!("{}=~\"{PASSTHROUGH}\"", self.as_str())
    }

    /// Selects calls to what was trimmed.
    pub fn trimmed(self) -> String {
        format!("{}=~\"{TRIMMED}\"", self.as_str())
    }

    /// Selects a destination by the name of its resource; `name` is a regular expression.
    pub fn destination_named(self, name: &str) -> String {
        let unified = format!("kri_({KINDS})_[^_]*_[^_]*_[^_]*_({name})_.*");
        let older = format!("[^_]*_({name})_[^_]*_[^_]*_({KINDS})_[0-9]+");
        format!("{}=~\"{unified}|{older}|({name})({SUBSET})?\"", self.as_str())
    }
}

/// Gives series the KRI of the resource that `from` names, in either scheme, or the name of the service by tag.
pub fn with_destination(series: &str, from: NameLabel) -> String {
    let of = |series: String, replacement: &str, pattern: &str| {
        format!(
            "label_replace({series}, \"{DESTINATION}\", \"{replacement}\", \"{}\", \"{pattern}\")",
            from.as_str()
        )
    };
    let by_tag = of(of(series.to_owned(), "$1", "(.+)"), "$1", &format!("(.+){SUBSET}"));
    let older = of(
        by_tag,
        "kri_${5}_${1}_${4}_${3}_${2}_",
        &format!("([^_]*)_([^_]*)_([^_]*)_([^_]*)_({KINDS})_[0-9]+"),
    );
    of(older, "$1", &format!("(kri_(?:{KINDS})_[^_]*_[^_]*_[^_]*_[^_]*_).*"))
}

/// Takes the name out of the KRI that [`with_destination`] gave.
pub fn with_name(series: &str) -> String {
    let whole = format!("label_replace({series}, \"name\", \"$1\", \"{DESTINATION}\", \"(.+)\")");
    format!(
        "label_replace({whole}, \"name\", \"$1\", \"{DESTINATION}\", \"kri_[a-z]+_[^_]*_[^_]*_[^_]*_([^_]*)_\")"
    )
}

/// Sums series by the resource that they lead to, and by further labels.
pub fn by_destination(series: &str, from: NameLabel, further: &str) -> String {
    let further = if further.is_empty() { String::new() } else { format!("{further}, ") };
    let summed = format!("sum by ({further}{}) ({series})", from.as_str());
    format!("sum by ({further}{DESTINATION}) ({})", with_destination(&summed, from))
}
