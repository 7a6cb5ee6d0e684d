//! Conditions of types and fields: what holds between two fields of one node holds for all nodes. Our extension; the paper's are of
//! addresses.
//!
//! Two locations of one object (a token and a key of the same bucket) give a condition of fields of *the same object*, of the innermost
//! type that has both. Otherwise (a node's key and the pointer to the node in another one) the fields' own types count, and
//! the condition is of any two objects.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::conditions::{Conditions, Rule};
use crate::fields::{Field, Fields, Level};
use crate::location::Location;

/// `before` must persist before `after`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lifted {
    pub rule: Rule,
    pub before: Field,
    pub after: Field,
    /// Both are fields of one object.
    pub same_object: bool,
}

/// The conditions of locations that say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    pub count: u64,
    /// The first of [`Conditions::orders`], or of [`Conditions::guardians`].
    pub first: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Lifting {
    /// In order.
    pub orders: Vec<(Lifted, Support)>,
    pub guardians: FxHashMap<Field, Support>,
}

impl Lifting {
    pub(crate) fn new(conditions: &Conditions, fields: &Fields) -> Lifting {
        let mut orders: FxHashMap<Lifted, Support> = FxHashMap::default();
        for (number, order) in conditions.orders.iter().enumerate() {
            let (before, after) = (conditions.location(order.before), conditions.location(order.after));
            if let Some((before, after, same_object)) = lift(fields, before, after) {
                let lifted = Lifted {
                    rule: order.rule,
                    before,
                    after,
                    same_object,
                };
                // What holds between an array's elements, or within a list, says nothing of one field of one object.
                if !(lifted.same_object && lifted.before == lifted.after) {
                    count(orders.entry(lifted), number);
                }
            }
        }
        let mut orders: Vec<_> = orders.into_iter().collect();
        orders.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut guardians: FxHashMap<Field, Support> = FxHashMap::default();
        for (number, guardian) in conditions.guardians.iter().enumerate() {
            if let Some(level) = fields.at(conditions.location(guardian.location)).1.first() {
                count(guardians.entry(fields.name(level.field).clone()), number);
            }
        }
        Lifting { orders, guardians }
    }

    /// Number of types and fields that conditions are of.
    pub fn fields(&self) -> usize {
        let fields: FxHashSet<&Field> = self
            .orders
            .iter()
            .flat_map(|(lifted, _)| [&lifted.before, &lifted.after])
            .chain(self.guardians.keys())
            .collect();
        fields.len()
    }
}

fn count<T>(entry: Entry<'_, T, Support>, number: usize) {
    entry
        .or_insert(Support {
            count: 0,
            first: number,
        })
        .count += 1;
}

fn lift(fields: &Fields, before: Location, after: Location) -> Option<(Field, Field, bool)> {
    let ((start, of_before), (other_start, of_after)) = (fields.at(before), fields.at(after));
    // Where the object begins that a level says the bytes belong to.
    let object = |start: u64, level: &Level| start.wrapping_sub(level.distance);
    for a in of_before {
        for b in of_after {
            let (one, other) = (fields.name(a.field), fields.name(b.field));
            let same_type = one.ty == other.ty && one.size == other.size;
            if same_type && before.file == after.file && object(start, a) == object(other_start, b) {
                return Some((one.clone(), other.clone(), true));
            }
        }
    }
    let (a, b) = (of_before.first()?, of_after.first()?);
    Some((fields.name(a.field).clone(), fields.name(b.field).clone(), false))
}
