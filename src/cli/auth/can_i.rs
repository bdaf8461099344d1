//! `kloop auth can-i`: checks whether the RBAC rules allow the user an action, or lists the allowed actions.
//!
//! Never: decides itself; the authorization of the API server does. Start reading at [`run`].

use super::server_reviews;
use crate::apiserver::authorization::{AccessRequest, AccessTarget, AccessedResource, authorize, find_grants};
use crate::cli::command_line::access_verbs::{PATH_VERBS, RESOURCE_VERBS};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::join_errors;
use crate::show::columns;
use crate::world::access::rule::AccessRule;

const NO_ARGUMENTS: &str = "you must specify two arguments: verb resource or verb resource/resourceName.\n\
                            See 'kloop auth can-i -h' for help and examples.";

/// Check whether an action is allowed.
///
/// VERB is a verb of the API like 'get', 'list', 'watch', 'delete'. TYPE is a resource; shortcuts and groups are resolved.
/// NONRESOURCEURL is a partial URL that starts with "/". NAME is the name of a particular object. Commands act as the
/// administrator, who may do everything; --as asks for another user.
#[derive(clap::Args)]
#[command(
    override_usage = "VERB [TYPE | TYPE/NAME | NONRESOURCEURL]",
    after_help = "\
# Check to see if user bob can create pods in the current namespace
kloop auth can-i create pods --as=bob

# Check to see if a service account can list deployments in all namespaces
kloop auth can-i list deployments.apps -A --as=system:serviceaccount:dev:foo

# List all that user bob may do in namespace \"foo\"
kloop auth can-i --list --as=bob --namespace=foo"
)]
pub struct Args {
    /// The verb and the resource or path.
    #[arg(value_name = "VERB TYPE")]
    words: Vec<String>,
    /// If true, prints all allowed actions.
    #[arg(long)]
    list: bool,
    /// If true, prints allowed actions without headers.
    #[arg(long)]
    no_headers: bool,
    /// If true, suppress output and just return the exit code.
    #[arg(short, long)]
    quiet: bool,
    /// If true, check the specified action in all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Subresource such as pod/log or deployment/scale.
    #[arg(long, value_name = "SUBRESOURCE", default_value = "")]
    subresource: String,
}

/// Answers the question; "no" is exit code 1.
pub fn run(args: &Args, context: &mut CommandContext) -> CliResult {
    if args.list {
        return match args.words.is_empty() {
            true => list(args, context),
            false => Err(Failure::plain("list option must be specified with no arguments")),
        };
    }
    let [verb, target] = &args.words[..] else { return Err(Failure::plain(NO_ARGUMENTS)) };
    let request = match target.starts_with('/') {
        true if !args.subresource.is_empty() => {
            return Err(Failure::plain("--subresource can not be used with NonResourceURL"));
        }
        true => path_request(args, context, verb, target),
        false => resource_request(args, context, verb, target),
    };
    let user = context.user();
    let decision = match server_reviews::ask_decision(context, &request)? {
        Some(decision) => decision,
        None => context.read_view(|txn| authorize(txn, &user, &request))?,
    };
    if !args.quiet {
        let line = match (decision.is_allowed, decision.reason.as_str()) {
            (true, _) => "yes".to_owned(),
            (false, "") => "no".to_owned(),
            (false, reason) => format!("no - {reason}"),
        };
        context.print_line(&line)?;
    }
    if decision.is_allowed { Ok(()) } else { Err(Failure::Code(1)) }
}

fn path_request(args: &Args, context: &mut CommandContext, verb: &str, path: &str) -> AccessRequest {
    warn_about_verb(args, context, &PATH_VERBS, verb);
    AccessRequest { verb: verb.to_owned(), target: AccessTarget::Path(path.to_owned()) }
}

