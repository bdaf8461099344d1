//! The questions that a kubelet asks about the clients of its server.
//!
//! Never: answers them; the API server of the node's cluster does.

use super::ApiResult;
use super::user::User;
use std::sync::Arc;

/// Answers of the cluster's API server about the clients of a kubelet. They may wait for the server.
pub trait KubeletClients: Send + Sync {
    /// Returns the user of a token; an error for one that the server does not know.
    fn identify(&self, token: &str) -> ApiResult<Arc<User>>;

    /// Whether a user may use a part of the Node, such as `nodes/proxy`.
    fn may_use(&self, user: &User, verb: &str, part: &str) -> ApiResult<bool>;
}
