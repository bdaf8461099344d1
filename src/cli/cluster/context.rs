//! The environment of a verb: the global flags, the API, and the output streams.

use super::contexts::{self, ClusterChoice, ServerEntries};
use super::{change_cause, context_settings};
use crate::apiserver::api::ServerCopy;
use crate::apiserver::user::User;
use crate::apiserver::{Api, FieldValidation, Transaction, WriteOptions, custom, remote};
use crate::cli::command_line::dry_run::DryRun;
use crate::cli::command_line::program_name::in_own_words;
use crate::cli::output::progress_line::ProgressLine;
use crate::cli::{CliResult, Failure, Globals};
use crate::client::standard_error;
use crate::client::{ApiClient, ClientError, PluginPolicy, ServerConfig};
use crate::kinds::{Kind, KindRegistry};
use crate::managed_fields::FieldManager;
use crate::object::{Object, Status, Time, format_count};
use crate::store::{self, OpenError, OpenMode};
use colored::Colorize;
use serde_json::Value;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// The environment of one command.
pub struct CommandContext {
    /// The flags that every verb takes.
    pub globals: Globals,
    /// The cluster that they choose.
    cluster: ClusterChoice,
    /// The reason why they choose none.
    no_cluster: Option<Failure>,
    /// The client of the server that is used in place of the state file.
    client: Option<ApiClient>,
    /// Field manager: named after the verb, unless `--field-manager` is set.
    pub manager: FieldManager,
    api: Option<Api>,
    /// The kinds of the cluster.
    stored_kinds: KindRegistry,
    /// The cluster's kinds, and those that the command's own manifests define.
    kinds: KindRegistry,
    /// An empty cluster in memory, in place of a cluster that does not exist yet.
    placeholder: Option<Api>,
    /// Whether the verb creates the cluster, even in a folder that does not exist.
    allow_new_cluster: bool,
    /// The credential plugins that may run.
    pub plugin_policy: PluginPolicy,
    /// The command line, with `--record`: see [`CommandContext::record`].
    pub change_cause: Option<String>,
    /// Number of objects printed so far.
    pub printed: usize,
    /// The prefix of warnings, coloured if standard error is a terminal.
    warning: String,
    /// Warnings printed so far; each is printed only once.
    warned: Vec<String>,
    /// The warnings of the last build of a kustomization.
    build_warnings: Vec<String>,
    /// The line with the progress of long work.
    progress: ProgressLine,
    /// Name of the writer in the log of changes: the verb and the process.
    writer: String,
    /// The time of an earlier state that the command reads.
    past: Option<Time>,
    /// Result of [`context_settings::default_namespace`], read at the first use.
    default_namespace: OnceCell<String>,
}

