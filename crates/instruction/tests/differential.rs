//! Every instruction that writes memory, on this processor and through the crate: the outcome must be the same.

mod harness;

use harness::{End, FILE, Harness, Mode, Outcome, PAGE, Random, Registers};
use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, FlowControl, Instruction, MemoryOperand, Mnemonic, OpCodeOperandKind,
    OpKind, Register,
};
use std::collections::BTreeMap;
use std::sync::Mutex;

const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RSP: usize = 4;
const RBP: usize = 5;
const RSI: usize = 6;
const RDI: usize = 7;

/// Generates operands for an instruction and the registers that make them point into memory.
struct Case<'a> {
    harness: &'a Harness,
    random: &'a mut Random,
    registers: Box<Registers>,
    /// The address that the memory operand shall have.
    target: u64,
    /// Where an operand may be a register or in memory, it may be a register.
    registers_too: bool,
}

impl Case<'_> {
    fn general(&mut self, base: Register) -> Register {
        base + self.random.below(16) as u32
    }

    fn byte(&mut self) -> Register {
        // High-byte registers exist only where no REX prefix is needed.
        Register::AL + self.random.below(20) as u32
    }

    fn fs_base(&self) -> u64 {
        let base: u64;
        // SAFETY: the ABI keeps the base at offset 0.
        unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) base) };
        base
    }

    /// A memory operand that lies at `target`. Registers that are set are chosen among those not in `taken`.
    fn memory(&mut self, taken: &[usize]) -> MemoryOperand {
        let target = self.target;
        let pick = |random: &mut Random, not: &[usize]| loop {
            let number = random.below(16) as usize;
            if !taken.contains(&number) && !not.contains(&number) {
                return number;
            }
        };
        match self.random.below(10) {
            0 => return MemoryOperand::with_base_displ(Register::RIP, target as i64),
            1 => return MemoryOperand::with_displ(target, 8),
            _ => {}
        }
        let narrow = self.random.chance(6);
        let first = if narrow { Register::EAX } else { Register::RAX };
        let displacement = match self.random.below(3) {
            0 => 0,
            1 => self.random.next() as i8 as i64,
            _ => self.random.next() as i32 as i64,
        };
        let size = if displacement == 0 { 0 } else { 1 };
        let segment = if self.random.chance(6) && !narrow {
            Register::FS
        } else {
            Register::None
        };
        let segment_base = if segment == Register::FS { self.fs_base() } else { 0 };
        let scale = 1 << self.random.below(4);
        let wanted = target.wrapping_sub(displacement as u64).wrapping_sub(segment_base);
        let base = pick(self.random, &[]);
        if self.random.chance(2) {
            self.registers.general[base] = self.upper(wanted, narrow);
            return MemoryOperand::new(
                first + base as u32,
                Register::None,
                1,
                displacement,
                size,
                false,
                segment,
            );
        }
        let index = pick(self.random, &[base, RSP]);
        let value = self.registers.general[index];
        self.registers.general[base] = self.upper(wanted.wrapping_sub(value.wrapping_mul(scale)), narrow);
        MemoryOperand::new(
            first + base as u32,
            first + index as u32,
            scale as u32,
            displacement,
            size,
            false,
            segment,
        )
    }

    /// With 32-bit addressing the upper half of a register does not matter.
    fn upper(&mut self, value: u64, narrow: bool) -> u64 {
        if narrow {
            value & 0xffff_ffff | self.random.next() << 32
        } else {
            value
        }
    }

    fn immediate(&mut self, kind: OpCodeOperandKind) -> (OpKind, u64) {
        use OpCodeOperandKind as K;
        let value = self.random.next();
        match kind {
            K::imm8 => (OpKind::Immediate8, value & 0xff),
            K::imm8_const_1 => (OpKind::Immediate8, 1),
            K::imm8sex16 => (OpKind::Immediate8to16, value as i8 as u64),
            K::imm8sex32 => (OpKind::Immediate8to32, value as i8 as u64),
            K::imm8sex64 => (OpKind::Immediate8to64, value as i8 as u64),
            K::imm16 => (OpKind::Immediate16, value & 0xffff),
            K::imm32 => (OpKind::Immediate32, value & 0xffff_ffff),
            _ => (OpKind::Immediate32to64, value as i32 as u64),
        }
    }

    fn operand_register(&mut self, kind: OpCodeOperandKind) -> Option<Register> {
        use OpCodeOperandKind as K;
        Some(match kind {
            K::r8_reg | K::r8_opcode => self.byte(),
            K::r16_reg | K::r16_opcode => self.general(Register::AX),
            K::r32_reg | K::r32_opcode | K::r32_vvvv => self.general(Register::EAX),
            K::r64_reg | K::r64_opcode | K::r64_vvvv => self.general(Register::RAX),
            K::mm_reg | K::mm_rm => Register::MM0 + self.random.below(8) as u32,
            K::xmm_reg | K::xmm_vvvv | K::xmm_rm => self.general(Register::XMM0),
            K::ymm_reg | K::ymm_vvvv | K::ymm_rm => self.general(Register::YMM0),
            K::seg_reg => [Register::ES, Register::DS, Register::FS, Register::GS][self.random.below(4) as usize],
            K::fs => Register::FS,
            K::gs => Register::GS,
            K::al => Register::AL,
            K::cl => Register::CL,
            K::ax => Register::AX,
            K::eax => Register::EAX,
            K::rax => Register::RAX,
            K::st0 => Register::ST0,
            _ => return None,
        })
    }

    /// An instruction of this code with random operands, encoded; `None` if it has none that this test knows.
    fn build(&mut self, code: Code) -> Option<Vec<u8>> {
        use OpCodeOperandKind as K;
        let info = code.op_code();
        let mut instruction = Instruction::new();
        instruction.set_code(code);
        let mut memory_operand = None;
        let mut taken = Vec::new();
        for (operand, &kind) in info.op_kinds().iter().enumerate() {
            let operand = operand as u32;
            let kind = if self.registers_too && self.random.chance(2) {
                register_instead(kind)
            } else {
                kind
            };
            match kind {
                K::mem
                | K::r8_or_mem
                | K::r16_or_mem
                | K::r32_or_mem
                | K::r64_or_mem
                | K::mm_or_mem
                | K::xmm_or_mem
                | K::ymm_or_mem
                | K::mem_offs => memory_operand = Some((operand, kind)),
                K::es_rDI | K::seg_rDI | K::seg_rSI => {
                    let narrow = info.op_count() < 3 && self.narrow_string();
                    instruction.set_op_kind(operand, string_operand(kind, narrow));
                }
                K::imm8
                | K::imm8_const_1
                | K::imm8sex16
                | K::imm8sex32
                | K::imm8sex64
                | K::imm16
                | K::imm32
                | K::imm32sex64 => {
                    let (mut kind, value) = self.immediate(kind);
                    if operand == 1 && code == Code::Enterq_imm16_imm8 {
                        kind = OpKind::Immediate8_2nd;
                        instruction.set_op_kind(operand, kind);
                        instruction.set_immediate8_2nd(value as u8);
                        continue;
                    }
                    instruction.set_op_kind(operand, kind);
                    instruction.set_immediate_u64(operand, value);
                }
                K::br64_4 | K::br64_1 => {
                    // The length of `call rel32` is 5.
                    let call = code == Code::Call_rel32_64;
                    instruction.set_op_kind(operand, OpKind::NearBranch64);
                    instruction.set_near_branch64(if call {
                        self.harness.exit(5)
                    } else {
                        self.harness.branch()
                    });
                }
                _ => {
                    let register = self.operand_register(kind)?;
                    if register.is_gpr() {
                        taken.push(register.full_register().number());
                    }
                    instruction.set_op_kind(operand, OpKind::Register);
                    instruction.set_op_register(operand, register);
                }
            }
        }
        let memory = match memory_operand {
            Some((operand, kind)) => {
                let bit_offset = matches!(
                    instruction.mnemonic(),
                    Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
                ) && operand == 0
                    && info.op_kind(1) != K::imm8;
                // A register that must keep its value cannot hold the address.
                let mut reserved = if bit_offset { taken.clone() } else { Vec::new() };
                if code.is_stack_instruction() {
                    reserved.push(RSP);
                }
                let memory = if kind == K::mem_offs {
                    MemoryOperand::with_displ(self.target, 8)
                } else {
                    self.memory(&reserved)
                };
                if bit_offset {
                    let offset = self.random.below(8192) as i64 - 4096;
                    self.registers.general[taken[0]] = offset as u64;
                }
                instruction.set_op_kind(operand, OpKind::Memory);
                Some(memory)
            }
            None => None,
        };
        if let Some(memory) = memory {
            instruction.set_memory_base(memory.base);
            instruction.set_memory_index(memory.index);
            instruction.set_memory_index_scale(memory.scale);
            instruction.set_memory_displacement64(memory.displacement as u64);
            instruction.set_memory_displ_size(memory.displ_size);
            instruction.set_segment_prefix(memory.segment_prefix);
        }
        if info.can_use_lock_prefix() && self.random.chance(2) {
            instruction.set_has_lock_prefix(true);
        }
        if info.can_use_rep_prefix() && is_string(&instruction) {
            match self.random.below(3) {
                0 => instruction.set_has_rep_prefix(true),
                1 => instruction.set_has_repne_prefix(true),
                _ => {}
            }
        }
        let mut encoder = Encoder::new(64);
        encoder.encode(&instruction, self.harness.instruction()).ok()?;
        Some(encoder.take_buffer())
    }

    fn narrow_string(&self) -> bool {
        self.registers.flags & 4 != 0
    }
}

