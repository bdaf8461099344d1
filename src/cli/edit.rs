//! `kloop edit`: changes objects in an editor.

use super::cluster::change::patch_scale;
use super::cluster::targets::{self, NamedFlags, Scope, Target};
use super::command_line::flags::{ChangeFlags, LineEndingsFlag, ValidateFlag};
use super::plugin::find_in_path;
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::patch::{PatchType, patch};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::scale::scale;
use crate::apiserver::update::UpdatePart;
use crate::kinds::Kind;
use crate::kinds::catalogue::merge_rules;
use crate::managed_fields::last_applied::with_last_applied;
use crate::object::{Object, Reason, Status, merge, patch as plain_patch, yaml};
use crate::show::print::{ObjectPrinter, OutputFormat};
use serde_json::Value;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Edit a resource from the default editor.
///
/// The edit command allows you to directly edit any API resource you can retrieve via the command-line tools. It will open the
/// editor defined by your KUBE_EDITOR, or EDITOR environment variables, or fall back to 'vi'. You can edit multiple objects,
/// although changes are applied one at a time.
///
/// In the event an error occurs while updating, a temporary file will be created on disk that contains your unapplied changes.
#[derive(clap::Args)]
#[command(
    override_usage = "(RESOURCE/NAME | -f FILENAME)",
    after_help = "\
# Edit the service named 'registry'
kloop edit svc/registry

# Edit the job 'myjob' in JSON using the v1 API format
kloop edit job.v1.batch/myjob -o json

# Edit the deployment 'mydeployment' in YAML and save the modified config in its annotation
kloop edit deployment/mydeployment -o yaml --save-config

# Edit the 'status' subresource for the 'mydeployment' deployment
kloop edit deployment mydeployment --subresource='status'"
)]
pub struct Args {
    #[command(flatten)]
    named: NamedFlags,
    #[command(flatten)]
    change: ChangeFlags,
    /// If true, the configuration of current object will be saved in its annotation. Otherwise, the annotation will be unchanged.
    /// This flag is useful when you want to perform kloop apply on this object in the future.
    #[arg(long)]
    save_config: bool,
    /// If specified, edit will operate on the subresource of the requested object: status, scale or resize.
    #[arg(long, default_value = "", value_name = "NAME")]
    subresource: String,
    #[command(flatten)]
    validate: ValidateFlag,
    /// Output the patch if the resource is edited.
    #[arg(long)]
    output_patch: bool,
    #[command(flatten)]
    line_endings: LineEndingsFlag,
}

const HEADER: &str = "\
# Please edit the object below. Lines beginning with a '#' will be ignored,
# and an empty file will abort the edit. If an error occurs while saving this file will be
# reopened with the relevant failures.
#
";

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let format = edited_format(&args)?;
    let (found, failures) = targets::find(context, &Scope { all: true, ..args.named.scope() })?;
    Failure::from_failures(failures)?;
    if found.is_empty() {
        return Err(Failure::plain("edit cancelled, no objects found"));
    }
    let found: Vec<Target> = found.into_iter().map(|target| edited_view(&args, target)).collect::<CliResult<_>>()?;
    args.validate.parse()?;
    let original = text_of(&found, &format)?;
    let (mut text, mut reasons): (String, Vec<String>) = (original.clone(), Vec::new());
    let suffix = if matches!(format, OutputFormat::Json) { "json" } else { "yaml" };
    // JSON has no comments.
    let header = if suffix == "json" { "" } else { HEADER };
    let windows = args.line_endings.is_windows();
    let mut file = EditedFile::new(&format!("{header}{original}"), suffix, windows)?;
    loop {
        if !reasons.is_empty() {
            file = EditedFile::new(&with_reasons(&text, &reasons), suffix, windows)?;
        }
        let edited = without_comments(&file.edit()?);
        if !reasons.is_empty() && edited == text {
            return Err(file.keep_draft(context, "Edit cancelled, no valid changes were saved."));
        }
        if edited == original {
            context.print_notice("Edit cancelled, no changes made.");
            return Ok(());
        }
        if edited.trim().is_empty() {
            return Err(Failure::plain(EMPTIED));
        }
        reasons = match objects(&edited) {
            Err(why) => vec![format!("The edited file had a syntax error: {why}")],
            Ok(objects) => save(&args, context, &found, &objects, &file)?,
        };
        if reasons.is_empty() {
            return Ok(());
        }
        text = edited;
    }
}

/// The error when the user empties the file.
const EMPTIED: &str = "Edit cancelled, saved file was empty.";

