//! Locate: from the frames of a finding to instructions of the front end's bitcode (section 5.1).
//!
//! By source position and function name alone, never by address, so that a finding may come from another build, or from another
//! tool. Deviation from the paper, which maps lines: columns tell the stores of a line apart, a call must call what the next
//! inner frame is in, and where several copies of a function lie on the same lines (`static inline` in a header), the caller
//! says which it was.

mod names;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use crashproof_finding::Frame;
use crashproof_llvm::{File, Module, Opcode, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::{self, Code, Persistence};
use names::Names;

/// What the innermost frame is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Store,
    Flush,
    Fence,
    /// Whatever the program called there (`munmap`, `exit`).
    Call,
}

/// A stack in the bitcode.
#[derive(Clone, Debug)]
pub(crate) struct Stack<'m> {
    /// Index of the innermost frame that is in the bitcode.
    pub innermost: usize,
    /// The instructions that the frame is about: several if a macro, or a line without columns, has several.
    pub at: Vec<Value<'m>>,
    /// The calls that the frames after that made, outwards; it ends with what could not be found.
    pub calls: Vec<Result<Value<'m>, Unlocated>>,
}

/// Why an instruction could not be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unlocated {
    #[error("the finding has no stack")]
    NoStack,
    #[error(
        "no frame of its stack is in code that was built by crashproof cc (innermost: {frame}); build that with \
         CC=crashproof-cc, or check the paths of the sources"
    )]
    NoBitcode { frame: String },
    #[error("{frame} is not in code that was built by crashproof cc")]
    FrameWithoutBitcode { frame: String },
    #[error("the bitcode has no {what} at {frame}; the binary may have been built from another state of the source")]
    NoInstruction { what: &'static str, frame: String },
    #[error("{frame} has {count} calls that it may be")]
    Ambiguous { frame: String, count: usize },
}

impl Wanted {
    fn name(self) -> &'static str {
        match self {
            Wanted::Store => "store to memory other than the stack",
            Wanted::Flush => "flush",
            Wanted::Fence => "fence",
            Wanted::Call => "call",
        }
    }
}

/// All instructions of a module that a frame can be about, by source line.
pub(crate) struct Locator<'m> {
    by_line: FxHashMap<(u32, u32), Vec<Value<'m>>>,
    /// Paths of the files of debug info, and their numbers by name.
    files: Vec<PathBuf>,
    by_name: FxHashMap<String, Vec<u32>>,
    names: Names<'m>,
}

