mod on_global;

use api::{
    AdminView, Config, Format,
    inspect::{
        graph::Graph,
        hostnames::HostnameList,
        layout::Layout,
        logging::{LogChange, LogLevels},
        observed::{ObservedCall, ObservedCalls, ReportingProxies, WantedEdges},
        policies::{PoliciesOf, PolicyList, RouteList},
        reach::{Question as ReachQuestion, Reach},
        reachability::{Counts, MeasuredProxies, ModeInUse, OfProxy, ProxyReachability, ProxySavings},
        rules::RuleList,
        suggestions::Suggestions,
        sync::SyncState,
        what_if::{Consequences, Hypothesis},
    },
};
use axum::body::Body;
use resources::{Key, Kind, Resource, naming::Kri};
use serde_json::{Value, json};

use super::*;
use crate::inspect::views::ComputedView;

const LIMIT: usize = 1 << 20;

fn mode() -> ModeInUse {
    let off = || "off".into();
    ModeInUse { asked: off(), said_by: "Mesh".into(), active: off(), inactive: None, stub: false }
}

/// A zone with one proxy that repeats the question.
#[derive(Debug)]
pub(super) struct Echo;

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
    async fn config(&self, proxy: &Key, with_shadow: bool) -> Result<Config, InspectError> {
        match &*proxy.name {
            "web" => Ok(Config { xds: json!({ "shadow": with_shadow }), without_shadow: None }),
            // As no honest zone says.
            "liar" => Ok(Config { xds: json!("<script>"), without_shadow: None }),
            _ => Err(InspectError::NotConnected(proxy.clone())),
        }
    }
    async fn stats_summary(&self, _: &Key, _: bool) -> Result<Value, InspectError> {
        unsupported()
    }
    async fn layout(&self, proxy: &Key) -> Result<Layout, InspectError> {
        match &*proxy.name {
            "web" => Ok(Layout { kri: proxy.to_string(), ..Layout::default() }),
            "large" => Ok(Layout { kri: "a".repeat(LIMIT), ..Layout::default() }),
            _ => Err(InspectError::Missing(proxy.clone())),
        }
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
    async fn observed(&self, mesh: &str, wanted: WantedEdges) -> Result<ObservedCalls, InspectError> {
        assert_eq!(mesh, "default");
        let edge = |count: u64| ObservedCall {
            caller: "spiffe://default/web".to_owned(),
            destination: "kri_msvc_default___kv_80".to_owned(),
            first_seen: String::new(),
            last_seen: String::new(),
            count,
            would_be_trimmed: wanted.would_be_trimmed,
            // Of whom a zone speaks is not the zone's to say.
            zone: Some("west".to_owned()),
        };
        // More than is asked for.
        let edges = (0..3).skip(wanted.offset).map(edge).collect();
        let proxies = ReportingProxies { reporting: 1, connected: 2 };
        Ok(ObservedCalls { total: 3, edges, proxies, ..ObservedCalls::default() })
    }
    async fn reachability(&self, proxy: &Key, to: Option<&str>) -> Result<OfProxy, InspectError> {
        match to {
            Some(to) => {
                Err(InspectError::NotFound(format!("mesh {:?} has no destination {to:?}", proxy.mesh)))
            }
            None => Ok(OfProxy::All(ProxyReachability {
                kri: "kri_dp_default_west__another_".to_owned(),
                mode: mode(),
                counts: Counts { reachable: 7, ..Counts::default() },
                report: None,
                destinations: Vec::new(),
                truncated: false,
            })),
        }
    }
    async fn reachability_of_mesh(
        &self,
        _: &str,
        offset: usize,
        size: usize,
    ) -> Result<MeasuredProxies, InspectError> {
        let item =
            |i: usize| ProxySavings { name: format!("web-{i}"), zone: None, mode: mode(), report: None };
        let items = (0..3).skip(offset).take(size).map(item).collect();
        Ok(MeasuredProxies { total: 3, items, zones: Vec::new() })
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
        let (asked, asking) = pipe();
        let (answers, answered) = pipe();
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
    Question { about: Key::new(Kind::Dataplane, "default", name), view: View::Admin(view) }
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

async fn layout(questions: &Questions, zone: &str, name: &str) -> Result<Layout, InspectError> {
    let view = View::Computed(ComputedView::Layout);
    let about = Key::new(Kind::Dataplane, "default", name);
    let answer = questions.put(zone, Question { about, view }).await?;
    assert_eq!(answer.content_type, "application/json");
    views::read(&answer.body, "zone \"east\"")
}

#[tokio::test]
async fn a_zone_computes_what_depends_on_where_it_stands() {
    let questions = connected().await;
    let seen = layout(&questions, "east", "web").await.unwrap();
    assert_eq!(seen.kri, "Dataplane \"web\" in mesh \"default\"");
    let missing = layout(&questions, "east", "nobody").await.unwrap_err();
    assert!(matches!(&missing, InspectError::NotFound(text) if text.contains("\"nobody\"")), "{missing}");
    let large = layout(&questions, "east", "large").await.unwrap_err();
    assert!(large.to_string().contains("multizone.zone.kds.maxMsgSize"), "{large}");
    let away = layout(&questions, "west", "web").await.unwrap_err();
    assert!(away.to_string().contains("is not connected to this control plane"), "{away}");
}

/// Lets a zone that answers every question in the same way take part.
async fn answering(result: XdsConfigResult) -> Arc<Questions> {
    let questions = Arc::<Questions>::default();
    let (asked, mut asking) = pipe();
    let (answers, answered) = pipe();
    tokio::spawn(async move {
        while let Ok(Some(question)) = asking.next::<wire::XdsConfigRequest>().await {
            assert_eq!(question.resource_type, wire::XdsConfigRequest::VIEW, "no kind of Kuma's");
            let request_id = question.request_id;
            let _ = answers.send(&wire::XdsConfigResponse { request_id, result: Some(result.clone()) }).await;
        }
    });
    let of_global = questions.clone();
    tokio::spawn(async move { of_global.ask("east", Stream::ConfigDump, answered, &asked).await });
    while questions.streams().is_empty() {
        tokio::task::yield_now().await;
    }
    questions
}

#[tokio::test]
async fn a_zone_that_does_not_know_the_question_or_lies_gives_no_answer() {
    let dump = XdsConfigResult::Config(r#"{ "configs": [{ "@type": "bootstrap" }] }"#.into());
    let page = XdsConfigResult::Config("<script>alert(1)</script>".into());
    for result in [dump, page] {
        let questions = answering(result).await;
        let error = layout(&questions, "east", "web").await.unwrap_err();
        assert!(
            matches!(&error, InspectError::Unreachable(text) if text.contains("ask that one")),
            "{error}"
        );
    }
    let words = "unsupported type \"View\"".repeat(1000);
    let questions = answering(XdsConfigResult::Error(words)).await;
    let error = layout(&questions, "east", "web").await.unwrap_err();
    assert!(error.to_string().starts_with("zone \"east\": unsupported type"), "{error}");
    assert!(error.to_string().len() < 4096, "{}", error.to_string().len());
}
