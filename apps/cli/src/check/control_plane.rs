//! Checks that the control plane answers, and tells for which user, in which version, and at what time.

use contract::index::Index;
use jiff::{Timestamp, Unit, fmt::rfc2822};

use super::{CheckReport, CheckStatus};
use crate::{cell::line, client::ApiClient, control_planes::ANONYMOUS, version::SPEAKS};

/// From this many seconds on, clocks differ enough to be mentioned.
const CLOCK_WARN: i64 = 5;
/// From here on tokens and certificates are refused that were made just now.
const CLOCK_FAIL: i64 = 300;

/// Checks the control plane. Returns true if there is one to ask more.
pub fn check(client: &ApiClient, report: &mut CheckReport) -> bool {
    let reply = match client.index() {
        Ok(reply) => reply,
        Err(failure) => {
            report.failed("control plane", &failure);
            return false;
        }
    };
    let now = Timestamp::now();
    let date = reply.answer.date.clone();
    let index = match reply.read("asking the control plane for its version") {
        Ok(index) if !index.version.is_empty() => index,
        Ok(_) => {
            let message = format!("{} answers, but not as a control plane does", client.address());
            report.add(
                CheckStatus::Fail,
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

fn user(client: &ApiClient, report: &mut CheckReport) {
    match client.user().and_then(|reply| reply.read("asking the control plane which user you are")) {
        Ok(user) if user.name == ANONYMOUS => report.add(
            CheckStatus::Warn,
            "user",
            "you are not authenticated: secrets and tokens are out of reach",
            "add the control plane again with --auth-type tokens --auth-conf token=TOKEN",
        ),
        Ok(user) => report.ok("user", format!("you are {}", line(&user.name))),
        Err(failure) => report.failed("user", &failure),
    }
}

fn versions(index: &Index, report: &mut CheckReport) {
    let own = env!("CARGO_PKG_VERSION");
    let speaks = line(&index.version);
    let implementation = line(&index.implementation_version);
    let server = if implementation.is_empty() {
        format!("{} {speaks}", line(&index.product))
    } else {
        format!("{} {implementation}", line(&index.implementation))
    };
    let message = format!("kumactl {own}, control plane {server}, which speaks Kuma {speaks}");
    let same = speaks.starts_with(&format!("{SPEAKS}."))
        && (implementation.is_empty() || minor(&implementation) == minor(own));
    if same {
        report.ok("versions", message);
    } else {
        report.add(CheckStatus::Warn, "versions", message, "use the kumactl of the control plane's version");
    }
}

/// `0.1` of `0.1.2`.
fn minor(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

fn clock(date: Option<&str>, now: Timestamp, report: &mut CheckReport) {
    let Some(theirs) = date.and_then(|date| rfc2822::parse(date).ok()) else {
        let hint = "compare the clocks by hand";
        report.add(CheckStatus::Warn, "clock", "the control plane does not send its time", hint);
        return;
    };
    let since = theirs.timestamp().since((Unit::Second, now));
    let ahead = since.map_or(0, |span| span.get_seconds());
    let direction = if ahead < 0 { "behind" } else { "ahead of" };
    let message = format!("the control plane's clock is {} s {direction} this machine's", ahead.abs());
    let hint = "set both clocks by NTP: tokens and certificates are checked against them";
    match ahead.abs() {
        0..CLOCK_WARN => report.ok("clock", "the control plane's clock and this machine's agree"),
        CLOCK_WARN..CLOCK_FAIL => report.add(CheckStatus::Warn, "clock", message, hint),
        _ => report.add(CheckStatus::Fail, "clock", message, hint),
    }
}
