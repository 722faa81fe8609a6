//! A proxy that is connected, and the Envoy behind it: its configuration is computed as for any other, and a test says
//! what its admin interface answers.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{Method, StatusCode, Uri},
};
use runtime::{
    listen::{Limits, Listener},
    shutdown::Shutdown,
};
use serde_json::{Value, json};
use serving::{
    dp_server::proxy,
    push::{Connected, Current, Push},
};

/// Time for the first configuration.
const SOON: Duration = Duration::from_secs(30);

/// A proxy that stays connected as long as its control plane runs.
pub struct ConnectedProxy {
    push: Arc<Push>,
    connected: Arc<Connected>,
    stance: Arc<Stance>,
    envoy: Arc<Mutex<Envoy>>,
}

/// The resources that Envoy rejects; it answers nothing while there is no list.
#[derive(Debug, Default)]
struct Stance(Mutex<Option<Vec<String>>>);

impl Stance {
    /// Answers for what the proxy was sent.
    fn look(&self, connected: &Connected, push: &Push) {
        let Some(names) = self.0.lock().unwrap().clone() else { return };
        let of = |kind: xds::Type| xds::Status {
            kind,
            requested: true,
            pending: 0,
            rejected: Vec::new(),
            counters: xds::Counters::default(),
        };
        let mut statuses = xds::Type::ALL.map(of);
        let rejection = |name: &String| xds::Rejection {
            name: name.as_str().into(),
            version: 1,
            message: String::new(),
            has_another: false,
        };
        statuses[0].rejected.extend(names.iter().map(rejection));
        let secrets = push.secrets_changed().borrow().of("default");
        connected.look(&statuses, secrets);
    }
}

/// Answers of Envoy's admin interface.
#[derive(Debug, Default)]
struct Envoy {
    /// By path and query, one after the other; the last one is repeated.
    answers: BTreeMap<String, VecDeque<String>>,
    loggers: BTreeMap<String, String>,
}

impl ConnectedProxy {
    /// Connects a proxy that is stored with an address on this machine, by what it says of itself.
    pub async fn open(
        push: &Arc<Push>,
        mesh: &str,
        name: &str,
        mut said: Value,
        shutdown: &Shutdown,
    ) -> ConnectedProxy {
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let port = listener.addr().port();
        let envoy = Arc::new(Mutex::new(Envoy::default()));
        let router = Router::new().fallback(answer).with_state(envoy.clone());
        listener.serve(router, None, Limits::default(), shutdown);
        said["dataplane.admin.port"] = json!(port.to_string());
        said["dataplane.admin.address"] = json!("127.0.0.1");
        push.caught_up().await;
        let connected = Arc::new(push.connect(proxy::traits(mesh, name, &said)));
        let stance = Arc::<Stance>::default();
        let connection = ConnectedProxy {
            push: push.clone(),
            connected: connected.clone(),
            stance: stance.clone(),
            envoy,
        };
        let (configured, first) = tokio::sync::oneshot::channel();
        tokio::spawn(follow(connected, push.clone(), stance, configured, shutdown.clone()));
        tokio::time::timeout(SOON, first).await.expect("a configuration").unwrap();
        connection
    }

    /// Envoy acknowledges all it is sent from now on, but for what it rejects.
    pub fn acknowledges(&self, rejected: &[&str]) {
        *self.stance.0.lock().unwrap() = Some(rejected.iter().map(|name| (*name).to_owned()).collect());
        self.stance.look(&self.connected, &self.push);
    }

    /// Teaches what is answered to a path and query.
    pub fn answers(&self, path: &str, answer: impl ToString) {
        self.envoy.lock().unwrap().answers.insert(path.to_owned(), [answer.to_string()].into());
    }

    /// Teaches what is answered to it after that.
    pub fn then_answers(&self, path: &str, answer: impl ToString) {
        let mut envoy = self.envoy.lock().unwrap();
        envoy.answers.entry(path.to_owned()).or_default().push_back(answer.to_string());
    }

    /// Teaches what is answered about the configuration, with endpoints or without.
    pub fn dumps(&self, dump: &Value) {
        self.answers("/config_dump", dump);
        self.answers("/config_dump?include_eds", dump);
    }

    /// Gives it loggers, all of one level.
    pub fn logs(&self, loggers: &[&str], level: &str) {
        let loggers = loggers.iter().map(|logger| ((*logger).to_owned(), level.to_owned()));
        self.envoy.lock().unwrap().loggers = loggers.collect();
    }
}

/// Computes what the proxy gets whenever that changes.
async fn follow(
    connected: Arc<Connected>,
    push: Arc<Push>,
    stance: Arc<Stance>,
    configured: tokio::sync::oneshot::Sender<()>,
    shutdown: Shutdown,
) {
    let mut current: Option<Current> = None;
    let mut configured = Some(configured);
    loop {
        let work = tokio::select! {
            work = connected.watcher.work() => work,
            () = shutdown.begun() => return,
        };
        if let Some(next) = connected.compute(work, current.as_ref()).await {
            current = Some(next);
            if let Some(configured) = configured.take() {
                let _ = configured.send(());
            }
        }
        connected.acknowledged();
        stance.look(&connected, &push);
    }
}

async fn answer(State(envoy): State<Arc<Mutex<Envoy>>>, method: Method, uri: Uri) -> (StatusCode, String) {
    let mut envoy = envoy.lock().unwrap();
    if uri.path() == "/logging" {
        return envoy.logging(&method, uri.query());
    }
    let asked = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    match envoy.answers.get_mut(&asked) {
        Some(answers) if answers.len() > 1 => (StatusCode::OK, answers.pop_front().unwrap()),
        Some(answers) => (StatusCode::OK, answers.front().cloned().unwrap()),
        None => (StatusCode::NOT_FOUND, format!("invalid path {asked}")),
    }
}

impl Envoy {
    fn logging(&mut self, method: &Method, query: Option<&str>) -> (StatusCode, String) {
        if method != Method::POST {
            return (StatusCode::METHOD_NOT_ALLOWED, String::new());
        }
        let change = query.and_then(|query| query.split_once('='));
        if let Some((logger, level)) = change {
            let changed = |known: &str| logger == "level" || logger == known;
            if !self.loggers.keys().any(|known| changed(known)) {
                return (StatusCode::BAD_REQUEST, String::new());
            }
            for (_, known) in self.loggers.iter_mut().filter(|(known, _)| changed(known)) {
                level.clone_into(known);
            }
        }
        let lines: String =
            self.loggers.iter().map(|(logger, level)| format!("  {logger}: {level}\n")).collect();
        (StatusCode::OK, format!("active loggers:\n{lines}"))
    }
}
