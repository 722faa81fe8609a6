//! Views that the control plane of a proxy computes for another control plane, and their answers in JSON.
//!
//! A zone sees other services than a global control plane does: those that global made for it, at the addresses and under
//! the hostnames that the zone gave them. Answers are read into the types of the API and nothing else of them is passed
//! on, so that a zone cannot say anything but what was asked for.

use api::{
    Inspect, InspectError,
    inspect::{observed::WantedEdges, signals::WantedSignals},
};
use bytes::Bytes;
use contract::reachability::ProxyReachabilityAnswer;
use resources::Key;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Limit of the items in one answer, whatever the question asks for.
const MAX_LISTED: usize = 10_000;
/// Letters of a refusal that are passed on.
const LONGEST_REASON: usize = 2048;

/// A view to compute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ComputedView {
    Config {
        with_shadow: bool,
    },
    Layout,
    /// Of a zone ingress or egress.
    ZoneLayout,
    Hostnames,
    Sync,
    Reachability {
        to: Option<String>,
    },
    ReachabilityOfMesh {
        offset: usize,
        size: usize,
    },
    Observed {
        offset: usize,
        size: usize,
        would_be_trimmed: bool,
    },
    Signals {
        wanted: WantedSignals,
    },
}

/// An answer, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Reply<T> {
    Answer(T),
    Refusal(ViewRefusal),
}

#[derive(Debug, Serialize, Deserialize)]
struct ViewRefusal {
    reason: Reason,
    text: String,
}

/// The errors that clients tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Reason {
    NotFound,
    Unsupported,
    Unreachable,
}

/// Computes a view of a proxy, or of the mesh that `about` names.
pub async fn answer(inspect: &dyn Inspect, about: &Key, view: &ComputedView) -> Result<Bytes, InspectError> {
    match view {
        ComputedView::Config { with_shadow } => written(inspect.config(about, *with_shadow).await).await,
        ComputedView::Layout => written(inspect.layout(about).await).await,
        ComputedView::ZoneLayout => written(inspect.zone_layout(about).await).await,
        ComputedView::Hostnames => written(inspect.hostnames(about).await).await,
        ComputedView::Sync => written(inspect.sync(about).await).await,
        ComputedView::Reachability { to } => match inspect.reachability(about, to.as_deref()).await {
            Ok(ProxyReachabilityAnswer::All(all)) => written(Ok(all)).await,
            Ok(ProxyReachabilityAnswer::One(one)) => written(Ok(one)).await,
            Err(error) => written::<()>(Err(error)).await,
        },
        ComputedView::ReachabilityOfMesh { offset, size } => {
            let size = (*size).min(MAX_LISTED);
            written(inspect.reachability_of_mesh(&about.name, *offset, size).await).await
        }
        ComputedView::Observed { offset, size, would_be_trimmed } => {
            let wanted = WantedEdges {
                offset: *offset,
                size: (*size).min(MAX_LISTED),
                would_be_trimmed: *would_be_trimmed,
            };
            written(inspect.observed(&about.name, wanted).await).await
        }
        ComputedView::Signals { wanted } => {
            let size = wanted.size.min(MAX_LISTED);
            let wanted = WantedSignals { size, ..wanted.clone() };
            written(inspect.signals(&about.name, wanted).await).await
        }
    }
}

/// A long answer is written where streams do not wait for it.
async fn written<T: Serialize + Send + 'static>(
    answer: Result<T, InspectError>,
) -> Result<Bytes, InspectError> {
    let reply = answer.map_or_else(|error| Reply::Refusal(ViewRefusal::from(&error)), Reply::Answer);
    let written = tokio::task::spawn_blocking(move || serde_json::to_vec(&reply)).await;
    let failed = |error: &dyn std::fmt::Display| InspectError::Failed(error.to_string());
    written.map_err(|error| failed(&error))?.map(Bytes::from).map_err(|error| failed(&error))
}

/// Reads an answer of `by`, such as `zone "east"`.
pub fn read<T: DeserializeOwned>(body: &[u8], by: &str) -> Result<T, InspectError> {
    match serde_json::from_slice(body) {
        Ok(Reply::Answer(answer)) => Ok(answer),
        Ok(Reply::Refusal(refusal)) => Err(refusal.by(by)),
        Err(error) => Err(InspectError::Unreachable(format!(
            "{by} answered with something else than what was asked for: {error}; its control plane may be of another \
             version: ask that one"
        ))),
    }
}

impl From<&InspectError> for ViewRefusal {
    fn from(error: &InspectError) -> ViewRefusal {
        let reason = match error {
            InspectError::Missing(_) | InspectError::NotFound(_) => Reason::NotFound,
            InspectError::Unsupported(_) => Reason::Unsupported,
            InspectError::NotConnected(_)
            | InspectError::Unreachable(_)
            | InspectError::Elsewhere(_)
            | InspectError::Failed(_) => Reason::Unreachable,
        };
        ViewRefusal { reason, text: error.to_string() }
    }
}

impl ViewRefusal {
    fn by(self, by: &str) -> InspectError {
        let said: String = self.text.chars().take(LONGEST_REASON).collect();
        let text = format!("{by}: {said}");
        match self.reason {
            Reason::NotFound => InspectError::NotFound(text),
            Reason::Unsupported => InspectError::Unsupported(text),
            Reason::Unreachable => InspectError::Unreachable(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::layout::ProxyLayout;

    use super::*;

    #[test]
    fn an_answer_to_something_else_is_none() {
        for body in [
            // A dump of a proxy's configuration, as a control plane answers that does not know the question.
            r#"{ "configs": [] }"#,
            r#"{ "answer": { "items": [] } }"#,
            r#"{ "answer": "<script>" }"#,
            "<html>",
            "",
        ] {
            let error = read::<ProxyLayout>(body.as_bytes(), "zone \"east\"").unwrap_err();
            assert!(
                matches!(&error, InspectError::Unreachable(text) if text.starts_with("zone \"east\"")),
                "{error}"
            );
        }
        let deep = format!("{{ \"answer\": {}", "[".repeat(1 << 20));
        assert!(read::<serde_json::Value>(deep.as_bytes(), "zone \"east\"").is_err());
    }

    #[test]
    fn a_refusal_keeps_its_sort_and_an_end() {
        let long = "a".repeat(1 << 20);
        for (error, expected) in [
            (InspectError::NotFound(long.clone()), 404),
            (InspectError::Unsupported(long.clone()), 400),
            (InspectError::Failed(long), 503),
        ] {
            let reply = Reply::<()>::Refusal(ViewRefusal::from(&error));
            let body = serde_json::to_vec(&reply).unwrap();
            let refused = read::<ProxyLayout>(&body, "zone \"east\"").unwrap_err();
            assert!(
                refused.to_string().starts_with("zone \"east\": aaa") && refused.to_string().len() < 4096
            );
            let status = match refused {
                InspectError::NotFound(_) => 404,
                InspectError::Unsupported(_) => 400,
                _ => 503,
            };
            assert_eq!(status, expected);
        }
    }
}
