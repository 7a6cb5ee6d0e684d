//! The copies in which the program is built and run.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::copy::{CopyError, Survey};
use crate::interrupt;
use crate::paths::{InTree, SourcePath, WorkingCopy, plain};

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
    /// Its path has no symbolic links, as those in debug info and recordings.
    Temporary {
        path: PathBuf,
        _directory: tempfile::TempDir,
    },
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
    pub fn copy(&self, name: &str) -> Result<WorkingCopy, WorkspaceError> {
        let root = self.scratch().join(name);
        self.survey.copy_to(&root)?;
        Ok(WorkingCopy::new(root, self.tree.clone(), &self.folder))
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

    /// An absolute path in the tree.
    fn inside(&self, path: &Path) -> Option<SourcePath> {
        let inside = |path: &Path| SourcePath::of(&self.tree, path);
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
        let path = folder.path().canonicalize().map_err(|source| WorkspaceError::Scratch {
            folder: folder.path().to_owned(),
            source,
        })?;
        Ok(Scratch::Temporary {
            path,
            _directory: folder,
        })
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
            Scratch::Temporary { path, .. } => path,
            Scratch::Kept(path) => path,
        }
    }
}
