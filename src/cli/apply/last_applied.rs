//! `kloop apply view-last-applied`, `set-last-applied` and `edit-last-applied`: the last-applied-configuration
//! annotation.

use crate::apiserver::Transaction;
use crate::apiserver::patch::{PatchType, patch};
use crate::apiserver::read;
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::UpdatePart;
use crate::cli::cluster::targets::{self, NamedFlags, ScopeFlags};
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::{LineEndingsFlag, PrintFlags, ValidateFlag, WriteFlags};
use crate::cli::edit::edit_text;
use crate::cli::manifests::files::{self, FileFlags};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::go::json::to_json;
use crate::object::LAST_APPLIED;
use crate::object::yaml;
use serde_json::{Value, json};

/// The verbs.
#[derive(clap::Subcommand)]
pub enum LastAppliedVerb {
    #[command(name = "view-last-applied")]
    View(ViewLastAppliedArgs),
    #[command(name = "set-last-applied")]
    Set(SetLastAppliedArgs),
    #[command(name = "edit-last-applied")]
    Edit(EditLastAppliedArgs),
}

/// View the latest last-applied-configuration annotations by type/name or file.
#[derive(clap::Args)]
#[command(
    override_usage = "(TYPE [NAME | -l label] | TYPE/NAME | -f FILENAME)",
    after_help = "\
# View the last-applied-configuration annotations by type/name in YAML
kloop apply view-last-applied deployment/nginx

# View the last-applied-configuration annotations by file in JSON
kloop apply view-last-applied -f deploy.yaml -o json"
)]
pub struct ViewLastAppliedArgs {
    /// TYPE NAME, TYPE/NAME, or TYPE with -l or --all.
    words: Vec<String>,
    #[command(flatten)]
    scope: ScopeFlags,
    /// Output format. Must be one of (yaml, json).
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: String,
}

/// Set the latest last-applied-configuration annotations by the contents of a file, without changing anything else.
#[derive(clap::Args)]
#[command(
    override_usage = "-f FILENAME",
    after_help = "\
# Set the last-applied-configuration of a resource to match the contents of a file
kloop apply set-last-applied -f deploy.yaml

# Set the last-applied-configuration of a resource to match the contents of a file; will create the annotation if it does not already exist
kloop apply set-last-applied -f deploy.yaml --create-annotation=true"
)]
pub struct SetLastAppliedArgs {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    write: WriteFlags,
    #[command(flatten)]
    print: PrintFlags,
    /// Will create 'last-applied-configuration' annotations if current objects doesn't have one.
    #[arg(long)]
    create_annotation: bool,
}

/// Edit the latest last-applied-configuration annotations of resources from the default editor.
///
/// The edit-last-applied command allows you to directly edit any API resource you can retrieve via the command-line tools. It will
/// open the editor defined by your KUBE_EDITOR, or EDITOR environment variables, or fall back to 'vi'. Only the annotation is changed.
#[derive(clap::Args)]
#[command(
    override_usage = "(RESOURCE/NAME | -f FILENAME)",
    after_help = "\
# Edit the last-applied-configuration annotations by type/name in YAML
kloop apply edit-last-applied deployment/nginx

# Edit the last-applied-configuration annotations by file in JSON
kloop apply edit-last-applied -f deploy.yaml -o json"
)]
pub struct EditLastAppliedArgs {
    #[command(flatten)]
    named: NamedFlags,
    #[command(flatten)]
    write: WriteFlags,
    #[command(flatten)]
    print: PrintFlags,
    #[command(flatten)]
    validate: ValidateFlag,
    #[command(flatten)]
    line_endings: LineEndingsFlag,
}

/// Runs one of the verbs.
pub fn run(verb: LastAppliedVerb, context: &mut CommandContext) -> CliResult {
    match verb {
        LastAppliedVerb::View(args) => view(&args, context),
        LastAppliedVerb::Set(args) => set(&args, context),
        LastAppliedVerb::Edit(args) => edit(&args, context),
    }
}

