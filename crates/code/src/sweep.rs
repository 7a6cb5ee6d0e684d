//! Finds every flush, fence and Valgrind client request in the code of the process (and locked read-modify-writes and system
//! calls, on request). They do not fault on PM, so the runtime needs a breakpoint on each.
//!
//! x86 code cannot be searched by bytes alone: the bytes of an `sfence` also occur in constants and across instructions,
//! and a breakpoint there would corrupt the program. So a byte search finds candidates, and each is verified by decoding
//! from the start of its function: unwind tables say where functions begin, else symbols. In a gap between known
//! functions decoding starts at the gap's first byte, and what it finds counts only if it stands in a stretch of
//! plausible code: one that ends by leaving (return, jump, call that does not return) before anything undecodable or
//! privileged. Where that fails, decoding begins anew at the next place that looks like the start of a function. A
//! candidate that can be neither confirmed nor ruled out is returned as unverified: the trace is then possibly
//! incomplete, and the user is told.
//!
//! What it may miss: code that is only entered in the middle of another instruction, and, silently, a flush hidden
//! behind data in a gap that happens to decode as plausible code. What it may take for a flush wrongly: data inside a
//! function, or data in a gap that reads as a flush followed by a return; compilers put none there.
//!
//! The two bytes of a `syscall` occur in data far more often than the bytes of a flush. So a system call is a site only in a
//! function that tables or symbols know; what decodes as one in a gap is counted and left alone.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::file::ModuleFile;
use crate::functions::{Chunk, Functions, UnwindTables};
use crate::modules::{Module, bytes};
use crate::sys;

/// `rol $3,%rdi; rol $13,%rdi; rol $61,%rdi; rol $51,%rdi; xchg %rbx,%rbx`: nothing natively, a request under Valgrind.
const CLIENT_REQUEST: [u8; 19] = [
    0x48, 0xc1, 0xc7, 0x03, 0x48, 0xc1, 0xc7, 0x0d, 0x48, 0xc1, 0xc7, 0x3d, 0x48, 0xc1, 0xc7, 0x33, 0x48, 0x87, 0xdb,
];
/// Of these, the exchange, which is the site.
const EXCHANGE: usize = 3;
/// How many bytes the search looks at together.
const BLOCK: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SiteKind {
    Clwb,
    Clflushopt,
    Clflush,
    Sfence,
    Mfence,
    /// The `xchg %rbx,%rbx` of a Valgrind client request: rax points to the request, rdx takes the answer.
    ClientRequest,
    /// A locked read-modify-write, `xchg` with memory included.
    Locked,
    /// A `syscall` instruction.
    SystemCall,
}

/// An instruction that gets a breakpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its first byte, prefixes included.
    pub address: usize,
    pub kind: SiteKind,
    pub length: u8,
    /// The instruction as it was; only `length` bytes count.
    pub original: [u8; 15],
    /// Where a copy of the instruction is that continues behind it; 0: there is none.
    pub copy: usize,
}

impl Site {
    pub fn bytes(&self) -> &[u8] {
        &self.original[..self.length as usize]
    }
}

#[derive(Clone, Debug, Default)]
pub struct SweepOptions {
    pub client_requests: bool,
    /// Make locked read-modify-writes sites, instead of only counting those of the program's own modules.
    pub locked: bool,
    /// Make system calls with one of these numbers sites, and those whose number the code before them does not tell.
    pub system_calls: &'static [i64],
    /// The runtime's own module, whose code must run as it is.
    pub own: Range<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// In address order.
    pub sites: Vec<Site>,
    /// Addresses where the bytes of a flush or fence occur in code that could not be decoded reliably, and the starts
    /// of code that could not be read at all.
    pub unverified: Vec<usize>,
    /// Locked read-modify-writes found; none are looked for in the language's run-time libraries unless they are sites.
    pub locked: u32,
    /// What reads as a system call that is wanted, in code of which nothing is known. These are no sites.
    pub doubtful_calls: Vec<usize>,
}

