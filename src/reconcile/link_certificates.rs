//! Hands the certificates of a joined machine for its links to the control loop, once the thread that obtains them has them.
//!
//! Never: obtains one. Start reading at [`LinkCertificateFeed`].

use crate::object::IgnorePoison;
use crate::runtime::https::trust::LinkCertificates;
use std::sync::{Arc, Mutex, MutexGuard};

/// Receives the certificates.
type CertificateSink = Box<dyn Fn(LinkCertificates) + Send>;

/// The certificates, and the control loop that waits for them. Either may exist first.
#[derive(Clone, Default)]
pub struct LinkCertificateFeed(Arc<Mutex<FeedState>>);

#[derive(Default)]
struct FeedState {
    certificates: Option<LinkCertificates>,
    subscriber: Option<CertificateSink>,
}

impl LinkCertificateFeed {
    /// Provides certificates, in place of earlier ones.
    pub fn provide(&self, certificates: LinkCertificates) {
        let mut state = self.lock();
        state.certificates = Some(certificates);
        state.send();
    }

    /// Gives the certificates to this control loop from now on, in place of an earlier one.
    pub(super) fn subscribe(&self, subscriber: impl Fn(LinkCertificates) + Send + 'static) {
        let mut state = self.lock();
        state.subscriber = Some(Box::new(subscriber));
        state.send();
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.0.lock().ignore_poison()
    }
}

impl FeedState {
    fn send(&self) {
        if let (Some(certificates), Some(subscriber)) = (&self.certificates, &self.subscriber) {
            subscriber(certificates.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::https::trust::TlsClientKey;
    use std::sync::mpsc::channel;

    #[test]
    fn certificates_arrive_whoever_comes_first() {
        let certificates = |authority: &str| LinkCertificates {
            client: TlsClientKey::default(),
            server: TlsClientKey::default(),
            authority: authority.into(),
        };
        let feed = LinkCertificateFeed::default();
        let (sender, inbox) = channel();
        feed.subscribe(move |new| sender.send(new.authority.to_string()).unwrap());
        assert!(inbox.try_recv().is_err());
        feed.provide(certificates("first"));
        let (sender, later) = channel();
        feed.subscribe(move |new| sender.send(new.authority.to_string()).unwrap());
        feed.provide(certificates("second"));
        assert_eq!(inbox.try_iter().collect::<Vec<_>>(), ["first"]);
        assert_eq!(later.try_iter().collect::<Vec<_>>(), ["first", "second"]);
    }
}