/// The format of the text to edit, which `-o` chooses.
fn edited_format(args: &Args) -> CliResult<OutputFormat> {
    let format = args.change.print.format(false, false)?.unwrap_or(OutputFormat::Yaml);
    match (&args.change.print.output, &format) {
        (None, _) => Ok(OutputFormat::Yaml),
        (_, OutputFormat::Json | OutputFormat::Yaml | OutputFormat::Kyaml) => Ok(format),
        (Some(output), _) => Err(Failure::plain(format!(
            "unable to match a printer suitable for the output format {output:?}, allowed formats are: json,kyaml,yaml"
        ))),
    }
}

/// The text to edit: a single object, or several in a List.
fn text_of(found: &[Target], format: &OutputFormat) -> CliResult<String> {
    let mut printer = ObjectPrinter::new(format.clone(), false);
    Ok(match found {
        [target] => printer.object(&target.object.0)?,
        several => printer.list(several.iter().map(|target| target.object.0.clone()).collect())?,
    })
}

fn with_reasons(text: &str, reasons: &[String]) -> String {
    let lines = reasons.iter().flat_map(|reason| reason.lines()).map(|line| format!("# {line}\n"));
    format!("{HEADER}{}#\n{text}", lines.collect::<String>())
}

fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

fn objects(text: &str) -> Result<Vec<Object>, String> {
    let documents = yaml::documents(text).map_err(|error| error.to_string())?;
    let flat = |value: Value| match value["items"].as_array() {
        Some(items) if value["kind"] == "List" => items.clone(),
        _ => vec![value],
    };
    Ok(documents.into_iter().flat_map(|document| flat(document.value)).map(Object).collect())
}

/// Writes the edited objects. Returns the reasons why the file has to be edited again.
fn save(
    args: &Args,
    context: &mut CommandContext,
    found: &[Target],
    edited: &[Object],
    file: &EditedFile,
) -> CliResult<Vec<String>> {
    let mut reasons = Vec::new();
    if edited.len() != found.len() {
        return Ok(vec![format!("The edited file holds {} objects instead of {}", edited.len(), found.len())]);
    }
    for (target, edited) in found.iter().zip(edited) {
        let same =
            |path: &[&str]| edited.value_at(path).is_none() || edited.value_at(path) == target.object.value_at(path);
        if !same(&["apiVersion"]) || !same(&["kind"]) || !same(&["metadata", "name"]) {
            return Err(file.keep_draft(context, "At least one of apiVersion, kind and name was changed"));
        }
        if edited.kind().is_empty() || edited.name().is_empty() {
            let name = target.object.name();
            context.print_notice(&format!("error: {} {name:?} is invalid", target.kind.resource));
            reasons.push(format!("{} {name:?} was not valid: kind or name is missing", target.kind.resource));
            continue;
        }
        match patch_edited(args, context, target, edited) {
            Ok(()) => {}
            Err(Failure::Api { status, .. }) => reasons.push(refused(context, target, &status)),
            Err(other) => return Err(other),
        }
    }
    Ok(reasons)
}

fn refused(context: &mut CommandContext, target: &Target, status: &Status) -> String {
    let (resource, name) = (target.kind.resource, target.object.name());
    match status.reason {
        Reason::Invalid | Reason::BadRequest => {
            context.print_notice(&format!("error: {resource} {name:?} is invalid"));
            format!("{resource} {name:?} was not valid:\n* {status}")
        }
        Reason::NotFound => {
            context.print_notice(&format!("error: {resource} {name:?} could not be found on the server"));
            format!("{resource} {name:?} could not be found on the server")
        }
        _ => {
            context.print_notice(&format!("error: {resource} {name:?} could not be patched: {status}"));
            format!("{resource} {name:?} could not be patched: {status}")
        }
    }
}

/// Patches one object with the changes made in the editor.
fn patch_edited(args: &Args, context: &mut CommandContext, target: &Target, edited: &Object) -> CliResult {
    let dry_run = args.change.dry_run(context)?;
    let Target { kind, object } = target;
    let part = edited_part(args, kind)?;
    let mut shown = object.clone();
    shown.unset(&["metadata", "managedFields"]);
    let name = match part {
        UpdatePart::Scale => format!("scale.autoscaling/{}", object.name()),
        _ => context.name_of(kind, object),
    };
    let mut edited = if args.save_config { with_last_applied(edited) } else { edited.clone() };
    if edited == shown {
        return context.print_line(&format!("{name} skipped"));
    }
    if part == UpdatePart::Main {
        context.record(&mut edited);
    }
    let (language, change) = match merge_rules::schema_for(&kind.api_version(), kind.kind) {
        Some(schema) if part != UpdatePart::Scale => {
            let change = merge::two_way_strategic(&shown.0, &edited.0, schema);
            (PatchType::Strategic, change.map_err(|error| Failure::plain(error.to_string()))?)
        }
        _ => (PatchType::Merge, plain_patch::create_json_merge(&shown.0, &edited.0)),
    };
    let key = key_of(kind, object);
    let options = context.options(args.validate.parse()?, dry_run);
    let reply = match part {
        UpdatePart::Scale => patch_scale(context, (kind, &key), (language, &change), &options)?,
        _ => context.api()?.write(options.dry_run, |txn| patch(txn, kind, &key, language, &change, part, &options))?,
    };
    context.warn(&reply.warnings);
    if args.output_patch {
        context.print_line(&format!("Patch: {change}"))?;
    }
    args.change.print.result(context, &reply.object, &format!("{name} edited{}", dry_run.suffix()))
}

