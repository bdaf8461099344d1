//! `kloop debug`: adds an ephemeral container to a pod, makes a changed copy of a pod, or starts a
//! pod on a node.
//!
//! Start reading at [`run`]; `shape` builds the containers and pods, `profile` sets what a
//! debugging profile requires.

mod profile;
mod shape;

use super::cluster::deadline::Deadline;
use super::cluster::one_pod::{self, SessionOptions};
use super::cluster::targets::locate;
use super::manifests::files::{self, FileFlags};
use super::manifests::{input, key_changes};
use super::{CliResult, CommandContext, Failure, attach};
use crate::apiserver::create::create;
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::object_parts::EPHEMERAL_CONTAINERS;
use crate::apiserver::patch::{PatchType, patch, patched};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::UpdatePart;
use crate::apiserver::{WriteOptions, read};
use crate::kinds::{self, Kind};
use crate::object::{Key, Object, io_error_text, yaml};
use crate::runtime::session::DetachKeys;
use serde_json::{Map, Value, json};

/// Debug cluster resources using interactive debugging containers.
///
/// 'debug' provides automation for common debugging tasks for cluster objects identified by resource and name. Pods will be used
/// by default if no resource is specified. A container is added to a running pod, or to a changed
/// copy of it with --copy-to. For a node, a pod is started that has the host's files at /host.
#[derive(clap::Args)]
#[command(
    override_usage = "(POD | TYPE[[.VERSION].GROUP]/NAME) [ -- COMMAND [args...] ]",
    after_help = "\
# Create an interactive debugging session in pod mypod and immediately attach to it
kloop debug mypod -it --image=busybox

# Create a debug container named debugger using a custom automated debugging image
kloop debug --image=myproj/debug-tools -c debugger mypod

# Create a copy of mypod adding a debug container and attach to it
kloop debug mypod -it --image=busybox --copy-to=my-debugger

# Create a copy of mypod changing the command of mycontainer
kloop debug mypod -it --copy-to=my-debugger --container=mycontainer -- sh

# Create a copy of mypod changing all container images to busybox
kloop debug mypod --copy-to=my-debugger --set-image=*=busybox

# Create an interactive debugging session on a node and immediately attach to it; the host's files are at /host
kloop debug node/mynode -it --image=busybox"
)]
pub struct Args {
    /// POD or TYPE/NAME.
    words: Vec<String>,
    /// If specified, everything after -- will be passed to the new container as Args instead of Command.
    #[arg(long)]
    arguments_only: bool,
    /// If true, wait for the container to start running, and then attach as if 'kloop attach ...' were called. Default false,
    /// unless '-i/--stdin' is set, in which case the default is true.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    attach: Option<bool>,
    /// Container name to use for debug container.
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// Create a copy of the target Pod with this name.
    #[arg(long, value_name = "NAME")]
    copy_to: Option<String>,
    /// Path to a JSON or YAML file containing a partial container spec to customize built-in debug profiles.
    #[arg(long, value_name = "FILE")]
    custom: Option<String>,
    /// Environment variables to set in the container.
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// Filename of the manifests of the objects to debug.
    #[arg(short, long = "filename", value_name = "FILE", value_delimiter = ',')]
    filenames: Vec<String>,
    /// Container image to use for debug container.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The image pull policy for the container.
    #[arg(long, value_name = "POLICY")]
    image_pull_policy: Option<String>,
    #[command(flatten)]
    keep: profile::CopyOptions,
    /// Options are "legacy", "general", "baseline", "restricted", "netadmin" or "sysadmin".
    #[arg(long, default_value = "general", value_name = "PROFILE")]
    profile: String,
    /// If true, suppress informational messages.
    #[arg(short, long)]
    quiet: bool,
    /// When used with '--copy-to', delete the original Pod.
    #[arg(long)]
    replace: bool,
    /// When used with '--copy-to', schedule the copy of target Pod on the same node.
    #[arg(long)]
    same_node: bool,
    /// When used with '--copy-to', a list of name=image pairs for changing container images, similar to how 'kloop set image'
    /// works.
    #[arg(long, value_delimiter = ',', value_name = "NAME=IMAGE")]
    set_image: Vec<String>,
    /// When used with '--copy-to', enable process namespace sharing in the copy.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    share_processes: Option<bool>,
    /// Keep stdin open on the container(s) in the pod, even if nothing is attached.
    #[arg(short = 'i', long)]
    stdin: bool,
    /// When using an ephemeral container, target processes in this container name.
    #[arg(long, value_name = "CONTAINER")]
    target: Option<String>,
    /// Allocate a TTY for the debugging container.
    #[arg(short, long)]
    tty: bool,
    /// The command of the container.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    check(&args, context)?;
    let pods = kinds::by_name("pods").ok_or_else(|| Failure::plain("there are no pods"))?;
    for (kind, key) in targets(&args, context)? {
        let name = key.name.to_string();
        let object = context.read_view(|txn| read::get(txn, &key))?;
        let (pod, container) = match kind.kind {
            "Pod" if args.copy_to.is_some() => copy(&args, pods, &object, context)?,
            "Pod" => add(&args, pods, &object, context)?,
            "Node" => {
                let (mut pod, container) = shape::for_node(&args, &name, context)?;
                customize(&args, pods, &mut pod, &container, "containers")?;
                (create_debug_pod(pods, pod, context)?, container)
            }
            _ => {
                return Err(Failure::plain(format!(
                    "\"{}, Kind={}\" not supported by debug",
                    kind.api_version(),
                    kind.kind
                )));
            }
        };
        if args.attach.unwrap_or(args.stdin) && !container.is_empty() {
            attach_when_started(&args, pods, &pod, &container, context)?;
        }
    }
    Ok(())
}