fn resource_request(args: &Args, context: &mut CommandContext, verb: &str, target: &str) -> AccessRequest {
    warn_about_verb(args, context, &RESOURCE_VERBS, verb);
    let (word, name) = target.split_once('/').unwrap_or((target, ""));
    let kind = context.kinds().by_name(word);
    let mut accessed = AccessedResource {
        resource: word.to_ascii_lowercase(),
        subresource: args.subresource.clone(),
        name: name.to_owned(),
        ..AccessedResource::default()
    };
    if !args.all_namespaces {
        accessed.namespace = context.namespace().to_owned();
    }
    match kind {
        Some(kind) => {
            accessed.group = kind.resource.group().to_owned();
            accessed.resource = kind.resource.plural().to_owned();
            if !kind.namespaced && !args.all_namespaces {
                let group = match kind.resource.group() {
                    "" => String::new(),
                    group => format!(" in group '{group}'"),
                };
                let plural = kind.resource.plural();
                print_unless_quiet(
                    args,
                    context,
                    &format!("Warning: resource '{plural}' is not namespace scoped{group}\n"),
                );
            }
        }
        None if word == "*" => {}
        None => {
            let (word, group) = match word.split_once('.') {
                Some((word, group)) => (word, format!(" in group '{group}'")),
                None => (word, String::new()),
            };
            let text = format!("Warning: the server doesn't have a resource type '{word}'{group}\n");
            print_unless_quiet(args, context, &text);
        }
    }
    AccessRequest::for_resource(verb, accessed)
}

fn warn_about_verb(args: &Args, context: &mut CommandContext, known: &[&str], verb: &str) {
    if !known.contains(&verb) {
        print_unless_quiet(args, context, &format!("Warning: verb '{verb}' is not a known verb\n"));
    }
}

fn print_unless_quiet(args: &Args, context: &mut CommandContext, text: &str) {
    if !args.quiet {
        context.print_notice(text);
    }
}

/// Lists the user's allowed actions in the namespace.
fn list(args: &Args, context: &mut CommandContext) -> CliResult {
    let (user, namespace) = (context.user(), context.namespace().to_owned());
    let (rules, missing) = match server_reviews::ask_rules(context, &namespace)? {
        Some(answer) => answer,
        None => {
            let grants = context.read_view(|txn| find_grants(txn, &user, &namespace))?;
            (grants.rules().cloned().collect(), join_errors(&grants.errors))
        }
    };
    if !missing.is_empty() {
        context.print_notice(&format!("warning: the list may be incomplete: {missing}"));
    }
    let (paths, resources): (Vec<AccessRule>, Vec<AccessRule>) =
        AccessRule::split_all(rules.iter()).into_iter().partition(|rule| !rule.paths.is_empty());
    let mut rules = AccessRule::compact(resources);
    rules.extend(paths);
    rules.sort_by_cached_key(sort_key);
    let head = if args.no_headers { "" } else { "Resources\tNon-Resource URLs\tResource Names\tVerbs\n" };
    let text: String = rules.iter().map(format_line).collect();
    context.print(&columns::align(&format!("{head}{text}"), columns::TABLE))
}

/// Formats a list as Go does: `[get list]`.
fn format_list(list: &[String]) -> String {
    format!("[{}]", list.join(" "))
}

/// Returns the text by which kubectl orders the list: the rule as Go formats it.
fn sort_key(rule: &AccessRule) -> String {
    let fields = [&rule.verbs, &rule.api_groups, &rule.resources, &rule.resource_names, &rule.paths];
    fields.map(|list| format_list(list)).join(",")
}

fn format_line(rule: &AccessRule) -> String {
    let group = rule.api_groups.first().map_or("", String::as_str);
    let resource = rule.resources.first().map_or("", String::as_str);
    let (resource, below) =
        resource.split_once('/').map_or((resource, String::new()), |(resource, below)| (resource, format!("/{below}")));
    let dot = if group.is_empty() { "" } else { "." };
    let (paths, names) = (format_list(&rule.paths), format_list(&rule.resource_names));
    format!("{resource}{dot}{group}{below}\t{paths}\t{names}\t{}\n", format_list(&rule.verbs))
}
