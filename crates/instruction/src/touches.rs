//! What memory an instruction touches, for whoever wants to know that before it is executed.

use crate::context::Context;
use crate::machine::Machine;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

/// Memory that an instruction loads or stores. A masked access counts with the bytes that its mask leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Touch {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub length: u64,
    /// It is stored to.
    pub write: bool,
}

/// The memory operands of an instruction. One that repeats is described for its next repetition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Touches {
    operands: [Touch; 2],
    count: usize,
    /// It also pushes or pops at rsp, or takes down the frame at rbp, which is not among the operands.
    pub stack: bool,
    /// It has a prefix by which it may touch the memory behind its operands too.
    pub repeated: bool,
}

impl Touches {
    /// The memory operands, in the order of the instruction.
    pub fn operands(&self) -> &[Touch] {
        &self.operands[..self.count]
    }
}

/// What the instruction at `rip`, whose bytes `code` starts with, will touch. `None` if that cannot be told, or if it may do
/// something else than touch that memory and go on: raise SIGFPE.
pub fn touches(code: &[u8], rip: u64, cx: &Context) -> Option<Touches> {
    let instruction = Decoder::with_ip(64, code, rip, DecoderOptions::NONE).decode();
    if instruction.is_invalid() || is_unusual(&instruction) || may_raise(&instruction, cx) {
        return None;
    }
    let mut touches = Touches {
        stack: instruction.is_stack_instruction(),
        repeated: instruction.has_rep_prefix() || instruction.has_repne_prefix(),
        ..Touches::default()
    };
    for operand in 0..instruction.op_count() {
        let address = match instruction.op_kind(operand) {
            OpKind::Memory if instruction.mnemonic() == Mnemonic::Lea => continue,
            OpKind::Memory => cx.effective_address(&instruction),
            _ => match cx.implicit_address(&instruction, operand) {
                Some((address, _)) => address,
                None => continue,
            },
        };
        let length = instruction.memory_size().size() as u64;
        if length == 0 {
            return None;
        }
        *touches.operands.get_mut(touches.count)? = Touch {
            address,
            length,
            write: Machine::get().writes(&instruction, operand),
        };
        touches.count += 1;
    }
    Some(touches)
}

/// Divisions, and all if the program has unmasked a floating-point exception.
fn may_raise(instruction: &Instruction, cx: &Context) -> bool {
    const MXCSR_MASKS: u32 = 0x1f80;
    const X87_MASKS: u16 = 0x3f;
    matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv)
        || cx.mxcsr() & MXCSR_MASKS != MXCSR_MASKS
        || cx.x87_words().0 & X87_MASKS != X87_MASKS
}

/// Instructions whose operands do not tell all the memory that they touch.
fn is_unusual(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let bit_string =
        matches!(instruction.mnemonic(), Bt | Bts | Btr | Btc) && instruction.op1_kind() == OpKind::Register;
    let elsewhere = matches!(
        instruction.mnemonic(),
        Movdir64b | Enqcmd | Enqcmds | Clzero | Monitor | Umonitor | Monitorx | Bndldx | Bndstx
    );
    let vector_index = instruction.memory_index().is_vector_register();
    let tile = (0..instruction.op_count()).any(|i| instruction.op_register(i).is_tmm());
    // What the flags on the stack hold depends on whether the instruction is single-stepped.
    let flags = matches!(instruction.mnemonic(), Pushf | Pushfd | Pushfq | Popf | Popfd | Popfq);
    bit_string || elsewhere || vector_index || tile || flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::*;
    use iced_x86::{Code, MemoryOperand, Register};

    fn touched(assemble: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>) -> Option<Touches> {
        let mut assembler = CodeAssembler::new(64).expect("64 bits");
        assemble(&mut assembler).expect("an instruction");
        let code = assembler.assemble(0x1000).expect("its bytes");
        // SAFETY: all-zero is a valid context without vector state.
        let mut uc: libc::ucontext_t = unsafe { std::mem::zeroed() };
        uc.uc_mcontext.gregs[libc::REG_RSI as usize] = 0x5000;
        uc.uc_mcontext.gregs[libc::REG_RDI as usize] = 0x7000;
        uc.uc_mcontext.gregs[libc::REG_RCX as usize] = 3;
        // SAFETY: no vector state is looked at.
        touches(&code, 0x1000, &unsafe { Context::new(&mut uc) })
    }

    fn read(address: u64, length: u64) -> Touch {
        Touch {
            address,
            length,
            write: false,
        }
    }

    fn write(address: u64, length: u64) -> Touch {
        Touch {
            write: true,
            ..read(address, length)
        }
    }

    #[test]
    fn explicit_operands() {
        let cases = [
            (
                touched(|a| a.mov(eax, dword_ptr(rsi + rcx * 8 + 16))),
                vec![read(0x5028, 4)],
            ),
            (touched(|a| a.mov(word_ptr(rdi - 1), ax)), vec![write(0x6fff, 2)]),
            (touched(|a| a.add(qword_ptr(rdi), rax)), vec![write(0x7000, 8)]),
            (touched(|a| a.lea(rax, qword_ptr(rsi))), vec![]),
            (
                touched(|a| a.vmovdqu(ymm0, ymmword_ptr(rsi + 60))),
                vec![read(0x503c, 32)],
            ),
            (touched(|a| a.movntdq(xmmword_ptr(rdi), xmm1)), vec![write(0x7000, 16)]),
            (touched(|a| a.cmpxchg16b(xmmword_ptr(rdi))), vec![write(0x7000, 16)]),
            (touched(|a| a.mov(al, byte_ptr(0x2000u64))), vec![read(0x2000, 1)]),
            (touched(|a| a.add(rax, rcx)), vec![]),
        ];
        for (i, (touches, expected)) in cases.into_iter().enumerate() {
            let touches = touches.unwrap_or_else(|| panic!("case {i} is told"));
            assert_eq!((touches.operands(), touches.stack), (&expected[..], false), "case {i}");
        }
    }

    #[test]
    fn strings_are_described_for_one_repetition() {
        let copied = touched(|a| a.rep().movsq()).expect("told");
        assert_eq!(copied.operands(), [write(0x7000, 8), read(0x5000, 8)]);
        assert!(copied.repeated);
        let compared = touched(|a| a.repe().cmpsb()).expect("told");
        assert_eq!(compared.operands(), [read(0x5000, 1), read(0x7000, 1)]);
        let filled = touched(|a| a.rep().stosd()).expect("told");
        assert_eq!(filled.operands(), [write(0x7000, 4)]);
    }

    #[test]
    fn the_stack_is_mentioned() {
        let pushed = touched(|a| a.push(qword_ptr(rsi))).expect("told");
        assert_eq!((pushed.operands(), pushed.stack), (&[read(0x5000, 8)][..], true));
        assert!(touched(|a| a.leave()).expect("told").stack);
    }

    #[test]
    fn what_cannot_be_told() {
        assert_eq!(touched(|a| a.bts(qword_ptr(rdi), rax)), None);
        assert_eq!(touched(|a| a.xsave(ptr(rdi))), None);
        assert_eq!(
            touched(|a| a.add_instruction(Instruction::with2(
                Code::Movdir64b_r64_m512,
                Register::RAX,
                MemoryOperand::with_base(Register::RSI)
            )?)),
            None
        );
        assert_eq!(touched(|a| a.vpgatherdd(xmm0.k1(), dword_ptr(rsi + xmm1))), None);
        assert_eq!(touched(|a| a.pushfq()), None);
        assert_eq!(touched(|a| a.idiv(dword_ptr(rsi))), None);
    }
}
