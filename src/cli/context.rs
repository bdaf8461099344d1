//! Context of a verb: the global flags, the API, and the output streams.

use super::dry_run::DryRun;
use super::{CliResult, Failure, Globals, context_settings};
use crate::apiserver::{Api, FieldValidation, Transaction, WriteOptions, custom};
use crate::kinds::{self, Kind, KindRegistry};
use crate::managed_fields::FieldManager;
use crate::object::{Object, Status, Time, io_error_text};
use crate::store::{self, OpenError, OpenMode};
use colored::Colorize;
use std::cell::OnceCell;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Returns the path of the state: `--state`, else `$KLOOP_STATE`, else the user's default.
pub fn state_path(flag: Option<&PathBuf>) -> PathBuf {
    let env = || std::env::var_os("KLOOP_STATE").filter(|path| !path.is_empty()).map(PathBuf::from);
    flag.cloned().or_else(env).unwrap_or_else(store::default_path)
}

/// Opens the state for a command that somebody waits for: it says when another process keeps it from writing.
fn opened(state: &Path, mode: OpenMode, kinds: &KindRegistry) -> Result<Api, OpenError> {
    let mut api = Api::open(state, mode, "kloop")?.with_kinds(kinds);
    api.on_wait(|busy| {
        let holder = busy.holder().unwrap_or_default();
        eprintln!("hint: waiting to write to the cluster's file: {}", crate::show::escape::text(&holder));
    });
    Ok(api)
}

/// One command's surroundings.
pub struct CommandContext {
    /// The flags that every verb takes.
    pub globals: Globals,
    /// Field manager: named after the verb, unless `--field-manager` is set.
    pub manager: FieldManager,
    api: Option<Api>,
    /// The kinds of the cluster.
    stored_kinds: KindRegistry,
    /// The same with those that the command's own manifests define.
    kinds: KindRegistry,
    /// An empty cluster that stands for one that does not exist yet.
    unmade: Option<Api>,
    /// Whether a place that has not even a folder is meant: the verb makes the cluster there.
    may_be_new: bool,
    /// Number of objects printed so far.
    pub printed: usize,
    /// The word before a warning, coloured where standard error is a terminal.
    warning: String,
    /// Warnings printed so far: each is printed once.
    warned: Vec<String>,
    /// Result of [`context_settings::default_namespace`], read at the first use.
    default_namespace: OnceCell<String>,
}

