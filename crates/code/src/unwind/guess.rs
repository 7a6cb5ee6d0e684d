//! Rules for code without unwind tables, from the code itself.
//!
//! Execution that goes on from the interrupted instruction reaches a return sooner or later, and there the stack pointer
//! points to the return address. So the code is followed forward, through jumps and both sides of branches, keeping
//! count of what it adds to the stack pointer and takes from it; calls leave it as it is. No function start is needed, and tail
//! calls come out right: the function jumped to returns for both. A path may be wrong (a call that never returns runs into
//! the next function), so each result is offered to the caller, who looks whether a plausible return address is there.
//! If no path leads to one, the frame pointer is tried, then a frame that holds nothing but the return address.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::Registers;
use super::cache::{Base, Rule};
use super::cfi::Step;
use super::stack::Stack;

/// Enough for long functions, and bounded: it happens once for each address.
const MOST_INSTRUCTIONS: usize = 2000;
const MOST_BRANCHES: usize = 64;
/// Where the kernel puts the interrupted registers: `uc_mcontext.gregs` in `ucontext_t`.
const GENERAL_REGISTERS: u64 = 40;

/// Makes the decoder build its tables.
pub(super) fn prepare() {
    let _ = Decoder::with_ip(64, &[0x90], 0, DecoderOptions::NONE).decode();
}

/// Whether the last bytes of `code` are a call.
pub(super) fn follows_call(code: &[u8]) -> bool {
    let ends_with_direct = code.len() >= 5 && code[code.len() - 5] == 0xe8;
    ends_with_direct
        || (2..=7).any(|length| {
            let Some(call) = code.len().checked_sub(length).map(|start| &code[start..]) else {
                return false;
            };
            // FF /2 with its operand; a prefix before it does not matter.
            let (mode, base) = (call[1] >> 6, call[1] & 7);
            let scaled = (mode != 3 && base == 4) as usize;
            let displacement = match mode {
                0 if base == 5 => 4,
                0 if scaled == 1 && call.len() > 2 && call[2] & 7 == 5 => 4,
                1 => 1,
                2 => 4,
                _ => 0,
            };
            call[0] == 0xff && call[1] & 0x38 == 0x10 && length == 2 + scaled + displacement
        })
}

/// Whether `pc` is where the kernel lets signal handlers return to: `mov $15,%rax` (either form), `syscall`.
pub(super) fn is_signal_return(code: &'static [u8], pc: u64) -> bool {
    let Some(offset) = offset_in(code, pc) else {
        return false;
    };
    let sequences: [&[u8]; 2] = [
        &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
        &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],
    ];
    sequences.iter().any(|sequence| code[offset..].starts_with(sequence))
}

/// The frame that a signal interrupted, seen from the return of its handler.
pub(super) fn signal_frame(registers: &Registers, stack: &mut Stack) -> Step {
    let mut read = |register: libc::c_int| stack.read(registers.rsp() + GENERAL_REGISTERS + register as u64 * 8);
    match (read(libc::REG_RIP), read(libc::REG_RSP), read(libc::REG_RBP)) {
        (Some(rip), Some(rsp), Some(rbp)) => {
            let mut registers = Registers::new(rip, rsp, rbp);
            for (number, register) in [(3, libc::REG_RBX), (12, libc::REG_R12), (13, libc::REG_R13)]
                .into_iter()
                .chain([(14, libc::REG_R14), (15, libc::REG_R15)])
            {
                registers.0[number] = read(register).unwrap_or(0);
            }
            Step::Caller {
                registers,
                interrupted: true,
            }
        }
        _ => Step::Outermost,
    }
}

/// An address relative to a register's value at the start.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    base: Base,
    offset: i64,
}

impl Place {
    fn plus(self, distance: i64) -> Place {
        Place {
            offset: self.offset + distance,
            ..self
        }
    }
}

/// What is in rbp, as far as it matters.
#[derive(Clone, Copy, PartialEq)]
enum Rbp {
    Initial,
    Address(Place),
    LoadedFrom(Place),
    Unknown,
}

#[derive(Clone, Copy)]
struct State {
    rsp: Place,
    rbp: Rbp,
    /// What the code itself has pushed of rbp, and where.
    pushed: Option<(Place, Rbp)>,
}

