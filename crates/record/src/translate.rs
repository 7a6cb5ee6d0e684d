//! From the records in the ring to the trace: raw ids to dense ones, addresses to modules, and the image of each PM file
//! kept up to date on the way.

use std::collections::BTreeMap;

use crashproof_trace::{
    Annotation, CallReturn, Counts, Dependence, Dependences, EventKind, FenceKind, FileId, FlushKind, Frame,
    IncompleteReason, LeftOut, LeftOutReason, MemoryRange, Module, ModuleId, PmAddress, PmFile, PmFileKind, PmemObject,
    ProcessId, Request, StackId, StoreFlags, ThreadId,
};
use crashproof_wire::record::{self as wire, Access, Place, Reader};
use rustc_hash::FxHashMap;

use crate::left_out::LeftOutFiles;
use crate::output::Output;
use crate::unlabelled::Unlabelled;
use crate::verify::{Announced, Images};

/// A raw id beyond this is not one that the runtime gave.
const MAX_RAW_ID: u32 = 1 << 20;
const NO_STACK: StackId = StackId(0);

struct Process {
    id: ProcessId,
    pid: u32,
    executable: String,
    first_thread: Option<ThreadId>,
    /// Files that it may have mapped, by raw id.
    files: Vec<u32>,
}

/// A module in an address space, by its start.
struct Loaded {
    end: u64,
    bias: u64,
    /// `None`: the trace has no room for it.
    module: Option<ModuleId>,
}

/// What runs in place of the program, and the program: the trace knows only that.
pub struct Tracked {
    pub runs: String,
    pub program: String,
}

pub(crate) struct Translator {
    tracked: Option<Tracked>,
    pub unlabelled: Unlabelled,
    dependences: Vec<Dependence>,
    /// Of each thread, by raw id, the last operation on a file that began: the position of its record, and the events before it.
    begun: FxHashMap<u32, (u64, u64)>,
    pub output: Output,
    pub images: Images,
    pub left_out: LeftOutFiles,
    counts: Counts,
    /// By raw id: dense thread and raw process.
    threads: Vec<Option<(ThreadId, u32)>>,
    next_thread: u32,
    /// Running processes by raw id.
    processes: FxHashMap<u32, Process>,
    process_ids: FxHashMap<u32, ProcessId>,
    /// Process numbers that appeared since [`Translator::take_started`].
    started: Vec<u32>,
    stacks: FxHashMap<u64, StackId>,
    /// The program repeats itself: most events have the stack of the one before.
    last_stack: (u64, StackId),
    address_spaces: FxHashMap<u32, BTreeMap<u64, Loaded>>,
    /// By raw id.
    files: Vec<Option<FileId>>,
}

impl Translator {
    pub(crate) fn new(output: Output, images: Images, tracked: Option<Tracked>) -> Translator {
        Translator {
            tracked,
            unlabelled: Unlabelled::default(),
            dependences: Vec::new(),
            begun: FxHashMap::default(),
            output,
            images,
            left_out: LeftOutFiles::default(),
            counts: Counts::default(),
            threads: Vec::new(),
            next_thread: 0,
            processes: FxHashMap::default(),
            process_ids: FxHashMap::default(),
            started: Vec::new(),
            stacks: FxHashMap::default(),
            last_stack: (0, NO_STACK),
            address_spaces: FxHashMap::default(),
            files: Vec::new(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether any process had the runtime.
    pub(crate) fn saw_runtime(&self) -> bool {
        !self.process_ids.is_empty()
    }

    /// The record at a position of the ring.
    pub(crate) fn record(&mut self, position: u64, kind: u8, body: &[u8]) {
        let understood = match kind {
            wire::STORE => self.store(body),
            wire::FLUSH => self.flush(body),
            wire::FENCE => self.fence(body),
            wire::ACCESS => self.access(position, body),
            wire::PATH => self.path(body),
            wire::STACK => self.stack(body),
            wire::PROCESS_START => self.process_start(body),
            wire::THREAD_START => self.thread_start(body),
            wire::MODULE => self.module(body),
            wire::FILE => self.file(body),
            wire::INITIAL => self.initial(body),
            wire::VERIFY => self.verify(body),
            wire::PROCESS_END => self.process_end(body),
            wire::INCOMPLETE => self.incomplete(body),
            wire::LEFT_OUT => self.left_out(body),
            wire::BEGIN => self.begin(position, body),
            _ => self.other(kind, body),
        };
        if understood.is_none() {
            let detail = format!("a record (kind {kind}) was not understood: the program may have overwritten it");
            self.output.incomplete(IncompleteReason::Lost, detail);
        }
    }

    /// The process with this number is gone. If it did not say so itself, its files were not verified.
    pub(crate) fn process_died(&mut self, pid: u32) {
        let dead: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, p)| p.pid == pid)
            .map(|(&raw, _)| raw)
            .collect();
        for raw in dead {
            if let Some(process) = self.end_process(raw, true) {
                self.images.orphaned(&process.files);
            }
        }
    }

    /// Numbers of the processes that started since the last call.
    pub(crate) fn take_started(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.started)
    }

