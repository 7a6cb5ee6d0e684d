//! What a recording of dependences does not know: which libraries have touched PM with code that follows none, and how many labels were cut.

use std::collections::BTreeSet;
use std::path::Path;

use crashproof_trace::{Frame, ModuleId, StackId};
use rustc_hash::FxHashMap;

#[derive(Default)]
pub(crate) struct Unlabelled {
    /// Modules other than the program and the C library, whose functions are known.
    names: FxHashMap<ModuleId, String>,
    c_library: BTreeSet<ModuleId>,
    /// Stacks whose innermost code is theirs, but for the C library's.
    stacks: FxHashMap<StackId, ModuleId>,
    found: BTreeSet<ModuleId>,
    pub cuts: u64,
}

impl Unlabelled {
    pub(crate) fn module(&mut self, id: ModuleId, path: &str, is_program: bool) {
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("libc.so") || name.starts_with("ld-linux") {
            self.c_library.insert(id);
        } else if !is_program {
            self.names.insert(id, name.into_owned());
        }
    }

    pub(crate) fn stack(&mut self, id: StackId, frames: &[Frame]) {
        let modules = frames.iter().map_while(|frame| frame.module);
        let caller = modules.into_iter().find(|module| !self.c_library.contains(module));
        if let Some(module) = caller.filter(|module| self.names.contains_key(module)) {
            self.stacks.insert(id, module);
        }
    }

    pub(crate) fn store(&mut self, stack: StackId) {
        if let Some(&module) = self.stacks.get(&stack) {
            self.found.insert(module);
        }
    }

    /// The libraries that stored to PM.
    pub(crate) fn libraries(&self) -> Vec<String> {
        let mut names: Vec<String> = self.found.iter().map(|module| self.names[module].clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libc_does_is_its_callers() {
        let mut unlabelled = Unlabelled::default();
        unlabelled.module(ModuleId(0), "/bin/app", true);
        unlabelled.module(ModuleId(1), "/lib/libc.so.6", false);
        unlabelled.module(ModuleId(2), "/lib/libpmemobj.so.1", false);
        let frames = |modules: &[u32]| -> Vec<Frame> {
            let frame = |&module: &u32| Frame {
                module: Some(ModuleId(module)),
                address: 0,
            };
            modules.iter().map(frame).collect()
        };
        for (id, modules) in [(1, &[1, 0][..]), (2, &[0]), (3, &[1, 2, 0])] {
            unlabelled.stack(StackId(id), &frames(modules));
        }
        unlabelled.store(StackId(1));
        unlabelled.store(StackId(2));
        assert!(unlabelled.libraries().is_empty());
        unlabelled.store(StackId(3));
        assert_eq!(unlabelled.libraries(), ["libpmemobj.so.1"]);
    }
}
