//! Persistent subprograms (section 4.2.4): a variant beside the original that flushes what it stores, and the calls of it.
//!
//! A variant is the text of the original with its own insertions. What a copy of the text does not share with the original keeps it from being one:
//! variables of static duration, virtual dispatch, its name.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clang::{Entity, EntityKind, EntityVisitResult, StorageClass};

use super::changed::Splice;
use super::changes::{Changes, Declaration};
use super::edits::{After, Edits};
use super::hint::Hint;
use super::patcher::Patcher;
use super::refusal::Refusal;
use super::text::{SourceFile, TokenKind};
use super::tree::{FunctionTree, NodeId, is_function, range_in};
use crate::ir::{self, Code};
use crate::plan::{PersistentFunction, Place, Position};

/// The definition that a variant is made from: its file, and where in it.
pub(super) type VariantKey = (PathBuf, usize);

#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub name: String,
    /// Of the original.
    pub definition: Range<usize>,
    pub original: String,
    pub edits: Edits,
}

impl Patcher<'_, '_, '_> {
    /// Redirects a call to the persistent function, and fences behind it if so said.
    pub(super) fn subprogram(
        &self,
        call: &Place,
        clone: &str,
        fence: bool,
        changes: &mut Changes,
    ) -> Result<(), Refusal> {
        let position = Self::position(call)?;
        let tree = FunctionTree::around(self.units(), position)?;
        let mut edits = Edits::default();
        self.redirect(&tree, call, clone, &mut edits, changes)?;
        if fence {
            let node = tree.call_at(position, &Hint::of(self.module(), call))?;
            let anchor = tree.anchor(node)?;
            let idiom = self.idiom(&tree, &anchor);
            let after = After {
                flushes: Vec::new(),
                fence: true,
            };
            edits.insert_after(&anchor, after, &idiom, &self.value_name(&tree, &anchor));
        }
        changes.edit(&tree.file.path, &edits)
    }

    /// Replaces the name that is called.
    fn redirect(
        &self,
        tree: &FunctionTree,
        call: &Place,
        clone: &str,
        edits: &mut Edits,
        changes: &mut Changes,
    ) -> Result<(), Refusal> {
        let node = tree.call_at(Self::position(call)?, &Hint::of(self.module(), call))?;
        let refuse = |why: String| Err(Refusal::NoRedirection { why });
        let callee = tree.child(node, 0).map(|child| tree.strip(child));
        let Some(callee) = callee.filter(|_| tree.kind(node) == EntityKind::CallExpr) else {
            return refuse("it is not a call in the source".into());
        };
        let called = tree.nodes[node]
            .entity
            .get_reference()
            .filter(|entity| is_function(entity.get_kind()));
        let is_indirect = ir::find(self.module(), call).is_some_and(|instruction| instruction.is_indirect_call());
        let (key, name) = self.variant(clone, changes)?;
        let used_at = tree.range(node).start;
        if is_indirect {
            return self.redirect_pointer(tree, callee, &key, used_at, edits, changes);
        }
        let Some(called) = called else {
            return refuse("libclang does not say what it calls".into());
        };
        let Some(token) = name_token(tree, callee, &called) else {
            let macro_name = tree.macro_around(&tree.range(node)).map(|(_, name)| name.clone());
            return refuse(match macro_name {
                Some(macro_name) => format!("it is in the macro {macro_name}, whose other uses must not change"),
                None => "the name of the function is not in the text".into(),
            });
        };
        self.declare(tree, &called, &key, &name, used_at, changes)?;
        edits.replace(token, name)
    }

    /// `p(x)` calls the variant where `p` is the original: `(p == f ? f_persist : p)(x)`.
    fn redirect_pointer(
        &self,
        tree: &FunctionTree,
        callee: NodeId,
        key: &VariantKey,
        used_at: usize,
        edits: &mut Edits,
        changes: &mut Changes,
    ) -> Result<(), Refusal> {
        let refuse = |why: &str| Err(Refusal::NoRedirection { why: why.into() });
        let node = &tree.nodes[callee];
        let has_effects = tree
            .descendants(callee)
            .any(|inner| matches!(tree.kind(inner), EntityKind::CallExpr) || tree.write(inner).is_some());
        if !node.is_spelled || has_effects {
            return refuse("the pointer that it calls through cannot be named twice");
        }
        let variant = &changes.variants[key];
        let (original, name) = (variant.original.clone(), variant.name.clone());
        let mut declared = None;
        visit_declarations(&tree.unit.root(), &mut |entity| {
            let is_it = entity.get_name().as_deref() == Some(&original) && is_function(entity.get_kind());
            let is_before =
                range_in(&tree.unit, &entity, &tree.file.path).is_none_or(|(range, _)| range.start < used_at);
            if is_it && is_before {
                declared = Some(entity);
            }
        });
        let Some(declared) = declared else {
            return refuse("the function that the pointer may be to is not declared there");
        };
        self.declare(tree, &declared, key, &name, used_at, changes)?;
        edits.redirect(tree.range(callee), original, name);
        Ok(())
    }

    /// Makes the variant, and what it calls, unless they are there; its place and name.
    fn variant(&self, clone: &str, changes: &mut Changes) -> Result<(VariantKey, String), Refusal> {
        let Some(function) = self.plan().clones.iter().find(|function| function.name == clone) else {
            return Err(Refusal::NoVariant {
                name: clone.into(),
                why: "the plan has none".into(),
            });
        };
        let position = some_position(function).ok_or(Refusal::NoPosition)?;
        let tree = FunctionTree::around(self.units(), position)?;
        let key = (tree.file.path.clone(), tree.range(0).start);
        // Instances of a template, and copies of an inline function, are one function in the source.
        if let Some(variant) = changes.variants.get(&key) {
            let name = variant.name.clone();
            if !changes.cloned.insert(clone.into()) {
                return Ok((key, name));
            }
        }
        changes.cloned.insert(clone.into());
        let original = copyable(&tree).map_err(|why| Refusal::NoVariant {
            name: tree.name(0),
            why: why.into(),
        })?;
        let name = match self.made_variants().get(&key) {
            Some(made) => made.name.clone(),
            None => self.free_variant_name(&tree, &original),
        };
        let mut edits = Edits::default();
        let token = definition_name(&tree, &original).ok_or_else(|| Refusal::NoVariant {
            name: original.clone(),
            why: "its name is not in the text of its definition".into(),
        })?;
        let longer = name.len().saturating_sub(original.len());
        realign(&tree.file, token.end, tree.range(0).end, longer, &mut edits)?;
        edits.replace(token, name.clone())?;
        // Before its calls are looked at, so that it may call itself.
        let made = changes.variants.entry(key.clone()).or_insert_with(|| Variant {
            name: name.clone(),
            definition: tree.range(0),
            original,
            edits: Edits::default(),
        });
        made.edits.merge(&edits)?;
        let mut edits = Edits::default();
        for stores in &function.flushes {
            self.flush_in(&tree, stores, false, &mut edits)?;
        }
        for place in &function.fences {
            self.fence_in(&tree, place, &mut edits)?;
        }
        for (call, callee) in &function.calls {
            self.redirect(&tree, call, callee, &mut edits, changes)?;
        }
        if let Some(variant) = changes.variants.get_mut(&key) {
            variant.edits.merge(&edits)?;
        }
        Ok((key, name))
    }

    /// `F_persist`, unless that is taken.
    fn free_variant_name(&self, tree: &FunctionTree, original: &str) -> String {
        let is_taken = |name: &String| {
            tree.file.mentions(0..tree.file.text.len(), name)
                || self.module().functions()
                    .any(|function| function.name() == name || function.source_name() == Some(name))
                // Overloads, and functions of several files, may share a name.
                || self
                    .made_variants()
                    .values()
                    .any(|variant| variant.name == *name && variant.original != original)
        };
        let names = ["persist", "durable", "pm"].map(|suffix| format!("{original}_{suffix}"));
        let numbered = (2..).map(|number| format!("{original}_persist{number}"));
        names
            .into_iter()
            .chain(numbered)
            .find(|name| !is_taken(name))
            .unwrap_or_default()
    }

    /// Declares the variant where the original is declared, if it is used where its definition is not seen.
    fn declare(
        &self,
        tree: &FunctionTree,
        called: &Entity,
        key: &VariantKey,
        name: &str,
        used_at: usize,
        changes: &mut Changes,
    ) -> Result<(), Refusal> {
        let definition = changes.variants[key].definition.clone();
        let is_seen = match key.0 == tree.file.path {
            true => definition.start <= used_at,
            // In a header, it is seen as the original is.
            false => called.get_definition().is_some_and(|definition| {
                let location = definition
                    .get_location()
                    .and_then(|location| location.get_file_location().file);
                location.is_some_and(|file| tree.unit.path(file) == key.0)
            }),
        };
        if is_seen && !self.is_out_of_class(called) {
            return Ok(());
        }
        let declarations = declarations_of(tree, called);
        let mut found = false;
        for (path, range) in declarations {
            let file = match self.units().file(&path) {
                Ok(file) => file,
                Err(_) => continue,
            };
            if path == tree.file.path && range.start > used_at && !self.is_out_of_class(called) {
                continue;
            }
            let Some(line) = renamed_declaration(&file, &range, &changes.variants[key].original, name) else {
                continue;
            };
            let declaration = Declaration {
                start: range.start,
                text: line,
                causes: BTreeSet::new(),
            };
            changes.declarations.insert((path, range.end), declaration);
            found = true;
            break;
        }
        match found {
            true => Ok(()),
            false => Err(Refusal::NoVariant {
                name: changes.variants[key].original.clone(),
                why: "it is used where its variant would have to be declared, and no declaration of it is in the tree"
                    .into(),
            }),
        }
    }

    /// A method that is defined outside of its class has to be declared in it.
    fn is_out_of_class(&self, function: &Entity) -> bool {
        let definition = function.get_definition().unwrap_or(*function);
        let is_class = |entity: Option<Entity>| {
            entity.is_some_and(|entity| {
                matches!(
                    entity.get_kind(),
                    EntityKind::ClassDecl | EntityKind::StructDecl | EntityKind::ClassTemplate | EntityKind::UnionDecl
                )
            })
        };
        is_class(definition.get_semantic_parent()) && !is_class(definition.get_lexical_parent())
    }
}

