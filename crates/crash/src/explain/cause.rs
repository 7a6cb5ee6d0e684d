//! Why a crash state fails: which stores are missing in it, which had persisted all the same, and whether an order of the
//! two would have prevented it.
//!
//! There are two forms. If the program's own prefix recovers, something is *lost*: the fewest missing stores M with which
//! everything else still fails, at the earliest crash, and the persisted ones A, mostly one, without which it recovers. If the prefix itself fails,
//! nothing is lost that was stored: the program is between two updates, A is the one that made the prefix fail, and M
//! comes later, the fewest stores that make it recover again.
//!
//! In both forms the question is then what the image does with M and without A. If it recovers, the order "M persists
//! before A" prevents the failure; if not, neither order does, and the updates have to be one. If the same image passes when
//! the program has output less, what it acknowledged is lost.
//!
//! Two bugs can overlap: while the prefix fails because of one, no state near it shows the other by itself. If the A of the
//! first is among what the state misses, the first is not why it fails; if not, the state fails for another reason as well if
//! it fails both with the first one's M and without its A ([`Investigation::beyond`]). In both cases A is kept missing from
//! every image that is tried.
//!
//! What may be wrong: these are statements about the recovery's verdict on images, found with few runs. A state with several
//! missing sets of stores, each of which makes it fail, is given to one of them; the others show in states of their own.

use std::collections::BTreeSet;

use crashproof_finding::Kind;
use crashproof_model::Order;

use super::ExplainError;
use super::history::{Index, Laboratory, State, What};
use super::places::{Places, SpotId};
use super::shrink::{Items, minimise};
use super::snapshots::LackingSnapshot;

/// A recovery that hangs takes its whole time limit: after so many hangs, what has been reduced is left as it is.
const MAX_HANGS: u32 = 24;
/// As much for reductions of many stores that all matter: a cause is to take seconds.
const MAX_RUNS: u32 = 400;

/// So many changes before or after a crash are near it.
const SOON: usize = 1 << 10;

/// The two forms of a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Stores that had been executed are missing.
    Lost,
    /// The program's prefix fails from just after the first of these changes to just before the second.
    Between(Index, Index),
}

/// Why a state fails.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub kind: Kind,
    pub form: Form,
    /// Ascending.
    pub missing: Vec<Index>,
    pub persisted: Vec<Index>,
    /// The failing state, reduced to what matters; the model allows it.
    pub state: State,
    /// All of `persisted` was uncertain at the crash, so a state with this cause has it among what had persisted.
    pub uncertain: bool,
    /// It was found with these taken as not persisted, although in `state` they are: they have to do with another cause.
    pub aside: Vec<Index>,
    /// The snapshot that would have prevented it.
    pub(crate) snapshot: Option<LackingSnapshot>,
}

impl Cause {
    /// The reduced state as one that fails.
    pub(super) fn subject(&self) -> Subject {
        Subject {
            point: self.state.point,
            output: self.state.output,
            persisted: Vec::new(),
            missing: self.state.missing.iter().copied().collect(),
        }
    }
}

/// A failing state, as changes of the laboratory's window, ascending.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub point: Index,
    pub output: u64,
    pub persisted: Vec<Index>,
    pub missing: Vec<Index>,
}

pub(super) struct Investigation<'a> {
    pub lab: &'a mut Laboratory,
    pub places: &'a mut Places,
    /// Missing from every image, because they have to do with another cause.
    pub(super) kept: BTreeSet<Index>,
    hangs: u32,
    runs: u32,
}

impl<'a> Investigation<'a> {
    pub(super) fn new(lab: &'a mut Laboratory, places: &'a mut Places) -> Self {
        Investigation {
            lab,
            places,
            kept: BTreeSet::new(),
            hangs: 0,
            runs: 0,
        }
    }

    pub(super) fn keep_missing(&mut self, kept: &BTreeSet<Index>) {
        self.kept.extend(kept);
    }

    /// The state at the subject's point that misses these.
    pub(super) fn without(&self, subject: &Subject, missing: impl IntoIterator<Item = Index>) -> State {
        let all = missing.into_iter().chain(self.kept.iter().copied());
        State {
            point: subject.point,
            missing: all.filter(|&index| index < subject.point).collect(),
            extra: BTreeSet::new(),
            output: subject.output,
        }
    }

