//! The identity of this server towards extension API servers: an authority of its own, whose only client is this server.
//!
//! Knows: extension servers learn the authority from the ConfigMap `extension-apiserver-authentication`, and accept the headers
//! `X-Remote-*`, which name the user, from its client alone. Never: signs a certificate for another client. Start reading at
//! [`FrontProxy`].

use super::keys::{authority_params, internal};
use crate::apiserver::{ApiResult, refused};
use crate::object::Time;
use crate::runtime::certificate_authority::{CertificateAuthority, ClientCertificate};
use crate::store::{OVERTAKEN, Store, StoreError, StoreRead};
use rcgen::KeyPair;
use std::time::Duration;

/// The meta entry with the certificate of the authority, PEM.
const AUTHORITY: &str = "front-proxy-authority";
/// The meta entry with its key, PEM.
const AUTHORITY_KEY: &str = "front-proxy-authority-key";
/// The name of the client.
pub const CLIENT: &str = "front-proxy-client";
/// Time that the first use waits for the write lock.
const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// The authority.
pub struct FrontProxy {
    /// Its certificate, PEM.
    pub authority: String,
    key: String,
}

impl FrontProxy {
    /// Reads the authority of a cluster; makes it when there is none yet.
    pub(in crate::apiserver) fn load(store: &mut Store) -> ApiResult<FrontProxy> {
        let wrong = |error: StoreError| refused(&error);
        if let Some(stored) = read_stored(&store.read().map_err(wrong)?).map_err(wrong)? {
            return Ok(stored);
        }
        let mut txn = store.write(WRITE_LOCK_TIMEOUT).map_err(wrong)?;
        if let Some(stored) = read_stored(&txn).map_err(wrong)? {
            return Ok(stored);
        }
        let made = FrontProxy::generate().map_err(|error| internal(&error))?;
        for (name, value) in [(AUTHORITY, &made.authority), (AUTHORITY_KEY, &made.key)] {
            txn.set_meta(name, value).map_err(wrong)?;
        }
        match txn.commit() {
            // The machine that wrote first may have made it.
            Err(OVERTAKEN) => return FrontProxy::load(store),
            committed => committed.map_err(|error| refused(&error.into()))?,
        };
        Ok(made)
    }

    fn generate() -> anyhow::Result<FrontProxy> {
        let key = KeyPair::generate()?;
        let certificate = authority_params("front-proxy-ca")?.self_signed(&key)?;
        Ok(FrontProxy { authority: certificate.pem(), key: key.serialize_pem() })
    }

    /// Issues a client certificate that is valid for this number of seconds.
    pub fn issue_client(&self, seconds: i64, now: Time) -> ApiResult<ClientCertificate> {
        let authority = CertificateAuthority::from_pem(&self.authority, &self.key);
        authority.and_then(|authority| authority.issue(CLIENT, &[], seconds, now)).map_err(|error| internal(&error))
    }
}

fn read_stored(snapshot: &dyn StoreRead) -> Result<Option<FrontProxy>, StoreError> {
    let stored = snapshot.meta(AUTHORITY)?.zip(snapshot.meta(AUTHORITY_KEY)?);
    Ok(stored.map(|(authority, key)| FrontProxy { authority, key }))
}