    /// The processes that run, as messages name them.
    pub(crate) fn running(&self) -> Vec<String> {
        self.processes
            .values()
            .map(|p| format!("process {} ({})", p.pid, p.executable))
            .collect()
    }

    fn store(&mut self, body: &[u8]) -> Option<()> {
        let (access, data) = Access::parse(body)?;
        let data = data.get(..access.length())?;
        let thread = self.thread(access.thread())?;
        let stack = self.stack_id(access.stack);
        let Place { file: raw, offset } = access.place();
        let file = self.file_id(raw)?;
        let set = access.flags();
        let flags = StoreFlags {
            nontemporal: set & wire::STORE_NONTEMPORAL != 0,
            locked: set & wire::STORE_LOCKED != 0,
            syscall: set & wire::STORE_SYSCALL != 0,
            exchange: set & wire::STORE_EXCHANGE != 0,
        };
        self.images.store(raw, offset, data);
        if self.tracked.is_some() {
            self.unlabelled.store(stack);
        }
        self.counts.stores += 1;
        self.output.event(
            thread,
            stack,
            &EventKind::Store {
                at: PmAddress { file, offset },
                data,
                flags,
            },
        );
        Some(())
    }

    fn flush(&mut self, body: &[u8]) -> Option<()> {
        let (access, _) = Access::parse(body)?;
        let kind = match access.flags() {
            wire::FLUSH_CLWB => FlushKind::Clwb,
            wire::FLUSH_CLFLUSHOPT => FlushKind::Clflushopt,
            wire::FLUSH_CLFLUSH => FlushKind::Clflush,
            _ => return None,
        };
        let thread = self.thread(access.thread())?;
        let stack = self.stack_id(access.stack);
        let Place { file, offset } = access.place();
        let file = self.file_id(file)?;
        let at = PmAddress { file, offset };
        self.counts.flushes += 1;
        self.output.event(thread, stack, &EventKind::Flush { at, kind });
        Some(())
    }

    fn fence(&mut self, body: &[u8]) -> Option<()> {
        let (access, _) = Access::parse(body)?;
        let kind = match access.flags() {
            wire::FENCE_SFENCE => FenceKind::Sfence,
            wire::FENCE_MFENCE => FenceKind::Mfence,
            wire::FENCE_LOCKED => FenceKind::Locked,
            _ => return None,
        };
        let thread = self.thread(access.thread())?;
        let stack = self.stack_id(access.stack);
        self.counts.fences += 1;
        self.output.event(thread, stack, &EventKind::Fence { kind });
        Some(())
    }