    pub(super) fn state(&self, subject: &Subject) -> State {
        self.without(subject, subject.missing.iter().copied())
    }

    /// The program's own prefix, without what is kept missing.
    pub(super) fn prefix(&self, point: Index) -> State {
        State {
            missing: self.kept.range(..point).copied().collect(),
            ..self.lab.prefix(point)
        }
    }

    /// `None`: the state does not fail again.
    pub(super) fn investigate(&mut self, subject: &Subject) -> Result<Option<Cause>, ExplainError> {
        let state = self.state(subject);
        if !self.lab.fails(&state)? {
            return Ok(None);
        }
        let aside: Vec<Index> = self.kept.iter().copied().collect();
        let (earliest, turn) = self.earliest(subject, &state.missing)?;
        let mut cause = loop {
            let prefix = self.without(&earliest, []);
            if !self.lab.fails(&prefix)? {
                break self.lost(&earliest, turn)?;
            }
            let first = self.turn(self.lab.floor(), earliest.point, &BTreeSet::new())?;
            match first {
                // The prefix fails because of what the state misses: that is not why the state does.
                Some(first) if earliest.missing.contains(&first) && !self.kept.contains(&first) => {
                    let with_it = self.required_by(first, &earliest.missing);
                    self.kept.extend(with_it);
                }
                _ => break self.between(&earliest, first)?,
            }
        };
        self.take_back(&mut cause, subject, &aside)?;
        Ok(Some(cause))
    }

    /// Later stores can need more to be missing, because they make an update complete: the earliest crash says most. With the change that makes
    /// it fail.
    ///
    /// Where the program's own prefix fails at that crash, and what makes it recover is not missing from the subject, the update that it was in is complete, and
    /// not the reason: then the earliest crash is looked for that comes after it.
    fn earliest(
        &mut self,
        subject: &Subject,
        missing: &BTreeSet<Index>,
    ) -> Result<(Subject, Option<Index>), ExplainError> {
        let mut from = self.lab.floor();
        loop {
            let turn = self.turn(from, subject.point, missing)?;
            let Some(change) = turn else {
                return Ok((subject.clone(), None));
            };
            let earliest = self.until(subject, change + 1);
            let (there, here) = (self.without(&earliest, []), self.without(subject, []));
            if earliest.point == subject.point || !self.lab.fails(&there)? || self.lab.fails(&here)? {
                return Ok((earliest, turn));
            }
            let is_missing = |range: std::ops::Range<Index>| missing.range(range).next().is_some();
            from = match self.recovered(earliest.point)? {
                Some(end) if end < subject.point && !is_missing(earliest.point..end + 1) => end + 1,
                _ => return Ok((earliest, turn)),
            };
            let complete = self.until(subject, from);
            let state = self.state(&complete);
            if self.lab.fails(&state)? {
                // What completes the other update need not be what makes this one fail.
                let earlier = self.until(subject, from - 1);
                let before = self.state(&earlier);
                let turns = !self.is_output(from - 1) && !self.lab.fails(&before)?;
                return Ok((complete, turns.then_some(from - 1)));
            }
        }
    }

    /// What was kept missing and had persisted is put back, so that the model allows the state: it still fails, though the
    /// other cause has a part in it.
    pub(super) fn take_back(
        &mut self,
        cause: &mut Cause,
        subject: &Subject,
        aside: &[Index],
    ) -> Result<(), ExplainError> {
        let persisted = |index: &&Index| **index < cause.state.point && !subject.missing.contains(index);
        let aside: Vec<Index> = aside.iter().filter(persisted).copied().collect();
        let mut state = cause.state.clone();
        for index in &aside {
            state.missing.remove(index);
        }
        if self.lab.fails(&state)? {
            cause.state = state;
            cause.aside = aside;
        }
        Ok(())
    }

