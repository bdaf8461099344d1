//! `kloop set env`: environment variables of containers.

use super::{ObjectEdit, SetFlags, SetVerbText, containers, containers_mut, pod_spec, pod_spec_path};
use crate::apiserver::read;
use crate::cli::cluster::targets::{self, Target, Targets};
use crate::cli::manifests::data_sources::check_variable;
use crate::cli::manifests::input;
use crate::cli::manifests::key_changes::{self, KeyChanges};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds;
use crate::kinds::image::pattern::glob;
use crate::object::Key;
use base64::Engine;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Update environment variables on a pod template.
///
/// List environment variable definitions in one or more pods, pod templates. Add, update, or remove container environment
/// variable definitions in one or more pod templates.
#[derive(clap::Args)]
#[command(
    override_usage = "RESOURCE/NAME KEY_1=VAL_1 ... KEY_N=VAL_N",
    after_help = "\
# Update deployment 'registry' with a new environment variable
kloop set env deployment/registry STORAGE_DIR=/local

# List the environment variables defined on a deployments 'sample-build'
kloop set env deployment/sample-build --list

# Import environment from a secret
kloop set env --from=secret/mysecret deployment/myapp

# Import environment from a config map with a prefix
kloop set env --from=configmap/myconfigmap --prefix=MYSQL_ deployment/myapp

# Remove the environment variable ENV from container 'c1' in all deployments
kloop set env deployments --all --containers=\"c1\" ENV-"
)]
pub struct Args {
    /// TYPE NAME or TYPE/NAME, then KEY=VALUE to set and KEY- to remove.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    #[command(flatten)]
    setting: SetFlags,
    /// The names of containers in the selected pod templates to change; wildcards are allowed.
    #[arg(short, long, default_value = "*", value_name = "CONTAINER")]
    containers: String,
    /// Specify a key-value pair for an environment variable to set into each container.
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// The name of a resource from which to inject environment variables: configmap/NAME or secret/NAME.
    #[arg(long, value_name = "TYPE/NAME")]
    from: Option<String>,
    /// Keys to import from the specified resource.
    #[arg(long, value_delimiter = ',', value_name = "KEY")]
    keys: Vec<String>,
    /// Prefix to append to variable names.
    #[arg(long, default_value = "", value_name = "PREFIX")]
    prefix: String,
    /// If true, display the environment and any changes in the standard format.
    #[arg(long)]
    list: bool,
    /// If true, show secret or configmap references when listing variables.
    #[arg(long)]
    resolve: bool,
    /// If true, allow environment to be overwritten, otherwise reject updates that overwrite existing environment.
    #[arg(long, default_value_t = true)]
    overwrite: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    // "-" means the lines of standard input.
    let is_stdin = |word: &String| word == "-";
    let words: Vec<String> = args.words.iter().filter(|word| !is_stdin(word)).cloned().collect();
    let (resources, mut changes) = key_changes::divide(&words, "environment")?;
    changes.extend(args.env.iter().filter(|word| !is_stdin(word)).cloned());
    let KeyChanges { mut set, remove } = key_changes::parse(&changes, "environment", true)?;
    set.iter().try_for_each(|(key, _)| check_variable(key))?;
    if set.iter().any(|(key, _)| remove.contains(key)) {
        let text = "can not both modify and remove the same environment variable in the same command";
        return Err(Failure::plain(text));
    }
    if args.list {
        return list(&args, context, &resources);
    }
    if args.words.iter().chain(&args.env).any(is_stdin) {
        if args.setting.scope.files.reads_stdin() {
            return Err(Failure::plain("standard input cannot be used for multiple arguments"));
        }
        set.splice(..0, read_stdin()?);
    }
    let mut variables: Vec<Value> = set.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    if let Some(from) = &args.from {
        variables.extend(references(&args, context, from)?);
    }
    let words = SetVerbText { updated: "env", patched: "env update to pod template:", prints_unchanged: false };
    let (pattern, overwrite) = (args.containers.clone(), args.overwrite);
    let is_local = args.setting.local;
    args.setting.update(context, &resources, words, |context, target| {
        warn_of_pattern(&args, context, target)?;
        let (kind, variables, remove, pattern) = (target.kind, variables.clone(), remove.clone(), pattern.clone());
        let edit: ObjectEdit = Box::new(move |object| {
            for container in containers_mut(pod_spec(kind, object, is_local)?, |name| glob(&pattern, name)) {
                change(container, &variables, &remove, overwrite)?;
            }
            Ok(())
        });
        Ok(edit)
    })
}

