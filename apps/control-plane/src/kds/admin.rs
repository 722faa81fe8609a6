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
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tonic::Status;

use self::peers::Peers;
pub use self::question::{Question, View};
use super::{
    frame::{Messages, Outgoing},
    zones::Stream,
};
use crate::inspect::views;

/// How long an answer may take. A zone gives up on a proxy earlier.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many questions wait for one zone.
const WAITING: usize = 64;
/// How many questions a zone works on at a time.
const AT_ONCE: usize = 16;
/// Bytes of an answer without the proxy's part.
const ENVELOPE: usize = 1024;
/// Letters of the reason of a refusal that are passed on.
const LONGEST_REASON: usize = 2048;

struct PendingQuestion {
    question: Question,
    reply: oneshot::Sender<Result<Bytes, String>>,
}

/// The zones that can be asked.
#[derive(Default)]
pub struct Questions {
    streams: Mutex<HashMap<(String, Stream), mpsc::Sender<PendingQuestion>>>,
    /// Other instances, to which zones may be connected.
    peers: Option<Peers>,
}

impl Questions {
    pub fn with_peers(peers: Peers) -> Questions {
        Questions { peers: Some(peers), ..Questions::default() }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<(String, Stream), mpsc::Sender<PendingQuestion>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a zone, through another instance where the zone is connected to that one.
    pub async fn put(&self, zone: &str, question: Question) -> Result<AdminAnswer, InspectError> {
        let is_here = self.streams().contains_key(&(zone.to_owned(), question.stream()));
        let peer = self.peers.as_ref().filter(|_| !is_here);
        match peer.and_then(|peers| Some((peers, peers.holder(zone, question.stream())?))) {
            Some((peers, holder)) => peers.ask(&holder, question).await,
            None => self.put_here(zone, question).await,
        }
    }

    /// Asks a zone that is connected to this instance.
    async fn put_here(&self, zone: &str, question: Question) -> Result<AdminAnswer, InspectError> {
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
            answer.await.map_err(|_| gone())?.map_err(InspectError::Unreachable)
        };
        let late = |_| InspectError::Unreachable(format!("zone {zone:?} did not answer within {PATIENCE:?}"));
        let body = timeout(PATIENCE, asked).await.map_err(late)??;
        Ok(AdminAnswer { content_type, body })
    }

    /// Asks on a stream of a zone, until it ends.
    pub async fn ask(
        &self,
        zone: &str,
        stream: Stream,
        mut answers: Messages,
        asked: &Outgoing,
    ) -> Result<(), Status> {
        let (sender, mut questions) = mpsc::channel(WAITING);
        let key = (zone.to_owned(), stream);
        self.streams().insert(key.clone(), sender.clone());
        let mut open: HashMap<String, oneshot::Sender<Result<Bytes, String>>> = HashMap::new();
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
                            Some(XdsConfigResult::Error(error)) => Err(format!("zone {zone:?}: {}", bounded(&error))),
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

/// Answers the questions of the global control plane on one of the three streams, until it ends.
pub async fn answer(
    inspect: Arc<dyn Inspect>,
    stream: Stream,
    mut questions: Messages,
    answers: Outgoing,
    limit: usize,
) -> Result<(), Status> {
    let turns = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    loop {
        let Some((request_id, question)) = Question::next(&mut questions, stream).await? else {
            return Ok(());
        };
        let (inspect, answers, turns) = (inspect.clone(), answers.clone(), turns.clone());
        let turn = turns.acquire_owned().await.map_err(|_| Status::cancelled("no more answers"))?;
        tokio::spawn(async move {
            let result = match question {
                Ok(question) => said(answered(&*inspect, &question).await, limit),
                Err(reason) => XdsConfigResult::Error(reason),
            };
            // Without a stream the answer has no reader.
            let _ = answers.send(&wire::XdsConfigResponse { request_id, result: Some(result) }).await;
            drop(turn);
        });
    }
}

/// The answer of the control plane that the proxy is connected to.
async fn answered(inspect: &dyn Inspect, question: &Question) -> Result<Bytes, InspectError> {
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