/// Returns the objects that are named by the arguments, and by the manifests of the files.
fn targets(args: &Args, context: &mut CommandContext) -> CliResult<Vec<(&'static Kind, Key)>> {
    let named = |word: &String| {
        let (kind, name) = one_pod::named(context.kinds(), word)?;
        Ok((kind, Key::new(kind.resource, context.namespace_of(kind), &name)))
    };
    let mut found = args.words.iter().map(named).collect::<CliResult<Vec<_>>>()?;
    if !args.filenames.is_empty() {
        let files = FileFlags { filenames: args.filenames.clone(), ..FileFlags::default() };
        let (manifests, failures) = files::read_for(context, &files, "debug")?;
        Failure::from_failures(failures)?;
        for manifest in &manifests {
            found.push(locate(context, manifest)?);
        }
    }
    Ok(found)
}

fn check(args: &Args, context: &mut CommandContext) -> CliResult {
    let no_image = args.image.is_none();
    let copies = args.copy_to.is_some();
    let refusal = match () {
        () if args.attach == Some(true) && no_image && args.container.is_none() => {
            "you must specify --container or create a new container using --image in order to attach."
        }
        () if copies && no_image && args.set_image.is_empty() && args.command.is_empty() => {
            "you must specify --image, --set-image or command arguments."
        }
        () if copies && !args.command.is_empty() && args.container.is_none() && no_image => {
            "you must specify an existing container or a new image when specifying args."
        }
        () if !copies && args.replace => "--replace may only be used with --copy-to.",
        () if !copies && args.same_node => "--same-node may only be used with --copy-to.",
        () if !copies && !args.set_image.is_empty() => "--set-image may only be used with --copy-to.",
        () if !copies && no_image => "you must specify --image when not using --copy-to.",
        () if args.words.is_empty() && args.filenames.is_empty() => "NAME or filename is required for debug",
        () if copies && args.target.is_some() => {
            "--target is incompatible with --copy-to. Use --share-processes instead."
        }
        () if args.tty && !args.stdin => "-i/--stdin is required for containers with -t/--tty=true",
        () => "",
    };
    if !refusal.is_empty() {
        return Err(Failure::plain(refusal));
    }
    if let Some(policy) = args.image_pull_policy.as_deref().filter(|policy| !shape::PULL_POLICIES.contains(policy)) {
        return Err(Failure::plain(format!("invalid image pull policy: {policy}")));
    }
    profile::check(&args.profile)?;
    if args.profile == "legacy" {
        context.print_notice(
            "--profile=legacy is deprecated and planned to be removed in v1.39. It is recommended to specify other profile, for example \"--profile=general\".",
        );
    }
    match args.target.as_ref().filter(|_| !args.quiet) {
        Some(target) => context.print_line(&format!(
            "Targeting container {target:?}. If you don't see processes from this container it may be because the container runtime doesn't support this feature."
        )),
        None => Ok(()),
    }
}