impl CommandContext {
    /// Before anything is opened.
    pub fn new(globals: Globals) -> CommandContext {
        let may_colour = std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty());
        colored::control::set_override(may_colour && std::io::stderr().is_terminal());
        let warning = "Warning:".yellow().to_string();
        // From here on it is standard output that is coloured.
        colored::control::set_override(may_colour && std::io::stdout().is_terminal());
        let stored_kinds = custom::kinds_in(&state_path(globals.state.as_ref()));
        CommandContext {
            kinds: stored_kinds.layer(),
            stored_kinds,
            globals,
            manager: FieldManager { name: "kubectl".to_owned(), subresource: "" },
            api: None,
            unmade: None,
            may_be_new: false,
            printed: 0,
            warning,
            warned: Vec::new(),
            default_namespace: OnceCell::new(),
        }
    }

    /// The kinds that the command knows: those of the cluster, and those that its manifests define.
    pub fn kinds(&self) -> &KindRegistry {
        &self.kinds
    }

    /// The options of a write.
    pub fn options(&self, validation: FieldValidation, dry_run: DryRun) -> WriteOptions {
        let manager = Some(self.manager.clone());
        WriteOptions { field_validation: validation, dry_run: dry_run != DryRun::None, manager, api_version: None }
    }

    /// The namespace that is asked for, or the one that is used when none is.
    pub fn namespace(&self) -> &str {
        let asked = self.globals.namespace.as_deref().filter(|name| !name.is_empty());
        asked.unwrap_or_else(|| self.default_namespace())
    }

    /// The namespace that is used when none is asked for.
    pub fn default_namespace(&self) -> &str {
        self.default_namespace.get_or_init(|| context_settings::default_namespace(&self.state()))
    }

    /// Keeps the namespace that is used when none is asked for; an empty one for `default`.
    pub fn set_default_namespace(&mut self, namespace: &str) -> CliResult {
        let problems = if namespace.is_empty() { Vec::new() } else { kinds::names::label(namespace) };
        if let Some(problem) = problems.first() {
            return Err(Failure::plain(format!("invalid namespace {namespace:?}: {problem}")));
        }
        // The cluster comes first: its folder is made with care.
        self.api()?;
        context_settings::set_default_namespace(&self.state(), namespace)?;
        self.default_namespace = OnceCell::new();
        Ok(())
    }

    /// Gives the cluster's context another name, by which `--context` and `--cluster` mean it.
    pub fn rename_context(&mut self, name: &str) -> CliResult {
        self.api()?;
        Ok(context_settings::set_context_name(&self.state(), name)?)
    }

    /// The namespace to use for a kind: none where it has none.
    pub fn namespace_of(&self, kind: &Kind) -> &str {
        if kind.namespaced { self.namespace() } else { "" }
    }

    /// Returns the path of the state.
    pub fn state(&self) -> PathBuf {
        state_path(self.globals.state.as_ref())
    }

    /// The API, opened at the first use. A cluster that does not exist yet is made.
    pub fn api(&mut self) -> CliResult<&mut Api> {
        if self.api.is_none() {
            self.api = Some(opened(&self.state(), OpenMode::Create, &self.stored_kinds)?);
        }
        self.api.as_mut().ok_or_else(|| Failure::plain("the state could not be opened"))
    }

    /// The API for a change that is tried or made. Trying makes no cluster: where there is none yet, the change is tried on a new one
    /// in memory.
    pub fn api_for(&mut self, is_tried: bool) -> CliResult<&mut Api> {
        if is_tried && self.existing()?.is_none() { self.unmade() } else { self.api() }
    }

    /// From here on a place that has not even a folder is no mistake: the verb makes the cluster there.
    pub fn may_be_new(&mut self) {
        self.may_be_new = true;
    }

    /// Makes writes that do not need each other, and tells what came of each; several are one transaction. Those that are only tried
    /// are undone one by one: none sees what another would have done.
    pub fn write_each<I, T, E: From<Status>>(
        &mut self,
        is_tried: bool,
        items: impl IntoIterator<Item = I>,
        mut write: impl FnMut(&mut dyn Transaction, &I) -> Result<T, E>,
        mut tell: impl FnMut(&mut CommandContext, I, Result<T, E>),
    ) -> CliResult {
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            for (item, outcome) in self.api_for(is_tried)?.write_next(is_tried, &mut items, &mut write) {
                tell(self, item, outcome);
            }
        }
        Ok(())
    }

    /// A cluster that was not made yet, as it will look when it is new.
    fn unmade(&mut self) -> CliResult<&mut Api> {
        if self.unmade.is_none() {
            self.unmade = Some(Api::in_memory("kloop")?);
        }
        self.unmade.as_mut().ok_or_else(|| Failure::plain("the state could not be opened"))
    }

    /// The API when there is a cluster: looking something up makes none.
    pub fn existing(&mut self) -> CliResult<Option<&mut Api>> {
        if self.api.is_none() {
            match opened(&self.state(), OpenMode::Existing, &self.stored_kinds) {
                Err(OpenError::Absent { .. }) => return Ok(None),
                api => self.api = Some(api?),
            }
        }
        Ok(self.api.as_mut())
    }

    /// Opens the cluster anew: its file may have been replaced since.
    pub fn reopen(&mut self) -> CliResult {
        if self.api.take().is_none() {
            return Ok(());
        }
        let path = self.state();
        self.stored_kinds = custom::kinds_in(&path);
        self.kinds = self.stored_kinds.layer();
        self.existing()?.map(drop).ok_or_else(|| OpenError::Absent { path }.into())
    }

    /// Takes the API out, for the verb that needs it whole.
    pub fn take_api(&mut self) -> CliResult<Api> {
        self.api()?;
        self.api.take().ok_or_else(|| Failure::plain("the state could not be opened"))
    }

    /// Looks at the state in one snapshot. Looking makes nothing: a cluster that does not exist yet looks as it will when it is new,
    /// but a place that was named and has not even a folder is taken for a mistake by verbs that do not make one.
    pub fn read_view<T>(
        &mut self,
        look: impl FnOnce(&dyn Transaction) -> crate::apiserver::ApiResult<T>,
    ) -> CliResult<T> {
        if let Some(api) = self.existing()? {
            return Ok(api.read_view(look)?);
        }
        let path = self.state();
        let folder = std::path::absolute(&path).ok().and_then(|path| path.parent().map(Path::to_owned));
        if !self.may_be_new && path != store::default_path() && !folder.is_some_and(|folder| folder.is_dir()) {
            return Err(OpenError::Absent { path }.into());
        }
        Ok(self.unmade()?.read_view(look)?)
    }

    /// Now.
    pub fn now(&self) -> Time {
        Time::now()
    }

    /// Writes text to standard output: as it is, but for what would steer a terminal.
    pub fn print(&mut self, text: &str) -> CliResult {
        match std::io::stdout().is_terminal() {
            true => self.print_styled(&crate::show::escape::text(text)),
            false => self.print_styled(text),
        }
    }

    /// Writes text to standard output that has colours of kloop's own; everything else in it was escaped before.
    pub fn print_styled(&mut self, text: &str) -> CliResult {
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Machine(
                74,
                format!("cannot write to standard output: {error}", error = io_error_text(error)),
            )),
            written => Ok(written?),
        }
    }

    /// Writes one line to standard output.
    pub fn print_line(&mut self, line: &str) -> CliResult {
        self.print(&format!("{line}\n"))
    }

    /// Tells something beside the results, on standard error.
    pub fn print_notice(&mut self, line: &str) {
        eprintln!("{}", crate::show::escape::text(line));
    }

    /// Warns, as kubectl shows the server's warnings.
    pub fn warn(&mut self, warnings: &[String]) {
        for warning in warnings {
            if self.warned.contains(warning) {
                continue;
            }
            self.warned.push(warning.clone());
            eprintln!("{} {}", self.warning, crate::show::escape::text(warning));
        }
    }

    /// Warns of a kind that has a successor.
    pub fn warn_of(&mut self, kind: &Kind) {
        let warning = kind.deprecated.map(str::to_owned);
        self.warn(warning.as_slice());
    }

    /// The end of the command: says what failed, gives the exit code.
    pub fn finish(&mut self, outcome: CliResult) -> ExitCode {
        let Err(failure) = outcome else { return ExitCode::SUCCESS };
        let text = failure.to_string();
        if !text.is_empty() {
            let mut err = std::io::stderr().lock();
            // A closed standard error leaves nobody to tell.
            drop(writeln!(err, "{}", crate::show::escape::text(&text)));
        }
        ExitCode::from(failure.code())
    }

    /// Does what is left to do once the user was answered.
    pub fn tidy(&mut self) {
        self.api.iter_mut().for_each(Api::tidy);
    }

    /// `configmap/settings`, `deployment.apps/web`.
    pub fn name_of(&self, kind: &Kind, object: &Object) -> String {
        format!("{}/{}", kind.qualified_singular(), object.name())
    }
}
