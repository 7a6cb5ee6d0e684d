//! Tests of instructions that the processor at hand may lack: AVX-512 and direct stores, with a hand-made XSAVE area.
//!
//! Stores that are performed directly are compared with what is written here; those that run as a relocated copy are only
//! checked to be the same instruction with another address.

use crate::context::{Context, component};
use crate::machine::Layout;
use crate::plan::{Action, Plan, decode};
use crate::writes::Writes;
use iced_x86::code_asm::*;
use iced_x86::{Decoder, DecoderOptions, OpKind, Register};

const RIP: u64 = 0x40_0000;
const AREA: usize = 2688;

#[repr(align(64))]
struct Area([u8; AREA]);

/// A signal frame with every register of AVX-512 set, and 256 bytes of memory.
struct Frame {
    uc: libc::ucontext_t,
    area: Box<Area>,
    layout: Layout,
    memory: [u8; 256],
}

impl Frame {
    fn new() -> Frame {
        let layout = Layout::new(&[
            (component::AVX, 576, 256),
            (component::OPMASK, 1088, 64),
            (component::ZMM_HIGH, 1152, 512),
            (component::ZMM16, 1664, 1024),
        ]);
        let mut area = Box::new(Area([0; AREA]));
        area.0[464..468].copy_from_slice(&0x4650_5853u32.to_le_bytes());
        area.0[472..480].copy_from_slice(&0xe7u64.to_le_bytes());
        area.0[512..520].copy_from_slice(&0xe7u64.to_le_bytes());
        // SAFETY: a context without pointers but this one.
        let mut uc: libc::ucontext_t = unsafe { std::mem::zeroed() };
        uc.uc_mcontext.fpregs = (&raw mut area.0).cast();
        uc.uc_mcontext.gregs[libc::REG_EFL as usize] = 2;
        uc.uc_mcontext.gregs[libc::REG_RIP as usize] = RIP as i64;
        let mut frame = Frame {
            uc,
            area,
            layout,
            memory: [0xee; 256],
        };
        for number in 0..32 {
            let (low, middle, high) = (
                register_bytes(number, 0),
                register_bytes(number, 16),
                register_bytes(number, 32),
            );
            if number < 16 {
                frame.area.0[160 + 16 * number..][..16].copy_from_slice(&low[..16]);
                frame.area.0[576 + 16 * number..][..16].copy_from_slice(&middle[..16]);
                frame.area.0[1152 + 32 * number..][..32].copy_from_slice(&high[..32]);
            } else {
                frame.area.0[1664 + 64 * (number - 16)..][..64].copy_from_slice(&low);
            }
        }
        frame
    }

    fn set_mask(&mut self, number: usize, value: u64) {
        self.area.0[1088 + 8 * number..][..8].copy_from_slice(&value.to_le_bytes());
    }

    fn mask(&self, number: usize) -> u64 {
        u64::from_le_bytes(self.area.0[1088 + 8 * number..][..8].try_into().unwrap())
    }

    fn context(&mut self) -> Context<'_> {
        // SAFETY: the area belongs to the frame.
        unsafe { Context::with_layout(&mut self.uc, &self.layout) }
    }

    /// Performs an instruction that addresses memory through rbx; the program's memory is at 0x1000. Returns the writes
    /// relative to it.
    fn perform(&mut self, plan: &Plan) -> Vec<(u64, usize)> {
        const PROGRAM: u64 = 0x1000;
        let delta = self.memory.as_ptr() as i64 - PROGRAM as i64;
        let mut context = self.context();
        context.set_general(3, PROGRAM + 64);
        let mut all = Vec::new();
        while context.rip() == RIP {
            let announced = plan.writes(&context);
            // SAFETY: all instructions here write to the 256 bytes only.
            let performed = unsafe { plan.perform(&mut context, delta) }.unwrap();
            assert_eq!(performed.written, announced);
            all.extend(announced.ranges().map(|range| (range.address - PROGRAM, range.length)));
        }
        assert_eq!(context.rip(), RIP + plan.length() as u64);
        all
    }
}

/// A recognisable value: register number and byte number.
fn register_bytes(number: usize, from: usize) -> [u8; 64] {
    std::array::from_fn(|at| (number * 64 + from + at) as u8 ^ (number as u8) << 3)
}

fn assemble(build: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>) -> Vec<u8> {
    let mut assembler = CodeAssembler::new(64).unwrap();
    assembler.set_prefer_vex(false);
    build(&mut assembler).unwrap();
    assembler.assemble(RIP).unwrap()
}

fn plan(code: &[u8]) -> Plan {
    decode(code, RIP).unwrap()
}

