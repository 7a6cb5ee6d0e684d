//! Conditions by source: fields, who stores to them, and where the hint is. Each is looked up once.

use std::ops::Deref;

use crashproof_finding::{Address, Frame, blamed};
use crashproof_stacks::{DeclaredHelpers, Stacks};
use crashproof_trace::StackId;
use rustc_hash::FxHashMap;

use crate::conditions::{Conditions, Rule};
use crate::listing::{Because, Group, Listed, Side};
use crate::location::LocationId;

/// Function, file and line, as far as they are known.
type SourceLine = (Option<String>, Option<String>, Option<u32>);

/// Names the conditions of a run; `C` is a reference to them.
pub struct Names<C> {
    conditions: C,
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

impl<C: Deref<Target = Conditions>> Names<C> {
    pub fn new(conditions: C, helpers: DeclaredHelpers) -> Names<C> {
        Names {
            conditions,
            stacks: Stacks::new(helpers),
            sites: FxHashMap::default(),
            site_numbers: FxHashMap::default(),
            frames: FxHashMap::default(),
            sides: FxHashMap::default(),
            side_numbers: FxHashMap::default(),
        }
    }

    fn frame(&mut self, stack: StackId) -> Option<Frame> {
        let (stacks, conditions) = (&mut self.stacks, &self.conditions);
        self.frames
            .entry(stack)
            .or_insert_with(|| {
                let frames = stacks.symbolize(stack, &conditions.tables).frames;
                blamed(&frames).or(frames.first()).cloned()
            })
            .clone()
    }

    pub(crate) fn site(&mut self, stack: StackId) -> u32 {
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
        let (_, levels) = self.conditions.fields.at(self.conditions.location(location));
        let field = self.conditions.fields.name(levels.first()?.field);
        Some(format!("{}.{}", field.ty, field.name))
    }

    fn writer(&self, location: LocationId) -> StackId {
        self.conditions.writers[location.index()]
    }

    pub(crate) fn is_unstored(&self, location: LocationId) -> bool {
        self.writer(location) == StackId(0) && self.field(location).is_none()
    }

    pub(crate) fn side(&mut self, location: LocationId) -> u32 {
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

    pub(crate) fn describe(&mut self, id: LocationId) -> Side {
        let location = self.conditions.location(id);
        let file = self.conditions.files.get(location.file.index()).cloned();
        Side {
            frame: self.frame(self.writer(id)),
            field: self.field(id),
            at: Address {
                file: file.unwrap_or_default(),
                offset: location.offset,
                length: location.len.into(),
            },
        }
    }

    pub(crate) fn listed(&mut self, rule: Rule, group: &Group, guardians: u64) -> Listed {
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

    /// One of [`Conditions::orders`].
    pub fn order(&mut self, number: usize) -> Listed {
        let order = self.conditions.orders[number];
        let group = Group {
            before: order.before,
            after: Some(order.after),
            dependent: order.dependent,
            source: order.source,
            count: order.count,
            pairs: 1,
        };
        self.listed(order.rule, &group, 0)
    }

    /// Two of [`Conditions::guardians`], which persist together: the first without the other.
    pub fn together(&mut self, number: usize, other: usize) -> Listed {
        let [(side, because, count), (after, of_other, _)] = [number, other].map(|number| {
            let guardian = self.conditions.guardians[number];
            let because = Because {
                frame: self.frame(guardian.dependent).unwrap_or_default(),
                source: self.frame(guardian.source),
            };
            (self.describe(guardian.location), because, guardian.dependents)
        });
        Listed {
            rule: Rule::Pa1.name(),
            text: crate::words::together((&side, &because), (&after, &of_other)),
            before: side,
            after: Some(after),
            because,
            count,
            pairs: 1,
        }
    }
}
