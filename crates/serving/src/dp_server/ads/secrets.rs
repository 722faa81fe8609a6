//! The secrets of a proxy: a sidecar acts in its mesh, an egress in several.

use plan::ProxyKind;
use tonic::Status;

use super::{Protocol, Session};
use crate::{
    dp_server::{
        renewal,
        secrets::{IssueError, IssuedSecrets, PAUSE},
    },
    push::MeshSecrets,
};

impl<P: Protocol> Session<'_, P> {
    /// Sees to the proxy's secrets and hands everything to the state machine. A mesh whose authority fails leaves the
    /// others alone.
    pub(super) async fn send_target(&mut self) -> Result<(), Status> {
        let Some(current) = &self.current else { return Ok(()) };
        let wanted: Vec<MeshSecrets> = current.secrets().cloned().collect();
        let mut issued = Vec::with_capacity(wanted.len());
        self.secrets.retry = None;
        for secrets in &wanted {
            let fresh = Box::pin(self.issue(secrets)).await;
            match fresh {
                Ok(fresh) => issued.push(fresh),
                Err(IssueError::Denied(denied)) => return Err(denied),
                Err(error) => {
                    let key = self.registration.proxy().key();
                    let error = error.to_string();
                    tracing::error!(
                        mesh = &*secrets.mesh,
                        name = &*key.name,
                        error,
                        "no certificate could be issued"
                    );
                    // It keeps what it has of that mesh, and one that has none waits: without it there is no mTLS.
                    let known = self.secrets.issued.iter().find(|known| known.mesh == secrets.mesh);
                    issued.extend(known.cloned().map(|known| known.retry_after(PAUSE)));
                    self.secrets.retry = Some(renewal::after(PAUSE));
                }
            }
        }
        self.report_certificate(&wanted, &issued);
        self.note_renewals(&issued);
        self.secrets.issued = issued;
        self.hand_over().await
    }

    async fn issue(&self, secrets: &MeshSecrets) -> Result<IssuedSecrets, IssueError> {
        let MeshSecrets { mesh, names } = secrets;
        let issuer = &self.context.issuer;
        let proxy = self.registration.proxy();
        match proxy.traits.kind {
            ProxyKind::Sidecar => {
                issuer.issue(&self.context, proxy, self.registration.credentials(), names).await
            }
            ProxyKind::Zone(_) => issuer.issue_to_egress(&self.context, &proxy.key(), mesh, names).await,
        }
    }

    /// Lets the insight of a sidecar tell about its certificate, when that is another one.
    fn report_certificate(&self, wanted: &[MeshSecrets], issued: &[IssuedSecrets]) {
        match self.registration.proxy().traits.kind {
            ProxyKind::Sidecar if wanted.is_empty() => self.registration.report_certificate(None),
            ProxyKind::Sidecar => {
                let known = self.secrets.issued.first().map(|known| &known.certificate);
                let fresh = issued.first().filter(|fresh| Some(&fresh.certificate) != known);
                if let Some(fresh) = fresh {
                    self.registration.report_certificate(Some(fresh.status()));
                }
            }
            // Insights of zone proxies have no certificate.
            ProxyKind::Zone(_) => {}
        }
    }
}
