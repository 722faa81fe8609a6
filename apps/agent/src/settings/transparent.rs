//! Redirection of the application's traffic, as far as the control plane must know it.

use std::io::Read;

use clap::{ArgAction, Args};
use transparent_proxy::{DataplaneConfig, Layers};

use super::values::boolean;
use crate::failure::{Failure, Result};

#[derive(Debug, Args)]
#[command(next_help_heading = "Transparent proxy")]
pub struct Transparent {
    /// The machine redirects traffic as `kumactl install transparent-proxy` does by default
    #[arg(long = "transparent-proxy", value_name = "BOOL", value_parser = boolean, default_value = "false",
          env = "KUMA_DATAPLANE_RUNTIME_TRANSPARENT_PROXY_ENABLED", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    transparent_proxy: bool,
    /// The machine redirects traffic as this says: files, `-` for standard input, or the YAML or JSON itself; may be
    /// repeated, a later one wins, and `KUMA_TRANSPARENT_PROXY_…` wins over all
    #[arg(
        long = "transparent-proxy-config",
        value_name = "SOURCE",
        env = "KUMA_DATAPLANE_RUNTIME_TRANSPARENT_PROXY_CONFIG"
    )]
    transparent_proxy_config: Vec<String>,
}

/// Redirection that the settings describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectionSettings {
    pub config: DataplaneConfig,
    /// True if the application's queries come to the agent; unknown where the defaults were asked for, because Kuma's
    /// agent answers them then.
    pub dns: Option<bool>,
}

impl Transparent {
    pub fn read(&self) -> Result<Option<RedirectionSettings>> {
        self.read_from(&mut std::io::stdin(), |name| std::env::var(name).ok())
    }

    fn read_from(
        &self,
        stdin: &mut impl Read,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<RedirectionSettings>> {
        let sources: Vec<&str> = self.sources().collect();
        if !self.transparent_proxy && sources.is_empty() {
            return Ok(None);
        }
        let invalid = |error| Failure::invalid(format!("--transparent-proxy-config: {error}"));
        let mut layers = Layers::default();
        for source in &sources {
            let (name, text) = text(source, stdin)?;
            layers.text(&name, &text).map_err(invalid)?;
        }
        layers.environment(environment).map_err(|error| Failure::invalid(error.to_string()))?;
        let config = layers.config().map_err(invalid)?;
        let config = DataplaneConfig::from(&config);
        let dns = (config.redirect.dns.enabled || !sources.is_empty()).then_some(config.redirect.dns.enabled);
        Ok(Some(RedirectionSettings { config, dns }))
    }

    /// A list of files may be one value.
    fn sources(&self) -> impl Iterator<Item = &str> {
        let split = |source: &'_ String| if is_inline(source) { 1 } else { usize::MAX };
        let parts =
            self.transparent_proxy_config.iter().flat_map(move |source| source.splitn(split(source), ','));
        parts.map(str::trim).filter(|source| !source.is_empty())
    }
}

/// True if a source is the configuration itself: no file is called like that.
fn is_inline(source: &str) -> bool {
    source.trim_start().starts_with('{') || source.contains('\n') || source.contains(": ")
}

fn text(source: &str, stdin: &mut impl Read) -> Result<(String, String)> {
    if is_inline(source) {
        return Ok(("the value".to_owned(), source.to_owned()));
    }
    let (name, read) = if source == "-" {
        let mut text = String::new();
        ("standard input", stdin.read_to_string(&mut text).map(|_| text))
    } else {
        (source, std::fs::read_to_string(source))
    };
    let text = read.map_err(|error| {
        Failure::invalid(format!("--transparent-proxy-config: cannot read {name}: {error}"))
    })?;
    Ok((name.to_owned(), text))
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};
    use serde_json::json;

    use super::*;

    fn read(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Option<RedirectionSettings>> {
        let command = Transparent::augment_args(Command::new("run")).no_binary_name(true);
        let settings = Transparent::from_arg_matches(&command.get_matches_from(arguments)).unwrap();
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        settings.read_from(&mut "redirect: {inbound: {port: 7}}".as_bytes(), find)
    }

    #[test]
    fn the_control_plane_hears_what_it_needs_of_the_configuration() {
        assert_eq!(read(&[], &[]).unwrap(), None);
        let defaults = read(&["--transparent-proxy"], &[]).unwrap().unwrap();
        assert_eq!(
            serde_json::to_value(&defaults.config).unwrap(),
            json!({"ipFamilyMode": "dualstack", "redirect": {
                "inbound": {"enabled": true, "port": 15006},
                "outbound": {"enabled": true, "port": 15001},
                "dns": {"enabled": false, "port": 15053},
            }})
        );
        assert_eq!(defaults.dns, None);
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let first =
            file("a.yaml", "ipFamilyMode: ipv4\nredirect: {outbound: {port: 1}, dns: {enabled: true}}");
        let second = file("b.json", r#"{"redirect": {"outbound": {"port": 2}}}"#);
        let inline = "{redirect: {dns: {port: 5, captureAll: true}}}";
        let flag = "--transparent-proxy-config";
        let both = format!("{first},{second}");
        let variables = [("KUMA_TRANSPARENT_PROXY_REDIRECT_OUTBOUND_ENABLED", "false")];
        let told = read(&[flag, &both, flag, "-", flag, inline], &variables).unwrap().unwrap();
        assert_eq!(
            serde_json::to_value(&told.config).unwrap(),
            json!({"ipFamilyMode": "ipv4", "redirect": {
                "inbound": {"enabled": true, "port": 7},
                "outbound": {"enabled": false, "port": 2},
                "dns": {"enabled": true, "port": 5},
            }})
        );
        assert_eq!(told.dns, Some(true));
        assert_eq!(read(&[flag, &second], &[]).unwrap().unwrap().dns, Some(false));
    }

    #[test]
    fn a_configuration_that_cannot_be_read_says_why() {
        let check = |source: &str, expect: &str| {
            let failure = read(&["--transparent-proxy-config", source], &[]).unwrap_err();
            assert_eq!(failure.exit_code(), 2);
            assert!(failure.to_string().contains(expect), "{failure}");
        };
        check("/nowhere/tp.yaml", "cannot read /nowhere/tp.yaml");
        check("{redirect: {inbound: {port: 70000}}}", "redirect.inbound.port");
        check("{redirect: [", "--transparent-proxy-config: ");
        check("{redirct: {}}", "redirct");
    }
}