    /// An access's node is its position: unique in the run, and ascending.
    fn access(&mut self, node: u64, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let thread = self.thread(reader.u32()?)?;
        let stack = reader.u64()?;
        let stack = self.stack_id(stack);
        let (file, offset) = (reader.u32()?, reader.u64()?);
        let (len, store) = (reader.u32()?, reader.u32()? != 0);
        let file = self.file_id(file)?;
        let at = PmAddress { file, offset };
        let members = reader.0.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
        let mut dependences = std::mem::take(&mut self.dependences);
        dependences.clear();
        dependences.extend(members.map(|member| Dependence {
            node: member >> 1,
            control: member & 1 != 0,
        }));
        let depends = Dependences::of(&dependences);
        let event = EventKind::Access {
            store,
            node,
            at,
            len,
            depends,
        };
        self.output.event(thread, stack, &event);
        self.dependences = dependences;
        Some(())
    }

    fn begin(&mut self, position: u64, body: &[u8]) -> Option<()> {
        let raw_thread = Reader(body).u32()?;
        let thread = self.thread(raw_thread)?;
        self.output.begin(thread);
        self.begun.insert(raw_thread, (position, self.output.events()));
        Some(())
    }

    /// How many events there were when the operation began of which the record at `position` told.
    fn begun(&self, raw_thread: u32, position: u64) -> u64 {
        match self.begun.get(&raw_thread) {
            Some(&(known, events)) if known == position => events,
            _ => self.output.events(),
        }
    }

    fn path(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let thread = self.thread(reader.u32()?)?;
        let stack = reader.u64()?;
        let stack = self.stack_id(stack);
        let (blocks, cuts) = (reader.u64()?, reader.u64()?);
        self.unlabelled.cuts += cuts;
        self.output.event(thread, stack, &EventKind::Path { blocks, cuts });
        Some(())
    }

    /// The program that the user named, for what was executed in its place.
    fn known_as(&self, path: String) -> String {
        match &self.tracked {
            Some(tracked) if tracked.runs == path => tracked.program.clone(),
            _ => path,
        }
    }

    fn stack(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let address_space = reader.u32()?;
        let hash = reader.u64()?;
        let modules = self.address_spaces.get(&address_space);
        let frames: Vec<Frame> = reader
            .0
            .as_chunks()
            .0
            .iter()
            .enumerate()
            .map(|(i, &bytes)| {
                let address = u64::from_le_bytes(bytes);
                // A return address may be the first byte after the function, even after the module.
                locate(modules, address, if i == 0 { address } else { address.wrapping_sub(1) })
            })
            .collect();
        let stack = self.output.stack(&frames);
        if self.tracked.is_some() {
            self.unlabelled.stack(stack, &frames);
        }
        self.stacks.insert(hash, stack);
        self.last_stack = (hash, stack);
        Some(())
    }

    fn process_start(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let raw = reader.u32()?;
        let pid = reader.u32()?;
        let raw_parent = reader.u32()?;
        let _address_space = reader.u32()?;
        let executable = self.known_as(String::from_utf8_lossy(reader.bytes()?).into_owned());
        if self.process_ids.contains_key(&raw) {
            return None;
        }
        // An exec replaces the process; what had that number and is still here has ended unseen.
        self.process_died(pid);
        let parent = self.process_ids.get(&raw_parent).copied();
        let id = ProcessId(self.process_ids.len() as u32);
        let parent_process = self.processes.get(&raw_parent);
        // A forked child has what its parent has mapped.
        let files = parent_process.map(|p| p.files.clone()).unwrap_or_default();
        let by = parent_process.and_then(|p| p.first_thread).unwrap_or(ThreadId(0));
        self.process_ids.insert(raw, id);
        self.output.event(
            by,
            NO_STACK,
            &EventKind::ProcessStart {
                process: id,
                pid,
                parent,
                executable: &executable,
            },
        );
        self.processes.insert(
            raw,
            Process {
                id,
                pid,
                executable,
                first_thread: None,
                files,
            },
        );
        self.started.push(pid);
        Some(())
    }

