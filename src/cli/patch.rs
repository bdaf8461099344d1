//! `kloop patch`: patches objects.

use super::cluster::change::{change as change_object, patch_scale};
use super::cluster::targets::{self, Scope, ScopeFlags, Target};
use super::command_line::dry_run::DryRun;
use super::command_line::flags::ChangeFlags;
use super::manifests::input;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::patch::{self, PatchType};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::UpdatePart;
use crate::apiserver::{FieldValidation, WriteOptions, WriteReply};
use crate::kinds::{self, Kind};
use crate::object::{Object, Reason, Status, io_error_text, yaml};
use serde_json::Value;

/// Update fields of a resource using strategic merge patch, a JSON merge patch, or a JSON patch.
///
/// JSON and YAML formats are accepted.
#[derive(clap::Args)]
#[command(
    override_usage = "(-f FILENAME | TYPE NAME) [-p PATCH|--patch-file FILE]",
    after_help = "\
# Partially update a node using a strategic merge patch, specifying the patch as JSON
kloop patch node k8s-node-1 -p '{\"spec\":{\"unschedulable\":true}}'

# Partially update a node using a strategic merge patch, specifying the patch as YAML
kloop patch node k8s-node-1 -p 'spec: {unschedulable: true}'

# Update a container's image; spec.containers[*].name is required because it's a merge key
kloop patch pod valid-pod -p '{\"spec\":{\"containers\":[{\"name\":\"kubernetes-serve-hostname\",\"image\":\"new image\"}]}}'

# Update a container's image using a JSON patch with positional arrays
kloop patch pod valid-pod --type='json' -p='[{\"op\": \"replace\", \"path\": \"/spec/containers/0/image\", \"value\":\"new image\"}]'

# Update a deployment's replicas through the 'scale' subresource using a merge patch
kloop patch deployment nginx-deployment --subresource='scale' --type='merge' -p '{\"spec\":{\"replicas\":2}}'"
)]
pub struct Args {
    /// TYPE NAME or TYPE/NAME.
    words: Vec<String>,
    #[command(flatten)]
    scope: ScopeFlags,
    #[command(flatten)]
    change: ChangeFlags,
    /// The patch to be applied to the resource, in JSON or YAML.
    #[arg(short, long, value_name = "PATCH", allow_hyphen_values = true)]
    patch: Option<String>,
    /// A file containing a patch to be applied to the resource.
    #[arg(long, value_name = "PATH")]
    patch_file: Option<String>,
    /// The type of patch being provided; one of [json merge strategic].
    #[arg(long = "type", default_value = "strategic", value_name = "TYPE")]
    language: String,
    /// If specified, patch will operate on the subresource of the requested object: status, scale or resize.
    #[arg(long, default_value = "", value_name = "NAME")]
    subresource: String,
    /// If true, patch will operate on the content of the file, not the server-side resource.
    #[arg(long)]
    local: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let language = match args.language.to_lowercase().as_str() {
        "strategic" => PatchType::Strategic,
        "merge" => PatchType::Merge,
        "json" => PatchType::Json,
        other => {
            return Err(Failure::plain(format!("--type must be one of [json merge strategic], not {other:?}")));
        }
    };
    let text = text(&args)?;
    let dry_run = args.change.dry_run(context)?;
    if args.local && dry_run == DryRun::Server {
        let text = "cannot specify --local and --dry-run=server - did you mean --dry-run=client?";
        return Err(Failure::plain(text));
    }
    let scope = Scope { local: args.local, ..args.scope.with_arguments(&args.words) };
    targets::for_each_target(context, &scope, |context, target| {
        patch_object(&args, context, target, language, &change(&text, language)?, dry_run)
    })
}

fn text(args: &Args) -> CliResult<String> {
    match (&args.patch, &args.patch_file) {
        (Some(_), Some(_)) => Err(Failure::plain("cannot specify --patch and --patch-file together")),
        (Some(text), None) if !text.is_empty() => Ok(text.clone()),
        (None, Some(path)) => input::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::plain(format!("unable to read patch file: open {path}: no such file or directory"))
            }
            _ => Failure::plain(format!("unable to read patch file: {path}: {error}", error = io_error_text(error))),
        }),
        _ => Err(Failure::plain("must specify --patch or --patch-file containing the contents of the patch")),
    }
}

