//! What is to be done for an instruction: decoding and classification.

use crate::access::Width;
use crate::context::RDI;
use crate::machine::Machine;
use crate::stub::{Relocated, is_ambiguous_branch};
use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, MemorySize, Mnemonic, OpKind, Register,
};

/// An instruction that writes memory, decoded.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(crate) instruction: Instruction,
    pub(crate) action: Action,
    /// Bytes written at most by one step, except by what saves extended state.
    pub(crate) size: usize,
    /// The address must be a multiple of this.
    pub(crate) alignment: u64,
    exchange: bool,
}

/// The ways to perform an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Stores one integer.
    Integer {
        source: Integer,
        width: Width,
    },
    /// Stores a vector register's bytes from `start` on; with an opmask, those of its elements.
    Vector {
        register: u8,
        start: u8,
        element: u8,
    },
    /// Stores those elements of `data` whose sign bit in `mask` is set.
    SignMasked {
        data: u8,
        mask: u8,
        element: u8,
    },
    /// Stores those elements that the opmask selects, one after the other.
    Compress {
        register: u8,
        element: u8,
    },
    /// Stores an element at a time, where the vector index says; ends when the opmask is empty.
    Scatter {
        register: u8,
        element: u8,
        index: u8,
        index_element: u8,
        count: u8,
    },
    /// Stores 64 bytes from memory at the address in a register.
    Direct64 {
        address: Register,
    },
    /// Clears the line that rax points into.
    ZeroLine,
    Fill {
        width: Width,
    },
    Copy {
        width: Width,
    },
    Push {
        source: Pushed,
        width: Width,
    },
    Pop {
        width: Width,
    },
    Enter {
        size: u16,
        level: u8,
    },
    Relocated(Relocated),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Integer {
    Register(Register),
    /// movbe
    Swapped(Register),
    Immediate(u64),
    Condition(ConditionCode),
    Mxcsr,
    ControlWord,
    StatusWord,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Register(Register),
    Immediate(u64),
    Memory,
    Flags,
    /// A call: pushes the address of the next instruction and goes to the target.
    Call(Target),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Address(u64),
    Register(Register),
    Memory,
}

/// Why an instruction cannot be performed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not an instruction.
    #[error("the bytes are not an x86-64 instruction")]
    Invalid,
    /// It does not write memory.
    #[error("{0:?} does not write memory")]
    NotAStore(Mnemonic),
    /// It writes memory in a way that cannot be performed elsewhere.
    #[error("{0:?} to memory cannot be performed elsewhere")]
    Unsupported(Mnemonic),
}

/// Decodes the instruction at `rip`, whose bytes `code` starts with, and finds out how to perform it.
pub fn decode(code: &[u8], rip: u64) -> Result<Plan, DecodeError> {
    let instruction = Decoder::with_ip(64, code, rip, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return Err(DecodeError::Invalid);
    }
    Plan::new(instruction, code)
}

impl Plan {
    pub(crate) fn new(instruction: Instruction, code: &[u8]) -> Result<Plan, DecodeError> {
        let mnemonic = instruction.mnemonic();
        if is_ambiguous_branch(&instruction, code) {
            return Err(DecodeError::Unsupported(mnemonic));
        }
        let action = match implicit(&instruction) {
            Some(action) => action,
            None => {
                let machine = Machine::get();
                let written = (0..instruction.op_count())
                    .any(|operand| is_memory(instruction.op_kind(operand)) && machine.writes(&instruction, operand));
                if !written {
                    return Err(DecodeError::NotAStore(mnemonic));
                }
                explicit(&instruction)
                    .or_else(|| relocated(&instruction, code, machine))
                    .ok_or(DecodeError::Unsupported(mnemonic))?
            }
        };
        let size = match action {
            Action::Direct64 { .. } | Action::ZeroLine => 64,
            Action::Enter { level, .. } => 8 * (usize::from(level) + 1),
            Action::Push { width, .. } | Action::Pop { width } => width.bytes(),
            Action::SignMasked { .. } if instruction.op0_kind() != OpKind::Memory => 16,
            Action::Scatter { element, .. } => element.into(),
            Action::Relocated(_) if instruction.op0_kind() != OpKind::Memory => 8,
            _ => instruction.memory_size().size(),
        };
        Ok(Plan {
            instruction,
            action,
            size,
            alignment: alignment(mnemonic, size),
            exchange: takes_by_exchange(&instruction, code),
        })
    }