/// What memory must be: `bytes` at 64, where `written` says so.
fn expect(frame: &Frame, bytes: &[u8], written: impl Fn(usize) -> bool) {
    let mut expected = [0xee; 256];
    for (at, &byte) in bytes.iter().enumerate() {
        if written(at) {
            expected[64 + at] = byte;
        }
    }
    assert_eq!(frame.memory, expected);
}

#[test]
fn whole_registers() {
    type Case = (Vec<u8>, usize, usize, bool);
    let cases: Vec<Case> = vec![
        (assemble(|a| a.vmovups(ptr(rbx), zmm3)), 3, 64, false),
        (assemble(|a| a.vmovups(ptr(rbx), zmm31)), 31, 64, false),
        (assemble(|a| a.vmovupd(ptr(rbx), ymm17)), 17, 32, false),
        (assemble(|a| a.vmovaps(ptr(rbx), xmm30)), 30, 16, false),
        (assemble(|a| a.vmovdqu8(ptr(rbx), zmm20)), 20, 64, false),
        (assemble(|a| a.vmovdqu16(ptr(rbx), ymm21)), 21, 32, false),
        (assemble(|a| a.vmovdqa32(ptr(rbx), zmm22)), 22, 64, false),
        (assemble(|a| a.vmovdqa64(ptr(rbx), zmm0)), 0, 64, false),
        (assemble(|a| a.vmovntdq(ptr(rbx), zmm16)), 16, 64, true),
        (assemble(|a| a.vmovntps(ptr(rbx), zmm15)), 15, 64, true),
        (assemble(|a| a.vmovntpd(ptr(rbx), ymm18)), 18, 32, true),
        (assemble(|a| a.vmovd(dword_ptr(rbx), xmm16)), 16, 4, false),
        (assemble(|a| a.vmovq(qword_ptr(rbx), xmm23)), 23, 8, false),
        (assemble(|a| a.vmovss(dword_ptr(rbx), xmm24)), 24, 4, false),
        (assemble(|a| a.vmovsd(qword_ptr(rbx), xmm25)), 25, 8, false),
    ];
    for (code, number, length, nontemporal) in cases {
        let plan = plan(&code);
        let mut frame = Frame::new();
        assert_eq!(frame.perform(&plan), [(64, length)], "{code:02x?}");
        assert_eq!(plan.nontemporal(), nontemporal);
        expect(&frame, &register_bytes(number, 0)[..length], |_| true);
    }
}

#[test]
fn opmasks_select_elements() {
    const MASK: u64 = 0xc3a5_5a3c_0ff0_9669;
    let cases: Vec<(Vec<u8>, usize, usize, usize)> = vec![
        (assemble(|a| a.vmovdqu8(ptr(rbx).k2(), zmm9)), 9, 64, 1),
        (assemble(|a| a.vmovdqu16(ptr(rbx).k2(), zmm29)), 29, 64, 2),
        (assemble(|a| a.vmovdqu32(ptr(rbx).k2(), ymm9)), 9, 32, 4),
        (assemble(|a| a.vmovdqu64(ptr(rbx).k2(), zmm9)), 9, 64, 8),
        (assemble(|a| a.vmovdqa32(ptr(rbx).k2(), zmm19)), 19, 64, 4),
        (assemble(|a| a.vmovups(ptr(rbx).k2(), xmm9)), 9, 16, 4),
        (assemble(|a| a.vmovapd(ptr(rbx).k2(), zmm9)), 9, 64, 8),
        (assemble(|a| a.vmovss(dword_ptr(rbx).k2(), xmm9)), 9, 4, 4),
    ];
    for (code, number, length, element) in cases {
        let mut frame = Frame::new();
        frame.set_mask(2, MASK);
        let writes = frame.perform(&plan(&code));
        expect(&frame, &register_bytes(number, 0)[..length], |at| {
            MASK >> (at / element) & 1 != 0
        });
        let written: usize = writes.iter().map(|&(_, length)| length).sum();
        assert_eq!(
            written,
            (0..length).filter(|at| MASK >> (at / element) & 1 != 0).count(),
            "{code:02x?}"
        );
        // No element: nothing is written, not even announced.
        let mut frame = Frame::new();
        assert_eq!(frame.perform(&plan(&code)), []);
        expect(&frame, &[], |_| true);
    }
}

