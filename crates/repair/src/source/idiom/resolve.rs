//! Which of the program's functions can be called at a place, and how.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clang::{Entity, EntityKind, Type, TypeKind};
use crashproof_llvm::Module;

use super::helpers::{self, Helper, Role};
use super::macros::{self, PersistenceMacro};
use super::unused;
use super::{AddressType, Fence, Idiom, Include, RangeFunction};
use crate::ir::Code;
use crate::observed::Observed;
use crate::source::anchor::{Anchor, Context};
use crate::source::tree::{FunctionTree, NodeId, is_function, range_in};
use crate::source::units::Units;
use crate::source::variants::visit_declarations;

/// The ways of a program.
pub(crate) struct Idioms<'a, 'u> {
    units: &'a Units<'u>,
    helpers: Vec<Helper>,
    has_libpmem: bool,
    has_libpmemobj: bool,
    /// By the index of the unit.
    macros: RefCell<BTreeMap<usize, Vec<PersistenceMacro>>>,
    /// Helpers that only the source has, by the index of the unit.
    unused: RefCell<BTreeMap<usize, Vec<Helper>>>,
    /// Names of the functions that the bitcode has.
    functions: BTreeSet<String>,
    /// Headers of the tree that declare helpers, by name.
    headers: RefCell<BTreeMap<String, Option<PathBuf>>>,
    /// What was found in a function, by its file, its offset and whether expressions were asked for.
    found: RefCell<BTreeMap<(PathBuf, usize, bool), Idiom>>,
}

impl<'a, 'u> Idioms<'a, 'u> {
    pub(crate) fn new(module: &Module, observed: &Observed, units: &'a Units<'u>) -> Idioms<'a, 'u> {
        let calls = |prefix: &str| {
            module
                .functions()
                .any(|function| !function.has_body() && function.name().starts_with(prefix))
        };
        Idioms {
            units,
            helpers: helpers::helpers(module, observed),
            has_libpmem: calls("pmem_"),
            has_libpmemobj: calls("pmemobj_"),
            macros: RefCell::default(),
            unused: RefCell::default(),
            functions: module
                .functions()
                .filter(|function| function.has_body())
                .map(|function| function.source_name().unwrap_or(function.name()).to_owned())
                .collect(),
            headers: RefCell::default(),
            found: RefCell::default(),
        }
    }

    /// What to call behind a statement.
    pub(crate) fn at(&self, tree: &FunctionTree, anchor: &Anchor) -> Idiom {
        // A macro may be a statement.
        let needs_expression = matches!(anchor.context, Context::Comma | Context::LoopCondition { .. });
        // What takes a variable, such as a pool, depends on the variables at the place.
        if self.has_libpmemobj || self.helpers.iter().any(|helper| helper.has_leading) {
            return self.look(tree, anchor, needs_expression);
        }
        let key = (tree.file.path.clone(), tree.range(0).start, needs_expression);
        if let Some(idiom) = self.found.borrow().get(&key) {
            return idiom.clone();
        }
        let idiom = self.look(tree, anchor, needs_expression);
        self.found.borrow_mut().insert(key, idiom.clone());
        idiom
    }

    fn look(&self, tree: &FunctionTree, anchor: &Anchor, needs_expression: bool) -> Idiom {
        let place = Place {
            tree,
            anchor,
            idioms: self,
        };
        // What the program uses; else the libraries that it uses; else what it has and does not use, which is better than what we would add.
        let library = place.library();
        let is_used = library != Idiom::header();
        let range = |role| {
            place
                .helper(role)
                .or_else(|| place.macro_call(role).filter(|_| !needs_expression))
        };
        let (mut flush, mut persist) = (range(Role::Flush), range(Role::Persist));
        let (mut flush_line, mut persist_line) = (None, None);
        let mut fence = place.fence(needs_expression);
        if flush.is_none() && persist.is_none() {
            flush_line = range(Role::FlushLine).or_else(|| place.intrinsic());
            persist_line = range(Role::PersistLine);
            if flush_line.is_none() && persist_line.is_none() && !is_used {
                flush = place.unused_helper(Role::Flush);
                persist = place.unused_helper(Role::Persist);
                fence = fence.or_else(|| place.unused_fence());
            }
        }
        if flush.is_some() || persist.is_some() {
            return Idiom {
                // With nothing else, a fence too many.
                flush: flush.or(persist.clone()).unwrap_or_default(),
                persist,
                flush_line: None,
                persist_line: None,
                fence: fence.unwrap_or(library.fence),
            };
        }
        Idiom {
            flush_line,
            persist_line,
            fence: fence.unwrap_or(library.fence),
            flush: library.flush,
            persist: library.persist,
        }
    }
}