    /// The instruction's length in bytes.
    pub fn length(&self) -> usize {
        self.instruction.len()
    }

    /// A store that is not ordered with others until a fence and bypasses the cache: movnt*, maskmov*, direct stores and
    /// `clzero`.
    pub fn nontemporal(&self) -> bool {
        use Mnemonic::*;
        matches!(
            self.instruction.mnemonic(),
            Movnti
                | Movntps
                | Movntpd
                | Movntdq
                | Movntq
                | Movntss
                | Movntsd
                | Vmovntps
                | Vmovntpd
                | Vmovntdq
                | Movdiri
                | Movdir64b
                | Maskmovq
                | Maskmovdqu
                | Vmaskmovdqu
                | Clzero
        )
    }

    /// An atomic read-modify-write, which is a full fence as well.
    pub fn locked(&self) -> bool {
        let exchange = self.instruction.mnemonic() == Mnemonic::Xchg;
        exchange || self.instruction.has_lock_prefix() || compares_and_adds(self.instruction.mnemonic())
    }

    /// A locked compare-exchange, or an exchange whose result the next instructions look at: what takes a lock. A
    /// sequentially consistent store is compiled to an exchange, too, and its result is dropped.
    pub fn exchange(&self) -> bool {
        self.exchange
    }

    /// The instruction's name, for messages.
    pub fn mnemonic(&self) -> Mnemonic {
        self.instruction.mnemonic()
    }

    /// The instruction that a rep prefix repeats as often as rcx says.
    pub(crate) fn repeated(&self) -> bool {
        self.instruction.has_rep_prefix() || self.instruction.has_repne_prefix()
    }
}

/// So many instructions after an exchange are looked at for a use of its result.
const RESULT_WITHIN: usize = 3;

fn takes_by_exchange(instruction: &Instruction, code: &[u8]) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Cmpxchg | Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b => instruction.has_lock_prefix(),
        Mnemonic::Xchg => {
            let result = match instruction.op0_kind() {
                OpKind::Register => instruction.op0_register(),
                _ => instruction.op1_register(),
            };
            let rest = code.get(instruction.len()..).unwrap_or_default();
            reads_soon(result.full_register(), rest, instruction.next_ip())
        }
        _ => false,
    }
}

/// Whether the code reads the register before it overwrites it or goes elsewhere, as far as the bytes at hand say.
fn reads_soon(register: Register, code: &[u8], rip: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, code, rip, DecoderOptions::NONE);
    for _ in 0..RESULT_WITHIN {
        let next = decoder.decode();
        if next.is_invalid() || next.flow_control() != FlowControl::Next {
            return false;
        }
        let is_it = |operand: u32| {
            next.op_kind(operand) == OpKind::Register && next.op_register(operand).full_register() == register
        };
        let addresses =
            next.memory_base().full_register() == register || next.memory_index().full_register() == register;
        let cleared =
            matches!(next.mnemonic(), Mnemonic::Xor | Mnemonic::Sub) && next.op_count() == 2 && is_it(0) && is_it(1);
        let reads = addresses || (1..next.op_count()).any(is_it);
        if reads && !cleared {
            return true;
        }
        if next.op_count() > 0 && is_it(0) {
            // `test` and `cmp` only read; so does arithmetic, which writes as well.
            let moves = matches!(
                next.mnemonic(),
                Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd | Mnemonic::Lea | Mnemonic::Pop
            );
            return !moves && !cleared;
        }
    }
    false
}

