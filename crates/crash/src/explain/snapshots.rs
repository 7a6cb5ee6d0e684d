//! Stores that a transaction of libpmemobj should have covered and did not (no snapshot, not a new object), as the reason why a
//! state fails.
//!
//! What a transaction covers persists with it or is rolled back with it. What it does not cover stays when the rest is rolled
//! back, and nobody flushes it when the rest is committed. So whether a missing snapshot is why a state fails is a question of a
//! few runs: the state still fails when only stores of that object and stores of libpmemobj are missing (and what cannot persist
//! without them), and it recovers when the object's uncovered stores are all taken out (the transaction is rolled back) or all put
//! in (it has committed).
//!
//! This comes before the general reduction, which would name an order between a store of the program and one of libpmemobj's own
//! log: right, and no use to anybody.

use std::collections::{BTreeMap, BTreeSet};

use crashproof_finding::Kind;
use crashproof_replay::{Mappings, TransactionChange, TransactionId, Transactions};
use crashproof_stacks::{Origin, Stacks};
use crashproof_trace::{Event, EventKind, PmAddress, ProcessId, StackId, Tables};

use super::ExplainError;
use super::cause::{Cause, Closed, Form, Investigation, Subject};
use super::history::Index;
use super::places::WrittenObject;

/// Transactions that one state is held against, the latest first.
const MOST_TRANSACTIONS: usize = 4;
/// Objects of one transaction that one state is held against.
const MOST_OBJECTS: usize = 16;
/// Uncovered stores of an open transaction for which a later snapshot is looked out for.
const MOST_AWAITED: usize = 1024;

/// A transaction of the trace: the number of the event that began it, and which it was.
pub(super) type TransactionNumber = u32;

struct Recorded {
    id: TransactionId,
    began: Option<StackId>,
    /// The first change that comes after its beginning, and after its end.
    first: Index,
    end: Option<Index>,
}

/// Follows the transactions of the trace as the window moves over it.
#[derive(Default)]
pub(super) struct Snapshots {
    transactions: Transactions,
    mappings: Mappings,
    stacks: Stacks,
    recorded: Vec<Recorded>,
    /// Those that have not ended.
    open: Vec<TransactionNumber>,
    /// Uncovered stores that no snapshot has followed yet: of which transaction, and where.
    awaited: Vec<(TransactionNumber, Index, PmAddress, u64)>,
    /// Uncovered stores of the window.
    uncovered: BTreeMap<Index, TransactionNumber>,
    /// Where the range was snapshotted when it was too late.
    late: BTreeMap<Index, StackId>,
}

impl Snapshots {
    /// The trace is read again from its start.
    pub(super) fn restart(&mut self) {
        let stacks = std::mem::take(&mut self.stacks);
        *self = Snapshots {
            stacks,
            ..Snapshots::default()
        };
    }

    /// The window begins later now.
    pub(super) fn cut(&mut self, first: Index) {
        self.uncovered = self.uncovered.split_off(&first);
        self.late = self.late.split_off(&first);
        self.awaited.retain(|&(_, index, ..)| index >= first);
    }

    /// Takes in an event; `changes` are the numbers of the changes that it makes.
    pub(super) fn event(&mut self, event: &Event<'_>, tables: &Tables, changes: std::ops::Range<Index>) {
        let process = tables.process_of(event.thread).unwrap_or(ProcessId(0));
        self.mappings.event(process, &event.kind);
        let Snapshots {
            transactions,
            mappings,
            stacks,
            ..
        } = self;
        if let EventKind::Store { at, data, flags } = event.kind {
            let is_by_program = || stacks.is_by_program(event.stack, tables);
            if !flags.syscall && transactions.should_cover(event.thread.0, at, data.len() as u64, is_by_program) {
                self.note_uncovered(event, at, data.len() as u64, changes);
            }
            return;
        }
        let is_by_program = || stacks.origin(event.stack, tables) == Origin::Program;
        let change = transactions.event(event, process, mappings, is_by_program);
        match change {
            TransactionChange::Ended { id, .. } => {
                if let Some(at) = self.position(id) {
                    let number = self.open.remove(at);
                    self.recorded[number as usize].end = Some(changes.start);
                    self.awaited.retain(|&(of, ..)| of != number);
                }
            }
            TransactionChange::Asked { at, len, .. } => {
                let Some(number) = self.number_of(event.thread.0) else {
                    return;
                };
                let (start, end) = (at.offset, at.offset.saturating_add(len));
                let is_about = |&(of, _, stored, length): &(TransactionNumber, Index, PmAddress, u64)| {
                    of == number && stored.file == at.file && stored.offset < end && start < stored.offset + length
                };
                for (_, index, ..) in self.awaited.iter().filter(|awaited| is_about(awaited)) {
                    self.late.insert(*index, event.stack);
                }
                self.awaited.retain(|awaited| !is_about(awaited));
            }
            _ => {}
        }
    }

