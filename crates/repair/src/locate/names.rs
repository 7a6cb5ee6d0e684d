//! The names of functions, as the frames of a finding have them.

use std::cell::RefCell;

use addr2line::{demangle, gimli};
use crashproof_llvm::Value;
use rustc_hash::FxHashMap;

use crate::ir::Code;

/// Demangled names, each made once.
#[derive(Default)]
pub(super) struct Names<'m> {
    demangled: RefCell<FxHashMap<Value<'m>, Option<String>>>,
}

impl<'m> Names<'m> {
    /// Linkage name, the name in the source, or the demangled name (which is what `crashproof check` prints).
    pub(super) fn is(&self, function: Value<'m>, name: &str) -> bool {
        function.name() == name || function.source_name() == Some(name) || self.demangled_is(function, name)
    }

    fn demangled_is(&self, function: Value<'m>, name: &str) -> bool {
        let mut demangled = self.demangled.borrow_mut();
        let demangled = demangled
            .entry(function)
            .or_insert_with(|| demangle(function.name(), gimli::DW_LANG_C_plus_plus));
        demangled.as_deref() == Some(name)
    }

    /// The same but for parameters, template arguments and scopes, in which other tools differ.
    pub(super) fn is_similar(&self, function: Value<'m>, name: &str) -> bool {
        function.source_name().map(plain) == Some(plain(name))
    }
}

/// `update` of `void shop::Table<int>::update<long>(long) const`.
fn plain(name: &str) -> String {
    let mut part = String::new();
    let mut depth = 0_u32;
    for character in name.chars() {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            '(' if !part.is_empty() => break,
            '(' | ')' | ':' | ' ' => part.clear(),
            other => part.push(other),
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn names_without_their_surroundings() {
        for name in [
            "update",
            "update(char*, int)",
            "shop::Table<int>::update(long) const",
            "void shop::Table<shop::Key>::update<long, char>(long)",
            "(anonymous namespace)::update()",
        ] {
            assert_eq!(plain(name), "update", "{name}");
        }
    }
}