fn some_position(function: &PersistentFunction) -> Option<&Position> {
    let stores = function.flushes.iter().flatten();
    let places = stores
        .chain(&function.fences)
        .chain(function.calls.iter().map(|(place, _)| place));
    places
        .filter_map(|place| place.position.as_ref())
        .find(|position| position.line > 0)
}

/// The name of a function whose text can be copied; or why it cannot.
fn copyable(tree: &FunctionTree) -> Result<String, &'static str> {
    let definition = tree.nodes[0].entity;
    let name = definition.get_name().unwrap_or_default();
    // Of a template, without its parameters.
    let name = name.split('<').next().unwrap_or_default().to_owned();
    if !tree.nodes[0].is_spelled {
        return Err("a macro defines it");
    }
    match definition.get_kind() {
        EntityKind::Constructor | EntityKind::Destructor | EntityKind::ConversionFunction => {
            return Err("constructors, destructors and conversions have no other name to be called by");
        }
        _ if name.starts_with("operator") => return Err("operators have no other name to be called by"),
        EntityKind::Method if definition.is_virtual_method() => return Err("it is virtual"),
        _ if name == "main" => return Err("it is main"),
        _ => {}
    }
    let has_static = (1..tree.nodes.len()).any(|node| {
        tree.kind(node) == EntityKind::VarDecl
            && tree.nodes[node].entity.get_storage_class() == Some(StorageClass::Static)
    });
    if has_static {
        return Err("it has static variables, which a copy would not share");
    }
    let range = tree.range(0);
    let tokens = tree.file.tokens(range);
    let mut depth = 0;
    for token in &tokens {
        let text = tree.file.token_text(*token);
        match token.kind {
            TokenKind::Directive => {
                let word = text[1..].trim_start();
                depth += i32::from(word.starts_with("if"));
                depth -= i32::from(word.starts_with("endif"));
                if depth < 0 || (depth == 0 && word.starts_with("el")) {
                    return Err("preprocessor conditions cut through it");
                }
                if word.starts_with("define") || word.starts_with("undef") {
                    return Err("it defines macros");
                }
            }
            _ if ["__func__", "__FUNCTION__", "__PRETTY_FUNCTION__"].contains(&text) => {
                return Err("it uses its own name");
            }
            _ => {}
        }
    }
    match depth {
        0 => Ok(name),
        _ => Err("preprocessor conditions cut through it"),
    }
}