    fn position(&self, id: TransactionId) -> Option<usize> {
        self.open
            .iter()
            .position(|&number| self.recorded[number as usize].id == id)
    }

    fn number_of(&self, thread: u32) -> Option<TransactionNumber> {
        let at = self.position(self.transactions.id_of(thread)?)?;
        Some(self.open[at])
    }

    fn note_uncovered(&mut self, event: &Event<'_>, at: PmAddress, len: u64, changes: std::ops::Range<Index>) {
        let thread = event.thread.0;
        let Some(id) = self.transactions.id_of(thread) else {
            return;
        };
        let number = self.number_of(thread).unwrap_or_else(|| {
            let number = self.recorded.len() as TransactionNumber;
            self.recorded.push(Recorded {
                id,
                began: self.transactions.of(thread).and_then(|t| t.begin()),
                first: changes.start,
                end: None,
            });
            self.open.push(number);
            number
        });
        if self.awaited.len() < MOST_AWAITED {
            self.awaited.push((number, changes.start, at, len));
        }
        self.uncovered.extend(changes.map(|index| (index, number)));
    }

    fn is_at_work(&self, number: TransactionNumber, point: Index) -> bool {
        self.recorded[number as usize].end.is_none_or(|end| end >= point)
    }

    /// Transactions with uncovered stores before `point`, the latest first, of those that are at work there or of which `missing` has
    /// such a store.
    fn lacking(&self, point: Index, missing: &[Index]) -> Vec<TransactionNumber> {
        let mut found: Vec<TransactionNumber> = Vec::new();
        for (index, &number) in self.uncovered.range(..point).rev() {
            let relevant = self.is_at_work(number, point) || missing.binary_search(index).is_ok();
            if relevant && !found.contains(&number) {
                found.push(number);
                if found.len() == MOST_TRANSACTIONS {
                    break;
                }
            }
        }
        found
    }

    fn stores_of(&self, number: TransactionNumber, point: Index) -> Vec<Index> {
        let first = self.recorded[number as usize].first;
        let stores = self.uncovered.range(first..point);
        stores
            .filter(|(_, of)| **of == number)
            .map(|(&index, _)| index)
            .collect()
    }
}

/// A snapshot that a transaction lacks, whatever the store that shows it: told apart by the object, and by the function that stores to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LackingSnapshot {
    /// Where the transaction began, and where it took the snapshot if that was after the store.
    pub(crate) began: Option<StackId>,
    pub(crate) late: Option<StackId>,
    /// Objects, with the transaction that stored to them.
    objects: BTreeSet<(TransactionNumber, u32, u64)>,
    writers: BTreeSet<Writer>,
}

/// Who stores to such an object. What is not known is not the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    /// A function, and the type of the object. Of unknown types a function stores to one: its transaction lacks one snapshot
    /// in it, or several that are to be added together.
    Function(String, Option<String>),
    Stack(StackId),
}

impl LackingSnapshot {
    /// Whether one snapshot in the source would be both.
    pub(crate) fn is_same(&self, other: &LackingSnapshot) -> bool {
        !self.objects.is_disjoint(&other.objects) || !self.writers.is_disjoint(&other.writers)
    }

