//! The conditions as people read them: by source, not by address. Conditions of the same rule, fields and source lines are one.

use std::cmp::Reverse;

use crashproof_finding::{Address, Frame};
use crashproof_stacks::DeclaredHelpers;
use crashproof_trace::StackId;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::conditions::{Conditions, Rule};
use crate::location::LocationId;
use crate::names::Names;

/// Locations that are named for having most dependents.
const BUSIEST: usize = 10;

/// A location, by what it is and who writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    /// The last store to it.
    #[serde(flatten)]
    pub frame: Option<Frame>,
    /// `type.field`, where the site tables know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// An example.
    pub at: Address,
}

/// What the code does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Because {
    /// The access that depends on another.
    #[serde(flatten)]
    pub frame: Frame,
    /// The load that it depends on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Frame>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    pub rule: &'static str,
    pub before: Side,
    /// Of PA1: none, because each guardian persists together with every other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Side>,
    pub because: Because,
    /// How often the code did it.
    pub count: u64,
    /// Pairs of locations; of PA1, locations.
    pub pairs: u64,
    /// In words.
    pub text: String,
}

/// One of the locations with most dependents.
#[derive(Clone, Debug, Serialize)]
pub struct Busy {
    #[serde(flatten)]
    pub side: Side,
    pub dependents: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct RuleCount {
    pub rule: &'static str,
    /// Of locations.
    pub conditions: u64,
    /// Of types and fields.
    pub lifted: u64,
    /// Lines of the list.
    pub listed: u64,
}

/// All of `crashproof infer`, as its JSON has it.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    pub conditions: Vec<Listed>,
    pub rules: Vec<RuleCount>,
    pub busiest: Vec<Busy>,
    pub accesses: u64,
    pub locations: u64,
    /// Labels of which members were cut off.
    pub cuts: u64,
    /// Dependences in a chain of PO3.
    pub depth: u32,
    pub warnings: Vec<String>,
}

/// What makes two conditions one line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    rule: Rule,
    before: u32,
    after: Option<u32>,
    because: (u32, u32),
}

#[derive(Clone, Copy)]
pub(crate) struct Group {
    pub before: LocationId,
    pub after: Option<LocationId>,
    pub dependent: StackId,
    pub source: StackId,
    pub count: u64,
    pub pairs: u64,
}

impl Listing {
    pub fn new(conditions: &Conditions, helpers: DeclaredHelpers) -> Listing {
        let mut names = Names::new(conditions, helpers);
        let mut groups: FxHashMap<Key, Group> = FxHashMap::default();
        let orders = conditions.orders.iter().map(|order| {
            let after = Some(order.after);
            (
                order.rule,
                order.before,
                after,
                order.dependent,
                order.source,
                order.count,
            )
        });
        let guardians = conditions.guardians.iter().map(|guardian| {
            let count = guardian.dependents;
            (
                Rule::Pa1,
                guardian.location,
                None,
                guardian.dependent,
                guardian.source,
                count,
            )
        });
        for (rule, before, after, dependent, source, count) in orders.chain(guardians) {
            let key = Key {
                rule,
                before: names.side(before),
                after: after.map(|after| names.side(after)),
                because: (names.site(dependent), names.site(source)),
            };
            let group = groups.entry(key).or_insert(Group {
                before,
                after,
                dependent,
                source,
                count: 0,
                pairs: 0,
            });
            group.count += count;
            group.pairs += 1;
        }
        let mut listed: Vec<(Key, Group)> = groups.into_iter().collect();
        // What no store of this run can violate comes last.
        listed.sort_by_key(|(key, group)| {
            let unstored = |side: Option<LocationId>| side.is_some_and(|side| names.is_unstored(side));
            (
                key.rule,
                unstored(Some(group.before)) || unstored(group.after),
                Reverse(group.count),
                group.before,
                group.after,
                group.dependent,
            )
        });
        let guardians = conditions.guardians.len() as u64;
        let listed: Vec<Listed> = listed
            .into_iter()
            .map(|(key, group)| names.listed(key.rule, &group, guardians))
            .collect();
        Listing {
            rules: Rule::ALL.map(|rule| count(rule, conditions, &listed)).into(),
            conditions: listed,
            busiest: busiest(conditions, &mut names),
            accesses: conditions.accesses,
            locations: conditions.locations.len() as u64,
            cuts: conditions.cuts,
            depth: crate::DEPTH,
            warnings: conditions.warnings.clone(),
        }
    }
}

fn count(rule: Rule, conditions: &Conditions, listed: &[Listed]) -> RuleCount {
    let lifted = match rule {
        Rule::Pa1 => conditions.lifted.guardians.len(),
        _ => conditions
            .lifted
            .orders
            .iter()
            .filter(|(order, _)| order.rule == rule)
            .count(),
    };
    RuleCount {
        rule: rule.name(),
        conditions: conditions.count(rule),
        lifted: lifted as u64,
        listed: listed.iter().filter(|line| line.rule == rule.name()).count() as u64,
    }
}

fn busiest(conditions: &Conditions, names: &mut Names<&Conditions>) -> Vec<Busy> {
    let mut dependents: FxHashMap<LocationId, u64> = FxHashMap::default();
    for order in &conditions.orders {
        *dependents.entry(order.source_location()).or_default() += 1;
    }
    let mut dependents: Vec<_> = dependents.into_iter().collect();
    dependents.sort_unstable_by_key(|&(location, count)| (Reverse(count), location));
    dependents.truncate(BUSIEST);
    let busy = dependents.into_iter().map(|(location, dependents)| Busy {
        side: names.describe(location),
        dependents,
    });
    busy.collect()
}