fn register_instead(kind: OpCodeOperandKind) -> OpCodeOperandKind {
    use OpCodeOperandKind as K;
    match kind {
        K::r8_or_mem => K::r8_reg,
        K::r16_or_mem => K::r16_reg,
        K::r32_or_mem => K::r32_reg,
        K::r64_or_mem => K::r64_reg,
        K::mm_or_mem => K::mm_reg,
        K::xmm_or_mem => K::xmm_reg,
        K::ymm_or_mem => K::ymm_reg,
        _ => kind,
    }
}

fn string_operand(kind: OpCodeOperandKind, narrow: bool) -> OpKind {
    match (kind, narrow) {
        (OpCodeOperandKind::es_rDI, false) => OpKind::MemoryESRDI,
        (OpCodeOperandKind::es_rDI, true) => OpKind::MemoryESEDI,
        (OpCodeOperandKind::seg_rDI, false) => OpKind::MemorySegRDI,
        (OpCodeOperandKind::seg_rDI, true) => OpKind::MemorySegEDI,
        (_, false) => OpKind::MemorySegRSI,
        (_, true) => OpKind::MemorySegESI,
    }
}

fn is_string(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| {
        let kind = instruction.op_kind(operand);
        matches!(
            kind,
            OpKind::MemoryESRDI | OpKind::MemoryESEDI | OpKind::MemorySegRSI | OpKind::MemorySegESI
        )
    })
}

