//! `kloop kustomize` and `-k`: builds a folder's kustomization ([`crate::kustomize`]) from the
//! files on this machine.

use super::output::progress_line::ProgressLine;
use super::{CliResult, CommandContext, Failure};
use crate::kustomize::{self as build, BuildResource, FileAccess, FoundPath};
use crate::object::{io_error_text, yaml};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The largest file, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Most files read for one kustomization. A file counts each time that it is read.
const MAX_READS: usize = 10_000;
/// Most bytes read for one kustomization, 64 MiB.
const MAX_READ: u64 = 64 << 20;

/// Build a kustomization target from a directory.
///
/// Build a set of KRM resources using a 'kustomization.yaml' file. The DIR argument must be a path to a directory containing
/// 'kustomization.yaml'. If DIR is omitted, '.' is assumed.
#[derive(clap::Args)]
#[command(
    override_usage = "DIR",
    after_help = "\
# Build the current working directory
kloop kustomize

# Build some shared configuration directory
kloop kustomize ./overlays/dev

# Apply it
kloop apply -k ./overlays/dev"
)]
pub struct Args {
    /// The folder of the kustomization.
    #[arg(value_name = "DIR", default_value = ".", hide_default_value = true)]
    folder: String,
    /// If specified, write output to this path: a file, or a folder that gets a file for each object.
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// If set to 'LoadRestrictionsNone', local kustomizations may load files from outside their root. This does, however, break
    /// the relocatability of the kustomization.
    #[arg(long, default_value = "LoadRestrictionsRootOnly", value_name = "NAME")]
    load_restrictor: String,
    #[command(flatten)]
    _plugins: PluginFlags,
}

/// Flags of kustomize for charts and plugins. They have no effect, because kloop runs neither; a kustomization that needs them is refused.
#[derive(clap::Args)]
struct PluginFlags {
    /// Use the uid and gid of the command executor to run functions. Accepted, because kloop runs none.
    #[arg(long)]
    as_current_user: bool,
    /// Enable kustomize plugins. Accepted, because kloop runs none.
    #[arg(long)]
    enable_alpha_plugins: bool,
    /// Enable the Helm chart inflator. Accepted, but charts are refused: render them with "helm template".
    #[arg(long)]
    enable_helm: bool,
    /// A list of environment variables to be used by functions. Accepted, because kloop runs none.
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// Kubernetes api versions used by Helm for Capabilities.APIVersions. Accepted, because kloop runs no Helm.
    #[arg(long, value_name = "VERSIONS")]
    helm_api_versions: Vec<String>,
    /// Path of the helm command. Accepted, because kloop runs no Helm.
    #[arg(long, default_value = "helm", value_name = "PATH")]
    helm_command: String,
    /// Enable debug output from the Helm chart inflator. Accepted, because kloop runs no Helm.
    #[arg(long)]
    helm_debug: bool,
    /// Kubernetes version used by Helm for Capabilities.KubeVersion. Accepted, because kloop runs no Helm.
    #[arg(long, value_name = "VERSION")]
    helm_kube_version: Option<String>,
    /// A list of storage options to be used by functions. Accepted, because kloop runs none.
    #[arg(long, value_name = "MOUNT")]
    mount: Vec<String>,
    /// Enable network access for functions that declare it. Accepted, because kloop runs none.
    #[arg(long)]
    network: bool,
    /// The network to run functions in. Accepted, because kloop runs none.
    #[arg(long, default_value = "bridge", value_name = "NAME")]
    network_name: String,
}

/// Access to the files of this machine. Records the folders that a build depends on.
struct DiskFiles {
    unrestricted: bool,
    folders: RefCell<BTreeSet<PathBuf>>,
    /// Remaining number of files and bytes. Kustomizations that each name two others double the
    /// reads with every level.
    remaining: Cell<(usize, u64)>,
    progress: RefCell<ProgressLine>,
}

impl DiskFiles {
    fn new(unrestricted: bool) -> DiskFiles {
        DiskFiles {
            unrestricted,
            folders: RefCell::default(),
            remaining: Cell::new((MAX_READS, MAX_READ)),
            progress: RefCell::new(ProgressLine::new()),
        }
    }
}

