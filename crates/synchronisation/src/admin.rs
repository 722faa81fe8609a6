//! Questions about proxies of other zones: the global control plane asks, the zone's asks the proxy.

pub mod peers;
mod question;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{AdminAnswer, Inspect, InspectError};
use bytes::Bytes;
use kds::wire::{self, XdsConfigResult};
use resources::{Key, naming::KumaSpelling};
use store::Store;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};
use tonic::Status;

use self::peers::Peers;
pub use self::question::{AdminQuestion, View};
use super::{
    frame::{Messages, Outgoing},
    node::Implementation,
    zones::ZoneStream,
};
use crate::views;

/// Time limit for an answer. A zone gives up on a proxy earlier.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for a global control plane to introduce itself. Its questions wait.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// Number of questions that wait for one zone.
const WAITING: usize = 64;
/// Number of questions that a zone works on at a time.
const AT_ONCE: usize = 16;
/// Bytes of an answer without the proxy's part.
const ENVELOPE: usize = 1024;
/// Letters of the reason of a refusal that are passed on.
const LONGEST_REASON: usize = 2048;

struct PendingQuestion {
    question: AdminQuestion,
    reply: oneshot::Sender<Result<Bytes, InspectError>>,
}

/// The zones that can be asked.
#[derive(Default)]
pub struct Questions {
    streams: Mutex<HashMap<(String, ZoneStream), mpsc::Sender<PendingQuestion>>>,
    /// Other instances, to which zones may be connected.
    peers: Option<Peers>,
}

impl Questions {
    pub fn with_peers(peers: Peers) -> Questions {
        Questions { peers: Some(peers), ..Questions::default() }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<(String, ZoneStream), mpsc::Sender<PendingQuestion>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a zone is asked on this stream by this instance.
    pub fn is_connected(&self, zone: &str, stream: ZoneStream) -> bool {
        self.streams().contains_key(&(zone.to_owned(), stream))
    }

    /// Asks a zone, through another instance where the zone is connected to that one.
    pub async fn put(&self, zone: &str, question: AdminQuestion) -> Result<AdminAnswer, InspectError> {
        let is_here = self.is_connected(zone, question.stream());
        let peer = self.peers.as_ref().filter(|_| !is_here);
        match peer.and_then(|peers| Some((peers, peers.holder(zone, question.stream())?))) {
            Some((peers, holder)) => peers.ask(&holder, question).await,
            None => self.put_here(zone, question).await,
        }
    }

    /// Asks a zone that is connected to this instance.
    async fn put_here(&self, zone: &str, question: AdminQuestion) -> Result<AdminAnswer, InspectError> {
        let about = question.about.clone();
        let gone = || {
            InspectError::Unreachable(format!(
                "zone {zone:?} of {about} is not connected to this control plane: see 'kumactl inspect zones'"
            ))
        };
        let stream = self.streams().get(&(zone.to_owned(), question.stream())).cloned().ok_or_else(gone)?;
        let (reply, answer) = oneshot::channel();
        let content_type = question.content_type();
        let asked = async {
            stream.send(PendingQuestion { question, reply }).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        };
        let late = |_| InspectError::Unreachable(format!("zone {zone:?} did not answer within {PATIENCE:?}"));
        let body = timeout(PATIENCE, asked).await.map_err(late)??;
        Ok(AdminAnswer { content_type, body })
    }

    /// Asks on a stream of a zone, until it ends.
    pub async fn ask(
        &self,
        zone: &str,
        stream: ZoneStream,
        mut answers: Messages,
        asked: &Outgoing,
    ) -> Result<(), Status> {
        let (sender, mut questions) = mpsc::channel(WAITING);
        let key = (zone.to_owned(), stream);
        self.streams().insert(key.clone(), sender.clone());
        let mut open: HashMap<String, oneshot::Sender<Result<Bytes, InspectError>>> = HashMap::new();
        let ended = loop {
            tokio::select! {
                Some(PendingQuestion { question, reply }) = questions.recv() => {
                    let id = uuid::Uuid::new_v4().to_string();
                    // Questions whose asker has gone are forgotten.
                    open.retain(|_, reply| !reply.is_closed());
                    open.insert(id.clone(), reply);
                    if let Err(status) = question.send(asked, id).await {
                        break Err(status);
                    }
                }
                // The three kinds of answers have the same fields.
                answer = answers.next::<wire::XdsConfigResponse>() => match answer {
                    Ok(Some(answer)) => if let Some(reply) = open.remove(&answer.request_id) {
                        let _ = reply.send(match answer.result {
                            Some(XdsConfigResult::Config(body)) => Ok(body),
                            Some(XdsConfigResult::Error(error)) => Err(refused(zone, &error)),
                            None => Ok(Bytes::new()),
                        });
                    },
                    Ok(None) => break Ok(()),
                    Err(status) => break Err(status),
                },
            }
        };
        let mut streams = self.streams();
        if streams.get(&key).is_some_and(|current| current.same_channel(&sender)) {
            streams.remove(&key);
        }
        ended
    }
}

/// The reason of another control plane, as far as it is passed on.
fn bounded(reason: &str) -> String {
    reason.chars().take(LONGEST_REASON).collect()
}

fn refused(zone: &str, reason: &str) -> InspectError {
    InspectError::Unreachable(format!("zone {zone:?}: {}", bounded(reason)))
}

/// Dependencies of answers.
#[derive(Clone)]
pub struct AnswerParts {
    pub inspect: Arc<dyn Inspect>,
    pub store: Arc<dyn Store>,
    /// The project that the global control plane is of, when it has introduced itself.
    pub asker: watch::Receiver<Option<Implementation>>,
    pub limit: usize,
}

impl AnswerParts {
    /// Answers the questions of the global control plane on one of the three streams, until it ends.
    pub async fn run(
        self,
        stream: ZoneStream,
        mut questions: Messages,
        answers: Outgoing,
    ) -> Result<(), Status> {
        let turns = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
        loop {
            let Some((request_id, question)) = AdminQuestion::next(&mut questions, stream).await? else {
                return Ok(());
            };
            let answering = self.clone();
            let answers = answers.clone();
            let turns = turns.clone();
            let turn = turns.acquire_owned().await.map_err(|_| Status::cancelled("no more answers"))?;
            tokio::spawn(async move {
                let result = match question {
                    Ok(question) => said(answering.answered(&question).await, answering.limit),
                    Err(unreadable) => XdsConfigResult::Error(unreadable.to_string()),
                };
                // Without a stream the answer has no reader.
                let _ = answers.send(&wire::XdsConfigResponse { request_id, result: Some(result) }).await;
                drop(turn);
            });
        }
    }

