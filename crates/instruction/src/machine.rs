//! What is found out once about this processor and the decoder's tables, before any signal arrives.

use crate::stub::Pool;
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, InstructionInfoOptions, OpAccess};
use std::sync::OnceLock;

/// Where the components of a standard XSAVE area are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Offset and size; both 0 for a component that the processor does not have.
    components: [(u32, u32); 20],
    /// Components that the system has enabled (XCR0); 0 without XSAVE.
    pub(crate) enabled: u64,
}

impl Layout {
    fn of_this_processor() -> Layout {
        const XSAVE_IN_USE: u32 = 1 << 27;
        let mut layout = Layout {
            components: [(0, 0); 20],
            enabled: 0,
        };
        if __cpuid(1).ecx & XSAVE_IN_USE == 0 {
            return layout;
        }
        // SAFETY: the system has enabled XSAVE, hence XGETBV exists.
        layout.enabled = unsafe { enabled() };
        for component in 2..layout.components.len() {
            if layout.enabled & 1 << component != 0 {
                let leaf = __cpuid_count(0xd, component as u32);
                layout.components[component] = (leaf.ebx, leaf.eax);
            }
        }
        layout
    }

    #[cfg(test)]
    pub(crate) fn new(components: &[(usize, u32, u32)]) -> Layout {
        let mut layout = Layout {
            components: [(0, 0); 20],
            enabled: 3,
        };
        for &(component, offset, size) in components {
            layout.components[component] = (offset, size);
            layout.enabled |= 1 << component;
        }
        layout
    }

    pub(crate) fn offset(&self, component: usize) -> Option<usize> {
        self.components
            .get(component)
            .map(|&(offset, _)| offset as usize)
            .filter(|&offset| offset != 0)
    }

    pub(crate) fn size(&self, component: usize) -> usize {
        self.components.get(component).map_or(0, |&(_, size)| size as usize)
    }

    /// The bytes that an XSAVE of these components covers at most.
    pub(crate) fn extent(&self, components: u64) -> usize {
        const LEGACY_AND_HEADER: u32 = 576;
        let ends = self
            .components
            .iter()
            .enumerate()
            .filter(|&(i, _)| components & self.enabled & 1 << i != 0);
        ends.map(|(_, &(offset, size))| offset + size)
            .max()
            .unwrap_or(0)
            .max(LEGACY_AND_HEADER) as usize
    }
}

#[target_feature(enable = "xsave")]
fn enabled() -> u64 {
    // SAFETY: register 0 exists wherever XGETBV does.
    unsafe { _xgetbv(0) }
}

pub(crate) struct Machine {
    pub(crate) layout: Layout,
    pub(crate) fsgsbase: bool,
    pub(crate) pool: Pool,
    /// By [`Code`]: bit i is set if operand i is written.
    written: Vec<u8>,
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

impl Machine {
    /// Allocates when called the first time, see [`crate::init`].
    pub(crate) fn get() -> &'static Machine {
        MACHINE.get_or_init(|| {
            // The decoder builds its tables when it is first used.
            let _ = Decoder::with_ip(64, &[0x90], 0, DecoderOptions::NONE).decode();
            // SAFETY: getauxval only reads.
            let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
            const HWCAP2_FSGSBASE: u64 = 2;
            Machine {
                layout: Layout::of_this_processor(),
                fsgsbase: hwcap2 & HWCAP2_FSGSBASE != 0,
                pool: Pool::new(),
                written: written_operands(),
            }
        })
    }

    pub(crate) fn get_if_initialised() -> Option<&'static Machine> {
        MACHINE.get()
    }

    pub(crate) fn avx(&self) -> bool {
        self.layout.enabled & 0b111 == 0b111
    }

    pub(crate) fn writes(&self, instruction: &Instruction, operand: u32) -> bool {
        self.written
            .get(instruction.code() as usize)
            .is_some_and(|written| written & 1 << operand != 0)
    }
}

/// The decoder's library tells how an instruction uses its operands, but allocates for it; so all are asked in advance.
fn written_operands() -> Vec<u8> {
    let mut factory = InstructionInfoFactory::new();
    let options = InstructionInfoOptions::NO_MEMORY_USAGE | InstructionInfoOptions::NO_REGISTER_USAGE;
    let mut instruction = Instruction::new();
    Code::values()
        .map(|code| {
            instruction.set_code(code);
            let info = factory.info_options(&instruction, options);
            (0..instruction.op_count()).fold(0, |written, operand| {
                let access = info.op_access(operand);
                let writes = matches!(
                    access,
                    OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
                );
                written | u8::from(writes) << operand
            })
        })
        .collect()
}
