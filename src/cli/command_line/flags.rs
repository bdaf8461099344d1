//! Flags that several verbs share.

use super::dry_run::DryRun;
use crate::apiserver::FieldValidation;
use crate::cli::manifests::input;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::Kind;
use crate::kinds::shared::manifest_folder;
use crate::managed_fields::last_applied::with_last_applied;
use crate::object::selector::Selector;
use crate::object::{Object, io_error_text};
use crate::show::print::{self, ObjectPrinter, OutputFlags, OutputFormat};
use crate::world::Propagation;
use clap::Args;
use jiff::SignedDuration;
use std::cell::OnceCell;
use std::time::Duration;

/// Flags of writes.
#[derive(Args, Clone, Debug, Default)]
pub struct WriteFlags {
    /// Must be "none", "server", or "client". If client strategy, only print the object that would be sent, without sending it.
    /// If server strategy, submit server-side request without persisting the resource.
    #[arg(long, value_name = "STRATEGY", default_value = "none", num_args = 0..=1, default_missing_value = "unchanged", require_equals = true)]
    pub dry_run: Option<String>,
    /// Name of the manager used to track field ownership.
    #[arg(long, value_name = "NAME")]
    pub field_manager: Option<String>,
}

impl WriteFlags {
    /// Parses `--dry-run`.
    pub fn dry_run(&self, context: &mut CommandContext) -> CliResult<DryRun> {
        match self.dry_run.as_deref() {
            None | Some("none") => Ok(DryRun::None),
            Some("client") => Ok(DryRun::Client),
            Some("server") => Ok(DryRun::Server),
            Some("unchanged") => {
                context.print_notice("W --dry-run is deprecated and can be replaced with --dry-run=client.");
                Ok(DryRun::Client)
            }
            Some(other) if boolean(other).is_ok() => {
                let is_set = boolean(other) == Ok(true);
                let (strategy, dry_run) = if is_set { ("client", DryRun::Client) } else { ("none", DryRun::None) };
                context.print_notice(&format!(
                    "W --dry-run={other} is deprecated (boolean value) and can be replaced with --dry-run={strategy}."
                ));
                Ok(dry_run)
            }
            Some(other) => Err(Failure::plain(format!(
                "Invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\"."
            ))),
        }
    }
}

/// Parses Go's spellings of a boolean.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
    }
}

/// `--validate`.
#[derive(Args, Clone, Debug, Default)]
pub struct ValidateFlag {
    /// Must be one of: strict (or true), warn, ignore (or false). "true" or "strict" will use a schema to validate the input and
    /// fail the request if invalid. "warn" will warn about unknown or duplicate fields without blocking the request, and behave
    /// as "ignore" otherwise. "false" or "ignore" will not perform any schema validation, silently dropping any unknown or
    /// duplicate fields.
    #[arg(long, value_name = "HOW", default_value = "strict", num_args = 0..=1, default_missing_value = "strict", require_equals = true)]
    pub validate: Option<String>,
}

impl ValidateFlag {
    /// Parses the value.
    pub fn parse(&self) -> CliResult<FieldValidation> {
        match self.validate.as_deref() {
            None | Some("strict" | "true") => Ok(FieldValidation::Strict),
            Some("warn") => Ok(FieldValidation::Warn),
            Some("ignore" | "false") => Ok(FieldValidation::Ignore),
            Some(other) => Err(Failure::plain(format!(
                "invalid - validate option {other:?}; must be one of: strict (or true), warn, ignore (or false)"
            ))),
        }
    }
}

/// Returns a duration without its sign; `None` for zero.
pub fn nonzero(duration: SignedDuration) -> Option<Duration> {
    Some(duration.unsigned_abs()).filter(|duration| !duration.is_zero())
}

/// `-o` and its related flags.
#[derive(Args, Clone, Debug, Default)]
pub struct PrintFlags {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<String>,
    /// Template string or path to template file to use when -o=go-template, -o=go-template-file.
    #[arg(
        long,
        value_name = "TEMPLATE",
        help = "Template string or path to template file to use when -o=go-template, -o=go-template-file. The template format is \
                golang templates [http://golang.org/pkg/text/template/#pkg-overview]."
    )]
    pub template: Option<String>,
    /// If true, ignore any errors in templates when a field or map key is missing in the template. Only applies to golang and
    /// jsonpath output formats.
    #[arg(long, default_value_t = true)]
    pub allow_missing_template_keys: bool,
    /// If true, keep the managedFields when printing objects in JSON or YAML format.
    #[arg(long)]
    pub show_managed_fields: bool,
    /// The format of [`PrintFlags::printer`] once it is parsed, because a template may come from a pipe.
    #[arg(skip)]
    parsed: OnceCell<Option<OutputFormat>>,
}

