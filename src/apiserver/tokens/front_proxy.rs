//! The identity of this server towards extension API servers: an authority of its own, whose only client is this server.
//!
//! Knows: extension servers learn the authority from the ConfigMap `extension-apiserver-authentication`, and accept the headers
//! `X-Remote-*`, which name the user, from its client alone. Never: signs a certificate for another client. Start reading at
//! [`FrontProxy`].

use super::keys::{authority_params, internal};
use super::stored_secret::load_or_make;
use crate::apiserver::ApiResult;
use crate::object::Time;
use crate::runtime::certificate_authority::{CertificateAuthority, ClientCertificate};
use crate::store::Store;
use crate::store::meta_keys::{FRONT_PROXY_AUTHORITY, FRONT_PROXY_AUTHORITY_KEY};
use rcgen::KeyPair;

/// The name of the client.
pub const CLIENT: &str = "front-proxy-client";

/// The authority.
pub struct FrontProxy {
    /// Its certificate, PEM.
    pub authority: String,
    key: String,
}

impl FrontProxy {
    /// Reads the authority of a cluster; makes it when there is none yet.
    pub(in crate::apiserver) fn load(store: &mut Store) -> ApiResult<FrontProxy> {
        let make = || FrontProxy::generate().map_err(|error| internal(&error));
        let [authority, key] = load_or_make(store, [FRONT_PROXY_AUTHORITY, FRONT_PROXY_AUTHORITY_KEY], make)?;
        Ok(FrontProxy { authority, key })
    }

    fn generate() -> anyhow::Result<[String; 2]> {
        let key = KeyPair::generate()?;
        let certificate = authority_params("front-proxy-ca")?.self_signed(&key)?;
        Ok([certificate.pem(), key.serialize_pem()])
    }

    /// Issues a client certificate that is valid for this number of seconds.
    pub fn issue_client(&self, seconds: i64, now: Time) -> ApiResult<ClientCertificate> {
        let authority = CertificateAuthority::from_pem(&self.authority, &self.key);
        authority.and_then(|authority| authority.issue(CLIENT, &[], seconds, now)).map_err(|error| internal(&error))
    }
}
