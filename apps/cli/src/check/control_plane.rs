//! Whether the control plane answers, for which user, in which version, and at what time.

use jiff::{Timestamp, Unit, fmt::rfc2822};
use serde_json::Value;

use super::{Report, Verdict};
use crate::{cell::text, client::Client, control_planes::ANONYMOUS, version::SPEAKS};

/// From this many seconds on, clocks differ enough to be mentioned.
const CLOCK_WARN: i64 = 5;
/// From here on tokens and certificates are refused that were made just now.
const CLOCK_FAIL: i64 = 300;

/// Whether there is a control plane to ask more.
pub fn check(client: &Client, report: &mut Report) -> bool {
    let answer = match client.get("/") {
        Ok(answer) => answer,
        Err(failure) => {
            report.failed("control plane", &failure);
            return false;
        }
    };
    let now = Timestamp::now();
    let date = answer.date.clone();
    let index = match answer.json("asking the control plane for its version") {
        Ok(index) if index["version"].is_string() => index,
        Ok(_) => {
            let message = format!("{} answers, but not as a control plane does", client.address());
            report.add(
                Verdict::Fail,
                "control plane",
                message,
                "check the address with `kumactl config view`",
            );
            return false;
        }
        Err(failure) => {
            report.failed("control plane", &failure);
            return false;
        }
    };
    report.ok("control plane", format!("{} answers", client.address()));
    user(client, report);
    versions(&index, report);
    clock(date.as_deref(), now, report);
    true
}

fn user(client: &Client, report: &mut Report) {
    match client
        .get("/who-am-i")
        .and_then(|answer| answer.json("asking the control plane which user you are"))
    {
        Ok(user) if user["name"] == ANONYMOUS => report.add(
            Verdict::Warn,
            "user",
            "you are not authenticated: secrets and tokens are out of reach",
            "add the control plane again with --auth-type tokens --auth-conf token=TOKEN",
        ),
        Ok(user) => report.ok("user", format!("you are {}", text(&user["name"]))),
        Err(failure) => report.failed("user", &failure),
    }
}

fn versions(index: &Value, report: &mut Report) {
    let (own, speaks) = (env!("CARGO_PKG_VERSION"), text(&index["version"]));
    let implementation = text(&index["implementationVersion"]);
    let server = if implementation.is_empty() {
        format!("{} {speaks}", text(&index["product"]))
    } else {
        format!("{} {implementation}", text(&index["implementation"]))
    };
    let message = format!("kumactl {own}, control plane {server}, which speaks Kuma {speaks}");
    let same = speaks.starts_with(&format!("{SPEAKS}."))
        && (implementation.is_empty() || minor(&implementation) == minor(own));
    if same {
        report.ok("versions", message);
    } else {
        report.add(Verdict::Warn, "versions", message, "use the kumactl of the control plane's version");
    }
}

/// `0.1` of `0.1.2`.
fn minor(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

fn clock(date: Option<&str>, now: Timestamp, report: &mut Report) {
    let Some(theirs) = date.and_then(|date| rfc2822::parse(date).ok()) else {
        let hint = "compare the clocks by hand";
        report.add(Verdict::Warn, "clock", "the control plane does not send its time", hint);
        return;
    };
    let since = theirs.timestamp().since((Unit::Second, now));
    let ahead = since.map_or(0, |span| span.get_seconds());
    let direction = if ahead < 0 { "behind" } else { "ahead of" };
    let message = format!("the control plane's clock is {} s {direction} this machine's", ahead.abs());
    let hint = "set both clocks by NTP: tokens and certificates are checked against them";
    match ahead.abs() {
        0..CLOCK_WARN => report.ok("clock", "the control plane's clock and this machine's agree"),
        CLOCK_WARN..CLOCK_FAIL => report.add(Verdict::Warn, "clock", message, hint),
        _ => report.add(Verdict::Fail, "clock", message, hint),
    }
}
