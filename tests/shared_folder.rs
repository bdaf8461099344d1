//! Folders next to the repository: manifests of other projects, and recordings of a real Kubernetes.

use std::path::PathBuf;

/// Returns a folder below `part` (`corpus` or `golden`) of the shared folder; prints that the caller's test is skipped when it does not
/// exist.
pub fn find_shared_folder(part: &str, name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("KLOOP_SHARED").map(PathBuf::from);
    let beside = shared.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"));
    let folder = beside.join(part).join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    skip!("no folder {} (set KLOOP_SHARED to the folder that has {part}/)", folder.display());
    None
}
