//! The secrets of an egress, which acts in several meshes.

use tonic::Status;

use super::{Protocol, Session};
use crate::dp_server::{renewal, secrets::PAUSE};

impl<P: Protocol> Session<'_, P> {
    /// As [`Session::send_target`], for a zone proxy. A mesh whose authority fails leaves the others alone.
    pub(super) async fn send_zone_target(&mut self) -> Result<(), Status> {
        let Some(current) = &self.current else { return Ok(()) };
        let proxy = self.registration.proxy().key();
        let meshes = current.zone_secrets.clone();
        let mut issued = Vec::with_capacity(meshes.len());
        self.retry = None;
        for (mesh, names) in meshes.iter() {
            match self.context.issuer.issue_to_egress(&self.context, &proxy, mesh, names).await {
                Ok(one) => issued.push(one),
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(
                        name = &*proxy.name,
                        mesh = &**mesh,
                        error,
                        "cannot issue a certificate to the egress"
                    );
                    // It keeps what it has of that mesh.
                    let known = self.zone_issued.iter().find(|known| known.is_named(names));
                    issued.extend(known.cloned().map(|known| known.retry_after(PAUSE)));
                    self.retry = Some(renewal::after(PAUSE));
                }
            }
        }
        self.zone_issued = issued;
        self.hand_over().await
    }
}
