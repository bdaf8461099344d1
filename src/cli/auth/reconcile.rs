//! `kloop auth reconcile`: adds the rules and subjects of manifests to roles and bindings.
//!
//! Never: removes a permission without a flag that asks for it. Start reading at [`reconcile_object`].

use crate::apiserver::create::create;
use crate::apiserver::delete::delete;
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::{UpdatePart, update};
use crate::apiserver::{ApiResult, DeleteOptions, FieldValidation, Transaction, WriteOptions, read};
use crate::cli::cluster::targets;
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::ChangeFlags;
use crate::cli::manifests::files::{self, FileFlags, Manifest};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::object::{Key, Object, Resource};
use crate::world::access::rule::AccessRule;
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";
/// Groups of kinds that kubectl cannot decode here.
const UNKNOWN_GROUPS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];
/// Annotation of objects that are not to be changed.
const PROTECTION: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Reconciles rules for RBAC role, role binding, cluster role, and cluster role binding objects.
///
/// Missing objects are created, and the containing namespace is created for namespaced objects, if required. Existing roles are
/// updated to include the permissions in the input objects, and remove extra permissions if --remove-extra-permissions is
/// specified. Existing bindings are updated to include the subjects in the input objects, and remove extra subjects if
/// --remove-extra-subjects is specified.
#[derive(clap::Args)]
#[command(
    override_usage = "-f FILENAME",
    after_help = "\
# Reconcile RBAC resources from a file
kloop auth reconcile -f my-rbac-rules.yaml"
)]
pub struct Args {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    change: ChangeFlags,
    /// If true, removes extra permissions added to roles.
    #[arg(long)]
    remove_extra_permissions: bool,
    /// If true, removes extra subjects added to rolebindings.
    #[arg(long)]
    remove_extra_subjects: bool,
}

/// The differences between an object and its manifest.
#[derive(Default)]
struct Reconciliation {
    /// `create`, `update`, `recreate`; empty for nothing.
    operation: &'static str,
    missing: Vec<Value>,
    extra: Vec<Value>,
}

/// Runs the verb.
pub fn run(args: &Args, context: &mut CommandContext) -> CliResult {
    args.files.required()?;
    let dry_run = args.change.dry_run(context)?;
    let (manifests, mut failures) = files::read_for(context, &args.files, "reconcile")?;
    for manifest in &manifests {
        let located = check_version(manifest).and_then(|()| targets::locate_for(context, manifest, dry_run));
        let done = located.and_then(|(kind, key)| {
            check_kind(manifest, kind)?;
            let wanted = targets::prepare_object(manifest, kind, &key);
            reconcile_one(args, context, kind, &wanted, dry_run)
        });
        failures.extend(done.err());
    }
    Failure::from_failures(failures)
}

/// Refuses kinds that kubectl cannot decode here.
fn check_kind(manifest: &Manifest, kind: &Kind) -> CliResult {
    if kind.custom.is_none() && !UNKNOWN_GROUPS.contains(&kind.resource.group()) {
        return Ok(());
    }
    let (file, name, version) = (&manifest.source, kind.kind, kind.api_version());
    Err(Failure::plain(format!("unable to decode {file:?}: no kind {name:?} is registered for version {version:?}")))
}

/// Refuses older versions of roles and bindings.
fn check_version(manifest: &Manifest) -> CliResult {
    let object = &manifest.object;
    match object.api_version().split_once('/') {
        Some((GROUP, version)) if version != "v1" => {
            let kind = object.kind();
            Err(Failure::plain(format!("only {GROUP}/v1 is supported: not *{version}.{kind}")))
        }
        _ => Ok(()),
    }
}

fn reconcile_one(
    args: &Args,
    context: &mut CommandContext,
    kind: &'static Kind,
    wanted: &Object,
    dry_run: DryRun,
) -> CliResult {
    if kind.resource.group() != GROUP {
        // As kubectl: other objects of the files are left alone.
        return Ok(());
    }
    let options = context.options(FieldValidation::Warn, dry_run);
    let is_tried = dry_run != DryRun::None;
    // A client-side dry run sends nothing.
    let sends = dry_run != DryRun::Client;
    let (difference, object) =
        context.api_for(is_tried)?.write(is_tried, |txn| reconcile_object(txn, kind, wanted, args, &options, sends))?;
    args.change.print_change(context, kind, &object, "reconciled", dry_run)?;
    let is_role = is_role(kind);
    if !difference.operation.is_empty() {
        context.print_notice(&format!("\treconciliation required {}", difference.operation));
    }
    let (what, removes) =
        if is_role { ("rules", args.remove_extra_permissions) } else { ("subjects", args.remove_extra_subjects) };
    let word = if removes { "removed" } else { "not removed" };
    for (title, items) in
        [(format!("missing {what} added"), &difference.missing), (format!("extra {what} {word}"), &difference.extra)]
    {
        if !items.is_empty() {
            context.print_notice(&format!("\t{title}:"));
            items.iter().for_each(|item| context.print_notice(&format!("\t\t{}", format_item(item, is_role))));
        }
    }
    Ok(())
}

fn is_role(kind: &Kind) -> bool {
    matches!(kind.kind, "Role" | "ClusterRole")
}