    /// Whether the state fails for another reason beside one by which the prefix fails, of which `persisted` came too early and
    /// `missing` too late: with all of it done and with nothing of it done.
    pub(super) fn beyond(
        &mut self,
        subject: &Subject,
        persisted: &BTreeSet<Index>,
        missing: &BTreeSet<Index>,
    ) -> Result<bool, ExplainError> {
        if persisted.is_empty() || missing.is_empty() {
            return Ok(false);
        }
        let done = |mut state: State| {
            state.missing.retain(|index| !missing.contains(index));
            state.extra.extend(missing.range(state.point..));
            state
        };
        let undone = |mut state: State| {
            state.missing.extend(persisted.range(..state.point));
            state
        };
        let (state, prefix) = (self.state(subject), self.without(subject, []));
        if !self.lab.fails(&done(state.clone()))? || !self.lab.fails(&undone(state))? {
            return Ok(false);
        }
        // Without A what depends on it may fail in the prefix, too: that is no other reason.
        Ok(!self.lab.fails(&undone(prefix.clone()))? || self.lab.fails(&done(prefix))?)
    }

    /// A store, and what of the missing ones cannot persist without it.
    fn required_by(&self, store: Index, missing: &[Index]) -> Vec<Index> {
        let mut persisted: Vec<bool> = missing.iter().map(|&index| index != store).collect();
        self.lab.order(missing).lower(&mut persisted);
        let lost = missing.iter().zip(persisted).filter(|(_, persisted)| !persisted);
        lost.map(|(&index, _)| index).collect()
    }

    /// The same crash, earlier.
    pub(super) fn until(&self, subject: &Subject, point: Index) -> Subject {
        let before = |indices: &[Index]| indices.iter().copied().filter(|&index| index < point).collect();
        Subject {
            point,
            output: self.lab.output_before(point),
            persisted: before(&subject.persisted),
            missing: before(&subject.missing),
        }
    }

    /// Enough was tried: what has been found is left as it is.
    fn is_exhausted(&self) -> bool {
        self.hangs >= MAX_HANGS || self.runs >= MAX_RUNS
    }

    /// What the recovery says of a state; `None` if enough was tried.
    fn verdict(&mut self, state: &State) -> Result<Option<bool>, ExplainError> {
        if self.is_exhausted() {
            return Ok(None);
        }
        let judged = self.lab.judge(state)?;
        self.runs += 1;
        self.hangs += u32::from(judged.timed_out);
        Ok(Some(judged.fails))
    }

    pub(super) fn still_fails(&mut self, state: &State) -> Result<bool, ExplainError> {
        Ok(self.verdict(state)? == Some(true))
    }

    pub(super) fn recovers(&mut self, state: &State) -> Result<bool, ExplainError> {
        Ok(self.verdict(state)? == Some(false))
    }

    /// Everything that was executed recovers, but not without some of it: it fails from `turn` on.
    fn lost(&mut self, subject: &Subject, turn: Option<Index>) -> Result<Cause, ExplainError> {
        let can_be_missing: Vec<Index> = subject
            .missing
            .iter()
            .copied()
            .filter(|index| !self.kept.contains(index))
            .collect();
        let missing = self.fewest(&can_be_missing, Closed::Missing, |this, set| {
            let state = this.without(subject, set.iter().copied());
            this.still_fails(&state)
        })?;
        let state = self.without(subject, missing.iter().copied());
        if turn.is_some_and(|change| self.is_output(change)) || self.is_acknowledged(&state)? {
            return Ok(Cause {
                kind: Kind::CrashDurability,
                form: Form::Lost,
                missing,
                persisted: Vec::new(),
                state,
                uncertain: false,
                aside: Vec::new(),
                snapshot: None,
            });
        }
        let persisted = self.premature(subject, &missing, turn)?;
        let uncertain = persisted.iter().all(|index| subject.persisted.contains(index));
        let kind = self.order_or_atomicity(&missing, &persisted, state.point)?;
        Ok(Cause {
            kind,
            form: Form::Lost,
            missing,
            persisted,
            state,
            uncertain,
            aside: Vec::new(),
            snapshot: None,
        })
    }