struct Place<'p, 'a, 'u, 't> {
    tree: &'p FunctionTree<'t>,
    anchor: &'p Anchor,
    idioms: &'p Idioms<'a, 'u>,
}

impl<'t> Place<'_, '_, '_, 't> {
    fn offset(&self) -> usize {
        self.anchor.statement.start
    }

    /// Of libraries, or ours.
    fn library(&self) -> Idiom {
        if self.idioms.has_libpmem {
            return Idiom::libpmem();
        }
        if self.idioms.has_libpmemobj
            && let Some(pool) = self.variable(&|ty| is_pointer_to(ty, "pmemobjpool"), &|_| false)
        {
            return Idiom::libpmemobj(&pool);
        }
        Idiom::header()
    }

    fn helper(&self, role: Role) -> Option<RangeFunction> {
        let own_name = self.tree.name(0);
        self.idioms
            .helpers
            .iter()
            .filter(|helper| helper.role == role && helper.is_used() && !self.is_part_of(helper, &own_name))
            .find_map(|helper| self.function(helper))
    }

    /// One that nobody calls, if there is just one of its kind: of several, nothing says which the program means.
    fn unused_helper(&self, role: Role) -> Option<RangeFunction> {
        let own_name = self.tree.name(0);
        let unit = self.tree.unit;
        let mut unused = self.idioms.unused.borrow_mut();
        let of_source = unused
            .entry(unit.index)
            .or_insert_with(|| unused::unused(self.idioms.units, &unit, |name| self.idioms.functions.contains(name)));
        let of_bitcode = self.idioms.helpers.iter().filter(|helper| !helper.is_used());
        let mut callable = of_bitcode
            .chain(of_source.iter())
            .filter(|helper| helper.role == role && !self.is_part_of(helper, &own_name))
            .filter_map(|helper| self.function(helper));
        let only = callable.next()?;
        callable.next().is_none().then_some(only)
    }

    /// A helper does not call itself, nor does what it is made of.
    fn is_part_of(&self, helper: &Helper, own_name: &str) -> bool {
        helper.name == own_name || self.idioms.helpers.iter().any(|other| other.name == own_name)
    }

    fn function(&self, helper: &Helper) -> Option<RangeFunction> {
        let (declared, include) = match self.declared(&helper.name) {
            Some(declared) => (Some(declared), None),
            None => (None, Some(Include::Tree(self.header(&helper.name)?))),
        };
        let mut leading = Vec::new();
        let mut address = AddressType::Any;
        if helper.role == Role::Fence {
            // Nothing to pass.
        } else if let Some(declared) = declared {
            let types: Vec<Type> = declared.get_type()?.get_argument_types()?;
            let position = usize::from(helper.has_leading);
            address = address_type(types.get(position)?);
            if helper.has_leading {
                let wanted = types.first()?.get_canonical_type();
                let pointee = wanted.get_pointee_type()?.get_canonical_type().get_display_name();
                let pointee = pointee.trim_start_matches("const ").to_owned();
                let is_pointer = |ty: &Type| {
                    let inner = ty.get_canonical_type().get_pointee_type();
                    inner.is_some_and(|inner| {
                        inner
                            .get_canonical_type()
                            .get_display_name()
                            .trim_start_matches("const ")
                            == pointee
                    })
                };
                let is_object = |ty: &Type| ty.get_canonical_type().get_display_name() == pointee;
                leading.push(self.variable(&is_pointer, &is_object)?);
            }
        } else if helper.has_leading {
            return None;
        } else if let Some(declared) = self.declared_anywhere(&helper.name) {
            address = declared;
        }
        let name = match declared {
            Some(declared) => qualified(&declared),
            None => helper.name.clone(),
        };
        Some(RangeFunction {
            name,
            leading,
            address,
            is_of_line: matches!(helper.role, Role::FlushLine | Role::PersistLine),
            include,
        })
    }

    /// A function that is declared before the place.
    fn declared(&self, name: &str) -> Option<Entity<'t>> {
        let mut found = None;
        visit_declarations(&self.tree.unit.root(), &mut |entity| {
            if found.is_none() && is_function(entity.get_kind()) && entity.get_name().as_deref() == Some(name) {
                let range = range_in(&self.tree.unit, &entity, &self.tree.file.path);
                let is_free = entity.get_kind() == EntityKind::FunctionDecl;
                if is_free
                    && range.is_none_or(|(range, _)| range.start < self.offset())
                    && self.is_included_before(&entity)
                {
                    found = Some(entity);
                }
            }
        });
        found
    }

    /// In a header, the headers that its users include before it are not its own.
    fn is_included_before(&self, entity: &Entity) -> bool {
        let main = self.tree.unit.main_file();
        if self.tree.file.path == main {
            return true;
        }
        let file = entity
            .get_location()
            .and_then(|location| location.get_file_location().file);
        let Some(path) = file.map(|file| self.tree.unit.path(file)) else {
            return false;
        };
        path == self.tree.file.path || self.tree.unit.is_included_by(&path, &self.tree.file.path)
    }

    fn header(&self, name: &str) -> Option<PathBuf> {
        let mut headers = self.idioms.headers.borrow_mut();
        let find = || {
            self.idioms.units.all().find_map(|unit| {
                let mut found = None;
                visit_declarations(&unit.root(), &mut |entity| {
                    let is_it =
                        entity.get_kind() == EntityKind::FunctionDecl && entity.get_name().as_deref() == Some(name);
                    let file = entity
                        .get_location()
                        .and_then(|location| location.get_file_location().file);
                    if let Some(path) = file.filter(|_| is_it).map(|file| unit.path(file))
                        && path != unit.main_file()
                        && path.starts_with(self.idioms.units.tree())
                    {
                        found = Some(path);
                    }
                });
                found
            })
        };
        headers.entry(name.to_owned()).or_insert_with(find).clone()
    }

    fn declared_anywhere(&self, name: &str) -> Option<AddressType> {
        self.idioms.units.all().find_map(|unit| {
            let mut found = None;
            visit_declarations(&unit.root(), &mut |entity| {
                if entity.get_kind() == EntityKind::FunctionDecl && entity.get_name().as_deref() == Some(name) {
                    let types = entity.get_type().and_then(|ty| ty.get_argument_types());
                    found = types.and_then(|types| types.first().map(address_type));
                }
            });
            found
        })
    }

    fn macro_call(&self, role: Role) -> Option<RangeFunction> {
        let name = self.macro_name(role)?;
        Some(RangeFunction {
            name,
            is_of_line: matches!(role, Role::FlushLine | Role::PersistLine),
            ..RangeFunction::default()
        })
    }

    /// A macro that is defined before the place, in the same file or one that it includes.
    fn macro_name(&self, role: Role) -> Option<String> {
        let unit = self.tree.unit;
        let mut macros = self.idioms.macros.borrow_mut();
        let macros = macros
            .entry(unit.index)
            .or_insert_with(|| macros::macros(&unit, self.idioms.units.tree(), &self.idioms.helpers));
        let is_visible = |name: &str| {
            unit.root().get_children().iter().any(|entity| {
                entity.get_kind() == EntityKind::MacroDefinition
                    && entity.get_name().as_deref() == Some(name)
                    && range_in(&unit, entity, &self.tree.file.path)
                        .is_none_or(|(range, _)| range.start < self.offset())
                    && self.is_included_before(entity)
            })
        };
        macros
            .iter()
            .find(|found| found.role == role && is_visible(&found.name))
            .map(|found| found.name.clone())
    }

    fn fence(&self, needs_expression: bool) -> Option<Fence> {
        if let Some(function) = self.helper(Role::Fence) {
            return Some(Fence {
                call: format!("{}()", function.name),
                include: function.include,
            });
        }
        let plain = |call: String| Fence { call, include: None };
        if let Some(name) = self.macro_name(Role::Fence).filter(|_| !needs_expression) {
            return Some(plain(format!("{name}()")));
        }
        // The raw intrinsic, where the file has it already.
        let text = &self.tree.file;
        let is_used = text.mentions(0..text.text.len(), "_mm_sfence");
        is_used.then(|| plain("_mm_sfence()".into()))
    }

    /// A function that nobody calls.
    fn unused_fence(&self) -> Option<Fence> {
        self.unused_helper(Role::Fence).map(|function| Fence {
            call: format!("{}()", function.name),
            include: function.include,
        })
    }

    /// A raw flush intrinsic that the file has already.
    fn intrinsic(&self) -> Option<RangeFunction> {
        let file = &self.tree.file;
        let name = ["_mm_clwb", "_mm_clflushopt", "_mm_clflush"]
            .into_iter()
            .find(|name| file.mentions(0..file.text.len(), name))?;
        Some(RangeFunction {
            name: name.into(),
            address: AddressType::Void("void *".into()),
            is_of_line: true,
            ..RangeFunction::default()
        })
    }

    /// The only variable in scope that is a pointer of the kind, or `&` of the only object.
    fn variable(&self, is_pointer: &dyn Fn(&Type) -> bool, is_object: &dyn Fn(&Type) -> bool) -> Option<String> {
        let mut names: Vec<String> = Vec::new();
        let mut add = |entity: &Entity| {
            let (Some(name), Some(ty)) = (entity.get_name(), entity.get_type()) else {
                return;
            };
            if is_pointer(&ty) {
                names.push(name);
            } else if is_object(&ty) {
                names.push(format!("&{name}"));
            }
        };
        for node in 0..self.tree.nodes.len() {
            if self.is_in_scope(node) {
                add(&self.tree.nodes[node].entity);
            }
        }
        for entity in self.tree.unit.root().get_children() {
            let is_before = range_in(&self.tree.unit, &entity, &self.tree.file.path)
                .is_none_or(|(range, _)| range.start < self.offset());
            if entity.get_kind() == EntityKind::VarDecl && is_before {
                add(&entity);
            }
        }
        names.sort();
        names.dedup();
        match &names[..] {
            [name] => Some(name.clone()),
            _ => None,
        }
    }

    /// Of a parameter, or a variable of a block around the place.
    fn is_in_scope(&self, node: NodeId) -> bool {
        let tree = self.tree;
        match tree.kind(node) {
            EntityKind::ParmDecl => tree.nodes[node].parent == Some(0),
            EntityKind::VarDecl => {
                let block = tree
                    .ancestors(node)
                    .find(|outer| tree.kind(*outer) == EntityKind::CompoundStmt);
                tree.range(node).end <= self.offset()
                    && block.is_some_and(|block| tree.ancestors(self.anchor.node).any(|outer| outer == block))
            }
            _ => false,
        }
    }
}

