//! `--deps`: beside the program that was linked, one that follows its dependences, from the bitcode that the program's objects have embedded; it
//! is put into the program, compressed and not loaded, and recorded in its place.
//!
//! Every object's bitcode is labelled and compiled by itself, so that what the linker was told of libraries, versions and order stays true: the
//! program is linked again by the same command, with those objects in place of the ones that they were made from. An object without bitcode
//! stays as it is, and what it does has no labels.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crashproof_interrupt as interrupt;
use crashproof_llvm::Context;
use crashproof_sites::{Bitcode, ModuleSites, ObjectTable, read_bitcode, tracked};

use super::jobs::Job;
use super::{clang, say};
use crate::dependences::{label, prepare};
use crate::embed::{self, Form};
use crate::frontend::FrontEnd;
use crate::instrument::instrument_further;
use crate::{CompileError, error::at, helpers, inline_definitions};

/// Whether the job links a program. (A shared library is loaded with it as it is.)
pub(super) fn links_program(job: &Job) -> bool {
    let name = Path::new(&job.program)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let is_linker = name == "ld" || name.starts_with("ld.") || name.ends_with("-ld") || name.contains("mold");
    is_linker
        && job.output().is_some()
        && !["-shared", "-r", "--shared", "-Bshareable"]
            .iter()
            .any(|kind| job.has(kind))
}

/// The program that a job has linked, with the other one in it.
pub(super) struct Tracking<'a> {
    pub link: &'a Job,
    pub clang: &'a Path,
    /// A folder of its own, to be made.
    pub scratch: PathBuf,
}