fn is_memory(kind: OpKind) -> bool {
    !matches!(
        kind,
        OpKind::Register
            | OpKind::NearBranch16
            | OpKind::NearBranch32
            | OpKind::NearBranch64
            | OpKind::FarBranch16
            | OpKind::FarBranch32
            | OpKind::Immediate8
            | OpKind::Immediate8_2nd
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}

/// Instructions whose destination is not an explicit operand, or is one in an unusual way.
fn implicit(instruction: &Instruction) -> Option<Action> {
    use Mnemonic::*;
    let width = |size: MemorySize| Width::of(size.size());
    Some(match instruction.mnemonic() {
        Push => Action::Push {
            source: match instruction.op0_kind() {
                OpKind::Register => Pushed::Register(instruction.op0_register()),
                OpKind::Memory => Pushed::Memory,
                _ => Pushed::Immediate(instruction.immediate(0)),
            },
            width: Width::of(instruction.stack_pointer_increment().unsigned_abs() as usize)?,
        },
        Pushf | Pushfq => Action::Push {
            source: Pushed::Flags,
            width: if instruction.mnemonic() == Pushf {
                Width::W2
            } else {
                Width::W8
            },
        },
        Call => Action::Push {
            source: Pushed::Call(match instruction.code() {
                Code::Call_rel32_64 => Target::Address(instruction.near_branch_target()),
                Code::Call_rm64 if instruction.op0_kind() == OpKind::Register => {
                    Target::Register(instruction.op0_register())
                }
                Code::Call_rm64 => Target::Memory,
                _ => return None,
            }),
            width: Width::W8,
        },
        Enter if instruction.code() == Code::Enterq_imm16_imm8 => Action::Enter {
            size: instruction.immediate16(),
            level: instruction.immediate8_2nd() & 31,
        },
        Pop if instruction.op0_kind() == OpKind::Memory => Action::Pop {
            width: width(instruction.memory_size())?,
        },
        Movdir64b => Action::Direct64 {
            address: instruction.op0_register(),
        },
        Clzero => Action::ZeroLine,
        Stosb | Stosw | Stosd | Stosq => Action::Fill {
            width: width(instruction.memory_size())?,
        },
        Movsb | Movsw | Movsq => Action::Copy {
            width: width(instruction.memory_size())?,
        },
        // The name is that of a vector store, too.
        Movsd if instruction.op1_kind() != OpKind::Register && instruction.op0_kind() != OpKind::Register => {
            Action::Copy { width: Width::W4 }
        }
        _ => return None,
    })
}

/// Forms that need no copy of the instruction.
fn explicit(instruction: &Instruction) -> Option<Action> {
    use Mnemonic::*;
    let mnemonic = instruction.mnemonic();
    let (first, second) = (instruction.op1_register(), instruction.op2_register());
    let size = instruction.memory_size();
    let integer = |source| {
        Some(Action::Integer {
            source,
            width: Width::of(size.size())?,
        })
    };
    let element = size.element_size() as u8;
    match mnemonic {
        Mov => match instruction.op1_kind() {
            OpKind::Register if first.is_gpr() => return integer(Integer::Register(first)),
            OpKind::Register => return None,
            _ => return integer(Integer::Immediate(instruction.immediate(1))),
        },
        Movnti | Movdiri => return integer(Integer::Register(first)),
        Movbe => return integer(Integer::Swapped(first)),
        Stmxcsr | Vstmxcsr => return integer(Integer::Mxcsr),
        Fnstcw => return integer(Integer::ControlWord),
        Fnstsw => return integer(Integer::StatusWord),
        _ if instruction.condition_code() != ConditionCode::None && instruction.op_count() == 1 => {
            return integer(Integer::Condition(instruction.condition_code()));
        }
        _ => {}
    }
    if !first.is_vector_register() {
        return None;
    }
    let register = first.number() as u8;
    let vector = |start: usize| {
        Some(Action::Vector {
            register,
            start: start as u8,
            element,
        })
    };
    match mnemonic {
        Movaps | Movapd | Movups | Movupd | Movdqa | Movdqu | Movss | Movsd | Movd | Movq | Movlps | Movlpd
        | Movntps | Movntpd | Movntdq | Movntss | Movntsd | Vmovaps | Vmovapd | Vmovups | Vmovupd | Vmovdqa
        | Vmovdqa32 | Vmovdqa64 | Vmovdqu | Vmovdqu8 | Vmovdqu16 | Vmovdqu32 | Vmovdqu64 | Vmovss | Vmovsd | Vmovsh
        | Vmovw | Vmovd | Vmovq | Vmovlps | Vmovlpd | Vmovntps | Vmovntpd | Vmovntdq => vector(0),
        Movhps | Movhpd | Vmovhps | Vmovhpd => vector(8),
        Pextrb | Pextrw | Pextrd | Pextrq | Extractps | Vpextrb | Vpextrw | Vpextrd | Vpextrq | Vextractps
        | Vextractf128 | Vextracti128 | Vextractf32x4 | Vextracti32x4 | Vextractf64x2 | Vextracti64x2
        | Vextractf32x8 | Vextracti32x8 | Vextractf64x4 | Vextracti64x4 => {
            let parts = first.size().checked_div(size.size())?;
            vector(usize::from(instruction.immediate8()) % parts.max(1) * size.size())
        }
        Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq => {
            let element = if matches!(mnemonic, Vmaskmovps | Vpmaskmovd) {
                4
            } else {
                8
            };
            Some(Action::SignMasked {
                data: second.number() as u8,
                mask: register,
                element,
            })
        }
        Maskmovdqu | Vmaskmovdqu => Some(Action::SignMasked {
            data: register,
            mask: second.number() as u8,
            element: 1,
        }),
        Vcompressps | Vpcompressd => Some(Action::Compress { register, element: 4 }),
        Vcompresspd | Vpcompressq => Some(Action::Compress { register, element: 8 }),
        Vpcompressb => Some(Action::Compress { register, element: 1 }),
        Vpcompressw => Some(Action::Compress { register, element: 2 }),
        Vpscatterdd | Vscatterdps => scatter(instruction, 4, 4),
        Vpscatterdq | Vscatterdpd => scatter(instruction, 8, 4),
        Vpscatterqd | Vscatterqps => scatter(instruction, 4, 8),
        Vpscatterqq | Vscatterqpd => scatter(instruction, 8, 8),
        _ => None,
    }
}

fn scatter(instruction: &Instruction, element: usize, index_element: usize) -> Option<Action> {
    let (data, index) = (instruction.op1_register(), instruction.memory_index());
    let count = (data.size() / element).min(index.size() / index_element);
    Some(Action::Scatter {
        register: data.number() as u8,
        element: element as u8,
        index: index.number() as u8,
        index_element: index_element as u8,
        count: count as u8,
    })
}

fn relocated(instruction: &Instruction, code: &[u8], machine: &Machine) -> Option<Action> {
    use Mnemonic::*;
    // Writes that are not to one range (tiles), go to a device, or concern the shadow stack.
    if matches!(
        instruction.mnemonic(),
        Tilestored | Enqcmd | Enqcmds | Wrssd | Wrssq | Wrussd | Wrussq | Rstorssp | Clrssbsy
    ) || !instruction.memory_index().is_gpr() && instruction.memory_index() != Register::None
        || !machine.pool.usable()
    {
        return None;
    }
    let copy = match instruction.mnemonic() {
        Maskmovq => Relocated::unchanged(instruction, code, RDI)?,
        _ => Relocated::new(instruction, code)?,
    };
    let restorable = !copy.extended() || machine.layout.enabled != 0;
    restorable.then_some(Action::Relocated(copy))
}

/// What a store of `size` bytes must be aligned to. Copies of instructions see to that themselves.
fn alignment(mnemonic: Mnemonic, size: usize) -> u64 {
    use Mnemonic::*;
    match mnemonic {
        Movaps | Movapd | Movdqa | Movntps | Movntpd | Movntdq | Vmovaps | Vmovapd | Vmovdqa | Vmovdqa32
        | Vmovdqa64 | Vmovntps | Vmovntpd | Vmovntdq | Movdir64b => size.max(1) as u64,
        _ => 1,
    }
}

fn compares_and_adds(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Cmpbexadd
            | Cmpbxadd
            | Cmplexadd
            | Cmplxadd
            | Cmpnbexadd
            | Cmpnbxadd
            | Cmpnlexadd
            | Cmpnlxadd
            | Cmpnoxadd
            | Cmpnpxadd
            | Cmpnsxadd
            | Cmpnzxadd
            | Cmpoxadd
            | Cmppxadd
            | Cmpsxadd
            | Cmpzxadd
    )
}
