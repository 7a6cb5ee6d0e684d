//! What the label pass builds and asks beyond [`crate::instrument::ir`].

use crashproof_llvm::{Block, DebugLocation, Holder, IntPredicate, Linkage, Opcode, Value};
use crashproof_wire::labels::LabelHook;

use crate::instrument::ir::Ir;

/// What is built from here on goes before the instruction and is from where it is.
pub(super) fn build_before<'m>(ir: &Ir<'m>, instruction: Value<'m>) {
    ir.before(instruction, instruction.debug_location());
}

/// The first instruction that is neither a phi nor a landing pad.
pub(super) fn first_ordinary(block: Block) -> Option<Value> {
    let is_first = |at: &Value| matches!(at.opcode(), Some(Opcode::LLVMPHI | Opcode::LLVMLandingPad));
    block.instructions().find(|at| !is_first(at))
}

/// Bytes of the copy that a parameter of a function, or an argument of a call, is passed as, if it is.
pub(super) fn by_value(ir: &Ir, holder: Value, index: u32) -> Option<u64> {
    let ty = holder.attribute(Holder::Parameter(index), "byval")?.ty()?;
    Some(ir.module().layout().store_size_of(ty))
}

/// Whether control may come back from the call once more.
pub(super) fn returns_twice(call: Value) -> bool {
    let promises = |holder: Value| holder.attribute(Holder::Function, "returns_twice").is_some();
    promises(call) || call.called_value().is_some_and(promises)
}

/// The code has effects from now on that its attributes deny; and passes are to look at functions that were not to be optimised.
pub(super) fn remove_promises(function: Value) {
    for name in [
        "memory",
        "optnone",
        "nosync",
        "nofree",
        "willreturn",
        "norecurse",
        "speculatable",
    ] {
        function.remove_attribute(name);
    }
}

/// Two labels in one word.
pub(super) fn pack<'m>(ir: &Ir<'m>, above: Value<'m>, below: Value<'m>) -> Value<'m> {
    match is_empty(above) {
        true => below,
        false => ir.either(ir.shift_left(above, 32), below),
    }
}

/// 0 if an i64 is negative.
pub(super) fn at_least_zero<'m>(ir: &Ir<'m>, value: Value<'m>) -> Value<'m> {
    let zero = ir.i64(0);
    ir.select(ir.compare(IntPredicate::LLVMIntSLT, value, zero), zero, value)
}

/// The bits of an integer, sign-extended to an i64.
pub(super) fn signed<'m>(ir: &Ir<'m>, value: Value<'m>) -> Value<'m> {
    ir.integer_cast(value, ir.module().integer_type(64), true)
}

/// The constant 0 is the label of whatever depends on nothing.
pub(super) fn is_empty(label: Value) -> bool {
    label.unsigned() == Some(0)
}

pub(super) fn call<'m>(ir: &Ir<'m>, hook: LabelHook, arguments: &[Value<'m>]) -> Value<'m> {
    ir.call_preserving(hook.gate(), arguments)
}

/// One byte for each block of the module.
pub(super) fn block_flags<'m>(ir: &Ir<'m>, count: u64) -> Value<'m> {
    ir.module().add_zeros(ir.module().integer_type(8).array(count))
}

/// Sets the flag of a block, here.
pub(super) fn set_flag<'m>(ir: &Ir<'m>, flags: Value<'m>, block: u64) {
    let set = ir.module().integer_type(8).constant(1);
    ir.store_volatile(set, ir.offset_pointer(flags, ir.i64(block)));
}

/// A constructor that tells the runtime of the flags before `main`.
pub(super) fn register_flags<'m>(ir: &Ir<'m>, flags: Value<'m>, count: u64, object: u64) {
    let name = format!("crashproof_blocks_{object:016x}");
    let function = ir.module().add_function(&name, ir.module().void_type(), &[]);
    function.set_linkage(Linkage::LLVMInternalLinkage);
    ir.at_end(ir.block_at_end(function), None::<DebugLocation>);
    call(
        ir,
        LabelHook::Blocks,
        &[ir.as_i64(flags), ir.i64(count), ir.i64(object)],
    );
    ir.return_void();
    let constructor = format!("\n.pushsection .init_array,\"aw\",@init_array\n.balign 8\n.quad {name}\n.popsection\n");
    ir.module().append_assembly(constructor.as_bytes());
}