    /// What must not have persisted without `missing`: the store that turned it, or the fewest without which it recovers.
    fn premature(
        &mut self,
        subject: &Subject,
        missing: &[Index],
        turn: Option<Index>,
    ) -> Result<Vec<Index>, ExplainError> {
        let without = |this: &Self, set: &[Index]| this.without(subject, missing.iter().chain(set).copied());
        let last: Vec<Index> = turn.into_iter().collect();
        let state = without(self, &last);
        if !last.is_empty() && !self.lab.fails(&state)? {
            return Ok(last);
        }
        let others: Vec<Index> = merged(&subject.persisted, &subject.missing)
            .into_iter()
            .filter(|index| !missing.contains(index) && !self.kept.contains(index))
            .collect();
        let state = without(self, &others);
        if others.is_empty() || self.lab.fails(&state)? {
            return Ok(last);
        }
        self.fewest(&others, Closed::Missing, |this, set| {
            let state = without(this, set);
            this.recovers(&state)
        })
    }

    /// Whether the image passes with what the program had output before the first missing store.
    fn is_acknowledged(&mut self, state: &State) -> Result<bool, ExplainError> {
        let before = state
            .missing
            .first()
            .map_or(state.output, |&first| self.lab.output_before(first));
        let silent = State {
            output: before,
            ..state.clone()
        };
        Ok(before < state.output && !self.lab.fails(&silent)?)
    }

    /// The program's prefix fails since `turn`: it is between two updates.
    fn between(&mut self, subject: &Subject, turn: Option<Index>) -> Result<Cause, ExplainError> {
        let start = turn.map_or(subject.point, |change| change + 1);
        let end = self.recovered(start)?;
        let later: Vec<Index> = match end {
            Some(end) => (start..=end).filter(|&i| !self.is_output(i)).collect(),
            None => Vec::new(),
        };
        let state = self.prefix(start);
        let healed = |set: &[Index]| State {
            extra: set.iter().copied().collect(),
            ..state.clone()
        };
        // What takes the update back, as the end of a log does its beginning, makes the prefix recover, and says nothing of an order.
        let others: Vec<Index> = later
            .iter()
            .copied()
            .filter(|&index| !turn.is_some_and(|turn| self.takes_back(index, turn)))
            .collect();
        let enough = !others.is_empty() && others.len() < later.len() && self.recovers(&healed(&others))?;
        let later = if enough { others } else { later };
        // If not even all of them help, it is what was output later that does: then the last change has to stand for them.
        let missing = if later.is_empty() || self.recovers(&healed(&later))? {
            self.fewest(&later, Closed::Any, |this, set| this.recovers(&healed(set)))?
        } else {
            later.last().copied().into_iter().collect()
        };
        let persisted: Vec<Index> = turn.into_iter().filter(|&change| !self.is_output(change)).collect();
        let takes_back = |&index: &Index| turn.is_some_and(|turn| self.takes_back(index, turn));
        let kind = if turn.is_some_and(|change| self.is_output(change)) {
            Kind::CrashDurability
        } else if !missing.is_empty() && missing.iter().all(takes_back) {
            // Two stores to one place have their order.
            Kind::CrashAtomicity
        } else {
            self.order_or_atomicity(&missing, &persisted, end.map_or(start, |end| end + 1))?
        };
        let mut cause = Cause {
            kind,
            form: Form::Between(start, end.map_or(subject.point, |end| end + 1)),
            missing,
            persisted,
            state,
            uncertain: false,
            aside: Vec::new(),
            snapshot: None,
        };
        self.join_torn(&mut cause);
        Ok(cause)
    }

    /// A crash has no place within a store: what comes after it in the same store is not to come, but missing.
    fn join_torn(&self, cause: &mut Cause) {
        let seq = |&index: &Index| self.lab.change(index).id.seq;
        let Some(store) = cause.persisted.last().map(seq) else {
            return;
        };
        if cause.missing.is_empty() || !cause.missing.iter().all(|index| seq(index) == store) {
            return;
        }
        let (start, (_, end)) = (cause.state.point, self.lab.window());
        let rest = (start..end).take_while(|index| seq(index) == store);
        let rest: Vec<Index> = rest.collect();
        cause.state.point = start + rest.len();
        cause.state.missing.extend(rest);
        cause.form = Form::Lost;
    }