    async fn answered(&self, question: &AdminQuestion) -> Result<Bytes, InspectError> {
        let body = answered(&*self.inspect, question).await?;
        match question.view {
            View::Admin(_) => self.spelled(&question.about, body).await,
            // Kuma does not ask for it.
            View::Computed(_) => Ok(body),
        }
    }

    /// Kuma's global control plane cannot ask for its spelling of names, and its GUI knows no other.
    async fn spelled(&self, proxy: &Key, body: Bytes) -> Result<Bytes, InspectError> {
        if self.implementation().await == Implementation::KumaRs {
            return Ok(body);
        }
        let failed = |cause: String| InspectError::Failed(cause);
        let snapshot = self.store.snapshot().map_err(|error| failed(error.to_string()))?;
        let Some(spelling) = snapshot.get(proxy).map(|stored| KumaSpelling::of(stored)) else {
            return Ok(body);
        };
        // A dump can be large, and other questions should not wait for it.
        let spelled =
            tokio::task::spawn_blocking(move || spelling.text(&String::from_utf8_lossy(&body)).into()).await;
        spelled.map_err(|error| failed(error.to_string()))
    }

    /// The global control plane introduces itself on another stream than the one on which it asks. Kuma-rs always does.
    async fn implementation(&self) -> Implementation {
        let mut asker = self.asker.clone();
        let introduced = timeout(INTRODUCTION, asker.wait_for(Option::is_some)).await;
        introduced.ok().and_then(Result::ok).and_then(|asker| *asker).unwrap_or(Implementation::Kuma)
    }
}

/// The answer of the control plane that the proxy is connected to.
async fn answered(inspect: &dyn Inspect, question: &AdminQuestion) -> Result<Bytes, InspectError> {
    match &question.view {
        View::Admin(view) => inspect.admin(&question.about, *view).await.map(|answer| answer.body),
        View::Computed(view) => views::answer(inspect, &question.about, view).await,
    }
}

fn said(answer: Result<Bytes, InspectError>, limit: usize) -> XdsConfigResult {
    match answer {
        Ok(body) if body.len() + ENVELOPE <= limit => XdsConfigResult::Config(body),
        Ok(body) => XdsConfigResult::Error(format!(
            "the answer has {} bytes, and the limit of a message is {limit} (multizone.zone.kds.maxMsgSize)",
            body.len()
        )),
        Err(error) => XdsConfigResult::Error(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
