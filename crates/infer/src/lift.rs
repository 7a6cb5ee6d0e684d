//! Conditions of types and fields: what holds between two fields of one node holds for all nodes. Our extension; the paper's are of
//! addresses.
//!
//! Two locations of one object (a token and a key of the same bucket) give a condition of fields of *the same object*, of the innermost
//! type that has both. Otherwise (a node's key and the pointer to the node in another one) the fields' own types count, and
//! the condition is of any two objects.

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

#[derive(Clone, Debug, Default)]
pub struct Lifting {
    /// With the number of conditions of locations that say so, in order.
    pub orders: Vec<(Lifted, u64)>,
    /// Fields of guardians, each with whether reads depend on it.
    pub guardians: FxHashMap<Field, bool>,
}

impl Lifting {
    pub(crate) fn new(conditions: &Conditions, fields: &Fields) -> Lifting {
        let mut orders: FxHashMap<Lifted, u64> = FxHashMap::default();
        for order in &conditions.orders {
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
                    *orders.entry(lifted).or_default() += 1;
                }
            }
        }
        let mut orders: Vec<_> = orders.into_iter().collect();
        orders.sort_unstable();
        let mut guardians: FxHashMap<Field, bool> = FxHashMap::default();
        for guardian in &conditions.guardians {
            if let Some(level) = fields.at(conditions.location(guardian.location)).first() {
                *guardians.entry(fields.name(level.field).clone()).or_default() |= guardian.of_reads;
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

/// The object that a level says the bytes belong to.
fn object(location: Location, level: &Level) -> u64 {
    location.offset.wrapping_sub(level.distance)
}

fn lift(fields: &Fields, before: Location, after: Location) -> Option<(Field, Field, bool)> {
    let (of_before, of_after) = (fields.at(before), fields.at(after));
    for a in of_before {
        for b in of_after {
            let (one, other) = (fields.name(a.field), fields.name(b.field));
            let same_type = one.ty == other.ty && one.size == other.size;
            if same_type && before.file == after.file && object(before, a) == object(after, b) {
                return Some((one.clone(), other.clone(), true));
            }
        }
    }
    let (a, b) = (of_before.first()?, of_after.first()?);
    Some((fields.name(a.field).clone(), fields.name(b.field).clone(), false))
}
