mod asked;
mod echo;

use api::{AdminFormat, AdminView};

use contract::layout::ProxyLayout;
use resources::{Key, Kind};

pub(super) use echo::{Echo, connected};
use echo::{LIMIT, STATISTICS, pipe, with_proxies};

use super::*;
use crate::views::ComputedView;

pub(super) fn question(name: &str, view: AdminView) -> AdminQuestion {
    AdminQuestion { about: Key::new(Kind::Dataplane, "default", name), view: View::Admin(view) }
}

#[tokio::test]
async fn a_zone_answers_for_its_proxies() {
    let questions = connected().await;
    let stats = |format| AdminView::Stats { format, used_only: true };
    for (view, content_type) in [
        (AdminView::ConfigDump { include_eds: true }, "application/json"),
        (stats(AdminFormat::Text), "text/plain"),
        (stats(AdminFormat::Json), "application/json"),
        (AdminView::SniUsage, "text/plain"),
        (AdminView::Clusters { format: AdminFormat::Json }, "application/json"),
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

async fn layout(questions: &Questions, zone: &str, name: &str) -> Result<ProxyLayout, InspectError> {
    let view = View::Computed(ComputedView::Layout);
    let about = Key::new(Kind::Dataplane, "default", name);
    let answer = questions.put(zone, AdminQuestion { about, view }).await?;
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
    tokio::spawn(async move { of_global.ask("east", ZoneStream::ConfigDump, answered, &asked).await });
    while !questions.is_connected("east", ZoneStream::ConfigDump) {
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
