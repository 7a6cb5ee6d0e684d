//! The definition, as literally as it can be written: all chains of dependences, one by one.

use std::collections::{BTreeMap, BTreeSet};

use crashproof_trace::{Dependence, FileId, PmAddress, StackId, ThreadId};
use proptest::prelude::*;

use crate::closure::DEPTH;
use crate::conditions::{Access, Finder, Rule};

/// One access, from plain numbers; dependences are distances back, taken modulo what there is.
#[derive(Clone, Debug)]
struct Random {
    store: bool,
    offset: u64,
    len: u32,
    depends: Vec<(u64, bool)>,
    ends_operation: bool,
}

fn random() -> impl Strategy<Value = Random> {
    let depends = prop::collection::vec((1..12u64, any::<bool>()), 0..4);
    let ends = prop::bool::weighted(0.05);
    (any::<bool>(), 0..96u64, 1..20u32, depends, ends).prop_map(|(store, offset, len, depends, ends_operation)| {
        Random {
            store,
            offset,
            len,
            depends,
            ends_operation,
        }
    })
}

/// A condition: rule, before, after as (offset, length).
type Condition = (Rule, (u64, u8), (u64, u8));

struct Node {
    number: u64,
    store: bool,
    parts: Vec<(u64, u8)>,
    depends: Vec<(u64, bool)>,
    operation: u32,
}

fn parts(offset: u64, len: u32) -> Vec<(u64, u8)> {
    let mut parts: Vec<(u64, u8)> = Vec::new();
    for byte in offset..offset + len as u64 {
        match parts.last_mut() {
            Some((_, len)) if byte % 8 != 0 => *len += 1,
            _ => parts.push((byte, 1)),
        }
    }
    parts
}

/// All chains from a node, recursively: (end, whether one of its dependences is control).
fn chains(nodes: &[Node], from: &Node, depth: u32, control: bool, out: &mut BTreeSet<(u64, bool)>) {
    if depth == 0 {
        return;
    }
    for &(on, is_control) in &from.depends {
        let known = nodes
            .iter()
            .find(|node| node.number == on && !node.store && node.operation == from.operation);
        let Some(node) = known else { continue };
        out.insert((on, control || is_control));
        chains(nodes, node, depth - 1, control || is_control, out);
    }
}

fn naive(nodes: &[Node]) -> BTreeMap<Condition, u64> {
    let mut conditions = BTreeMap::new();
    for node in nodes {
        let mut hints: BTreeSet<(Rule, u64)> = BTreeSet::new();
        let mut direct = BTreeSet::new();
        chains(nodes, node, 1, false, &mut direct);
        for &(on, control) in &direct {
            match (node.store, control) {
                (true, false) => hints.insert((Rule::Po1, on)),
                (true, true) => hints.insert((Rule::Po2, on)),
                (false, false) => hints.insert((Rule::Po4, on)),
                (false, true) => true,
            };
        }
        if !node.store {
            let mut reached = BTreeSet::new();
            chains(nodes, node, DEPTH, false, &mut reached);
            hints.extend(
                reached
                    .iter()
                    .filter(|(_, control)| *control)
                    .map(|&(on, _)| (Rule::Po3, on)),
            );
        }
        for (rule, on) in hints {
            let source = nodes.iter().find(|node| node.number == on).unwrap();
            for &dependent in &node.parts {
                for &source in &source.parts {
                    let overlap =
                        dependent.0 < source.0 + source.1 as u64 && source.0 < dependent.0 + dependent.1 as u64;
                    let (before, after) = match rule {
                        Rule::Po1 | Rule::Po2 => (source, dependent),
                        _ => (dependent, source),
                    };
                    if !overlap {
                        *conditions.entry((rule, before, after)).or_insert(0) += 1;
                    }
                }
            }
        }
    }
    conditions
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn conditions_are_those_of_the_definition(accesses in prop::collection::vec(random(), 0..40)) {
        let mut finder = Finder::default();
        let mut nodes: Vec<Node> = Vec::new();
        let mut operation = 0;
        for (index, access) in accesses.iter().enumerate() {
            let number = 10 + 3 * index as u64;
            // Of one load a label has one member.
            let depends: BTreeMap<u64, bool> = access
                .depends
                .iter()
                .filter_map(|&(back, control)| Some((nodes.len().checked_sub(back as usize)?, control)))
                .filter(|&(at, _)| !nodes[at].store)
                .map(|(at, control)| (nodes[at].number, control))
                .collect();
            let given: Vec<Dependence> =
                depends.iter().map(|(&node, &control)| Dependence { node, control }).collect();
            finder.access(&Access {
                thread: ThreadId(0),
                stack: StackId(0),
                store: access.store,
                node: number,
                at: PmAddress { file: FileId(0), offset: access.offset },
                len: access.len,
                depends: &given,
            });
            nodes.push(Node {
                number,
                store: access.store,
                parts: parts(access.offset, access.len),
                depends: depends.into_iter().collect(),
                operation,
            });
            if access.ends_operation {
                finder.end_operation(ThreadId(0));
                operation += 1;
            }
        }
        let expected = naive(&nodes);
        let found = finder.finish();
        let part = |id| { let location = found.location(id); (location.offset, location.len) };
        let conditions: BTreeMap<Condition, u64> = found
            .orders
            .iter()
            .map(|order| ((order.rule, part(order.before), part(order.after)), order.count))
            .collect();
        prop_assert_eq!(&conditions, &expected);
        // Guardians: what the paper's rule names, and the sources of PO1 and PO2.
        let sources = |rules: &[Rule]| -> BTreeSet<(u64, u8)> {
            let of = expected.keys().filter(|(rule, ..)| rules.contains(rule));
            of.map(|&(rule, before, after)| if rule == Rule::Po3 { after } else { before }).collect()
        };
        let all: BTreeSet<_> = found.guardians.iter().map(|guardian| part(guardian.location)).collect();
        let of_reads: BTreeSet<_> =
            found.guardians.iter().filter(|guardian| guardian.of_reads).map(|guardian| part(guardian.location)).collect();
        prop_assert_eq!(all, sources(&[Rule::Po1, Rule::Po2, Rule::Po3]));
        prop_assert_eq!(of_reads, sources(&[Rule::Po3]));
    }
}