impl PrintFlags {
    /// The same flags with another `-o`.
    pub fn with_output(&self, output: Option<String>) -> PrintFlags {
        PrintFlags { output, parsed: OnceCell::new(), ..self.clone() }
    }

    /// Whether a format is requested.
    pub fn has_format(&self) -> bool {
        self.output.is_some() || self.template.is_some()
    }

    /// The requested format; `None` without `-o`. `tables` is for commands that print tables.
    pub fn format(&self, no_headers: bool, tables: bool) -> CliResult<Option<OutputFormat>> {
        if !self.has_format() {
            return Ok(None);
        }
        let missing_keys = if self.allow_missing_template_keys {
            Default::default()
        } else {
            crate::go::jsonpath::MissingKeys::Refuse
        };
        let flags = OutputFlags { template: self.template.as_deref(), missing_keys, no_headers, tables };
        let mut read = |path: &str| {
            input::read_to_string(path).map_err(|error| format!("open {path}: {error}", error = io_error_text(error)))
        };
        Ok(Some(OutputFormat::parse(self.output.as_deref().unwrap_or_default(), flags, &mut read)?))
    }

    /// The printer for the requested format, if any.
    pub fn printer(&self) -> CliResult<Option<ObjectPrinter>> {
        let format = match self.parsed.get() {
            Some(format) => format.clone(),
            None => {
                let format = self.format(false, false)?;
                self.parsed.get_or_init(|| format).clone()
            }
        };
        Ok(format.map(|format| ObjectPrinter::new(format, self.show_managed_fields)))
    }

    /// Like [`PrintFlags::printer`], for results that are not objects and have no name.
    pub fn answer_printer(&self) -> CliResult<Option<ObjectPrinter>> {
        match self.output.as_deref() {
            Some("name") => Err(print::unnamed().into()),
            _ => self.printer(),
        }
    }

    /// Prints the object without the annotation of its manifest's folder if a format was requested,
    /// otherwise prints the line.
    pub fn result(&self, context: &mut CommandContext, object: &Object, line: &str) -> CliResult {
        match self.printer()? {
            Some(printer) => {
                let text = printer.continuing(context.printed).object(&manifest_folder::cleaned(object).0)?;
                context.printed += 1;
                context.print(&text)
            }
            None => context.print_line(line),
        }
    }
}

/// Flags of verbs that change objects and print a line or the object for each.
#[derive(Args, Clone, Debug, Default)]
pub struct ChangeFlags {
    #[command(flatten)]
    pub print: PrintFlags,
    #[command(flatten)]
    write: WriteFlags,
}

impl ChangeFlags {
    /// Parses `--dry-run`. Refuses an unusable `-o` as well, before anything is written.
    pub fn dry_run(&self, context: &mut CommandContext) -> CliResult<DryRun> {
        self.print.printer()?;
        self.write.dry_run(context)
    }

    /// The manager of `--field-manager`, which may be empty.
    pub fn field_manager(&self) -> Option<&str> {
        self.write.field_manager.as_deref()
    }

    /// Whether the verb prints lines rather than objects.
    pub fn prints_lines(&self) -> bool {
        self.print.output.is_none()
    }

    /// Prints `deployment.apps/web <done>`, or the object.
    pub fn print_change(
        &self,
        context: &mut CommandContext,
        kind: &Kind,
        object: &Object,
        done: &str,
        dry_run: DryRun,
    ) -> CliResult {
        let line = format!("{} {done}{}", context.name_of(kind, object), dry_run.suffix());
        self.print.result(context, object, &line)
    }
}

