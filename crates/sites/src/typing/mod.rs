//! What every store of a trace writes: type, instance and field (Squint, sections 4.4.2 and 4.5).
//!
//! The site tables say, for a stack, which type the store is to and how far into an object of it ([`resolve`], once per stack). The
//! address of the store then gives the instance. Where that distance is not a constant, the instance comes from other stores:
//!
//! - A copy or fill of memory is recorded in pieces, not always in ascending order (the C library stores head and tail first). All
//!   that one thread stores in one call without anything else in between is taken as one; it begins at its lowest address.
//!   Where it is longer than the type, it is an array of it if the type around it says so, or if other stores show the next element to
//!   be there; else the object is the header of something larger, and what lies behind it is not known.
//! - An element of an array at a variable index belongs to the object of that type around it that another store, whose distance
//!   is constant, has shown to be there ([`Typing::all`] looks at all stores first). If there is none, the innermost object is guessed:
//!   the element is taken as the first of its array, so that each element seems to be an object of its own. What is around it is not known.
//! - A store through a pointer that nothing tells the type of (a log that is replayed) is to the objects that other stores have shown
//!   to be there.

mod copies;
mod resolve;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crashproof_trace::{FileId, PmAddress, StackId, Tables, ThreadId};
use rustc_hash::FxHashMap;

use crate::layout;
use crate::table::{TypeIndex, TypeInfo};
use copies::WholeCopy;
use resolve::{Resolved, Resolver, Source};

/// A struct, class or union of the program; the same one in all its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// A field of a type, or some of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldId(pub u32);

/// A store writes this field of the object of that type which begins there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Typed {
    pub ty: TypeId,
    pub instance: PmAddress,
    pub field: FieldId,
    /// Where the object begins is not known: the field is an element of an array, at an index that is not known, and taken as the first.
    pub is_guessed: bool,
}

/// A store, as [`Typing::all`] needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    pub thread: ThreadId,
    pub stack: StackId,
    pub at: PmAddress,
    pub len: usize,
}

/// What each of a sequence of stores writes.
#[derive(Clone, Debug, Default)]
pub struct Types {
    typed: Vec<Typed>,
    ends: Vec<usize>,
}

impl Types {
    /// Innermost first; empty if the code has no site table or the type is not known.
    pub fn of(&self, store: usize) -> &[Typed] {
        let start = store.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.typed[start..self.ends[store]]
    }
}

#[derive(Default)]
pub struct Typing {
    resolver: Resolver,
    stacks: Vec<Option<Known>>,
    types: Vec<(String, u64)>,
    type_ids: FxHashMap<(String, u64), TypeId>,
    fields: Vec<(TypeId, String)>,
    field_ids: FxHashMap<(TypeId, String), FieldId>,
    /// A table that has the type, for its fields.
    layouts: FxHashMap<TypeId, Layout>,
    /// Where objects of a type are known to begin.
    instances: FxHashMap<(TypeId, FileId), BTreeSet<u64>>,
}

/// What a stack says.
#[derive(Clone)]
enum Known {
    Typed(Rc<Stack>),
    /// The code has a table, but neither it nor a caller tells the type.
    Untyped,
    /// Code without a table.
    Elsewhere,
}

/// What the stores with one stack write.
struct Stack {
    resolved: Resolved,
    types: Vec<TypeId>,
    parts: RefCell<Parts>,
}

/// By level, distance and length.
type Parts = FxHashMap<(usize, u64, usize), Rc<[Part]>>;

/// The field that some bytes of an object are, or of a member of it.
struct Part {
    ty: TypeId,
    /// Where the bytes are in that member.
    offset: u64,
    field: FieldId,
}

impl Typing {
    pub fn new() -> Typing {
        Typing::default()
    }

    /// What one store writes, as far as it and the stores before it tell. Innermost first; empty if the code has no site
    /// table or the type is not known.
    pub fn of(&mut self, tables: &Tables, stack: StackId, at: PmAddress, len: usize) -> Vec<Typed> {
        let Some(stack) = self.stack(stack, tables) else {
            return Vec::new();
        };
        let mut typed = Vec::with_capacity(stack.types.len());
        if stack.is_piece(len) {
            self.type_piece(&stack, at, len, None, &mut typed);
        } else {
            self.learn(&stack, at);
            self.type_whole(&stack, at, len, &mut typed);
        }
        typed
    }