impl<'m> Locator<'m> {
    pub(crate) fn new(module: &'m Module<'_>) -> Locator<'m> {
        let mut locator = Locator {
            by_line: FxHashMap::default(),
            files: Vec::new(),
            by_name: FxHashMap::default(),
            names: Names::default(),
        };
        let mut keys: FxHashMap<Option<File>, u32> = FxHashMap::default();
        let mut paths: FxHashMap<PathBuf, u32> = FxHashMap::default();
        for instruction in module.functions().flat_map(Value::code) {
            let relevant = instruction.is_call()
                || instruction.store_pointer().is_some()
                || instruction.opcode() == Some(Opcode::LLVMFence);
            if !relevant {
                continue;
            }
            let Some(location) = instruction.location() else {
                continue;
            };
            let file = *keys.entry(location.file()).or_insert_with(|| {
                let path = location.file().map(ir::path).unwrap_or_default();
                *paths.entry(path).or_insert_with_key(|path| locator.add_file(path))
            });
            locator
                .by_line
                .entry((file, location.line()))
                .or_default()
                .push(instruction);
        }
        locator
    }

    fn add_file(&mut self, path: &Path) -> u32 {
        let file = self.files.len() as u32;
        self.files.push(path.to_path_buf());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.by_name.entry(name).or_default().push(file);
        file
    }

    /// The stack of a finding, an event by which it had to be durable, or an event of a trace.
    pub(crate) fn stack(&self, frames: &[Frame], wanted: Wanted) -> Result<Stack<'m>, Unlocated> {
        let first = frames.first().ok_or(Unlocated::NoStack)?;
        let (innermost, here) = frames
            .iter()
            .enumerate()
            .map(|(index, frame)| (index, self.instructions(frame)))
            .find(|(_, here)| !here.is_empty())
            .ok_or_else(|| Unlocated::NoBitcode { frame: describe(first) })?;
        let in_library = innermost > 0;
        let fitting: Vec<Value> = here
            .iter()
            .copied()
            .filter(|&instruction| fits(instruction, wanted, in_library))
            .collect();
        let mut at = at_column(fitting, &frames[innermost]);
        if at.is_empty() {
            return Err(Unlocated::NoInstruction {
                what: wanted.name(),
                frame: describe(&frames[innermost]),
            });
        }
        let mut functions: FxHashSet<Value> = at.iter().filter_map(|at| at.function()).collect();
        let mut calls: Vec<Result<Value, Unlocated>> = Vec::new();
        // Copies of a function, innermost frame first, are told apart by who calls them: so from the outside in, too.
        let mut levels: Vec<Vec<Value>> = Vec::new();
        let mut end = None;
        for frame in &frames[innermost + 1..] {
            let here = self.instructions(frame);
            if here.is_empty() {
                end = Some(Unlocated::FrameWithoutBitcode { frame: describe(frame) });
                break;
            }
            let calling = here
                .into_iter()
                .filter(|call| may_call(*call, &functions))
                .collect::<Vec<_>>();
            let calling = at_column(calling, frame);
            if calling.is_empty() {
                end = Some(Unlocated::NoInstruction {
                    what: "call of the next inner function",
                    frame: describe(frame),
                });
                break;
            }
            functions = calling.iter().filter_map(|call| call.function()).collect();
            levels.push(calling);
        }
        for level in (0..levels.len()).rev() {
            let chosen: FxHashSet<Value> = levels[level].iter().filter_map(|call| call.called_function()).collect();
            let inner = match level {
                0 => &mut at,
                _ => &mut levels[level - 1],
            };
            if !chosen.is_empty() && inner.iter().any(|inner| is_in(*inner, &chosen)) {
                inner.retain(|inner| is_in(*inner, &chosen));
            }
        }
        for (level, frame) in levels.iter().zip(&frames[innermost + 1..]) {
            match level.as_slice() {
                [call] => calls.push(Ok(*call)),
                several => {
                    calls.push(Err(Unlocated::Ambiguous {
                        frame: describe(frame),
                        count: several.len(),
                    }));
                    end = None;
                    break;
                }
            }
        }
        calls.extend(end.map(Err));
        Ok(Stack { innermost, at, calls })
    }

    /// What there is on the frame's line, in functions of its name.
    fn instructions(&self, frame: &Frame) -> Vec<Value<'m>> {
        let (Some(file), Some(line)) = (&frame.file, frame.line) else {
            return Vec::new();
        };
        let on_line: Vec<Value> = self
            .files_called(Path::new(file))
            .into_iter()
            .filter_map(|file| self.by_line.get(&(file, line)))
            .flatten()
            .copied()
            .collect();
        let Some(function) = &frame.function else {
            return on_line;
        };
        let named = |matches: &dyn Fn(Value<'m>) -> bool| -> Vec<Value<'m>> {
            on_line
                .iter()
                .copied()
                .filter(|instruction| instruction.function().is_some_and(matches))
                .collect()
        };
        let exact = named(&|in_function| self.names.is(in_function, function));
        match exact.is_empty() {
            true => named(&|in_function| self.names.is_similar(in_function, function)),
            false => exact,
        }
    }

    /// The very path, else those that end alike, the longest first.
    fn files_called(&self, path: &Path) -> Vec<u32> {
        let path = ir::normalized(path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let same_name = self.by_name.get(&*name).map_or(&[][..], Vec::as_slice);
        let exact = same_name.iter().find(|&&file| self.files[file as usize] == path);
        if let Some(&file) = exact {
            return vec![file];
        }
        let alike = |file: u32| {
            let other = &self.files[file as usize];
            let pairs = other.components().rev().zip(path.components().rev());
            pairs.take_while(|(one, other)| one == other).count()
        };
        let most = same_name.iter().map(|&file| alike(file)).max().unwrap_or(0);
        same_name.iter().copied().filter(|&file| alike(file) == most).collect()
    }
}

