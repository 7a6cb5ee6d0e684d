//! Conditions of fields at a crash point, against all pairs of its stores one by one; those of addresses are compared by whole traces.

use std::collections::BTreeSet;
use std::sync::Arc;

use crashproof_infer::{Conditions, Field, Fields, Lifted, Rule, Support};
use crashproof_model::{ByteSet, LINE, LineAddress, Ranges, Store};
use crashproof_trace::{FileId, OperationIndex, PmAddress, StackId};
use proptest::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::index::Index;
use super::progress::Stores;
use super::{At, Violated, Violations, is_possible};
use crate::executor::StoreId;
use crate::hash::Content;
use crate::state::{CrashPoint, Pending, PointHead, PointKind, UncertainLine};

/// A node has a line's half: `head`, `pair` of `a` and `b`, `tail`.
const NODE: u64 = 32;
const LINES: u64 = 3;

fn field(ty: &str, name: &str) -> Field {
    Field {
        ty: ty.into(),
        size: if ty == "node" { NODE } else { 16 },
        name: name.into(),
    }
}

const NAMES: [(&str, &str); 5] = [
    ("node", "head"),
    ("node", "pair"),
    ("node", "tail"),
    ("pair", "a"),
    ("pair", "b"),
];

/// Fields that a word belongs to, innermost first, and where their objects begin.
fn levels(offset: u64) -> Vec<(Field, u64)> {
    let node = offset / NODE * NODE;
    let of_pair = |name| vec![(field("pair", name), node + 8), (field("node", "pair"), node)];
    match offset % NODE / 8 {
        0 => vec![(field("node", "head"), node)],
        1 => of_pair("a"),
        2 => of_pair("b"),
        _ => vec![(field("node", "tail"), node)],
    }
}

fn point(stores: &[(u64, bool)]) -> CrashPoint {
    let mut lines: Vec<UncertainLine> = (0..LINES)
        .map(|line| UncertainLine::new(LineAddress { file: 0, line }, Content::from_elem(0, 64), false, false))
        .collect();
    for (seq, &(word, nontemporal)) in stores.iter().enumerate() {
        let start = word * 8 % LINE;
        lines[(word * 8 / LINE) as usize].store(Store {
            bytes: Ranges::range(start, 8),
            thread: 0,
            nontemporal,
            tag: Pending {
                id: StoreId {
                    seq: seq as u64,
                    piece: 0,
                },
                stack: StackId(0),
                start: start as u32,
                data: [seq as u8 + 1; 8].into(),
            },
        });
    }
    lines.iter_mut().for_each(UncertainLine::refresh);
    CrashPoint {
        head: PointHead {
            seq: stores.len() as u64,
            within: 0,
            number: 0,
            after: None,
            new_stack: false,
            states: 0,
            changed: 0,
            since: 0,
            boundary: false,
            what: PointKind::Middle,
        },
        lines: lines.into_iter().map(Arc::new).collect(),
        ties: None,
        fresh: Vec::new(),
        all_fresh: false,
        hash: 0,
        files: 0,
        output: 0,
        within: (Vec::new(), Vec::new()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn lifted_conditions_hold_for_all_pairs(
        stores in prop::collection::vec((0..LINES * 8, prop::bool::weighted(0.2)), 1..12),
        orders in prop::collection::btree_set((0..5usize, 0..5usize, any::<bool>()), 0..6),
        guardians in prop::collection::btree_set(0..5usize, 0..3),
    ) {
        let mut fields = Fields::default();
        for (event, &(word, _)) in stores.iter().enumerate() {
            let offset = word * 8;
            let levels = levels(offset).into_iter().map(|(field, object)| (field, offset - object));
            fields.add(event as u64, PmAddress { file: FileId(0), offset }, 8, levels);
        }
        let named = |number: usize| field(NAMES[number].0, NAMES[number].1);
        let mut conditions = Conditions::default();
        let support = Support { count: 1, first: 0 };
        for &(before, after, same_object) in &orders {
            let lifted = Lifted { rule: Rule::Po3, before: named(before), after: named(after), same_object };
            conditions.lifted.orders.push((lifted, support));
        }
        conditions.lifted.guardians = guardians.iter().map(|&number| (named(number), support)).collect();
        let violations = Violations {
            index: Index::new(&conditions, &fields, &[]),
            fields,
            begins: OperationIndex::default(),
            elsewhere: FxHashSet::default(),
            stores: Stores::default(),
            paths: FxHashMap::default(),
            warnings: Vec::new(),
        };
        let point = point(&stores);

        let all: Vec<(At, Vec<(Field, u64)>)> = point
            .lines
            .iter()
            .enumerate()
            .flat_map(|(number, line)| {
                let stores = line.line().stores().iter().enumerate();
                let start = line.start();
                stores.map(move |(store, of)| ((number, store), levels(start + u64::from(of.tag.start))))
            })
            .collect();
        let mut expected = Violated::default();
        let mut pairs: BTreeSet<(At, At)> = BTreeSet::new();
        for (p, of_p) in &all {
            for (u, of_u) in &all {
                let mut ordered = orders.iter().any(|&(before, after, same_object)| {
                    let is = |levels: &[(Field, u64)], number| -> Vec<u64> {
                        levels.iter().filter(|(field, _)| *field == named(number)).map(|&(_, object)| object).collect()
                    };
                    let (us, ps) = (is(of_u, before), is(of_p, after));
                    !us.is_empty() && !ps.is_empty() && (!same_object || us == ps)
                });
                let guards = |levels: &[(Field, u64)]| guardians.iter().any(|&number| levels[0].0 == named(number));
                ordered |= guards(of_p) && guards(of_u);
                if ordered && is_possible(*p, *u, &point) {
                    expected.persisted.insert(*p);
                    expected.missing.insert(*u);
                    pairs.insert((*p, *u));
                }
            }
        }
        prop_assert_eq!(violations.at(&point), expected);
        let found: BTreeSet<(At, At)> = violations.pairs(&point, 0).iter().map(|pair| (pair.p, pair.u)).collect();
        prop_assert_eq!(found, pairs);
    }
}
