//! The tables of everything that events refer to by id. The writer and the reader keep the same tables, so
//! that the reader accepts everything that the writer accepts. Their size is bounded, because a small,
//! crafted file must not fill the memory.

use crate::event::{FileId, Frame, Module, ModuleId, PmFile, ProcessId, StackId, ThreadId};
use crate::format::Defect;

/// Frames of all stacks together.
const MAX_FRAMES: usize = 1 << 22;
const MAX_STACKS: usize = 1 << 21;
const MAX_IDS: usize = 1 << 20;
const MAX_PROCESSES: usize = 1 << 16;
/// Bytes of all paths, build ids and names together.
const MAX_TEXT: usize = 64 << 20;

/// A process of the recorded tree, from its start or an exec to its end or the next exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id of the operating system.
    pub pid: u32,
    /// The process that forked this one, or that executed its program; `None` for the first process.
    pub parent: Option<ProcessId>,
    /// Path of the executable.
    pub executable: String,
}

/// Everything that events refer to by id, as far as the trace has been read or written.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Modules, by [`ModuleId`].
    pub modules: Vec<Module>,
    /// PM files, by [`FileId`].
    pub files: Vec<PmFile>,
    frames: Vec<Frame>,
    /// Stack `i` ends here in `frames` and begins where stack `i - 1` ends.
    stack_ends: Vec<u32>,
    threads: Vec<Option<ProcessId>>,
    processes: Vec<Option<Process>>,
    text: usize,
}

impl Default for Tables {
    fn default() -> Self {
        Tables {
            modules: Vec::new(),
            files: Vec::new(),
            frames: Vec::new(),
            stack_ends: vec![0],
            threads: Vec::new(),
            processes: Vec::new(),
            text: 0,
        }
    }
}

impl Tables {
    /// The frames of a stack, innermost first; empty for the unknown stack and for one that is not defined.
    pub fn frames(&self, stack: StackId) -> &[Frame] {
        match stack.index().checked_sub(1).zip(self.stack_ends.get(stack.index())) {
            Some((before, &end)) => &self.frames[self.stack_ends[before] as usize..end as usize],
            None => &[],
        }
    }

    /// Number of stacks, with the unknown one.
    pub fn stack_count(&self) -> usize {
        self.stack_ends.len()
    }

    /// The module with this id, if it is defined.
    pub fn module(&self, id: ModuleId) -> Option<&Module> {
        self.modules.get(id.index())
    }

    /// The PM file with this id, if it is defined.
    pub fn file(&self, id: FileId) -> Option<&PmFile> {
        self.files.get(id.index())
    }

    /// The process that a thread belongs to, if the thread has started.
    pub fn process_of(&self, thread: ThreadId) -> Option<ProcessId> {
        self.threads.get(thread.index()).copied().flatten()
    }

    /// The process with this id, if it has started. A process that has ended stays in the table.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(id.index())?.as_ref()
    }

    #[inline]
    pub(crate) fn check_thread(&self, thread: ThreadId) -> Result<(), Defect> {
        match self.process_of(thread) {
            Some(_) => Ok(()),
            None => Err("a thread is used before its start"),
        }
    }

    /// Checks the thread of an event whose thread need not have started. Analyses index vectors by this id too.
    pub(crate) fn check_thread_id(&self, thread: ThreadId) -> Result<(), Defect> {
        match thread.index() < MAX_IDS {
            true => Ok(()),
            false => Err("a thread's id is out of bounds"),
        }
    }

    #[inline]
    pub(crate) fn check_stack(&self, stack: StackId) -> Result<(), Defect> {
        if stack.index() < self.stack_ends.len() {
            Ok(())
        } else {
            Err("a stack is used before its definition")
        }
    }

    #[inline]
    pub(crate) fn check_file(&self, file: FileId) -> Result<(), Defect> {
        if file.index() < self.files.len() {
            Ok(())
        } else {
            Err("a file is used before its definition")
        }
    }

    pub(crate) fn check_process(&self, process: ProcessId) -> Result<(), Defect> {
        if self.process(process).is_some() {
            Ok(())
        } else {
            Err("a process is used before its start")
        }
    }

    pub(crate) fn check_module(&self, module: ModuleId) -> Result<(), Defect> {
        if module.index() < self.modules.len() {
            Ok(())
        } else {
            Err("a module is used before its definition")
        }
    }

    fn add_text(&mut self, len: usize) -> Result<(), Defect> {
        self.text += len;
        if self.text <= MAX_TEXT {
            Ok(())
        } else {
            Err("too many paths")
        }
    }

    pub(crate) fn define_module(&mut self, module: Module) -> Result<ModuleId, Defect> {
        if self.modules.len() >= MAX_IDS {
            return Err("too many modules");
        }
        let place = module.place.iter().flat_map(|place| [&place.function, &place.file]);
        let place: usize = place.flatten().map(String::len).sum();
        self.add_text(module.path.len() + module.build_id.len() + place)?;
        self.modules.push(module);
        Ok(ModuleId(self.modules.len() as u32 - 1))
    }

    pub(crate) fn define_file(&mut self, file: PmFile) -> Result<FileId, Defect> {
        if self.files.len() >= MAX_IDS {
            return Err("too many files");
        }
        self.add_text(file.path.len())?;
        self.files.push(file);
        Ok(FileId(self.files.len() as u32 - 1))
    }

    /// Whether there is room for another stack with this many frames.
    pub(crate) fn has_room_for_stack(&self, frames: usize) -> bool {
        self.stack_ends.len() < MAX_STACKS && self.frames.len() + frames <= MAX_FRAMES
    }

    pub(crate) fn define_stack(
        &mut self,
        frames: impl ExactSizeIterator<Item = Result<Frame, Defect>>,
    ) -> Result<StackId, Defect> {
        if !self.has_room_for_stack(frames.len()) {
            return Err("too many stacks");
        }
        self.frames
            .truncate(self.stack_ends[self.stack_ends.len() - 1] as usize);
        for frame in frames {
            let frame = frame?;
            if let Some(module) = frame.module {
                self.check_module(module)?;
            }
            self.frames.push(frame);
        }
        self.stack_ends.push(self.frames.len() as u32);
        Ok(StackId(self.stack_ends.len() as u32 - 1))
    }

    pub(crate) fn define_thread(&mut self, thread: ThreadId, process: ProcessId) -> Result<(), Defect> {
        self.check_process(process)?;
        *slot(&mut self.threads, thread.index(), MAX_IDS).ok_or("a thread's id is out of bounds")? = Some(process);
        Ok(())
    }

    pub(crate) fn define_process(&mut self, id: ProcessId, process: Process) -> Result<(), Defect> {
        self.add_text(process.executable.len())?;
        *slot(&mut self.processes, id.index(), MAX_PROCESSES).ok_or("a process's id is out of bounds")? = Some(process);
        Ok(())
    }
}

/// The slot of an id. The program assigns these ids, and they may arrive out of order, so a table can have
/// gaps.
fn slot<T>(table: &mut Vec<Option<T>>, index: usize, max: usize) -> Option<&mut Option<T>> {
    if index >= max {
        return None;
    }
    if index >= table.len() {
        table.resize_with(index + 1, || None);
    }
    Some(&mut table[index])
}
