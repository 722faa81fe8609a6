//! Findings about a mesh, by code.
//!
//! A finding is data: a code, the resource it is about and a sentence with the particulars. One table has the
//! meaning, severity and fix of every code; the reference page is made from it too.

use std::fmt;

use crate::naming::Kri;

/// The page that explains every code.
pub const REFERENCE: &str = "docs/reference/findings.md";

/// Severity of a finding; the worst comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; traffic is as asked for.
    Info,
    /// Something that was asked for is probably not what happens.
    Warning,
    /// Something that was asked for does not happen.
    Error,
}

impl Severity {
    pub const ALL: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Error];

    pub fn by_name(name: &str) -> Option<Severity> {
        Severity::ALL.into_iter().find(|severity| severity.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! codes {
    ($($variant:ident = $name:literal, $severity:ident, $meaning:literal, $fix:literal;)*) => {
        /// Every kind of finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $($variant),* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$variant),*];

            /// The name users see, which is also the anchor in the reference page.
            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name),* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity),* }
            }

            /// Explains the code in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$variant => $meaning),* }
            }

            /// Returns the advice for the user.
            pub fn fix(self) -> &'static str {
                match self { $(Code::$variant => $fix),* }
            }
        }
    };
}

codes! {
    AddressesExhausted = "addresses-exhausted", Error,
        "The range of virtual addresses of a kind of service, or of hostnames that VirtualOutbounds make, is used up, so \
         some of them have no address: they cannot be called by an address or a hostname. Addresses of \
         deleted services are reused when their quarantine ends.",
        "Delete what is not needed, or set a larger range: ipam.*.cidr for services, dnsServer.CIDR for hostnames of \
         VirtualOutbounds. Another range of a kind of service gives all its services new addresses.";
    AuthorityExpiring = "authority-expiring", Warning,
        "The certificate authority of the mesh expires within 30 days. After that no proxy gets a certificate that \
         others accept.",
        "Add a backend with a new authority to the mesh, and make it the enabled one when all proxies trust it.";
    CertificateExpiring = "certificate-expiring", Error,
        "The certificate of a proxy expires soon and was not renewed in time. When it expires, the proxy's \
        traffic with mutual TLS fails.",
        "Look for errors of the certificate authority in the control plane's log, and check that the proxy is connected.";
    Contradiction = "contradiction", Warning,
        "Permissions for the same proxies, or entries of one permission, contradict each other about the same clients. \
         In `rules` deny takes precedence; in `from` the policy with the higher precedence, and within one policy the \
         last entry. The finding says which one takes precedence. Of many permissions it names three and counts the rest, \
         and of one permission at most 20 clients are listed.",
        "Delete one of the two.";
    HostnameConflict = "hostname-conflict", Warning,
        "A hostname and port are claimed twice: by two VirtualOutbounds, by a VirtualOutbound and a service, or by \
         HostnameGenerators for several services of a kind. One of them gets it; the finding says which \
         one. The name does not lead to the others.",
        "Give one of the two another hostname or port. Let the template use something that differs, a label for \
         example, or select fewer services.";
    HostnameNotMade = "hostname-not-made", Warning,
        "A VirtualOutbound selects inbounds and creates no hostname for some of them: its templates give no valid host or \
         port with their tags, or the mesh has more hostnames than the limit.",
        "Guard tags that may be missing (`{{if .port}}{{.port}}{{else}}8080{{end}}`), or select less.";
    IdentityNotVouched = "identity-not-vouched", Error,
        "A MeshIdentity names proxies by labels, and the tokens of proxies do not bind these labels, so the proxies could be \
         any workload. They are not given the identity, and cannot connect.",
        "Give each proxy a token that binds the labels that the finding names, and start it again.";
    IdentityWithoutEffect = "identity-without-effect", Warning,
        "The MeshIdentity that selects a proxy cannot be used for it, so the proxy has no certificate from it.",
        "Look at the status of the MeshIdentity, and at what the finding says.";
    IndistinctClients = "indistinct-clients", Warning,
        "An entry of `from` names clients by something that a server does not see, so it has no effect.",
        "Use `rules` with `spiffeID`, or name the clients by tags.";
    InvalidAddress = "invalid-address", Error,
        "An address or a port of a Dataplane or of a service cannot be used, so nothing listens there.",
        "Correct the address (an IP address) or the port (1 to 65535).";
    MatchesNothing = "matches-nothing", Warning,
        "A policy selects no Dataplane of the mesh, so it has no effect. It takes effect as soon as a Dataplane \
         appears that it selects.",
        "Compare its targetRef with the names, labels and tags of your Dataplanes.";
    MetricsWithoutTls = "metrics-without-tls", Warning,
        "A MeshMetric asks for metrics over TLS, and they are served without it.",
        "Start kuma-dp with --metrics-cert-path and --metrics-key-path and use the TLS mode ProvidedTLS.";
    NameConflict = "name-conflict", Error,
        "Two parts of a proxy would have the same name in Envoy; the first one is used.",
        "Give one of the two inbounds another name.";
    NeedsMtls = "needs-mtls", Warning,
        "A policy distinguishes clients, and without mTLS servers cannot identify them. Only entries for \
        all clients apply.",
        "Enable mTLS in the mesh, or write the policy for all clients.";
    MembersDisagree = "members-disagree", Warning,
        "A MeshMultiZoneService selects a MeshService that does not have one of its ports, or speaks another protocol \
         there. Where the port is missing the service is not called; where the protocol is another one, requests may \
         fail.",
        "Give the MeshService the port with that protocol, or select others.";
    NoPermissions = "no-permissions", Warning,
        "Mutual TLS is on and the mesh has no MeshTrafficPermission, so every call between its proxies is denied.",
        "Write a MeshTrafficPermission for each call that should be allowed.";
    NoUsableBackend = "no-usable-backend", Error,
        "None of the backends of a route can be called, so the route is left out; or a policy sends data to \
        a backend that cannot receive it.",
        "Create one of the backends, or name one that exists.";
    NoWorkDirectory = "no-work-directory", Error,
        "A policy needs the agent beside a proxy, and the proxy does not say where its agent's sockets are.",
        "Start the proxy with kuma-dp, which reports it.";
    NotReceived = "not-received", Warning,
        "The global control plane is one of Kuma and has resources of kinds that kuma-rs does not keep, such as \
         TrafficPermissions. They have no effect in this zone: what a TrafficPermission allows is denied here.",
        "Export from the global control plane, translate with `kumactl migrate policies`, and apply the result there.";
    NotRedirected = "not-redirected", Info,
        "A policy is about traffic that is redirected to the proxy, and no traffic is redirected to this one.",
        "Set networking.transparentProxying of the Dataplane, or select other proxies.";
    OtherNamingScheme = "other-naming-scheme", Warning,
        "A MeshProxyPatch matches a part of the proxy by its name in the other naming scheme, so it changes \
        nothing there.",
        "Use the name that the finding says, or both names while you switch proxies.";
    PassthroughConflict = "passthrough-conflict", Warning,
        "Two matches of MeshPassthrough match the same traffic; the first one is used.",
        "Give both the same protocol, or different ports.";
    PatchFieldUnknown = "patch-field-unknown", Warning,
        "A MeshProxyPatch sets a field that Envoy's type does not have; the rest of it takes effect.",
        "Correct the name of the field.";
    PatchNotApplied = "patch-not-applied", Error,
        "A modification of a MeshProxyPatch cannot be applied, so it is left out. The others are applied.",
        "Correct the modification as the finding says.";
    PermissiveMtls = "permissive-mtls", Info,
        "Mutual TLS is in its permissive mode: proxies also accept clients without a certificate. It is meant for \
         the time of a migration.",
        "Set the mode of the backend to STRICT when all clients are in the mesh.";
    PolicyRejected = "policy-rejected", Error,
        "Several proxies reject configuration that comes from one policy. They keep their previous configuration.",
        "Correct the policy; the message of Envoy says what is wrong with it.";
    PortConflict = "port-conflict", Error,
        "Two parts of a proxy would listen at the same address and port; the first one is used.",
        "Give one of the two another port or address.";
    Rejected = "rejected", Error,
        "A proxy rejects a part of its configuration. It keeps its previous version.",
        "The message of Envoy says what is wrong; correct the policies that the finding names.";
    ServicePortConflict = "service-port-conflict", Warning,
        "Dataplanes of one generated MeshService do not agree about its ports, so some of them cannot be reached.",
        "Give the Dataplanes the same ports, or different values of kuma.io/service.";
    Shadowed = "shadowed", Warning,
        "Everything that a policy says is overridden by other policies for the same proxies, so it has no effect.",
        "Delete the policy, or let it say something that the others do not.";
    SharedCluster = "shared-cluster", Warning,
        "Two inbounds with different applications share one cluster, so the traffic of both goes to one of them. \
         This happens only with the older names.",
        "Give the applications different ports, or start the proxy with unified names.";
    SniNotDialled = "sni-not-dialled", Warning,
        "A policy matches calls by an SNI that clients do not dial: another one is first in the list of the \
        port, or nothing accepts it. SNIs after the first exist for a change of formats and may be removed.",
        "Also name the SNI that clients dial, and remove the old one when it is no longer dialled.";
    StatisticsNotKept = "statistics-not-kept", Warning,
        "A MeshMetric asks for metrics that a running Envoy does not keep, because the MeshMetric that selected it \
         when it started left them out. Envoy decides which statistics to keep when it starts.",
        "Restart the proxy at a convenient time; until then only the metrics that it keeps are served.";
    TrimmingInactive = "trimming-inactive", Warning,
        "A mode of trimming by permissions is asked for and has no effect: without mTLS no server refuses a client, and \
         without any MeshTrafficPermission everything would be trimmed.",
        "Do what the finding says, or set the label `reachability.kuma.io/mode` to `off`.";
    UncheckedDestination = "unchecked-destination", Warning,
        "A MeshHealthCheck has no check for the protocol of its destination, so the endpoints are not \
        checked.",
        "Add http or grpc to the policy, to match the destination's protocol; with disabled: true in it, \
        only connections are checked.";
    UnknownBackend = "unknown-backend", Warning,
        "A route refers to a backend that does not exist. It takes effect as soon as the backend appears.",
        "Create the backend, or correct the reference.";
    UnknownClient = "unknown-client", Warning,
        "A permission is for a client that does not exist in the mesh. It takes effect as soon as such a proxy appears.",
        "Compare the name with the `kuma.io/service` tags of your Dataplanes, or wait until the client is deployed.";
    UnknownCollector = "unknown-collector", Warning,
        "A policy sends logs, spans or metrics to a MeshOpenTelemetryBackend that does not exist. It takes effect as \
         soon as the backend appears.",
        "Create a MeshOpenTelemetryBackend with the labels, or correct the reference.";
    UnknownDestination = "unknown-destination", Warning,
        "An outbound or a reachable backend of a Dataplane refers to a destination that does not exist. It takes \
         effect as soon as the destination appears.",
        "Create the destination, or correct the reference.";
    UnknownField = "unknown-field", Warning,
        "A file has a field that its kind does not have, so the field has no effect. Files only: of what is stored, a \
         control plane says it when it is written.",
        "Correct the name of the field; `kumactl explain` lists the fields of a kind.";
    UnknownMode = "unknown-mode", Warning,
        "A label about trimming by permissions has an unknown value and is ignored.",
        "Use `off`, `report`, `shadow` or `enforce`.";
    UnknownNaming = "unknown-naming", Warning,
        "The label `features.kuma.io/unified-proxy-resources-and-stats-naming` of a Mesh, Dataplane, ZoneIngress or \
         ZoneEgress has an unknown value and is ignored, so that names in Envoy are those of the mesh or of the agent.",
        "Use `enabled` or `disabled`, or remove the label.";
    UnknownProtocol = "unknown-protocol", Warning,
        "The protocol of a port is unknown, so its traffic is proxied as TCP.",
        "Use one of grpc, http, http2, kafka and tcp.";
    UnknownTarget = "unknown-target", Warning,
        "An entry of a policy is for a service or a route that does not exist. It takes effect as soon as that \
         appears. Names refer to the zone and namespace of the policy; labels match in all zones and namespaces.",
        "Create what the entry names, correct the reference, or refer to it by labels.";
    UnreadablePolicy = "unreadable-policy", Error,
        "The merged policies for a destination are invalid, so none of them takes effect there.",
        "Correct the policy that the finding names.";
    UnsupportedCondition = "unsupported-condition", Warning,
        "A rule is for certain clients only, and a part of it can only apply to all clients of an inbound, \
        so that part has no effect.",
        "Move that part into a rule without `matches`.";
    UnusableAuthority = "unusable-authority", Error,
        "The enabled certificate authority of the mesh cannot be used, so no proxy gets a new certificate. \
        Those that have one keep it until it expires.",
        "Do what the finding says, or enable another backend that all proxies trust.";
    UnusableCollector = "unusable-collector", Error,
        "A policy sends logs, spans or metrics where the proxy cannot send them.",
        "Do what the finding says.";
    UnusableDestination = "unusable-destination", Error,
        "A destination exists and cannot be offered to the proxy.",
        "Correct the destination as the finding says.";
}

impl Code {
    /// Returns the path of the code's section in the reference page.
    pub fn reference(self) -> String {
        format!("{REFERENCE}#{self}")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that is wrong, or may be.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Finding {
    pub code: Code,
    /// The resource it is about; `None` for the one whose findings are asked for.
    pub about: Option<Kri>,
    /// The particulars, in a sentence.
    pub text: String,
}

impl Finding {
    pub fn new(code: Code, text: impl Into<String>) -> Finding {
        Finding { code, about: None, text: text.into() }
    }

    /// The same about a resource, if it does not say yet what it is about.
    #[must_use]
    pub fn or_about(self, about: Option<Kri>) -> Finding {
        Finding { about: self.about.or(about), ..self }
    }

    /// A finding about a certain resource, a policy for example.
    pub fn about(code: Code, about: Kri, text: impl Into<String>) -> Finding {
        Finding { code, about: Some(about), text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_a_name_of_its_own_that_can_be_an_anchor() {
        let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for name in names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{name}");
        }
    }
}
