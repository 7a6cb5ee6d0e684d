//! The whole-program view of the bitcode that `crashproof cc` embeds: all modules of a binary and its shared libraries linked into
//! one, the call graph, the types and the sites.
//!
//! Linking follows what the linker and the loader did: internal symbols stay apart, of inline functions and templates one copy
//! stays, hidden symbols end at the border of a library, and of a symbol that two libraries define, the first in the loader's order
//! counts. A module that cannot be linked is named and left out.

#![forbid(unsafe_code)]

mod calls;
mod libraries;
mod link;
mod overview;
pub mod pointers;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crashproof_llvm::{Context, Module};
use crashproof_sites::{ModuleSites, SitesError, read_bitcode};

pub use calls::CallGraph;
pub use overview::Overview;

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error(transparent)]
    Sites(#[from] SitesError),
    #[error(
        "{} holds no bitcode: neither it nor a library of it was built by crashproof cc; build it with CC='crashproof cc'",
        path.display()
    )]
    NoBitcode { path: PathBuf },
}

/// A program, from its bitcode.
pub struct Program<'context> {
    pub module: Module<'context>,
    /// The binary and those of its libraries that have bitcode.
    pub files: Vec<(PathBuf, ModuleSites)>,
    /// What could not be had: libraries that were not found, modules that were left out, each with the reason.
    pub warnings: Vec<String>,
}

impl<'context> Program<'context> {
    /// A program that is this module.
    pub fn of(module: Module<'context>) -> Program<'context> {
        Program {
            module,
            files: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub fn load(binary: &Path, context: &'context Context) -> Result<Program<'context>, ProgramError> {
        let (paths, missing) = libraries::closure(binary);
        let mut program = Program::of(context.create_module("program"));
        let missing = missing.iter();
        program.warnings = missing
            .map(|name| format!("the library {name} was not found"))
            .collect();
        let mut linked: BTreeSet<u64> = BTreeSet::new();
        for (index, path) in paths.into_iter().enumerate() {
            let read = read_bitcode(&path).and_then(|bitcode| Ok((bitcode, ModuleSites::read(&path)?)));
            let (bitcode, sites) = match read {
                Ok((bitcode, Some(sites))) => (bitcode, sites),
                Ok(_) => continue,
                // The binary is what was asked for; a library is an extra.
                Err(error) if index == 0 => return Err(error.into()),
                Err(error) => {
                    program.warnings.push(error.to_string());
                    continue;
                }
            };
            let mut file = context.create_module(&path.to_string_lossy());
            for object in bitcode.iter().filter(|object| linked.insert(object.object)) {
                let source = sites.objects().iter().find(|table| table.object == object.object);
                let name = source.map_or_else(|| format!("object {:#x}", object.object), |table| table.source.clone());
                if let Err(reason) = link::add_object(&mut file, &object.bytes, context) {
                    program
                        .warnings
                        .push(format!("{name} ({}) is left out: {reason}", path.display()));
                }
            }
            link::close_library(&file, &program.module);
            if let Err(reason) = program.module.link_in(file) {
                program
                    .warnings
                    .push(format!("{} is left out: {reason}", path.display()));
            }
            program.files.push((path, sites));
        }
        match program.files.is_empty() {
            true => Err(ProgramError::NoBitcode { path: binary.into() }),
            false => Ok(program),
        }
    }

    /// The libraries of the binary whose code is not in the module, in the loader's order.
    pub fn other_libraries(&self) -> Vec<PathBuf> {
        let Some((binary, _)) = self.files.first() else {
            return Vec::new();
        };
        let (mut paths, _) = libraries::closure(binary);
        paths.retain(|path| !self.files.iter().any(|(with_bitcode, _)| with_bitcode == path));
        paths
    }

    pub fn call_graph(&self) -> CallGraph {
        CallGraph::of(&self.module)
    }
}
