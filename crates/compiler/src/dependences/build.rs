//! What the label pass needs of LLVM's C interface beyond [`crate::instrument::ir`]: places to build at, calls of the runtime's functions with
//! constants folded away, and the few questions about instructions that only this pass has.

use std::ffi::{c_char, c_uint};

use crashproof_wire::labels::LabelHook;
use llvm_sys::LLVMAttributeFunctionIndex;
use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout};

use crate::instrument::ir::{Block, DebugLocation, Ir, Type, Value};

const UNNAMED: *const c_char = c"".as_ptr();

/// What is built from here on goes before the instruction and is from where it is.
pub fn build_before(ir: &Ir, instruction: Value) {
    build_before_from(ir, instruction, instruction.debug_location());
}

pub fn build_before_from(ir: &Ir, instruction: Value, location: DebugLocation) {
    // SAFETY: an instruction of a live module.
    unsafe {
        LLVMPositionBuilderBefore(ir.builder, instruction.0);
        LLVMSetCurrentDebugLocation2(ir.builder, location.0);
    }
}

pub fn next(instruction: Value) -> Option<Value> {
    // SAFETY: an instruction of a live module.
    let next = unsafe { LLVMGetNextInstruction(instruction.0) };
    (!next.is_null()).then_some(Value(next))
}

/// The first instruction that is neither a phi nor a landing pad.
pub fn first_ordinary(block: Block) -> Value {
    use llvm_sys::LLVMOpcode::{LLVMLandingPad, LLVMPHI};
    let mut at = block.first();
    while let Some(LLVMPHI | LLVMLandingPad) = at.opcode()
        && let Some(after) = next(at)
    {
        at = after;
    }
    at
}

pub fn successors(block: Block) -> Vec<Block> {
    // SAFETY: a block with a terminator.
    unsafe {
        let terminator = LLVMGetBasicBlockTerminator(block.0);
        (0..LLVMGetNumSuccessors(terminator))
            .map(|index| Block(LLVMGetSuccessor(terminator, index)))
            .collect()
    }
}

pub fn terminator(block: Block) -> Value {
    // SAFETY: a block with a terminator.
    Value(unsafe { LLVMGetBasicBlockTerminator(block.0) })
}

/// Where an invoke goes on if nothing was thrown.
pub fn normal_destination(invoke: Value) -> Block {
    // SAFETY: an invoke.
    Block(unsafe { LLVMGetNormalDest(invoke.0) })
}

pub fn parameters(function: Value) -> Vec<Value> {
    // SAFETY: a function.
    unsafe {
        (0..LLVMCountParams(function.0))
            .map(|index| Value(LLVMGetParam(function.0, index)))
            .collect()
    }
}

pub fn incoming(phi: Value) -> Vec<(Value, Block)> {
    // SAFETY: a phi.
    unsafe {
        (0..LLVMCountIncoming(phi.0))
            .map(|index| {
                (
                    Value(LLVMGetIncomingValue(phi.0, index)),
                    Block(LLVMGetIncomingBlock(phi.0, index)),
                )
            })
            .collect()
    }
}

fn attribute(name: &str) -> c_uint {
    // SAFETY: pointer and length of one string.
    unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) }
}

/// Bytes of the copy that a parameter is passed as, if it is.
pub fn by_value_parameter(ir: &Ir, function: Value, index: u32) -> Option<u64> {
    // SAFETY: a function.
    by_value(ir, unsafe {
        LLVMGetEnumAttributeAtIndex(function.0, index + 1, attribute("byval"))
    })
}

/// The same for an argument of a call.
pub fn by_value_argument(ir: &Ir, call: Value, index: u32) -> Option<u64> {
    // SAFETY: a call.
    by_value(ir, unsafe {
        LLVMGetCallSiteEnumAttribute(call.0, index + 1, attribute("byval"))
    })
}

fn by_value(ir: &Ir, attribute: LLVMAttributeRef) -> Option<u64> {
    // SAFETY: a type attribute with a sized type.
    (!attribute.is_null()).then(|| unsafe { ir.store_size(Type(LLVMGetTypeAttributeValue(attribute))) })
}

/// Whether control may come back from the call once more.
pub fn returns_twice(call: Value) -> bool {
    let (kind, callee) = (attribute("returns_twice"), call.callee());
    // SAFETY: a call, and what it calls, if that is a function.
    unsafe {
        !LLVMGetCallSiteEnumAttribute(call.0, LLVMAttributeFunctionIndex, kind).is_null()
            || (!LLVMIsAFunction(callee.0).is_null()
                && !LLVMGetEnumAttributeAtIndex(callee.0, LLVMAttributeFunctionIndex, kind).is_null())
    }
}

pub fn is_function(value: Value) -> bool {
    // SAFETY: a value of a live module.
    unsafe { !LLVMIsAFunction(value.0).is_null() }
}

/// The code has effects from now on that its attributes deny; and passes are to look at functions that were not to be optimised.
pub fn remove_promises(function: Value) {
    for name in [
        "memory",
        "optnone",
        "nosync",
        "nofree",
        "willreturn",
        "norecurse",
        "speculatable",
    ] {
        // SAFETY: a function.
        unsafe { LLVMRemoveEnumAttributeAtIndex(function.0, LLVMAttributeFunctionIndex, attribute(name)) };
    }
}

pub fn remove_promises_of_call(call: Value) {
    // SAFETY: a call.
    unsafe { LLVMRemoveCallSiteEnumAttribute(call.0, LLVMAttributeFunctionIndex, attribute("memory")) };
}