/// Parses the patch. Text that is neither YAML nor JSON is refused in the API server's words.
fn change(text: &str, language: PatchType) -> CliResult<Value> {
    let bad = |why: String| Failure::from(Status::new(Reason::BadRequest, why));
    match yaml::documents(text) {
        Ok(documents) if documents.len() == 1 => Ok(documents[0].value.clone()),
        Ok(_) => Err(bad("the patch is not one document".into())),
        Err(error) => match serde_json::from_str::<Value>(text) {
            Err(json) if json.is_eof() => Err(bad(patch::decoding_error(language, "unexpected end of JSON input"))),
            _ => Err(bad(format!("unable to parse {text:?}: {error}"))),
        },
    }
}

fn patch_object(
    args: &Args,
    context: &mut CommandContext,
    target: &Target,
    language: PatchType,
    change: &Value,
    dry_run: DryRun,
) -> CliResult {
    let Target { kind, object } = target;
    let is_local = args.local || dry_run == DryRun::Client;
    let is_built_in = kinds::ALL.iter().any(|known| known.resource == kind.resource);
    if is_local && !is_built_in && language == PatchType::Strategic {
        return Err(Failure::plain(format!(
            "strategic merge patch is not supported for {}, Kind={} locally, try --type merge",
            kind.api_version(),
            kind.kind,
        )));
    }
    if kind.custom.is_some() && language == PatchType::Strategic {
        return Err(Failure::plain(format!(
            "application/strategic-merge-patch+json is not supported by {}, Kind={}: {}",
            kind.api_version(),
            kind.kind,
            patch::UNKNOWN_FORMAT,
        )));
    }
    if is_local {
        let patched = Object(patch::patched(kind, object, language, change)?);
        return print_patched(
            args,
            context,
            target,
            WriteReply { changed: patched != *object, object: patched.into(), warnings: Vec::new() },
            dry_run,
        );
    }
    let key = key_of(kind, object);
    let api_version = args.words.first().and_then(|word| targets::requested_version(kind, word)).map(str::to_owned);
    // kubectl reads the object first, and prints the warning of that answer.
    let deprecation = api_version.as_deref().and_then(|version| kind.deprecation(version)).map(str::to_owned);
    context.warn(deprecation.as_slice());
    let options = WriteOptions { api_version, ..context.options(FieldValidation::Warn, dry_run) };
    if args.subresource == "scale" && kind.scale {
        let reply = patch_scale(context, (kind, &key), (language, change), &options)?;
        context.warn(&reply.warnings);
        return print_patched(args, context, target, reply, dry_run);
    }
    let Some(part) = UpdatePart::find(kind, &args.subresource) else {
        let status = Status::unknown_resource();
        return Err(Failure::doing(status, if args.subresource == "scale" { "" } else { &args.subresource }));
    };
    let api = context.api()?;
    let mut reply =
        api.write(options.dry_run, |txn| patch::patch(txn, kind, &key, language, change, part, &options))?;
    context.warn(&reply.warnings);
    if context.change_cause.is_some() && dry_run != DryRun::Server {
        reply = record(context, kind, reply, dry_run)?;
    }
    print_patched(args, context, target, reply, dry_run)
}

/// Records the command in the patched object.
fn record(
    context: &mut CommandContext,
    kind: &'static Kind,
    reply: WriteReply,
    dry_run: DryRun,
) -> CliResult<WriteReply> {
    let patched = Target { kind, object: reply.object.as_ref().clone() };
    let recorded = change_object(context, &patched, dry_run, |_| Ok(()))?;
    Ok(WriteReply { changed: reply.changed || recorded.changed, ..recorded })
}

fn print_patched(
    args: &Args,
    context: &mut CommandContext,
    target: &Target,
    reply: WriteReply,
    dry_run: DryRun,
) -> CliResult {
    let name = match args.subresource.as_str() {
        "scale" => format!("scale.autoscaling/{}", reply.object.name()),
        _ => context.name_of(target.kind, &reply.object),
    };
    let unchanged = if reply.changed { "" } else { " (no change)" };
    // kubectl prints no suffix for a server-side dry run here.
    let suffix = if dry_run == DryRun::Server { "" } else { dry_run.suffix() };
    args.change.print.result(context, &reply.object, &format!("{name} patched{unchanged}{suffix}"))
}
