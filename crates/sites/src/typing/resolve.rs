//! From a call stack to what its innermost store writes, by the site tables (Squint, section 4.4.2: "following the recorded stack
//! traces backwards to determine the original type").
//!
//! The innermost frame in code that `crashproof cc` built has a site, or, if the store was made by a function of the C library
//! or PMDK, a call of it. If that says "what the argument points to", the call in the next frame outwards tells what
//! it was given, and so on. Inlined functions are frames like others. Squint does the same for casts, which the front end's code makes
//! unnecessary.
//!
//! Code without a site table is looked up in its debug info, which says the same things in the same way ([`crate::dwarf`]), but of machine code:
//! frames are those of calls that were not inlined, and arguments are the registers that they are passed in. Where code of one kind calls
//! code of the other, nothing is followed.

use std::path::Path;
use std::rc::Rc;

use crashproof_library::destination;
use crashproof_stacks::{Stacks, file_name, is_language_runtime, is_pmdk};
use crashproof_trace::{Frame, ModuleId, StackId, Tables};
use rustc_hash::FxHashMap;

use crate::dwarf::{Callee, DebugInfo, FunctionName};
use crate::layout;
use crate::table::ModuleSites;
use crate::table::{Argument, Call, Level, Place, Site, SiteKind, Target, TypeInfo};

/// Further up than helpers go; bounds what a recursion costs.
const MAX_FRAMES: usize = 64;

/// What the stores with one stack write.
pub(super) struct Resolved {
    pub module: Source,
    /// Index of the object that knows the types; each level belongs to it.
    pub levels: Vec<(usize, Level)>,
    /// As [`Place::size`].
    pub size: Option<u64>,
    /// A copy or fill: the store may be a piece of it, and not the first.
    pub is_copy: bool,
}

/// Where types come from.
#[derive(Clone)]
pub(super) enum Source {
    Sites(Rc<Module>),
    DebugInfo(Rc<DebugInfo>),
}

impl Source {
    /// Of an object file, or of a compile unit.
    pub(super) fn types(&self, object: usize) -> &[TypeInfo] {
        match self {
            Source::Sites(module) => module.types(object),
            Source::DebugInfo(module) => module.types(object),
        }
    }

