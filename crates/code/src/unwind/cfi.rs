//! Rules from unwind tables (`.eh_frame`): as cacheable rules where they are ordinary, else applied to all registers.

use gimli::{
    CfaRule, EhFrame, Encoding, Evaluation, EvaluationResult, EvaluationStorage, FrameDescriptionEntry, Operation,
    Piece, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection,
    UnwindTableRow, Value,
};

use super::Registers;
use super::cache::{Base, Rule};
use super::stack::Stack;
use crate::functions::{Reader, UnwindTables};

const ENCODING: Encoding = Encoding {
    address_size: 8,
    format: gimli::Format::Dwarf32,
    version: 4,
};
const RBP: Register = Register(Registers::RBP as u16);
const RSP: Register = Register(Registers::RSP as u16);
const RETURN_ADDRESS: Register = Register(Registers::RIP as u16);
/// A malformed expression may loop.
const MOST_OPERATIONS: u32 = 1000;

/// Room for the evaluation on the stack: a handler must not allocate. There are 17 registers; compilers nest remembered
/// states at most once.
struct Room;

impl UnwindContextStorage<usize> for Room {
    type Rules = [(Register, RegisterRule<usize>); 18];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

impl EvaluationStorage<Reader> for Room {
    type Stack = [Value; 16];
    type ExpressionStack = [(Reader, Reader); 1];
    type Result = [Piece<Reader>; 1];
}

type Row = UnwindTableRow<usize, Room>;

/// A frame's caller, with all registers.
pub(super) enum Step {
    Caller {
        registers: Registers,
        /// It was interrupted by a signal, not waiting for a call to return.
        interrupted: bool,
    },
    Outermost,
    NotCode,
}

/// The rule for the code at `pc`; `None` if the tables do not cover it.
pub(super) fn rule(tables: &UnwindTables, pc: u64) -> Option<Rule> {
    with_row(tables, pc, |entry, row| {
        if row.register(RETURN_ADDRESS) == RegisterRule::Undefined {
            return Rule::OUTERMOST;
        }
        if entry.is_signal_trampoline() || row.register(RETURN_ADDRESS) != RegisterRule::Offset(-8) {
            return Rule::OTHER;
        }
        ordinary(tables, row).unwrap_or(Rule::OTHER)
    })
}

fn ordinary(tables: &UnwindTables, row: &Row) -> Option<Rule> {
    let (base, cfa_offset) = match row.cfa() {
        CfaRule::RegisterAndOffset { register: RSP, offset } => (Base::Rsp, *offset),
        CfaRule::RegisterAndOffset { register: RBP, offset } => (Base::Rbp, *offset),
        CfaRule::RegisterAndOffset { .. } => return None,
        CfaRule::Expression(expression) => (Base::SavedAtRbp, rbp_relative(tables, expression, true)?),
    };
    let rbp_offset = match (base, row.register(RBP)) {
        // What is not mentioned is kept, by the calling convention.
        (_, RegisterRule::Undefined | RegisterRule::SameValue) => Rule::KEPT,
        (Base::SavedAtRbp, RegisterRule::Expression(expression)) => {
            rbp_relative(tables, &expression, false)?.try_into().ok()?
        }
        (Base::Rsp | Base::Rbp, RegisterRule::Offset(offset)) => offset.try_into().ok()?,
        _ => return None,
    };
    Some(Rule {
        base,
        cfa_offset: cfa_offset.try_into().ok()?,
        rbp_offset,
        guessed: false,
    })
}

/// The offset of an expression that adds it to rbp and, if so wanted, loads from there.
fn rbp_relative(tables: &UnwindTables, expression: &UnwindExpression<usize>, loads: bool) -> Option<i64> {
    let mut operations = expression.get(&tables.frames).ok()?.operations(ENCODING);
    let offset = match operations.next().ok()?? {
        Operation::RegisterOffset {
            register: RBP, offset, ..
        } => offset,
        _ => return None,
    };
    if loads && !matches!(operations.next().ok()??, Operation::Deref { size: 8, .. }) {
        return None;
    }
    operations.next().ok()?.is_none().then_some(offset)
}

/// Unwinds one frame; `None` if the tables do not cover it.
pub(super) fn step(tables: &UnwindTables, pc: u64, registers: &Registers, stack: &mut Stack) -> Option<Step> {
    with_row(tables, pc, |entry, row| {
        if row.register(RETURN_ADDRESS) == RegisterRule::Undefined {
            return Step::Outermost;
        }
        match caller(tables, row, registers, stack) {
            Some(registers) => Step::Caller {
                registers,
                interrupted: entry.is_signal_trampoline(),
            },
            None => Step::Outermost,
        }
    })
}

fn caller(tables: &UnwindTables, row: &Row, registers: &Registers, stack: &mut Stack) -> Option<Registers> {
    let value = |register: Register| registers.0.get(register.0 as usize).copied();
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => value(*register)?.wrapping_add_signed(*offset),
        CfaRule::Expression(expression) => evaluate(tables, expression, registers, None, stack)?,
    };
    let mut caller = *registers;
    caller.0[Registers::RSP] = cfa;
    for (register, rule) in row.registers() {
        let Some(slot) = caller.0.get_mut(register.0 as usize) else {
            continue;
        };
        *slot = match rule {
            RegisterRule::Offset(offset) => stack.read(cfa.wrapping_add_signed(*offset))?,
            RegisterRule::ValOffset(offset) => cfa.wrapping_add_signed(*offset),
            RegisterRule::Register(other) => value(*other)?,
            RegisterRule::Expression(expression) => {
                let address = evaluate(tables, expression, registers, Some(cfa), stack)?;
                stack.read(address)?
            }
            RegisterRule::ValExpression(expression) => evaluate(tables, expression, registers, Some(cfa), stack)?,
            RegisterRule::Constant(constant) => *constant,
            _ => continue,
        };
    }
    Some(caller)
}

fn evaluate(
    tables: &UnwindTables,
    expression: &UnwindExpression<usize>,
    registers: &Registers,
    initial: Option<u64>,
    stack: &mut Stack,
) -> Option<u64> {
    let code = expression.get(&tables.frames).ok()?.0;
    let mut evaluation = Evaluation::<Reader, Room>::new_in(code, ENCODING);
    evaluation.set_max_iterations(MOST_OPERATIONS);
    if let Some(cfa) = initial {
        evaluation.set_initial_value(cfa);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => return evaluation.value_result()?.to_u64(!0).ok(),
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = *registers.0.get(register.0 as usize)?;
                evaluation.resume_with_register(Value::Generic(value)).ok()?
            }
            EvaluationResult::RequiresMemory { address, size: 8, .. } => evaluation
                .resume_with_memory(Value::Generic(stack.read(address)?))
                .ok()?,
            _ => return None,
        };
    }
}

fn with_row<T>(
    tables: &UnwindTables,
    pc: u64,
    then: impl FnOnce(&FrameDescriptionEntry<Reader>, &Row) -> T,
) -> Option<T> {
    let table = tables.header.table()?;
    let entry = table
        .fde_for_address(&tables.frames, &tables.bases, pc, EhFrame::cie_from_offset)
        .ok()?;
    let mut context = UnwindContext::<usize, Room>::new_in();
    let row = entry
        .unwind_info_for_address(&tables.frames, &tables.bases, &mut context, pc)
        .ok()?;
    Some(then(&entry, row))
}