    /// The last change of each of `spots` before the crash, if they all come shortly before it.
    pub(super) fn last_of(&mut self, point: Index, spots: &BTreeSet<SpotId>) -> BTreeSet<Index> {
        let first = self.lab.window().0.max(point.saturating_sub(SOON));
        let mut seen: BTreeSet<SpotId> = BTreeSet::new();
        let mut last = BTreeSet::new();
        for index in (first..point).rev() {
            let spot = self.spot(index);
            if spots.contains(&spot) && !self.is_output(index) && seen.insert(spot) {
                last.insert(index);
            }
            if seen.len() == spots.len() {
                return last;
            }
        }
        BTreeSet::new()
    }

    /// Whether nothing is left of one change after the other.
    fn takes_back(&self, index: Index, earlier: Index) -> bool {
        let (change, earlier) = (self.lab.change(index), self.lab.change(earlier));
        let (Some((offset, data)), Some((from, old))) = (change.data(), earlier.data()) else {
            return false;
        };
        let covers = offset <= from && from + old.len() as u64 <= offset + data.len() as u64;
        change.file == earlier.file && covers
    }

    fn is_output(&self, index: Index) -> bool {
        matches!(self.lab.change(index).what, What::Output { .. })
    }

    /// Whether the image recovers that has M and not A: everything else up to `point`, or what was there before both.
    fn order_or_atomicity(
        &mut self,
        missing: &[Index],
        persisted: &[Index],
        point: Index,
    ) -> Result<Kind, ExplainError> {
        let Some(&first) = missing.iter().chain(persisted).min() else {
            return Ok(Kind::CrashAtomicity);
        };
        let store = |index: &Index| Some(self.lab.change(*index)).filter(|change| change.is_store());
        let mut stores = missing
            .iter()
            .chain(persisted)
            .map(|index| store(index).map(|change| change.id.seq));
        let of_one = stores.next().flatten();
        // The program cannot order the halves of one store.
        let is_torn = of_one.is_some() && stores.all(|other| other == of_one);
        if persisted.is_empty() || missing.is_empty() || is_torn {
            return Ok(Kind::CrashAtomicity);
        }
        let mut with_the_rest = self.prefix(point);
        with_the_rest.missing.extend(persisted);
        // Where A is stored over by then, that is the program's own prefix, which says nothing of A.
        let is_gone = |&a: &Index| (a + 1..point).any(|index| !persisted.contains(&index) && self.takes_back(index, a));
        let says_nothing = persisted.iter().all(is_gone);
        let alone = State {
            extra: missing.iter().copied().collect(),
            ..self.prefix(first)
        };
        let ordered = !says_nothing && !self.lab.fails(&with_the_rest)? || !self.lab.fails(&alone)?;
        Ok(if ordered {
            Kind::CrashOrder
        } else {
            Kind::CrashAtomicity
        })
    }

    /// The last change between `floor` and `point` by which the prefix (without `missing`) came to fail: it recovers just before the
    /// change, and fails after it. `None`: it fails from the start, or enough was tried.
    pub(super) fn turn(
        &mut self,
        floor: Index,
        point: Index,
        missing: &BTreeSet<Index>,
    ) -> Result<Option<Index>, ExplainError> {
        let without = |this: &Self, point| {
            let mut state = this.prefix(point);
            state.missing.extend(missing.range(..point));
            state
        };
        let mut fails = point;
        let mut step = 1;
        let mut recovers = loop {
            if fails <= floor {
                return Ok(None);
            }
            let earlier = fails.saturating_sub(step).max(floor);
            self.lab.reach_back(earlier)?;
            let state = without(self, earlier);
            match self.verdict(&state)? {
                None => return Ok(None),
                Some(false) => break earlier,
                Some(true) => fails = earlier,
            }
            step *= 2;
        };
        while fails - recovers > 1 {
            let middle = recovers + (fails - recovers) / 2;
            let state = without(self, middle);
            match self.verdict(&state)? {
                None => return Ok(None),
                Some(true) => fails = middle,
                Some(false) => recovers = middle,
            }
        }
        Ok(Some(recovers))
    }

