//! Macros that flush or fence, known by what they expand to.

use std::collections::BTreeMap;
use std::path::Path;

use clang::EntityKind;

use super::helpers::{Helper, Role};
use crate::source::text::{SourceFile, TokenKind};
use crate::source::tree::range_in;
use crate::source::units::Unit;

/// A macro of the program, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PersistenceMacro {
    pub name: String,
    pub role: Role,
    /// How often the unit uses it.
    pub uses: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Flush,
    FlushRange,
    Fence,
}

/// Those that the tree defines, if the unit uses any of them.
pub(super) fn macros(unit: &Unit, tree: &Path, helpers: &[Helper]) -> Vec<PersistenceMacro> {
    let mut known: BTreeMap<String, Vec<Step>> = BTreeMap::new();
    for helper in helpers.iter().filter(|helper| !helper.has_leading) {
        let steps = match helper.role {
            Role::Flush => vec![Step::FlushRange],
            Role::Persist => vec![Step::FlushRange, Step::Fence],
            Role::Fence => vec![Step::Fence],
            Role::FlushLine => vec![Step::Flush],
            Role::PersistLine => vec![Step::Flush, Step::Fence],
        };
        known.insert(helper.name.clone(), steps);
    }
    for name in ["_mm_clwb", "_mm_clflushopt", "_mm_clflush"] {
        known.insert(name.into(), vec![Step::Flush]);
    }
    known.insert("_mm_sfence".into(), vec![Step::Fence]);
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for entity in unit.root().get_children() {
        let name = entity.get_name().unwrap_or_default();
        match entity.get_kind() {
            EntityKind::MacroExpansion => *uses.entry(name).or_default() += 1,
            EntityKind::MacroDefinition if entity.is_function_like_macro() => {
                let file = entity
                    .get_location()
                    .and_then(|location| location.get_file_location().file);
                let Some(file) = file.filter(|file| unit.path(*file).starts_with(tree)) else {
                    continue;
                };
                let path = unit.path(file);
                let text = file.get_contents().unwrap_or_default();
                let definition = range_in(unit, &entity, &path).and_then(|(range, _)| text.get(range));
                let Some((parameters, steps)) = definition.and_then(|text| steps(text, &known)) else {
                    continue;
                };
                known.insert(name.clone(), steps.clone());
                if let Some(role) = role(parameters, &steps) {
                    found.push((name, role));
                }
            }
            _ => {}
        }
    }
    let mut macros: Vec<PersistenceMacro> = found
        .into_iter()
        .map(|(name, role)| PersistenceMacro {
            uses: uses.get(&name).copied().unwrap_or(0),
            name,
            role,
        })
        .collect();
    // One that only others of them use is the program's, too.
    if macros.iter().all(|found| found.uses == 0) {
        macros.clear();
    }
    macros.sort_by(|a, b| b.uses.cmp(&a.uses).then_with(|| a.name.cmp(&b.name)));
    macros
}

fn role(parameters: usize, steps: &[Step]) -> Option<Role> {
    match (parameters, steps) {
        (0, [Step::Fence]) => Some(Role::Fence),
        (1, [Step::Flush]) => Some(Role::FlushLine),
        (1, [Step::Flush, Step::Fence]) => Some(Role::PersistLine),
        (2, [Step::FlushRange]) => Some(Role::Flush),
        (2, [Step::FlushRange, Step::Fence]) => Some(Role::Persist),
        _ => None,
    }
}

/// How many parameters a macro has and what it does, one after the other; `None` if it does something else, or not always.
fn steps(definition: &str, known: &BTreeMap<String, Vec<Step>>) -> Option<(usize, Vec<Step>)> {
    let file = SourceFile::new("macro".into(), definition.into());
    let tokens = file.tokens(0..definition.len());
    let close = tokens.iter().position(|token| file.token_text(*token) == ")")?;
    let parameters: Vec<&str> = tokens[..close]
        .iter()
        .skip(2)
        .filter(|token| token.kind == TokenKind::Word)
        .map(|token| file.token_text(*token))
        .collect();
    let mut steps = Vec::new();
    let mut used = 0;
    for (index, token) in tokens.iter().enumerate().skip(close + 1) {
        let text = file.token_text(*token);
        match token.kind {
            TokenKind::Literal if text.starts_with('"') => {
                let mnemonic = text
                    .trim_matches('"')
                    .split([' ', '\\', ';'])
                    .next()
                    .unwrap_or_default();
                match mnemonic {
                    "clwb" | "clflushopt" | "clflush" => steps.push(Step::Flush),
                    "sfence" | "mfence" => steps.push(Step::Fence),
                    // Operands and clobbers.
                    _ if mnemonic.starts_with(['+', '=']) || matches!(mnemonic, "m" | "r" | "memory") => {}
                    _ => return None,
                }
            }
            TokenKind::Word if ["for", "if", "switch", "goto", "return", "else"].contains(&text) => return None,
            // Only the end of a macro's block.
            TokenKind::Word if text == "while" => {
                let rest: String = tokens[index + 1..]
                    .iter()
                    .map(|token| file.token_text(*token))
                    .collect();
                if rest != "(0)" {
                    return None;
                }
            }
            TokenKind::Word => {
                used += usize::from(parameters.contains(&text));
                let is_call = tokens.get(index + 1).is_some_and(|next| file.token_text(*next) == "(");
                let harmless = [
                    "do",
                    "asm",
                    "__asm__",
                    "__asm",
                    "volatile",
                    "__volatile__",
                    "char",
                    "void",
                    "const",
                    "uintptr_t",
                    "size_t",
                    "uint64_t",
                    "unsigned",
                    "long",
                    "sizeof",
                ];
                match known.get(text) {
                    Some(more) if is_call => steps.extend(more),
                    _ if parameters.contains(&text) || harmless.contains(&text) => {}
                    _ => return None,
                }
            }
            TokenKind::Punctuation if ["?", "=", "++", "--", "+", "-"].contains(&text) => return None,
            _ => {}
        }
    }
    (used >= parameters.len()).then_some((parameters.len(), steps))
}
