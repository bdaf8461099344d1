//! Files of a kustomization: names relative to its folder, and limits on which paths they may reach.

use super::BuildResult;
use std::path::{Component, Path, PathBuf};

/// The files that a build may ask for.
pub trait FileAccess {
    /// Resolves an absolute path, following links; the error is in the system's words.
    fn find(&self, path: &Path) -> Result<FoundPath, String>;
    /// The content of a file that was found.
    fn read(&self, path: &Path) -> Result<Vec<u8>, String>;
    /// A path as it is from the root of the file system.
    fn absolute(&self, path: &Path) -> PathBuf;
    /// Whether a kustomization may read files beside its folder.
    fn unrestricted(&self) -> bool {
        false
    }
}

/// The file or folder at an absolute path without links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundPath {
    /// A folder.
    Folder(PathBuf),
    /// Anything else.
    File(PathBuf),
}

/// The folder of a kustomization.
#[derive(Clone)]
pub struct KustomizationRoot {
    /// Absolute and without links.
    pub at: PathBuf,
    /// As the user would name it.
    pub shown: PathBuf,
    /// From the folder that is built; empty there.
    way: PathBuf,
    /// The folders of the kustomizations that lead here.
    above: Vec<PathBuf>,
}

/// A file that was read.
pub struct FileText {
    /// As the user would name it.
    pub shown: PathBuf,
    /// Its path.
    pub at: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The names that a kustomization file may have.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

impl KustomizationRoot {
    /// The folder that the user named.
    pub fn first(files: &dyn FileAccess, folder: &str) -> BuildResult<KustomizationRoot> {
        if is_remote(folder) {
            return Err(remote(folder));
        }
        let at = files.absolute(Path::new(folder));
        let at = confirmed(files, &at, folder)?;
        Ok(KustomizationRoot { at, shown: normal(Path::new(folder)), way: PathBuf::new(), above: Vec::new() })
    }

    /// The folder of a base or a component.
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
        Ok(KustomizationRoot { at, shown: normal(&self.shown.join(path)), way: self.way_to(path), above })
    }

    /// A path from here, as it is from the folder that is built.
    pub fn way_to(&self, path: &str) -> PathBuf {
        normal(&self.way.join(path))
    }

    /// The kustomization file of the folder.
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

    /// A file that the kustomization names.
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

/// Whether a name means something that has to be fetched: a repository or an address.
fn is_remote(path: &str) -> bool {
    let hosts = ["github.com/", "gitlab.com/", "bitbucket.org/", "git@", "git::"];
    path.contains("://") || path.contains("?ref=") || hosts.iter().any(|host| path.starts_with(host))
}

fn remote(path: &str) -> String {
    format!("'{path}' is remote: kloop reads no manifests over the network; download it first")
}

/// Without `.` and with `..` carried out where that needs no look at the files.
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
    fn names_are_made_plain() {
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
    fn remote_root_is_known_by_its_name() {
        for path in ["https://example.com/a.yaml", "github.com/a/b//c?ref=v1", "git@github.com:a/b", "../a?ref=1"] {
            assert!(is_remote(path), "{path}");
        }
        for path in ["../base", "a.yaml", "github", "./github.com"] {
            assert!(!is_remote(path), "{path}");
        }
    }
}
