//! Conditions of fields, by their definition taken literally: byte by byte, and all pairs of levels.

use std::collections::{BTreeMap, BTreeSet};

use crashproof_trace::{FileId, PmAddress, StackId};
use proptest::prelude::*;

use crate::conditions::{Conditions, Guardian, Order, Rule};
use crate::fields::{Field, Fields};
use crate::lift::{Lifted, Lifting, Support};
use crate::location::{Location, LocationId};

/// Nodes lie one after the other: `key`, `pair` (of `a` and `b`), `next`, `spare` that no type has.
const NODE: u64 = 40;
const NODES: u64 = 3;

fn field(ty: &str, size: u64, name: &str) -> Field {
    Field {
        ty: ty.into(),
        size,
        name: name.into(),
    }
}

/// What a store to this place writes, innermost first: fields, and where their objects begin.
fn levels(offset: u64) -> Vec<(Field, u64)> {
    let node = offset / NODE * NODE;
    let of_node = |name| (field("node", NODE, name), node);
    let of_pair = |name| (field("pair", 16, name), node + 8);
    match offset % NODE / 8 {
        0 => vec![of_node("key")],
        1 => vec![of_pair("a"), of_node("pair")],
        2 => vec![of_pair("b"), of_node("pair")],
        3 => vec![of_node("next")],
        _ => Vec::new(),
    }
}

/// Within a word: where, and how many bytes.
fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..NODES * NODE / 8, 0..8u64, 1..=8u64).prop_map(|(word, start, len)| (word * 8 + start, len.min(8 - start)))
}

/// What is known of a location: what the store wrote that most of its bytes are of, the last of two as good.
fn known(stores: &[((u64, u64), bool)], (offset, len): (u64, u64)) -> Vec<(Field, u64)> {
    let mut bytes: BTreeMap<usize, u64> = BTreeMap::new();
    for byte in offset..offset + len {
        let writes = |((start, len), _): &((u64, u64), bool)| (*start..start + len).contains(&byte);
        if let Some(last) = stores.iter().rposition(writes) {
            *bytes.entry(last).or_default() += 1;
        }
    }
    let most = bytes.into_iter().max_by_key(|&(store, count)| (count, store));
    match most {
        Some((store, _)) if stores[store].1 => levels(stores[store].0.0),
        _ => Vec::new(),
    }
}

fn naive(before: &[(Field, u64)], after: &[(Field, u64)]) -> Option<(Field, Field, bool)> {
    let mut of_one_object: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (i, (one, object)) in before.iter().enumerate() {
        for (j, (other, of_other)) in after.iter().enumerate() {
            if one.ty == other.ty && object == of_other {
                of_one_object.insert((i, j));
            }
        }
    }
    match of_one_object.first() {
        Some(&(i, j)) => Some((before[i].0.clone(), after[j].0.clone(), true)),
        None => Some((before.first()?.0.clone(), after.first()?.0.clone(), false)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn lifted_conditions_are_those_of_the_definition(
        stores in prop::collection::vec((range(), prop::bool::weighted(0.9)), 0..24),
        ranges in prop::collection::btree_set(range(), 2..10),
        orders in prop::collection::btree_set((0..4usize, 0..10u32, 0..10u32), 0..16),
        guardians in prop::collection::btree_set(0..10u32, 0..6),
    ) {
        let file = FileId(0);
        let mut fields = Fields::default();
        for (event, &((offset, len), typed)) in stores.iter().enumerate() {
            let levels = if typed { levels(offset) } else { Vec::new() };
            let levels = levels.into_iter().map(|(field, object)| (field, offset - object));
            fields.add(event as u64, PmAddress { file, offset }, len, levels);
        }
        let ranges: Vec<(u64, u64)> = ranges.into_iter().collect();
        let of = |id: u32| LocationId(id % ranges.len() as u32);
        let none = StackId(0);
        let conditions = Conditions {
            locations: ranges.iter().map(|&(offset, len)| Location { file, offset, len: len as u8 }).collect(),
            orders: orders
                .iter()
                .map(|&(rule, before, after)| Order {
                    rule: Rule::ALL[rule],
                    before: of(before),
                    after: of(after),
                    count: 1,
                    dependent: none,
                    source: none,
                })
                .collect(),
            guardians: guardians
                .iter()
                .map(|&id| Guardian { location: of(id), of_reads: true, dependents: 1, dependent: none, source: none })
                .collect(),
            ..Conditions::default()
        };
        let at = |id: LocationId| known(&stores, ranges[id.index()]);
        let mut expected: BTreeMap<Lifted, (u64, usize)> = BTreeMap::new();
        for (number, order) in conditions.orders.iter().enumerate() {
            let Some((before, after, same_object)) = naive(&at(order.before), &at(order.after)) else { continue };
            if same_object && before == after {
                continue;
            }
            let lifted = Lifted { rule: order.rule, before, after, same_object };
            expected.entry(lifted).or_insert((0, number)).0 += 1;
        }
        let found = Lifting::new(&conditions, &fields);
        let count = |support: Support| (support.count, support.first);
        let orders: BTreeMap<Lifted, (u64, usize)> =
            found.orders.iter().map(|(lifted, support)| (lifted.clone(), count(*support))).collect();
        prop_assert_eq!(orders.len(), found.orders.len());
        prop_assert_eq!(orders, expected);
        let mut expected: BTreeMap<Field, (u64, usize)> = BTreeMap::new();
        for (number, guardian) in conditions.guardians.iter().enumerate() {
            if let Some((field, _)) = at(guardian.location).first() {
                expected.entry(field.clone()).or_insert((0, number)).0 += 1;
            }
        }
        let guardians: BTreeMap<Field, (u64, usize)> =
            found.guardians.iter().map(|(field, support)| (field.clone(), count(*support))).collect();
        prop_assert_eq!(guardians, expected);
    }
}