/// Finds a rule for the frame that goes on at `pc` in `code` and that `accept` finds plausible.
pub(super) fn rule(code: &'static [u8], pc: u64, mut accept: impl FnMut(&Rule) -> bool) -> Option<Rule> {
    if let Some(rule) = follow(code, pc, &mut accept) {
        return Some(rule);
    }
    let frame_pointer = Rule {
        cfa_offset: 16,
        rbp_offset: -16,
        base: Base::Rbp,
        guessed: true,
    };
    let leaf = Rule {
        cfa_offset: 8,
        rbp_offset: Rule::KEPT,
        base: Base::Rsp,
        guessed: true,
    };
    [frame_pointer, leaf].into_iter().find(|rule| accept(rule))
}

fn offset_in(code: &[u8], pc: u64) -> Option<usize> {
    let offset = pc.checked_sub(code.as_ptr() as u64)? as usize;
    (offset < code.len()).then_some(offset)
}

/// The length of the flush, fence or client request whose first byte, one of few, a breakpoint has replaced.
fn under_breakpoint(code: &[u8]) -> Option<usize> {
    let mut original = [0; 15];
    let len = code.len().min(original.len());
    original[..len].copy_from_slice(&code[..len]);
    const FIRST_BYTES: [u8; 8] = [0x0f, 0x66, 0x48, 0x41, 0x64, 0x65, 0x67, 0xf0];
    FIRST_BYTES.into_iter().find_map(|first| {
        original[0] = first;
        let instruction = Decoder::new(64, &original[..len], DecoderOptions::NONE).decode();
        let is_site = match instruction.mnemonic() {
            Mnemonic::Clwb | Mnemonic::Clflushopt | Mnemonic::Clflush | Mnemonic::Sfence | Mnemonic::Mfence => true,
            Mnemonic::Xchg => {
                instruction.op0_register() == Register::RBX && instruction.op1_register() == Register::RBX
            }
            _ => instruction.has_lock_prefix(),
        };
        is_site.then_some(instruction.len())
    })
}