/// Reads `KEY=VALUE` lines from standard input. Skips comments and other lines, as kubectl does.
fn read_stdin() -> CliResult<Vec<(String, String)>> {
    let bytes = input::bounded(std::io::stdin().lock(), input::MAX_BYTES)?;
    let lines = String::from_utf8_lossy(&bytes);
    let pairs = lines.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// Warns where no container of an object has a name that `--containers` names.
fn warn_of_pattern(args: &Args, context: &mut CommandContext, target: &Target) -> CliResult {
    let mut object = target.object.clone();
    let spec = pod_spec(target.kind, &mut object, args.setting.local)?;
    if containers(spec).all(|container| !glob(&args.containers, container["name"].as_str().unwrap_or_default())) {
        let (kind, name, pattern) = (target.kind.kind, target.object.name(), &args.containers);
        context.print_notice(&format!("Warning: {kind}/{name} does not have any containers matching {pattern:?}"));
    }
    Ok(())
}

/// Returns variables that refer to the keys of a ConfigMap or a Secret.
fn references(args: &Args, context: &mut CommandContext, from: &str) -> CliResult<Vec<Value>> {
    let form = || Failure::plain("resource(s) were provided, but no name was specified");
    let Targets::Named(named) = targets::parse(context.kinds(), &[from.to_owned()])? else { return Err(form()) };
    let Some((kind, name)) = named.first() else { return Err(form()) };
    let reference = match kind.kind {
        "ConfigMap" => "configMapKeyRef",
        "Secret" => "secretKeyRef",
        _ => return Err(Failure::plain("unsupported resource specified in --from")),
    };
    let key = Key::new(kind.resource, context.namespace(), name);
    let object = context.read_view(|txn| read::get(txn, &key))?;
    let keys = object.value_at(&["data"]).and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let mut variables = Vec::new();
    for key in keys.filter(|key| args.keys.is_empty() || args.keys.contains(key)) {
        let variable = variable_of(key);
        if variable != *key {
            context.warn(&[format!("key {key} transferred to {variable}")]);
        }
        let source = json!({reference: {"key": key, "name": name}});
        variables.push(json!({"name": format!("{}{variable}", args.prefix), "valueFrom": source}));
    }
    Ok(variables)
}

/// Returns a variable's name for a key: `K_2` for `k-2`.
fn variable_of(key: &str) -> String {
    key.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' }).collect()
}

fn change(container: &mut Map<String, Value>, new: &[Value], remove: &[String], overwrite: bool) -> CliResult {
    let mut variables: Vec<Value> = container.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
    variables.retain(|variable| !remove.iter().any(|name| variable["name"] == name.as_str()));
    for variable in new {
        match variables.iter_mut().find(|known| known["name"] == variable["name"]) {
            Some(_) if !overwrite => {
                let name = variable["name"].as_str().unwrap_or_default();
                let text = format!("'{name}' already has a value, and --overwrite is false");
                return Err(Failure::plain(text));
            }
            Some(known) => known.clone_from(variable),
            None => variables.push(variable.clone()),
        }
    }
    if variables.is_empty() {
        container.remove("env");
    } else {
        container.insert("env".into(), variables.into());
    }
    Ok(())
}

fn list(args: &Args, context: &mut CommandContext, resources: &[String]) -> CliResult {
    let (found, failures) = targets::find(context, &args.setting.scope(resources))?;
    for target in &found {
        warn_of_pattern(args, context, target)?;
        let Some(spec) = pod_spec_path(target.kind).and_then(|path| target.object.value_at(path)) else { continue };
        for container in
            containers(spec).filter(|container| glob(&args.containers, container["name"].as_str().unwrap_or("")))
        {
            list_one(args, context, target, container)?;
        }
    }
    Failure::from_failures(failures)
}

fn list_one(args: &Args, context: &mut CommandContext, target: &Target, container: &Value) -> CliResult {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = target.kind.kind;
    context.print_line(&format!("# {kind} {}, container {}", target.object.name(), text(&container["name"])))?;
    // The variables without a value, by the reason.
    let mut errors: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = text(&variable["name"]);
        let Some(source) = variable.get("valueFrom") else {
            context.print_line(&format!("{name}={}", text(&variable["value"])))?;
            continue;
        };
        match args.resolve.then(|| resolved(context, target, source)) {
            Some(Ok(value)) => context.print_line(&format!("{name}={value}"))?,
            reference => {
                context.print_line(&format!("# {name} from {}", described(source)))?;
                if let Some(Err(why)) = reference {
                    errors.entry(why).or_default().push(name);
                }
            }
        }
    }
    let mut lines: Vec<String> = errors
        .into_iter()
        .map(|(why, mut names)| {
            names.sort();
            format!("error retrieving reference for {}: {why}", names.join(", "))
        })
        .collect();
    lines.sort();
    lines.iter().for_each(|line| context.print_notice(line));
    Ok(())
}

