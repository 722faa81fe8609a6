//! One question to the control plane that a proxy is connected to, and its form on the wire.

use api::{AdminFormat, AdminView};
use kds::wire;
use resources::{Key, Kind};
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::{
    frame::{Messages, Outgoing},
    views::ComputedView,
    zones::ZoneStream,
};

/// A proxy or a mesh, by its name in its zone, and what is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminQuestion {
    pub about: Key,
    pub view: View,
}

/// The wanted answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// Said by the proxy itself.
    Admin(AdminView),
    /// Computed by its control plane, in an envelope that says whether it could.
    Computed(ComputedView),
}

/// The content of the field that Kuma does not have.
#[derive(Debug, Serialize, Deserialize)]
struct AskedView {
    kind: String,
    view: ComputedView,
}

/// Reason that a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableQuestion {
    #[error("this control plane does not answer the question: {0}")]
    View(#[from] serde_json::Error),
    #[error("{0:?} is no kind of proxy")]
    Kind(String),
}

/// A question with the id that its answer repeats.
pub type Read = (String, Result<AdminQuestion, UnreadableQuestion>);

impl AdminQuestion {
    pub fn stream(&self) -> ZoneStream {
        match self.view {
            View::Admin(AdminView::ConfigDump { .. }) | View::Computed(_) => ZoneStream::ConfigDump,
            View::Admin(AdminView::Stats { .. } | AdminView::SniUsage) => ZoneStream::Stats,
            View::Admin(AdminView::Clusters { .. }) => ZoneStream::Clusters,
        }
    }

    /// The type of the answer. The one who answers has no say in it.
    pub fn content_type(&self) -> &'static str {
        match self.view {
            View::Computed(_)
            | View::Admin(
                AdminView::ConfigDump { .. }
                | AdminView::Stats { format: AdminFormat::Json, .. }
                | AdminView::Clusters { format: AdminFormat::Json },
            ) => "application/json",
            View::Admin(AdminView::Stats { .. } | AdminView::Clusters { .. } | AdminView::SniUsage) => {
                "text/plain"
            }
        }
    }

    pub async fn send(self, asked: &Outgoing, request_id: String) -> Result<(), Status> {
        let AdminQuestion { about, view } = self;
        let subject = Subject {
            request_id,
            resource_type: about.kind.name().to_owned(),
            resource_name: about.name.to_string(),
            resource_mesh: about.mesh.to_string(),
        };
        match view {
            View::Computed(view) => {
                let view = serde_json::to_string(&AskedView { kind: subject.resource_type.clone(), view });
                let view =
                    view.map_err(|error| Status::internal(format!("cannot write a question: {error}")))?;
                let resource_type = wire::XdsConfigRequest::VIEW.to_owned();
                asked.send(&wire::XdsConfigRequest { resource_type, view, ..subject.into() }).await
            }
            View::Admin(AdminView::ConfigDump { include_eds }) => {
                asked.send(&wire::XdsConfigRequest { include_eds, ..subject.into() }).await
            }
            View::Admin(AdminView::Stats { format, used_only }) => {
                let format = wire_format(format);
                asked.send(&wire::StatsRequest { format, used_only, ..subject.into() }).await
            }
            View::Admin(AdminView::SniUsage) => {
                let format = wire_format(AdminFormat::Text);
                let request =
                    wire::StatsRequest { format, used_only: true, sni_usage: true, ..subject.into() };
                asked.send(&request).await
            }
            View::Admin(AdminView::Clusters { format }) => {
                let format = wire_format(format);
                asked.send(&wire::ClustersRequest { format, ..subject.into() }).await
            }
        }
    }

    /// The next question on a stream; `None` when it ends.
    pub async fn next(questions: &mut Messages, stream: ZoneStream) -> Result<Option<Read>, Status> {
        Ok(match stream {
            ZoneStream::Stats => questions.next::<wire::StatsRequest>().await?.map(|asked| {
                let stats =
                    AdminView::Stats { format: read_format(asked.format), used_only: asked.used_only };
                let view = if asked.sni_usage { AdminView::SniUsage } else { stats };
                Subject::from(asked).asks(view)
            }),
            ZoneStream::Clusters => questions.next::<wire::ClustersRequest>().await?.map(|asked| {
                let view = AdminView::Clusters { format: read_format(asked.format) };
                Subject::from(asked).asks(view)
            }),
            ZoneStream::ConfigDump | ZoneStream::GlobalToZone | ZoneStream::ZoneToGlobal => {
                questions.next::<wire::XdsConfigRequest>().await?.map(|asked| {
                    let view = AdminView::ConfigDump { include_eds: asked.include_eds };
                    if asked.view.is_empty() {
                        return Subject::from(asked).asks(view);
                    }
                    let computed = computed(&asked);
                    (asked.request_id, computed)
                })
            }
        })
    }
}

/// The fields that requests of all three streams have.
struct Subject {
    request_id: String,
    resource_type: String,
    resource_name: String,
    resource_mesh: String,
}

impl Subject {
    fn asks(self, view: AdminView) -> Read {
        let about =
            known(&self.resource_type).map(|kind| Key::new(kind, &self.resource_mesh, &self.resource_name));
        (self.request_id, about.map(|about| AdminQuestion { about, view: View::Admin(view) }))
    }
}

/// Requests that begin with a [`Subject`].
macro_rules! requests {
    ($($request:ty),*) => {$(
        impl From<Subject> for $request {
            fn from(subject: Subject) -> $request {
                let Subject { request_id, resource_type, resource_name, resource_mesh } = subject;
                let rest = <$request>::default();
                Self { request_id, resource_type, resource_name, resource_mesh, ..rest }
            }
        }

        impl From<$request> for Subject {
            fn from(asked: $request) -> Subject {
                Subject {
                    request_id: asked.request_id,
                    resource_type: asked.resource_type,
                    resource_name: asked.resource_name,
                    resource_mesh: asked.resource_mesh,
                }
            }
        }
    )*};
}

requests!(wire::XdsConfigRequest, wire::StatsRequest, wire::ClustersRequest);

fn computed(asked: &wire::XdsConfigRequest) -> Result<AdminQuestion, UnreadableQuestion> {
    let AskedView { kind, view } = serde_json::from_str(&asked.view)?;
    let about = Key::new(known(&kind)?, &asked.resource_mesh, &asked.resource_name);
    Ok(AdminQuestion { about, view: View::Computed(view) })
}

fn known(kind: &str) -> Result<Kind, UnreadableQuestion> {
    Kind::by_name(kind).ok_or_else(|| UnreadableQuestion::Kind(kind.to_owned()))
}

fn wire_format(format: AdminFormat) -> i32 {
    match format {
        AdminFormat::Text => wire::AdminOutputFormat::Text as i32,
        AdminFormat::Json => wire::AdminOutputFormat::Json as i32,
    }
}

fn read_format(format: i32) -> AdminFormat {
    if format == wire::AdminOutputFormat::Json as i32 { AdminFormat::Json } else { AdminFormat::Text }
}