/// Bytes of an alloca: of one element, and how many of them.
pub fn alloca_size(ir: &Ir, alloca: Value) -> (u64, Value) {
    // SAFETY: an alloca; of a sized type.
    let size = unsafe { LLVMABISizeOfType(LLVMGetModuleDataLayout(ir.module), LLVMGetAllocatedType(alloca.0)) };
    (size, alloca.operand(0))
}

pub fn phi(ir: &Ir) -> Value {
    // SAFETY: at the top of a block.
    Value(unsafe { LLVMBuildPhi(ir.builder, ir.integer_type(64).0, UNNAMED) })
}

pub fn add_incoming(phi: Value, value: Value, from: Block) {
    // SAFETY: an i64 for a phi of i64s.
    unsafe { LLVMAddIncoming(phi.0, [value.0].as_mut_ptr(), [from.0].as_mut_ptr(), 1) };
}

pub fn select(ir: &Ir, condition: Value, then: Value, otherwise: Value) -> Value {
    // SAFETY: an i1 and two i64s.
    Value(unsafe { LLVMBuildSelect(ir.builder, condition.0, then.0, otherwise.0, UNNAMED) })
}

pub fn multiply(ir: &Ir, one: Value, other: Value) -> Value {
    // SAFETY: two i64s.
    Value(unsafe { LLVMBuildMul(ir.builder, one.0, other.0, UNNAMED) })
}

/// Two labels in one word.
pub fn pack(ir: &Ir, above: Value, below: Value) -> Value {
    if is_empty(above) {
        return below;
    }
    // SAFETY: i64s.
    unsafe {
        let above = LLVMBuildShl(ir.builder, above.0, ir.i64(32).0, UNNAMED);
        Value(LLVMBuildOr(ir.builder, above, below.0, UNNAMED))
    }
}

/// 0 if an i64 is negative.
pub fn at_least_zero(ir: &Ir, value: Value) -> Value {
    // SAFETY: i64s.
    unsafe {
        let zero = ir.i64(0);
        let negative = LLVMBuildICmp(
            ir.builder,
            llvm_sys::LLVMIntPredicate::LLVMIntSLT,
            value.0,
            zero.0,
            UNNAMED,
        );
        select(ir, Value(negative), zero, value)
    }
}

/// The bits of an integer, sign-extended to an i64.
pub fn signed(ir: &Ir, value: Value) -> Value {
    // SAFETY: an integer of at most 64 bits.
    Value(unsafe { LLVMBuildSExtOrBitCast(ir.builder, value.0, ir.integer_type(64).0, UNNAMED) })
}

/// The constant 0 is the label of whatever depends on nothing.
pub fn is_empty(label: Value) -> bool {
    label.constant_integer() == Some(0)
}

pub fn call(ir: &Ir, hook: LabelHook, arguments: &[Value]) -> Value {
    ir.call_preserving(hook.gate(), arguments)
}

/// One byte for each block of the module, and the code that tells the runtime of them before `main`.
pub fn block_flags(ir: &Ir) -> Value {
    // SAFETY: a type and a name of a live context. The length is known at the end.
    unsafe {
        let flag = LLVMInt8TypeInContext(ir.context);
        Value(LLVMAddGlobal(
            ir.module,
            LLVMArrayType2(flag, 0),
            c"crashproof.blocks".as_ptr(),
        ))
    }
}

/// Sets the flag of a block, here.
pub fn set_flag(ir: &Ir, flags: Value, block: u64) {
    // SAFETY: a byte of an array that is at least so long when the module is done.
    unsafe {
        let flag = LLVMInt8TypeInContext(ir.context);
        let mut index = [ir.i64(block).0];
        let at = LLVMConstGEP2(flag, flags.0, index.as_mut_ptr(), 1);
        let store = LLVMBuildStore(ir.builder, LLVMConstInt(flag, 1, 0), at);
        LLVMSetVolatile(store, 1);
    }
}

/// Gives the flags their length, and a constructor that registers them.
pub fn register_flags(ir: &Ir, flags: Value, count: u64, object: u64) {
    let name = format!("crashproof_blocks_{object:016x}");
    let c_name = format!("{name}\0");
    // SAFETY: globals and functions of a live module, used as their types say; the flags of length 0 are replaced by those that are long enough.
    unsafe {
        let flag = LLVMInt8TypeInContext(ir.context);
        let array = LLVMArrayType2(flag, count);
        let all = LLVMAddGlobal(ir.module, array, UNNAMED);
        LLVMSetLinkage(all, llvm_sys::LLVMLinkage::LLVMPrivateLinkage);
        LLVMSetInitializer(all, LLVMConstNull(array));
        LLVMReplaceAllUsesWith(flags.0, all);
        LLVMDeleteGlobal(flags.0);
        let ty = LLVMFunctionType(LLVMVoidTypeInContext(ir.context), std::ptr::null_mut(), 0, 0);
        let function = LLVMAddFunction(ir.module, c_name.as_ptr().cast(), ty);
        LLVMSetLinkage(function, llvm_sys::LLVMLinkage::LLVMInternalLinkage);
        let block = LLVMAppendBasicBlockInContext(ir.context, function, UNNAMED);
        ir.build_in(Block(block), DebugLocation(std::ptr::null_mut()));
        let address = ir.as_i64(Value(all));
        call(ir, LabelHook::Blocks, &[address, ir.i64(count), ir.i64(object)]);
        LLVMBuildRetVoid(ir.builder);
    }
    ir.append_assembly(&format!(
        "\n.pushsection .init_array,\"aw\",@init_array\n.balign 8\n.quad {name}\n.popsection\n"
    ));
}