    fn is(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Sites(a), Source::Sites(b)) => Rc::ptr_eq(a, b),
            (Source::DebugInfo(a), Source::DebugInfo(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A module's tables, indexed.
#[derive(Debug)]
pub(super) struct Module {
    pub sites: ModuleSites,
    /// Calls by position: object, call.
    calls: FxHashMap<Position, Vec<(usize, usize)>>,
    /// Sites by innermost position: object, site.
    by_position: FxHashMap<Position, Vec<(usize, usize)>>,
}

/// Function, line, column.
type Position = (String, u32, u32);

impl Module {
    fn new(sites: ModuleSites) -> Module {
        let mut calls: FxHashMap<Position, Vec<(usize, usize)>> = FxHashMap::default();
        let mut by_position: FxHashMap<Position, Vec<(usize, usize)>> = FxHashMap::default();
        for (index, object) in sites.objects().iter().enumerate() {
            for (call, Call { at, .. }) in object.calls.iter().enumerate() {
                let position = (at.function.clone(), at.line, at.column);
                calls.entry(position).or_default().push((index, call));
            }
            for (site, Site { location, .. }) in object.sites.iter().enumerate() {
                if let Some(at) = location.first() {
                    let position = (at.function.clone(), at.line, at.column);
                    by_position.entry(position).or_default().push((index, site));
                }
            }
        }
        Module {
            sites,
            calls,
            by_position,
        }
    }

    pub(super) fn types(&self, object: usize) -> &[TypeInfo] {
        &self.sites.objects()[object].types
    }
}

/// A frame of source code: functions that were inlined have one each.
struct SourceFrame {
    module: Option<Rc<Module>>,
    position: Option<Position>,
    file: Option<String>,
}

#[derive(Default)]
pub(super) struct Resolver {
    stacks: Stacks,
    modules: FxHashMap<ModuleId, Option<Rc<Module>>>,
    /// Modules at other addresses, or in other processes, are read once.
    files: FxHashMap<(String, Vec<u8>), Option<Rc<Module>>>,
    /// Of modules without tables.
    debug_info: FxHashMap<(String, Vec<u8>), Option<Rc<DebugInfo>>>,
    pub warnings: Vec<String>,
}

impl Resolver {
    pub(super) fn resolve(&mut self, stack: StackId, tables: &Tables) -> Option<Resolved> {
        let frames = tables.frames(stack);
        let skipped = frames
            .iter()
            .take_while(|frame| writes_for_its_caller(frame, tables))
            .count();
        let innermost = *frames.get(skipped)?;
        if self.module(innermost.module?, tables).is_none() {
            return self.resolve_by_debug_info(frames, skipped, tables);
        }
        let mut outwards = self.source_frames(innermost, skipped > 0, tables);
        let module = outwards.first()?.module.clone()?;
        let (object, target, is_copy) = match skipped {
            0 => {
                let (object, site) = site(&module, frames[0].address, outwards.first()?)?;
                (object, site.target.clone(), site.kind == SiteKind::Memory)
            }
            _ => {
                let (object, call) = call(&module, outwards.first()?, |callee| {
                    callee.is_some_and(|name| destination(name).is_some())
                })?;
                let index = destination(call.callee.as_deref()?)?;
                (object, argument(call, index)?, true)
            }
        };
        let mut found = Found::new(Source::Sites(module), object, target, is_copy)?;
        // Outwards, as far as the type is the callers' affair.
        let mut next_frame = skipped + 1;
        for _ in 0..MAX_FRAMES {
            let Some(wanted) = found.argument.clone() else { break };
            while outwards.len() < 2 && next_frame < frames.len() {
                outwards.extend(self.source_frames(frames[next_frame], true, tables));
                next_frame += 1;
            }
            if outwards.len() < 2
                || outwards[0]
                    .position
                    .as_ref()
                    .is_none_or(|(function, ..)| *function != wanted.function)
            {
                break;
            }
            outwards.remove(0);
            let Some(module) = outwards[0].module.clone() else {
                break;
            };
            let is_it = |callee: Option<&str>| callee.is_none_or(|name| name == wanted.function);
            let Some((object, call)) = call(&module, &outwards[0], is_it) else {
                break;
            };
            let Some(target) = argument(call, wanted.index) else {
                break;
            };
            if !found.add(&Source::Sites(module.clone()), object, target, &wanted) {
                break;
            }
        }
        found.finish()
    }

    fn resolve_by_debug_info(&mut self, frames: &[Frame], skipped: usize, tables: &Tables) -> Option<Resolved> {
        let module = self.debug_info(frames[skipped].module?, tables)?;
        let address = frames[skipped].address;
        let (unit, target, is_copy, mut function) = match skipped {
            0 => {
                let store = module.store(address)?;
                (store.unit, store.target, store.is_copy, module.function(address)?)
            }
            _ => {
                let Callee::External(name) = module.callee(address)? else {
                    return None;
                };
                let (_, unit, target) = module.argument(address, destination(&name)?)?;
                (unit, target, true, module.function(address.checked_sub(1)?)?)
            }
        };
        let mut found = Found::new(Source::DebugInfo(module), unit, target, is_copy)?;
        for frame in frames[skipped + 1..].iter().take(MAX_FRAMES) {
            let Some(wanted) = found.argument.clone() else { break };
            let passed = self.passed(*frame, &function, wanted.index, tables);
            let Some((caller, unit, target, name)) = passed else {
                break;
            };
            if !found.add(&Source::DebugInfo(caller), unit, target, &wanted) {
                break;
            }
            function = name;
        }
        found.finish()
    }

    /// What the caller gave the function as an argument, and which function that caller is.
    fn passed(
        &mut self,
        caller: Frame,
        function: &FunctionName,
        index: u32,
        tables: &Tables,
    ) -> Option<(Rc<DebugInfo>, usize, Target, FunctionName)> {
        let module = self.debug_info(caller.module?, tables)?;
        let (callee, unit, target) = module.argument(caller.address, index)?;
        let name = module.function(caller.address.checked_sub(1)?)?;
        callee.is(function).then_some((module, unit, target, name))
    }

    /// Whether two stores were made by one call of the C library or of PMDK, or by calls of the same place: it has several instructions that store.
    pub(super) fn is_same_call(&self, one: StackId, other: StackId, tables: &Tables) -> bool {
        let callers = |stack: StackId| {
            let frames = tables.frames(stack);
            let inside = frames.iter().take_while(|frame| writes_for_its_caller(frame, tables));
            let skipped = inside.count();
            (skipped > 0).then(|| &frames[skipped..])
        };
        matches!((callers(one), callers(other)), (Some(one), Some(other)) if !one.is_empty() && one == other)
    }

    /// Of a module that `crashproof cc` did not build.
    fn debug_info(&mut self, id: ModuleId, tables: &Tables) -> Option<Rc<DebugInfo>> {
        if self.module(id, tables).is_some() {
            return None;
        }
        let module = tables.module(id)?;
        let key = (module.path.clone(), module.build_id.clone());
        let read = || {
            let (code, debug) = crashproof_trace::symbols::files(module)?;
            DebugInfo::read(&code, &debug).map(Rc::new)
        };
        self.debug_info.entry(key).or_insert_with(read).clone()
    }

    /// Whether the store was made by code that `crashproof cc` built, or by the C library for it. (PMDK stores on its own account, too.)
    pub(super) fn has_table(&mut self, stack: StackId, tables: &Tables) -> bool {
        let is_c = |frame: &Frame| {
            frame
                .module
                .and_then(|id| tables.module(id))
                .is_some_and(|m| is_language_runtime(file_name(&m.path)))
        };
        let frame = tables.frames(stack).iter().find(|frame| !is_c(frame));
        let module = frame.and_then(|frame| self.module(frame.module?, tables));
        module.is_some()
    }

    /// Whether the innermost instruction is one store made of several of the source.
    pub(super) fn is_merged(&mut self, stack: StackId, tables: &Tables) -> bool {
        let Some(&frame) = tables.frames(stack).first() else {
            return false;
        };
        let innermost = self.source_frames(frame, false, tables);
        let site = innermost.first().and_then(|source| {
            let module = source.module.as_deref()?;
            Some(!site(module, frame.address, source)?.1.merged.is_empty())
        });
        site.unwrap_or(false)
    }

    /// Of one code address, innermost first; at least one.
    fn source_frames(&mut self, frame: Frame, is_return_address: bool, tables: &Tables) -> Vec<SourceFrame> {
        let module = frame.module.and_then(|id| self.module(id, tables));
        if module.is_none() {
            return vec![SourceFrame {
                module,
                position: None,
                file: None,
            }];
        }
        let symbols = self.stacks.symbols(frame, is_return_address, tables);
        symbols
            .iter()
            .map(|symbol| SourceFrame {
                module: module.clone(),
                position: symbol
                    .linkage_name
                    .clone()
                    .zip(symbol.line)
                    .map(|(name, line)| (name, line, symbol.column.unwrap_or(0))),
                file: symbol.file.clone(),
            })
            .collect()
    }

    fn module(&mut self, id: ModuleId, tables: &Tables) -> Option<Rc<Module>> {
        if let Some(known) = self.modules.get(&id) {
            return known.clone();
        }
        // What another tool says of a place in the source is no file to read.
        let module = tables.module(id).filter(|module| module.place.is_none())?;
        let key = (module.path.clone(), module.build_id.clone());
        let read = match self.files.get(&key) {
            Some(known) => known.clone(),
            None => {
                let read = match ModuleSites::read_built(Path::new(&module.path), &module.build_id) {
                    Ok(sites) => sites.map(|sites| Rc::new(Module::new(sites))),
                    Err(error) => {
                        self.warnings.push(error.to_string());
                        None
                    }
                };
                self.files.insert(key, read.clone());
                read
            }
        };
        self.modules.insert(id, read.clone());
        read
    }
}

/// Code of the C library or of PMDK, which stores what it was asked to.
fn writes_for_its_caller(frame: &Frame, tables: &Tables) -> bool {
    let module = frame.module.and_then(|id| tables.module(id));
    module.is_some_and(|module| {
        let name = file_name(&module.path);
        is_language_runtime(name) || is_pmdk(name)
    })
}

/// The site of a store: by its address, if the line table agrees; else (the store was not made by the site's hook) by its position.
fn site<'a>(module: &'a Module, address: u64, frame: &SourceFrame) -> Option<(usize, &'a Site)> {
    let at_address = module.sites.site_at(address);
    let Some(position) = &frame.position else {
        return at_address;
    };
    let is_here = |site: &Site| {
        let innermost = site.location.first();
        innermost.is_some_and(|at| {
            (at.function.as_str(), at.line, at.column) == (position.0.as_str(), position.1, position.2)
        })
    };
    if let Some((object, site)) = at_address
        && (is_here(site) || site.location.is_empty())
    {
        return Some((object, site));
    }
    let candidates = module.by_position.get(position)?;
    let sites = candidates
        .iter()
        .map(|&(object, site)| (object, &module.sites.objects()[object].sites[site]))
        .filter(|(_, site)| !matches!(site.kind, SiteKind::Flush | SiteKind::Fence));
    the_one(sites, |(a, x), (b, y)| a == b && x.target == y.target)
}

/// The call at a position of a function that satisfies `is_it`.
fn call<'a>(
    module: &'a Module,
    frame: &SourceFrame,
    is_it: impl Fn(Option<&str>) -> bool,
) -> Option<(usize, &'a Call)> {
    let position = frame.position.as_ref()?;
    let in_file = |call: &Call| match &frame.file {
        Some(file) => file_name(file) == file_name(&call.at.file),
        None => true,
    };
    let calls = module
        .calls
        .get(position)?
        .iter()
        .map(|&(object, call)| (object, &module.sites.objects()[object].calls[call]))
        .filter(|(_, call)| is_it(call.callee.as_deref()) && in_file(call));
    // Inline functions of headers are in several objects, with types of their own numbering.
    the_one(calls, |(a, x), (b, y)| a != b || x.arguments == y.arguments)
}

/// The first of several that are as good as each other.
fn the_one<T: Copy>(mut candidates: impl Iterator<Item = T>, same: impl Fn(T, T) -> bool) -> Option<T> {
    let first = candidates.next()?;
    candidates.all(|other| same(first, other)).then_some(first)
}

fn argument(call: &Call, index: u32) -> Option<Target> {
    call.arguments
        .iter()
        .find(|(i, _)| *i == index)
        .map(|(_, target)| target.clone())
}

/// What is known so far, going outwards.
struct Found {
    module: Source,
    levels: Vec<(usize, Level)>,
    size: Option<u64>,
    is_copy: bool,
    /// Who knows more.
    argument: Option<Argument>,
}

impl Found {
    fn new(module: Source, object: usize, target: Target, is_copy: bool) -> Option<Found> {
        let mut found = Found {
            module,
            levels: Vec::new(),
            size: None,
            is_copy,
            argument: None,
        };
        match target {
            Target::Unknown | Target::NoStruct => return None,
            Target::Argument(argument) => found.argument = Some(argument),
            Target::Place(Place { levels, size, argument }) => {
                found.levels = levels.into_iter().map(|level| (object, level)).collect();
                (found.size, found.argument) = (size, argument);
            }
        }
        Some(found)
    }