/// Instructions that would end or disturb the test itself.
fn excluded(code: Code) -> bool {
    use Mnemonic::*;
    let info = code.op_code();
    let loads_segment = code.op_code().op_count() > 0
        && matches!(
            info.op_kind(0),
            OpCodeOperandKind::seg_reg | OpCodeOperandKind::fs | OpCodeOperandKind::gs
        )
        && code.mnemonic() != Push;
    let flow = code.flow_control() != FlowControl::Next && !matches!(code, Code::Call_rm64 | Code::Call_rel32_64);
    let accesses = info
        .op_kinds()
        .iter()
        .any(|kind| format!("{kind:?}").contains("mem") || format!("{kind:?}").contains("_r"))
        || matches!(code.mnemonic(), Push | Pushf | Pushfq | Call | Enter | Clzero);
    loads_segment
        || flow
        || !accesses
        || !info.mode64()
        || matches!(
            code.mnemonic(),
            Lfs | Lgs | Lss | Xrstor | Xrstor64 | Fxrstor | Fxrstor64 | Frstor | Fldenv | Fldcw
        )
        || matches!(
            code.mnemonic(),
            Ldmxcsr | Vldmxcsr | Sysret | Outsb | Outsw | Outsd | Insb | Insw | Insd
        )
}

/// Differences that are none of the crate's: what XSAVE leaves in parts that nobody restores.
fn same(native: &Outcome, emulated: &Outcome, masked: bool) -> Result<(), String> {
    // Which byte of the page a masked store reports differs between processors and even between two runs.
    let end = |outcome: &Outcome| match outcome.end {
        End::Signal(signal, address) if masked => End::Signal(signal, address & !(PAGE as u64 - 1)),
        end => end,
    };
    if end(native) != end(emulated) {
        return Err(format!("ended {:?}, natively {:?}", emulated.end, native.end));
    }
    if emulated.unannounced != 0 {
        return Err(format!("{} bytes were written unannounced", emulated.unannounced));
    }
    if let Some(at) = (0..FILE).find(|&at| native.memory[at] != emulated.memory[at]) {
        let range = at..(at + 32).min(FILE);
        return Err(format!(
            "memory at {at:#x} is {:02x?}, natively {:02x?}",
            &emulated.memory[range.clone()],
            &native.memory[range]
        ));
    }
    let (ours, theirs) = (&emulated.registers, &native.registers);
    for number in 0..16 {
        if ours.general[number] != theirs.general[number] {
            let name = Register::RAX + number as u32;
            return Err(format!(
                "{name:?} is {:#x}, natively {:#x}",
                ours.general[number], theirs.general[number]
            ));
        }
    }
    if ours.flags != theirs.flags {
        return Err(format!("flags are {:#x}, natively {:#x}", ours.flags, theirs.flags));
    }
    for range in [0..464, 576..832] {
        if let Some(at) = range.clone().find(|&at| ours.area[at] != theirs.area[at]) {
            return Err(format!(
                "extended state at {at} is {:#x}, natively {:#x}",
                ours.area[at], theirs.area[at]
            ));
        }
    }
    Ok(())
}