/// The token of the name in the definition.
fn definition_name(tree: &FunctionTree, name: &str) -> Option<Range<usize>> {
    let location = tree.nodes[0].entity.get_location()?.get_spelling_location();
    let start = location.offset as usize;
    let range = start..start + name.len();
    (tree.range(0).contains(&start) && tree.file.text.get(range.clone()) == Some(name)).then_some(range)
}

/// The token of the name in a call.
fn name_token(tree: &FunctionTree, callee: NodeId, called: &Entity) -> Option<Range<usize>> {
    let name = called.get_name()?;
    let name = name.split('<').next()?;
    let location = tree.nodes[callee].entity.get_location()?;
    let (spelled, at) = (location.get_spelling_location(), location.get_file_location());
    let start = at.offset as usize;
    let range = start..start + name.len();
    let is_whole = tree.file.text.get(range.clone()) == Some(name)
        && !tree.file.text[range.end..].starts_with(super::text::is_word_character);
    (spelled.offset == at.offset && spelled.file == at.file && is_whole).then_some(range)
}

/// Declarations of a function, as the unit sees them, that are no definitions; those in headers first.
fn declarations_of(tree: &FunctionTree, function: &Entity) -> Vec<(PathBuf, Range<usize>)> {
    let usr = function.get_usr();
    let mut found: Vec<(PathBuf, Range<usize>)> = Vec::new();
    visit_declarations(&tree.unit.root(), &mut |entity| {
        if !is_function(entity.get_kind()) || entity.is_definition() || entity.get_usr() != usr {
            return;
        }
        let file = entity
            .get_location()
            .and_then(|location| location.get_file_location().file);
        let path = file.map(|file| tree.unit.path(file));
        if let Some(path) = path
            && let Some((range, true)) = range_in(&tree.unit, &entity, &path)
        {
            found.push((path, range));
        }
    });
    found.sort_by_key(|(path, _)| *path == tree.file.path);
    found
}

