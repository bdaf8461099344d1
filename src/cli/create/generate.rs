//! What every generator does with the object it has made: prints it, or creates it.

use crate::apiserver::FieldValidation;
use crate::apiserver::apply::with_last_applied;
use crate::apiserver::create::create;
use crate::cli::flags::{self, DryRun, PrintFlags, ValidateFlag, WriteFlags};
use crate::cli::{Context, Failure, Outcome};
use crate::kinds;
use crate::object::Object;
use serde_json::Value;

/// Flags of all generators.
#[derive(clap::Args)]
pub struct Generate {
    /// The new object's name.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub print: PrintFlags,
    #[command(flatten)]
    pub write: WriteFlags,
    #[command(flatten)]
    pub validate: ValidateFlag,
    /// If true, the configuration of current object will be saved in its annotation, for later applies.
    #[arg(long, num_args = 0..=1, default_value = "false", default_missing_value = "true", require_equals = true)]
    pub save_config: bool,
}

impl Generate {
    /// The one name; `verb` is `create configmap`.
    pub fn name(&self, verb: &str) -> Outcome<&str> {
        match &self.names[..] {
            [name] => Ok(name),
            names => Err(Failure::Usage(verb.into(), format!("exactly one NAME is required, got {}", names.len()))),
        }
    }

    /// Creates the object. `what` goes into the message of a refusal, `failed to create WHAT: ...`; without one the refusal is
    /// told as it is.
    pub fn create(&self, context: &mut Context, body: Value, what: Option<&str>) -> Outcome {
        let dry_run = self.write.dry_run(context)?;
        let validation = self.validate.parse()?;
        let object = self.commit(context, Object(body), dry_run, validation, what)?;
        let Some(kind) = kinds::by_kind(object.api_version(), object.kind()) else { return Ok(()) };
        let line = format!("{} created{}", context.name_of(kind, &object), dry_run.suffix());
        self.print.result(context, &object, &line)
    }

    fn commit(
        &self,
        context: &mut Context,
        mut object: Object,
        dry_run: DryRun,
        validation: FieldValidation,
        what: Option<&str>,
    ) -> Outcome<Object> {
        let Some(kind) = kinds::by_kind(object.api_version(), object.kind()) else { return Ok(object) };
        // A manifest for later keeps quiet about a namespace that nobody asked for.
        if kind.namespaced && (dry_run != DryRun::Client || context.globals.namespace.is_some()) {
            object.set(&["metadata", "namespace"], context.namespace());
        }
        if self.save_config {
            object = with_last_applied(&object);
        }
        if dry_run == DryRun::Client {
            return Ok(object);
        }
        let options = flags::options(validation, dry_run);
        let done = context.api()?.write(options.dry_run, |ledger| create(ledger, kind, &object, &options));
        let reply = done.map_err(|status| match what {
            Some(what) => Failure::plain(format!("failed to create {what}: {status}")),
            None => status.into(),
        })?;
        context.warn(&reply.warnings);
        Ok(reply.object)
    }
}
