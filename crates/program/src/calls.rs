//! The call graph: direct calls, and for a call through a pointer every function of the same type whose address is taken.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use inkwell::module::Module;
use llvm_sys::core::*;
use llvm_sys::prelude::{LLVMTypeRef, LLVMValueRef};
use llvm_sys::{LLVMOpcode, LLVMValueKind};

/// Who may call whom, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallGraph {
    /// Functions with a body, and what each calls directly, be it defined here or not.
    pub direct: BTreeMap<String, BTreeSet<String>>,
    /// What each may call through pointers.
    pub indirect: BTreeMap<String, BTreeSet<String>>,
    pub address_taken: BTreeSet<String>,
}

impl CallGraph {
    pub fn edges(&self) -> usize {
        let count = |calls: &BTreeMap<String, BTreeSet<String>>| calls.values().map(BTreeSet::len).sum::<usize>();
        count(&self.direct) + count(&self.indirect)
    }

    /// Functions that may call this one, directly or through a pointer.
    pub fn callers<'a>(&'a self, callee: &'a str) -> impl Iterator<Item = &'a str> {
        let all = self.direct.iter().chain(&self.indirect);
        let callers: BTreeSet<&str> = all
            .filter(|(_, callees)| callees.contains(callee))
            .map(|(caller, _)| caller.as_str())
            .collect();
        callers.into_iter()
    }

    pub fn of(module: &Module) -> CallGraph {
        // SAFETY: all references are to values of the module, which is borrowed; kinds are checked before they are relied upon.
        unsafe { build(module) }
    }
}

unsafe fn build(module: &Module) -> CallGraph {
    let mut graph = CallGraph::default();
    let mut by_type: HashMap<LLVMTypeRef, Vec<String>> = HashMap::new();
    let mut through_pointers: Vec<(String, LLVMTypeRef)> = Vec::new();
    // SAFETY: as the caller says.
    unsafe {
        let mut function = LLVMGetFirstFunction(module.as_mut_ptr());
        while !function.is_null() {
            if LLVMGetIntrinsicID(function) == 0 {
                if is_address_taken(function) {
                    graph.address_taken.insert(name(function));
                    by_type
                        .entry(LLVMGlobalGetValueType(function))
                        .or_default()
                        .push(name(function));
                }
                if LLVMIsDeclaration(function) == 0 {
                    add_calls(function, &mut graph, &mut through_pointers);
                }
            }
            function = LLVMGetNextFunction(function);
        }
    }
    for (caller, ty) in through_pointers {
        let callees = by_type.get(&ty).into_iter().flatten().cloned();
        graph.indirect.entry(caller).or_default().extend(callees);
    }
    graph
}

unsafe fn add_calls(function: LLVMValueRef, graph: &mut CallGraph, through_pointers: &mut Vec<(String, LLVMTypeRef)>) {
    // SAFETY: a function with a body.
    unsafe {
        let caller = name(function);
        let callees = graph.direct.entry(caller.clone()).or_default();
        let mut block = LLVMGetFirstBasicBlock(function);
        while !block.is_null() {
            let mut instruction = LLVMGetFirstInstruction(block);
            while !instruction.is_null() {
                if is_call(instruction) {
                    let callee = resolve_alias(LLVMGetCalledValue(instruction));
                    match LLVMGetValueKind(callee) {
                        LLVMValueKind::LLVMFunctionValueKind if LLVMGetIntrinsicID(callee) == 0 => {
                            callees.insert(name(callee));
                        }
                        LLVMValueKind::LLVMFunctionValueKind | LLVMValueKind::LLVMInlineAsmValueKind => {}
                        _ => through_pointers.push((caller.clone(), LLVMGetCalledFunctionType(instruction))),
                    }
                }
                instruction = LLVMGetNextInstruction(instruction);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
}

unsafe fn is_call(instruction: LLVMValueRef) -> bool {
    // SAFETY: an instruction.
    matches!(
        unsafe { LLVMGetInstructionOpcode(instruction) },
        LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMCallBr
    )
}

unsafe fn resolve_alias(mut value: LLVMValueRef) -> LLVMValueRef {
    // SAFETY: an alias has an aliasee; aliases form no circle, LLVM's verifier sees to that.
    unsafe {
        while LLVMGetValueKind(value) == LLVMValueKind::LLVMGlobalAliasValueKind {
            value = LLVMAliasGetAliasee(value);
        }
    }
    value
}

/// Whether anything but a call uses the function, or an expression or alias of it.
unsafe fn is_address_taken(function: LLVMValueRef) -> bool {
    let mut pending = vec![function];
    let mut seen = HashSet::new();
    while let Some(value) = pending.pop() {
        // SAFETY: uses of a live value.
        unsafe {
            let mut used = LLVMGetFirstUse(value);
            while !used.is_null() {
                let user = LLVMGetUser(used);
                if !LLVMIsAInstruction(user).is_null() && is_call(user) {
                    let arguments = LLVMGetNumArgOperands(user);
                    if (0..arguments).any(|index| LLVMGetOperand(user, index) == value) {
                        return true;
                    }
                } else if LLVMGetValueKind(user) == LLVMValueKind::LLVMGlobalAliasValueKind {
                    if seen.insert(user) {
                        pending.push(user);
                    }
                } else {
                    return true;
                }
                used = LLVMGetNextUse(used);
            }
        }
    }
    false
}

unsafe fn name(value: LLVMValueRef) -> String {
    let mut length = 0;
    // SAFETY: a global value; the bytes are LLVM's for as long as it lives.
    unsafe {
        let start = LLVMGetValueName2(value, &mut length);
        String::from_utf8_lossy(std::slice::from_raw_parts(start.cast::<u8>(), length)).into_owned()
    }
}