fn view(args: &ViewLastAppliedArgs, context: &mut CommandContext) -> CliResult {
    if !matches!(args.output.as_str(), "yaml" | "json") {
        let text = format!("Unexpected -o output mode: {}, the flag 'output' must be one of yaml|json", args.output);
        return Err(Failure::Usage("apply view-last-applied".into(), text));
    }
    let (targets, failures) = targets::find(context, &args.scope.with_arguments(&args.words))?;
    Failure::from_failures(failures)?;
    for target in targets {
        let text = target.object.annotation(LAST_APPLIED);
        let Some(remembered) = text.and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
            let missing =
                format!("no last-applied-configuration annotation found on resource: {}", target.object.name());
            // kubectl fails only for the objects of files.
            if !args.scope.files.is_empty() {
                return Err(Failure::plain(missing));
            }
            context.print_notice(&format!("hint: {missing}"));
            continue;
        };
        let print = PrintFlags::default().with_output(Some(args.output.clone()));
        let mut text = match print.printer()? {
            Some(mut printer) => printer.object(&remembered)?,
            None => String::new(),
        };
        if args.output == "json" {
            // kubectl indents this JSON by two spaces.
            text = format!("{}\n", serde_json::to_string_pretty(&remembered).unwrap_or_default());
        }
        context.print(&text)?;
    }
    Ok(())
}

fn edit(args: &EditLastAppliedArgs, context: &mut CommandContext) -> CliResult {
    let (dry_run, validation) = (args.write.dry_run(context)?, args.validate.parse()?);
    let is_json = args.print.output.as_deref() == Some("json");
    let (found, failures) = targets::find(context, &args.named.scope())?;
    Failure::from_failures(failures)?;
    for target in found {
        let text = target.object.annotation(LAST_APPLIED);
        let remembered = text.and_then(|text| serde_json::from_str::<Value>(text).ok()).ok_or_else(|| {
            Failure::plain(
                "no last-applied-configuration annotation found on resources, to create the annotation, use command `kubectl apply \
                 set-last-applied --create-annotation`",
            )
        })?;
        let shown = match is_json {
            true => format!("{}\n", serde_json::to_string_pretty(&remembered).unwrap_or_default()),
            false => yaml::to_yaml(&remembered),
        };
        let Some(edited) = edit_text(context, &shown, args.line_endings.is_windows())? else { continue };
        let documents = yaml::documents(&edited)
            .map_err(|error| Failure::plain(format!("The edited file had a syntax error: {error}")))?;
        let Some(document) = documents.into_iter().next() else { continue };
        let (kind, key) = (target.kind, key_of(target.kind, &target.object));
        let change = json!({"metadata": {"annotations": {LAST_APPLIED: format!("{}\n", to_json(&document.value))}}});
        let options = context.options(validation, dry_run);
        let changed = match dry_run {
            DryRun::Client => target.object,
            _ => {
                let write = |txn: &mut dyn Transaction| {
                    patch(txn, kind, &key, PatchType::Merge, &change, UpdatePart::Main, &options)
                };
                context.api()?.write(options.dry_run, write)?.into_object()
            }
        };
        let line = format!("{} edited{}", context.name_of(kind, &changed), dry_run.suffix());
        let lines = args.print.with_output(args.print.output.clone().filter(|format| format == "name"));
        lines.result(context, &changed, &line)?;
    }
    Ok(())
}

fn set(args: &SetLastAppliedArgs, context: &mut CommandContext) -> CliResult {
    args.files.required()?;
    let dry_run = args.write.dry_run(context)?;
    let (manifests, failures) = files::read(context, &args.files)?;
    Failure::from_failures(failures)?;
    for manifest in manifests {
        let (kind, key) = targets::named(context, &manifest)?;
        let mut object = manifest.object.clone();
        if kind.namespaced {
            object.set(&["metadata", "namespace"], &*key.namespace);
        }
        object.unset(&["metadata", "annotations", LAST_APPLIED]);
        let live = context.read_view(|txn| read::get(txn, &key))?;
        if live.annotation(LAST_APPLIED).is_none() && !args.create_annotation {
            let text = format!(
                "no last-applied-configuration annotation found on resource: {}, to create the annotation, run the command \
                 with --create-annotation",
                object.name()
            );
            return Err(Failure::plain(text));
        }
        let change = json!({"metadata": {"annotations": {LAST_APPLIED: format!("{}\n", to_json(&object.0))}}});
        let options = context.options(Default::default(), dry_run);
        let changed = match dry_run {
            DryRun::Client => object,
            _ => {
                let api = context.api()?;
                api.write(options.dry_run, |txn| {
                    patch(txn, kind, &key, PatchType::Merge, &change, UpdatePart::Main, &options)
                })?
                .into_object()
            }
        };
        let line = format!("{} configured{}", context.name_of(kind, &changed), dry_run.suffix());
        args.print.result(context, &changed, &line)?;
    }
    Ok(())
}
