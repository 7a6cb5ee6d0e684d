//! Flushes and fences in inline assembly.
//!
//! Programs write them in many shapes, because assemblers were slow to learn the newer ones: `clwb` is `xsaveopt` with another prefix and
//! `clflushopt` is `clflush` with it. What is recognised here is a sequence of nothing but flushes and fences; anything else is
//! left alone and recorded by the runtime's breakpoints.
//!
//! A locked instruction is a fence, too; one that changes nothing on the stack is there for that alone. On ordinary memory it faults nowhere and
//! has no breakpoint, so only the compiler can see it (`is_locked`). On PM it faults, and is recorded as the store and fence that it is.

use crashproof_wire::record::{FENCE_LOCKED, FENCE_MFENCE, FENCE_SFENCE, FLUSH_CLFLUSH, FLUSH_CLFLUSHOPT, FLUSH_CLWB};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `FLUSH_*`, of the line at the pointer that is this argument of the call.
    Flush { kind: u8, argument: u32 },
    /// `FENCE_*`
    Fence { kind: u8 },
}

/// What the assembly does, if that is all that it does. Template and constraints as LLVM has them.
pub fn recognise(template: &str, constraints: &str) -> Option<Vec<Operation>> {
    let operands = operands(constraints)?;
    let mut operations = Vec::new();
    let mut prefixed = false;
    let mut locked = false;
    for statement in template.split([';', '\n']).map(str::trim) {
        if statement.is_empty() {
            continue;
        }
        let (mnemonic, rest) = statement.split_once([' ', '\t']).unwrap_or((statement, ""));
        let (mnemonic, rest) = (mnemonic.to_ascii_lowercase(), rest.trim());
        if mnemonic == "lock" && !prefixed && !locked {
            match rest {
                "" => locked = true,
                rest => operations.push(locked_fence(rest)?),
            }
            continue;
        }
        if std::mem::take(&mut locked) {
            operations.push(locked_fence(statement)?);
            continue;
        }
        if mnemonic == ".byte" {
            match raw(rest, &operands)? {
                Raw::Prefix if !prefixed => prefixed = true,
                Raw::Operation(operation) if !prefixed => operations.push(operation),
                _ => return None,
            }
            continue;
        }
        let operation = match (mnemonic.as_str(), prefixed) {
            ("sfence", false) if rest.is_empty() => Operation::Fence { kind: FENCE_SFENCE },
            ("mfence", false) if rest.is_empty() => Operation::Fence { kind: FENCE_MFENCE },
            ("clwb", false) | ("xsaveopt", true) => flush(FLUSH_CLWB, rest, &operands)?,
            ("clflushopt", false) | ("clflush", true) => flush(FLUSH_CLFLUSHOPT, rest, &operands)?,
            ("clflush", false) => flush(FLUSH_CLFLUSH, rest, &operands)?,
            _ => return None,
        };
        prefixed = false;
        operations.push(operation);
    }
    (!prefixed && !locked && !operations.is_empty()).then_some(operations)
}

/// What a locked instruction is that does nothing else.
pub const LOCKED_FENCE: Operation = Operation::Fence { kind: FENCE_LOCKED };

/// Whether the assembly executes a locked instruction, come what may, before it flushes anything: whatever waits for a fence before it is fenced by it.
pub fn is_locked(template: &str, constraints: &str) -> bool {
    let in_memory = constraints.split(',').any(|constraint| constraint.contains("*m"));
    for statement in template.split([';', '\n']).map(str::trim).filter(|s| !s.is_empty()) {
        let (mnemonic, rest) = statement.split_once([' ', '\t']).unwrap_or((statement, ""));
        let mnemonic = mnemonic.to_ascii_lowercase();
        if mnemonic == "lock" {
            return true;
        }
        // With an operand in memory it is locked without being told to.
        if mnemonic.starts_with("xchg") && (rest.contains('(') || in_memory && rest.contains('$')) {
            return true;
        }
        let may_jump = mnemonic.starts_with('j') || mnemonic.starts_with("loop") || mnemonic.ends_with(':');
        if may_jump || mnemonic.starts_with("rep") || mnemonic.starts_with(".if") || is_flush(&mnemonic) {
            return false;
        }
    }
    false
}

fn is_flush(mnemonic: &str) -> bool {
    mnemonic == ".byte" || mnemonic.starts_with("cl") || mnemonic.starts_with("xsave") || mnemonic.starts_with("movnt")
}