#[test]
fn extracts() {
    let cases: Vec<(Vec<u8>, usize, usize, usize)> = vec![
        (assemble(|a| a.vextractf32x4(ptr(rbx), zmm8, 3)), 8, 48, 16),
        (assemble(|a| a.vextracti64x2(ptr(rbx), zmm26, 6)), 26, 32, 16),
        (assemble(|a| a.vextracti32x8(ptr(rbx), zmm8, 1)), 8, 32, 32),
        (assemble(|a| a.vextractf64x4(ptr(rbx), zmm27, 1)), 27, 32, 32),
        (assemble(|a| a.vextracti32x4(ptr(rbx), ymm8, 3)), 8, 16, 16),
        (assemble(|a| a.vpextrq(qword_ptr(rbx), xmm28, 1)), 28, 8, 8),
        (assemble(|a| a.vpextrb(ptr(rbx), xmm28, 13)), 28, 13, 1),
    ];
    for (code, number, start, length) in cases {
        let mut frame = Frame::new();
        assert_eq!(frame.perform(&plan(&code)), [(64, length)]);
        expect(&frame, &register_bytes(number, start)[..length], |_| true);
    }
    let mut frame = Frame::new();
    frame.set_mask(5, 0b1010);
    let code = assemble(|a| a.vextractf32x4(ptr(rbx).k5(), zmm8, 2));
    assert_eq!(frame.perform(&plan(&code)), [(68, 4), (76, 4)]);
    expect(&frame, &register_bytes(8, 32)[..16], |at| at / 4 % 2 == 1);
}

#[test]
fn compression_packs_the_selected_elements() {
    const MASK: u64 = 0xf00f_1234_8765_4321;
    let cases: Vec<(Vec<u8>, usize, usize)> = vec![
        (assemble(|a| a.vpcompressb(ptr(rbx).k1(), zmm7)), 64, 1),
        (assemble(|a| a.vpcompressw(ptr(rbx).k1(), ymm7)), 32, 2),
        (assemble(|a| a.vpcompressd(ptr(rbx).k1(), zmm7)), 64, 4),
        (assemble(|a| a.vcompresspd(ptr(rbx).k1(), zmm7)), 64, 8),
    ];
    for (code, size, element) in cases {
        let mut frame = Frame::new();
        frame.set_mask(1, MASK);
        let register = register_bytes(7, 0);
        let packed: Vec<u8> = register[..size]
            .chunks(element)
            .enumerate()
            .filter(|(number, _)| MASK >> number & 1 != 0)
            .flat_map(|(_, bytes)| bytes.to_vec())
            .collect();
        assert_eq!(frame.perform(&plan(&code)), [(64, packed.len())]);
        expect(&frame, &packed, |_| true);
    }
}

#[test]
fn a_scatter_goes_element_by_element() {
    // Indices: the elements in reverse order.
    let mut frame = Frame::new();
    let set_indices = |frame: &mut Frame, element: usize, count: usize| {
        for number in 0..count {
            let bytes = ((count - 1 - number) as u64).to_le_bytes();
            let at = number * element;
            for (byte, &value) in bytes[..element].iter().enumerate() {
                // zmm20 is in the component of the upper sixteen registers.
                frame.area.0[1664 + 64 * 4 + at + byte] = value;
            }
        }
    };
    set_indices(&mut frame, 4, 16);
    frame.set_mask(3, 0xffff_8001);
    let code = assemble(|a| a.vpscatterdd(ptr(rbx + zmm20 * 4).k3(), zmm6));
    assert_eq!(frame.perform(&plan(&code)), [(64 + 60, 4), (64, 4)]);
    assert_eq!(frame.mask(3), 0);
    assert_eq!(frame.memory[64..68], register_bytes(6, 60)[..4]);
    assert_eq!(frame.memory[124..128], register_bytes(6, 0)[..4]);
    assert!(frame.memory[68..124].iter().all(|&byte| byte == 0xee));

    let mut frame = Frame::new();
    set_indices(&mut frame, 8, 8);
    frame.set_mask(3, 0xff);
    let code = assemble(|a| a.vscatterqps(ptr(rbx + zmm20 * 4).k3(), ymm6));
    let writes: Vec<(u64, usize)> = (0..8).rev().map(|number| (64 + 4 * number, 4)).collect();
    assert_eq!(frame.perform(&plan(&code)), writes);

    let mut frame = Frame::new();
    set_indices(&mut frame, 4, 8);
    frame.set_mask(3, 0x10);
    let code = assemble(|a| a.vpscatterdq(ptr(rbx + ymm20 * 8 - 8).k3(), zmm6));
    assert_eq!(frame.perform(&plan(&code)), [(64 + 8 * 3 - 8, 8)]);
    assert_eq!(frame.memory[64 + 16..][..8], register_bytes(6, 32)[..8]);
}

