//! Asking Envoy and applications for their metrics, all at the same time.
//!
//! An application that does not answer costs a page some seconds once. From then on pages hardly wait for it, while it
//! is given the same time as before to show that it answers again.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use resources::kinds::dataplane::Dataplane;
use tokio::{net::TcpStream, task::JoinSet};

use super::{
    Texts, View,
    exposition::{CONTENT_TYPE, Families},
    legacy::{self, LegacyNames, Listening},
    merge,
    names::{self, KnownNames},
};
use crate::{
    envoy::admin::Admin,
    http_client::exchange_within,
    settings::{Application, ENVOY, MetricsSettings},
};

/// Shorter than the ten seconds Prometheus waits, so that one slow application does not cost the rest.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time that a page waits for an application that did not answer the last time.
const BRIEFLY: Duration = Duration::from_millis(500);

/// The largest page of an application; one that has more is left out, because nothing limits what it would
/// cost the agent, which has little memory of its own.
const LARGEST: usize = 8 * 1024 * 1024;

/// Number of times that a source was left out.
pub type Failures = Family<Source, Counter>;

/// Envoy or an application, by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Source {
    source: String,
}

/// Applications and Envoy, whose pages are gathered.
#[derive(Debug, Default)]
pub struct Sources {
    applications: Vec<Application>,
    legacy_names: bool,
    dataplane: Option<Arc<Dataplane>>,
    failures: Failures,
    hanging: Hanging,
}

/// The applications that did not answer in time when they were asked last.
#[derive(Debug, Clone, Default)]
struct Hanging(Arc<Mutex<HashSet<String>>>);

impl Hanging {
    fn names(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time to wait for an application, where the page should take no longer than `at_most`.
    fn patience(&self, application: &str, at_most: Duration) -> Duration {
        if self.names().contains(application) { at_most.min(BRIEFLY) } else { at_most }
    }

    /// Asks an application for as long as any page might wait, and remembers whether it answered.
    async fn ask(self, application: Application) -> anyhow::Result<String> {
        match tokio::time::timeout(PATIENCE, ask(&application)).await {
            Ok(answer) => {
                self.names().remove(&application.name);
                answer
            }
            Err(_) => {
                self.names().insert(application.name);
                Err(anyhow!(LATE))
            }
        }
    }
}

const LATE: &str = "no answer in time";

impl Sources {
    pub fn new(settings: &MetricsSettings, dataplane: Option<Arc<Dataplane>>) -> Sources {
        Sources {
            applications: settings.applications.clone(),
            legacy_names: settings.legacy_names,
            dataplane,
            failures: Failures::default(),
            hanging: Hanging::default(),
        }
    }

    /// For the page of the agent's own metrics.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// Everything that can be had now; `own` are the agent's own metrics.
    pub async fn gather(&self, view: &View, admin: Option<&Admin>, own: String) -> Families {
        let mut asked = JoinSet::new();
        // The rest of the time is for putting the page together and sending it.
        let at_most = view.wanted_within.map_or(PATIENCE, |within| within.mul_f64(0.75).min(PATIENCE));
        for application in self.applications.iter().chain(&view.applications).cloned() {
            let name = application.name.clone();
            let hanging = self.hanging.clone();
            asked.spawn(async move {
                let patience = hanging.patience(&name, at_most);
                // It goes on when the page does not wait any more.
                let asking = tokio::spawn(hanging.clone().ask(application));
                let text = match tokio::time::timeout(patience, asking).await {
                    Ok(text) => text.unwrap_or_else(|error| Err(error.into())),
                    Err(_) => {
                        // The other wait ends at the same moment; the next page must not depend on which is first.
                        if patience == PATIENCE {
                            hanging.names().insert(name.clone());
                        }
                        Err(anyhow!(LATE))
                    }
                };
                (name, text)
            });
        }
        let (envoy, known, older) = match admin {
            Some(admin) => self.ask_envoy(admin, view.used_only).await,
            None => (Err(anyhow!("Envoy has not been started")), KnownNames::default(), None),
        };
        let mut answers = asked.join_all().await;
        answers.sort_by(|one, other| one.0.cmp(&other.0));
        let mut texts = Texts { agent: own, ..Texts::default() };
        let mut answered = vec![(ENVOY.to_owned(), envoy.is_ok())];
        texts.envoy = self.usable(ENVOY, envoy).unwrap_or_default();
        for (name, text) in answers {
            answered.push((name.clone(), text.is_ok()));
            texts.applications.extend(self.usable(&name, text).map(|text| (name, text)));
        }
        add_answered(&mut texts.agent, &answered);
        merge(&texts, &known, older.as_ref(), view.profile.as_ref())
    }

    fn usable(&self, source: &str, text: anyhow::Result<String>) -> Option<String> {
        text.inspect_err(|error| {
            self.failures.get_or_create(&Source { source: source.to_owned() }).inc();
            tracing::debug!(source, error = format!("{error:#}"), "no metrics from this source");
        })
        .ok()
    }

