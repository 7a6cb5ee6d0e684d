//! The copies in which the program is built and run, and how paths of a copy and of the user's tree correspond.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::copy::{CopyError, Survey};
use crate::interrupt;

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error("the source tree {} cannot be used: {source}; name the folder with the program's source by --source", path.display())]
    Source { path: PathBuf, source: std::io::Error },
    #[error("cannot make a temporary folder in {}: {source}; set TMPDIR, or name a folder with --keep", folder.display())]
    Scratch { folder: PathBuf, source: std::io::Error },
    #[error("the folder {} of --keep is not empty; name a new one", path.display())]
    KeepNotEmpty { path: PathBuf },
    #[error(
        "cannot find {name} beside this program; build it with `make build`, and keep the programs of crashproof together"
    )]
    Sibling { name: &'static str },
}

/// The user's source tree, and where copies of it go.
pub struct Workspace {
    /// Absolute, without links.
    tree: PathBuf,
    /// Where the user is in it: there the commands are run.
    folder: PathBuf,
    /// Where the user is.
    here: PathBuf,
    survey: Survey,
    scratch: Scratch,
    /// The folder with the programs of crashproof.
    pub programs: PathBuf,
}

enum Scratch {
    Temporary(tempfile::TempDir),
    Kept(PathBuf),
}

impl Workspace {
    pub fn new(source: &Path, keep: Option<&Path>) -> Result<Workspace, WorkspaceError> {
        let wrong = |source_error| WorkspaceError::Source {
            path: source.into(),
            source: source_error,
        };
        let tree = source.canonicalize().map_err(wrong)?;
        let here = std::env::current_dir()
            .and_then(|path| path.canonicalize())
            .map_err(wrong)?;
        let scratch = match keep {
            None => Scratch::temporary()?,
            Some(path) => Scratch::kept(path)?,
        };
        let own = std::env::current_exe().ok();
        let programs = own.and_then(|own| own.parent().map(Path::to_owned)).unwrap_or_default();
        let workspace = Workspace {
            folder: here.strip_prefix(&tree).map(Path::to_owned).unwrap_or_default(),
            survey: Survey::of(&tree, scratch.path())?,
            tree,
            here,
            scratch,
            programs,
        };
        workspace.link_programs()?;
        Ok(workspace)
    }

    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Build folders that are not in the copies.
    pub fn left_out(&self) -> &[PathBuf] {
        &self.survey.left_out
    }

    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// `crashproof`, `crashproof-cc` and `crashproof-c++`, for every build.
    pub fn bin(&self) -> PathBuf {
        self.scratch().join("bin")
    }

    /// `cc`, `gcc` and so on, all of them `crashproof-cc`: for builds that name a compiler instead of asking `$CC`.
    pub fn compilers(&self) -> PathBuf {
        self.scratch().join("compilers")
    }

    fn link_programs(&self) -> Result<(), WorkspaceError> {
        let failed = |source| WorkspaceError::Scratch {
            folder: self.scratch().into(),
            source,
        };
        let sibling = |name: &'static str| {
            let path = self.programs.join(name);
            path.is_file().then_some(path).ok_or(WorkspaceError::Sibling { name })
        };
        let compiler = sibling("crashproof-cc")?;
        let link =
            |folder: PathBuf, name: &str, to: &Path| std::os::unix::fs::symlink(to, folder.join(name)).map_err(failed);
        fs::create_dir_all(self.bin()).map_err(failed)?;
        fs::create_dir_all(self.compilers()).map_err(failed)?;
        link(self.bin(), "crashproof", &sibling("crashproof")?)?;
        for name in ["crashproof-cc", "crashproof-c++"] {
            link(self.bin(), name, &compiler)?;
        }
        for name in ["cc", "gcc", "clang", "c++", "g++", "clang++"] {
            link(self.compilers(), name, &compiler)?;
        }
        Ok(())
    }

    /// A new copy of the tree.
    pub fn copy(&self, name: &str) -> Result<Copy, WorkspaceError> {
        let root = self.scratch().join(name);
        self.survey.copy_to(&root)?;
        Ok(Copy {
            work: root.join(&self.folder),
            root,
            tree: self.tree.clone(),
        })
    }

    /// The command as it is to be run in a copy: what is in the tree is named by its place in it. Relative paths are relative to the folder
    /// where the user is, or, if that is not in the tree, to the tree; only the program may then still be named from there.
    pub fn command(&self, command: &[OsString]) -> Vec<InTree> {
        let in_tree = |(index, word): (usize, &OsString)| {
            let path = Path::new(word);
            let is_program = index == 0 && word.as_encoded_bytes().contains(&b'/');
            let inside = match path.is_relative() {
                true if is_program && !self.here.starts_with(&self.tree) => self.inside(&plain(&self.here.join(path))),
                true => None,
                false => self.inside(path),
            };
            inside.map_or_else(|| InTree::Word(word.clone()), InTree::Path)
        };
        command.iter().enumerate().map(in_tree).collect()
    }

    /// An absolute path in the tree, relative to it.
    pub fn inside(&self, path: &Path) -> Option<PathBuf> {
        let inside = |path: &Path| path.strip_prefix(&self.tree).map(Path::to_owned).ok();
        inside(path).or_else(|| {
            // By another name; the file need not be there yet.
            let folder = path.is_absolute().then(|| path.parent()?.canonicalize().ok())??;
            inside(&folder.join(path.file_name()?))
        })
    }
}