fn follow(code: &'static [u8], pc: u64, accept: &mut impl FnMut(&Rule) -> bool) -> Option<Rule> {
    let mut state = State {
        rsp: Place {
            base: Base::Rsp,
            offset: 0,
        },
        rbp: Rbp::Initial,
        pushed: None,
    };
    // Every place that was jumped to, with the state there; those from `next` on wait to be followed.
    let mut targets = [(0, state); MOST_BRANCHES];
    let (mut next, mut known) = (0, 0);
    let mut decoder = Decoder::with_ip(64, code, code.as_ptr() as u64, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut position = offset_in(code, pc);

    for _ in 0..MOST_INSTRUCTIONS {
        let Some(at) = position else {
            // The path has ended; take the next.
            if next == known {
                return None;
            }
            (position, state) = (Some(targets[next].0), targets[next].1);
            next += 1;
            continue;
        };
        decoder.set_position(at).ok()?;
        decoder.set_ip(code.as_ptr() as u64 + at as u64);
        decoder.decode_out(&mut instruction);
        if instruction.mnemonic() == Mnemonic::Int3 {
            // What stands under a breakpoint leaves the stack as it is.
            position = under_breakpoint(&code[at..]).map(|len| at + len);
            continue;
        }
        position = offset_in(code, instruction.next_ip());
        let mut jump = |target: u64| {
            if let Some(target) = offset_in(code, target)
                && known < MOST_BRANCHES
                && targets[..known].iter().all(|(other, _)| *other != target)
            {
                targets[known] = (target, state);
                known += 1;
            }
        };
        match instruction.flow_control() {
            FlowControl::Next => {
                if !state.execute(&instruction) {
                    position = None;
                }
            }
            FlowControl::Call | FlowControl::IndirectCall => (),
            FlowControl::ConditionalBranch => jump(instruction.near_branch_target()),
            FlowControl::UnconditionalBranch => {
                jump(instruction.near_branch_target());
                position = None;
            }
            // An indirect jump may be a tail call: then the return address is on top of the stack too.
            FlowControl::Return | FlowControl::IndirectBranch => {
                let rule = state.rule();
                if accept(&rule) {
                    return Some(rule);
                }
                position = None;
            }
            _ if instruction.mnemonic() == Mnemonic::Syscall => (),
            _ => position = None,
        }
    }
    None
}

impl State {
    /// Returns false if the stack pointer is lost.
    fn execute(&mut self, instruction: &Instruction) -> bool {
        let writes = |register: Register| {
            instruction.op0_kind() == OpKind::Register
                && instruction.op0_register().full_register() == register
                && !matches!(
                    instruction.mnemonic(),
                    Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt
                )
        };
        let source = (instruction.op_count() > 1 && instruction.op1_kind() == OpKind::Register)
            .then(|| instruction.op1_register());
        let immediate = || instruction.try_immediate(1).ok().map(|value| value as i64);
        // The address computed by `lea` from a single register.
        let computed = || {
            (instruction.mnemonic() == Mnemonic::Lea && instruction.memory_index() == Register::None)
                .then(|| (instruction.memory_base(), instruction.memory_displacement64() as i64))
        };
        match instruction.mnemonic() {
            Mnemonic::Push => {
                self.rsp = self.rsp.plus(-8);
                if instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RBP {
                    self.pushed = Some((self.rsp, self.rbp));
                }
            }
            Mnemonic::Pop if writes(Register::RSP) => return false,
            Mnemonic::Pop => {
                if writes(Register::RBP) {
                    self.load_rbp(self.rsp);
                }
                self.rsp = self.rsp.plus(8);
            }
            Mnemonic::Leave => {
                let Some(frame) = self.rbp_as_place() else { return false };
                self.load_rbp(frame);
                self.rsp = frame.plus(8);
            }
            _ if writes(Register::RSP) => {
                let moved = match (instruction.mnemonic(), source, computed()) {
                    (Mnemonic::Add, None, _) => immediate().map(|distance| self.rsp.plus(distance)),
                    (Mnemonic::Sub, None, _) => immediate().map(|distance| self.rsp.plus(-distance)),
                    (Mnemonic::Mov, Some(Register::RBP), _) => self.rbp_as_place(),
                    (_, _, Some((Register::RSP, distance))) => Some(self.rsp.plus(distance)),
                    (_, _, Some((Register::RBP, distance))) => self.rbp_as_place().map(|frame| frame.plus(distance)),
                    _ => None,
                };
                let Some(moved) = moved else { return false };
                self.rsp = moved;
            }
            _ if writes(Register::RBP) => {
                self.rbp = match (instruction.mnemonic(), source, computed()) {
                    (Mnemonic::Mov, Some(Register::RSP), _) => Rbp::Address(self.rsp),
                    (_, _, Some((Register::RSP, distance))) => Rbp::Address(self.rsp.plus(distance)),
                    (Mnemonic::Mov, None, _) if instruction.memory_base() == Register::RSP => {
                        Rbp::LoadedFrom(self.rsp.plus(instruction.memory_displacement64() as i64))
                    }
                    _ => Rbp::Unknown,
                };
            }
            _ => (),
        }
        true
    }

    fn rbp_as_place(&self) -> Option<Place> {
        match self.rbp {
            Rbp::Initial => Some(Place {
                base: Base::Rbp,
                offset: 0,
            }),
            Rbp::Address(place) => Some(place),
            Rbp::LoadedFrom(_) | Rbp::Unknown => None,
        }
    }

    fn load_rbp(&mut self, place: Place) {
        self.rbp = match self.pushed {
            Some((where_pushed, value)) if where_pushed == place => value,
            _ => Rbp::LoadedFrom(place),
        };
    }

    /// The rule if the return address is on top of the stack now.
    fn rule(&self) -> Rule {
        let cfa = self.rsp.plus(8);
        let saved = match self.rbp {
            Rbp::LoadedFrom(place) if place.base == cfa.base => i16::try_from(place.offset - cfa.offset).ok(),
            _ => None,
        };
        // An offset that does not fit leads nowhere: the frame it gives is not further out.
        Rule {
            cfa_offset: cfa.offset.try_into().unwrap_or(0),
            rbp_offset: saved.unwrap_or(Rule::KEPT),
            base: cfa.base,
            guessed: true,
        }
    }
}