    /// Adds what the caller passed as the argument that was `wanted`. False: nothing more to learn.
    fn add(&mut self, module: &Source, object: usize, passed: Target, wanted: &Argument) -> bool {
        self.argument = None;
        match passed {
            Target::Unknown | Target::NoStruct => return false,
            Target::Argument(outer) => {
                self.argument = Some(Argument {
                    offset: outer
                        .offset
                        .zip(wanted.offset)
                        .map(|(outer, inner)| outer.wrapping_add(inner)),
                    ..outer
                });
            }
            Target::Place(place) => {
                if !self.levels.is_empty() && !module.is(&self.module) {
                    // A struct of the program, a member of it written by a library: the member is told apart already.
                    return false;
                }
                self.module = module.clone();
                let types = module.types(object);
                let moved = moved(
                    types,
                    &place,
                    wanted.offset,
                    self.size.filter(|_| !self.is_copy || !self.levels.is_empty()),
                    // Debug info does not tell that from a cast to what the object is a part of.
                    matches!(module, Source::Sites(_)),
                );
                // Of an element at an index that is not known, all that is further out is known up to the array.
                let array = self.levels.last().and_then(|(_, level)| level.array);
                for level in moved {
                    let level = Level {
                        array: level.array.or(array),
                        ..level
                    };
                    let is_known = self.levels.iter().any(|(known_object, known)| {
                        let known_type = &module.types(*known_object)[known.ty as usize];
                        let ty = &types[level.ty as usize];
                        known_type.name == ty.name && known_type.size == ty.size
                    });
                    if !is_known {
                        self.levels.push((object, level));
                    }
                }
                self.argument = place.argument.map(|outer| Argument {
                    offset: outer
                        .offset
                        .zip(wanted.offset)
                        .map(|(outer, inner)| outer.wrapping_add(inner)),
                    ..outer
                });
            }
        }
        true
    }