/// # Safety
/// The module is mapped, and stays so meanwhile.
pub unsafe fn sweep_module(module: &Module, options: &SweepOptions) -> Sweep {
    let own = module.range.start < options.own.end && options.own.start < module.range.end;
    if own || module.path.is_none() {
        return Sweep::default();
    }
    let file = ModuleFile::open(module);
    let sections = file.as_ref().and_then(ModuleFile::code);
    let mut sweeper = Sweeper::new(options, options.locked || !module.is_language_runtime());
    if module.is_c_library() {
        // Its functions are interposed, and what it does on its own is its own.
        sweeper.options.system_calls = &[];
    }
    let mut regions = Vec::new();
    for segment in module.executable_segments() {
        if !segment.readable {
            let start = segment.range.start & !(sys::PAGE - 1);
            // SAFETY: code that may only be executed becomes readable too.
            let made = unsafe { sys::mprotect(start..segment.range.end, libc::PROT_READ | libc::PROT_EXEC) };
            if made.is_err() {
                sweeper.sweep.unverified.push(segment.range.start);
                continue;
            }
        }
        match &sections {
            // Without sections the data that some linkers put into executable segments is decoded as if it were code.
            None => regions.push(segment.range.clone()),
            Some(sections) => regions.extend(sections.iter().filter_map(|section| {
                let part = section.start.max(segment.range.start)..section.end.min(segment.range.end);
                (!part.is_empty()).then_some(part)
            })),
        }
    }
    regions.sort_by_key(|region| region.start);

    // SAFETY: mapped by the caller's promise.
    let tables = unsafe { UnwindTables::of(module) };
    let mut found = Vec::new();
    for region in &regions {
        // SAFETY: mapped and readable by the caller's promise and the above.
        found.push(unsafe {
            let candidates = sweeper.candidates(region);
            match &tables {
                Some(tables) if !sweeper.locked_wanted => sweeper.in_tables(region, &candidates, tables),
                _ => candidates,
            }
        });
    }
    if sweeper.locked_wanted || found.iter().any(|candidates| !candidates.is_empty()) {
        let symbols = file.as_ref().map(ModuleFile::symbols).unwrap_or_default();
        // SAFETY: as above.
        let functions = unsafe { Functions::of(module, &symbols) };
        for (region, candidates) in regions.iter().zip(&found) {
            // SAFETY: as above.
            unsafe { sweeper.region(region, candidates, &functions) };
        }
    }
    sweeper.finish()
}

/// Sweeps executable memory of which nothing is known, such as what a just-in-time compiler has written.
///
/// # Safety
/// The range is mapped and readable, and stays so meanwhile.
pub unsafe fn sweep_range(range: Range<usize>, options: &SweepOptions) -> Sweep {
    let options = SweepOptions {
        system_calls: &[],
        ..options.clone()
    };
    let mut sweeper = Sweeper::new(&options, true);
    // SAFETY: the caller's promise.
    unsafe {
        let candidates = sweeper.candidates(&range);
        sweeper.region(&range, &candidates, &Functions::default());
    }
    sweeper.finish()
}

struct Sweeper {
    options: SweepOptions,
    locked_wanted: bool,
    sweep: Sweep,
}

/// What was found since the last instruction that surely leaves.
#[derive(Default)]
struct Run {
    sites: Vec<Site>,
    /// Candidates that turned out to be in the middle of another instruction.
    ruled_out: Vec<usize>,
    locked: u32,
    calls: Vec<usize>,
    /// There is more than padding in it.
    begun: bool,
    /// The last instruction that is not padding is a call: it may be one that does not return.
    ends_with_call: bool,
}

impl Sweeper {
    fn new(options: &SweepOptions, locked_wanted: bool) -> Sweeper {
        Sweeper {
            options: options.clone(),
            locked_wanted,
            sweep: Sweep::default(),
        }
    }

    fn finish(mut self) -> Sweep {
        self.sweep.sites.sort_by_key(|site| site.address);
        self.sweep.sites.dedup_by_key(|site| site.address);
        self.sweep.unverified.sort_unstable();
        self.sweep
    }