#[test]
fn direct_stores() {
    let mut frame = Frame::new();
    frame.context().set_general(2, 0x1122_3344_5566_7788);
    let plan_of_movdiri = plan(&assemble(|a| a.movdiri(qword_ptr(rbx), rdx)));
    assert_eq!(frame.perform(&plan_of_movdiri), [(64, 8)]);
    assert!(plan_of_movdiri.nontemporal());
    expect(&frame, &0x1122_3344_5566_7788u64.to_le_bytes(), |_| true);

    let source: [u8; 64] = std::array::from_fn(|at| at as u8);
    let mut frame = Frame::new();
    frame.context().set_general(6, source.as_ptr() as u64 - 16);
    let plan = plan(&assemble(|a| a.movdir64b(rbx, ptr(rsi + 16))));
    assert!(plan.nontemporal() && !plan.locked());
    assert_eq!(frame.perform(&plan), [(64, 64)]);
    expect(&frame, &source, |_| true);
    // The destination must be aligned.
    let mut context = frame.context();
    context.set_general(3, 0x1001);
    // SAFETY: nothing is written.
    let performed = unsafe { plan.perform(&mut context, 0) };
    assert_eq!(performed.unwrap_err().signal, libc::SIGSEGV);
}

#[test]
fn components_in_their_initial_state_are_zero() {
    let mut frame = Frame::new();
    // Only the legacy registers and the opmasks are there.
    frame.area.0[512] = 0x23;
    assert_eq!(
        frame.perform(&plan(&assemble(|a| a.vmovups(ptr(rbx), zmm3)))),
        [(64, 64)]
    );
    let mut expected = [0; 64];
    expected[..16].copy_from_slice(&register_bytes(3, 0)[..16]);
    expect(&frame, &expected, |_| true);
    let mut frame = Frame::new();
    frame.area.0[512] = 0x23;
    frame.perform(&plan(&assemble(|a| a.vmovups(ptr(rbx), zmm30))));
    expect(&frame, &[0; 64], |_| true);
}

#[test]
fn copies_are_the_same_instruction_at_another_address() {
    let cases: Vec<(Vec<u8>, usize)> = vec![
        (assemble(|a| a.vpmovdb(ptr(r9 + r10 * 4 + 0x1234).k1(), zmm30)), 16),
        (assemble(|a| a.vpmovqw(ptr(r9), zmm3)), 16),
        (assemble(|a| a.vpmovusdb(ptr(r13 + 16), ymm3)), 8),
        (assemble(|a| a.vcvtps2ph(ptr(rbx).k1(), zmm20, 3)), 32),
        (assemble(|a| a.kmovq(qword_ptr(r12 + r11 * 2), k3)), 8),
        (assemble(|a| a.kmovw(word_ptr(rbp), k3)), 2),
    ];
    for (code, size) in cases {
        let plan = plan(&code);
        let Action::Relocated(copy) = plan.action else {
            panic!("{code:02x?} is not copied")
        };
        assert!(copy.extended());
        assert_eq!(plan.size, size);
        let again = Decoder::with_ip(64, copy.code(), RIP, DecoderOptions::NONE).decode();
        assert_eq!(again.code(), plan.instruction.code());
        assert_eq!(again.op_mask(), plan.instruction.op_mask());
        assert_eq!(
            (again.memory_base(), again.memory_index()),
            (Register::RSI, Register::None)
        );
        assert_eq!(again.memory_displacement64(), 0);
        for operand in 1..again.op_count() {
            assert_eq!(again.op_kind(operand), plan.instruction.op_kind(operand));
            if again.op_kind(operand) == OpKind::Register {
                assert_eq!(again.op_register(operand), plan.instruction.op_register(operand));
            } else {
                assert_eq!(again.immediate(operand), plan.instruction.immediate(operand));
            }
        }
    }
    // The masked ones announce only what they write.
    let mut frame = Frame::new();
    frame.set_mask(1, 0b101);
    frame.context().set_general(3, 0x1000);
    let plan = plan(&assemble(|a| a.vpmovdw(ptr(rbx).k1(), zmm30)));
    assert_eq!(plan.writes(&frame.context()), Writes::masked(0x1000, 0b11_0011));
}

#[test]
fn what_cannot_be_performed_is_refused() {
    use crate::plan::DecodeError::*;
    use iced_x86::Mnemonic;
    let refused = |code: &[u8]| decode(code, RIP).unwrap_err();
    assert_eq!(refused(&[0x06]), Invalid);
    assert_eq!(refused(&[]), Invalid);
    assert_eq!(
        refused(&assemble(|a| a.mov(rax, qword_ptr(rbx)))),
        NotAStore(Mnemonic::Mov)
    );
    assert_eq!(
        refused(&assemble(|a| a.cmp(qword_ptr(rbx), rax))),
        NotAStore(Mnemonic::Cmp)
    );
    assert_eq!(refused(&assemble(|a| a.clwb(byte_ptr(rbx)))), NotAStore(Mnemonic::Clwb));
    assert_eq!(
        refused(&assemble(|a| a.tilestored(ptr(rbx + rcx), tmm1))),
        Unsupported(Mnemonic::Tilestored)
    );
    assert_eq!(
        Unsupported(Mnemonic::Tilestored).to_string(),
        "Tilestored to memory cannot be performed elsewhere"
    );
}
