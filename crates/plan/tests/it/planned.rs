//! Plans of the proxy `web` in meshes that tests put together.

use plan::{ProxyPlan, ProxyTraits};

use crate::support::{BACKEND, PLAIN, plan, traits, web};

/// A mesh around the proxy `web`, which is planned: `planned().backend().web(CALLS).plan()`.
#[must_use]
pub struct Planned {
    mesh: String,
    documents: Vec<String>,
    networking: String,
    traits: ProxyTraits,
}

/// A mesh without mutual TLS and services; the proxy calls and serves nothing, and has older names.
pub fn planned() -> Planned {
    Planned {
        mesh: PLAIN.to_owned(),
        documents: Vec::new(),
        networking: String::new(),
        traits: traits("web"),
    }
}

impl Planned {
    pub fn in_mesh(mut self, mesh: &str) -> Planned {
        self.mesh = mesh.to_owned();
        self
    }

    /// Adds the service [`BACKEND`].
    pub fn backend(self) -> Planned {
        self.with(&[BACKEND])
    }

    pub fn with(mut self, documents: &[&str]) -> Planned {
        self.documents.extend(documents.iter().map(|document| (*document).to_owned()));
        self
    }

    /// The networking of the proxy.
    pub fn web(mut self, networking: &str) -> Planned {
        self.networking = networking.to_owned();
        self
    }

    pub fn traits(mut self, traits: &ProxyTraits) -> Planned {
        self.traits = traits.clone();
        self
    }

    #[track_caller]
    pub fn plan(self) -> ProxyPlan {
        let web = web(&self.networking);
        let others = self.documents.iter().map(String::as_str);
        let documents: Vec<&str> =
            [self.mesh.as_str()].into_iter().chain(others).chain([web.as_str()]).collect();
        plan(&documents, &self.traits)
    }

    /// The plan, which has no findings.
    #[track_caller]
    pub fn flawless(self) -> ProxyPlan {
        let plan = self.plan();
        assert_eq!(plan.findings(), []);
        plan
    }
}
