//! `kloop up`: applies manifests, runs a control plane if none runs, waits with progress, and follows logs.
//!
//! Never: decides what is ready; `diagnosis` does. Start reading at [`run`]; [`session`] is one run, [`planes`] the control plane that it
//! starts.

pub mod planes;
mod report;
mod session;
mod view;

use super::address::FoundAddress;
use super::apply::{self, follow};
use super::cluster::targets;
use super::manifests::files::{self, FileFlags};
use super::{CliResult, CommandContext, Failure};
use crate::object::{Key, Time, format_count, io_error_text, time};
use crate::reconcile::leader;
use jiff::SignedDuration;
use planes::OwnPlane;
use session::{Session, UpEvent, UpSources, WaitEnd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use view::ProgressView;

/// Apply manifests, run them, and follow their logs.
///
/// Starts a control plane in this process if none runs, applies the manifests, and waits until everything is ready: with a line
/// for each workload, and the explanation of "kloop why" for each that fails. Then it follows the logs of all pods, also of
/// those that come later, and applies manifests again as they are saved. Objects that are taken out of the manifests are
/// deleted.
///
/// Ctrl-C ends the processes and the control plane that it started; the objects stay, and the next "kloop up" continues with
/// them. A second Ctrl-C kills the processes. "kloop down" deletes the objects.
///
/// Without files, the manifests of this folder are meant, or its kustomization.
///
/// Exit codes: 0 everything was ready, 1 something was not (with --wait) or could not be applied, 130 interrupted before
/// everything was ready.
#[derive(clap::Args)]
#[command(
    override_usage = "[FILE ... | -f FILENAME | -k DIRECTORY] [--wait | --detach]",
    after_help = "\
# Run the manifests of this folder until Ctrl-C
kloop up

# Run a folder, or a kustomization
kloop up ./deploy
kloop up -k ./overlays/dev

# Leave it running in the background, and end it later
kloop up --detach
kloop down

# In a script: return once everything is ready, or fail after a minute
kloop up --wait --timeout 1m

# In a CI job: with a report, and annotations on the changed files
kloop up --wait --junit report.xml --annotations github"
)]
pub struct Args {
    /// Files or folders of manifests, or a folder with a kustomization [default: this folder].
    #[arg(value_name = "FILE")]
    words: Vec<String>,
    #[command(flatten)]
    files: FileFlags,
    /// Leave the control plane running in the background, and return once the manifests are applied.
    #[arg(short, long)]
    detach: bool,
    /// Return once everything is ready, and leave the control plane running in the background.
    #[arg(long)]
    wait: bool,
    /// With --wait: maximum time until everything is ready.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: SignedDuration,
    /// With --wait: print the result as json.
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json"])]
    output: Option<String>,
    /// With --wait: write the result to this file as a JUnit test suite.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// With --wait: print an annotation for each object that is not ready, at its manifest: github.
    #[arg(long, value_name = "STYLE", value_parser = ["github"])]
    annotations: Option<String>,
}

/// Names of files that make a folder a kustomization.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Names of Compose files.
const COMPOSE_FILES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let (started, started_at) = (Instant::now(), Time::now());
    let reports = args.output.is_some() || args.junit.is_some() || args.annotations.is_some();
    if reports && !args.wait {
        return Err(Failure::plain("--output, --junit and --annotations need --wait"));
    }
    let files = choose_files(&args)?;
    context.allow_new_cluster();
    let is_quiet = args.output.is_some();
    let apply = apply::Args::for_up(files.clone(), is_quiet);
    let stays = args.wait || args.detach;
    let following = if stays || !can_be_watched(&files) { None } else { Some(follow::Following::start(&apply)?) };
    let (sender, events) = channel();
    let mut sources = UpSources { apply, following, plane: None, events, sender };
    Session::watch_manifests(&mut sources);
    let applied = follow::apply_first(&sources.apply, context)?;
    if let Some(following) = &mut sources.following {
        following.note_applied(applied.clone());
    }
    let detached = start_plane(stays, context, &mut sources)?;
    if args.detach && !args.wait {
        return print_detached(context, detached, is_quiet);
    }
    let interrupt = sources.sender.clone();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if interrupt.send(UpEvent::Interrupt).is_err() {
                std::process::exit(130);
            }
        }
    });
    let view = ProgressView::new(std::io::stdout().is_terminal());
    let session = Session::start(context, sources, &applied, view, started, started_at)?;
    match args.wait {
        true => wait(&args, &files, session, args.timeout.unsigned_abs(), detached),
        false => follow_until_interrupted(session),
    }
}

