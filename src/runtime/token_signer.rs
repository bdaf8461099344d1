//! Signs the tokens of service accounts and verifies them: JSON Web Tokens with ES256.
//!
//! Knows: the key, which the cluster's state keeps. Never: decides what a token claims or who may have one.

use crate::object::{IgnorePoison, Time};
use crate::world::ClaimSigner;
use crate::world::volume::{Volume, VolumeContent, VolumeFile};
use anyhow::{Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Start of a P-256 public key in the form of X.509, before the point.
const SPKI_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Maximum number of signed contents that are remembered.
const MAX_REMEMBERED_TOKENS: usize = 4096;

/// A key for tokens.
pub struct TokenSigner {
    header: Header,
    signing: EncodingKey,
    verifying: DecodingKey,
    /// The public key: a byte, and two coordinates of 32 bytes.
    point: Vec<u8>,
    /// The claims of tokens whose signature was good, by the digest of the token.
    verified: Mutex<HashMap<[u8; 32], Arc<Value>>>,
}

/// Reasons to refuse a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The text is not a token that this key has signed.
    Invalid,
    /// The token has expired.
    Expired,
    /// The token is not valid yet.
    Early,
}

/// Returns a new key, in the form PKCS #8.
pub fn generate_key() -> Result<Vec<u8>> {
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    Ok(key.map_err(|_| anyhow!("no randomness for a key"))?.as_ref().to_vec())
}

impl TokenSigner {
    /// Makes a signer of a key in the form PKCS #8.
    pub fn from_key(key: &[u8]) -> Result<TokenSigner> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &SystemRandom::new());
        let point =
            pair.map_err(|error| anyhow!("the key of tokens is damaged: {error}"))?.public_key().as_ref().to_vec();
        let id = digest(&SHA256, &[&SPKI_HEAD[..], &point].concat());
        let header = Header { kid: Some(URL_SAFE_NO_PAD.encode(id)), typ: None, ..Header::new(Algorithm::ES256) };
        let (signing, verifying) = (EncodingKey::from_ec_der(key), DecodingKey::from_ec_der(&point));
        Ok(TokenSigner { header, signing, verifying, point, verified: Mutex::default() })
    }

    /// Returns the signed token with these claims, and caches it: its first check does not verify the signature.
    pub fn sign(&self, claims: &Value) -> Result<String> {
        let token = encode(&self.header, claims, &self.signing)?;
        if let Some(hash) = hash_token(&token) {
            self.remember(hash, Arc::new(claims.clone()));
        }
        Ok(token)
    }

    fn remember(&self, hash: [u8; 32], claims: Arc<Value>) {
        let mut verified = self.verified.lock().ignore_poison();
        if verified.len() >= MAX_REMEMBERED_TOKENS {
            verified.clear();
        }
        verified.insert(hash, claims);
    }

    /// Returns the claims of a valid token of this key. A valid signature is cached; the token's times are checked at each call.
    pub fn verify(&self, token: &str) -> std::result::Result<Arc<Value>, TokenError> {
        let hash = hash_token(token).ok_or(TokenError::Invalid)?;
        let known = self.verified.lock().ignore_poison().get(&hash).cloned();
        let claims = match known {
            Some(claims) => claims,
            None => Arc::new(self.check_signature(token)?),
        };
        let moment = |name: &str| claims[name].as_f64();
        let now = Time::now().as_second() as f64;
        if moment("exp").is_some_and(|end| end < now) {
            return Err(TokenError::Expired);
        }
        if moment("nbf").is_some_and(|begin| begin > now) {
            return Err(TokenError::Early);
        }
        self.remember(hash, claims.clone());
        Ok(claims)
    }

    fn check_signature(&self, token: &str) -> std::result::Result<Value, TokenError> {
        let mut validation = Validation::new(Algorithm::ES256);
        // Times are checked for remembered tokens, too; audiences are compared by the caller.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        decode::<Value>(token, &self.verifying, &validation).map(|token| token.claims).map_err(|_| TokenError::Invalid)
    }

    /// Returns the public key as a JSON Web Key Set.
    pub fn key_set(&self) -> Value {
        let (x, y) = self.point[1..].split_at(32);
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.header.kid, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }]})
    }
}

fn hash_token(token: &str) -> Option<[u8; 32]> {
    <[u8; 32]>::try_from(digest(&SHA256, token.as_bytes()).as_ref()).ok()
}

/// Returns the token with these claims; `None` when there is none at the moment.
pub type TokenSource = Arc<dyn Fn(&Value) -> Option<String> + Send + Sync>;

/// Returns the source of the tokens that a cluster signs itself.
pub fn token_source(signer: Arc<TokenSigner>) -> TokenSource {
    Arc::new(move |claims| signer.sign(claims).ok())
}

