//! What may be wrong with a mesh, by code.
//!
//! A finding is data: a code, the resource it is about and a sentence with the particulars. What a code means,
//! how bad it is and what to do about it stands in one table, from which the reference page is made too.

use std::fmt;

use crate::naming::Kri;

/// How bad a finding is; the worst comes last.
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

            /// What a finding of this code means.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$variant => $meaning),* }
            }

            /// What to do about it.
            pub fn fix(self) -> &'static str {
                match self { $(Code::$variant => $fix),* }
            }
        }
    };
}

codes! {
    InvalidAddress = "invalid-address", Error,
        "An address or a port of a Dataplane or of a service cannot be used, so nothing listens there.",
        "Correct the address (an IP address) or the port (1 to 65535).";
    NameConflict = "name-conflict", Error,
        "Two parts of a proxy would have the same name in Envoy; the first one is used.",
        "Give one of the two inbounds another name.";
    NoUsableBackend = "no-usable-backend", Error,
        "None of the backends of a route can be called, so the route is left out.",
        "Create one of the backends, or name one that exists.";
    PortConflict = "port-conflict", Error,
        "Two parts of a proxy would listen at the same address and port; the first one is used.",
        "Give one of the two another port or address.";
    SharedCluster = "shared-cluster", Warning,
        "Two inbounds with different applications share one cluster, so the traffic of both goes to one of them. \
         Only the older names let this happen.",
        "Give the applications different ports, or start the proxy with unified names.";
    UnknownBackend = "unknown-backend", Warning,
        "A route refers to a backend that does not exist. It takes effect as soon as the backend appears.",
        "Create the backend, or correct the reference.";
    UnknownDestination = "unknown-destination", Warning,
        "An outbound or a reachable backend of a Dataplane refers to a destination that does not exist. It takes \
         effect as soon as the destination appears.",
        "Create the destination, or correct the reference.";
    UnknownProtocol = "unknown-protocol", Warning,
        "The protocol of a port is none that the mesh knows, so its traffic is proxied as TCP.",
        "Use one of grpc, http, http2, kafka and tcp.";
    UnreadablePolicy = "unreadable-policy", Error,
        "What policies add up to for a destination cannot be read, so none of them takes effect there.",
        "Correct the policy that the finding names.";
    UnusableDestination = "unusable-destination", Error,
        "A destination exists and cannot be offered to the proxy.",
        "Correct the destination as the finding says.";
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