/// Returns the files of the command line, or those of this folder.
fn choose_files(args: &Args) -> CliResult<FileFlags> {
    let mut files = args.files.clone();
    files.filenames.extend(args.words.iter().cloned());
    if files.is_empty() {
        return find_manifests(Path::new(".")).ok_or_else(|| {
            let remedy = find_compose_file(Path::new(".")).map_or_else(
                || "name them (kloop up -f FILENAME), or go to their folder".to_owned(),
                |file| format!("kloop import {file} writes some"),
            );
            Failure::plain(format!("there are no manifests in this folder: {remedy}"))
        });
    }
    if let [folder] = &files.filenames[..]
        && files.kustomize.is_empty()
        && !files.recursive
        && is_kustomization(Path::new(folder))
    {
        files = FileFlags { kustomize: folder.clone(), ..FileFlags::default() };
    }
    files.required().map(|()| files)
}

fn is_kustomization(folder: &Path) -> bool {
    KUSTOMIZATIONS.iter().any(|name| folder.join(name).is_file())
}

/// Returns the manifests of a folder: its kustomization, else its YAML and JSON files.
pub fn find_manifests(folder: &Path) -> Option<FileFlags> {
    let name = folder.display().to_string();
    if is_kustomization(folder) {
        return Some(FileFlags { kustomize: name, ..FileFlags::default() });
    }
    let is_manifest = |path: &Path| {
        let is_named = path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|own| end == *own));
        // Other programs keep YAML files, too; a manifest names its kind.
        is_named && std::fs::read_to_string(path).is_ok_and(|text| text.contains("apiVersion") && text.contains("kind"))
    };
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let mut names: Vec<String> =
        entries.filter(|path| is_manifest(path)).map(|path| path.display().to_string()).collect();
    names.sort();
    (!names.is_empty()).then(|| FileFlags { filenames: names, ..FileFlags::default() })
}

/// Returns the name of a folder's Compose file.
pub fn find_compose_file(folder: &Path) -> Option<&'static str> {
    COMPOSE_FILES.into_iter().find(|name| folder.join(name).is_file())
}

/// Whether changes of these files can be seen: not of standard input and of addresses.
fn can_be_watched(files: &FileFlags) -> bool {
    files.filenames.iter().all(|name| name != "-" && !name.contains("://"))
}

/// Starts a control plane if none runs: in the background, or in this process. Returns the process ID of a control plane that it started in
/// the background.
fn start_plane(stays: bool, context: &mut CommandContext, sources: &mut UpSources) -> CliResult<Option<u32>> {
    let Some(home) = context.home()? else {
        // The server's cluster has one.
        return Ok(None);
    };
    if leader::read_leader(&home).is_some() {
        return Ok(None);
    }
    if stays {
        return planes::start_detached(context).map(Some);
    }
    sources.plane = OwnPlane::start(context)?;
    Ok(None)
}

fn print_detached(context: &mut CommandContext, detached: Option<u32>, is_quiet: bool) -> CliResult {
    if is_quiet {
        return Ok(());
    }
    let Some(home) = context.home()? else {
        context.print_notice(
            "hint: kloop why explains unready objects, kloop delete with the same files deletes the objects",
        );
        return Ok(());
    };
    if let Some(pid) = detached {
        let log = planes::log_file(&home);
        context.print_notice(&format!("the control plane runs in the background (pid {pid}, log {})", log.display()));
    }
    context.print_notice(
        "hint: kloop ps shows the processes, kloop why explains unready objects, kloop down stops everything",
    );
    Ok(())
}

