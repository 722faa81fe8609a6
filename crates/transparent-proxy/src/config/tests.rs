use std::time::Duration;

use serde_json::json;

use super::{Config, GoDuration, IpFamilyMode, Layers, Variable};
use crate::DataplaneConfig;

fn read(text: &str) -> Result<Config, String> {
    let mut layers = Layers::default();
    layers.text("the file", text).and_then(|()| layers.config()).map_err(|error| error.to_string())
}

#[test]
fn nothing_said_is_kumas_default_and_leaves_out_what_is_off() {
    let written = serde_json::to_value(read("").unwrap()).unwrap();
    assert_eq!(
        written,
        json!({
            "kumaDPUser": "",
            "ipFamilyMode": "dualstack",
            "redirect": {
                "inbound": {"enabled": true, "port": 15006},
                "outbound": {"enabled": true, "port": 15001},
                "dns": {
                    "enabled": false, "port": 15053, "captureAll": false,
                    "skipConntrackZoneSplit": false, "resolvConfigPath": "/etc/resolv.conf"
                }
            },
            "wait": 5,
            "waitInterval": 0,
            "retry": {"maxRetries": 4, "sleepBetweenRetries": "2s"}
        })
    );
}

#[test]
fn a_part_of_a_direction_keeps_the_defaults_of_the_rest() {
    let config = read("redirect: {inbound: {excludePorts: [22]}, outbound: {enabled: false}}").unwrap();
    assert_eq!(config.redirect.inbound.port.get(), 15006);
    assert_eq!(config.redirect.outbound.port.get(), 15001);
    assert!(config.redirect.inbound.enabled && !config.redirect.outbound.enabled);
}

#[test]
fn yaml_and_json_and_all_spellings_of_ports_are_read() {
    let yaml =
        "redirect:\n  inbound:\n    port: \"1234\"\n    excludePorts: 22, 80\n    includePorts: [1, \"2\"]\n";
    let json =
        r#"{"redirect": {"inbound": {"port": 1234, "excludePorts": [22, 80], "includePorts": "1,2"}}}"#;
    assert_eq!(read(yaml).unwrap(), read(json).unwrap());
    let ports: Vec<u16> =
        read(yaml).unwrap().redirect.inbound.exclude_ports.iter().map(|p| p.get()).collect();
    assert_eq!(ports, [22, 80]);
}

#[test]
fn flags_win_over_the_environment_which_wins_over_the_last_file() {
    let mut layers = Layers::default();
    layers.text("first", "wait: 1\nwaitInterval: 1\nlog: {enabled: true}\nretry: {maxRetries: 1}").unwrap();
    layers.text("second", "waitInterval: 2\nlog: {level: 4}\nretry: {maxRetries: 2}").unwrap();
    layers
        .environment(|name| (name == "KUMA_TRANSPARENT_PROXY_RETRY_MAX_RETRIES").then(|| "3".to_owned()))
        .unwrap();
    layers
        .environment(|name| (name == "KUMA_TRANSPARENT_PROXY_KUMA_DP_USER").then(|| "from-env".to_owned()))
        .unwrap();
    layers.set("kumaDPUser", "from-flag".into());
    let config = layers.config().unwrap();
    assert_eq!((config.wait, config.wait_interval, config.retry.max_retries), (1, 2, 3));
    assert_eq!((config.log.enabled, config.log.level), (true, 4));
    assert_eq!(config.kuma_dp_user, "from-flag");
}

/// A variable that led nowhere would be refused as an unknown field.
#[test]
fn every_variable_is_a_field() {
    for variable in Variable::all() {
        for text in ["true", "1", "ipv4", "2s", "iptables:/x"] {
            let mut layers = Layers::default();
            let read = layers.environment(|name| (name == variable.full_name()).then(|| text.to_owned()));
            let Err(error) = read.and_then(|()| layers.config()) else { continue };
            assert!(!error.to_string().contains("unknown field"), "{variable:?}: {error}");
        }
    }
}

#[test]
fn what_is_wrong_is_named_with_its_field_and_value() {
    let cases = [
        (
            "redirect: {inbound: {port: 0}}",
            "redirect.inbound.port: value '0' is not a valid port (uint16 in the range [1, 65535])",
        ),
        ("redirect: {inbound: {port: 70000}}", "is not a valid port"),
        ("redirect: {dns: {prot: 1}}", "unknown field `prot`"),
        ("ipFamilyMode: ipv6", "ipFamilyMode: unknown variant `ipv6`, expected one of"),
        ("retry: {sleepBetweenRetries: 2}", "retry.sleepBetweenRetries: "),
        ("retry: {sleepBetweenRetries: soon}", "'soon' is not a duration"),
        ("- a list", "the file must contain a map of settings"),
        ("a: [", "the file cannot be read as YAML or JSON"),
    ];
    for (text, expected) in cases {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn durations_are_gos() {
    for (text, expected) in
        [("2s", 2000), ("1m30s", 90_000), ("500ms", 500), ("1.5s", 1500), ("0", 0), ("1h", 3_600_000)]
    {
        assert_eq!(text.parse::<GoDuration>().unwrap().0, Duration::from_millis(expected), "{text}");
    }
    for text in ["", "2", "s", "-1s", "1x", "1e300h"] {
        assert!(text.parse::<GoDuration>().is_err(), "{text}");
    }
}

#[test]
fn a_proxy_is_told_about_in_kumas_words() {
    let config =
        read("ipFamilyMode: ipv4\nredirect: {dns: {captureAll: true}, vnet: {networks: ['a:10.0.0.0/8']}}");
    let told = serde_json::to_value(DataplaneConfig::from(&config.unwrap())).unwrap();
    assert_eq!(
        told,
        json!({
            "ipFamilyMode": "ipv4",
            "redirect": {
                "inbound": {"enabled": true, "port": 15006},
                "outbound": {"enabled": true, "port": 15001},
                "dns": {"enabled": true, "port": 15053},
                "vnet": {"networks": ["a:10.0.0.0/8"]}
            }
        })
    );
    let back: DataplaneConfig = serde_json::from_value(told).unwrap();
    assert_eq!(back.ip_family_mode, IpFamilyMode::IPv4);
}
