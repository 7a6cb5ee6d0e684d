//! The conditions of a trace, found in one pass over it.

use std::path::PathBuf;

use crashproof_trace::{
    Dependence, EventKind, FileId, Item, PmAddress, ReadError, StackId, Tables, ThreadId, TraceFile,
};
use rustc_hash::FxHashMap;

use crate::closure::Loads;
use crate::fields::Fields;
use crate::lift::Lifting;
use crate::location::{Location, LocationId, Locations, split};
use crate::operations::{ByOperation, Summaries};

/// Pairs of words of two long accesses that are all looked at; beyond, a word is paired with its counterpart and with the ends.
const MOST_PAIRS: usize = 256;
/// Bytes of an access that are looked at: a copy of gigabytes has as many words as memory has room for, and says no more.
const LONGEST: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    Po1,
    Po2,
    Po3,
    Po4,
    Pa1,
}

impl Rule {
    pub const ALL: [Rule; 5] = [Rule::Po1, Rule::Po2, Rule::Po3, Rule::Po4, Rule::Pa1];

    /// As the paper has it.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Po1 => "PO1",
            Rule::Po2 => "PO2",
            Rule::Po3 => "PO3",
            Rule::Po4 => "PO4",
            Rule::Pa1 => "PA1",
        }
    }

    /// Whether the location that the hint reads is the one that must persist first.
    pub fn source_first(self) -> bool {
        matches!(self, Rule::Po1 | Rule::Po2)
    }
}

/// `before` must persist before `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub rule: Rule,
    pub before: LocationId,
    pub after: LocationId,
    /// How often the hint was seen.
    pub count: u64,
    /// Of the first hint: the access that depends, and the load that it depends on.
    pub dependent: StackId,
    pub source: StackId,
}

impl Order {
    /// What the hint reads first and decides by.
    pub fn source_location(&self) -> LocationId {
        if self.rule.source_first() {
            self.before
        } else {
            self.after
        }
    }
}

/// A location that something depends on: all of them persist together (PA1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guardian {
    pub location: LocationId,
    /// Reads depend on it (PO3), as in the paper; else only writes (PO1, PO2).
    pub of_reads: bool,
    /// Conditions that have it as their source.
    pub dependents: u64,
    /// Of the first hint.
    pub dependent: StackId,
    pub source: StackId,
}

#[derive(Debug, thiserror::Error)]
pub enum InferError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(
        "the trace {} has no dependences, so that nothing can be inferred from it: build the program with `crashproof cc --deps` \
         (CC='crashproof cc --deps' make), and record it again with `crashproof record`",
        path.display()
    )]
    NoDependences { path: PathBuf },
}

/// What a run of a program says that it relies on.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Paths of the PM files, by `FileId` in the locations.
    pub files: Vec<String>,
    /// By `LocationId`.
    pub locations: Vec<Location>,
    /// By rule, then in the order in which they were first seen.
    pub orders: Vec<Order>,
    pub guardians: Vec<Guardian>,
    /// The same for types and fields.
    pub lifted: Lifting,
    pub operations: ByOperation,
    /// Accesses of the trace that say what they depend on, loads and stores.
    pub accesses: u64,
    /// Labels that had more members than are kept.
    pub cuts: u64,
    /// The last store to each location: its call path.
    pub(crate) writers: Vec<StackId>,
    /// The field of each location.
    pub(crate) fields: Fields,
    pub(crate) tables: Tables,
    pub warnings: Vec<String>,
}

impl Conditions {
    /// Infers the conditions of a trace that was recorded with dependences.
    pub fn infer(trace: &TraceFile) -> Result<Conditions, InferError> {
        let mut reader = trace.files()?;
        let mut finder = Finder::default();
        let mut summaries = Summaries::new(trace.boundaries());
        let mut depends = Vec::new();
        while let Some(item) = reader.next()? {
            let Item::Event(event) = item else { continue };
            summaries.event(&event);
            match event.kind {
                EventKind::Access {
                    store,
                    node,
                    at,
                    len,
                    depends: on,
                } => {
                    depends.clear();
                    depends.extend(on.iter());
                    finder.access(&Access {
                        thread: event.thread,
                        stack: event.stack,
                        store,
                        node,
                        at,
                        len,
                        depends: &depends,
                    });
                }
                EventKind::Store { at, data, .. } => finder.store(at, data.len() as u64, event.stack),
                EventKind::Path { .. } => finder.end_operation(event.thread),
                _ => {}
            }
        }
        if finder.accesses == 0 {
            return Err(InferError::NoDependences {
                path: trace.path().into(),
            });
        }
        let fields = Fields::read(trace)?;
        let mut conditions = finder.finish();
        conditions.cuts = summaries.cuts;
        conditions.operations = summaries.finish();
        conditions.lifted = Lifting::new(&conditions, &fields);
        conditions.files = reader.tables().files.iter().map(|file| file.path.clone()).collect();
        conditions.warnings.extend(fields.warnings.iter().cloned());
        let incomplete = trace.outline().incomplete.iter();
        conditions
            .warnings
            .extend(incomplete.map(|why| format!("the trace is incomplete: {}", why.detail)));
        conditions.fields = fields;
        conditions.tables = reader.tables().clone();
        Ok(conditions)
    }

    pub fn location(&self, id: LocationId) -> Location {
        self.locations[id.index()]
    }

    /// Number of conditions of a rule; of PA1, the guardians.
    pub fn count(&self, rule: Rule) -> u64 {
        match rule {
            Rule::Pa1 => self.guardians.len() as u64,
            _ => self.orders.iter().filter(|order| order.rule == rule).count() as u64,
        }
    }
}