    /// Where the opcode bytes of flushes and fences occur. Client requests become sites at once: their nineteen bytes do not
    /// occur by chance.
    ///
    /// # Safety
    /// The region is mapped and readable.
    unsafe fn candidates(&mut self, region: &Range<usize>) -> Vec<usize> {
        // SAFETY: the caller's promise.
        let code = unsafe { bytes(region.clone()) };
        let mut candidates = Vec::new();
        // Few blocks hold one of the two telling bytes, and compilers make this test a few vector instructions.
        let blocks = code.chunks(BLOCK).enumerate();
        let telling =
            blocks.filter(|(_, block)| block.iter().fold(false, |any, byte| any | matches!(byte, 0xae | 0x87)));
        let positions = telling.flat_map(|(number, block)| number * BLOCK..number * BLOCK + block.len());
        // The telling byte is the second of its instruction.
        for start in positions.filter_map(|position| position.checked_sub(1)) {
            match code[start..] {
                // Register field 6 or 7: clwb, mfence; clflush, clflushopt, sfence (and xsaveopt, tpause, …).
                [0x0f, 0xae, operand, ..] if operand & 0x30 == 0x30 => candidates.push(region.start + start),
                [0x48, 0x87, 0xdb, ..]
                    if self.options.client_requests && code[..start + EXCHANGE].ends_with(&CLIENT_REQUEST) =>
                {
                    let exchange = &code[start..start + EXCHANGE];
                    self.sweep
                        .sites
                        .push(site(region.start + start, SiteKind::ClientRequest, exchange));
                }
                _ => (),
            }
        }
        if !self.options.system_calls.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { self.system_call_candidates(region, &mut candidates) };
        }
        candidates
    }

    /// Adds where the bytes of a system call occur. Their second byte is too frequent for the search above.
    ///
    /// # Safety
    /// The region is mapped and readable.
    unsafe fn system_call_candidates(&mut self, region: &Range<usize>, candidates: &mut Vec<usize>) {
        // SAFETY: the caller's promise.
        let code = unsafe { bytes(region.clone()) };
        let before = candidates.len();
        for first in (0..code.len()).step_by(BLOCK) {
            // With the first byte of the next block.
            let block = &code[first..code.len().min(first + BLOCK + 1)];
            let pairs = || block.iter().zip(&block[1..]);
            if pairs().fold(false, |any, (one, other)| any | ((*one == 0x0f) & (*other == 0x05))) {
                let found = pairs().enumerate().filter(|(_, pair)| *pair == (&0x0f, &0x05));
                candidates.extend(found.map(|(position, _)| region.start + first + position));
            }
        }
        if candidates.len() > before {
            candidates.sort_unstable();
        }
    }

    /// Verifies candidates in functions that unwind tables know, looking up only these; returns the others.
    ///
    /// # Safety
    /// The region is mapped and readable.
    unsafe fn in_tables(&mut self, region: &Range<usize>, candidates: &[usize], tables: &UnwindTables) -> Vec<usize> {
        let mut others = Vec::new();
        let mut rest = candidates;
        while let Some((first, after)) = rest.split_first() {
            let function = tables.function_at(*first);
            match function.filter(|function| region.start <= function.start && function.end <= region.end) {
                Some(function) => {
                    let inside = rest.partition_point(|candidate| *candidate < function.end);
                    let chunk = Chunk {
                        range: function,
                        is_function: true,
                    };
                    // SAFETY: a part of the region.
                    self.decode(&chunk, unsafe { bytes(chunk.range.clone()) }, &rest[..inside]);
                    rest = &rest[inside..];
                }
                None => {
                    others.push(*first);
                    rest = after;
                }
            }
        }
        others
    }

    /// # Safety
    /// The region is mapped and readable.
    unsafe fn region(&mut self, region: &Range<usize>, candidates: &[usize], functions: &Functions) {
        if candidates.is_empty() && !self.locked_wanted {
            return;
        }
        let mut rest = candidates;
        for chunk in functions.chunks(region.clone()) {
            // Between chunks lies what symbols call data.
            let code = &rest[rest.partition_point(|candidate| *candidate < chunk.range.start)..];
            let (mut inside, after) = code.split_at(code.partition_point(|candidate| *candidate < chunk.range.end));
            rest = after;
            let mut next = (!inside.is_empty() || self.locked_wanted).then_some(chunk);
            while let Some(chunk) = next {
                inside = &inside[inside.partition_point(|candidate| *candidate < chunk.range.start)..];
                // SAFETY: a part of the region.
                next = self.decode(&chunk, unsafe { bytes(chunk.range.clone()) }, inside);
            }
        }
    }

    /// Returns what is left of a gap when decoding broke down and there is a place where code seems to begin anew.
    fn decode(&mut self, chunk: &Chunk, code: &[u8], candidates: &[usize]) -> Option<Chunk> {
        // Old PM code carries `pcommit`, which no processor got in the end, behind a test for it.
        let mut decoder = Decoder::with_ip(64, code, chunk.range.start as u64, DecoderOptions::PCOMMIT);
        let mut instruction = Instruction::default();
        let mut candidates = candidates.iter().copied().peekable();
        let mut run = Run::default();
        let mut broken = None;
        let mut accumulator = None;
        while decoder.can_decode() {
            let finished = candidates.peek().is_none() && run.is_empty();
            if finished && !self.locked_wanted {
                return None;
            }
            let position = decoder.position();
            if !chunk.is_function && !run.begun && code[position] == 0 {
                // The zeros between and behind what a just-in-time compiler has written.
                decoder.set_ip(decoder.ip() + 1);
                let _ = decoder.set_position(position + 1);
                continue;
            }
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() || (!chunk.is_function && is_implausible(&instruction)) {
                broken = Some(position);
                break;
            }
            let bytes = &code[position..position + instruction.len()];
            let is_call = instruction.mnemonic() == Mnemonic::Syscall;
            let wanted_call = is_call && self.wants_call(accumulator);
            let kind = flush_or_fence(instruction.mnemonic())
                .or_else(|| (wanted_call && chunk.is_function).then_some(SiteKind::SystemCall));
            accumulator = constant_in_accumulator(&instruction);
            while let Some(candidate) = candidates.next_if(|candidate| (*candidate as u64) < instruction.next_ip()) {
                // Whether the bytes of a system call are one matters only where they may be a site.
                if kind.is_none() && !is_call && !is_system_call(code, candidate - chunk.range.start) {
                    run.ruled_out.push(candidate);
                }
            }
            if wanted_call && kind.is_none() {
                run.calls.push(instruction.ip() as usize);
            }
            if let Some(kind) = kind {
                run.sites.push(site(instruction.ip() as usize, kind, bytes));
            } else if self.locked_wanted && is_locked(&instruction) {
                run.locked += 1;
                if self.options.locked {
                    run.sites.push(site(instruction.ip() as usize, SiteKind::Locked, bytes));
                }
            }
            if !is_padding(&instruction) {
                run.begun = true;
                run.ends_with_call = matches!(
                    instruction.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                );
            }
            if leaves(&instruction) {
                self.accept(&mut run);
            }
        }
        // In a function every boundary that was reached is one; in a gap, only up to the last sure end.
        if chunk.is_function || (broken.is_none() && run.ends_with_call) {
            self.accept(&mut run);
        }
        let doubtful = run
            .sites
            .iter()
            .filter(|site| !matches!(site.kind, SiteKind::Locked | SiteKind::SystemCall))
            .map(|site| site.address);
        let doubtful = doubtful.chain(run.ruled_out);
        self.sweep.unverified.extend(doubtful);
        let resume = broken
            .filter(|_| !chunk.is_function)
            .and_then(|position| next_beginning(code, position));
        let resume = resume.map_or(chunk.range.end, |position| chunk.range.start + position);
        self.sweep.unverified.extend(
            candidates
                .take_while(|c| *c < resume)
                .filter(|c| !is_system_call(code, c - chunk.range.start)),
        );
        (resume < chunk.range.end).then_some(Chunk {
            range: resume..chunk.range.end,
            is_function: false,
        })
    }

    fn accept(&mut self, run: &mut Run) {
        let run = std::mem::take(run);
        self.sweep.sites.extend(run.sites);
        self.sweep.locked += run.locked;
        self.sweep.doubtful_calls.extend(run.calls);
    }

    /// Whether a system call is to be a site; its number, if the code tells.
    fn wants_call(&self, number: Option<u64>) -> bool {
        let wanted = self.options.system_calls;
        !wanted.is_empty() && number.is_none_or(|number| wanted.contains(&(number as i64)))
    }
}