impl Tracking<'_> {
    pub(super) fn run(&self) -> Result<(), CompileError> {
        let program = Path::new(self.link.output().unwrap_or_default());
        let sites = |source| CompileError::Embedded {
            path: program.into(),
            source,
        };
        let bitcode = read_bitcode(program).map_err(sites)?;
        if bitcode.is_empty() {
            say(
                "warning",
                &format!(
                    "{}: nothing in it was built by crashproof cc, so no dependence can be followed",
                    program.display()
                ),
            );
            return Ok(());
        }
        fs::create_dir(&self.scratch).map_err(at("make the temporary folder", &self.scratch))?;
        let tables = ModuleSites::read(program).map_err(sites)?.unwrap_or_default();
        let within = match self.version(&bitcode, &tables) {
            // What was linked is the program, whole, so that a build goes on.
            Err(error @ (CompileError::Tracking { .. } | CompileError::Labels { .. }))
                if interrupt::received().is_none() =>
            {
                let program = program.display();
                say(
                    "warning",
                    &format!(
                        "{error}; {program} was linked without that version, so that nothing can be inferred from it"
                    ),
                );
                return Ok(());
            }
            within => within?,
        };
        let mut arguments = self.link.arguments.clone();
        arguments.push(within.into());
        let status = clang::run(&self.link.program, &arguments, &self.scratch)?;
        match status.success() {
            true => Ok(()),
            false => Err(CompileError::Clang {
                status: clang::code(status),
            }),
        }
    }

    /// The version that follows dependences, as an object to be linked into the program.
    fn version(&self, bitcode: &[Bitcode], tables: &ModuleSites) -> Result<PathBuf, CompileError> {
        let mut objects = Vec::with_capacity(bitcode.len());
        for (number, object) in bitcode.iter().enumerate() {
            if bitcode[..number].iter().any(|earlier| earlier.object == object.object) {
                continue;
            }
            let table = tables.objects().iter().find(|table| table.object == object.object);
            let table = table.cloned().unwrap_or_default();
            objects.push(self.object(number, &object.bytes, table)?);
        }
        let executable = self.scratch.join("tracking");
        self.link(&self.with_objects(&objects), &executable)?;
        self.section(&executable)
    }

    /// One object, labelled.
    fn object(&self, number: usize, bitcode: &[u8], mut table: ObjectTable) -> Result<PathBuf, CompileError> {
        let invalid = |reason: String| CompileError::Labels {
            source_file: table.source.clone(),
            reason,
        };
        // Types and fields are told by the code as it was.
        let (before, context) = (Context::create(), Context::create());
        let mut front = before.parse_bitcode(bitcode).map_err(invalid)?;
        let front_end = FrontEnd::read_with_loads(&mut front);
        let judged = helpers::judge(&mut front);
        let mut module = context.parse_bitcode(bitcode).map_err(invalid)?;
        inline_definitions::make_real(&mut module);
        prepare(&mut module).map_err(invalid)?;
        let sites = label(&mut module, &front_end, table.object);
        let sites = instrument_further(&mut module, &front_end, table.object, sites);
        module.verify().map_err(invalid)?;
        (table.types, table.calls) = front_end.finish();
        table.sites = sites;
        let folder = self.scratch.join(number.to_string());
        fs::create_dir(&folder).map_err(at("make the temporary folder", &folder))?;
        embed::embed_tables(&module, &table, &judged, &folder, Form::File)?;
        let [labelled, object] = ["labelled.bc", "labelled.o"].map(|name| folder.join(name));
        module.write_bitcode(&labelled).map_err(at("write", &labelled))?;
        // Nothing is optimised, but code is made for speed.
        let options = [
            "-c",
            "-O1",
            "-fPIC",
            "-Wno-override-module",
            "-Xclang",
            "-disable-llvm-passes",
            "-x",
            "ir",
        ];
        let mut arguments: Vec<OsString> = options.map(OsString::from).to_vec();
        arguments.extend([labelled.into(), "-o".into(), object.clone().into()]);
        self.process(self.clang.as_os_str(), &arguments)?;
        Ok(object)
    }

    /// The link's arguments with these objects in place of those that have bitcode. Archives stay: what they define is defined already where
    /// it was taken from them before.
    fn with_objects(&self, objects: &[PathBuf]) -> Vec<OsString> {
        let mut arguments = Vec::with_capacity(self.link.arguments.len() + objects.len());
        let mut place = None;
        for argument in &self.link.arguments {
            if is_object_with_bitcode(argument) {
                place.get_or_insert(arguments.len());
            } else {
                arguments.push(argument.clone());
            }
        }
        let library = |argument: &OsString| {
            let argument = argument.to_string_lossy();
            argument.ends_with(".a") || argument.starts_with("-l")
        };
        let place = place
            .or_else(|| arguments.iter().position(library))
            .unwrap_or(arguments.len());
        arguments.splice(place..place, objects.iter().map(OsString::from));
        arguments
    }

    fn link(&self, arguments: &[OsString], output: &Path) -> Result<(), CompileError> {
        let mut arguments = arguments.to_vec();
        if let Some(place) = arguments.iter().position(|argument| argument == "-o")
            && let Some(name) = arguments.get_mut(place + 1)
        {
            *name = output.into();
        }
        // By it, what was recorded is told from the program around it.
        if !arguments
            .iter()
            .any(|argument| argument.to_string_lossy().contains("-build-id"))
        {
            arguments.push("--build-id".into());
        }
        self.process(&self.link.program, &arguments)
    }

    /// An object with nothing but the section.
    fn section(&self, executable: &Path) -> Result<PathBuf, CompileError> {
        let content = fs::read(executable).map_err(at("read", executable))?;
        let [data, text, object] = ["deps", "deps.s", "deps.o"].map(|name| self.scratch.join(name));
        fs::write(&data, tracked::encode(&content)).map_err(at("write", &data))?;
        let assembly = format!(
            ".section {},\"\",@progbits\n.incbin \"{}\"\n.section .note.GNU-stack,\"\",@progbits\n",
            tracked::SECTION,
            embed::quoted(&data)
        );
        fs::write(&text, assembly).map_err(at("write", &text))?;
        let arguments = ["-c".into(), text.into(), "-o".into(), object.clone().into()];
        self.process(self.clang.as_os_str(), &arguments)?;
        Ok(object)
    }

    fn process(&self, program: &OsStr, arguments: &[OsString]) -> Result<(), CompileError> {
        let status = clang::run(program, arguments, &self.scratch)?;
        match status.success() {
            true => Ok(()),
            false => Err(CompileError::Tracking {
                program: program.into(),
                status: clang::code(status),
            }),
        }
    }
}

fn is_object_with_bitcode(argument: &OsStr) -> bool {
    let path = Path::new(argument);
    let is_object = fs::File::open(path).is_ok_and(|mut file| {
        let mut start = [0; 18];
        // An ELF file that is no program and no library: type 1.
        std::io::Read::read_exact(&mut file, &mut start).is_ok()
            && start.starts_with(b"\x7fELF")
            && start[16..] == [1, 0]
    });
    is_object && read_bitcode(path).is_ok_and(|bitcode| !bitcode.is_empty())
}
