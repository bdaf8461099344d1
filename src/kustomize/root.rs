//! Files of a kustomization: paths relative to its folder, and limits on the reachable paths.

use super::BuildResult;
use std::path::{Component, Path, PathBuf};

/// Access to files for a build.
pub trait FileAccess {
    /// Resolves an absolute path including links. The error is the system's.
    fn find(&self, path: &Path) -> Result<FoundPath, String>;
    /// Reads a file.
    fn read(&self, path: &Path) -> Result<Vec<u8>, String>;
    /// Returns an absolute path.
    fn absolute(&self, path: &Path) -> PathBuf;
    /// Whether a kustomization may read files outside its folder.
    fn unrestricted(&self) -> bool {
        false
    }
}

/// A file or folder, as an absolute path without links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundPath {
    /// A folder.
    Folder(PathBuf),
    /// A path that is not a folder.
    File(PathBuf),
}

/// The folder of a kustomization.
#[derive(Clone)]
pub struct KustomizationRoot {
    /// Absolute path without links.
    pub at: PathBuf,
    /// Path as the user would write it.
    pub shown: PathBuf,
    /// Path from the folder that is built; empty for that folder.
    path_from_top: PathBuf,
    /// The folders of the kustomizations that include this one.
    above: Vec<PathBuf>,
}

/// A file that was read.
pub struct FileText {
    /// Path as the user would write it.
    pub shown: PathBuf,
    /// Its path.
    pub at: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The possible names of a kustomization file.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

impl KustomizationRoot {
    /// Opens the folder that the user named.
    pub fn first(files: &dyn FileAccess, folder: &str) -> BuildResult<KustomizationRoot> {
        if is_remote(folder) {
            return Err(remote(folder));
        }
        let at = files.absolute(Path::new(folder));
        let at = confirmed(files, &at, folder)?;
        Ok(KustomizationRoot { at, shown: normal(Path::new(folder)), path_from_top: PathBuf::new(), above: Vec::new() })
    }

    /// Opens the folder of a base or a component.
    pub fn enter(&self, files: &dyn FileAccess, path: &str) -> BuildResult<KustomizationRoot> {
        if Path::new(path).is_absolute() {
            return Err(format!("new root '{path}' cannot be absolute"));
        }
        let full = normal(&self.at.join(path));
        let at = confirmed(files, &full, &full.display().to_string())?;
        if let Some(visited) = std::iter::once(&self.at).chain(&self.above).find(|visited| visited.starts_with(&at)) {
            return Err(format!(
                "cycle detected: candidate root '{}' contains visited root '{}'",
                at.display(),
                visited.display()
            ));
        }
        let above = std::iter::once(&self.at).chain(&self.above).cloned().collect();
        Ok(KustomizationRoot {
            at,
            shown: normal(&self.shown.join(path)),
            path_from_top: self.path_from_top_to(path),
            above,
        })
    }

    /// Converts a path relative to this folder to one relative to the folder that is built.
    pub fn path_from_top_to(&self, path: &str) -> PathBuf {
        normal(&self.path_from_top.join(path))
    }

    /// Reads the folder's kustomization file.
    pub fn kustomization(&self, files: &dyn FileAccess) -> BuildResult<FileText> {
        let is_file = |name: &&&str| matches!(files.find(&self.at.join(name)), Ok(FoundPath::File(_)));
        let found: Vec<&&str> = NAMES.iter().filter(is_file).collect();
        match found[..] {
            [name] => self.read(files, name),
            [] => Err(format!(
                "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
                self.at.display()
            )),
            _ => Err(format!("Found multiple kustomization files under: {}", self.at.display())),
        }
    }

    /// Resolves an entry of `resources`: a file, or a folder with its own kustomization.
    pub fn find(&self, files: &dyn FileAccess, path: &str) -> BuildResult<FoundPath> {
        if is_remote(path) {
            return Err(remote(path));
        }
        let full = normal(&self.at.join(path));
        let shown = full.display();
        files.find(&full).map_err(|why| format!("evalsymlink failure on '{shown}' : {why}"))
    }

    /// Reads a file that the kustomization names.
    pub fn read(&self, files: &dyn FileAccess, path: &str) -> BuildResult<FileText> {
        let at = match self.find(files, path)? {
            FoundPath::File(at) => at,
            FoundPath::Folder(at) => return Err(format!("'{}' must resolve to a file", at.display())),
        };
        if !files.unrestricted() && !at.starts_with(&self.at) {
            let full = normal(&self.at.join(path));
            let (full, root) = (full.display(), self.at.display());
            return Err(format!("security; file '{full}' is not in or below '{root}'"));
        }
        let bytes = files.read(&at)?;
        Ok(FileText { shown: normal(&self.shown.join(path)), at, bytes })
    }
}

fn confirmed(files: &dyn FileAccess, full: &Path, named: &str) -> BuildResult<PathBuf> {
    match files.find(full) {
        Ok(FoundPath::Folder(at)) => Ok(at),
        Ok(FoundPath::File(_)) => Err(format!("must build at directory: '{named}': file is not directory")),
        Err(why) => {
            Err(format!("must build at directory: not a valid directory: evalsymlink failure on '{named}' : {why}"))
        }
    }
}

/// Whether a path is remote: a repository or a URL.
fn is_remote(path: &str) -> bool {
    let hosts = ["github.com/", "gitlab.com/", "bitbucket.org/", "git@", "git::"];
    path.contains("://") || path.contains("?ref=") || hosts.iter().any(|host| path.starts_with(host))
}

fn remote(path: &str) -> String {
    format!("'{path}' is remote: kloop reads no manifests over the network; download it first")
}

/// Removes `.` and resolves `..` as far as possible without the file system.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(normal.components().next_back(), Some(Component::Normal(_))) => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    if normal.as_os_str().is_empty() { PathBuf::from(".") } else { normal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized() {
        for (path, expected) in [
            ("a/./b/../c", "a/c"),
            ("../a", "../a"),
            ("a/../../b", "../b"),
            ("/a/../b/", "/b"),
            ("a/..", "."),
            ("./a", "a"),
        ] {
            assert_eq!(normal(Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn remote_paths_are_recognized() {
        for path in ["https://example.com/a.yaml", "github.com/a/b//c?ref=v1", "git@github.com:a/b", "../a?ref=1"] {
            assert!(is_remote(path), "{path}");
        }
        for path in ["../base", "a.yaml", "github", "./github.com"] {
            assert!(!is_remote(path), "{path}");
        }
    }
}