/// An access, as a recorder saw it.
pub(crate) struct Access<'a> {
    pub thread: ThreadId,
    pub stack: StackId,
    pub store: bool,
    pub node: u64,
    pub at: PmAddress,
    pub len: u32,
    pub depends: &'a [Dependence],
}

/// How often a hint was seen, and where first.
#[derive(Clone, Copy)]
struct Seen {
    count: u64,
    dependent: StackId,
    source: StackId,
}

/// Keeps what has been seen so far.
#[derive(Default)]
pub(crate) struct Finder {
    locations: Locations,
    loads: Loads,
    /// By rule: (before, after).
    orders: [FxHashMap<(LocationId, LocationId), Seen>; 4],
    writers: FxHashMap<(FileId, u64), Vec<(u8, StackId)>>,
    guards: Vec<u64>,
    pub accesses: u64,
}

impl Finder {
    pub(crate) fn access(&mut self, access: &Access<'_>) {
        self.accesses += 1;
        let locations: Vec<LocationId> = split(access.at, u64::from(access.len).min(LONGEST))
            .map(|location| self.locations.id(location))
            .collect();
        if access.store {
            for on in access.depends {
                let rule = if on.control { Rule::Po2 } else { Rule::Po1 };
                self.hint(rule, &locations, access.stack, on.node);
            }
            return;
        }
        for on in access.depends.iter().filter(|on| !on.control) {
            self.hint(Rule::Po4, &locations, access.stack, on.node);
        }
        let mut guards = std::mem::take(&mut self.guards);
        guards.clear();
        self.loads.guards(access.depends, &mut guards);
        for &node in &guards {
            self.hint(Rule::Po3, &locations, access.stack, node);
        }
        self.guards = guards;
        self.loads
            .add(access.node, access.thread, access.stack, locations, access.depends);
    }

    /// An access to these locations depends on that load.
    fn hint(&mut self, rule: Rule, dependents: &[LocationId], stack: StackId, node: u64) {
        let Some(load) = self.loads.get(node) else { return };
        let seen = &mut self.orders[rule as usize];
        let locations = &self.locations.list;
        let mut pair = |dependent: LocationId, source: LocationId| {
            if locations[dependent.index()].overlaps(locations[source.index()]) {
                return;
            }
            let order = if rule.source_first() {
                (source, dependent)
            } else {
                (dependent, source)
            };
            seen.entry(order)
                .or_insert(Seen {
                    count: 0,
                    dependent: stack,
                    source: load.stack,
                })
                .count += 1;
        };
        let sources = &load.locations;
        if dependents.len() * sources.len() <= MOST_PAIRS {
            for &dependent in dependents {
                for &source in sources {
                    pair(dependent, source);
                }
            }
            return;
        }
        for (index, &dependent) in dependents.iter().enumerate() {
            let last = sources.len() - 1;
            let mut counterparts = [0, index.min(last), last].to_vec();
            counterparts.dedup();
            counterparts.into_iter().for_each(|at| pair(dependent, sources[at]));
        }
        for &source in sources.iter().skip(dependents.len()) {
            pair(dependents[0], source);
        }
    }

    pub(crate) fn store(&mut self, at: PmAddress, len: u64, stack: StackId) {
        for part in split(at, len) {
            let writers = self.writers.entry(part.word()).or_default();
            // Only who wrote some byte last.
            let mask = part.mask();
            for (bytes, _) in writers.iter_mut() {
                *bytes &= !mask;
            }
            writers.retain(|(bytes, _)| *bytes != 0);
            writers.push((mask, stack));
        }
    }

    pub(crate) fn end_operation(&mut self, thread: ThreadId) {
        self.loads.end_operation(thread);
    }

    pub(crate) fn finish(self) -> Conditions {
        // There may be tens of millions: each map is gone before the next is taken.
        let mut orders = Vec::with_capacity(self.orders.iter().map(FxHashMap::len).sum());
        for (rule, seen) in Rule::ALL.into_iter().zip(self.orders) {
            orders.extend(seen.into_iter().map(|((before, after), seen)| Order {
                rule,
                before,
                after,
                count: seen.count,
                dependent: seen.dependent,
                source: seen.source,
            }));
        }
        // Locations are numbered in the order in which they were first accessed.
        orders.sort_unstable_by_key(|order| (order.rule, order.after, order.before));
        let writer = |location: &Location| {
            let writers = self.writers.get(&location.word()).into_iter().flatten();
            let mut overlapping = writers.filter(|(bytes, _)| bytes & location.mask() != 0);
            overlapping.next_back().map_or(StackId(0), |&(_, stack)| stack)
        };
        let writers = self.locations.list.iter().map(writer).collect();
        Conditions {
            guardians: guardians(&orders),
            locations: self.locations.list,
            orders,
            writers,
            accesses: self.accesses,
            ..Conditions::default()
        }
    }
}

/// The sources of all rules but PO4, in the order of their locations.
fn guardians(orders: &[Order]) -> Vec<Guardian> {
    let mut guardians: FxHashMap<LocationId, Guardian> = FxHashMap::default();
    for order in orders.iter().filter(|order| order.rule != Rule::Po4) {
        let of_reads = order.rule == Rule::Po3;
        let guardian = guardians.entry(order.source_location()).or_insert(Guardian {
            location: order.source_location(),
            of_reads,
            dependents: 0,
            dependent: order.dependent,
            source: order.source,
        });
        guardian.dependents += 1;
        if of_reads && !guardian.of_reads {
            (guardian.dependent, guardian.source) = (order.dependent, order.source);
            guardian.of_reads = true;
        }
    }
    let mut guardians: Vec<Guardian> = guardians.into_values().collect();
    guardians.sort_unstable_by_key(|guardian| guardian.location);
    guardians
}