/// The part of the objects that is edited.
fn edited_part(args: &Args, kind: &Kind) -> CliResult<UpdatePart> {
    let scale = (args.subresource == "scale" && kind.scale).then_some(UpdatePart::Scale);
    let unknown = || Status::unknown_resource().into();
    scale.or_else(|| UpdatePart::find(kind, &args.subresource)).ok_or_else(unknown)
}

/// Returns a target with the object that is edited: its Scale with `--subresource=scale`.
fn edited_view(args: &Args, target: Target) -> CliResult<Target> {
    Ok(match edited_part(args, target.kind)? {
        UpdatePart::Scale => Target { object: scale(target.kind, &target.object), ..target },
        _ => target,
    })
}

/// Has the user edit a text; `None` when it was not changed.
pub fn edit_text(context: &mut CommandContext, text: &str, windows: bool) -> CliResult<Option<String>> {
    let edited = without_comments(&EditedFile::new(&format!("{HEADER}{text}"), "yaml", windows)?.edit()?);
    if edited == text {
        context.print_notice("Edit cancelled, no changes made.");
        return Ok(None);
    }
    if edited.trim().is_empty() { Err(Failure::plain(EMPTIED)) } else { Ok(Some(edited)) }
}

/// The file in the editor. It is removed on drop, unless it is kept.
struct EditedFile {
    path: PathBuf,
    /// Whether lines end as on Windows.
    windows: bool,
    kept: std::cell::Cell<bool>,
}

impl EditedFile {
    fn new(text: &str, suffix: &str, windows: bool) -> CliResult<EditedFile> {
        let path = std::env::temp_dir()
            .join(format!("kloop-edit-{:010}.{suffix}", crate::apiserver::api::random() % 10_000_000_000));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let text = if windows { text.replace('\n', "\r\n") } else { text.to_owned() };
        file.write_all(text.as_bytes())?;
        Ok(EditedFile { path, windows, kept: std::cell::Cell::new(false) })
    }

    /// Runs the editor and returns the file's new content.
    fn edit(&self) -> CliResult<String> {
        let is_nowhere = |editor: &str| !editor.contains('/') && find_in_path(editor).is_none();
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let editor = set("KUBE_EDITOR").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".into());
        // As in kubectl, a shell runs only an editor with arguments.
        let status = match editor.contains([' ', '"', '\'', '$', '\\']) {
            true => Command::new("sh").arg("-c").arg(format!("{editor} \"$0\"")).arg(&self.path).status(),
            false => Command::new(&editor).arg(&self.path).status(),
        };
        match status {
            Ok(status) if status.success() => {}
            // For a file or a folder of PATH without permission, execvp returns EACCES; Go continues with the next folder.
            Err(error) if error.kind() == ErrorKind::NotFound || is_nowhere(&editor) => {
                return Err(Failure::plain(format!("unable to launch the editor {editor:?}")));
            }
            _ => return Err(Failure::plain(format!("there was a problem with the editor {editor:?}"))),
        }
        let text = read(&self.path)?;
        Ok(if self.windows { text.replace("\r\n", "\n") } else { text })
    }

    /// Keeps the file, prints its path, and returns a failure.
    fn keep_draft(&self, context: &mut CommandContext, why: &str) -> Failure {
        self.kept.set(true);
        context
            .print_notice(&format!("A copy of your changes has been stored to {:?}", self.path.display().to_string()));
        Failure::plain(why)
    }
}

impl Drop for EditedFile {
    fn drop(&mut self) {
        if !self.kept.get() {
            // A file that cannot be removed stays in the temporary folder.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

fn read(path: &Path) -> CliResult<String> {
    let bytes = std::fs::read(path)?;
    yaml::decode_bytes(&bytes).map_err(|error| Failure::plain(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_lists_are_taken_off() {
        let text = "# a\nkind: List\nitems:\n- kind: A\n- kind: B\n";
        let found = objects(&without_comments(text)).unwrap();
        assert_eq!(found.iter().map(Object::kind).collect::<Vec<_>>(), ["A", "B"]);
        assert!(objects("a: [").is_err());
        assert!(with_reasons("kind: A\n", &["one\ntwo".into()]).contains("# one\n# two\n#\nkind: A\n"));
    }
}
