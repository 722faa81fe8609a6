//! The environment of a control plane.

use std::sync::Arc;

use crate::labels;

/// Environment that a control plane runs in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Environment {
    #[default]
    Universal,
    /// A cluster. Resources in the control plane's own namespace count as those of none.
    Kubernetes { system_namespace: Arc<str> },
}

impl Environment {
    /// The value of the label `kuma.io/env`.
    pub fn label(&self) -> &'static str {
        match self {
            Environment::Universal => labels::ENV_UNIVERSAL,
            Environment::Kubernetes { .. } => labels::ENV_KUBERNETES,
        }
    }

    /// The namespace of the control plane, empty outside Kubernetes.
    pub fn system_namespace(&self) -> &str {
        match self {
            Environment::Universal => "",
            Environment::Kubernetes { system_namespace } => system_namespace,
        }
    }
}