    /// What all stores of a trace write, given in order.
    pub fn all(&mut self, tables: &Tables, stores: &[Store]) -> Types {
        // Copies, and what else one thread stores with one stack in pieces.
        let mut runs: Vec<Vec<usize>> = Vec::new();
        let mut open: FxHashMap<ThreadId, (StackId, Vec<usize>)> = FxHashMap::default();
        for (index, store) in stores.iter().enumerate() {
            let run = open.get_mut(&store.thread);
            if let Some((stack, pieces)) = run {
                if *stack == store.stack || self.resolver.is_same_call(*stack, store.stack, tables) {
                    pieces.push(index);
                    continue;
                }
                runs.push(std::mem::take(pieces));
                open.remove(&store.thread);
            }
            let Some(stack) = self.stack(store.stack, tables) else {
                continue;
            };
            if stack.is_piece(store.len) {
                open.insert(store.thread, (store.stack, vec![index]));
            } else {
                self.learn(&stack, store.at);
            }
        }
        runs.extend(open.into_values().map(|(_, pieces)| pieces));
        runs.sort_unstable();
        // Where the copy begins that each store is a piece of: told last, because other stores say more surely where objects are.
        let mut bases: FxHashMap<usize, Rc<WholeCopy>> = FxHashMap::default();
        for pieces in &runs {
            self.close(pieces, stores, tables, &mut bases);
        }
        let mut types = Types::default();
        for (index, store) in stores.iter().enumerate() {
            match self.known(store.stack, tables) {
                Known::Typed(stack) if stack.is_piece(store.len) => {
                    let copy = bases.get(&index).cloned();
                    self.type_piece(&stack, store.at, store.len, copy.as_deref(), &mut types.typed);
                }
                Known::Typed(stack) => self.type_whole(&stack, store.at, store.len, &mut types.typed),
                Known::Untyped => self.type_by_address(store.at, store.len, &mut types.typed),
                Known::Elsewhere => {}
            }
            types.ends.push(types.typed.len());
        }
        types
    }

    /// Whether the store is one that the compiler made of several source lines, so that its position is only one of them.
    pub fn is_merged(&mut self, tables: &Tables, stack: StackId) -> bool {
        self.resolver.is_merged(stack, tables)
    }

    pub fn type_name(&self, ty: TypeId) -> &str {
        self.types.get(ty.0 as usize).map_or("?", |(name, _)| name)
    }

    pub fn type_size(&self, ty: TypeId) -> u64 {
        self.types.get(ty.0 as usize).map_or(0, |(_, size)| *size)
    }

    /// `next`, `entries[].key`, `bytes 8..16`.
    pub fn field_name(&self, field: FieldId) -> &str {
        self.fields.get(field.0 as usize).map_or("?", |(_, name)| name)
    }

    /// Modules whose tables could not be read, and why.
    pub fn warnings(&self) -> &[String] {
        &self.resolver.warnings
    }

    fn stack(&mut self, id: StackId, tables: &Tables) -> Option<Rc<Stack>> {
        match self.known(id, tables) {
            Known::Typed(stack) => Some(stack),
            _ => None,
        }
    }

    fn known(&mut self, id: StackId, tables: &Tables) -> Known {
        if let Some(Some(known)) = self.stacks.get(id.index()) {
            return known.clone();
        }
        let known = match self.resolver.resolve(id, tables) {
            Some(resolved) => {
                let types = resolved.levels.iter().map(|&(object, level)| {
                    let info = &resolved.module.types(object)[level.ty as usize];
                    let ty = self.type_id(&info.name, info.size);
                    self.layouts.entry(ty).or_insert_with(|| Layout {
                        module: resolved.module.clone(),
                        object,
                        ty: level.ty,
                    });
                    ty
                });
                Known::Typed(Rc::new(Stack {
                    types: types.collect(),
                    resolved,
                    parts: RefCell::default(),
                }))
            }
            None if self.resolver.has_table(id, tables) => Known::Untyped,
            None => Known::Elsewhere,
        };
        if self.stacks.len() <= id.index() {
            self.stacks.resize(id.index() + 1, None);
        }
        self.stacks[id.index()] = Some(known.clone());
        known
    }

    fn type_id(&mut self, name: &str, size: u64) -> TypeId {
        let types = &mut self.types;
        *self.type_ids.entry((name.to_owned(), size)).or_insert_with(|| {
            types.push((name.to_owned(), size));
            TypeId(types.len() as u32 - 1)
        })
    }

