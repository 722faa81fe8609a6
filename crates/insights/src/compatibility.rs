//! Compatibility of an agent with this control plane, judged by their versions as Kuma does.

use resources::kinds::dataplane_insight::ProxyVersion;

/// The version of Kuma whose behaviour is spoken.
pub const BASED_ON_KUMA: &str = "2.14.3";

/// Number of minor versions by which an agent may be older or newer than its control plane.
const MINORS: u64 = 2;

/// The version a proxy tells, with whether it fits this control plane. Kuma's agents have Kuma's version and ours have
/// our own.
pub fn judged(mut version: ProxyVersion) -> ProxyVersion {
    if let Some(agent) = &mut version.kuma_dp {
        let ours = [BASED_ON_KUMA, env!("CARGO_PKG_VERSION")];
        agent.kuma_cp_compatible = ours.into_iter().any(|ours| are_compatible(ours, &agent.version));
    }
    version
}

/// Versions that cannot be read, and previews, fit everything.
fn are_compatible(control_plane: &str, component: &str) -> bool {
    if [control_plane, component].iter().any(|version| version.contains("preview")) {
        return true;
    }
    let (Some(control_plane), Some(component)) = (Version::read(control_plane), Version::read(component))
    else {
        return true;
    };
    !component.is_pre_release
        && control_plane.major == component.major
        && control_plane.minor.abs_diff(component.minor) <= MINORS
}

struct Version {
    major: u64,
    minor: u64,
    is_pre_release: bool,
}

impl Version {
    /// Reads `2.14.3`, `v2.14.3-rc1+build` and `2.14`.
    fn read(text: &str) -> Option<Version> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split_once('+').map_or(text, |(before, _)| before);
        let (numbers, pre_release) = text.split_once('-').unwrap_or((text, ""));
        let numbers: Result<Vec<u64>, _> = numbers.split('.').map(str::parse).collect();
        let numbers = numbers.ok().filter(|numbers| numbers.len() <= 3)?;
        let minor = numbers.get(1).copied().unwrap_or_default();
        Some(Version { major: *numbers.first()?, minor, is_pre_release: !pre_release.is_empty() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_minor_versions_in_either_direction_fit() {
        for (version, fits) in [
            ("2.14.3", true),
            ("2.12.0", true),
            ("v2.16.9", true),
            ("2.11.9", false),
            ("2.17.0", false),
            ("1.14.3", false),
            ("3.14.3", false),
            ("2.14.0-rc1", false),
            ("0.0.0-preview.vabc", true),
            ("", true),
            ("unknown", true),
        ] {
            assert_eq!(are_compatible("2.14.3", version), fits, "{version:?}");
        }
        assert!(are_compatible("0.1.0", "0.0.3"), "there is nothing below 0");
    }
}