/// Adds an ephemeral container to a pod.
fn add(args: &Args, pods: &'static Kind, pod: &Object, context: &mut CommandContext) -> CliResult<(Object, String)> {
    let mut changed = pod.clone();
    let name = shape::add_ephemeral(args, &mut changed, context)?;
    profile::apply(args, &mut changed, &name, profile::DebugStyle::Ephemeral);
    customize(args, pods, &mut changed, &name, "ephemeralContainers")?;
    warn_of_user(&mut changed, &name, context);
    let added = changed.items(&["spec", "ephemeralContainers"]).to_vec();
    let change = json!({"spec": {"ephemeralContainers": added}});
    let key = key_of(pods, pod);
    let part = UpdatePart::Of(&EPHEMERAL_CONTAINERS);
    let options = WriteOptions::default();
    let reply =
        context.api()?.write(false, |txn| patch(txn, pods, &key, PatchType::Strategic, &change, part, &options))?;
    context.warn(&reply.warnings);
    Ok((reply.into_object(), name))
}

/// Makes a copy of a pod with one more container, or with a changed one.
fn copy(args: &Args, pods: &'static Kind, pod: &Object, context: &mut CommandContext) -> CliResult<(Object, String)> {
    let images = key_changes::parse(&args.set_image, "image", false)?.set;
    let (mut copied, name) = shape::copy(args, pod, &images, context)?;
    if !name.is_empty() {
        profile::apply(args, &mut copied, &name, profile::DebugStyle::Copy);
        customize(args, pods, &mut copied, &name, "containers")?;
        warn_of_user(&mut copied, &name, context);
    }
    let made = create_debug_pod(pods, copied, context)?;
    if args.replace {
        let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        context.api()?.write(false, |txn| delete(txn, pods, &key_of(pods, pod), &options))?;
    }
    Ok((made, name))
}

fn create_debug_pod(pods: &'static Kind, pod: Object, context: &mut CommandContext) -> CliResult<Object> {
    let reply = context.api()?.write(false, |txn| create(txn, pods, &pod, &WriteOptions::default()))?;
    context.warn(&reply.warnings);
    Ok(reply.into_object())
}

/// Warns that the user of the pod cannot use the rights that the profile gives the container.
fn warn_of_user(pod: &mut Object, container: &str, context: &mut CommandContext) {
    if profile::has_unusable_rights(pod, container) {
        let text = "Non-root user is configured for the entire target Pod, and some capabilities granted by debug profile may not work. \
                    Please consider using \"--custom\" with a custom profile that specifies \"securityContext.runAsUser: 0\".";
        context.warn(&[text.to_owned()]);
    }
}

/// `--custom`: the user's changes to the container that the profile made.
fn customize(args: &Args, pods: &Kind, pod: &mut Object, container: &str, list: &str) -> CliResult {
    let Some(path) = &args.custom else { return Ok(()) };
    let unread = |error: String| {
        Failure::plain(format!(
            "must pass a container spec json file for custom profile: {error}",
            error = io_error_text(error)
        ))
    };
    let text = input::read_to_string(path)
        .map_err(|error| unread(format!("open {path}: {error}", error = io_error_text(error))))?;
    let invalid = |why: String| Failure::plain(format!("{path} does not contain a valid container spec: {why}"));
    let documents = yaml::documents(&text).map_err(|error| invalid(error.to_string()))?;
    let mut custom: Map<String, Value> = match documents.into_iter().next().map(|document| document.value) {
        Some(Value::Object(custom)) => custom,
        _ => return Err(invalid("it is not a map".into())),
    };
    if ["name", "command", "image", "lifecycle", "volumeDevices"].iter().any(|field| custom.contains_key(*field)) {
        let text = "name, command, image, lifecycle and volume devices are not modifiable via custom profile";
        return Err(Failure::plain(text));
    }
    custom.insert("name".into(), container.into());
    let change = json!({"spec": {list: [custom]}});
    *pod = Object(patched(pods, pod, PatchType::Strategic, &change)?);
    Ok(())
}

/// Attaches to the new container once it runs, or prints its output if it has ended.
fn attach_when_started(
    args: &Args,
    pods: &Kind,
    pod: &Object,
    container: &str,
    context: &mut CommandContext,
) -> CliResult {
    let deadline = Deadline::with_control_plane(context, None)?;
    let key = key_of(pods, pod);
    let pod = loop {
        let found = context.read_view(|txn| read::get(txn, &key))?;
        let state = found.container_status(container).map(|status| &status["state"]);
        if state.is_some_and(|state| !state["running"].is_null() || !state["terminated"].is_null()) {
            break found;
        }
        let waits_for = state.and_then(|state| state["waiting"]["message"].as_str()).filter(|_| !args.quiet);
        let warning = waits_for.map(|message| format!("container {container}: {message}"));
        context.warn(warning.as_slice());
        deadline.wait();
    };
    attach::attach_from_start(
        &pod,
        container,
        SessionOptions { stdin: args.stdin, tty: args.tty, quiet: args.quiet, detach: DetachKeys::default() },
        context,
    )
}