    /// The change after which the prefix recovers again, that at `point` failing. `None`: it never does, or enough was tried.
    pub(super) fn recovered(&mut self, point: Index) -> Result<Option<Index>, ExplainError> {
        let mut fails = point;
        let mut step = 1;
        let mut recovers = loop {
            if !self.lab.reach_ahead(fails)? {
                return Ok(None);
            }
            self.lab.reach_ahead(fails + step)?;
            let later = (fails + step).min(self.lab.window().1);
            let state = self.prefix(later);
            match self.verdict(&state)? {
                None => return Ok(None),
                Some(false) => break later,
                Some(true) => fails = later,
            }
            step *= 2;
        };
        while recovers - fails > 1 {
            let middle = fails + (recovers - fails) / 2;
            let state = self.prefix(middle);
            match self.verdict(&state)? {
                None => return Ok(None),
                Some(true) => fails = middle,
                Some(false) => recovers = middle,
            }
        }
        Ok(Some(fails))
    }

    /// The fewest of `candidates` (ascending) that pass the test, which all of them together do.
    pub(super) fn fewest(
        &mut self,
        candidates: &[Index],
        closed: Closed,
        mut test: impl FnMut(&mut Self, &[Index]) -> Result<bool, ExplainError>,
    ) -> Result<Vec<Index>, ExplainError> {
        let items = Items {
            order: match closed {
                Closed::Missing => self.lab.order(candidates),
                Closed::Any => Order::unordered(candidates.len()),
            },
            groups: candidates.iter().map(|&index| self.spot(index)).collect(),
        };
        let chosen = minimise(&items, |set| {
            let set: Vec<Index> = set.iter().map(|&item| candidates[item]).collect();
            test(self, &set)
        })?;
        Ok(chosen.into_iter().map(|item| candidates[item]).collect())
    }

    pub(super) fn spot(&mut self, index: Index) -> SpotId {
        self.places.spot(self.lab.change(index), self.lab.tables())
    }

    pub(super) fn spots(&mut self, indices: &[Index]) -> BTreeSet<SpotId> {
        indices.iter().map(|&index| self.spot(index)).collect()
    }

    /// The state without what it misses of `spots`, and what has to persist with that.
    pub(super) fn persist_spots(&mut self, subject: &Subject, spots: &BTreeSet<SpotId>) -> Option<State> {
        let mut persisted: Vec<bool> = Vec::new();
        for &index in &subject.missing {
            persisted.push(spots.contains(&self.spot(index)));
        }
        self.lab.order(&subject.missing).raise(&mut persisted);
        let left = subject
            .missing
            .iter()
            .zip(&persisted)
            .filter(|(_, persisted)| !**persisted);
        let left: Vec<Index> = left.map(|(&index, _)| index).collect();
        (left.len() < subject.missing.len()).then(|| self.without(subject, left))
    }

    /// The state with the next stores that come from `spots` after the crash. `None`: they do not come soon.
    pub(super) fn persist_next(
        &mut self,
        subject: &Subject,
        spots: &BTreeSet<SpotId>,
    ) -> Result<Option<State>, ExplainError> {
        self.lab.reach_ahead(subject.point + SOON)?;
        let end = (subject.point + SOON).min(self.lab.window().1);
        let mut seen: BTreeSet<SpotId> = BTreeSet::new();
        let mut state = self.state(subject);
        let mut last = None;
        for index in subject.point..end {
            let seq = self.lab.change(index).id.seq;
            if seen.len() == spots.len() && last != Some(seq) {
                return Ok(Some(state));
            }
            let spot = self.spot(index);
            if spots.contains(&spot) && !self.is_output(index) {
                seen.insert(spot);
                state.extra.insert(index);
                last = Some(seq);
            }
        }
        Ok((seen.len() == spots.len()).then_some(state))
    }
}

/// Which sets of stores are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// Those that can be missing.
    Missing,
    /// Hypothetical ones too.
    Any,
}

fn merged(a: &[Index], b: &[Index]) -> Vec<Index> {
    let mut all: Vec<Index> = a.iter().chain(b).copied().collect();
    all.sort_unstable();
    all
}