    fn finish(self) -> Option<Resolved> {
        (!self.levels.is_empty()).then_some(Resolved {
            module: self.module,
            levels: self.levels,
            size: self.size,
            is_copy: self.is_copy,
        })
    }
}

/// The levels of what lies `offset` bytes behind a place. `has_elements`: what is beyond an object is a later element of its array.
fn moved(types: &[TypeInfo], place: &Place, offset: Option<i64>, size: Option<u64>, has_elements: bool) -> Vec<Level> {
    let Some(offset) = offset else {
        // Somewhere behind it: in the array that it points into, or else anywhere.
        return place
            .levels
            .iter()
            .map(|level| Level {
                array: Some(level.array.unwrap_or_else(|| array_behind(types, level))),
                ..*level
            })
            .collect();
    };
    let within = |level: &Level, offset: i64| {
        let info = &types[level.ty as usize];
        u64::try_from((level.offset as i64).wrapping_add(offset))
            .ok()
            .filter(|&at| at.saturating_add(size.unwrap_or(1)) <= info.size || layout::is_open_ended(info))
    };
    let mut levels: Vec<Level> = Vec::new();
    for level in &place.levels {
        if level.array.is_some() {
            levels.push(*level);
        } else if let Some(at) = within(level, offset) {
            if levels.is_empty() {
                let nested = layout::nest(types, level.ty, at, size);
                levels.extend(nested.into_iter().rev().map(Level::from));
            } else {
                levels.push(Level { offset: at, ..*level });
            }
        }
    }
    if has_elements
        && levels.is_empty()
        && let Some(level) = place.levels.first().filter(|level| level.array.is_none())
        && let whole = types[level.ty as usize].size
        && whole > 0
    {
        let at = (level.offset as i64).wrapping_add(offset).rem_euclid(whole as i64) as u64;
        let nested = layout::nest(types, level.ty, at, size);
        levels.extend(nested.into_iter().rev().map(Level::from));
    }
    levels
}

/// Bytes from the place to the end of the array that it is in; 0 if there is none.
fn array_behind(types: &[TypeInfo], level: &Level) -> u64 {
    let fields = &types[level.ty as usize].fields;
    fields
        .iter()
        .find(|field| {
            field.elements.is_some() && field.offset <= level.offset && level.offset - field.offset < field.size
        })
        .map_or(0, |field| field.size - (level.offset - field.offset))
}