/// Formats an item as Go does with `%+v`.
fn format_item(item: &Value, is_role: bool) -> String {
    let list = |field: &str| {
        let texts = item[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        format!("[{}]", texts.collect::<Vec<_>>().join(" "))
    };
    let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
    match is_role {
        true => format!(
            "{{Verbs:{} APIGroups:{} Resources:{} ResourceNames:{} NonResourceURLs:{}}}",
            list("verbs"),
            list("apiGroups"),
            list("resources"),
            list("resourceNames"),
            list("nonResourceURLs")
        ),
        false => format!(
            "{{Kind:{} APIGroup:{} Name:{} Namespace:{}}}",
            text("kind"),
            text("apiGroup"),
            text("name"),
            text("namespace")
        ),
    }
}

/// Creates an object, or changes it so that it has everything that its manifest has.
fn reconcile_object(
    txn: &mut dyn Transaction,
    kind: &Kind,
    wanted: &Object,
    args: &Args,
    options: &WriteOptions,
    sends: bool,
) -> ApiResult<(Reconciliation, Object)> {
    let key = key_of(kind, wanted);
    if !txn.exists(&key)? {
        let made = if sends {
            create_namespace(txn, &key, options)?;
            create(txn, kind, wanted, options)?.into_object()
        } else {
            wanted.clone()
        };
        let missing = items_of(kind, &made);
        return Ok((Reconciliation { operation: "create", missing, ..Reconciliation::default() }, made));
    }
    let existing = read::get(txn, &key)?;
    if !is_role(kind) && existing.value_at(&["roleRef"]) != wanted.value_at(&["roleRef"]) {
        let made = if sends {
            delete(txn, kind, &key, &DeleteOptions::default())?;
            create(txn, kind, wanted, options)?.into_object()
        } else {
            wanted.clone()
        };
        return Ok((Reconciliation { operation: "recreate", ..Reconciliation::default() }, made));
    }
    let mut difference = match is_role(kind) {
        true => compare_rules(&existing, wanted),
        false => compare_subjects(&existing, wanted),
    };
    let removes = if is_role(kind) { args.remove_extra_permissions } else { args.remove_extra_subjects };
    let mut new = existing.clone();
    let field = if is_role(kind) { "rules" } else { "subjects" };
    if removes && !(difference.missing.is_empty() && difference.extra.is_empty()) {
        new.set(&[field], wanted.items(&[field]).to_vec());
    } else if !difference.missing.is_empty() {
        new.set(&[field], [existing.items(&[field]), &difference.missing].concat());
    }
    for field in ["labels", "annotations"] {
        for (name, text) in wanted.pairs(&["metadata", field]) {
            if existing.value_at(&["metadata", field, name]).is_none() {
                new.set(&["metadata", field, name], text);
            }
        }
    }
    if new == existing || existing.annotation(PROTECTION) == Some("false") {
        return Ok((difference, existing));
    }
    difference.operation = "update";
    if !sends {
        return Ok((difference, new));
    }
    Ok((difference, update(txn, kind, &new, UpdatePart::Main, options)?.into_object()))
}

fn create_namespace(txn: &mut dyn Transaction, key: &Key, options: &WriteOptions) -> ApiResult<()> {
    let namespace = Key::new(Resource("namespaces"), "", &key.namespace);
    if key.namespace.is_empty() || txn.exists(&namespace)? {
        return Ok(());
    }
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": &*key.namespace}});
    create(txn, &crate::kinds::namespace::KIND, &Object(body), options).map(|_| ())
}

/// Returns all rules or subjects; the rules are split.
fn items_of(kind: &Kind, object: &Object) -> Vec<Value> {
    match is_role(kind) {
        true => to_values(split_rules(object)),
        false => object.items(&["subjects"]).to_vec(),
    }
}

fn split_rules(role: &Object) -> Vec<AccessRule> {
    AccessRule::split_all(&AccessRule::read_all(role.value_at(&["rules"])))
}

fn to_values(rules: Vec<AccessRule>) -> Vec<Value> {
    rules.into_iter().filter_map(|rule| serde_json::to_value(rule).ok()).collect()
}

fn compare_rules(existing: &Object, wanted: &Object) -> Reconciliation {
    let lacking = |owner: &Object, other: &Object| {
        let own = AccessRule::read_all(owner.value_at(&["rules"]));
        to_values(split_rules(other).into_iter().filter(|simple| !own.iter().any(|rule| rule.covers(simple))).collect())
    };
    Reconciliation { missing: lacking(existing, wanted), extra: lacking(wanted, existing), operation: "" }
}

fn compare_subjects(existing: &Object, wanted: &Object) -> Reconciliation {
    let lacking = |owner: &Object, other: &Object| -> Vec<Value> {
        let own = owner.items(&["subjects"]);
        let fields = ["kind", "name", "namespace"];
        let is_same = |one: &Value, two: &Value| fields.iter().all(|field| one[*field] == two[*field]);
        other.items(&["subjects"]).iter().filter(|one| !own.iter().any(|two| is_same(one, two))).cloned().collect()
    };
    Reconciliation { missing: lacking(existing, wanted), extra: lacking(wanted, existing), operation: "" }
}