fn is_in(instruction: Value, functions: &FxHashSet<Value>) -> bool {
    instruction
        .function()
        .is_some_and(|function| functions.contains(&function))
}

fn may_call(call: Value, functions: &FxHashSet<Value>) -> bool {
    match call.called_function() {
        Some(function) => functions.contains(&function),
        None => call.is_indirect_call(),
    }
}

/// Those at the frame's column, if it has one and any is there.
fn at_column<'m>(instructions: Vec<Value<'m>>, frame: &Frame) -> Vec<Value<'m>> {
    let Some(column) = frame.column.filter(|&column| column > 0) else {
        return instructions;
    };
    let at_column: Vec<Value> = instructions
        .iter()
        .copied()
        .filter(|instruction| {
            instruction
                .location()
                .is_some_and(|location| location.column() == column)
        })
        .collect();
    if at_column.is_empty() { instructions } else { at_column }
}

/// Whether the innermost frame in the bitcode can be about the instruction; `in_library` if inner frames are not in the bitcode.
fn fits(instruction: Value, wanted: Wanted, in_library: bool) -> bool {
    let library_call = instruction.is_indirect_call()
        || instruction
            .called_function()
            .is_some_and(|function| !function.has_body() && !function.is_intrinsic());
    // No frame is in a function without debug information; what it does is done by its call.
    let unseen = instruction.called_function().filter(|function| function.is_unseen());
    if let Some(function) = unseen
        && wanted != Wanted::Call
        && !in_library
    {
        return instruction.written().is_some() && wanted == Wanted::Store
            || function
                .code()
                .any(|inner| !inner.called_function().is_some_and(Value::has_body) && fits(inner, wanted, false));
    }
    match wanted {
        Wanted::Store => {
            let written = match in_library {
                true => instruction
                    .written()
                    .and_then(|written| instruction.operand(written.destination)),
                false => instruction.destination(),
            };
            match written {
                Some(pointer) => !pointer.base().is_alloca() && !pointer.base().is_global_variable(),
                None => library_call && in_library || is_storing_assembly(instruction),
            }
        }
        Wanted::Flush => is_flush(instruction) || library_call && in_library,
        Wanted::Fence => is_fence(instruction) || library_call && in_library,
        Wanted::Call => instruction.is_call(),
    }
}

fn is_flush(instruction: Value) -> bool {
    let operations = instruction.persistence();
    operations
        .iter()
        .any(|operation| matches!(operation, Persistence::Flush(_)))
}

fn is_fence(instruction: Value) -> bool {
    let is_locked = matches!(
        instruction.opcode(),
        Some(Opcode::LLVMAtomicRMW | Opcode::LLVMAtomicCmpXchg)
    );
    is_locked || instruction.persistence().contains(&Persistence::Fence)
}

/// Assembly that is neither a flush nor a fence and may write.
fn is_storing_assembly(instruction: Value) -> bool {
    instruction
        .assembly()
        .is_some_and(|(template, constraints)| !template.trim().is_empty() && constraints.contains('*'))
        && instruction.persistence().is_empty()
}

/// A frame as a person would name it.
pub(crate) fn describe(frame: &Frame) -> String {
    struct Words<'a>(&'a Frame);
    impl fmt::Display for Words<'_> {
        fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
            let Frame {
                function, file, line, ..
            } = self.0;
            match function {
                Some(function) => write!(out, "`{function}`")?,
                None => write!(out, "{:#x}", self.0.address)?,
            }
            match (file, line, &self.0.module) {
                (Some(file), Some(line), _) => write!(out, " ({file}:{line})"),
                (Some(file), None, _) => write!(out, " ({file})"),
                (None, _, Some(module)) => write!(out, " of {module}"),
                (None, _, None) => Ok(()),
            }
        }
    }
    Words(frame).to_string()
}