/// Flags of verbs that write whole objects.
#[derive(Args, Clone, Debug, Default)]
pub struct MakeFlags {
    #[command(flatten)]
    pub change: ChangeFlags,
    #[command(flatten)]
    pub validate: ValidateFlag,
    /// If true, the configuration of current object will be saved in its annotation. Otherwise, the annotation will be unchanged.
    /// This flag is useful when you want to perform kloop apply on this object in the future.
    #[arg(long)]
    save_config: bool,
}

impl MakeFlags {
    /// The object to send: with `--save-config`, its configuration is in its annotation, with `--record` the command.
    pub fn noted(&self, context: &CommandContext, object: Object) -> Object {
        let mut object = if self.save_config { with_last_applied(&object) } else { object };
        context.record(&mut object);
        object
    }
}

/// Flags of verbs that delete an object as a part of their work.
#[derive(Args, Clone, Debug, Default)]
pub struct DeletionFlags {
    /// Must be "background", "orphan", or "foreground". Selects the deletion cascading strategy for the dependents (e.g. Pods
    /// created by a ReplicationController). Defaults to background.
    #[arg(long, value_name = "HOW", default_value = "background", num_args = 0..=1, default_missing_value = "background", require_equals = true)]
    cascade: String,
    /// Accepted for compatibility with kubectl. The verb always waits for the deletion of objects that it replaces.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    wait: Option<bool>,
}

impl DeletionFlags {
    /// Parses `--cascade`.
    pub fn propagation(&self) -> CliResult<Propagation> {
        if self.cascade.is_empty() { Ok(Propagation::Background) } else { parse_cascade(&self.cascade) }
    }
}

/// Parses a value of `--cascade`.
pub fn parse_cascade(text: &str) -> CliResult<Propagation> {
    match text {
        "background" | "true" => Ok(Propagation::Background),
        "orphan" | "false" => Ok(Propagation::Orphan),
        "foreground" => Ok(Propagation::Foreground),
        other => Err(Failure::plain(format!(
            "invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\""
        ))),
    }
}

/// `--windows-line-endings`.
#[derive(Args, Clone, Debug, Default)]
pub struct LineEndingsFlag {
    /// Defaults to the line ending native to your platform.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    windows_line_endings: Option<bool>,
}

impl LineEndingsFlag {
    /// Whether the lines of the edited file end as on Windows.
    pub fn is_windows(&self) -> bool {
        self.windows_line_endings == Some(true)
    }
}

/// `-l`.
#[derive(Args, Clone, Debug, Default)]
pub struct LabelFlag {
    /// Selector (label query) to filter on, supports '=', '==', '!=', 'in', 'notin'.(e.g. -l key1=value1,key2=value2,key3 in
    /// (value3)). Matching objects must satisfy all of the specified label constraints.
    #[arg(short = 'l', long, value_name = "SELECTOR", allow_hyphen_values = true)]
    selector: Option<String>,
}

impl LabelFlag {
    /// The selector as written.
    pub fn text(&self) -> Option<&str> {
        without_blank(self.selector.as_deref())
    }

    /// Whether the flag is given, also where it is empty.
    pub fn is_given(&self) -> bool {
        self.selector.is_some()
    }

    /// Parses the selector.
    pub fn parse(&self) -> CliResult<Option<Selector>> {
        let refuse = |text, why| Failure::plain(format!("the provided selector {text:?} is not valid: {why}"));
        self.text().map(|text| Selector::parse(text).map_err(|why| refuse(text, why))).transpose()
    }
}

/// Label and field selectors.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectFlags {
    #[command(flatten)]
    pub labels: LabelFlag,
    /// Selector (field query) to filter on, supports '=', '==', and '!='.(e.g. --field-selector key1=value1,key2=value2). The
    /// server only supports a limited number of field queries per type.
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,
}

impl SelectFlags {
    /// Flags with a label selector only.
    pub fn from_labels(labels: &LabelFlag) -> SelectFlags {
        SelectFlags { labels: labels.clone(), field_selector: None }
    }

    /// The field selector as written.
    pub fn fields(&self) -> Option<&str> {
        without_blank(self.field_selector.as_deref())
    }

    /// Whether the flags select by labels or fields.
    pub fn is_set(&self) -> bool {
        self.labels.text().is_some() || self.fields().is_some()
    }
}

/// Returns the text of a selector flag. As in kubectl, a blank selector is none: a script's empty variable must not select everything.
fn without_blank(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.trim().is_empty())
}
