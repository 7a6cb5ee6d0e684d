//! The call graph: direct calls, and for a call through a pointer every function of the same type whose address is taken.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crashproof_llvm::{Module, Type, Value, ValueKind};

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
        let mut graph = CallGraph::default();
        let mut by_type: HashMap<Type, Vec<String>> = HashMap::new();
        let mut through_pointers: Vec<(String, Type)> = Vec::new();
        for function in module.functions().filter(|function| !function.is_intrinsic()) {
            if is_address_taken(function) {
                graph.address_taken.insert(function.name().to_owned());
                if let Some(ty) = function.value_type() {
                    by_type.entry(ty).or_default().push(function.name().to_owned());
                }
            }
            if function.has_body() {
                graph.add_calls(function, &mut through_pointers);
            }
        }
        for (caller, ty) in through_pointers {
            let callees = by_type.get(&ty).into_iter().flatten().cloned();
            graph.indirect.entry(caller).or_default().extend(callees);
        }
        graph
    }

    fn add_calls<'m>(&mut self, function: Value<'m>, through_pointers: &mut Vec<(String, Type<'m>)>) {
        let caller = function.name().to_owned();
        let callees = self.direct.entry(caller.clone()).or_default();
        for call in function.instructions() {
            match call.called_function() {
                Some(callee) if !callee.is_intrinsic() => {
                    callees.insert(callee.name().to_owned());
                }
                None if call.is_indirect_call() => {
                    through_pointers.extend(call.called_type().map(|ty| (caller.clone(), ty)));
                }
                _ => {}
            }
        }
    }
}

/// Whether anything but a call uses the function, or an expression or alias of it.
fn is_address_taken(function: Value) -> bool {
    let mut pending = vec![function];
    let mut seen = HashSet::new();
    while let Some(value) = pending.pop() {
        for user in value.users() {
            if user.is_call() {
                if user.arguments().contains(&value) {
                    return true;
                }
            } else if user.kind() == ValueKind::LLVMGlobalAliasValueKind {
                if seen.insert(user) {
                    pending.push(user);
                }
            } else {
                return true;
            }
        }
    }
    false
}