/// Where stores go.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Middle,
    /// Across the end of the file, or beyond it.
    End,
    /// No stores: operands in memory or in registers.
    Anywhere,
}

/// A random instruction of this code with the registers and memory that it needs.
fn prepare(harness: &Harness, random: &mut Random, code: Code, place: Place, memory: &mut [u8]) -> Option<Prepared> {
    random.fill(memory);
    let registers = Box::new(random.registers());
    let aligned = random.chance(2);
    let (start, range) = if place == Place::End {
        (FILE as u64 - 64, 128)
    } else {
        (2 * PAGE as u64, 512)
    };
    let offset = (start + random.below(range)) & if aligned { !63 } else { !0 };
    let mut case = Case {
        harness,
        random,
        registers,
        target: harness.memory + offset,
        registers_too: place == Place::Anywhere,
    };
    if code.is_stack_instruction() && code.mnemonic() != Mnemonic::Pop {
        // The memory operand is what is pushed; what is written is the stack.
        case.registers.general[RSP] = harness.memory + offset;
        case.target = harness.source + 512;
    }
    if code == Code::Jmp_rm64 {
        case.target = harness.source + 512;
    }
    if matches!(code, Code::Retnq | Code::Retnq_imm16) {
        case.registers.general[RSP] = harness.source + 512;
    }
    if code == Code::Enterq_imm16_imm8 {
        case.registers.general[RBP] = harness.source + PAGE as u64;
    }
    if code.mnemonic() == Mnemonic::Pop {
        case.registers.general[RSP] = harness.source + 8 * case.random.below(64);
    }
    let bytes = case.build(code)?;
    let instruction = Decoder::with_ip(64, &bytes, harness.instruction(), DecoderOptions::NONE).decode();
    if is_string(&instruction) {
        // The source is near the destination, elsewhere, or ends on the way.
        let from = case.random.below(3 * 64);
        let source = match case.random.below(4) {
            0 => harness.source + 2 * PAGE as u64 - from,
            1 => harness.source + PAGE as u64 + from,
            _ => harness.memory + offset - 96 + from,
        };
        let count = case.random.below(300);
        let backwards = case.random.chance(2);
        case.registers.general[RDI] = harness.memory + offset;
        case.registers.general[RSI] = source;
        case.registers.general[RCX] = count;
        case.registers.flags = case.registers.flags & !0x400 | if backwards { 0x400 } else { 0 };
    }
    if matches!(instruction.op0_kind(), OpKind::MemorySegRDI | OpKind::MemorySegEDI) {
        case.registers.general[RDI] = harness.memory + offset;
    }
    let at = |address: u64| (address - harness.memory) as usize;
    match instruction.mnemonic() {
        Mnemonic::Clzero => case.registers.general[RAX] = harness.memory + offset,
        // Some comparisons shall succeed.
        Mnemonic::Cmpxchg | Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b
            if case.random.chance(2) && instruction.memory_base() != Register::RAX && at(case.target) + 16 <= FILE =>
        {
            let word = |at: usize| u64::from_le_bytes(memory[at..at + 8].try_into().unwrap());
            let (low, high) = (word(at(case.target)), word(at(case.target) + 8));
            let uses_result = |register: Register| {
                let number = register.full_register().number();
                register.is_gpr() && (number == RAX || number == RDX)
            };
            if !uses_result(instruction.memory_base()) && !uses_result(instruction.memory_index()) {
                case.registers.general[RAX] = low;
                if instruction.mnemonic() != Mnemonic::Cmpxchg {
                    case.registers.general[RDX] = if code == Code::Cmpxchg16b_m128 { high } else { low >> 32 };
                }
            }
        }
        _ => {}
    }
    let pushed = match code {
        Code::Call_rm64 | Code::Jmp_rm64 if instruction.op0_kind() == OpKind::Memory => harness.exit(bytes.len()),
        Code::Jmp_rm64 => {
            case.registers.general[instruction.op0_register().number()] = harness.exit(bytes.len());
            0
        }
        Code::Call_rm64 => return None,
        Code::Retnq | Code::Retnq_imm16 => harness.exit(bytes.len()),
        _ => case.random.next(),
    };
    // SAFETY: the source pages are ours.
    unsafe { ((harness.source + 512) as *mut u64).write_unaligned(pushed) };
    Some(Prepared {
        bytes,
        registers: case.registers,
    })
}

