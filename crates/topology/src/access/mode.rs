//! Trimming of a proxy's outbounds by permissions, and the place that sets it.
//!
//! The label `reachability.kuma.io/mode` of a Dataplane counts more than `<zone>.reachability.kuma.io/mode` of its
//! Mesh, which counts more than `reachability.kuma.io/mode` of its Mesh; where none is there, the control plane's
//! setting decides.

use std::fmt;

use resources::{Kind, Resource, labels};

use super::ClientClass;
use crate::MeshSnapshot;

/// Treatment of destinations that a client may not call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrimmingMode {
    /// Nothing.
    #[default]
    Off,
    /// Report what would be trimmed and what that would save; change nothing.
    Report,
    /// Also, calls that would be trimmed are counted.
    Shadow,
    /// They are not sent to the proxy.
    Enforce,
}

impl TrimmingMode {
    pub const ALL: [TrimmingMode; 4] =
        [TrimmingMode::Off, TrimmingMode::Report, TrimmingMode::Shadow, TrimmingMode::Enforce];

    pub fn word(self) -> &'static str {
        match self {
            TrimmingMode::Off => "off",
            TrimmingMode::Report => "report",
            TrimmingMode::Shadow => "shadow",
            TrimmingMode::Enforce => "enforce",
        }
    }

    pub fn from_word(word: &str) -> Option<TrimmingMode> {
        TrimmingMode::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

impl fmt::Display for TrimmingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Place that sets a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeSource {
    ByProxy,
    ByZone,
    ByMesh,
    ByControlPlane,
}

/// Reason why a mode has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inactive {
    /// Servers cannot know their clients, so they refuse no one.
    NoMtls,
    /// The proxy has no certificate, so servers that take clients without TLS do not ask who it is.
    NoIdentity,
    /// No MeshTrafficPermission exists: everything would be trimmed.
    NoPermissions,
}

impl fmt::Display for Inactive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inactive::NoMtls => f.write_str(
                "the mesh has no mTLS, so servers refuse no client; enable a backend in `mtls` of the Mesh, or give \
                 proxies a MeshIdentity",
            ),
            Inactive::NoIdentity => f.write_str(
                "the proxy has no certificate, so no permission is about it: the mesh has no mTLS, and no MeshIdentity \
                 that is ready selects the Dataplane; let one select it",
            ),
            Inactive::NoPermissions => write!(
                f,
                "the mesh has no MeshTrafficPermission, so everything would be trimmed; write one, or force it with \
                 the label `{}: \"true\"` on the Mesh",
                labels::REACHABILITY_FORCE
            ),
        }
    }
}

/// Trimming of one proxy's outbounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trimming {
    /// Configured mode.
    pub mode: TrimmingMode,
    pub said: ModeSource,
    /// Reason why the mode has no effect.
    pub inactive: Option<Inactive>,
    /// Calls to trimmed destinations are answered.
    pub stub: bool,
}

impl Trimming {
    /// The mode that has an effect.
    pub fn active(&self) -> TrimmingMode {
        if self.inactive.is_some() { TrimmingMode::Off } else { self.mode }
    }
}

/// The label on a Mesh that sets the mode of one of its zones.
pub fn label_of_zone(zone: &str) -> String {
    format!("{zone}.{}", labels::REACHABILITY_MODE)
}

impl MeshSnapshot {
    /// Returns the trimming of a proxy's outbounds.
    pub fn trimming(&self, dataplane: &Resource) -> Trimming {
        // A global control plane is in no zone, and its proxies are.
        let zone = dataplane.label(labels::ZONE).filter(|zone| !zone.is_empty()).unwrap_or(&self.zone);
        let of_mesh = self.trimming_of_zone(zone);
        let mode = dataplane.label(labels::REACHABILITY_MODE).and_then(TrimmingMode::from_word);
        let (mode, said) = mode.map_or((of_mesh.mode, of_mesh.said), |mode| (mode, ModeSource::ByProxy));
        let stub = dataplane.label(labels::REACHABILITY_STUB).map_or(of_mesh.stub, |stub| stub == "true");
        let plain = || ClientClass::of(self, dataplane).is_plain().then_some(Inactive::NoIdentity);
        Trimming { mode, said, inactive: self.inactive(mode).or_else(plain), stub }
    }

    /// Returns the trimming of proxies without a setting of their own.
    pub fn trimming_of_mesh(&self) -> Trimming {
        self.trimming_of_zone(&self.zone)
    }

    fn trimming_of_zone(&self, zone: &str) -> Trimming {
        let of = |label: &str| self.mesh.label(label).and_then(TrimmingMode::from_word);
        let by_zone = of(&label_of_zone(zone)).map(|mode| (mode, ModeSource::ByZone));
        let by_mesh = || Some((of(labels::REACHABILITY_MODE)?, ModeSource::ByMesh));
        let (mode, said) =
            by_zone.or_else(by_mesh).unwrap_or((self.default_mode, ModeSource::ByControlPlane));
        let stub = self.mesh.label(labels::REACHABILITY_STUB) == Some("true");
        Trimming { mode, said, inactive: self.inactive(mode), stub }
    }

    fn inactive(&self, mode: TrimmingMode) -> Option<Inactive> {
        let forced = self.mesh.label(labels::REACHABILITY_FORCE) == Some("true");
        if self.mtls.is_none() && !self.identities.any_ready() {
            return Some(Inactive::NoMtls);
        }
        let permissions = || self.policies_of(Kind::MeshTrafficPermission).next().is_some();
        (mode == TrimmingMode::Enforce && !forced && !permissions()).then_some(Inactive::NoPermissions)
    }
}