impl Run {
    fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.ruled_out.is_empty() && self.calls.is_empty()
    }
}

fn site(address: usize, kind: SiteKind, bytes: &[u8]) -> Site {
    let mut original = [0; 15];
    original[..bytes.len()].copy_from_slice(bytes);
    Site {
        address,
        kind,
        length: bytes.len() as u8,
        original,
        copy: 0,
    }
}

fn is_system_call(code: &[u8], at: usize) -> bool {
    code.get(at..at + 2) == Some(&[0x0f, 0x05])
}

/// What the instruction puts into rax, if that is a constant: the number of a system call that follows.
fn constant_in_accumulator(instruction: &Instruction) -> Option<u64> {
    let is = |register| matches!(register, Register::EAX | Register::RAX);
    match instruction.mnemonic() {
        Mnemonic::Mov if instruction.op0_kind() == OpKind::Register && is(instruction.op0_register()) => {
            match instruction.op1_kind() {
                OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 => Some(instruction.immediate(1)),
                _ => None,
            }
        }
        Mnemonic::Xor if is(instruction.op0_register()) && instruction.op1_kind() == OpKind::Register => {
            is(instruction.op1_register()).then_some(0)
        }
        _ => None,
    }
}

fn flush_or_fence(mnemonic: Mnemonic) -> Option<SiteKind> {
    match mnemonic {
        Mnemonic::Clwb => Some(SiteKind::Clwb),
        Mnemonic::Clflushopt => Some(SiteKind::Clflushopt),
        Mnemonic::Clflush => Some(SiteKind::Clflush),
        Mnemonic::Sfence => Some(SiteKind::Sfence),
        Mnemonic::Mfence => Some(SiteKind::Mfence),
        _ => None,
    }
}