struct Prepared {
    bytes: Vec<u8>,
    registers: Box<Registers>,
}

/// Compares both ways on random instructions of every form; `accept` says which native ends are of interest.
fn compare(place: Place, rounds: usize, accept: impl Fn(Code, End) -> bool) -> BTreeMap<String, usize> {
    let harness = Harness::new();
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut tested: BTreeMap<String, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    let mut memory = vec![0; FILE];
    for code in Code::values().filter(|&code| !excluded(code)) {
        let mut failed = 0;
        for _ in 0..rounds {
            let Some(prepared) = prepare(&harness, &mut random, code, place, &mut memory) else {
                continue;
            };
            let native = harness.run(&prepared.bytes, &prepared.registers, &memory, Mode::Native);
            if matches!(native.end, End::Signal(libc::SIGILL, _)) || failed > 2 {
                break;
            }
            if !accept(code, native.end) {
                continue;
            }
            let emulated = harness.run(&prepared.bytes, &prepared.registers, &memory, Mode::Emulate);
            if emulated.handled {
                *tested.entry(format!("{code:?}")).or_default() += 1;
            }
            if let Err(difference) = same(
                &native,
                &emulated,
                format!("{code:?}").to_lowercase().contains("maskmov"),
            ) {
                failures.push(format!("{code:?} {:02x?}: {difference}", prepared.bytes));
                failed += 1;
            }
        }
    }
    println!(
        "{} forms performed {} times: {tested:?}",
        tested.len(),
        tested.values().sum::<usize>()
    );
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    tested
}

