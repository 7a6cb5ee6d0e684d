//! Helpers that a unit can call and nobody does: a compiler makes no code of an unused `static inline` function, so the bitcode does not have it.
//!
//! What they do is seen as it is for others ([`super::helpers`]): the unit is compiled once more, with a table behind it that takes the addresses of
//! all functions that look like helpers, and these are run. A unit that does not compile in this way has none.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use clang::{Entity, EntityKind, TypeKind};
use crashproof_llvm::Context;

use super::helpers::{Helper, role};
use super::resolve::qualified;
use crate::ir::Code;
use crate::source::units::{Unit, Units};
use crate::source::variants::visit_declarations;

/// More than any program has of functions with the parameters of a helper and a body that calls or is assembly; a unit with more is not looked at.
const CANDIDATES: usize = 500;

/// The helpers of a unit that the program's bitcode has not.
pub(super) fn unused(units: &Units, unit: &Unit, is_in_bitcode: impl Fn(&str) -> bool) -> Vec<Helper> {
    let mut candidates: BTreeSet<(String, String)> = BTreeSet::new();
    let mut ambiguous: BTreeSet<String> = BTreeSet::new();
    visit_declarations(&unit.root(), &mut |entity| {
        let Some(name) = entity.get_name().filter(|name| !is_in_bitcode(name)) else {
            return;
        };
        if is_candidate(&entity, unit, units.tree()) && !candidates.insert((name.clone(), qualified(&entity))) {
            // Overloaded: its address is not one.
            ambiguous.insert(name);
        }
    });
    candidates.retain(|(name, _)| !ambiguous.contains(name));
    if candidates.is_empty() || candidates.len() > CANDIDATES {
        return Vec::new();
    }
    run(units, unit, &candidates).unwrap_or_default()
}

fn is_candidate(function: &Entity, unit: &Unit, tree: &Path) -> bool {
    let Some(ty) = function.get_type().filter(|_| {
        function.get_kind() == EntityKind::FunctionDecl && function.is_definition() && !function.is_variadic()
    }) else {
        return false;
    };
    let is_pointer = |ty: &clang::Type| ty.get_canonical_type().get_kind() == TypeKind::Pointer;
    let is_integer = |ty: &clang::Type| ty.get_canonical_type().is_integer();
    let has_parameters = match &ty.get_argument_types().unwrap_or_default()[..] {
        [] => true,
        [range] => is_pointer(range),
        [range, size] => (is_pointer(range) || is_integer(range)) && is_integer(size),
        [leading, range, size] => is_pointer(leading) && is_pointer(range) && is_integer(size),
        _ => false,
    };
    let file = function
        .get_location()
        .and_then(|location| location.get_file_location().file);
    has_parameters && file.is_some_and(|file| unit.path(file).starts_with(tree)) && does_something(function)
}

/// A flush is a call, of an intrinsic at least, or assembly.
fn does_something(function: &Entity) -> bool {
    let mut found = false;
    function.visit_children(|entity, _| {
        found |= matches!(
            entity.get_kind(),
            EntityKind::CallExpr | EntityKind::AsmStmt | EntityKind::UnexposedStmt
        );
        match found {
            true => clang::EntityVisitResult::Break,
            false => clang::EntityVisitResult::Recurse,
        }
    });
    found
}

/// Compiles them and looks at what they do.
fn run(units: &Units, unit: &Unit, candidates: &BTreeSet<(String, String)>) -> Option<Vec<Helper>> {
    let folder = tempfile::tempdir().ok()?;
    let main = unit.main_file();
    let extension = main.extension().and_then(|extension| extension.to_str()).unwrap_or("c");
    let (source, bitcode) = (
        folder.path().join(format!("unused.{extension}")),
        folder.path().join("unused.bc"),
    );
    let mut text = format!("#include \"{}\"\n", main.display());
    for (index, (_, name)) in candidates.iter().enumerate() {
        writeln!(
            text,
            "__attribute__((used)) static void *crashproof_{index} = (void *)&{name};"
        )
        .ok()?;
    }
    std::fs::write(&source, text).ok()?;
    let compiler = std::env::var("CRASHPROOF_CLANG").unwrap_or_else(|_| "clang-19".into());
    let status = Command::new(compiler)
        .args(units.arguments(unit))
        .args(["-g", "-O0", "-fno-lto", "-emit-llvm", "-c", "-o"])
        .args([&bitcode, &source])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .ok()?;
    let context = Context::create();
    let module = context.read_bitcode(&bitcode).ok()?;
    if !status.success() {
        return None;
    }
    let helpers = module.functions().filter_map(|function| {
        let name = function.source_name().unwrap_or(function.name()).to_owned();
        let is_candidate = candidates.iter().any(|(candidate, _)| *candidate == name);
        let (role, has_leading) = is_candidate.then(|| role(&module, function)).flatten()?;
        Some(Helper {
            linkage_name: function.name().to_owned(),
            name,
            role,
            has_leading,
            weight: (0, 0),
        })
    });
    Some(helpers.collect())
}