impl CommandContext {
    /// Creates the context of a verb. Opens no state.
    pub fn new(globals: Globals, verb: &str) -> CommandContext {
        let (cluster, no_cluster) = match contexts::choose(&globals, verb) {
            Ok(cluster) => (cluster, None),
            Err(failure) => (ClusterChoice::without_context(store::default_path()), Some(failure)),
        };
        let may_colour = std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty());
        colored::control::set_override(may_colour && std::io::stderr().is_terminal());
        let warning = "Warning:".yellow().to_string();
        // From here on, colours depend on standard output.
        colored::control::set_override(may_colour && std::io::stdout().is_terminal());
        let stored_kinds = custom::kinds_in(&cluster.state);
        CommandContext {
            kinds: stored_kinds.layer(),
            stored_kinds,
            globals,
            cluster,
            no_cluster,
            client: None,
            manager: FieldManager { name: "kubectl".to_owned(), subresource: "" },
            api: None,
            placeholder: None,
            allow_new_cluster: false,
            change_cause: None,
            plugin_policy: PluginPolicy::default(),
            printed: 0,
            warning,
            warned: Vec::new(),
            build_warnings: Vec::new(),
            progress: ProgressLine::new(),
            writer: "kloop".to_owned(),
            past: None,
            default_namespace: OnceCell::new(),
        }
    }

    /// Names the writer in the log of changes by the verb and this process, so that the changes of different commands are distinguishable.
    pub fn name_writer(&mut self, verb: &str) {
        self.writer = format!("kloop {verb}#{}", std::process::id());
    }

    /// Notes that the command reads an earlier state, of this time.
    pub fn read_past(&mut self, at: Time) {
        self.past = Some(at);
    }

    /// Whether the command reads an earlier state.
    pub fn reads_past(&self) -> bool {
        self.past.is_some()
    }

    /// The kinds that the command knows: the cluster's, and those that its manifests define.
    pub fn kinds(&self) -> &KindRegistry {
        &self.kinds
    }

    /// The options of a write.
    pub fn options(&self, validation: FieldValidation, dry_run: DryRun) -> WriteOptions {
        let manager = Some(self.manager.clone());
        let dry_run = dry_run != DryRun::None;
        WriteOptions { field_validation: validation, dry_run, manager, ..WriteOptions::default() }
    }

    /// With `--record`, writes the command line into an annotation of an object that is sent.
    pub fn record(&self, object: &mut Object) {
        change_cause::record(self.change_cause.as_deref(), object);
    }

    /// The namespace of `--namespace`, else the default namespace.
    pub fn namespace(&self) -> &str {
        let requested = self.globals.namespace.as_deref().filter(|name| !name.is_empty());
        requested.unwrap_or_else(|| self.default_namespace())
    }

    /// The namespace that commands use without `--namespace`.
    pub fn default_namespace(&self) -> &str {
        let chosen = || self.cluster.namespace.clone();
        self.default_namespace
            .get_or_init(|| chosen().unwrap_or_else(|| context_settings::default_namespace(&self.cluster.state)))
    }

    /// Returns the context that the file of contexts has chosen.
    pub fn context_in_file(&self) -> Option<&str> {
        self.cluster.context.as_deref()
    }

    /// Takes the reason why the flags choose no cluster.
    pub fn take_missing_cluster(&mut self) -> Option<Failure> {
        self.no_cluster.take()
    }

    /// Takes the entries of the server that the flags or the context choose.
    pub fn take_server(&mut self) -> Option<ServerEntries> {
        self.cluster.server.take()
    }

    /// Uses a server in place of the state file.
    pub fn connect(&mut self, config: ServerConfig) -> CliResult {
        let client = ApiClient::new(config).map_err(|error| Failure::plain(error.to_string()))?;
        self.stored_kinds = remote::kinds_of(&client, warn_about_definitions);
        self.kinds = self.stored_kinds.layer();
        self.cluster.state = PathBuf::from(":memory:");
        (self.api, self.client) = (None, Some(client));
        Ok(())
    }

    /// Copies the objects of a server, for verbs that read a whole state. Returns the kinds that were listed, with the revisions of their
    /// lists. A state file needs no copy.
    pub fn copy_server_objects(&mut self) -> CliResult<Vec<(&'static Kind, String)>> {
        if self.client.is_none() {
            return Ok(Vec::new());
        }
        let ServerCopy { forbidden, listed } = self.api()?.copy_objects()?;
        if !forbidden.is_empty() {
            let names: Vec<&str> = forbidden.iter().map(|kind| kind.resource.plural()).collect();
            self.print_notice(&format!(
                "hint: this user may not list {}; they are treated as absent",
                names.join(", ")
            ));
        }
        Ok(listed)
    }

    /// The client of the server that is used in place of a state file.
    pub fn client(&self) -> Option<&ApiClient> {
        self.client.as_ref()
    }

    /// Reads the lists of a server in pages of this size (`--chunk-size`); 0 for whole lists.
    pub fn set_chunk_size(&self, size: i64) {
        if let Some(client) = &self.client {
            client.set_page_size(u32::try_from(size).unwrap_or_default());
        }
    }

    /// Returns the client of the server, for commands that run with a server only.
    pub fn require_client(&self) -> CliResult<ApiClient> {
        self.client.clone().ok_or_else(no_server)
    }

    /// Returns the cluster behind a server, for commands that run with a server only.
    pub fn require_remote(&mut self) -> CliResult<&remote::RemoteCluster> {
        self.api()?.remote().ok_or_else(no_server)
    }

    /// The folder of the cluster on this machine, with files of its processes; `None` without a cluster, and for a server.
    pub fn home(&mut self) -> CliResult<Option<PathBuf>> {
        if self.client.is_some() {
            return Ok(None);
        }
        Ok(self.existing()?.map(|api| api.store().home().to_owned()))
    }

    /// Returns the flags by which another command works with this cluster.
    pub fn cluster_arguments(&self) -> CliResult<Vec<OsString>> {
        if self.client.is_some() {
            return Ok(self.globals.server_arguments());
        }
        Ok(vec!["--state".into(), std::path::absolute(self.state())?.into()])
    }

    /// Returns the path of the state file, or the URL of the server.
    pub fn cluster_place(&self) -> CliResult<String> {
        match &self.client {
            Some(client) => Ok(client.config().address.to_string()),
            None => Ok(std::path::absolute(self.state())?.display().to_string()),
        }
    }

    /// Stores the default namespace of the state file; an empty one means `default`.
    pub fn set_default_namespace(&mut self, namespace: &str) -> CliResult {
        // Create the cluster first, so that its folder gets the right permissions.
        self.api()?;
        context_settings::set_default_namespace(&self.state(), namespace)?;
        self.default_namespace = OnceCell::new();
        Ok(())
    }

    /// Renames the cluster's context, for `--context` and `--cluster`.
    pub fn rename_context(&mut self, name: &str) -> CliResult {
        self.api()?;
        Ok(context_settings::set_context_name(&self.state(), name)?)
    }

    /// The namespace for a kind; empty for cluster-scoped kinds.
    pub fn namespace_of(&self, kind: &Kind) -> &str {
        if kind.namespaced { self.namespace() } else { "" }
    }

    /// Opens this state from now on.
    pub fn use_state(&mut self, state: PathBuf) {
        self.stored_kinds = custom::kinds_in(&state);
        self.kinds = self.stored_kinds.layer();
        self.cluster = ClusterChoice::without_context(state);
        self.api = None;
    }

    /// Returns the path of the state.
    pub fn state(&self) -> PathBuf {
        self.cluster.state.clone()
    }

    /// The user as whom the command acts: the administrator, or the one of `--as`.
    pub fn user(&self) -> Arc<User> {
        Arc::new(self.acting_user().unwrap_or_else(User::administrator))
    }

    /// Whether the command acts as another user (`--as`).
    pub fn is_impersonating(&self) -> bool {
        self.acting_user().is_some()
    }

    fn acting_user(&self) -> Option<User> {
        if self.client.is_some() {
            // The server makes the requests those of the other user.
            return None;
        }
        if let Some(name) = self.globals.as_user.as_deref().filter(|name| !name.is_empty()) {
            let uid = self.globals.as_uid.as_deref().unwrap_or_default();
            return Some(User::impersonated(name, uid, &self.globals.as_group, self.globals.user_extra()));
        }
        let field = |field: &str| self.cluster.user.get(field);
        let text = |name: &str| field(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let groups = field("as-groups").and_then(Value::as_array).into_iter().flatten();
        let groups: Vec<String> = groups.filter_map(|group| Some(group.as_str()?.to_owned())).collect();
        Some(User::impersonated(text("as")?, text("as-uid").unwrap_or_default(), &groups, BTreeMap::new()))
    }

    /// Opens the state. Prints a hint when another process delays a write.
    fn open_api(&self, mode: OpenMode) -> Result<Api, OpenError> {
        if let Some(client) = &self.client {
            let timeout = self.globals.request_timeout().unwrap_or_default();
            return Ok(Api::with_server(client.clone(), timeout)?.with_kinds(&self.stored_kinds));
        }
        let mut api = Api::open(&self.state(), mode, &self.writer)?.with_kinds(&self.stored_kinds);
        api.on_wait(|busy| {
            let holder = busy.holder().unwrap_or_default();
            standard_error::print_line(format_args!(
                "hint: waiting to write to the cluster's file: {}",
                crate::show::escape::text(&holder)
            ));
        });
        if let Some(user) = self.acting_user() {
            api.act_as(Arc::new(user));
        }
        Ok(api)
    }

    /// The API, opened at the first use. Creates a missing cluster.
    pub fn api(&mut self) -> CliResult<&mut Api> {
        if self.api.is_none() {
            self.api = Some(self.open_api(OpenMode::Create)?);
        }
        self.api.as_mut().ok_or_else(|| Failure::plain("the state could not be opened"))
    }

    /// The API for a change or a dry run. A dry run creates no cluster: if there is none, it uses a
    /// new one in memory.
    pub fn api_for(&mut self, is_tried: bool) -> CliResult<&mut Api> {
        if is_tried && self.existing()?.is_none() { self.placeholder() } else { self.api() }
    }

    /// Lets the verb create the cluster, even in a folder that does not exist.
    pub fn allow_new_cluster(&mut self) {
        self.allow_new_cluster = true;
    }

    /// Makes independent writes and passes each outcome to `report`. Several writes share a
    /// transaction. Dry runs are undone one by one, so that they do not affect each other.
    pub fn write_each<I, T, E: From<Status>>(
        &mut self,
        is_tried: bool,
        items: impl IntoIterator<Item = I>,
        mut write: impl FnMut(&mut dyn Transaction, &I) -> Result<T, E>,
        mut report: impl FnMut(&mut CommandContext, I, Result<T, E>),
    ) -> CliResult {
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            for (item, outcome) in self.api_for(is_tried)?.write_next(is_tried, &mut items, &mut write) {
                report(self, item, outcome);
            }
        }
        Ok(())
    }

    /// A new, empty cluster in memory, in place of a cluster that does not exist yet.
    fn placeholder(&mut self) -> CliResult<&mut Api> {
        if self.placeholder.is_none() {
            self.placeholder = Some(Api::in_memory("kloop")?);
        }
        self.placeholder.as_mut().ok_or_else(|| Failure::plain("the state could not be opened"))
    }

    /// The API if there is a cluster. Creates none.
    pub fn existing(&mut self) -> CliResult<Option<&mut Api>> {
        if self.api.is_none() {
            match self.open_api(OpenMode::Existing) {
                Err(OpenError::Absent { .. }) => return Ok(None),
                api => self.api = Some(api?),
            }
        }
        Ok(self.api.as_mut())
    }

    /// The API of the cluster; an error that names the remedy if there is none.
    pub fn require_existing(&mut self) -> CliResult<&mut Api> {
        let path = self.state();
        self.existing()?.ok_or_else(|| OpenError::Absent { path }.into())
    }

    /// Closes and opens the cluster again, because its file may have been replaced. A server stays the same.
    pub fn reopen(&mut self) -> CliResult {
        if self.client.is_some() || self.api.take().is_none() {
            return Ok(());
        }
        let path = self.state();
        self.stored_kinds = custom::kinds_in(&path);
        self.kinds = self.stored_kinds.layer();
        self.existing()?.map(drop).ok_or_else(|| OpenError::Absent { path }.into())
    }

    /// Moves the API out, for a verb that needs ownership.
    pub fn take_api(&mut self) -> CliResult<Api> {
        self.api()?;
        self.api.take().ok_or_else(|| Failure::plain("the state could not be opened"))
    }

    /// Reads the state in one snapshot. Creates nothing: a missing cluster reads as a new one.
    /// Fails if `--state` or `$KLOOP_STATE` names a file in a missing folder, unless the verb
    /// creates the cluster.
    pub fn read_view<T>(
        &mut self,
        look: impl FnOnce(&dyn Transaction) -> crate::apiserver::ApiResult<T>,
    ) -> CliResult<T> {
        Ok(self.viewed_api()?.read_view(look)?)
    }

    /// The API to read from: of the cluster, or of an empty one where the first write would make the cluster.
    fn viewed_api(&mut self) -> CliResult<&Api> {
        if self.existing()?.is_some() {
            return Ok(self.api()?);
        }
        let path = self.state();
        if let Some(address) = store::read_replica_address(&path).filter(|_| !self.allow_new_cluster) {
            return Err(OpenError::Absent { path: address.into() }.into());
        }
        let folder = std::path::absolute(&path).ok().and_then(|path| path.parent().map(Path::to_owned));
        if !self.allow_new_cluster && path != store::default_path() && !folder.is_some_and(|folder| folder.is_dir()) {
            return Err(OpenError::Absent { path }.into());
        }
        Ok(self.placeholder()?)
    }

    /// Returns the current time, or that of the earlier state that the command reads.
    pub fn now(&self) -> Time {
        self.clock()()
    }

    /// Returns a function with the result of [`CommandContext::now`], for use while the context is borrowed.
    pub fn clock(&self) -> impl Fn() -> Time + use<> {
        let past = self.past;
        move || past.unwrap_or_else(Time::now)
    }

    /// Writes text to standard output. On a terminal, control sequences are escaped.
    pub fn print(&mut self, text: &str) -> CliResult {
        match std::io::stdout().is_terminal() {
            true => self.print_styled(&crate::show::escape::text(text)),
            false => self.print_styled(text),
        }
    }

    /// Writes text with kloop's own colours to standard output. Callers have escaped control
    /// sequences.
    pub fn print_styled(&mut self, text: &str) -> CliResult {
        let covers_progress = self.progress.is_shown() && std::io::stdout().is_terminal();
        if covers_progress {
            self.progress.erase();
        }
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        if covers_progress && text.ends_with('\n') {
            self.progress.redraw();
        }
        written.map_err(Failure::writing)
    }

    /// Writes one line to standard output.
    pub fn print_line(&mut self, line: &str) -> CliResult {
        self.print(&format!("{line}\n"))
    }

    /// Prints a line on standard error.
    pub fn print_notice(&mut self, line: &str) {
        self.progress.erase();
        standard_error::print_line(format_args!("{}", crate::show::escape::text(&in_own_words(line))));
    }

    /// Prints the API server's warnings as kubectl does.
    pub fn warn(&mut self, warnings: &[String]) {
        for warning in warnings {
            if self.warned.contains(warning) {
                continue;
            }
            self.warned.push(warning.clone());
            self.progress.erase();
            standard_error::print_line(format_args!("{} {}", self.warning, crate::show::escape::text(warning)));
        }
    }

    /// Prints the warnings of a kustomization, unless they are those of the build before.
    pub fn print_build_warnings(&mut self, warnings: Vec<String>) {
        if self.build_warnings != warnings {
            warnings.iter().for_each(|warning| self.print_notice(warning));
            self.build_warnings = warnings;
        }
    }

    /// With `--warnings-as-errors`, fails when the command has warned.
    pub fn check_warnings(&self) -> CliResult {
        match self.warned.len() {
            count if count > 0 && self.globals.warnings_as_errors => {
                Err(Failure::plain(format!("{} received", format_count(count, "warning"))))
            }
            _ => Ok(()),
        }
    }

    /// Prints the warning of a deprecated kind.
    pub fn warn_of_deprecation(&mut self, kind: &Kind) {
        let warning = kind.deprecated.map(str::to_owned);
        self.warn(warning.as_slice());
    }

    /// Shows how far long work is, if standard error is a terminal and the work takes longer than a moment.
    pub fn show_progress(&mut self, text: impl FnOnce() -> String) {
        self.progress.show(text);
    }

    /// Removes the line of [`CommandContext::show_progress`] at the end of the work.
    pub fn end_progress(&mut self) {
        self.progress.end();
    }

    /// Prints the command's failure and returns its exit code.
    pub fn finish(&mut self, outcome: &CliResult) -> ExitCode {
        self.progress.end();
        let Err(failure) = outcome else { return ExitCode::SUCCESS };
        let text = failure.to_string();
        if !text.is_empty() {
            let mut err = std::io::stderr().lock();
            // If standard error is closed, the message is lost.
            let remedy = failure.remedy().map(|remedy| format!("\n{remedy}")).unwrap_or_default();
            drop(writeln!(err, "{}", crate::show::escape::text(&in_own_words(&format!("{text}{remedy}")))));
        }
        ExitCode::from(failure.code())
    }

    /// Compacts the log of changes now and then, after the command has printed its result.
    pub fn tidy(&mut self) {
        self.api.iter_mut().for_each(Api::tidy);
    }

    /// Returns `configmap/settings` or `deployment.apps/web`.
    pub fn name_of(&self, kind: &Kind, object: &Object) -> String {
        format!("{}/{}", kind.qualified_singular(), object.name())
    }
}

fn no_server() -> Failure {
    Failure::plain("internal error: this command needs a server")
}
/// Warns that the server's custom kinds could not be read, so that commands do not know their names.
fn warn_about_definitions(error: &ClientError) {
    standard_error::print_line(format_args!(
        "warning: cannot read the CustomResourceDefinitions of the server, so that only built-in kinds are known: {error}"
    ));
}
