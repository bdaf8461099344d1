//! This machine's own end of the links to other machines: its place, which a loop orders, and its certificates.
//!
//! Knows: the gateway needs both, and they arrive in any order. Never: opens a connection. Start reading at [`OwnLinkEnd`].

use crate::runtime::https::trust::LinkCertificates;
use crate::runtime::network::gateway::GatewayCommand;
use crate::runtime::network::publisher::{NetworkPublisher, PublishCommand};
use crate::world::node_links::{LinkEnd, LinkIdentity};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// The usual port for links.
const PORT: u16 = 10_245;

/// Chooses where a machine with this address accepts links: where it did before, as its gateway may still listen there, or else at the
/// usual port, or any.
pub fn choose_link_address(address: IpAddr, before: Option<SocketAddr>) -> io::Result<SocketAddr> {
    if let Some(before) = before.filter(|before| before.ip() == address) {
        return Ok(before);
    }
    let free = TcpListener::bind((address, PORT)).or_else(|_| TcpListener::bind((address, 0)))?;
    free.local_addr()
}

/// The known parts of this machine's end.
#[derive(Default)]
pub struct OwnLinkEnd {
    end: Option<LinkEnd>,
    certificates: Option<LinkCertificates>,
}

impl OwnLinkEnd {
    /// Sets the address of this machine's link end, and publishes it to the gateway.
    pub fn set_end(&mut self, end: Option<&LinkEnd>, publisher: &NetworkPublisher) {
        self.end = end.copied();
        self.publish(publisher);
    }

    /// Sets the certificates, and publishes them to the gateway.
    pub fn set_certificates(&mut self, certificates: LinkCertificates, publisher: &NetworkPublisher) {
        self.certificates = Some(certificates);
        self.publish(publisher);
    }

    fn publish(&self, publisher: &NetworkPublisher) {
        if let Some(identity) = self.identity() {
            publisher.order(PublishCommand::Gateway(GatewayCommand::LinkIdentity(Box::new(identity))));
        }
    }

    fn identity(&self) -> Option<LinkIdentity> {
        let (end, certificates) = (self.end?, self.certificates.as_ref()?);
        Some(LinkIdentity {
            address: end.address,
            pods: end.pods,
            client_certificate: (&*certificates.client.certificate).into(),
            client_key: (&*certificates.client.key).into(),
            server_certificate: (&*certificates.server.certificate).into(),
            server_key: (&*certificates.server.key).into(),
            authority: (&*certificates.authority).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::https::trust::TlsClientKey;

    #[test]
    fn identity_is_complete_with_place_and_certificates() {
        let key = TlsClientKey { certificate: "C".into(), key: "K".into() };
        let certificates = LinkCertificates { client: key.clone(), server: key, authority: "A".into() };
        let mut own = OwnLinkEnd { end: None, certificates: Some(certificates) };
        assert_eq!(own.identity(), None);
        own.end = Some(LinkEnd { address: "10.0.0.1:1".parse().unwrap(), pods: "127.7.0.0/18".parse().unwrap() });
        let identity = own.identity().unwrap();
        assert_eq!((&*identity.client_key, &*identity.authority), ("K", "A"));
        assert!(!format!("{identity:?}").contains('K'), "keys are not printed");
        own.certificates = None;
        assert_eq!(own.identity(), None);
    }
}