    fn thread_start(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let raw = reader.u32()?;
        let raw_process = reader.u32()?;
        let os_id = reader.u32()?;
        let process = *self.process_ids.get(&raw_process)?;
        if raw >= MAX_RAW_ID {
            return None;
        }
        if self.threads.len() <= raw as usize {
            self.threads.resize(raw as usize + 1, None);
        }
        let thread = ThreadId(self.next_thread);
        self.next_thread += 1;
        self.threads[raw as usize] = Some((thread, raw_process));
        if let Some(running) = self.processes.get_mut(&raw_process) {
            running.first_thread.get_or_insert(thread);
        }
        self.output
            .event(thread, NO_STACK, &EventKind::ThreadStart { process, os_id });
        Some(())
    }

    fn process_end(&mut self, body: &[u8]) -> Option<()> {
        let raw = Reader(body).u32()?;
        self.process_ids.get(&raw)?;
        self.end_process(raw, false);
        Some(())
    }

    /// Nobody has logged anything for a while.
    pub(crate) fn quiet(&mut self) {
        self.output.event(ThreadId(0), NO_STACK, &EventKind::Quiet);
    }

    fn end_process(&mut self, raw: u32, killed: bool) -> Option<Process> {
        let process = self.processes.remove(&raw)?;
        let end = EventKind::ProcessEnd {
            process: process.id,
            // One without a thread stored nothing.
            killed: killed && process.first_thread.is_some(),
        };
        let thread = process.first_thread.unwrap_or(ThreadId(0));
        self.output.event(thread, NO_STACK, &end);
        Some(process)
    }

    fn module(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let address_space = reader.u32()?;
        let bias = reader.u64()?;
        let start = reader.u64()?;
        let end = reader.u64()?;
        let locked_sites = reader.u32()?;
        let build_id = reader.bytes()?.to_vec();
        let path = self.known_as(String::from_utf8_lossy(reader.bytes()?).into_owned());
        let is_program = self.tracked.as_ref().is_some_and(|tracked| tracked.program == path);
        let module = Module {
            path,
            build_id,
            locked_sites,
            place: None,
        };
        let id = self.output.module(&module);
        if let Some(id) = id {
            self.unlabelled.module(id, &module.path, is_program);
        }
        let module = id;
        let space = self.address_spaces.entry(address_space).or_default();
        // What was loaded there before is not any more.
        space.retain(|&other, loaded| other >= end || loaded.end <= start);
        space.insert(start, Loaded { end, bias, module });
        Some(())
    }

    fn file(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let raw = reader.u32()?;
        let size = reader.u64()?;
        let dev = reader.u64()?;
        let ino = reader.u64()?;
        let flags = reader.u32()?;
        let path = String::from_utf8_lossy(reader.bytes()?).into_owned();
        if raw >= MAX_RAW_ID || self.file_id(raw).is_some() {
            return None;
        }
        if self.files.len() <= raw as usize {
            self.files.resize(raw as usize + 1, None);
        }
        let is_memory = flags & wire::FILE_REGISTERED_MEMORY != 0;
        self.files[raw as usize] = Some(self.output.file(&PmFile {
            path: path.clone(),
            size,
            created: flags & wire::FILE_CREATED != 0,
            kind: match is_memory {
                true => PmFileKind::RegisteredMemory,
                false => PmFileKind::File,
            },
        }));
        self.left_out.recorded(&path);
        self.images.add(raw, size, dev, ino, path, is_memory);
        Some(())
    }

    fn initial(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let raw = reader.u32()?;
        let offset = reader.u64()?;
        let file = self.file_id(raw)?;
        let (at, data) = (PmAddress { file, offset }, reader.0);
        match self.images.initial(raw, offset, data) {
            Announced::First => self.output.initial(at, data),
            Announced::Changed => self
                .output
                .event(ThreadId(0), NO_STACK, &EventKind::FileWrite { at, data }),
            Announced::Known => {}
        }
        Some(())
    }

