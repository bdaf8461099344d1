//! The token with which a client asks for the next part of a list.
//!
//! Knows: its text, which is that of Kubernetes. Never: reads a list.

use super::ServeResult;
use crate::go::json_syntax;
use crate::object::{Reason, Status};
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use serde_json::{Value, json};

/// As in Go, unused bits of the last letter are ignored.
const CODE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// Position in a list, which clients return unchanged.
#[derive(Clone)]
pub struct ContinueToken {
    /// `None` for the current state, even if earlier pages showed another revision.
    pub revision: Option<u64>,
    /// The namespace of the last object before it.
    pub namespace: String,
    /// The name of that object.
    pub name: String,
}

impl ContinueToken {
    /// Makes the token for the objects after this one, at a revision.
    pub fn following(revision: u64, (namespace, name): (&str, &str)) -> ContinueToken {
        ContinueToken { revision: Some(revision), namespace: namespace.into(), name: name.into() }
    }

    /// Reads a token of a client.
    pub fn parse(text: &str) -> ServeResult<ContinueToken> {
        let refuse = |why: String| {
            Status::new(Reason::BadRequest, format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = CODE.decode(text).map_err(|error| refuse(error.to_string()))?;
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|error| refuse(json_syntax::find_error(&bytes).unwrap_or_else(|| error.to_string())))?;
        let start = value["start"].as_str().and_then(|start| start.split_once('/'));
        match (value["rv"].as_i64(), start) {
            (Some(revision), Some((namespace, name))) if revision >= PRESENT => {
                let revision = u64::try_from(revision).ok();
                Ok(ContinueToken { revision, namespace: namespace.into(), name: name.into() })
            }
            _ => Err(refuse("it is not one of this server's".into())),
        }
    }
}

/// The revision in a token that means the current state.
const PRESENT: i64 = -1;

impl std::fmt::Display for ContinueToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = format!("{}/{}", self.namespace, self.name);
        let revision = self.revision.and_then(|revision| i64::try_from(revision).ok()).unwrap_or(PRESENT);
        f.write_str(&CODE.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string()))
    }
}
