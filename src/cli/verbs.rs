//! The verbs: one line each, under their heading on the help page.
//!
//! A line contains the verb's name, its arguments and its function. Start reading at the table at
//! the end; clap parses the command line into [`Verb`].

use super::*;
use clap::{Args, Subcommand};

/// Generates the grammar, the dispatch and the help page's groups from one table.
macro_rules! verbs {
    ($($title:literal { $($word:literal $name:ident($args:ty) => $run:expr,)* })*) => {
        /// A parsed command.
        #[derive(Subcommand)]
        pub enum Verb {
            $($(#[command(name = $word)] $name($args),)*)*
        }

        /// Adds the verbs for which the function returns true. Adding all takes longer than most commands.
        pub fn add_verbs(mut root: Command, is_wanted: impl Fn(&str) -> bool) -> Command {
            $($(if is_wanted($word) {
                root = root.subcommand(<$args>::augment_args(Command::new($word)));
            })*)*
            root.subcommand_required(true).arg_required_else_help(true)
        }

        impl Verb {
            /// Runs the command.
            pub fn run(self, context: &mut CommandContext) -> CliResult {
                match self {
                    $($(Verb::$name(args) => ($run)(args, context),)*)*
                }
            }
        }

        /// The headings of the help page with their verbs, in kubectl's words and order.
        pub const GROUPS: help::VerbGroups = &[$(($title, &[$($word),*])),*];
    };
}

/// Whether a word is a verb.
pub fn is_verb(word: &str) -> bool {
    GROUPS.iter().any(|(_, verbs)| verbs.contains(&word))
}

type Context<'a> = &'a mut CommandContext;

verbs! {
    "Control Plane Commands" {
        "up" Up(up::Args) => up::run,
        "down" Down(down::Args) => down::run,
        "ps" Ps(ps::Args) => ps::run,
        "dash" Dash(dash::Args) => dash::run,
        "reconcile" Reconcile(reconcile::Args) => reconcile::run,
        "why" Why(why::Args) => why::run,
        "plan" Plan(plan::Args) => plan::run,
        "serve" Serve(serve::Args) => serve::run,
        "kubeconfig" Kubeconfig(kubeconfig::Args) => kubeconfig::run,
    }
    "Basic Commands (Beginner)" {
        "create" Create(create::Args) => create::run,
        "expose" Expose(expose::Args) => expose::run,
        "run" Run(run::Args) => run::run,
        "set" Set(set::Args) => set::run,
    }
    "Basic Commands (Intermediate)" {
        "explain" Explain(explain::Args) => explain::run,
        "get" Get(get::Args) => get::run,
        "edit" Edit(edit::Args) => edit::run,
        "delete" Delete(delete::Args) => delete::run,
    }
    "Deploy Commands" {
        "rollout" Rollout(rollout::Args) => rollout::run,
        "scale" Scale(scale::Args) => scale::run,
        "import" Import(import::Args) => import::run,
        "autoscale" Autoscale(autoscale::Args) => autoscale::run,
    }
    "Cluster Management Commands" {
        "auth" Auth(auth::Args) => auth::run,
        "certificate" Certificate(certificate::Args) => certificate::run,
        "cluster-info" ClusterInfo(cluster_info::Args) => cluster_info::run,
        "top" Top(top::Args) => top::run,
        "dns" Dns(dns::Args) => dns::run,
        "cordon" Cordon(node::cordon::CordonArgs) => node::cordon::cordon,
        "uncordon" Uncordon(node::cordon::UncordonArgs) => node::cordon::uncordon,
        "drain" Drain(node::drain::Args) => node::drain::run,
        "taint" Taint(node::taint::Args) => node::taint::run,
        "node" Node(node::Args) => node::run,
        "image" Image(image::Args) => image::run,
        "backup" Backup(backup::Args) => backup::run,
        "state" State(state::Args) => state::run,
    }
    "Troubleshooting and Debugging Commands" {
        "describe" Describe(describe::Args) => describe::run,
        "logs" Logs(logs::Args) => logs::run,
        "attach" Attach(attach::Args) => attach::run,
        "exec" Exec(exec::Args) => exec::run,
        "port-forward" PortForward(port_forward::Args) => port_forward::run,
        "proxy" Proxy(proxy::Args) => proxy::run,
        "cp" Cp(cp::Args) => cp::run,
        "debug" Debug(Box<debug::Args>) => |args: Box<debug::Args>, context: Context| debug::run(*args, context),
        "events" Events(events::Args) => events::run,
        "history" History(history::Args) => history::run,
        "undo" Undo(undo::Args) => undo::run,
        "url" Url(address::Args) => address::run,
        "open" Open(address::OpenArgs) => address::open,
    }
    "Advanced Commands" {
        "diff" Diff(diff::Args) => diff::run,
        "apply" Apply(apply::Args) => apply::run,
        "patch" Patch(patch::Args) => patch::run,
        "replace" Replace(replace::Args) => replace::run,
        "wait" Wait(wait::Args) => wait::run,
        "kustomize" Kustomize(kustomize::Args) => kustomize::run,
    }
    "Settings Commands" {
        "label" Label(mark::label::Args) => mark::label::run,
        "annotate" Annotate(mark::annotate::Args) => mark::annotate::run,
        "completion" Completion(completion::Args) => completion::run,
    }
    "Other Commands" {
        "api-resources" ApiResources(api_resources::Args) => api_resources::run,
        "api-versions" ApiVersions(api_versions::Args) => api_versions::run,
        "config" Config(config::Args) => config::run,
        "kuberc" Kuberc(kuberc::Args) => kuberc::run,
        "plugin" Plugin(plugin::Args) => |args: plugin::Args, context: Context| plugin::run(args, GROUPS, context),
        "version" Version(version::Args) => version::run,
        "tour" Tour(tour::Args) => tour::run,
        "help" Help(help::Args) => |args: help::Args, context: Context| help::run(args, GROUPS, context),
        "options" Options(help::OptionsArgs) => help::print_options,
    }
}
