//! One compilation in four steps.
//!
//! (a) Clang's front end makes bitcode without optimising it: struct types, field accesses and calls are all still there. This
//! is what is embedded. (b) Clang optimises it. (c) The hooks are put in, here. (d) Clang makes the object. Steps (b) and (d)
//! together do what clang does in one, with the same options.

use std::fs;
use std::path::{Path, PathBuf};

use crashproof_llvm::{Context, Module};
use crashproof_sites::ObjectTable;

use super::jobs::{Job, Makes};
use super::{clang, say, steps};
use crate::embed::{self, Form};
use crate::error::at;
use crate::frontend::FrontEnd;
use crate::instrument::instrument;
use crate::{CompileError, helpers, inline_definitions};

pub(super) struct Compilation<'a> {
    pub job: &'a Job,
    /// For the site table: with it, the object can be made again.
    pub command: Vec<String>,
    /// Repair mode: nothing is inlined.
    pub repair: bool,
    /// A folder of this compilation's own, to be made.
    pub scratch: PathBuf,
}

impl Compilation<'_> {
    pub(super) fn run(&self) -> Result<(), CompileError> {
        fs::create_dir(&self.scratch).map_err(|source| CompileError::File {
            what: "make the temporary folder",
            path: self.scratch.clone(),
            source,
        })?;
        let makes = self.job.makes().unwrap_or(Makes::Object);
        let [front, optimised, instrumented] =
            ["front.bc", "optimised.bc", "instrumented.bc"].map(|name| self.scratch.join(name));
        self.clang(steps::front_end(self.job, self.repair, &front))?;
        if self.repair {
            self.define_inline_functions(&front)?;
        }
        self.clang(steps::optimise(self.job, &front, &optimised))?;
        self.instrument(makes, &front, &optimised, &instrumented)?;
        let output = self.job.output().unwrap_or("-".as_ref());
        self.clang(steps::generate(self.job, makes, &instrumented, output))
    }

    fn clang(&self, arguments: Vec<std::ffi::OsString>) -> Result<(), CompileError> {
        let status = clang::run(&self.job.program, &arguments, &self.scratch)?;
        if status.success() {
            return Ok(());
        }
        Err(CompileError::Clang {
            status: clang::code(status),
        })
    }

    /// Step (b) would inline none of them, and (d) drop them all.
    fn define_inline_functions(&self, front: &Path) -> Result<(), CompileError> {
        let context = Context::create();
        let mut module = self.read(&context, front)?;
        match inline_definitions::make_real(&mut module) {
            true => module.write_bitcode(front).map_err(at("write", front)),
            false => Ok(()),
        }
    }

    /// Step (c).
    fn instrument(&self, makes: Makes, front: &Path, optimised: &Path, output: &Path) -> Result<(), CompileError> {
        let mut table = self.table(front)?;
        let (front_end, judged) = {
            let context = Context::create();
            let mut module = self.read(&context, front)?;
            (FrontEnd::read(&mut module), helpers::judge(&mut module))
        };
        let context = Context::create();
        let mut module = self.read(&context, optimised)?;
        table.source = self.source(&module);
        table.sites = instrument(&mut module, &front_end, table.object);
        if let Err(reason) = module.verify() {
            say(
                "warning",
                &format!(
                    "{}: instrumented, it would be invalid code; please report this. It is compiled without, and recorded by faults as \
                     unmodified code is. LLVM says: {}",
                    table.source,
                    reason.trim_end()
                ),
            );
            module = self.read(&context, optimised)?;
            table.sites.clear();
        }
        (table.types, table.calls) = front_end.finish();
        let form = match makes {
            Makes::Assembly => Form::Text,
            Makes::Object | Makes::Bitcode => Form::File,
        };
        embed::embed(&module, front, &table, &judged, &self.scratch, form)?;
        module.write_bitcode(output).map_err(at("write", output))
    }

    fn read<'context>(&self, context: &'context Context, path: &Path) -> Result<Module<'context>, CompileError> {
        context.read_bitcode(path).map_err(|reason| CompileError::Bitcode {
            source_file: self.input(),
            reason,
        })
    }

    fn input(&self) -> String {
        self.job
            .input()
            .map(|(_, input)| input.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// The source as the command names it; of bitcode, what it was made from.
    fn source(&self, module: &Module) -> String {
        match self.job.input() {
            Some((language, _)) if language == "ir" => module.source_file_name().to_owned(),
            _ => self.input(),
        }
    }

    /// What is known before the code is looked at.
    fn table(&self, front: &Path) -> Result<ObjectTable, CompileError> {
        let bitcode = fs::read(front).map_err(|source| CompileError::File {
            what: "read",
            path: front.into(),
            source,
        })?;
        let directory = std::env::current_dir().map_err(|source| CompileError::File {
            what: "find the current folder from",
            path: ".".into(),
            source,
        })?;
        let words = self.command.iter().flat_map(|word| [word.as_bytes(), &[0]]);
        Ok(ObjectTable {
            object: hash(std::iter::once(&bitcode[..]).chain(words)),
            directory: directory.to_string_lossy().into_owned(),
            command: self.command.clone(),
            ..ObjectTable::default()
        })
    }
}

/// FNV-1a: the same in every build of crashproof, so that a compilation is reproducible.
fn hash<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u64 {
    parts.flatten().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