impl Scratch {
    fn temporary() -> Result<Scratch, WorkspaceError> {
        let made = tempfile::Builder::new().prefix("crashproof-repair-").tempdir();
        let folder = made.map_err(|source| WorkspaceError::Scratch {
            folder: std::env::temp_dir(),
            source,
        })?;
        interrupt::remove_at_end(folder.path());
        Ok(Scratch::Temporary(folder))
    }

    fn kept(path: &Path) -> Result<Scratch, WorkspaceError> {
        let failed = |source| WorkspaceError::Scratch {
            folder: path.into(),
            source,
        };
        fs::create_dir_all(path).map_err(failed)?;
        if fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(WorkspaceError::KeepNotEmpty { path: path.into() });
        }
        Ok(Scratch::Kept(path.canonicalize().map_err(failed)?))
    }

    fn path(&self) -> &Path {
        match self {
            Scratch::Temporary(folder) => folder.path(),
            Scratch::Kept(path) => path,
        }
    }
}

/// A word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InTree {
    Word(OsString),
    /// Relative to the tree.
    Path(PathBuf),
}

/// Without `.` and `..`; the path need not exist.
pub fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// A copy of the user's tree.
pub struct Copy {
    root: PathBuf,
    tree: PathBuf,
    /// Where commands are run.
    pub work: PathBuf,
}

impl Copy {
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn words(&self, command: &[InTree]) -> Vec<OsString> {
        let word = |word: &InTree| match word {
            InTree::Word(word) => word.clone(),
            InTree::Path(path) => self.root.join(path).into(),
        };
        command.iter().map(word).collect()
    }

    /// The file that a command starts, if it is in the copy (or is named by a path at all).
    pub fn program(&self, words: &[OsString]) -> Option<PathBuf> {
        let first: &OsStr = words.first()?;
        let named = first.as_encoded_bytes().contains(&b'/');
        named.then(|| plain(&self.work.join(first)))
    }

    /// Text that names files of the copy, as it names those of the user's tree.
    pub fn to_tree(&self, text: &str) -> String {
        replace_path(text, &self.root.to_string_lossy(), &self.tree.to_string_lossy())
    }

    /// The other way round.
    pub fn text_from_tree(&self, text: &str) -> String {
        replace_path(text, &self.tree.to_string_lossy(), &self.root.to_string_lossy())
    }

    /// As [`Copy::to_tree`], for JSON, where a path may need escapes.
    pub fn json_to_tree(&self, json: &str) -> String {
        let escaped = |path: &Path| {
            let text = serde_json::Value::from(path.to_string_lossy()).to_string();
            text[1..text.len() - 1].to_owned()
        };
        replace_path(json, &escaped(&self.root), &escaped(&self.tree))
    }

    pub fn path_to_tree(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root)
            .map_or_else(|_| path.to_owned(), |inside| self.tree.join(inside))
    }

    /// A path of the tree in the copy. What was built elsewhere is recognised by the end of its path.
    pub fn path_from_tree(&self, path: &Path) -> PathBuf {
        if let Ok(inside) = path.strip_prefix(&self.tree) {
            return self.root.join(inside);
        }
        if path.is_relative() {
            return self.root.join(path);
        }
        if path.exists() {
            return path.to_owned();
        }
        let mut rest = path.components();
        while rest.next().is_some() {
            let inside = self.root.join(rest.as_path());
            if !rest.as_path().as_os_str().is_empty() && inside.is_file() {
                return inside;
            }
        }
        path.to_owned()
    }
}

/// Replaces `from` where it is a whole path or the beginning of one.
fn replace_path(text: &str, from: &str, to: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let goes_on = after.starts_with(|c: char| c.is_alphanumeric() || "_-+~".contains(c));
        result.push_str(before);
        result.push_str(if goes_on { from } else { to });
        rest = after;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_are_replaced() {
        let replaced = |text| replace_path(text, "/tmp/r/after", "/home/u/app");
        assert_eq!(replaced("/tmp/r/after/a.c:3: error"), "/home/u/app/a.c:3: error");
        assert_eq!(replaced("in /tmp/r/after: no"), "in /home/u/app: no");
        assert_eq!(replaced("/tmp/r/after-2/a.c"), "/tmp/r/after-2/a.c");
        assert_eq!(
            replaced("-I/tmp/r/after -L/tmp/r/after/lib"),
            "-I/home/u/app -L/home/u/app/lib"
        );
    }

    #[test]
    fn paths_of_other_machines_are_found_by_their_end() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("src")).unwrap();
        fs::write(root.path().join("src/log.c"), "").unwrap();
        let copy = Copy {
            work: root.path().into(),
            root: root.path().into(),
            tree: "/home/u/app".into(),
        };
        let here = root.path().join("src/log.c");
        for path in ["/home/u/app/src/log.c", "/build/7/app/src/log.c", "src/log.c"] {
            assert_eq!(copy.path_from_tree(Path::new(path)), here, "{path}");
        }
        assert_eq!(
            copy.path_from_tree(Path::new("/build/7/other.c")),
            Path::new("/build/7/other.c")
        );
        assert_eq!(copy.path_to_tree(&here), Path::new("/home/u/app/src/log.c"));
    }

    #[test]
    fn dots_go_away() {
        assert_eq!(plain(Path::new("/a/./b/../c")), Path::new("/a/c"));
        assert_eq!(plain(Path::new("/../a")), Path::new("/a"));
    }
}
