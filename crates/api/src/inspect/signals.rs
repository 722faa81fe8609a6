//! Signals: rates and latencies of calls.

use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::{inspect, shown};
use crate::{Error, call::Call, list::Paging};

/// Window that is answered without `window`.
const DEFAULT_WINDOW: u32 = 60;
/// Windows end where a quarter of an hour has passed, and begin with the interval of reports.
const WINDOWS: std::ops::RangeInclusive<u32> = 10..=900;
/// Largest number of items that one answer lists.
const MAX_LISTED: usize = 10_000;

/// Selection of the signals to list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedSignals {
    pub by: SignalGroup,
    pub seconds: u32,
    /// Only calls of this workload or identity.
    pub client: Option<String>,
    /// Only calls to this destination or service, by identifier or name.
    pub server: Option<String>,
    /// Only what proxies of this zone counted.
    pub zone: Option<String>,
    pub offset: usize,
    pub size: usize,
}

/// Sums of edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SignalGroup {
    /// Each edge by itself.
    Edges,
    Services,
    Workloads,
    Zones,
}

impl SignalGroup {
    const NAMES: &str = "edges, services, workloads, zones";

    fn parse(text: &str) -> Option<SignalGroup> {
        match text {
            "edges" => Some(SignalGroup::Edges),
            "services" => Some(SignalGroup::Services),
            "workloads" => Some(SignalGroup::Workloads),
            "zones" => Some(SignalGroup::Zones),
            _ => None,
        }
    }
}

/// `GET /meshes/{mesh}/_signals`.
pub async fn list(call: Call) -> Result<Response, Error> {
    let inspect = inspect(&call);
    let snapshot = call.snapshot()?;
    let wanted = wanted(&call)?;
    shown(inspect.signals(call.param("mesh"), wanted).await?, &snapshot).await
}

fn wanted(call: &Call) -> Result<WantedSignals, Error> {
    let paging = Paging::read(call)?;
    let given = |name: &str| call.query(name).filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(WantedSignals {
        by: group(call)?,
        seconds: window(call)?,
        client: given("client"),
        server: given("server"),
        zone: given("zone"),
        offset: paging.offset,
        size: call.query("size").map_or(MAX_LISTED, |_| paging.size),
    })
}

fn group(call: &Call) -> Result<SignalGroup, Error> {
    let Some(text) = call.query("by") else { return Ok(SignalGroup::Edges) };
    SignalGroup::parse(text).ok_or_else(|| {
        Error::BadRequest(format!("by {text:?} is not known: it is one of {}", SignalGroup::NAMES))
    })
}

/// Seconds, or minutes with `m` behind them.
fn window(call: &Call) -> Result<u32, Error> {
    let Some(text) = call.query("window") else { return Ok(DEFAULT_WINDOW) };
    let minutes = text.strip_suffix('m').and_then(|minutes| minutes.parse::<u32>().ok()?.checked_mul(60));
    let seconds = minutes.or_else(|| text.strip_suffix('s').unwrap_or(text).parse().ok());
    seconds.filter(|seconds| WINDOWS.contains(seconds)).ok_or_else(|| {
        Error::BadRequest(format!("window {text:?} is no duration from 10s to 15m, such as 60s or 5m"))
    })
}
