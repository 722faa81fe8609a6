//! Questions about proxies of other zones: the global control plane asks, the zone's asks the proxy.

pub mod peers;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{AdminAnswer, AdminView, Format, Inspect, InspectError};
use bytes::Bytes;
use kds::wire::{self, XdsConfigResult};
use resources::{Key, Kind};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tonic::Status;

use self::peers::Peers;
use super::{
    frame::{Messages, Outgoing},
    zones::Stream,
};

/// How long an answer may take. A zone gives up on a proxy earlier.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many questions wait for one zone.
const WAITING: usize = 64;
/// How many questions a zone works on at a time.
const AT_ONCE: usize = 16;
/// Bytes of an answer without the proxy's part.
const ENVELOPE: usize = 1024;

/// A proxy, by its name in its zone, and what is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub proxy: Key,
    pub view: AdminView,
}

impl Question {
    fn stream(&self) -> Stream {
        match self.view {
            AdminView::ConfigDump { .. } => Stream::ConfigDump,
            AdminView::Stats { .. } | AdminView::SniUsage => Stream::Stats,
            AdminView::Clusters { .. } => Stream::Clusters,
        }
    }

    fn content_type(&self) -> &'static str {
        match self.view {
            AdminView::ConfigDump { .. }
            | AdminView::Stats { format: Format::Json, .. }
            | AdminView::Clusters { format: Format::Json } => "application/json",
            AdminView::Stats { .. } | AdminView::Clusters { .. } | AdminView::SniUsage => "text/plain",
        }
    }
}

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
            Some((peers, holder)) => peers.ask(&holder, zone, question).await,
            None => self.put_here(zone, question).await,
        }
    }

    /// Asks a zone that is connected to this instance.
    async fn put_here(&self, zone: &str, question: Question) -> Result<AdminAnswer, InspectError> {
        let proxy = question.proxy.clone();
        let gone = || {
            InspectError::Unreachable(format!(
                "zone {zone:?} of {proxy} is not connected to this control plane: see 'kumactl inspect zones'"
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
                    if let Err(status) = send(asked, id, question).await {
                        break Err(status);
                    }
                }
                // The three kinds of answers have the same fields.
                answer = answers.next::<wire::XdsConfigResponse>() => match answer {
                    Ok(Some(answer)) => if let Some(reply) = open.remove(&answer.request_id) {
                        let _ = reply.send(match answer.result {
                            Some(XdsConfigResult::Config(body)) => Ok(body),
                            Some(XdsConfigResult::Error(error)) => Err(format!("zone {zone:?}: {error}")),
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

async fn send(asked: &Outgoing, request_id: String, question: Question) -> Result<(), Status> {
    let resource_type = question.proxy.kind.name().to_owned();
    let resource_name = question.proxy.name.to_string();
    let resource_mesh = question.proxy.mesh.to_string();
    match question.view {
        AdminView::ConfigDump { include_eds } => {
            let request = wire::XdsConfigRequest {
                request_id,
                resource_type,
                resource_name,
                resource_mesh,
                include_eds,
            };
            asked.send(&request).await
        }
        AdminView::Stats { .. } | AdminView::SniUsage => {
            let (format, used_only) = match question.view {
                AdminView::Stats { format, used_only } => (format, used_only),
                _ => (Format::Text, true),
            };
            let request = wire::StatsRequest {
                request_id,
                resource_type,
                resource_name,
                resource_mesh,
                format: wire_format(format),
                used_only,
                sni_usage: question.view == AdminView::SniUsage,
            };
            asked.send(&request).await
        }
        AdminView::Clusters { format } => {
            let format = wire_format(format);
            let request =
                wire::ClustersRequest { request_id, resource_type, resource_name, resource_mesh, format };
            asked.send(&request).await
        }
    }
}

fn wire_format(format: Format) -> i32 {
    match format {
        Format::Text => wire::AdminOutputFormat::Text as i32,
        Format::Json => wire::AdminOutputFormat::Json as i32,
    }
}

fn read_format(format: i32) -> Format {
    if format == wire::AdminOutputFormat::Json as i32 { Format::Json } else { Format::Text }
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
        let Some((request_id, question)) = next(&mut questions, stream).await? else { return Ok(()) };
        let (inspect, answers, turns) = (inspect.clone(), answers.clone(), turns.clone());
        let turn = turns.acquire_owned().await.map_err(|_| Status::cancelled("no more answers"))?;
        tokio::spawn(async move {
            let result = match question {
                Ok(question) => said(inspect.admin(&question.proxy, question.view).await, limit),
                Err(reason) => XdsConfigResult::Error(reason),
            };
            // Without a stream the answer has no reader.
            let _ = answers.send(&wire::XdsConfigResponse { request_id, result: Some(result) }).await;
            drop(turn);
        });
    }
}

fn said(answer: Result<AdminAnswer, InspectError>, limit: usize) -> XdsConfigResult {
    match answer {
        Ok(answer) if answer.body.len() + ENVELOPE <= limit => XdsConfigResult::Config(answer.body),
        Ok(answer) => XdsConfigResult::Error(format!(
            "the answer has {} bytes, and the limit of a message is {limit} (multizone.zone.kds.maxMsgSize)",
            answer.body.len()
        )),
        Err(error) => XdsConfigResult::Error(error.to_string()),
    }
}

type Read = (String, Result<Question, String>);

async fn next(questions: &mut Messages, stream: Stream) -> Result<Option<Read>, Status> {
    let read = match stream {
        Stream::Stats => questions.next::<wire::StatsRequest>().await?.map(|asked| {
            let view = match asked.sni_usage {
                true => AdminView::SniUsage,
                false => AdminView::Stats { format: read_format(asked.format), used_only: asked.used_only },
            };
            (asked.request_id, asked.resource_type, asked.resource_mesh, asked.resource_name, view)
        }),
        Stream::Clusters => questions.next::<wire::ClustersRequest>().await?.map(|asked| {
            let view = AdminView::Clusters { format: read_format(asked.format) };
            (asked.request_id, asked.resource_type, asked.resource_mesh, asked.resource_name, view)
        }),
        Stream::ConfigDump | Stream::GlobalToZone | Stream::ZoneToGlobal => {
            questions.next::<wire::XdsConfigRequest>().await?.map(|asked| {
                let view = AdminView::ConfigDump { include_eds: asked.include_eds };
                (asked.request_id, asked.resource_type, asked.resource_mesh, asked.resource_name, view)
            })
        }
    };
    Ok(read.map(|(id, kind, mesh, name, view)| {
        let known = Kind::by_name(&kind).ok_or_else(|| format!("{kind:?} is no kind of proxy"));
        (id, known.map(|kind| Question { proxy: Key::new(kind, &mesh, &name), view }))
    }))
}

#[cfg(test)]
mod tests;
