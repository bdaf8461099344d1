//! The keys of a cluster, made at their first use and kept in its state: that of tokens, and the authority of the server's certificates.
//!
//! Knows: every user who can read the cluster's file is its administrator. Never: writes a key into an object.
//! Start reading at [`ClusterKeys::load`].

use super::stored_secret::load_or_make;
use crate::apiserver::ApiResult;
use crate::kinds::node;
use crate::object::{Reason, Status, format_hex};
use crate::runtime::certificate_authority::CertificateAuthority;
use crate::runtime::https::trust::{LinkCertificates, TlsClientKey};
use crate::runtime::token_signer::{self, TokenSigner};
use crate::store::Store;
use crate::store::meta_keys::{ADMIN_TOKEN, AUTHORITY, AUTHORITY_KEY, TOKEN_KEY};
use crate::world::CertificateSigner;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::net::IpAddr;
use std::sync::Arc;

/// The name of the authority.
const AUTHORITY_NAME: &str = "kloop serve";

/// The keys of a cluster.
pub struct ClusterKeys {
    /// Signs tokens.
    pub signer: Arc<TokenSigner>,
    /// The authority's certificate, PEM.
    pub authority: String,
    authority_key: String,
}

impl ClusterKeys {
    /// Reads the keys of a cluster; makes them when it has none yet.
    pub(in crate::apiserver) fn load(store: &mut Store) -> ApiResult<ClusterKeys> {
        let make = || generate().map_err(|error| internal(&error));
        let [authority, authority_key, token_key] = load_or_make(store, [AUTHORITY, AUTHORITY_KEY, TOKEN_KEY], make)?;
        let signer =
            STANDARD.decode(token_key).map_err(anyhow::Error::from).and_then(|key| TokenSigner::from_key(&key));
        Ok(ClusterKeys { signer: Arc::new(signer.map_err(|error| internal(&error))?), authority, authority_key })
    }

    /// Returns the authority that signs certificates of clients.
    pub fn certificate_authority(&self) -> ApiResult<CertificateAuthority> {
        CertificateAuthority::from_pem(&self.authority, &self.authority_key).map_err(|error| internal(&error))
    }

    /// Returns the signer that control loops use.
    pub fn certificate_signer(&self) -> ApiResult<CertificateSigner> {
        let authority = self.certificate_authority()?;
        Ok(CertificateSigner::new(move |order| authority.sign(order).map_err(|error| error.to_string())))
    }

    /// Returns the authority, which signs certificates of servers.
    pub fn issuer(&self) -> ApiResult<Issuer<'static, KeyPair>> {
        let key = KeyPair::from_pem(&self.authority_key).map_err(|error| internal(&error.into()))?;
        Ok(Issuer::new(authority_params(AUTHORITY_NAME).map_err(|error| internal(&error))?, key))
    }
}

impl ClusterKeys {
    /// Makes the certificates of the machine of a node for its links to others: one for both ends, valid for this address.
    pub fn link_certificates(&self, node: &str, address: IpAddr) -> ApiResult<LinkCertificates> {
        let make = || {
            let mut params = CertificateParams::new([address.to_string()])?;
            params.distinguished_name.push(DnType::OrganizationName, node::GROUP);
            params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
            params.use_authority_key_identifier_extension = true;
            let key = KeyPair::generate()?;
            Ok::<_, anyhow::Error>((params, key))
        };
        let (params, key) = make().map_err(|error| internal(&error))?;
        let signed = params.signed_by(&key, &self.issuer()?).map_err(|error| internal(&error.into()))?;
        let own = TlsClientKey { certificate: signed.pem().into(), key: key.serialize_pem().into() };
        Ok(LinkCertificates { client: own.clone(), server: own, authority: self.authority.as_str().into() })
    }
}

/// Returns the administrator's token: 256 random bits, made at the first use.
pub(in crate::apiserver) fn admin_token(store: &mut Store) -> ApiResult<String> {
    let make = || {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)
            .map_err(|error| internal(&anyhow::anyhow!("no randomness for a token: {error}")))?;
        Ok([format_hex(bytes)])
    };
    load_or_make(store, [ADMIN_TOKEN], make).map(|[token]| token)
}

/// Makes an authority, its key, and the key of tokens.
fn generate() -> anyhow::Result<[String; 3]> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(AUTHORITY_NAME)?.self_signed(&key)?;
    Ok([certificate.pem(), key.serialize_pem(), STANDARD.encode(token_signer::generate_key()?)])
}

/// Returns the content of an authority's certificate. Its name and uses are the same for all clusters, its key is not.
pub(super) fn authority_params(name: &str) -> anyhow::Result<CertificateParams> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority.distinguished_name.push(DnType::CommonName, name);
    Ok(authority)
}

pub(super) fn internal(error: &anyhow::Error) -> Status {
    Status::new(Reason::InternalError, format!("the keys of the cluster: {error}"))
}

#[cfg(test)]
mod tests {
    use crate::apiserver::Api;
    use serde_json::json;

    #[test]
    fn keys_are_made_once() {
        let mut api = Api::in_memory("test").unwrap();
        let first = api.keys().unwrap();
        let token = first.signer.sign(&json!({"sub": "a"})).unwrap();
        let again = Api::copy_of(&api.store().read().unwrap(), "test", crate::apiserver::Env::System).unwrap();
        assert_eq!(
            again.read(|snapshot| snapshot.meta(crate::store::meta_keys::AUTHORITY)).unwrap(),
            Some(first.authority.clone())
        );
        let again = super::ClusterKeys::load(api.store_mut()).unwrap();
        assert_eq!(again.signer.verify(&token).unwrap()["sub"], "a");
        assert_eq!(again.authority, first.authority);
        let mut other = Api::in_memory("test").unwrap();
        assert!(other.keys().unwrap().signer.verify(&token).is_err());
    }
}