/// One process has one set of signal handlers and one harness.
static HARNESS: Mutex<()> = Mutex::new(());

#[test]
fn every_store_has_the_native_effect() {
    let _guard = HARNESS.lock();
    // Other native ends: a source that is not mapped, or a form that is not for user programs.
    let tested = compare(Place::Middle, 40, |code, end| {
        end == End::Done || matches!(end, End::Signal(libc::SIGSEGV, address) if address != 0 && copies(code))
    });
    assert!(tested.len() >= 420, "only {} forms were tested", tested.len());
}

#[test]
fn a_store_beyond_the_end_of_the_file_faults_as_natively() {
    let _guard = HARNESS.lock();
    // These write in several steps; where they stop is up to the processor.
    let several = |code: Code| {
        use Mnemonic::*;
        matches!(
            code.mnemonic(),
            Enter | Fsave | Fnsave | Fstenv | Fnstenv | Fxsave | Fxsave64 | Xsave | Xsave64 | Xsavec | Xsavec64
        ) || matches!(code.mnemonic(), Xsaveopt | Xsaveopt64 | Sgdt | Sidt | Sldt | Str | Smsw)
    };
    let tested = compare(Place::End, 30, |code, end| {
        matches!(end, End::Signal(libc::SIGBUS, _)) && !several(code)
    });
    assert!(tested.len() >= 350, "only {} forms were tested", tested.len());
}

fn copies(code: Code) -> bool {
    matches!(
        code,
        Code::Movsb_m8_m8 | Code::Movsw_m16_m16 | Code::Movsd_m32_m32 | Code::Movsq_m64_m64
    )
}

#[test]
fn running_ahead_has_the_native_effect() {
    let _guard = HARNESS.lock();
    let harness = Harness::new();
    let mut random = Random(0xfeed_1234_5678_9abd);
    let mut memory = vec![0; FILE];
    let mut tested: BTreeMap<String, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    for code in Code::values() {
        let mut failed = 0;
        for _ in 0..40 {
            let Some(prepared) = prepare(&harness, &mut random, code, Place::Anywhere, &mut memory) else {
                continue;
            };
            let ahead = harness.run(&prepared.bytes, &prepared.registers, &memory, Mode::Step);
            if !ahead.handled || failed > 2 {
                continue;
            }
            let native = harness.run(&prepared.bytes, &prepared.registers, &memory, Mode::Native);
            *tested.entry(format!("{code:?}")).or_default() += 1;
            if let Err(difference) = same(&native, &ahead, false) {
                failures.push(format!("{code:?} {:02x?}: {difference}", prepared.bytes));
                failed += 1;
            }
        }
    }
    println!(
        "{} forms {} times: {tested:?}",
        tested.len(),
        tested.values().sum::<usize>()
    );
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    for code in [
        Code::Retnq,
        Code::Jmp_rm64,
        Code::Je_rel8_64,
        Code::Pop_r64,
        Code::VEX_Vmovdqu_ymm_ymmm256,
    ] {
        assert!(tested.contains_key(&format!("{code:?}")), "{code:?} was not executed");
    }
    assert!(tested.len() > 600, "only {} forms were executed", tested.len());
}
