//! The conditions as people read them: by source, not by address. Conditions of the same rule, fields and source lines are one.

use std::cmp::Reverse;

use crashproof_report::{Frame, innermost_position};
use crashproof_stacks::Stacks;
use crashproof_trace::StackId;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::conditions::{Conditions, Rule};
use crate::location::LocationId;

/// Locations that are named for having most dependents.
const BUSIEST: usize = 10;

/// A location, by what it is and who writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Side {
    /// The last store to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<Frame>,
    /// `type.field`, where the site tables know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// An example: file and offset.
    pub file: String,
    pub offset: u64,
    pub length: u64,
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
struct Group {
    before: LocationId,
    after: Option<LocationId>,
    dependent: StackId,
    source: StackId,
    count: u64,
    pairs: u64,
}

impl Listing {
    pub fn new(conditions: &Conditions) -> Listing {
        let mut names = Names::new(conditions);
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

fn busiest(conditions: &Conditions, names: &mut Names<'_>) -> Vec<Busy> {
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

/// Function, file and line, as far as they are known.
type SourceLine = (Option<String>, Option<String>, Option<u32>);

/// Fields and source positions, each found once.
struct Names<'a> {
    conditions: &'a Conditions,
    stacks: Stacks,
    /// By stack: a number that stacks of one source line share.
    sites: FxHashMap<StackId, u32>,
    site_numbers: FxHashMap<Option<SourceLine>, u32>,
    frames: FxHashMap<StackId, Option<Frame>>,
    /// By location: a number that those of one field, else of one writer, share.
    sides: FxHashMap<LocationId, u32>,
    side_numbers: FxHashMap<SideKey, u32>,
}

#[derive(PartialEq, Eq, Hash)]
enum SideKey {
    Field(String),
    Writer(u32),
    /// Constrains nothing in this run.
    Nobody,
}

impl<'a> Names<'a> {
    fn new(conditions: &'a Conditions) -> Names<'a> {
        Names {
            conditions,
            stacks: Stacks::default(),
            sites: FxHashMap::default(),
            site_numbers: FxHashMap::default(),
            frames: FxHashMap::default(),
            sides: FxHashMap::default(),
            side_numbers: FxHashMap::default(),
        }
    }

    fn frame(&mut self, stack: StackId) -> Option<Frame> {
        let (stacks, tables) = (&mut self.stacks, &self.conditions.tables);
        self.frames
            .entry(stack)
            .or_insert_with(|| {
                let frames = stacks.symbolize(stack, tables).frames;
                innermost_position(&frames).or(frames.first()).cloned()
            })
            .clone()
    }

    fn site(&mut self, stack: StackId) -> u32 {
        if let Some(&known) = self.sites.get(&stack) {
            return known;
        }
        let place = self.frame(stack).map(|frame| match frame.has_position() {
            true => (frame.function, frame.file, frame.line),
            false => (frame.function, frame.module, Some(frame.address as u32)),
        });
        let next = self.site_numbers.len() as u32;
        let number = *self.site_numbers.entry(place).or_insert(next);
        self.sites.insert(stack, number);
        number
    }

    /// `type.field` of the innermost type.
    fn field(&self, location: LocationId) -> Option<String> {
        let levels = self.conditions.fields.at(self.conditions.location(location));
        let field = self.conditions.fields.name(levels.first()?.field);
        Some(format!("{}.{}", field.ty, field.name))
    }

    fn writer(&self, location: LocationId) -> StackId {
        self.conditions.writers[location.index()]
    }

    fn is_unstored(&self, location: LocationId) -> bool {
        self.writer(location) == StackId(0) && self.field(location).is_none()
    }

    fn side(&mut self, location: LocationId) -> u32 {
        if let Some(&known) = self.sides.get(&location) {
            return known;
        }
        let writer = self.writer(location);
        let key = match self.field(location) {
            Some(field) => SideKey::Field(field),
            None if writer == StackId(0) => SideKey::Nobody,
            None => SideKey::Writer(self.site(writer)),
        };
        let next = self.side_numbers.len() as u32;
        let number = *self.side_numbers.entry(key).or_insert(next);
        self.sides.insert(location, number);
        number
    }

    fn describe(&mut self, id: LocationId) -> Side {
        let location = self.conditions.location(id);
        let file = self.conditions.files.get(location.file.index());
        Side {
            frame: self.frame(self.writer(id)),
            field: self.field(id),
            file: file.cloned().unwrap_or_default(),
            offset: location.offset,
            length: location.len.into(),
        }
    }

    fn listed(&mut self, rule: Rule, group: &Group, guardians: u64) -> Listed {
        let because = Because {
            frame: self.frame(group.dependent).unwrap_or_default(),
            source: self.frame(group.source),
        };
        let (before, after) = (
            self.describe(group.before),
            group.after.map(|after| self.describe(after)),
        );
        Listed {
            rule: rule.name(),
            text: crate::words::condition(rule, &before, after.as_ref(), &because, guardians),
            before,
            after,
            because,
            count: group.count,
            pairs: group.pairs,
        }
    }
}
