//! Running ahead: executing the program's next instructions inside the handler, without a signal each.
//!
//! Stores to persistent memory come in bunches (a copied buffer, an initialised structure) with a few simple instructions
//! between them: loads, address arithmetic, a loop's comparison and branch. Those are executed here, and the next store is
//! handed out, so that a bunch costs one signal. Moves, `lea` and branches are executed directly; arithmetic runs as a copy
//! of the instruction on the program's registers, so that its flags are the processor's. What is not known to be harmless
//! ends the run: the program then continues by itself.

use crate::access;
use crate::context::{Context, RSP};
use crate::machine::Machine;
use crate::perform::holds;
use crate::plan::Plan;
use crate::stub::{Relocated, is_ambiguous_branch};
use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// What became of the program's next instruction.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// It was executed.
    Done,
    /// It was executed and went to an address from a register or from memory. Before stepping on, the caller makes sure
    /// that this is code; if it is not, the program must get there by itself.
    Jumped,
    /// It writes memory and is still to be performed, by [`Plan::perform`] or by the program itself.
    Store(Plan),
    /// It must be left to the program.
    Stop,
}

/// Executes the instruction at the context's rip, whose bytes `code` starts with, if it is simple and writes no memory.
pub fn step(code: &[u8], cx: &mut Context) -> Step {
    let instruction = Decoder::with_ip(64, code, cx.rip(), DecoderOptions::NONE).decode();
    if !supported(&instruction, cx) || is_ambiguous_branch(&instruction, code) {
        return Step::Stop;
    }
    match execute(&instruction, code, cx) {
        Some(next) => {
            cx.finish(next);
            if instruction.flow_control() == FlowControl::Next || is_direct(&instruction) {
                Step::Done
            } else {
                Step::Jumped
            }
        }
        None if instruction.mnemonic() == Mnemonic::Call && has_shadow_stack() => Step::Stop,
        None => Plan::new(instruction, code).map_or(Step::Stop, Step::Store),
    }
}

/// Whether the processor would execute it as far as the vector extensions are concerned.
fn supported(instruction: &Instruction, cx: &Context) -> bool {
    const AVX: u64 = 0b110;
    const AVX512: u64 = 0b1110_0110;
    let needed = match instruction.encoding() {
        EncodingKind::Legacy => 0,
        EncodingKind::VEX => AVX,
        _ => AVX512,
    };
    !instruction.is_invalid() && cx.layout().enabled & needed == needed
}

/// The address of the next instruction; `None` if this one was not executed.
fn execute(instruction: &Instruction, code: &[u8], cx: &mut Context) -> Option<u64> {
    use Mnemonic::*;
    let next = instruction.next_ip();
    let destination = instruction.op0_register();
    let writes_register = instruction.op0_kind() == OpKind::Register;
    match instruction.mnemonic() {
        Nop | Endbr64 | Prefetchw | Prefetcht0 | Prefetcht1 | Prefetcht2 | Prefetchnta => return Some(next),
        Jmp if is_direct(instruction) => return Some(instruction.near_branch_target()),
        _ if instruction.is_jcc_short_or_near() => {
            let taken = holds(instruction.condition_code(), cx.flags());
            return Some(if taken { instruction.near_branch_target() } else { next });
        }
        Jmp if instruction.code() == Code::Jmp_rm64 => {
            return if writes_register {
                Some(cx.register(destination))
            } else {
                load(instruction, cx)
            };
        }
        Ret if matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16) && !has_shadow_stack() => {
            let target = pop(cx)?;
            let dropped = if instruction.code() == Code::Retnq {
                0
            } else {
                instruction.immediate16()
            };
            cx.set_general(RSP, cx.general(RSP).wrapping_add(dropped.into()));
            return Some(target);
        }
        Pop if writes_register && destination.is_gpr64() => {
            let value = pop(cx)?;
            cx.set_register(destination, value);
            return Some(next);
        }
        Lea if destination.is_gpr() => {
            let address = cx.offset(instruction);
            cx.set_register(destination, address);
            return Some(next);
        }
        Mov if writes_register && destination.is_gpr() => {
            let value = match instruction.op1_kind() {
                OpKind::Register if instruction.op1_register().is_gpr() => cx.register(instruction.op1_register()),
                OpKind::Register => return None,
                OpKind::Memory => load(instruction, cx)?,
                _ => instruction.immediate(1),
            };
            cx.set_register(destination, value);
            return Some(next);
        }
        Movzx if instruction.op1_kind() == OpKind::Memory => {
            let value = load(instruction, cx)?;
            cx.set_register(destination, value);
            return Some(next);
        }
        Movups | Movupd | Movdqu | Lddqu | Vmovups | Vmovupd | Vmovdqu | Vlddqu
            if instruction.op1_kind() == OpKind::Memory && instruction.op_mask() == Register::None =>
        {
            return load_vector(instruction, cx).then_some(next);
        }
        _ => {}
    }
    let general =
        general(instruction.mnemonic()) || instruction.condition_code() != ConditionCode::None && writes_register;
    let vector = vector(instruction.mnemonic()) && (writes_register || instruction.op_count() == 0);
    if !general && !vector || instruction.op_mask() != Register::None {
        return None;
    }
    let machine = Machine::get();
    let copy = if (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory) {
        // With memory as the destination it is a store; comparisons have it as an operand that is only read.
        if instruction.op0_kind() == OpKind::Memory && machine.writes(instruction, 0) {
            return None;
        }
        Relocated::new(instruction, code)?
    } else {
        Relocated::of_registers(instruction, code, vector)?
    };
    if copy.extended() != vector || !machine.pool.usable() || vector && machine.layout.enabled == 0 {
        return None;
    }
    let operand = cx.effective_address(instruction);
    // SAFETY: the copy only reads memory, at the program's own address; a fault leaves all as it was.
    unsafe { copy.changing_vectors().run(&machine.pool, cx, operand, 0).ok()? };
    Some(next)
}

