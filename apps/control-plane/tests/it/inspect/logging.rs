//! Log levels of a proxy, asked of something like an Envoy.

use api::{Inspect, InspectError, inspect::logging::LogChange, inspect::logging::LogLevel};
use http::Uri;

use super::Inspected;

/// Two loggers, in the form in which Envoy lists them. The second says what was asked for.
pub fn said(uri: &Uri) -> String {
    format!("active loggers:\n  http: info\n  rbac: {}\n", uri.query().unwrap_or("nothing"))
}

#[tokio::test]
async fn levels_are_read_and_changed_over_the_admin_interface() {
    let world = Inspected::new().await;
    let addr = world.envoy("127.0.0.1", |_| None).await;
    let proxy = world.dataplane("web", addr).await;
    let away = world.proxies.logging(&proxy, None).await;
    assert_eq!(away, Err(InspectError::NotConnected(proxy.clone())));
    let _connected = world.connect_with_own_interface("web", addr);
    let change = |level, logger: Option<&str>| LogChange {
        level,
        logger: logger.map(|logger| logger.parse().unwrap()),
    };
    for (change, asked) in [
        (None, "nothing"),
        (Some(change(LogLevel::Debug, None)), "level=debug"),
        (Some(change(LogLevel::Off, Some("rbac"))), "rbac=off"),
    ] {
        let levels = world.proxies.logging(&proxy, change.as_ref()).await.unwrap().loggers;
        let levels: Vec<(&str, &str)> = levels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(levels, [("http", "info"), ("rbac", asked)]);
    }
    let unknown = world.proxies.logging(&proxy, Some(&change(LogLevel::Info, Some("none")))).await;
    let Err(InspectError::Unreachable(reason)) = unknown else { panic!("{unknown:?}") };
    assert!(reason.ends_with("was answered with 400 Bad Request (is there a logger none?)"), "{reason}");
}