    async fn ask_envoy(
        &self,
        admin: &Admin,
        used_only: bool,
    ) -> (anyhow::Result<String>, KnownNames, Option<LegacyNames>) {
        let question = if used_only { "/stats/prometheus?usedonly" } else { "/stats/prometheus" };
        let names = async { anyhow::Ok(KnownNames::of_stats(&admin.get(names::QUESTION).await?)) };
        let (text, known) = tokio::join!(admin.get(question), names);
        // Without the names, what Envoy took apart would be shown as if it were right.
        let (text, known) = match (text, known) {
            (Ok(text), Ok(known)) => (Ok(text), known),
            (Err(error), _) | (_, Err(error)) => (Err(error), KnownNames::default()),
        };
        let older = if self.legacy_names && text.is_ok() {
            let listening = Listening::of_admin(&admin.get(legacy::QUESTION).await.unwrap_or_default());
            Some(LegacyNames::derive(&known, &listening, self.dataplane.as_deref()))
        } else {
            None
        };
        (text, known, older)
    }
}

/// Says in the agent's own metrics who has answered.
fn add_answered(own: &mut String, answered: &[(String, bool)]) {
    let metric = "kuma_dp_metrics_source_up";
    let mut lines = format!(
        "# HELP {metric} Answer of a source of metrics for this page: 1 if it came, 0 if not.\n# TYPE {metric} gauge\n"
    );
    for (name, up) in answered {
        lines.push_str(&format!("{metric}{{source=\"{name}\"}} {}\n", u8::from(*up)));
    }
    // In front, because the agent's own metrics end with a mark.
    *own = lines + own;
}

async fn ask(application: &Application) -> anyhow::Result<String> {
    let url = &application.url;
    let authority = url.authority().context("the URL has no host")?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let path = url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let request = Request::get(path)
        .header(header::HOST, authority.as_str())
        .header(header::ACCEPT, CONTENT_TYPE)
        .body(Full::new(Bytes::new()))?;
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
    let answer = exchange_within(LARGEST, stream, request).await?;
    anyhow::ensure!(answer.status == StatusCode::OK, "{url} answered {}", answer.status);
    Ok(answer.text())
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        time::Instant,
    };

    use http::{HeaderMap, HeaderName, HeaderValue};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// An application that answers every request with this.
    async fn application(name: &str, status: &'static str, page: String) -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", page.len());
                let _ = stream.write_all((head + &page).as_bytes()).await;
            }
        });
        Application { name: name.to_owned(), url }
    }

    #[tokio::test]
    async fn who_fails_or_says_too_much_is_left_out_and_counted() {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let view = View {
            applications: vec![
                application("good", "200 OK", "orders 3\n".to_owned()).await,
                application("large", "200 OK", "many 1\n".repeat(LARGEST / 7 + 1)).await,
                application("broken", "500 Internal Server Error", "errors 1\n".to_owned()).await,
                Application { name: "gone".to_owned(), url: format!("http://{gone}/").parse().unwrap() },
            ],
            ..View::default()
        };
        let sources = Sources::default();
        let page = view.written(sources.gather(&view, None, String::new()).await);
        assert!(page.contains("orders{kuma_application=\"good\"} 3"), "{page}");
        for (name, up) in [("good", 1), ("large", 0), ("broken", 0), ("gone", 0)] {
            assert!(page.contains(&format!("kuma_dp_metrics_source_up{{source=\"{name}\"}} {up}")), "{page}");
            let failures = sources.failures().get_or_create(&Source { source: name.to_owned() }).get();
            assert_eq!(failures, 1 - up, "{name}");
        }
        assert!(!page.contains("many") && !page.contains("errors"), "{page}");
    }

    /// An application that is silent until the test lets it speak.
    async fn silent_until(speak: Arc<AtomicBool>) -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let mut silent = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                if !speak.load(Ordering::Relaxed) {
                    silent.push(stream);
                    continue;
                }
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nspoken 1").await;
            }
        });
        Application { name: "silent".to_owned(), url }
    }

    #[tokio::test]
    async fn a_silent_application_delays_neither_the_page_nor_the_others() {
        let speaks = Arc::new(AtomicBool::new(false));
        let mut view = View {
            applications: vec![
                application("good", "200 OK", "orders 3\n".to_owned()).await,
                silent_until(speaks.clone()).await,
            ],
            ..View::default()
        };
        let page = async |sources: &Sources, view: &View| {
            let page = sources.gather(view, None, "own 1\n".to_owned()).await;
            let page = view.written(page);
            assert!(page.contains("orders{kuma_application=\"good\"} 3") && page.contains("own 1"), "{page}");
            page
        };
        let timed = async |sources: &Sources, view: &View| {
            let started = Instant::now();
            let silent = "kuma_dp_metrics_source_up{source=\"silent\"} 0";
            assert!(page(sources, view).await.contains(silent));
            started.elapsed()
        };
        // A reader that says how long it waits has its page by then; one that does not say so waits in full once.
        view = view.for_reader(&HeaderMap::from_iter([scrape_timeout("1")]));
        let hurried = timed(&Sources::default(), &view).await;
        view = view.for_reader(&HeaderMap::new());
        let sources = Sources::default();
        let patient = timed(&sources, &view).await;
        let again = timed(&sources, &view).await;
        assert!(hurried < patient && again < patient, "{hurried:?} {again:?} {patient:?}");

        speaks.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !page(&sources, &view).await.contains("spoken{kuma_application=\"silent\"} 1") {
            assert!(Instant::now() < deadline, "it is heard again");
        }
    }

    fn scrape_timeout(seconds: &'static str) -> (HeaderName, HeaderValue) {
        let name = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");
        (name, HeaderValue::from_static(seconds))
    }
}