/// Waits until everything is ready, and reports it.
fn wait(
    args: &Args,
    files: &FileFlags,
    mut session: Session<'_>,
    timeout: Duration,
    detached: Option<u32>,
) -> CliResult {
    let is_quiet = args.output.is_some();
    let ended = session.wait_until_ready(Some(timeout), is_quiet)?;
    let manifests = locate_manifests(files, session.context)?;
    let report = session.report(&manifests)?;
    if let Some(path) = &args.junit {
        std::fs::write(path, report.to_junit())
            .map_err(|error| Failure::plain(format!("cannot write {}: {}", path.display(), io_error_text(error))))?;
    }
    if args.annotations.is_some() && ended != WaitEnd::Interrupted {
        session.context.print_styled(&report.to_annotations())?;
    }
    if is_quiet {
        let text = serde_json::to_string_pretty(&report.to_json()).unwrap_or_default();
        session.context.print_line(&text)?;
    }
    match ended {
        WaitEnd::Ready if is_quiet => Ok(()),
        WaitEnd::Ready => {
            print_ready(&mut session)?;
            print_detached(session.context, detached, false)
        }
        WaitEnd::Interrupted => {
            stop_detached(session.context, detached)?;
            Err(Failure::Code(130))
        }
        WaitEnd::NotReady if is_quiet => Err(Failure::Code(1)),
        WaitEnd::NotReady => {
            let missing = report.objects.iter().filter_map(|object| Some((object, object.missing.as_ref()?)));
            let lines: Vec<String> = missing.map(|(object, missing)| format!("  {}: {missing}", object.name)).collect();
            let after = if report.elapsed >= timeout {
                format!(" after {}", time::format_duration(args.timeout))
            } else {
                String::new()
            };
            Err(Failure::plain(format!("not ready{after}:\n{}", lines.join("\n"))))
        }
    }
}

/// Returns the file and the line of each object's manifest.
fn locate_manifests(files: &FileFlags, context: &mut CommandContext) -> CliResult<HashMap<Key, (String, usize)>> {
    if files.filenames.iter().any(|name| name == "-") {
        return Ok(HashMap::new());
    }
    let (manifests, _) = files::read_for(context, files, "apply")?;
    let place = |manifest: &files::Manifest| {
        let (_, key) = targets::locate(context, manifest).ok()?;
        Some((key, (manifest.source.clone(), manifest.line)))
    };
    Ok(manifests.iter().filter_map(place).collect())
}

fn stop_detached(context: &mut CommandContext, detached: Option<u32>) -> CliResult {
    let Some(home) = context.home()? else { return Ok(()) };
    if let Some(plane) = detached.and_then(|_| planes::find_detached(&home)) {
        planes::stop_detached(&home, plane, Duration::from_secs(60));
        context.print_notice("stopped the control plane and the processes of its pods");
    }
    Ok(())
}

fn print_ready(session: &mut Session<'_>) -> CliResult {
    session.view.keep();
    let seconds = session.elapsed().as_secs_f64();
    session.context.print_line(&format!("ready in {seconds:.1}s"))?;
    for (name, FoundAddress { urls, hints }) in session.addresses() {
        session.context.print_line(&format!("{name} {}", urls.join(" ")))?;
        hints.iter().for_each(|hint| session.context.print_notice(hint));
    }
    Ok(())
}

/// Waits with progress, then follows logs until the user interrupts it, and ends what it has started.
fn follow_until_interrupted(mut session: Session<'_>) -> CliResult {
    let done = follow(&mut session);
    let stopped = session.stop();
    done?;
    let text = match stopped? {
        Some(pods) => {
            let ended = format!("ended the processes of {}", format_count(pods, "pod"));
            format!("{ended}; the objects stay: kloop up continues, kloop down deletes them")
        }
        None if session.context.client().is_some() => {
            "the objects stay at the server; kloop delete with the same files deletes them".to_owned()
        }
        None => "the control plane of another process continues; kloop down ends everything".to_owned(),
    };
    session.context.print_notice(&text);
    if session.was_ready { Ok(()) } else { Err(Failure::Code(130)) }
}

fn follow(session: &mut Session<'_>) -> CliResult {
    match session.wait_until_ready(None, false)? {
        WaitEnd::Interrupted => return Ok(()),
        WaitEnd::Ready => print_ready(session)?,
        WaitEnd::NotReady => session.view.keep(),
    }
    let text = match session.context.client() {
        Some(_) => "following logs and manifests; Ctrl-C ends that",
        None => "following logs; Ctrl-C ends everything that this command has started",
    };
    session.context.print_notice(text);
    session.follow()
}
