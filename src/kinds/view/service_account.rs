//! ServiceAccounts.

use super::body::Body;
use super::{Describe, Related, View, events, generic};
use crate::object::Object;

/// The view of service accounts.
pub static VIEW: View = View { resource: "serviceaccounts", describe, ..generic::VIEW };

fn describe(account: &Object, related: &dyn Related, out: &mut Describe) {
    out.name_and_namespace(account);
    out.labels_and_annotations(account);
    out.values(0, "Image pull secrets", account.0.list("imagePullSecrets").iter().map(|secret| secret.text("name")));
    events::of(account, related, out);
}