impl FileAccess for DiskFiles {
    fn find(&self, path: &Path) -> Result<FoundPath, String> {
        let at = path.canonicalize().map_err(|error| {
            let missing = missing(path);
            // The missing file may be created later: watch its folder.
            self.folders.borrow_mut().extend(missing.parent().filter(|folder| folder.is_dir()).map(Path::to_owned));
            format!("lstat {}: {}", missing.display(), io_error_text(error))
        })?;
        let is_folder = at.is_dir();
        let folder = if is_folder { Some(at.as_path()) } else { at.parent() };
        self.folders.borrow_mut().extend(folder.map(Path::to_owned));
        Ok(if is_folder { FoundPath::Folder(at) } else { FoundPath::File(at) })
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        let failed = |error| format!("open {}: {}", path.display(), io_error_text(error));
        let meta = path.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(format!("{} is not a file", path.display()));
        }
        if meta.len() > MAX_BYTES {
            return Err(format!("{} is larger than {MAX_BYTES} bytes", path.display()));
        }
        let (files, bytes) = self.remaining.get();
        let remaining = files.checked_sub(1).zip(bytes.checked_sub(meta.len()));
        self.remaining.set(remaining.ok_or_else(|| {
            format!(
                "the kustomization reads more than {MAX_READS} files or {} MiB (a file counts each time it is named)",
                MAX_READ >> 20
            )
        })?);
        let read = MAX_READS - files + 1;
        self.progress.borrow_mut().show(|| format!("kustomize: {read} files read"));
        std::fs::read(path).map_err(failed)
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }

    fn unrestricted(&self) -> bool {
        self.unrestricted
    }
}

/// The first part of a path that does not exist.
fn missing(path: &Path) -> &Path {
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    parts.into_iter().find(|part| part.symlink_metadata().is_err()).unwrap_or(path)
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let unrestricted = match args.load_restrictor.as_str() {
        "LoadRestrictionsNone" => true,
        "LoadRestrictionsRootOnly" => false,
        other => {
            return Err(Failure::plain(format!(
                "illegal flag value --load-restrictor {other}; legal values: [LoadRestrictionsRootOnly LoadRestrictionsNone]"
            )));
        }
    };
    let mut warnings = Vec::new();
    let built = build::build(&DiskFiles::new(unrestricted), &args.folder, &mut warnings);
    warnings.iter().for_each(|warning| context.print_notice(warning));
    let built = built.map_err(Failure::plain)?;
    match &args.output {
        Some(folder) if folder.is_dir() => {
            built.iter().try_for_each(|resource| write(&folder.join(file_name(resource)), &text(resource)))
        }
        Some(file) => write(file, &print_all(&built)),
        None => context.print(&print_all(&built)),
    }
}

fn write(path: &Path, text: &str) -> CliResult {
    std::fs::write(path, text)
        .map_err(|error| Failure::plain(format!("open {}: {}", path.display(), io_error_text(error))))
}

fn text(resource: &BuildResource) -> String {
    yaml::to_yaml(&resource.object.0)
}

fn print_all(resources: &[BuildResource]) -> String {
    resources.iter().map(text).collect::<Vec<_>>().join("---\n")
}

/// Returns `apps_v1_deployment_web.yaml`, with the namespace in front if there is one.
fn file_name(resource: &BuildResource) -> String {
    let object = &resource.object;
    let version = object.api_version().replace('/', "_");
    let parts = [object.namespace(), &version, object.kind(), object.name()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("_").to_lowercase().replace('/', "-") + ".yaml"
}

/// A build of a folder's kustomization.
pub struct FolderBuild {
    /// The objects, or the first error.
    pub resources: CliResult<Vec<BuildResource>>,
    /// Warnings about deprecated fields.
    pub warnings: Vec<String>,
    /// The folders that the build depends on, up to its first error.
    pub folders: Vec<PathBuf>,
}

/// Builds the kustomization of a folder.
pub fn build_folder(folder: &str) -> FolderBuild {
    let (disk, mut warnings) = (DiskFiles::new(false), Vec::new());
    let resources = build::build(&disk, folder, &mut warnings).map_err(Failure::plain);
    FolderBuild { resources, warnings, folders: disk.folders.into_inner().into_iter().collect() }
}