/// Returns the signer of tokens in Secrets. It remembers the tokens that it has given.
pub fn claim_signer(signer: Arc<TokenSigner>) -> ClaimSigner {
    let known: Mutex<HashMap<String, String>> = Mutex::default();
    ClaimSigner::new(move |claims| {
        let mut known = known.lock().ignore_poison();
        let text = claims.to_string();
        if let Some(token) = known.get(&text) {
            return Some(token.clone());
        }
        let token = signer.sign(claims).ok()?;
        if known.len() >= MAX_REMEMBERED_TOKENS {
            known.clear();
        }
        known.insert(text, token.clone());
        Some(token)
    })
}

/// Signs the tokens in the volumes of pods. Equal claims get the same token again, so that a pod's files stay as they are.
#[derive(Default)]
pub struct VolumeSigner {
    source: Option<TokenSource>,
    signed: HashMap<Arc<[u8]>, Arc<[u8]>>,
}

impl VolumeSigner {
    /// Takes tokens from this source.
    pub fn new(source: TokenSource) -> VolumeSigner {
        VolumeSigner { source: Some(source), signed: HashMap::new() }
    }

    /// Returns the volumes with signed tokens in place of claims; `None` where none has any.
    pub fn sign_volumes(&mut self, volumes: &[Volume]) -> Option<Arc<[Volume]>> {
        let has_token = |volume: &Volume| match &volume.source {
            VolumeContent::Files(files) => files.iter().any(|file| file.is_claims),
            _ => false,
        };
        if !volumes.iter().any(has_token) {
            return None;
        }
        let mut signed = volumes.to_vec();
        for volume in &mut signed {
            if let VolumeContent::Files(files) = &mut volume.source {
                files.iter_mut().filter(|file| file.is_claims).for_each(|file| self.sign_file(file));
            }
        }
        Some(signed.into())
    }

    fn sign_file(&mut self, file: &mut VolumeFile) {
        file.is_claims = false;
        if let Some(known) = self.signed.get(&file.content) {
            file.content = known.clone();
            return;
        }
        let claims = serde_json::from_slice(&file.content).unwrap_or_default();
        let Some(token) = self.source.as_ref().and_then(|source| source(&claims)) else {
            // The next read fetches it again.
            file.content = Arc::from([]);
            return;
        };
        let token: Arc<[u8]> = token.into_bytes().into();
        if self.signed.len() >= MAX_REMEMBERED_TOKENS {
            self.signed.clear();
        }
        let claims = std::mem::replace(&mut file.content, token.clone());
        self.signed.insert(claims, token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_tokens_of_the_key_are_accepted_in_their_time() {
        let (key, other) = (generate_key().unwrap(), generate_key().unwrap());
        let (signer, other) = (TokenSigner::from_key(&key).unwrap(), TokenSigner::from_key(&other).unwrap());
        let now = Time::now().as_second();
        let token =
            |from: i64, until: i64| signer.sign(&json!({"sub": "a", "nbf": now + from, "exp": now + until})).unwrap();
        let good = token(0, 100);
        assert_eq!(signer.verify(&good).unwrap()["sub"], "a");
        assert_eq!(other.verify(&good), Err(TokenError::Invalid));
        assert_eq!(signer.verify(&token(-100, -1)), Err(TokenError::Expired));
        assert_eq!(signer.verify(&token(50, 100)), Err(TokenError::Early));
        let mut parts: Vec<&str> = good.split('.').collect();
        let forged = URL_SAFE_NO_PAD.encode(json!({"sub": "b", "exp": now + 100}).to_string());
        parts[1] = &forged;
        let unsigned = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
        let none = format!("{unsigned}.{}.", parts[1]);
        assert_eq!(signer.verify(&good).unwrap()["sub"], "a", "a remembered token");
        for text in [&parts.join("."), &none, "", "a", "a.b.c", "...", &"x".repeat(100_000)] {
            assert_eq!(signer.verify(text), Err(TokenError::Invalid), "{text}");
        }
    }

    #[test]
    fn signed_token_is_remembered_with_the_claims_that_it_contains() {
        let key = generate_key().unwrap();
        let (signer, other) = (TokenSigner::from_key(&key).unwrap(), TokenSigner::from_key(&key).unwrap());
        let token = signer.sign(&json!({"sub": "a", "aud": ["b"], "kubernetes.io": {"n": 1}})).unwrap();
        assert_eq!(signer.verified.lock().unwrap().len(), 1);
        assert_eq!(signer.verify(&token), other.verify(&token));
    }

    #[test]
    fn equal_claims_in_volumes_get_the_same_token() {
        let signer = TokenSigner::from_key(&generate_key().unwrap()).unwrap();
        let mut signer = VolumeSigner::new(token_source(signer.into()));
        let volumes = |claims: &str| {
            let file = VolumeFile { is_claims: true, ..VolumeFile::new("token", 0o644, claims.as_bytes()) };
            [Volume { name: "v".into(), source: VolumeContent::Files(vec![file]) }]
        };
        let first = signer.sign_volumes(&volumes("{\"exp\":1}")).unwrap();
        assert_eq!(signer.sign_volumes(&volumes("{\"exp\":1}")).unwrap(), first);
        assert_ne!(signer.sign_volumes(&volumes("{\"exp\":2}")).unwrap(), first);
        assert!(signer.sign_volumes(&first).is_none());
    }
}