    /// What the bytes of a level's object are: of the innermost level, also of the members that hold them, innermost first.
    fn parts(&mut self, stack: &Stack, level: usize, offset: u64, len: usize) -> Rc<[Part]> {
        if let Some(known) = stack.parts.borrow().get(&(level, offset, len)) {
            return known.clone();
        }
        let (object, place) = stack.resolved.levels[level];
        let types = stack.resolved.module.types(object);
        let mut nested = layout::nest(types, place.ty, offset, Some(len as u64));
        if level > 0 || place.array.is_some() {
            nested.truncate(1);
        }
        let parts: Rc<[Part]> = nested
            .iter()
            .rev()
            .map(|inside| {
                let info = &types[inside.ty as usize];
                let ty = self.type_id(&info.name, info.size);
                let field = self.field_id(ty, layout::field_name(types, inside.ty, inside.offset, len as u64));
                Part {
                    ty,
                    offset: inside.offset,
                    field,
                }
            })
            .collect();
        stack.parts.borrow_mut().insert((level, offset, len), parts.clone());
        parts
    }

    fn field_id(&mut self, ty: TypeId, name: String) -> FieldId {
        let fields = &mut self.fields;
        *self.field_ids.entry((ty, name)).or_insert_with_key(|(ty, name)| {
            fields.push((*ty, name.clone()));
            FieldId(fields.len() as u32 - 1)
        })
    }

    /// A store whose distance from the object's start is constant shows where an object is.
    fn learn(&mut self, stack: &Stack, at: PmAddress) {
        for ((_, level), &ty) in stack.resolved.levels.iter().zip(&stack.types) {
            if level.array.is_none()
                && let Some(start) = at.offset.checked_sub(level.offset)
            {
                self.instances.entry((ty, at.file)).or_default().insert(start);
            }
        }
    }

    fn type_whole(&mut self, stack: &Stack, at: PmAddress, len: usize, typed: &mut Vec<Typed>) {
        for (index, &(_, level)) in stack.resolved.levels.iter().enumerate() {
            match level.array {
                None => {
                    let start = at.offset.checked_sub(level.offset);
                    self.push(stack, index, at, len, start, typed);
                }
                Some(array) => self.push_owner(stack, index, array, at, len, typed),
            }
        }
    }

    /// A piece of a copy; `None` if the copy as a whole is not known.
    fn type_piece(
        &mut self,
        stack: &Stack,
        at: PmAddress,
        len: usize,
        copy: Option<&WholeCopy>,
        typed: &mut Vec<Typed>,
    ) {
        for (index, &(_, level)) in stack.resolved.levels.iter().enumerate() {
            let size = self.type_size(stack.types[index]);
            let start = match (level.array, copy) {
                (Some(array), _) => {
                    self.push_owner(stack, index, array, at, len, typed);
                    continue;
                }
                (None, Some(copy)) => {
                    let skipped = at.offset - copy.base.offset;
                    let first = copy.base.offset.checked_sub(level.offset);
                    match copy.is_array[index] {
                        true => first.map(|start| start + skipped / size * size),
                        // What lies behind the object is of something larger.
                        false => {
                            first.filter(|start| at.offset - start < size || self.is_open_ended(stack.types[index]))
                        }
                    }
                }
                (None, None) => self
                    .around(stack.types[index], at, size)
                    .or(at.offset.checked_sub(level.offset)),
            };
            self.push(stack, index, at, len, start, typed);
        }
    }

    /// The level's object, if it is known where that begins, and its members that hold the bytes.
    fn push(
        &mut self,
        stack: &Stack,
        level: usize,
        at: PmAddress,
        len: usize,
        start: Option<u64>,
        typed: &mut Vec<Typed>,
    ) {
        let Some(start) = start else { return };
        let parts = self.parts(stack, level, at.offset - start, len);
        typed.extend(parts.iter().map(|part| Typed {
            ty: part.ty,
            instance: PmAddress {
                file: at.file,
                offset: at.offset - part.offset,
            },
            field: part.field,
            is_guessed: false,
        }));
    }

