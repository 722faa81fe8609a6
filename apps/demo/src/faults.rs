//! Delays and errors on request, for teaching.
//!
//! | Header | Effect |
//! |---|---|
//! | `x-set-response-delay-ms: 250` | the answer waits |
//! | `x-set-response-status-code: 503` | the answer has this status, and nothing is done |
//! | `x-set-response-failure-percentage: 30` | this share of requests is answered 500, and nothing is done |
//!
//! A value that makes no sense is answered 400, because a lesson that silently does nothing is none.

use std::{str::FromStr, time::Duration};

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode};

pub const DELAY: &str = "x-set-response-delay-ms";
pub const STATUS: &str = "x-set-response-status-code";
pub const FAILURES: &str = "x-set-response-failure-percentage";

const LONGEST_DELAY: u64 = 300_000;

/// Obeys the headers of a request before its handler sees it.
pub async fn obey(request: Request, next: Next) -> Response {
    let faults = match Faults::read(request.headers()) {
        Ok(faults) => faults,
        Err(message) => return (StatusCode::BAD_REQUEST, message).into_response(),
    };
    tokio::time::sleep(faults.delay).await;
    if let Some(status) = faults.status {
        return (status, format!("{STATUS} asked for this\n")).into_response();
    }
    if rand::random_range(0.0..100.0) < faults.failures {
        let message = format!("one of the {}% that {FAILURES} asked for\n", faults.failures);
        return (StatusCode::INTERNAL_SERVER_ERROR, message).into_response();
    }
    next.run(request).await
}

/// Faults that the headers ask for.
#[derive(Debug, PartialEq)]
struct Faults {
    delay: Duration,
    status: Option<StatusCode>,
    failures: f64,
}

impl Faults {
    fn read(headers: &HeaderMap) -> Result<Faults, String> {
        let delay = parse(headers, DELAY, "milliseconds, at most 300000", |&ms| ms <= LONGEST_DELAY)?;
        let status = parse(headers, STATUS, "a status from 200 to 599", |status: &StatusCode| {
            (200..=599).contains(&status.as_u16())
        })?;
        let failures =
            parse(headers, FAILURES, "a number from 0 to 100", |share| (0.0..=100.0).contains(share))?;
        let delay = Duration::from_millis(delay.unwrap_or_default());
        Ok(Faults { delay, status, failures: failures.unwrap_or_default() })
    }
}

fn parse<T: FromStr>(
    headers: &HeaderMap,
    name: &str,
    wanted: &str,
    fits: impl Fn(&T) -> bool,
) -> Result<Option<T>, String> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let read = value.to_str().ok().and_then(|text| text.trim().parse().ok()).filter(fits);
    read.map(Some).ok_or_else(|| format!("{name} is {value:?}, but must be {wanted}\n"))
}
