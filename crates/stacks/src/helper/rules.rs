//! When a function is a helper: the rules that docs/helpers.md teaches, on the effects of a [`Summary`].

use super::summary::{Act, Effect, Summary};
use super::value::{Root, Source, Value};

/// Code of which it is asked whether it is a helper: a function, or where one was inlined.
pub(super) struct Subject<'f> {
    pub summary: &'f Summary,
    /// Those of its code.
    pub effects: Vec<&'f Effect>,
    /// How much of the path of a root its caller has followed, if the caller gave it this at all.
    pub given: &'f dyn Fn(&Root) -> Option<usize>,
    /// Whether the caller gave it a number with these low bytes.
    pub is_given_constant: &'f dyn Fn(i64, u64) -> bool,
    /// What the caller gave it, where that is more than arguments in registers.
    pub values: &'f [Value],
    /// What it returns, if that is known.
    pub returned: Option<&'f Value>,
}

/// Parameters that are stored together: an object that is passed in two registers.
const LARGEST_PAIR: i64 = 16;

impl Subject<'_> {
    pub(super) fn is_helper(&self) -> bool {
        let all = || self.effects.iter().copied();
        if all().next().is_none() || all().any(|effect| effect.act == Act::Unknown) {
            return false;
        }
        self.is_at_one_place() && self.finishes() && !self.repeats()
    }

    fn stores(&self) -> impl Iterator<Item = (&Effect, &Value, bool)> {
        self.effects.iter().filter_map(|effect| match &effect.act {
            Act::Store { value, nontemporal } => Some((*effect, value, *nontemporal)),
            _ => None,
        })
    }

    fn having(&self, act: Act) -> impl Iterator<Item = &Effect> {
        self.effects.iter().copied().filter(move |effect| effect.act == act)
    }

    /// Whether a root is what the caller gave.
    fn is_given(&self, root: &Root) -> bool {
        (self.given)(root).is_some()
    }

    /// Whether a root is what the caller gave, as opposed to what was read through it.
    fn is_direct(&self, root: &Root) -> bool {
        (self.given)(root) == Some(root.path.len())
    }

    /// Every address is computed from what the caller gave, or is a pointer that was read at a fixed offset of that. What was
    /// found by an index that was read itself is another place than the caller named.
    fn is_given_address(&self, address: &Value) -> bool {
        let roots = address.roots();
        let read = || roots.iter().filter(|root| !self.is_direct(root));
        let found = |root: &Root| {
            let own = (self.given)(root).unwrap_or(0);
            root.path[own..].contains(&None) || roots.iter().any(|other| other != root && other.source == root.source)
        };
        !roots.is_empty() && roots.iter().all(|root| self.is_given(root)) && read().count() <= 1 && !read().any(found)
    }

    /// The caller's own value, or a copy of what the caller points to.
    fn is_given_value(&self, value: &Value, size: Option<u64>) -> bool {
        if let Some(constant) = value.as_constant() {
            return (self.is_given_constant)(constant, size.unwrap_or(1));
        }
        let roots = value.roots();
        // Nothing that was computed from it: that is the function's own. An argument of an inlined function may itself be computed
        // from what is in a register.
        let is_whole = match self.values {
            [] => roots.len() == 1 && value.offset() == Some(0),
            values => values.contains(value),
        };
        let is_argument =
            || roots.iter().all(|root| self.is_direct(root)) && (is_whole || size.is_none_or(|size| size > 8));
        !roots.is_empty() && roots.iter().all(|root| self.is_given(root)) && (self.is_copy(value) || is_argument())
    }

    fn is_copy(&self, value: &Value) -> bool {
        value.offset() == Some(0) && value.roots().iter().all(|root| !self.is_direct(root))
    }

    /// An allocator moves a mark by what it was asked for, and returns where that was.
    fn is_allocation(&self, value: &Value) -> bool {
        let is_given =
            |value: &Value| !value.roots().is_empty() && value.roots().iter().all(|root| self.is_given(root));
        self.returned.is_some_and(|returned| {
            let roots = returned.roots();
            let is_within =
                roots.iter().any(|root| self.is_direct(root)) && !roots.iter().all(|root| self.is_direct(root));
            is_given(returned) && is_within
        }) && is_given(value)
    }

    /// All that it stores and flushes is one object, or one range of bytes, and the content is not its own.
    fn is_at_one_place(&self) -> bool {
        let touches = || self.effects.iter().filter(|effect| effect.act != Act::Fence);
        if !touches().all(|touch| self.is_given_address(&touch.address)) {
            return false;
        }
        let Some(first) = touches().next() else {
            return true;
        };
        let in_all = |root: &&Root| touches().all(|touch| touch.address.roots().contains(root));
        if !first.address.roots().iter().any(|root| in_all(&root)) {
            return false;
        }
        let plain = self
            .stores()
            .all(|(store, value, _)| self.is_given_value(value, store.size));
        let allocates = || {
            let fixed = |effect: &Effect| effect.address.offset().is_some();
            self.stores()
                .all(|(effect, value, _)| fixed(effect) && self.is_allocation(value))
        };
        if !plain && !allocates() {
            return false;
        }
        let copies = plain && self.stores().all(|(_, value, _)| self.is_copy(value));
        let mut parts: Vec<(i64, i64)> = Vec::new();
        for (store, value, _) in self.stores() {
            // Within the object: the function arranges it. At a place that no argument says: it has searched for it.
            let is_source = |root: &Root| value.roots().iter().any(|other| other.source == root.source);
            let is_element = store.address.roots().len() == 1 && store.address.offset().is_none();
            let arranges = self.is_copy(value) && store.address.roots().iter().all(is_source);
            let in_loop = |(other, same, _): (&Effect, &Value, bool)| same == value && other.in_loop;
            let searches = is_element && !self.is_copy(value) && store.size.is_some() && !self.stores().any(in_loop);
            if plain && (arranges || searches) {
                return false;
            }
            // One word for two fields is no object that was passed in two registers.
            let twice = |(other, same, _): (&Effect, &Value, bool)| same == value && other.address != store.address;
            let is_field = store.address.offset().is_some();
            if !copies && is_field && (self.stores().any(twice) || is_repeated(value, store.size)) {
                return false;
            }
            match (store.address.offset(), store.size) {
                (Some(offset), Some(size)) => parts.push((offset, offset.saturating_add(size as i64))),
                _ if store.address.offset().is_some() => return false,
                // An element that the caller chose, or the bytes of a range.
                _ => {}
            }
        }
        if parts.is_empty() {
            return true;
        }
        if parts.len() < self.stores().count() && !copies {
            return false;
        }
        parts.sort_unstable();
        let (start, mut end) = parts[0];
        for (from, to) in parts {
            if from > end {
                return false;
            }
            end = end.max(to);
        }
        copies || end - start <= LARGEST_PAIR
    }

    /// It leaves durability to its caller, or sees to it on every path: what it stored is flushed, and then fenced.
    fn finishes(&self) -> bool {
        let has_fence = self.having(Act::Fence).next().is_some();
        let has_flush = self.having(Act::Flush).next().is_some();
        for (store, _, nontemporal) in self.stores() {
            if has_flush
                && !(has_fence && self.is_followed_by(store, Act::Flush) && self.is_followed_by(store, Act::Fence))
            {
                return false;
            }
            if !has_flush && has_fence && !(nontemporal && self.is_followed_by(store, Act::Fence)) {
                return false;
            }
        }
        !(has_flush && has_fence)
            || self
                .having(Act::Flush)
                .all(|flush| self.is_followed_by(flush, Act::Fence))
    }

    /// Whether no path from the effect to a return avoids all of those effects. A loop may run no time: what is in one is taken
    /// to be done.
    fn is_followed_by(&self, effect: &Effect, act: Act) -> bool {
        let by: Vec<&Effect> = self.having(act).collect();
        let is_later = |other: &Effect| {
            // Of one call, in the order of the callee.
            other.index != effect.index || self.position(other) > self.position(effect)
        };
        if by.iter().any(|other| other.index == effect.index && is_later(other)) {
            return true;
        }
        if by
            .iter()
            .any(|other| self.summary.reaches(other.index, other.index, &|_| false))
        {
            return true;
        }
        let stops = |index: usize| by.iter().any(|other| other.index == index);
        if self.summary.exits.contains(&effect.index) {
            return false;
        }
        !self
            .summary
            .exits
            .iter()
            .any(|&exit| !stops(exit) && self.summary.reaches(effect.index, exit, &stops))
    }

    fn position(&self, effect: &Effect) -> Option<usize> {
        self.effects.iter().position(|other| std::ptr::eq(*other, effect))
    }

    /// It flushes or fences twice what needs it once: that is its own doing.
    fn repeats(&self) -> bool {
        let flushes: Vec<&Effect> = self.having(Act::Flush).collect();
        let fences: Vec<&Effect> = self.having(Act::Fence).collect();
        let comes_again = |one: &Effect, other: &Effect, between: &[&Effect]| {
            let stops = |index: usize| {
                index != one.index && index != other.index && between.iter().any(|effect| effect.index == index)
            };
            match one.index == other.index {
                true => self.position(one) < self.position(other),
                false => self.summary.reaches(one.index, other.index, &stops),
            }
        };
        let again = |effects: &[&Effect], between: &[&Effect], same: &dyn Fn(&Effect, &Effect) -> bool| {
            effects.iter().any(|one| {
                effects
                    .iter()
                    .any(|other| !std::ptr::eq(*one, *other) && same(one, other) && comes_again(one, other, between))
            })
        };
        let others: Vec<&Effect> = self
            .effects
            .iter()
            .copied()
            .filter(|effect| effect.act != Act::Fence)
            .collect();
        let stores: Vec<&Effect> = self.stores().map(|(effect, ..)| effect).collect();
        let same_line = |one: &Effect, other: &Effect| one.address.offset().is_some() && one.address == other.address;
        again(&flushes, &stores, &same_line) || again(&fences, &others, &|_, _| true)
    }
}

/// Whether the value of one register fills more than that.
fn is_repeated(value: &Value, size: Option<u64>) -> bool {
    let words = value
        .roots()
        .iter()
        .filter(|root| matches!(root.source, Source::Register(_)));
    let words = words.count() as u64;
    words == value.roots().len() as u64 && words > 0 && size.is_some_and(|size| size > 8 * words)
}

/// What a function is given: its arguments.
pub(super) fn argument(root: &Root) -> Option<usize> {
    let is_argument = match root.source {
        Source::Register(number) => crate::registers::ARGUMENTS
            .iter()
            .any(|register| register.number() == number),
        Source::Vector(number) => number < 8,
        Source::Stack(_) => true,
        Source::Made(..) => false,
    };
    is_argument.then_some(0)
}
