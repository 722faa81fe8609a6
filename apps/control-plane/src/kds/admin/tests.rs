use api::{
    Config,
    inspect::{
        graph::Graph,
        hostnames::HostnameList,
        layout::Layout,
        logging::{LogChange, LogLevels},
        observed::{ObservedCalls, WantedEdges},
        policies::{PoliciesOf, PolicyList, RouteList},
        reach::{Question as ReachQuestion, Reach},
        reachability::{MeasuredProxies, OfProxy},
        rules::RuleList,
        suggestions::Suggestions,
        sync::SyncState,
        what_if::{Consequences, Hypothesis},
    },
};
use axum::body::Body;
use resources::{Resource, naming::Kri};
use serde_json::Value;

use super::*;

const LIMIT: usize = 1 << 20;

/// A zone with one proxy that repeats the question.
#[derive(Debug)]
struct Echo;

fn unsupported<T>() -> Result<T, InspectError> {
    Err(InspectError::Unsupported("only questions to the proxy".to_owned()))
}

#[async_trait::async_trait]
impl Inspect for Echo {
    async fn admin(&self, proxy: &Key, view: AdminView) -> Result<AdminAnswer, InspectError> {
        match &*proxy.name {
            "web" => {
                let body = format!("{proxy}: {view:?}").into();
                Ok(AdminAnswer { content_type: "text/plain", body })
            }
            "large" => Ok(AdminAnswer { content_type: "text/plain", body: vec![b'a'; LIMIT].into() }),
            _ => Err(InspectError::Missing(proxy.clone())),
        }
    }
    async fn logging(&self, _: &Key, _: Option<&LogChange>) -> Result<LogLevels, InspectError> {
        unsupported()
    }
    async fn config(&self, _: &Key, _: bool) -> Result<Config, InspectError> {
        unsupported()
    }
    async fn stats_summary(&self, _: &Key, _: bool) -> Result<Value, InspectError> {
        unsupported()
    }
    async fn layout(&self, _: &Key) -> Result<Layout, InspectError> {
        unsupported()
    }
    async fn sync(&self, _: &Key) -> Result<SyncState, InspectError> {
        unsupported()
    }
    async fn hostnames(&self, _: &Key) -> Result<HostnameList, InspectError> {
        unsupported()
    }
    async fn rules(&self, _: &Key) -> Result<RuleList, InspectError> {
        unsupported()
    }
    async fn policies(&self, _: &Key, _: &PoliciesOf) -> Result<PolicyList, InspectError> {
        unsupported()
    }
    async fn routes(&self, _: &Key, _: &Kri) -> Result<RouteList, InspectError> {
        unsupported()
    }
    async fn selected(&self, _: &Key) -> Result<Vec<Arc<Resource>>, InspectError> {
        unsupported()
    }
    async fn matched(&self, _: &Key) -> Result<Vec<Arc<Resource>>, InspectError> {
        unsupported()
    }
    async fn reach(&self, _: &ReachQuestion) -> Result<Reach, InspectError> {
        unsupported()
    }
    async fn observed(&self, _: &str, _: WantedEdges) -> Result<ObservedCalls, InspectError> {
        unsupported()
    }
    async fn reachability(&self, _: &Key, _: Option<&str>) -> Result<OfProxy, InspectError> {
        unsupported()
    }
    async fn reachability_of_mesh(
        &self,
        _: &str,
        _: usize,
        _: usize,
    ) -> Result<MeasuredProxies, InspectError> {
        unsupported()
    }
    async fn graph(&self, _: &str, _: Option<&str>) -> Result<Graph, InspectError> {
        unsupported()
    }
    async fn suggestions(&self, _: &str, _: Option<&str>) -> Result<Suggestions, InspectError> {
        unsupported()
    }
    async fn what_if(&self, _: Hypothesis) -> Result<Consequences, InspectError> {
        unsupported()
    }
}

fn pipe() -> (Outgoing, Messages) {
    let (outgoing, frames) = Outgoing::of_answer(true, Duration::from_secs(60));
    (outgoing, Messages::of(Body::new(frames), LIMIT))
}

/// Questions that a zone answers on all three streams.
pub(super) async fn connected() -> Arc<Questions> {
    let questions = Arc::<Questions>::default();
    for stream in [Stream::ConfigDump, Stream::Stats, Stream::Clusters] {
        let ((asked, asking), (answers, answered)) = (pipe(), pipe());
        let inspect: Arc<dyn Inspect> = Arc::new(Echo);
        tokio::spawn(answer(inspect, stream, asking, answers, LIMIT));
        let of_global = questions.clone();
        tokio::spawn(async move { of_global.ask("east", stream, answered, &asked).await });
    }
    while questions.streams().len() < 3 {
        tokio::task::yield_now().await;
    }
    questions
}

pub(super) fn question(name: &str, view: AdminView) -> Question {
    Question { proxy: Key::new(Kind::Dataplane, "default", name), view }
}

#[tokio::test]
async fn a_zone_answers_for_its_proxies() {
    let questions = connected().await;
    let stats = |format| AdminView::Stats { format, used_only: true };
    for (view, content_type) in [
        (AdminView::ConfigDump { include_eds: true }, "application/json"),
        (stats(Format::Text), "text/plain"),
        (stats(Format::Json), "application/json"),
        (AdminView::SniUsage, "text/plain"),
        (AdminView::Clusters { format: Format::Json }, "application/json"),
    ] {
        let answer = questions.put("east", question("web", view)).await.unwrap();
        let expected = format!("Dataplane \"web\" in mesh \"default\": {view:?}");
        assert_eq!((answer.content_type, &answer.body[..]), (content_type, expected.as_bytes()));
    }
}

#[tokio::test]
async fn what_a_zone_cannot_tell_is_said_in_its_words() {
    let questions = connected().await;
    let view = AdminView::ConfigDump { include_eds: false };
    for (zone, name, expected) in [
        ("east", "nobody", "there is no Dataplane \"nobody\""),
        ("east", "large", "multizone.zone.kds.maxMsgSize"),
        ("west", "web", "is not connected to this control plane"),
    ] {
        let error = questions.put(zone, question(name, view)).await.unwrap_err();
        assert!(matches!(&error, InspectError::Unreachable(text) if text.contains(expected)), "{error}");
    }
}