    /// The level's object, of which the place is an element of an array.
    fn push_owner(
        &mut self,
        stack: &Stack,
        index: usize,
        array: u64,
        at: PmAddress,
        len: usize,
        typed: &mut Vec<Typed>,
    ) {
        let (_, level) = stack.resolved.levels[index];
        let ty = stack.types[index];
        let first = at.offset.checked_sub(level.offset);
        let known = first.and_then(|first| self.owner(ty, first, array, at, len));
        // Some byte of the object, or of another behind it: only a known object tells.
        let anywhere = level.offset == 0 && array == self.type_size(ty);
        let is_guessed = known.is_none() && index == 0 && !anywhere && self.has_array_at(ty, level.offset);
        let start = known.or(first.filter(|_| is_guessed));
        let before = typed.len();
        self.push(stack, index, at, len, start, typed);
        for guessed in &mut typed[before..] {
            guessed.is_guessed = is_guessed;
        }
    }

    /// Where the known object begins that has the element at that address, of an array of it that would begin at `first` if the element were its first.
    fn owner(&self, ty: TypeId, first: u64, array: u64, at: PmAddress, len: usize) -> Option<u64> {
        let start = *self.instances.get(&(ty, at.file))?.range(..=first).next_back()?;
        let is_within = at.offset - start + len as u64 <= self.type_size(ty) || self.is_open_ended(ty);
        (is_within && (array == 0 || first - start < array)).then_some(start)
    }

    fn is_open_ended(&self, ty: TypeId) -> bool {
        let layout = self.layouts.get(&ty);
        layout.is_some_and(|layout| layout::is_open_ended(layout.info()))
    }

    fn has_array_at(&self, ty: TypeId, offset: u64) -> bool {
        let layout = self.layouts.get(&ty);
        layout.is_some_and(|layout| {
            let mut fields = layout::overlapping(layout.info(), offset, 1);
            fields.any(|field| field.elements.is_some())
        })
    }

    /// The objects within one of that type that hold all of the bytes, outermost (itself) first: name, size, and where in it they begin.
    pub fn nested(&self, ty: TypeId, offset: u64, len: u64) -> Vec<(&str, u64, u64)> {
        let Some(layout) = self.layouts.get(&ty) else {
            return Vec::new();
        };
        let types = layout.module.types(layout.object);
        let nested = layout::nest(types, layout.ty, offset, Some(len)).into_iter();
        nested
            .map(|inside| {
                let info = &types[inside.ty as usize];
                (info.name.as_str(), info.size, offset - inside.offset)
            })
            .collect()
    }

    /// By the known objects around the bytes, the smallest first.
    fn type_by_address(&mut self, at: PmAddress, len: usize, typed: &mut Vec<Typed>) {
        let mut around: Vec<(u64, TypeId, u64)> = Vec::new();
        for (&(ty, _), starts) in self.instances.iter().filter(|((_, file), _)| *file == at.file) {
            let size = self.type_size(ty);
            if let Some(&start) = starts.range(..=at.offset).next_back()
                && at.offset - start + (len as u64) <= size
            {
                around.push((size, ty, start));
            }
        }
        around.sort_unstable();
        for (_, ty, start) in around {
            let Some(layout) = self.layouts.get(&ty) else { continue };
            let name = layout.field_name(at.offset - start, len);
            let field = self.field_id(ty, name);
            typed.push(Typed {
                ty,
                instance: PmAddress {
                    file: at.file,
                    offset: start,
                },
                field,
                is_guessed: false,
            });
        }
    }

    /// The known object of the type around the address.
    fn around(&self, ty: TypeId, at: PmAddress, size: u64) -> Option<u64> {
        let starts = self.instances.get(&(ty, at.file))?;
        let nearest = starts.range(..=at.offset).next_back().copied()?;
        (at.offset - nearest < size).then_some(nearest)
    }
}

/// Where the fields of a type are found.
struct Layout {
    module: Source,
    object: usize,
    ty: TypeIndex,
}

impl Layout {
    fn info(&self) -> &TypeInfo {
        &self.module.types(self.object)[self.ty as usize]
    }

    fn field_name(&self, offset: u64, len: usize) -> String {
        layout::field_name(self.module.types(self.object), self.ty, offset, len as u64)
    }
}

impl Stack {
    /// Whether a store of that many bytes may be a part of what the source writes there.
    fn is_piece(&self, len: usize) -> bool {
        self.resolved.is_copy || self.resolved.size.is_some_and(|size| size > len as u64)
    }
}