/// `addl $$0, -8(%rsp)` and its like, of which the prefix makes a fence: the stack holds what it held.
fn locked_fence(instruction: &str) -> Option<Operation> {
    let (mnemonic, operands) = instruction.split_once([' ', '\t'])?;
    let (value, place) = operands.split_once(',')?;
    let mnemonic = mnemonic.to_ascii_lowercase();
    let is_one_of = |name: &str| {
        let size = mnemonic.strip_prefix(name);
        size.is_some_and(|size| ["", "b", "w", "l", "q"].contains(&size))
    };
    let changes_nothing =
        ["add", "or", "sub", "xor"].into_iter().any(is_one_of) && ["$$0", "$$0x0"].contains(&value.trim());
    let place = place.trim();
    let stack = ["(%rsp)", "(%esp)"]
        .iter()
        .find_map(|register| place.strip_suffix(register))?;
    let is_constant = stack.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    (changes_nothing && is_constant).then_some(LOCKED_FENCE)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand<'a> {
    /// In memory, at the pointer that is passed.
    Memory,
    /// A register that the compiler chooses, with the pointer.
    Register,
    /// The register of this name.
    Fixed(&'a str),
}

/// The operands in the order of their numbers, which is that of the call's arguments, because none is a direct output.
fn operands(constraints: &str) -> Option<Vec<Operand<'_>>> {
    let mut operands = Vec::new();
    for constraint in constraints.split(',').filter(|c| !c.is_empty() && !c.starts_with('~')) {
        operands.push(match constraint {
            "=*m" | "+*m" | "*m" => Operand::Memory,
            "r" => Operand::Register,
            fixed => Operand::Fixed(fixed.strip_prefix('{')?.strip_suffix('}')?),
        });
    }
    Some(operands)
}

/// `$0` in memory, or `($0)`.
fn flush(kind: u8, operand: &str, operands: &[Operand]) -> Option<Operation> {
    let (wanted, number) = match operand.strip_prefix('(') {
        Some(inner) => (Operand::Register, inner.strip_suffix(')')?.trim()),
        None => (Operand::Memory, operand),
    };
    let number = number.strip_prefix('$')?;
    let number = number
        .strip_prefix('{')
        .and_then(|number| number.strip_suffix('}'))
        .unwrap_or(number);
    let argument: u32 = number.parse().ok()?;
    (operands.get(argument as usize) == Some(&wanted)).then_some(Operation::Flush { kind, argument })
}

enum Raw {
    Prefix,
    Operation(Operation),
}

