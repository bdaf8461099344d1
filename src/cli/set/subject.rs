//! `kloop set subject`: sets the subjects of a role binding.

use super::{ObjectEdit, SetFlags, SetVerbText};
use crate::cli::{CliResult, CommandContext, Failure};
use serde_json::{Value, json};

/// Update the user, group, or service account in a role binding or cluster role binding.
#[derive(clap::Args)]
#[command(
    override_usage = "(-f FILENAME | TYPE NAME) [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    after_help = "\
# Update a cluster role binding for serviceaccount1
kloop set subject clusterrolebinding admin --serviceaccount=namespace:serviceaccount1

# Update a role binding for user1, user2, and group1
kloop set subject rolebinding admin --user=user1 --user=user2 --group=group1"
)]
pub struct Args {
    /// TYPE NAME or TYPE/NAME.
    words: Vec<String>,
    #[command(flatten)]
    setting: SetFlags,
    #[command(flatten)]
    subjects: BindingSubjects,
}

/// Subjects of a binding.
#[derive(clap::Args)]
pub struct BindingSubjects {
    /// Usernames to bind to the role.
    #[arg(long, value_name = "NAME")]
    user: Vec<String>,
    /// Groups to bind to the role.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// Service accounts to bind to the role, in the format NAMESPACE:NAME.
    #[arg(long, value_name = "NAMESPACE:NAME")]
    serviceaccount: Vec<String>,
}

impl BindingSubjects {
    /// Returns the subjects as in a binding.
    pub fn values(&self) -> CliResult<Vec<Value>> {
        let named =
            |kind: &str, name: &String| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let users = self.user.iter().map(|name| named("User", name));
        let mut subjects: Vec<Value> = users.chain(self.group.iter().map(|name| named("Group", name))).collect();
        for account in &self.serviceaccount {
            let parts: Vec<&str> = account.split(':').collect();
            let [namespace, name] = parts[..] else {
                return Err(Failure::plain("serviceaccount must be <namespace>:<name>"));
            };
            subjects.push(json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}));
        }
        Ok(subjects)
    }
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    args.setting.require_resources(&args.words)?;
    let subjects = args.subjects.values()?;
    if subjects.is_empty() {
        return Err(Failure::plain("you must specify at least one value of user, group or serviceaccount"));
    }
    let words = SetVerbText { updated: "subjects", patched: "subjects", prints_unchanged: false };
    args.setting.update(context, &args.words, words, |_, target| {
        let (kind, subjects) = (target.kind, subjects.clone());
        let edit: ObjectEdit = Box::new(move |object| {
            if !["rolebindings", "clusterrolebindings"].contains(&kind.resource.plural()) {
                return Err(Failure::plain(format!(
                    "{}/{} setting subjects is only supported for RoleBinding/ClusterRoleBinding",
                    kind.resource.plural(),
                    object.name()
                )));
            }
            let mut all = object.items(&["subjects"]).to_vec();
            all.extend(subjects.iter().filter(|subject| !object.items(&["subjects"]).contains(subject)).cloned());
            object.set(&["subjects"], all);
            Ok(())
        });
        Ok(edit)
    })
}