    fn verify(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let raw = reader.u32()?;
        let offset = reader.u64()?;
        self.file_id(raw)?;
        self.images.verify(raw, offset, reader.0);
        Some(())
    }

    fn incomplete(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let reason = match reader.u32()? {
            wire::INCOMPLETE_UNVERIFIED_CODE => IncompleteReason::UnverifiedCode,
            wire::INCOMPLETE_UNSUPPORTED => IncompleteReason::Unsupported,
            wire::INCOMPLETE_LIMIT => IncompleteReason::Limit,
            _ => return None,
        };
        let detail = String::from_utf8_lossy(reader.bytes()?).into_owned();
        self.output.incomplete(reason, detail);
        Some(())
    }

    fn left_out(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let reason = reader.u32()?;
        let errno = reader.u32()?;
        let path = String::from_utf8_lossy(reader.bytes()?).into_owned();
        let reason = LeftOutReason::numbered(reason)?;
        let errno = (reason == LeftOutReason::OpenFailed).then(|| i32::try_from(errno));
        let errno = errno.transpose().ok()?;
        self.left_out.add(LeftOut { path, reason, errno });
        Some(())
    }

    /// The records that become one event each, and start with the thread.
    fn other(&mut self, kind: u8, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let raw_thread = reader.u32()?;
        let thread = self.thread(raw_thread)?;
        if kind == wire::OUTPUT {
            let fd = reader.u32()?;
            self.output
                .event(thread, NO_STACK, &EventKind::Output { fd, data: reader.0 });
            return Some(());
        }
        let hash = reader.u64()?;
        let stack = self.stack_id(hash);
        let text;
        let mut begun = self.output.events();
        let event = match kind {
            wire::CALL => {
                let mut arguments = [0; 6];
                for argument in &mut arguments {
                    *argument = reader.u64()?;
                }
                text = String::from_utf8_lossy(reader.bytes()?);
                EventKind::Call { name: &text, arguments }
            }
            wire::RETURN => {
                let mut words = [0; 7];
                for word in &mut words {
                    *word = reader.u64()?;
                }
                let [arguments @ .., result] = words;
                let has_object = reader.u32()? != 0;
                let object = PmemObject {
                    pool: reader.u64()?,
                    offset: reader.u64()?,
                    usable: reader.u64()?,
                };
                text = String::from_utf8_lossy(reader.bytes()?);
                EventKind::Return(CallReturn {
                    name: &text,
                    arguments,
                    result,
                    object: has_object.then_some(object),
                })
            }
            wire::ANNOTATION => {
                let annotation = reader.u32()?;
                let mut words = || reader.u64();
                let [before, after] =
                    [(words()?, words()?), (words()?, words()?)].map(|(address, len)| MemoryRange { address, len });
                text = String::from_utf8_lossy(reader.bytes()?);
                EventKind::Annotation(match annotation {
                    wire::ANNOTATION_OPERATION_BEGIN => Annotation::OperationBegin { name: &text },
                    wire::ANNOTATION_OPERATION_END => Annotation::OperationEnd { name: &text },
                    wire::ANNOTATION_EXPECT_DURABLE => Annotation::ExpectDurable(before),
                    wire::ANNOTATION_EXPECT_ORDER => Annotation::ExpectOrder {
                        before,
                        after,
                        backwards: false,
                    },
                    _ => return None,
                })
            }
            wire::REQUEST => self.request(&mut reader)?,
            _ => {
                let raw = reader.u32()?;
                let file = self.file_id(raw)?;
                if matches!(kind, wire::SYNC | wire::RESIZE | wire::FILE_WRITE | wire::RENAME) {
                    begun = self.begun(raw_thread, reader.u64()?);
                }
                match kind {
                    wire::MAP => {
                        let (address, offset, len) = (reader.u64()?, reader.u64()?, reader.u64()?);
                        let writable = reader.u32()? & libc::PROT_WRITE as u32 != 0;
                        self.mapped(raw_thread, raw);
                        self.images.mapped(raw);
                        EventKind::Map {
                            file,
                            address,
                            offset,
                            len,
                            writable,
                        }
                    }
                    wire::UNMAP => EventKind::Unmap {
                        file,
                        offset: reader.u64()?,
                        len: reader.u64()?,
                    },
                    wire::SYNC => EventKind::Sync {
                        file,
                        offset: reader.u64()?,
                        len: reader.u64()?,
                    },
                    wire::RESIZE => {
                        let size = reader.u64()?;
                        self.images.resize(raw, size);
                        EventKind::Resize { file, size }
                    }
                    wire::FILE_WRITE => {
                        let offset = reader.u64()?;
                        self.images.write(raw, offset, reader.0);
                        EventKind::FileWrite {
                            at: PmAddress { file, offset },
                            data: reader.0,
                        }
                    }
                    wire::RENAME => {
                        let path = reader.bytes()?;
                        text = String::from_utf8_lossy(path);
                        let path = (!path.is_empty()).then_some(&*text);
                        self.images.rename(raw, path);
                        EventKind::Rename { file, path }
                    }
                    _ => return None,
                }
            }
        };
        self.output.event_begun(begun, thread, stack, &event);
        Some(())
    }