/// The bytes of a `.byte`: the prefix alone, or a whole flush whose address is in a fixed register.
fn raw(list: &str, operands: &[Operand]) -> Option<Raw> {
    let bytes: Option<Vec<u8>> = list.split(',').map(|byte| number(byte.trim())).collect();
    let bytes = bytes?;
    let (prefixed, opcode) = match bytes.as_slice() {
        [0x66] => return Some(Raw::Prefix),
        [0x66, rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let [0x0f, 0xae, modrm] = *opcode else { return None };
    if modrm == 0xf8 && !prefixed {
        return Some(Raw::Operation(Operation::Fence { kind: FENCE_SFENCE }));
    }
    if modrm == 0xf0 && !prefixed {
        return Some(Raw::Operation(Operation::Fence { kind: FENCE_MFENCE }));
    }
    let kind = match (modrm >> 3, prefixed) {
        (6, true) => FLUSH_CLWB,
        (7, true) => FLUSH_CLFLUSHOPT,
        (7, false) => FLUSH_CLFLUSH,
        _ => return None,
    };
    let names: [&str; 2] = match modrm & 7 {
        0 => ["ax", "rax"],
        1 => ["cx", "rcx"],
        2 => ["dx", "rdx"],
        3 => ["bx", "rbx"],
        6 => ["si", "rsi"],
        7 => ["di", "rdi"],
        _ => return None,
    };
    let argument = operands
        .iter()
        .position(|operand| matches!(operand, Operand::Fixed(name) if names.contains(name)))?;
    let argument = argument as u32;
    Some(Raw::Operation(Operation::Flush { kind, argument }))
}

fn number(text: &str) -> Option<u8> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOBBERS: &str = "~{memory},~{dirflag},~{fpsr},~{flags}";

    fn flush_of(kind: u8, argument: u32) -> Vec<Operation> {
        vec![Operation::Flush { kind, argument }]
    }

    #[test]
    fn flushes_in_all_their_shapes() {
        let memory = format!("=*m,*m,{CLOBBERS}");
        let register = format!("r,{CLOBBERS}");
        for (template, constraints, kind) in [
            ("clwb $0", &memory, FLUSH_CLWB),
            ("\tCLWB\t$0\n", &memory, FLUSH_CLWB),
            ("clwb ($0)", &register, FLUSH_CLWB),
            ("clflushopt $0", &memory, FLUSH_CLFLUSHOPT),
            ("clflush ${0}", &memory, FLUSH_CLFLUSH),
            (".byte 0x66; clflush $0", &memory, FLUSH_CLFLUSHOPT),
            (".byte 0x66; xsaveopt $0", &memory, FLUSH_CLWB),
            (".byte 0x66\n\txsaveopt ($0)", &register, FLUSH_CLWB),
        ] {
            assert_eq!(recognise(template, constraints), Some(flush_of(kind, 0)), "{template}");
        }
        let fixed = format!("{{ax}},{CLOBBERS}");
        assert_eq!(
            recognise(".byte 0x66, 0x0f, 0xae, 0x30", &fixed),
            Some(flush_of(FLUSH_CLWB, 0))
        );
        assert_eq!(
            recognise(".byte 0x66,0x0f,0xae,0x38", &fixed),
            Some(flush_of(FLUSH_CLFLUSHOPT, 0))
        );
    }

    #[test]
    fn sequences() {
        let constraints = format!("r,r,{CLOBBERS}");
        let expected = vec![
            Operation::Flush {
                kind: FLUSH_CLWB,
                argument: 1,
            },
            Operation::Fence { kind: FENCE_SFENCE },
        ];
        assert_eq!(recognise("clwb ($1); sfence", &constraints), Some(expected));
        assert_eq!(
            recognise("mfence", CLOBBERS),
            Some(vec![Operation::Fence { kind: FENCE_MFENCE }])
        );
    }

    #[test]
    fn locked_instructions_that_change_nothing_are_fences() {
        let fence = Some(vec![Operation::Fence { kind: FENCE_LOCKED }]);
        for template in [
            "lock; addl $$0,(%rsp)",
            "lock addl $$0, 0(%rsp)",
            "lock\n\torq $$0, -64(%rsp)",
            "LOCK; ADDL $$0x0,-4(%esp)",
        ] {
            assert_eq!(recognise(template, CLOBBERS), fence, "{template}");
        }
    }

    #[test]
    fn locked_instructions_are_seen_wherever_they_store() {
        for (template, constraints) in [
            ("lock; addl $$0,(%rsp)", CLOBBERS),
            ("lock; xaddl $0, $1", "=r,=*m,0,*m"),
            ("movl $2, %eax; lock cmpxchgl $1, $0", "=*m,r,r"),
            ("xchgl $0, $1", "=r,=*m,0,*m"),
            ("xchgq $0, ($1)", "=r,r,0"),
            ("lock; cmpxchg16b $0; setz $1", "=*m,=q,*m"),
        ] {
            assert!(is_locked(template, constraints), "{template}");
        }
        for (template, constraints) in [
            ("", CLOBBERS),
            ("xchg %rbx, %rbx", CLOBBERS),
            ("xchgl $0, $1", "=r,=r,0,1"),
            ("testl $0, $0; jz 1f; lock; incl $1; 1:", "r,=*m"),
            ("1: lock; incl $0", "=*m"),
            ("clwb $0; lock; addl $$0,(%rsp)", "=*m,r"),
            ("movl $0, $1", "=*m,r"),
        ] {
            assert!(!is_locked(template, constraints), "{template}");
        }
    }

    #[test]
    fn what_is_not_understood_is_left_alone() {
        let memory = format!("=*m,*m,{CLOBBERS}");
        for (template, constraints) in [
            ("", CLOBBERS),
            ("nop", CLOBBERS),
            ("lock; addl $$1,(%rsp)", CLOBBERS),
            ("lock; addl $$0,(%rax)", CLOBBERS),
            ("lock; andl $$0,(%rsp)", CLOBBERS),
            ("lock; addl %eax,(%rsp)", CLOBBERS),
            ("lock; lock; addl $$0,(%rsp)", CLOBBERS),
            ("lock; xaddl $0, $1", "=r,*m"),
            ("lock", CLOBBERS),
            ("lock; sfence", CLOBBERS),
            ("sfence; rdtsc", CLOBBERS),
            ("lfence", CLOBBERS),
            ("clwb $1", "=r,*m"),
            ("clwb $2", &memory),
            ("clwb 64($0)", "r"),
            ("clwb $0", "r"),
            ("xsaveopt $0", &memory),
            (".byte 0x66; sfence", CLOBBERS),
            (".byte 0x66", CLOBBERS),
            (".byte 0x66, 0x0f, 0xae, 0x30", "{cx}"),
            ("movnti $1, $0", "=*m,r"),
        ] {
            assert_eq!(recognise(template, constraints), None, "{template} | {constraints}");
        }
    }
}
