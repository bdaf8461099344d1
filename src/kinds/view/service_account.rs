//! ServiceAccounts.

use super::body::BodyRead;
use super::{Describe, KindView, RelatedObjects, events, generic};
use crate::object::Object;

/// The view of service accounts.
pub static VIEW: KindView = KindView { describe, ..generic::VIEW };

fn describe(account: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    out.name_and_namespace(account);
    out.labels_and_annotations(account);
    out.values(0, "Image pull secrets", account.0.list("imagePullSecrets").iter().map(|secret| secret.text("name")));
    events::write_events(account, related, out);
}