    fn request(&self, reader: &mut Reader<'_>) -> Option<EventKind<'static>> {
        let request = match reader.u32()? {
            wire::REQUEST_SET_CLEAN => Request::SetClean,
            wire::REQUEST_TX_BEGIN => Request::TxBegin,
            wire::REQUEST_TX_END => Request::TxEnd,
            wire::REQUEST_TX_ADD => Request::TxAdd,
            wire::REQUEST_TX_REMOVE => Request::TxRemove,
            wire::REQUEST_TX_IGNORE => Request::TxIgnore,
            wire::REQUEST_VOLATILE => Request::Volatile,
            wire::REQUEST_PERSISTENT => Request::Persistent,
            wire::REQUEST_TX_JOIN => Request::TxJoin,
            wire::REQUEST_TX_LEAVE => Request::TxLeave,
            _ => return None,
        };
        let transaction = reader.u64()?;
        let raw = reader.u32()?;
        let (offset, len) = (reader.u64()?, reader.u64()?);
        let range = match raw {
            wire::NONE => None,
            _ => Some((
                PmAddress {
                    file: self.file_id(raw)?,
                    offset,
                },
                len,
            )),
        };
        Some(EventKind::Request {
            request,
            transaction,
            range,
        })
    }

    fn mapped(&mut self, raw_thread: u32, raw_file: u32) {
        let Some(Some((_, raw_process))) = self.threads.get(raw_thread as usize) else {
            return;
        };
        if let Some(process) = self.processes.get_mut(raw_process)
            && !process.files.contains(&raw_file)
        {
            process.files.push(raw_file);
        }
    }

    fn thread(&self, raw: u32) -> Option<ThreadId> {
        self.threads.get(raw as usize)?.map(|(thread, _)| thread)
    }

    fn file_id(&self, raw: u32) -> Option<FileId> {
        self.files.get(raw as usize).copied().flatten()
    }

    fn stack_id(&mut self, hash: u64) -> StackId {
        if self.last_stack.0 != hash {
            self.last_stack = (hash, self.stacks.get(&hash).copied().unwrap_or(NO_STACK));
        }
        self.last_stack.1
    }
}

/// `address` relative to the module that holds `inside`.
fn locate(modules: Option<&BTreeMap<u64, Loaded>>, address: u64, inside: u64) -> Frame {
    match modules.and_then(|m| m.range(..=inside).next_back()) {
        Some((_, loaded)) if inside < loaded.end => Frame {
            module: loaded.module,
            address: address.wrapping_sub(loaded.bias),
        },
        _ => Frame { module: None, address },
    }
}
