//! Hands the certificates of a joined machine for its links to the control loop, once the thread that obtains them has them.
//!
//! Never: obtains one. Start reading at [`LinkCertificateFeed`].

use super::control_loop::WakeUp;
use crate::runtime::machine::LinkCertificates;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The certificates, and the control loop that waits for them. Either may come first.
#[derive(Clone, Default)]
pub struct LinkCertificateFeed(Arc<Mutex<FeedState>>);

#[derive(Default)]
struct FeedState {
    certificates: Option<LinkCertificates>,
    subscriber: Option<Sender<WakeUp>>,
}

impl LinkCertificateFeed {
    /// Provides certificates, in place of earlier ones.
    pub fn provide(&self, certificates: LinkCertificates) {
        let mut state = self.lock();
        state.certificates = Some(certificates);
        state.send();
    }

    /// Sends the certificates to this control loop from now on, in place of an earlier one.
    pub(super) fn subscribe(&self, subscriber: Sender<WakeUp>) {
        let mut state = self.lock();
        state.subscriber = Some(subscriber);
        state.send();
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FeedState {
    fn send(&self) {
        if let (Some(certificates), Some(subscriber)) = (&self.certificates, &self.subscriber) {
            // A control loop that has ended needs none.
            let _ = subscriber.send(WakeUp::LinkCertificates(Box::new(certificates.clone())));
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
        feed.subscribe(sender);
        assert!(inbox.try_recv().is_err());
        feed.provide(certificates("first"));
        let (sender, later) = channel();
        feed.subscribe(sender);
        feed.provide(certificates("second"));
        let authorities = |inbox: std::sync::mpsc::Receiver<WakeUp>| {
            let names = inbox.try_iter().map(|wake_up| match wake_up {
                WakeUp::LinkCertificates(certificates) => certificates.authority.to_string(),
                _ => String::new(),
            });
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            (authorities(inbox), authorities(later)),
            (vec!["first".into()], vec!["first".into(), "second".into()])
        );
    }
}