/// All declarations in namespaces and classes.
pub(super) fn visit_declarations<'a>(root: &Entity<'a>, visit: &mut dyn FnMut(Entity<'a>)) {
    root.visit_children(|entity, _| {
        visit(entity);
        match entity.get_kind() {
            EntityKind::Namespace
            | EntityKind::LinkageSpec
            | EntityKind::UnexposedDecl
            | EntityKind::ClassDecl
            | EntityKind::StructDecl
            | EntityKind::ClassTemplate => EntityVisitResult::Recurse,
            _ => EntityVisitResult::Continue,
        }
    });
}

/// The declaration of the variant, for the line after that of the original.
fn renamed_declaration(file: &SourceFile, range: &Range<usize>, original: &str, name: &str) -> Option<String> {
    let token = file
        .tokens(range.clone())
        .into_iter()
        .find(|token| file.token_text(*token) == original)?;
    let mut edits = Edits::default();
    edits.replace(token.start..token.end, name.into()).ok()?;
    realign(
        file,
        token.end,
        range.end,
        name.len().saturating_sub(original.len()),
        &mut edits,
    )
    .ok()?;
    Some(format!("{};", edits.apply(file, range.clone())))
}

/// Moves the lines of a parameter list that is aligned with its parenthesis, behind a name that is longer by so much.
fn realign(file: &SourceFile, name_end: usize, end: usize, by: usize, edits: &mut Edits) -> Result<(), Refusal> {
    let open = file.next_token(name_end).filter(|token| file.token_text(*token) == "(");
    let Some(open) = open.filter(|open| open.end <= end) else {
        return Ok(());
    };
    let column = open.end - file.line_start(open.end);
    let mut depth = 1;
    let mut line = file.line(open.end);
    for token in file.tokens(open.end..end) {
        if file.line(token.start) != line {
            line = file.line(token.start);
            let indentation = file.indentation(token.start);
            if indentation.len() == column && !indentation.contains('\t') {
                edits.replace(token.start..token.start, " ".repeat(by))?;
            }
        }
        match file.token_text(token) {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    Ok(())
}

/// The text that goes behind the original's definition.
pub(super) fn rendered(file: &SourceFile, variant: &Variant) -> Splice {
    let range = variant.definition.clone();
    let newline = file.newline();
    let indentation = file.indentation(range.start);
    let end = match file.text[range.end..file.line_end(range.end)].trim() {
        "" | ";" => file.line_end(range.end),
        _ => range.end,
    };
    let comment = match uses_line_comments(file) {
        true => format!("// As {}, and flushes what it stores.", variant.original),
        false => format!("/* As {}, and flushes what it stores. */", variant.original),
    };
    let text = variant.edits.apply(file, range);
    Splice {
        range: end..end,
        text: format!("{newline}{newline}{indentation}{comment}{newline}{indentation}{text}"),
        causes: variant.edits.causes(),
    }
}

fn uses_line_comments(file: &SourceFile) -> bool {
    let starts = |mark: &str| {
        file.text
            .lines()
            .filter(|line| line.trim_start().starts_with(mark))
            .count()
    };
    starts("//") > starts("/*")
        || Path::new(&file.path)
            .extension()
            .is_some_and(|extension| extension != "c" && extension != "h")
}