    /// Takes in one that is the same.
    pub(crate) fn extend(&mut self, other: &LackingSnapshot) {
        self.objects.extend(&other.objects);
        self.writers.extend(other.writers.iter().cloned());
    }
}

/// Uncovered stores that are why a state fails.
pub(crate) struct Suspect {
    subject: Subject,
    pub(crate) snapshot: LackingSnapshot,
    /// Missing from every image, because they have to do with another cause.
    pub(crate) kept: BTreeSet<Index>,
    /// Those of one object, before the crash.
    stores: Vec<Index>,
    /// What has to be missing for the state to fail, as far as it may matter: stores of the object, and of libpmemobj.
    missing: Vec<Index>,
    /// It recovers without the stores; else with all of them.
    rolled_back: bool,
    /// The first change after the transaction.
    end: Option<Index>,
}

impl Suspect {
    /// The state that fails.
    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }
}

impl Investigation<'_> {
    /// The uncovered stores that are why the state fails, if they are. It has a budget of its own.
    pub(crate) fn suspect(&mut self, subject: &Subject) -> Result<Option<Suspect>, ExplainError> {
        let mut own = Investigation::new(self.lab, self.places);
        own.keep_missing(&self.kept);
        own.find_suspect(subject)
    }

    fn find_suspect(&mut self, subject: &Subject) -> Result<Option<Suspect>, ExplainError> {
        let mut late = Vec::new();
        for number in self.lab.snapshots().lacking(subject.point, &subject.missing) {
            let Recorded { first, end, .. } = self.lab.snapshots().recorded[number as usize];
            let is_at_work = self.lab.snapshots().is_at_work(number, subject.point);
            self.lab.reach_back(first)?;
            let uncovered = self.lab.snapshots().stores_of(number, subject.point);
            for (snapshot, stores) in self.by_object(number, subject.point).into_iter().take(MOST_OBJECTS) {
                let suspect = |(missing, rolled_back)| Suspect {
                    subject: subject.clone(),
                    snapshot: snapshot.clone(),
                    kept: BTreeSet::new(),
                    stores: stores.clone(),
                    missing,
                    rolled_back,
                    end,
                };
                if let Some(found) = self.heals(subject, &stores, &uncovered, is_at_work)? {
                    return Ok(Some(self.with_kept(suspect(found))));
                }
                if is_at_work && snapshot.late.is_some() {
                    late.push((first, suspect((Vec::new(), true))));
                }
            }
        }
        // These are not tried by taking their stores out, so what can be comes first.
        for (first, suspect) in late {
            if self.is_rolled_forward(subject, first, &suspect.stores)? {
                return Ok(Some(self.with_kept(suspect)));
            }
        }
        Ok(None)
    }

    fn with_kept(&self, suspect: Suspect) -> Suspect {
        Suspect {
            kept: self.kept.clone(),
            ..suspect
        }
    }

    /// A snapshot that comes after the store holds the store, and a rollback brings it back, whether it is taken out or not. A
    /// rollback would lead to where the transaction began, with these stores: whether that fails, and not without them.
    fn is_rolled_forward(&mut self, subject: &Subject, first: Index, stores: &[Index]) -> Result<bool, ExplainError> {
        let (here, before) = (self.without(subject, []), self.prefix(first));
        let mut with_them = before.clone();
        with_them.extra.extend(stores);
        Ok(self.still_fails(&here)? && self.recovers(&before)? && self.still_fails(&with_them)?)
    }

    /// Of the missing stores those that are to stay missing, with what cannot persist without them.
    fn closed(&self, missing: &[Index], stays: impl Fn(Index) -> bool) -> Vec<Index> {
        let mut persisted: Vec<bool> = missing.iter().map(|&index| !stays(index)).collect();
        self.lab.order(missing).lower(&mut persisted);
        let flags = missing.iter().zip(persisted);
        flags
            .filter(|(_, persisted)| !persisted)
            .map(|(&index, _)| index)
            .collect()
    }

    /// What is still missing if some of the missing stores have persisted, with what they cannot persist without.
    fn missing_but(&self, missing: &[Index], persists: impl Fn(Index) -> bool) -> Vec<Index> {
        let mut persisted: Vec<bool> = missing.iter().map(|&index| persists(index)).collect();
        self.lab.order(missing).raise(&mut persisted);
        let flags = missing.iter().zip(persisted);
        flags
            .filter(|(_, persisted)| !persisted)
            .map(|(&index, _)| index)
            .collect()
    }

    /// Whether the state fails because of these stores of one object: what else has to be missing, and whether it recovers without the
    /// stores, or with all of them. `uncovered`: all such stores of the transaction.
    fn heals(
        &mut self,
        subject: &Subject,
        stores: &[Index],
        uncovered: &[Index],
        is_at_work: bool,
    ) -> Result<Option<(Vec<Index>, bool)>, ExplainError> {
        let is_its = |index: Index| stores.binary_search(&index).is_ok();
        let library: BTreeSet<Index> = subject
            .missing
            .iter()
            .copied()
            .filter(|&index| self.is_library(index))
            .collect();
        let missing = self.closed(&subject.missing, |index| is_its(index) || library.contains(&index));
        let state = self.without(subject, missing.iter().copied());
        if !self.still_fails(&state)? {
            return Ok(None);
        }
        // The log can be valid.
        let is_valid = is_at_work || missing.iter().any(|&index| !is_its(index));
        let rolled_back = self.without(subject, missing.iter().chain(stores).copied());
        if is_at_work && rolled_back != state && self.recovers(&rolled_back)? {
            return Ok(Some((missing, true)));
        }
        let persisted = self.without(subject, self.missing_but(&missing, is_its));
        if persisted != state && self.recovers(&persisted)? {
            // If a rollback of all that is uncovered recovers, the log is valid, and other objects lack a snapshot, too.
            let all = self.without(subject, missing.iter().chain(uncovered).copied());
            return match is_at_work && self.recovers(&all)? {
                true => Ok(None),
                false => Ok(Some((missing, false))),
            };
        }
        let recovers = !is_at_work && is_valid && rolled_back != state && self.recovers(&rolled_back)?;
        Ok(recovers.then_some((missing, true)))
    }

    /// The uncovered stores of a transaction, by object.
    fn by_object(&mut self, number: TransactionNumber, point: Index) -> Vec<(LackingSnapshot, Vec<Index>)> {
        let mut groups: Vec<(LackingSnapshot, Vec<Index>)> = Vec::new();
        for index in self.lab.snapshots().stores_of(number, point) {
            let change = self.lab.change(index);
            let at = (change.file, change.data().map_or(0, |(offset, _)| offset));
            let stack = change.stack;
            let WrittenObject { function, ty, distance } = self.places.written_object(change, self.lab.tables());
            let object = distance.and_then(|distance| Some((number, at.0 as u32, at.1.checked_sub(distance)?)));
            let snapshots = self.lab.snapshots();
            let lacking = LackingSnapshot {
                began: snapshots.recorded[number as usize].began,
                late: snapshots.late.get(&index).copied(),
                objects: object.into_iter().collect(),
                writers: [function.map_or(Writer::Stack(stack), |function| Writer::Function(function, ty))].into(),
            };
            let same_object = |group: &&mut (LackingSnapshot, Vec<Index>)| match object {
                Some(object) => group.0.objects.contains(&object),
                None => group.0.objects.is_empty() && group.0.is_same(&lacking),
            };
            match groups.iter_mut().find(same_object) {
                Some((known, stores)) => {
                    known.extend(&lacking);
                    known.late = known.late.or(lacking.late);
                    stores.push(index);
                }
                None => groups.push((lacking, vec![index])),
            }
        }
        groups
    }

    /// A state that fails for want of a snapshot, reduced.
    pub(crate) fn lacking_snapshot(&mut self, suspect: Suspect) -> Result<Cause, ExplainError> {
        let Suspect {
            subject,
            snapshot,
            kept: _,
            stores,
            missing,
            rolled_back,
            end,
        } = suspect;
        // Stores of libpmemobj alone are no reason.
        let rolled_back_helps = rolled_back && !missing.is_empty();
        // A later transaction can have the object in its log, and more has to be missing then.
        let is_its = |index: Index| stores.binary_search(&index).is_ok();
        let committed = end.filter(|&end| end < subject.point && missing.iter().any(|&index| is_its(index)));
        let committed = committed.map(|end| {
            let committed = self.until(&subject, end);
            let own = self.closed(&committed.missing, is_its);
            (committed, own)
        });
        let (subject, missing) = match committed {
            Some((committed, own)) if self.still_fails(&self.without(&committed, own.iter().copied()))? => {
                (committed, own)
            }
            _ => (subject, missing),
        };
        let subject = &subject;
        let missing = self.fewest(&missing, Closed::Missing, |this, set| {
            let state = this.without(subject, set.iter().copied());
            let rolled_back = this.without(subject, set.iter().chain(&stores).copied());
            let is_about_them = match rolled_back_helps {
                true => this.recovers(&rolled_back)?,
                false => set.iter().any(|&index| is_its(index)),
            };
            Ok(is_about_them && this.still_fails(&state)?)
        })?;
        let candidates: Vec<Index> = stores.into_iter().filter(|index| !missing.contains(index)).collect();
        let taken_out = |this: &Self, set: &[Index]| this.without(subject, missing.iter().chain(set).copied());
        let all = taken_out(self, &candidates);
        let persisted = match (rolled_back || missing.is_empty()) && self.recovers(&all)? {
            true => self.fewest(&candidates, Closed::Any, |this, set| {
                let state = taken_out(this, set);
                this.recovers(&state)
            })?,
            false if missing.is_empty() => candidates,
            false => Vec::new(),
        };
        let uncertain = !persisted.is_empty()
            && persisted
                .iter()
                .all(|index| subject.persisted.binary_search(index).is_ok());
        let cause = Cause {
            kind: Kind::CrashAtomicity,
            form: Form::Lost,
            missing,
            persisted,
            state: self.state(subject),
            uncertain,
            aside: Vec::new(),
            snapshot: Some(snapshot),
        };
        match cause.missing.is_empty() {
            true => self.until_committed(cause, subject),
            false => self.at_the_earliest(cause, subject),
        }
    }

    /// The program's prefix fails: from just after the last store that matters, until the transaction has committed.
    fn until_committed(&mut self, cause: Cause, subject: &Subject) -> Result<Cause, ExplainError> {
        let after = cause.persisted.last().map_or(subject.point, |last| last + 1);
        let earliest = self.prefix(after);
        let start = match self.still_fails(&earliest)? {
            true => after,
            false => subject.point,
        };
        let end = self.recovered(start)?;
        Ok(Cause {
            form: Form::Between(start, end.map_or(subject.point, |end| end + 1)),
            missing: end.into_iter().collect(),
            state: self.prefix(start),
            ..cause
        })
    }

    /// Stores are missing: at the earliest crash that fails for want of them.
    fn at_the_earliest(&mut self, cause: Cause, subject: &Subject) -> Result<Cause, ExplainError> {
        let missing: BTreeSet<Index> = cause.missing.iter().copied().collect();
        let last = cause
            .missing
            .iter()
            .chain(&cause.persisted)
            .max()
            .map_or(0, |last| last + 1);
        let turn = self.turn(last.max(self.lab.floor()), subject.point, &missing)?;
        let earliest = match turn {
            Some(change) => self.until(subject, change + 1),
            None => subject.clone(),
        };
        let state = self.without(&earliest, cause.missing.iter().copied());
        Ok(Cause { state, ..cause })
    }

    /// Whether libpmemobj made the change on its own account.
    fn is_library(&mut self, index: Index) -> bool {
        let change = self.lab.change(index);
        change.is_store() && self.places.is_library(change.stack, self.lab.tables())
    }
}
