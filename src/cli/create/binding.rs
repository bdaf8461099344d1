//! `kloop create rolebinding` and `clusterrolebinding`.

use super::generate::GeneratorFlags;
use crate::cli::set::subject::BindingSubjects;
use crate::cli::{CliResult, CommandContext, Failure};
use serde_json::json;

/// Flags of both generators.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    generate: GeneratorFlags,
    /// ClusterRole this binding should reference.
    #[arg(long, default_value = "", value_name = "NAME")]
    clusterrole: String,
    /// Role this binding should reference (role bindings only).
    #[arg(long, default_value = "", value_name = "NAME")]
    role: String,
    #[command(flatten)]
    subjects: BindingSubjects,
}

/// Runs the verb, for `RoleBinding` or `ClusterRoleBinding`.
pub fn run(args: Args, context: &mut CommandContext, kind: &str) -> CliResult {
    let name = args.generate.name(&format!("create {}", kind.to_lowercase()))?;
    let (role_kind, role) = match (args.clusterrole.as_str(), args.role.as_str()) {
        ("", "") | (_, _) if args.clusterrole.is_empty() == args.role.is_empty() => {
            let text = "exactly one of clusterrole or role must be specified";
            return Err(Failure::plain(if kind == "RoleBinding" {
                text
            } else {
                "required flag(s) \"clusterrole\" not set"
            }));
        }
        ("", role) => ("Role", role),
        (role, _) => ("ClusterRole", role),
    };
    let mut body = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
    });
    let subjects = args.subjects.values()?;
    if !subjects.is_empty() {
        body["subjects"] = subjects.into();
    }
    args.generate.create(context, body, Some(&kind.to_lowercase()))
}