/// How the function takes addresses.
fn address_type(ty: &Type) -> AddressType {
    let canonical = ty.get_canonical_type();
    let name = ty.get_display_name();
    match canonical.get_pointee_type() {
        Some(pointee) if pointee.is_const_qualified() && pointee.is_volatile_qualified() => AddressType::Any,
        Some(pointee) => match pointee.get_kind() {
            TypeKind::Void => AddressType::Void(name),
            TypeKind::CharS | TypeKind::CharU | TypeKind::SChar | TypeKind::UChar => AddressType::Characters(name),
            _ => AddressType::Cast(name),
        },
        None => AddressType::Cast(name),
    }
}

fn is_pointer_to(ty: &Type, record: &str) -> bool {
    let pointee = ty.get_canonical_type().get_pointee_type();
    let name = pointee.map(|pointee| pointee.get_canonical_type().get_display_name());
    name.is_some_and(|name| name.trim_start_matches("struct ") == record)
}

/// With the namespaces around it.
pub(super) fn qualified(function: &Entity) -> String {
    let mut name = function.get_name().unwrap_or_default();
    let mut scope = function.get_semantic_parent();
    while let Some(outer) = scope.filter(|outer| outer.get_kind() == EntityKind::Namespace) {
        if let Some(outer_name) = outer.get_name() {
            name = format!("{outer_name}::{name}");
        }
        scope = outer.get_semantic_parent();
    }
    name
}
