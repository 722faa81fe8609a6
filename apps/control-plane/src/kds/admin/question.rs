//! One question to the control plane that a proxy is connected to, and its form on the wire.

use api::{AdminView, Format};
use kds::wire;
use resources::{Key, Kind};
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::{
    inspect::views::ComputedView,
    kds::{
        frame::{Messages, Outgoing},
        zones::Stream,
    },
};

/// A proxy or a mesh, by its name in its zone, and what is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
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

/// A question with the id that its answer repeats; in words, what is wrong with it.
pub type Read = (String, Result<Question, String>);

impl Question {
    pub fn stream(&self) -> Stream {
        match self.view {
            View::Admin(AdminView::ConfigDump { .. }) | View::Computed(_) => Stream::ConfigDump,
            View::Admin(AdminView::Stats { .. } | AdminView::SniUsage) => Stream::Stats,
            View::Admin(AdminView::Clusters { .. }) => Stream::Clusters,
        }
    }

    /// The type of the answer. The one who answers has no say in it.
    pub fn content_type(&self) -> &'static str {
        match self.view {
            View::Computed(_)
            | View::Admin(
                AdminView::ConfigDump { .. }
                | AdminView::Stats { format: Format::Json, .. }
                | AdminView::Clusters { format: Format::Json },
            ) => "application/json",
            View::Admin(AdminView::Stats { .. } | AdminView::Clusters { .. } | AdminView::SniUsage) => {
                "text/plain"
            }
        }
    }

    pub async fn send(self, asked: &Outgoing, request_id: String) -> Result<(), Status> {
        let kind = self.about.kind.name().to_owned();
        let resource_name = self.about.name.to_string();
        let resource_mesh = self.about.mesh.to_string();
        match self.view {
            View::Computed(view) => {
                let view = serde_json::to_string(&AskedView { kind, view });
                let view =
                    view.map_err(|error| Status::internal(format!("cannot write a question: {error}")))?;
                let resource_type = wire::XdsConfigRequest::VIEW.to_owned();
                let request = wire::XdsConfigRequest {
                    request_id,
                    resource_type,
                    resource_name,
                    resource_mesh,
                    include_eds: false,
                    view,
                };
                asked.send(&request).await
            }
            View::Admin(AdminView::ConfigDump { include_eds }) => {
                let request = wire::XdsConfigRequest {
                    request_id,
                    resource_type: kind,
                    resource_name,
                    resource_mesh,
                    include_eds,
                    view: String::new(),
                };
                asked.send(&request).await
            }
            View::Admin(view @ (AdminView::Stats { .. } | AdminView::SniUsage)) => {
                let (format, used_only) = match view {
                    AdminView::Stats { format, used_only } => (format, used_only),
                    _ => (Format::Text, true),
                };
                let request = wire::StatsRequest {
                    request_id,
                    resource_type: kind,
                    resource_name,
                    resource_mesh,
                    format: wire_format(format),
                    used_only,
                    sni_usage: view == AdminView::SniUsage,
                };
                asked.send(&request).await
            }
            View::Admin(AdminView::Clusters { format }) => {
                let request = wire::ClustersRequest {
                    request_id,
                    resource_type: kind,
                    resource_name,
                    resource_mesh,
                    format: wire_format(format),
                };
                asked.send(&request).await
            }
        }
    }

    /// The next question on a stream; `None` when it ends.
    pub async fn next(questions: &mut Messages, stream: Stream) -> Result<Option<Read>, Status> {
        Ok(match stream {
            Stream::Stats => questions.next::<wire::StatsRequest>().await?.map(|asked| {
                let stats =
                    AdminView::Stats { format: read_format(asked.format), used_only: asked.used_only };
                let view = if asked.sni_usage { AdminView::SniUsage } else { stats };
                let question =
                    of_proxy(&asked.resource_type, &asked.resource_mesh, &asked.resource_name, view);
                (asked.request_id, question)
            }),
            Stream::Clusters => questions.next::<wire::ClustersRequest>().await?.map(|asked| {
                let view = AdminView::Clusters { format: read_format(asked.format) };
                let question =
                    of_proxy(&asked.resource_type, &asked.resource_mesh, &asked.resource_name, view);
                (asked.request_id, question)
            }),
            Stream::ConfigDump | Stream::GlobalToZone | Stream::ZoneToGlobal => {
                questions.next::<wire::XdsConfigRequest>().await?.map(|asked| {
                    let question = computed_or_dumped(&asked);
                    (asked.request_id, question)
                })
            }
        })
    }
}

fn computed_or_dumped(asked: &wire::XdsConfigRequest) -> Result<Question, String> {
    let mesh = &asked.resource_mesh;
    let name = &asked.resource_name;
    if asked.view.is_empty() {
        let view = AdminView::ConfigDump { include_eds: asked.include_eds };
        return of_proxy(&asked.resource_type, mesh, name, view);
    }
    let AskedView { kind, view } = serde_json::from_str(&asked.view)
        .map_err(|error| format!("this control plane does not answer the question: {error}"))?;
    Ok(Question { about: Key::new(known(&kind)?, mesh, name), view: View::Computed(view) })
}

fn of_proxy(kind: &str, mesh: &str, name: &str, view: AdminView) -> Result<Question, String> {
    Ok(Question { about: Key::new(known(kind)?, mesh, name), view: View::Admin(view) })
}

fn known(kind: &str) -> Result<Kind, String> {
    Kind::by_name(kind).ok_or_else(|| format!("{kind:?} is no kind of proxy"))
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
