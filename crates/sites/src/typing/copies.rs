//! Copies and fills of memory, which are recorded in pieces: where they begin, and of how many objects they are.

use std::rc::Rc;

use crashproof_trace::{PmAddress, Tables};
use rustc_hash::FxHashMap;

use super::{Stack, Store, Typing};
use crate::table::Level;

/// Bytes that were copied or filled at once.
#[derive(Debug)]
pub(super) struct WholeCopy {
    pub base: PmAddress,
    /// For each level: whether it is several objects, and not one.
    pub is_array: Vec<bool>,
}

impl Typing {
    /// The stores are one copy or several with the same stack: what touches is one.
    pub(super) fn close(
        &mut self,
        pieces: &[usize],
        stores: &[Store],
        tables: &Tables,
        bases: &mut FxHashMap<usize, Rc<WholeCopy>>,
    ) {
        let Some(stack) = pieces
            .first()
            .and_then(|&first| self.stack(stores[first].stack, tables))
        else {
            return;
        };
        let mut sorted = pieces.to_vec();
        sorted.sort_by_key(|&index| stores[index].at);
        let mut rest = &sorted[..];
        while let Some(&first) = rest.first() {
            let base = stores[first].at;
            let mut end = base.offset;
            let touching = rest.iter().take_while(|&&index| {
                let Store { at, len, .. } = stores[index];
                let touches = at.file == base.file && at.offset <= end;
                if touches {
                    end = end.max(at.offset + len as u64);
                }
                touches
            });
            let count = touching.count();
            let start = self.start_of_copy(&stack, base);
            let len = end.saturating_sub(start.offset);
            let is_array = (0..stack.types.len()).map(|level| self.is_array(&stack, level, start, len));
            let copy = Rc::new(WholeCopy {
                base: start,
                is_array: is_array.collect(),
            });
            bases.extend(rest[..count].iter().map(|&index| (index, copy.clone())));
            rest = &rest[count..];
            self.learn(&stack, start);
            for (&ty, _) in stack
                .types
                .iter()
                .zip(&copy.is_array)
                .filter(|(_, is_array)| **is_array)
            {
                let size = self.type_size(ty);
                let known = self.instances.entry((ty, start.file)).or_default();
                known.extend((start.offset..end).step_by(size as usize));
            }
        }
    }

    /// Whether so many bytes that are copied to an object are copied to several, of which it is the first.
    fn is_array(&self, stack: &Stack, level: usize, base: PmAddress, len: u64) -> bool {
        let (object, place) = stack.resolved.levels[level];
        let (ty, size) = (stack.types[level], self.type_size(stack.types[level]));
        if place.offset != 0 || place.array.is_some() || size == 0 || len <= size {
            return false;
        }
        // Copies of one object each, one behind the other.
        if stack.resolved.size == Some(size) {
            return true;
        }
        let types = stack.resolved.module.types(object);
        let holds_elements = |&(outer, around): &(usize, Level)| {
            let fields = &stack.resolved.module.types(outer)[around.ty as usize].fields;
            fields.iter().any(|field| {
                let skipped = around.offset.checked_sub(field.offset);
                outer == object
                    && field
                        .ty
                        .is_some_and(|element| types[element as usize] == types[place.ty as usize])
                    && field.elements.is_some()
                    && skipped.is_some_and(|skipped| skipped.saturating_add(len) <= field.size)
            })
        };
        if stack.resolved.levels.get(level + 1).is_some_and(holds_elements) {
            return true;
        }
        // The next element at least; and none that would begin within another.
        let Some(shown) = self.instances.get(&(ty, base.file)) else {
            return false;
        };
        let mut behind = shown.range(base.offset + 1..base.offset + len);
        shown.contains(&(base.offset + size)) && behind.all(|start| (start - base.offset).is_multiple_of(size))
    }

    /// The lowest address that is known of a copy may be in its middle (a string's end, written apart): an object that is known to be
    /// around it tells.
    fn start_of_copy(&self, stack: &Stack, lowest: PmAddress) -> PmAddress {
        let innermost = stack
            .resolved
            .levels
            .iter()
            .zip(&stack.types)
            .find(|((_, level), _)| level.array.is_none());
        let Some(((_, level), &ty)) = innermost else {
            return lowest;
        };
        let around = self
            .around(ty, lowest, self.type_size(ty))
            .filter(|start| start + level.offset <= lowest.offset);
        PmAddress {
            offset: around.map_or(lowest.offset, |start| start + level.offset),
            ..lowest
        }
    }
}