fn is_direct(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::NearBranch64
}

/// Calls and returns must leave a shadow stack to the processor.
fn has_shadow_stack() -> bool {
    let pointer: u64;
    // SAFETY: reads the shadow stack's pointer; without one it does nothing.
    unsafe { core::arch::asm!("xor {0:e}, {0:e}", "rdsspq {0}", out(reg) pointer, options(nomem, nostack)) };
    pointer != 0
}

fn pop(cx: &mut Context) -> Option<u64> {
    let top = cx.general(RSP);
    let value = access::load(top, access::Width::W8).ok()?;
    cx.set_general(RSP, top.wrapping_add(8));
    Some(value)
}

fn load(instruction: &Instruction, cx: &Context) -> Option<u64> {
    let width = access::Width::of(instruction.memory_size().size())?;
    access::load(cx.effective_address(instruction), width).ok()
}

/// Loads a whole xmm or ymm register. The legacy forms leave its upper part, the others clear it.
fn load_vector(instruction: &Instruction, cx: &mut Context) -> bool {
    use Mnemonic::*;
    let mut value = [0; 64];
    let size = instruction.memory_size().size();
    let Some(bytes) = value.get_mut(..size) else {
        return false;
    };
    let address = cx.effective_address(instruction);
    if access::load_bytes(bytes, address).is_err() {
        return false;
    }
    let legacy = matches!(instruction.mnemonic(), Movups | Movupd | Movdqu | Lddqu);
    let written = if legacy { size } else { value.len() };
    cx.set_vector(
        instruction.op0_register().number(),
        0,
        value.get(..written).unwrap_or_default(),
    )
}

/// Integer instructions without effects beyond general registers and flags. Conditional moves and the like are found by
/// their condition.
fn general(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Movzx
            | Movsx
            | Movsxd
            | Movbe
            | Add
            | Adc
            | Sub
            | Sbb
            | And
            | Or
            | Xor
            | Inc
            | Dec
            | Neg
            | Not
            | Cmp
            | Test
            | Shl
            | Sal
            | Shr
            | Sar
            | Rol
            | Ror
            | Imul
            | Bswap
            | Bt
            | Bsf
            | Bsr
            | Tzcnt
            | Lzcnt
            | Popcnt
            | Cwd
            | Cdq
            | Cqo
            | Cbw
            | Cwde
            | Cdqe
            | Andn
            | Blsr
            | Blsi
            | Blsmsk
            | Bzhi
            | Rorx
            | Shlx
            | Shrx
            | Sarx
    )
}

/// Vector instructions that move and combine bits, and cannot raise a floating-point exception.
fn vector(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Movaps
            | Movapd
            | Movups
            | Movupd
            | Movdqa
            | Movdqu
            | Movd
            | Movq
            | Movss
            | Movsd
            | Movlps
            | Movhps
            | Movlpd
            | Movhpd
            | Movlhps
            | Movhlps
            | Movddup
            | Xorps
            | Xorpd
            | Andps
            | Andpd
            | Orps
            | Orpd
            | Pxor
            | Pand
            | Pandn
            | Por
            | Paddb
            | Paddd
            | Paddq
            | Psubd
            | Psubq
            | Pcmpeqb
            | Pcmpeqd
            | Pminub
            | Pmovmskb
            | Punpcklbw
            | Punpcklwd
            | Punpckldq
            | Punpcklqdq
            | Punpckhqdq
            | Unpcklps
            | Unpcklpd
            | Pshufd
            | Pshufb
            | Shufps
            | Shufpd
            | Pinsrb
            | Pinsrw
            | Pinsrd
            | Pinsrq
            | Vzeroupper
            | Vmovaps
            | Vmovapd
            | Vmovups
            | Vmovupd
            | Vmovdqa
            | Vmovdqu
            | Vmovd
            | Vmovq
            | Vmovss
            | Vmovsd
            | Vmovlps
            | Vmovhps
            | Vmovddup
            | Vxorps
            | Vxorpd
            | Vpxor
            | Vpand
            | Vpandn
            | Vpor
            | Vpaddb
            | Vpaddd
            | Vpaddq
            | Vpsubd
            | Vpsubq
            | Vpcmpeqb
            | Vpcmpeqd
            | Vpminub
            | Vpmovmskb
            | Vpunpcklbw
            | Vpunpckldq
            | Vpunpcklqdq
            | Vpunpckhqdq
            | Vunpcklps
            | Vunpcklpd
            | Vpshufd
            | Vpshufb
            | Vshufps
            | Vpinsrb
            | Vpinsrw
            | Vpinsrd
            | Vpinsrq
            | Vpbroadcastb
            | Vpbroadcastw
            | Vpbroadcastd
            | Vpbroadcastq
            | Vbroadcastss
            | Vbroadcastsd
            | Vinsertf128
            | Vinserti128
    )
}
