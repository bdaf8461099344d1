//! `kloop create`: creates objects from manifests ([`files`]) or from flags (one generator per
//! file).
//!
//! Knows: the generators ([`Generator`]) and their common part ([`generate`]). Start reading at
//! [`Generator`].

mod binding;
mod configmap;
mod cronjob;
mod deployment;
mod files;
pub mod generate;
mod ingress;
mod job;
mod namespace;
mod pdb;
mod priorityclass;
mod quota;
mod reviews;
mod role;
mod secret;
mod service;
mod serviceaccount;
mod token;

use super::{CliResult, CommandContext};
use clap::Subcommand;

/// Create a resource from a file or from stdin.
///
/// JSON and YAML formats are accepted.
#[derive(clap::Args)]
#[command(
    override_usage = "-f FILENAME",
    after_help = "\
# Create a pod using the data in pod.json
kloop create -f ./pod.json

# Create a pod based on the JSON passed into stdin
cat pod.json | kloop create -f -"
)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    generator: Option<Generator>,
    #[command(flatten)]
    files: files::FromFiles,
}

#[derive(Subcommand)]
enum Generator {
    /// Create a cluster role.
    #[command(
        override_usage = "NAME --verb=verb --resource=resource.group [--resource-name=resourcename] [--dry-run=server|client|none]",
        after_help = "\
# Create a cluster role named \"pod-reader\" that allows user to perform \"get\", \"watch\" and \"list\" on pods
kloop create clusterrole pod-reader --verb=get,list,watch --resource=pods

# Create a cluster role named \"foo\" with NonResourceURL specified
kloop create clusterrole foo --verb=get --non-resource-url=/logs/*"
    )]
    Clusterrole(role::Args),
    /// Create a cluster role binding for a particular cluster role.
    #[command(
        override_usage = "NAME --clusterrole=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
        after_help = "\
# Create a cluster role binding for user1, user2, and group1 using the cluster-admin cluster role
kloop create clusterrolebinding cluster-admin --clusterrole=cluster-admin --user=user1 --user=user2 --group=group1"
    )]
    Clusterrolebinding(binding::Args),
    #[command(visible_alias = "cm")]
    Configmap(configmap::Args),
    #[command(visible_alias = "cj")]
    Cronjob(cronjob::Args),
    #[command(visible_alias = "deploy")]
    Deployment(deployment::Args),
    #[command(visible_alias = "ing")]
    Ingress(ingress::Args),
    Job(job::Args),
    #[command(visible_alias = "ns")]
    Namespace(namespace::Args),
    #[command(visible_alias = "pdb")]
    Poddisruptionbudget(pdb::Args),
    #[command(visible_alias = "pc")]
    Priorityclass(priorityclass::Args),
    #[command(visible_alias = "resourcequota")]
    Quota(quota::Args),
    /// Create a role with single rule.
    #[command(
        override_usage = "NAME --verb=verb --resource=resource.group/subresource [--resource-name=resourcename] [--dry-run=server|client|none]",
        after_help = "\
# Create a role named \"pod-reader\" that allows user to perform \"get\", \"watch\" and \"list\" on pods
kloop create role pod-reader --verb=get --verb=list --verb=watch --resource=pods

# Create a role named \"foo\" with SubResource specified
kloop create role foo --verb=get,list,watch --resource=pods,pods/status"
    )]
    Role(role::Args),
    /// Create a role binding for a particular role or cluster role.
    #[command(
        override_usage = "NAME --clusterrole=NAME|--role=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
        after_help = "\
# Create a role binding for user1, user2, and group1 using the admin cluster role
kloop create rolebinding admin --clusterrole=admin --user=user1 --user=user2 --group=group1

# Create a role binding for service account monitoring:sa-dev using the admin role
kloop create rolebinding admin-binding --role=admin --serviceaccount=monitoring:sa-dev"
    )]
    Rolebinding(binding::Args),
    Secret(secret::Args),
    #[command(visible_alias = "svc")]
    Service(service::Args),
    #[command(visible_alias = "sa")]
    Serviceaccount(serviceaccount::Args),
    Token(token::Args),
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let Some(generator) = args.generator else { return files::run(args.files, context) };
    match generator {
        Generator::Clusterrole(args) => role::run(args, context, "ClusterRole"),
        Generator::Clusterrolebinding(args) => binding::run(args, context, "ClusterRoleBinding"),
        Generator::Configmap(args) => configmap::run(args, context),
        Generator::Cronjob(args) => cronjob::run(args, context),
        Generator::Deployment(args) => deployment::run(args, context),
        Generator::Ingress(args) => ingress::run(args, context),
        Generator::Job(args) => job::run(args, context),
        Generator::Namespace(args) => namespace::run(args, context),
        Generator::Poddisruptionbudget(args) => pdb::run(args, context),
        Generator::Priorityclass(args) => priorityclass::run(args, context),
        Generator::Quota(args) => quota::run(args, context),
        Generator::Role(args) => role::run(args, context, "Role"),
        Generator::Rolebinding(args) => binding::run(args, context, "RoleBinding"),
        Generator::Secret(args) => secret::run(args, context),
        Generator::Service(args) => service::run(args, context),
        Generator::Serviceaccount(args) => serviceaccount::run(args, context),
        Generator::Token(args) => token::run(args, context),
    }
}