fn described(source: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (field, what) in [("configMapKeyRef", "configmap"), ("secretKeyRef", "secret")] {
        if let Some(reference) = source.get(field) {
            return format!("{what} {}, key {}", text(&reference["name"]), text(&reference["key"]));
        }
    }
    match source.get("fieldRef") {
        Some(field) => format!("field path {}", text(&field["fieldPath"])),
        None => format!("resource field {}", text(&source["resourceFieldRef"]["resource"])),
    }
}

/// Returns the value of a reference, in kubectl's words why it has none. A workload's own metadata is that of its pods here.
fn resolved(context: &mut CommandContext, target: &Target, source: &Value) -> Result<String, String> {
    let object = &target.object;
    for (field, kind, what) in [("configMapKeyRef", "configmap", "config map"), ("secretKeyRef", "secret", "secret")] {
        let Some(reference) = source.get(field) else { continue };
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let (name, key) = (text("name"), text("key"));
        let Some(kind) = kinds::by_name(kind) else { continue };
        let found = Key::new(kind.resource, object.namespace(), name);
        let found = context.read_view(|txn| read::get(txn, &found)).map_err(|failure| match failure {
            Failure::Api { status, .. } => status.message,
            other => other.to_string(),
        })?;
        let missing = || format!("key {key} not found in {what} {name}");
        let value = found.text(&["data", key]).ok_or_else(missing)?.to_owned();
        if what != "secret" {
            return Ok(value);
        }
        let decoded = base64::engine::general_purpose::STANDARD.decode(value).map_err(|error| error.to_string())?;
        return Ok(String::from_utf8_lossy(&decoded).into_owned());
    }
    let Some(path) = source["fieldRef"]["fieldPath"].as_str() else { return Err("unsupported resource field".into()) };
    let subscript = path.strip_suffix("']").and_then(|path| path.split_once("['"));
    Ok(match (path, subscript) {
        ("metadata.name", _) => object.name().to_owned(),
        ("metadata.namespace", _) => object.namespace().to_owned(),
        ("metadata.uid", _) => object.uid().to_owned(),
        (_, Some(("metadata.labels", key))) => object.label(key).unwrap_or_default().to_owned(),
        (_, Some(("metadata.annotations", key))) => object.annotation(key).unwrap_or_default().to_owned(),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_patterns_and_variable_names() {
        for (pattern, name, expected) in
            [("*", "web", true), ("w*", "web", true), ("*b", "web", true), ("w*x", "web", false), ("web", "we", false)]
        {
            assert_eq!(glob(pattern, name), expected, "{pattern} {name}");
        }
        assert_eq!(variable_of("k-2.a"), "K_2_A");
    }

    #[test]
    fn changed_variables_keep_their_order() {
        let mut container = json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]});
        let container = container.as_object_mut().unwrap();
        let new = [json!({"name": "C", "value": "3"}), json!({"name": "B", "value": "9"})];
        change(container, &new, &["A".into()], true).unwrap();
        assert_eq!(container["env"], json!([{"name": "B", "value": "9"}, {"name": "C", "value": "3"}]));
        assert!(change(container, &new, &[], false).is_err());
        change(container, &[], &["B".into(), "C".into()], true).unwrap();
        assert!(!container.contains_key("env"));
    }
}
