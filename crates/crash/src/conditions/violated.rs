//! Which condition some stores violate that had persisted while others were missing: for a finding to say.

use std::cmp::Reverse;

use crashproof_infer::{Conditions, FieldIndex, Rule};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Object, Violations};

/// A store of the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub event: u64,
    pub file: u32,
    pub offset: u64,
    pub length: u64,
}

/// By their numbers in [`Conditions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Order(usize),
    /// The first of the two guardians is missing.
    Together(usize, usize),
}

/// What some stores write.
#[derive(Default)]
struct Constrained {
    locations: FxHashSet<u32>,
    fields: FxHashMap<FieldIndex, FxHashSet<Object>>,
    /// Innermost.
    own: FxHashSet<FieldIndex>,
}

impl Violations {
    fn constrained(&self, stores: &[Stored]) -> Constrained {
        let mut constrained = Constrained::default();
        for store in stores {
            let by_address = !self.elsewhere.contains(&self.begins.of(store.event));
            let end = store.offset + store.length;
            for word in store.offset / 8..end.div_ceil(8) {
                let bytes = (word * 8..word * 8 + 8).map(|byte| (store.offset..end).contains(&byte));
                let mask = bytes
                    .enumerate()
                    .fold(0u8, |mask, (bit, has)| mask | u8::from(has) << bit);
                if by_address {
                    let locations = self.index.locations(store.file, word, mask);
                    constrained.locations.extend(locations);
                }
                if let Some((offset, levels)) = self.fields.of(store.event, word * 8, word * 8 + 8).next() {
                    constrained.own.extend(levels.first().map(|level| level.field));
                    for level in levels {
                        let object = (store.file, offset.wrapping_sub(level.distance));
                        constrained.fields.entry(level.field).or_default().insert(object);
                    }
                }
            }
        }
        constrained
    }

    /// The condition that says most of why the first must not have persisted without the others: what a reader relies on before what
    /// a writer does, what was seen at these very places before what was seen at others, what was seen often. Guardians come first or last.
    pub(crate) fn violated(
        &self,
        conditions: &Conditions,
        persisted: &[Stored],
        missing: &[Stored],
        together: bool,
    ) -> Option<Condition> {
        let (p, u) = (self.constrained(persisted), self.constrained(missing));
        let guardians = || self.guardians_of(conditions, &u).zip(self.guardians_of(conditions, &p));
        let guardians = || guardians().map(|(u, p)| Condition::Together(u, p));
        if together && let Some(condition) = guardians() {
            return Some(condition);
        }
        let by_address = conditions
            .orders
            .iter()
            .enumerate()
            .filter(|(_, order)| u.locations.contains(&order.before.0) && p.locations.contains(&order.after.0));
        let by_address = by_address.map(|(number, order)| (rank(order.rule), 0, Reverse(order.count), number));
        let lifted = conditions.lifted.orders.iter().filter(|(order, _)| {
            let field =
                |field, of: &Constrained| self.fields.find(field).and_then(|field| of.fields.get(&field).cloned());
            match (field(&order.before, &u), field(&order.after, &p)) {
                (Some(before), Some(after)) => !order.same_object || before.intersection(&after).next().is_some(),
                _ => false,
            }
        });
        let lifted = lifted.map(|(order, support)| (rank(order.rule), 1, Reverse(support.count), support.first));
        let order = by_address.chain(lifted).min();
        order.map(|(.., number)| Condition::Order(number)).or_else(guardians)
    }

    fn guardians_of(&self, conditions: &Conditions, of: &Constrained) -> Option<usize> {
        let by_address = conditions
            .guardians
            .iter()
            .position(|guardian| of.locations.contains(&guardian.location.0));
        by_address.or_else(|| {
            let mut fields: Vec<FieldIndex> = of.own.iter().copied().collect();
            fields.sort_unstable();
            let guardians = &conditions.lifted.guardians;
            let of_field = |field: FieldIndex| guardians.get(self.fields.name(field)).map(|support| support.first);
            fields.into_iter().find_map(of_field)
        })
    }
}

/// A reader's reason says what goes wrong after the crash, a writer's only what the program did before it.
fn rank(rule: Rule) -> u8 {
    match rule {
        Rule::Po3 => 0,
        Rule::Po4 => 1,
        Rule::Po2 => 2,
        Rule::Po1 => 3,
        Rule::Pa1 => 4,
    }
}
