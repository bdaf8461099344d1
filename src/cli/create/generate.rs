//! Common part of all generators: prints or creates the generated object.
//!
//! Start reading at [`CreateFlags::create`].

use crate::apiserver::create::create;
use crate::apiserver::patch::{PatchType, patched};
use crate::cli::cluster::control_plane;
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::flags::MakeFlags;
use crate::cli::manifests::relative::{current_folder, record};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds;
use crate::kustomize::hash::hash_with_name;
use crate::object::Object;
use serde_json::Value;

/// Flags of all generators.
#[derive(clap::Args)]
pub struct GeneratorFlags {
    /// The new object's name.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    making: CreateFlags,
}

impl GeneratorFlags {
    /// The name argument. `verb` is for the error, for example `create configmap`.
    pub fn name(&self, verb: &str) -> CliResult<&str> {
        match &self.names[..] {
            [name] => Ok(name),
            names => Err(Failure::Usage(verb.into(), format!("exactly one NAME is required, got {}", names.len()))),
        }
    }

    /// Creates the object. With `what`, an error begins with `failed to create WHAT: `; without it, the
    /// API server's error is returned unchanged.
    pub fn create(&self, context: &mut CommandContext, body: Value, what: Option<&str>) -> CliResult {
        let done = self.making.create(context, body, "created");
        done.map_err(|failure| match (failure, what) {
            (Failure::Api { status, .. }, Some(what)) if status.exit_code.is_none() => {
                // kubectl writes no colon for Secrets.
                let colon = if what == "secret" { "" } else { ":" };
                Failure::plain(format!("failed to create {what}{colon} {status}"))
            }
            (failure, _) => failure,
        })
    }
}

/// `--append-hash` of ConfigMaps and Secrets.
#[derive(clap::Args)]
pub struct AppendHashFlag {
    /// Append a hash of the content to the name.
    #[arg(long)]
    append_hash: bool,
}

impl AppendHashFlag {
    /// Appends the hash to the name, if the flag is given.
    pub fn rename(&self, body: Value) -> Value {
        let mut object = Object(body);
        if self.append_hash {
            let name = format!("{}-{}", object.name(), hash_with_name(&object));
            object.set(&["metadata", "name"], name);
        }
        object.0
    }
}

/// Flags of every verb that builds an object from flags.
#[derive(clap::Args)]
pub struct CreateFlags {
    #[command(flatten)]
    make: MakeFlags,
}

impl CreateFlags {
    /// Creates the object and prints `service/web <word>`, or prints the object.
    pub fn create(&self, context: &mut CommandContext, body: Value, word: &str) -> CliResult {
        let dry_run = self.dry_run(context)?;
        let object = self.commit(context, Object(body), dry_run)?;
        let Some(kind) = kinds::by_kind(object.api_version(), object.kind()) else { return Ok(()) };
        self.make.change.print_change(context, kind, &object, word, dry_run)?;
        control_plane::print_hint_for(kind, dry_run, context)
    }

    /// Parses `--dry-run`.
    pub fn dry_run(&self, context: &mut CommandContext) -> CliResult<DryRun> {
        self.make.change.dry_run(context)
    }

    /// Creates the object and prints nothing.
    pub fn create_quietly(&self, context: &mut CommandContext, body: Value) -> CliResult<Object> {
        let dry_run = self.dry_run(context)?;
        self.commit(context, Object(body), dry_run)
    }

    fn commit(&self, context: &mut CommandContext, mut object: Object, dry_run: DryRun) -> CliResult<Object> {
        let Some(kind) = kinds::by_kind(object.api_version(), object.kind()) else { return Ok(object) };
        // With `--dry-run=client`, the manifest has a namespace only if `--namespace` is given.
        if kind.namespaced && (dry_run != DryRun::Client || context.globals.namespace.is_some()) {
            object.set(&["metadata", "namespace"], context.namespace());
        }
        if let Some(here) = current_folder() {
            record(&mut object, &here);
        }
        object = self.make.noted(context, object);
        let options = context.options(self.make.validate.parse()?, dry_run);
        if dry_run == DryRun::Client {
            return Ok(object);
        }
        let reply =
            context.api_for(options.dry_run)?.write(options.dry_run, |txn| create(txn, kind, &object, &options))?;
        context.warn(&reply.warnings);
        Ok(reply.into_object())
    }
}

/// `--overrides`: changes to the generated object.
#[derive(clap::Args)]
pub struct Overrides {
    /// An inline JSON override for the generated object.
    #[arg(long, value_name = "JSON")]
    overrides: Option<String>,
    /// The method used to override the generated object: json, merge, or strategic.
    #[arg(long, default_value = "merge", value_name = "TYPE")]
    override_type: String,
}

impl Overrides {
    /// Returns the object with the overrides.
    pub fn apply(&self, body: Value) -> CliResult<Value> {
        let Some(text) = &self.overrides else { return Ok(body) };
        let language = match self.override_type.as_str() {
            "merge" => PatchType::Merge,
            "strategic" => PatchType::Strategic,
            "json" => PatchType::Json,
            other => return Err(Failure::plain(format!("invalid override type: {other}"))),
        };
        let change = serde_json::from_str(text).map_err(|_| Failure::plain("Invalid JSON Patch"))?;
        let object = Object(body);
        let Some(kind) = kinds::by_kind(object.api_version(), object.kind()) else { return Ok(object.0) };
        Ok(patched(kind, &object, language, &change)?)
    }
}