fn is_locked(instruction: &Instruction) -> bool {
    let exchanges_memory = instruction.mnemonic() == Mnemonic::Xchg && instruction.op0_kind() == OpKind::Memory;
    instruction.has_lock_prefix() || exchanges_memory
}

fn is_padding(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Endbr64
    )
}

fn leaves(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => true,
        FlowControl::Exception => instruction.mnemonic() == Mnemonic::Ud2,
        _ => instruction.mnemonic() == Mnemonic::Hlt,
    }
}

/// Where code seems to begin after `position`: at an address as functions are aligned to, behind padding or a return.
fn next_beginning(code: &[u8], position: usize) -> Option<usize> {
    const ALIGNMENT: usize = 16;
    let misaligned = code.as_ptr() as usize % ALIGNMENT;
    let first = (position + misaligned + 1).next_multiple_of(ALIGNMENT) - misaligned;
    // The last byte of a return, a breakpoint, a short and a long nop.
    (first..code.len())
        .step_by(ALIGNMENT)
        .find(|start| matches!(code[start - 1], 0xc3 | 0xcc | 0x90 | 0x00))
}

/// Instructions that no user program executes, but that data decodes to: letters are port input and output.
fn is_implausible(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::In
            | Mnemonic::Out
            | Mnemonic::Insb
            | Mnemonic::Insd
            | Mnemonic::Insw
            | Mnemonic::Outsb
            | Mnemonic::Outsd
            | Mnemonic::Outsw
            | Mnemonic::Cli
            | Mnemonic::Sti
            | Mnemonic::Iret
            | Mnemonic::Iretd
            | Mnemonic::Iretq
            | Mnemonic::Retf
            | Mnemonic::Int
            | Mnemonic::Int1
            | Mnemonic::Sysret
            | Mnemonic::Sysretq
            | Mnemonic::Sysexit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sweeps bytes as a gap; sites and unverified candidates as offsets.
    fn gap(code: &[u8], options: &SweepOptions) -> (Vec<(usize, SiteKind)>, Vec<usize>, u32) {
        let start = code.as_ptr() as usize;
        // SAFETY: a slice is readable.
        let sweep = unsafe { sweep_range(start..start + code.len(), options) };
        let sites = sweep
            .sites
            .iter()
            .map(|site| (site.address - start, site.kind))
            .collect();
        (
            sites,
            sweep.unverified.iter().map(|address| address - start).collect(),
            sweep.locked,
        )
    }

    #[test]
    fn every_kind_is_told_apart() {
        let code = [
            &[0x66, 0x0f, 0xae, 0x30][..],         // clwb (%rax)
            &[0x66, 0x41, 0x0f, 0xae, 0x78, 0x40], // clflushopt 0x40(%r8)
            &[0x0f, 0xae, 0x3d, 0, 0, 0, 0],       // clflush 0(%rip)
            &[0x0f, 0xae, 0xf8],                   // sfence
            &[0x0f, 0xae, 0xf0],                   // mfence
            &[0x0f, 0xae, 0xe8],                   // lfence: no fence of stores
            &[0x0f, 0xae, 0x30],                   // xsaveopt (%rax)
            &[0x66, 0x0f, 0xae, 0xf0],             // tpause %eax
            &[0xf3, 0x0f, 0xae, 0xf0],             // umonitor %rax
            &[0x66, 0x0f, 0xae, 0xf8],             // pcommit, which no processor has
            &[0xf0, 0x48, 0xff, 0x00],             // lock incq (%rax)
            &[0x48, 0x87, 0x07],                   // xchg %rax,(%rdi)
            &[0x48, 0x87, 0xdb],                   // xchg %rbx,%rbx, no request
            &[0xc3],
        ]
        .concat();
        use SiteKind::*;
        let expected = vec![(0, Clwb), (4, Clflushopt), (10, Clflush), (17, Sfence), (20, Mfence)];
        assert_eq!(gap(&code, &SweepOptions::default()), (expected.clone(), vec![], 2));
        let locked = SweepOptions {
            locked: true,
            ..SweepOptions::default()
        };
        assert_eq!(
            gap(&code, &locked).0,
            [expected, vec![(41, Locked), (45, Locked)]].concat()
        );
    }

    #[test]
    fn every_position_is_searched() {
        for before in 0..3 * BLOCK {
            let nops = vec![0x90; before];
            let code = [&nops[..], &[0x0f, 0xae, 0xf8], &CLIENT_REQUEST, &[0xc3]].concat();
            let options = SweepOptions {
                client_requests: true,
                ..SweepOptions::default()
            };
            let expected = [(before, SiteKind::Sfence), (before + 3 + 16, SiteKind::ClientRequest)];
            assert_eq!(gap(&code, &options).0, expected);
        }
    }

    #[test]
    fn constants_are_no_fences() {
        // movabs $0x0000f8ae0f000000,%rax; ret
        let code = [0x48, 0xb8, 0, 0, 0, 0x0f, 0xae, 0xf8, 0, 0, 0xc3];
        assert_eq!(gap(&code, &SweepOptions::default()), (vec![], vec![], 0));
    }

    #[test]
    fn data_in_a_gap_is_not_patched() {
        // No code leaves after it; behind something undecodable; behind letters.
        for data in [
            &[0x0f, 0xae, 0xf8][..],
            &[0x06, 0x0f, 0xae, 0xf8, 0xc3],
            b"mono\x0f\xae\xf8\xc3",
        ] {
            let (sites, unverified, _) = gap(data, &SweepOptions::default());
            assert_eq!((sites.len(), unverified.len()), (0, 1), "{data:?}");
        }
    }

    #[test]
    fn client_requests_are_found_only_when_wanted() {
        let code = [&CLIENT_REQUEST[..], &[0xc3]].concat();
        let wanted = SweepOptions {
            client_requests: true,
            ..SweepOptions::default()
        };
        assert_eq!(gap(&code, &wanted).0, [(16, SiteKind::ClientRequest)]);
        assert_eq!(gap(&code, &SweepOptions::default()).0, []);
    }
}
