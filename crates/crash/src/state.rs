//! Crash states of one crash point: for each line that is uncertain there, which of its updates persisted; a state is a choice
//! for each.
//!
//! [`crashproof_model::Order`] is the definition. A line keeps its updates, not the contents that they make: an *option* is a
//! set of them that may have persisted, how many of the ordered ones (the line's chain) and which of the others. Sets that make the
//! same content are one option; it stands for the one in which most persisted. Option 0 is the base, what is guaranteed
//! persistent. Where the model has edges between lines ([`crate::edges`]), each set is an option of its own: two that make
//! the same content allow different choices for other lines.
//!
//! Deviation: of more than 2^14 combinations of unordered stores that overlap only those with few, or all but few, of them
//! are looked at. The report says for how many lines that is so.

use std::ops::Range;
use std::sync::Arc;

use crashproof_model::{ByteSet, Keep, Line, LineAddress, Model, Order, Ranges, Store, Tag, order_of};
use crashproof_replay::LineState;
use crashproof_trace::StackId;
use rustc_hash::FxHashMap;

use crate::edges::{Among, Ties, Update, Ways};
use crate::executor::StoreId;
use crate::hash::{self, Content};

/// Combinations of unordered stores looked at for one line at one point.
pub(crate) const MAX_COMBINATIONS: u128 = 1 << 14;
/// Beyond so many options, equal ones are found by a table.
const SCANNED: usize = 16;

/// What the cursor keeps with each store that is not guaranteed persistent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pending {
    pub id: StoreId,
    pub stack: StackId,
    /// Where in the line `data` begins.
    pub start: u32,
    pub data: Box<[u8]>,
}

impl Tag<Ranges> for Pending {
    type Site = ();
}

/// A store that is not guaranteed persistent.
pub(crate) type PendingStore = Store<Pending, Ranges>;
/// The state of a unit of any size.
pub(crate) type PendingLine = Line<Pending, Ranges>;

impl Pending {
    /// Writes some of its bytes.
    fn write(&self, content: &mut [u8], bytes: &Ranges) {
        for range in bytes.iter() {
            let from = range.start - self.start as usize;
            let data = &self.data[from..from + range.len()];
            content[range].copy_from_slice(data);
        }
    }
}

/// Writes those bytes of a store that still count.
pub(crate) fn write_store(content: &mut [u8], store: &PendingStore) {
    store.tag.write(content, &store.bytes);
}

/// Which of a line's stores persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    /// So many of the ordered ones.
    ordered: u32,
    /// Bit n: the n-th unordered one. The last bit stands for all from there on.
    unordered: u64,
}

const NOTHING: Choice = Choice {
    ordered: 0,
    unordered: 0,
};

impl Choice {
    fn persisted(self) -> u32 {
        self.ordered + self.unordered.count_ones()
    }

    /// Tells it from others.
    fn key(self) -> u128 {
        hash::pair(self.ordered.into(), self.unordered)
    }
}

/// Unordered stores that are told apart.
const TOLD_APART: usize = 63;

#[derive(Clone, Debug)]
struct LineOption {
    /// What its content adds to the hash of the base.
    change: u128,
    choice: Choice,
}

#[derive(Clone, Debug)]
enum Options {
    Listed(Vec<LineOption>),
    /// Stores that share no byte and each change something: bit n of an option's number is the n-th of them. `silent` are the
    /// others: they are taken as persisted whenever anything is.
    Independent {
        stores: Vec<u8>,
        silent: u64,
    },
}

/// A line, or a unit of another size, that is not all guaranteed persistent.
#[derive(Clone, Debug)]
pub(crate) struct UncertainLine {
    pub at: LineAddress,
    base: Content,
    line: PendingLine,
    reorder: bool,
    /// Each set of stores is an option, whatever content it makes.
    exact: bool,
    options: Options,
    /// By key, when there are many options.
    index: FxHashMap<u128, u32>,
    /// The option in which everything persisted.
    everything: u64,
    /// Content with everything persisted, and the bytes that stores write.
    newest: Content,
    written: Ranges,
    /// Options from here on were not there at the point before.
    fresh_from: u64,
    /// `options` are not those of `line`.
    stale: bool,
    /// Some store is not ordered with the others.
    mixed: bool,
    /// The cursor has counted it with so many options.
    pub counted: u64,
    /// Some combinations were left out.
    capped: bool,
}

impl LineState for UncertainLine {
    type Bytes = Ranges;
    type Tag = Pending;

    fn line(&self) -> &PendingLine {
        &self.line
    }

    fn line_mut(&mut self) -> &mut PendingLine {
        &mut self.line
    }
}

impl UncertainLine {
    pub(crate) fn new(at: LineAddress, base: Content, reorder: bool, exact: bool) -> UncertainLine {
        let mut line = UncertainLine {
            at,
            newest: base.clone(),
            base,
            line: Line::default(),
            reorder,
            exact,
            options: Options::Listed(Vec::new()),
            index: FxHashMap::default(),
            everything: 0,
            written: Ranges::default(),
            fresh_from: 1,
            stale: false,
            mixed: false,
            counted: 0,
            capped: false,
        };
        line.restart();
        line
    }

    /// Nothing but the base.
    fn restart(&mut self) {
        self.index.clear();
        self.everything = 0;
        self.capped = false;
        let base = LineOption {
            change: 0,
            choice: NOTHING,
        };
        match &mut self.options {
            Options::Listed(list) => {
                list.clear();
                list.push(base);
            }
            Options::Independent { .. } => self.options = Options::Listed(vec![base]),
        }
    }

    pub(crate) fn line(&self) -> &PendingLine {
        &self.line
    }

    /// Where it begins in the file.
    pub(crate) fn start(&self) -> u64 {
        self.at.line * self.base.len() as u64
    }

    /// Where it ends.
    pub(crate) fn end(&self) -> u64 {
        self.start() + self.base.len() as u64
    }

    /// Copies the part of its content that lies in a buffer for the file from `offset` on.
    pub(crate) fn copy_to(&self, content: &[u8], offset: u64, buffer: &mut [u8]) {
        let from = self.start().max(offset);
        let to = self.end().min(offset + buffer.len() as u64);
        let part = &content[(from - self.start()) as usize..(to - self.start()) as usize];
        buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
    }

    pub(crate) fn base(&self) -> &Content {
        &self.base
    }

    pub(crate) fn is_capped(&self) -> bool {
        self.capped
    }

    /// A store that stays uncertain.
    pub(crate) fn store(&mut self, store: PendingStore) {
        write_store(&mut self.newest, &store);
        self.written = self.written.union(&store.bytes);
        self.mixed |= store.nontemporal || self.reorder;
        self.line.store(Model::Px86, Keep::All, store);
        if !self.stale && !self.mixed {
            let choice = Choice {
                ordered: self.line.stores().len() as u32,
                unordered: 0,
            };
            let newest = std::mem::take(&mut self.newest);
            self.everything = self.add(&newest, choice);
            self.newest = newest;
        } else {
            self.stale = true;
        }
    }

    /// Changes what is guaranteed persistent: `change` sees the line and its base.
    pub(crate) fn persist(&mut self, change: impl FnOnce(&mut PendingLine, &mut Content)) {
        change(&mut self.line, &mut self.base);
        self.mixed = self.line.stores().iter().any(|s| s.nontemporal || self.reorder);
        self.stale = true;
        self.newest.copy_from_slice(&self.base);
        self.written = Ranges::default();
        for store in self.line.stores() {
            write_store(&mut self.newest, store);
            self.written = self.written.union(&store.bytes);
        }
    }

    /// Before a point: brings the options up to date.
    pub(crate) fn refresh(&mut self) {
        if !self.stale {
            return;
        }
        self.stale = false;
        // Of what was there before, only the base can be told.
        self.fresh_from = 1;
        self.restart();
        if !self.mixed {
            let mut content = self.base.clone();
            for index in 0..self.line.stores().len() {
                write_store(&mut content, &self.line.stores()[index]);
                let choice = Choice {
                    ordered: index as u32 + 1,
                    unordered: 0,
                };
                self.everything = self.add(&content, choice);
            }
        } else if !self.independent() {
            self.combine();
        }
    }

    /// After a point: what is there now is not new to the next one.
    pub(crate) fn settle(&mut self) {
        self.fresh_from = self.count();
    }

    /// Whether all stores can be chosen by themselves; then options need no list.
    fn independent(&mut self) -> bool {
        let stores = self.line.stores();
        if self.exact || stores.len() >= TOLD_APART || stores.iter().any(|s| !s.nontemporal && !self.reorder) {
            return false;
        }
        let mut taken = Ranges::default();
        let mut changing = Vec::new();
        let mut silent = 0;
        for (index, store) in stores.iter().enumerate() {
            if taken.intersects(&store.bytes) {
                return false;
            }
            taken = taken.union(&store.bytes);
            let mut content = self.base.clone();
            write_store(&mut content, store);
            if content == self.base {
                silent |= 1 << index;
            } else {
                changing.push(index as u8);
            }
        }
        self.everything = (1 << changing.len()) - 1;
        self.options = Options::Independent {
            stores: changing,
            silent,
        };
        true
    }

    fn combine(&mut self) {
        let all = self.line.stores().len();
        let free = self
            .line
            .stores()
            .iter()
            .filter(|s| s.nontemporal || self.reorder)
            .count();
        let ordered = (all - free) as u32;
        let told_apart = free.min(TOLD_APART + 1) as u32;
        let full = u64::MAX >> (64 - told_apart);
        if ((ordered as u128 + 1) << told_apart) <= MAX_COMBINATIONS {
            for state in order_of([&self.line], self.reorder).states() {
                self.choose(self.choice_of(&state));
            }
        } else {
            self.capped = true;
            for prefix in 0..=ordered {
                for unordered in [0, full] {
                    self.choose(Choice {
                        ordered: prefix,
                        unordered,
                    });
                }
            }
            for ordered in [0, ordered] {
                for bit in 0..told_apart {
                    let upto = u64::MAX >> (63 - bit);
                    for unordered in [1 << bit, full & !(1 << bit), full & upto, full & !upto] {
                        self.choose(Choice { ordered, unordered });
                    }
                }
            }
        }
        self.everything = self.choose(Choice {
            ordered,
            unordered: full,
        });
    }

    /// The choice in which these of the stores persisted.
    fn choice_of(&self, persisted: &[bool]) -> Choice {
        let (mut choice, mut unordered) = (NOTHING, 0);
        for (store, &persisted) in self.line.stores().iter().zip(persisted) {
            if self.is_ordered(store) {
                choice.ordered += u32::from(persisted);
            } else {
                choice.unordered |= u64::from(persisted) << unordered;
                unordered += 1;
            }
        }
        choice
    }

    fn choose(&mut self, choice: Choice) -> u64 {
        let content = self.content_of(choice);
        self.add(&content, choice)
    }

    /// Equal for sets of stores that are one option.
    fn key(&self, change: u128, choice: Choice) -> u128 {
        if self.exact { choice.key() } else { change }
    }

    /// The listed option with a key.
    fn find(&self, list: &[LineOption], key: u128) -> Option<usize> {
        if self.index.is_empty() {
            let mut keys = list.iter().map(|option| self.key(option.change, option.choice));
            return keys.position(|known| known == key);
        }
        self.index.get(&key).map(|&index| index as usize)
    }

    /// The option of this content, a new one if there is none.
    fn add(&mut self, content: &Content, choice: Choice) -> u64 {
        let change = hash::change(self.at, &self.base, content);
        let key = self.key(change, choice);
        let Options::Listed(list) = &self.options else {
            unreachable!("independent stores have no list");
        };
        if list.len() > SCANNED && self.index.is_empty() {
            let keys = list.iter().map(|option| self.key(option.change, option.choice));
            self.index = keys.zip(0..).collect();
        }
        let known = self.find(list, key);
        let Options::Listed(list) = &mut self.options else {
            unreachable!("independent stores have no list");
        };
        if let Some(known) = known {
            // The base stays what nothing more makes.
            if known > 0 && list[known].choice.persisted() < choice.persisted() {
                list[known].choice = choice;
            }
            return known as u64;
        }
        list.push(LineOption { change, choice });
        if !self.index.is_empty() {
            self.index.insert(key, list.len() as u32 - 1);
        }
        list.len() as u64 - 1
    }

    pub(crate) fn count(&self) -> u64 {
        match &self.options {
            Options::Listed(list) => list.len() as u64,
            Options::Independent { stores, .. } => 1 << stores.len(),
        }
    }

    /// Options from here on are new.
    pub(crate) fn fresh_from(&self) -> u64 {
        self.fresh_from.min(self.count())
    }

    pub(crate) fn everything(&self) -> u64 {
        self.everything
    }

    fn choice(&self, option: u64) -> Choice {
        match &self.options {
            Options::Listed(list) => list[option as usize].choice,
            Options::Independent { .. } if option == 0 => NOTHING,
            Options::Independent { stores, silent } => {
                let chosen = stores.iter().enumerate().filter(|(bit, _)| option >> bit & 1 != 0);
                Choice {
                    ordered: 0,
                    unordered: chosen.fold(*silent, |set, (_, &store)| set | 1 << store),
                }
            }
        }
    }

    /// Whether it persists in the order of the line's stores.
    pub(crate) fn is_ordered(&self, store: &PendingStore) -> bool {
        !store.nontemporal && !self.reorder
    }

    /// The option in which so many of the ordered stores have persisted, and these of the unordered ones. None if it was left
    /// out.
    pub(crate) fn option_of(&self, ordered: usize, unordered: impl Fn(usize, &PendingStore) -> bool) -> Option<u64> {
        let (mut choice, mut free) = (NOTHING, 0);
        let mut content = self.base.clone();
        let mut chosen = 0u64;
        for (index, store) in self.line.stores().iter().enumerate() {
            let persisted = if self.is_ordered(store) {
                let persisted = (choice.ordered as usize) < ordered;
                choice.ordered += u32::from(persisted);
                persisted
            } else {
                let persisted = unordered(index, store);
                choice.unordered |= u64::from(persisted) << free.min(TOLD_APART);
                free += 1;
                persisted
            };
            if persisted {
                write_store(&mut content, store);
                chosen |= 1u64.checked_shl(index as u32).unwrap_or(0);
            }
        }
        match &self.options {
            Options::Independent { stores, .. } => {
                let bits = stores.iter().enumerate();
                Some(bits.fold(0, |option, (bit, &store)| option | (chosen >> store & 1) << bit))
            }
            Options::Listed(list) => {
                let change = hash::change(self.at, &self.base, &content);
                self.find(list, self.key(change, choice)).map(|at| at as u64)
            }
        }
    }

    /// The option in which these of the stores have persisted, if it is one.
    pub(crate) fn option_with(&self, persisted: impl Fn(usize) -> bool) -> Option<u64> {
        let stores = self.line.stores().iter().enumerate();
        let ordered = stores.filter(|(index, store)| self.is_ordered(store) && persisted(*index));
        self.option_of(ordered.count(), |index, _| persisted(index))
    }

    /// Of each store, whether it persisted in the option.
    pub(crate) fn persisted(&self, option: u64) -> impl Iterator<Item = bool> {
        self.chosen(self.choice(option)).map(|(_, persisted)| persisted)
    }

    /// A store as the model's edges know it.
    pub(crate) fn update(&self, store: usize) -> Update {
        let Store { tag, nontemporal, .. } = &self.line.stores()[store];
        Update {
            id: tag.id,
            file: self.at.file,
            unit: self.at.line,
            offset: self.start() + u64::from(tag.start),
            nontemporal: *nontemporal,
        }
    }

    pub(crate) fn content(&self, option: u64) -> Content {
        self.content_of(self.choice(option))
    }

    /// What the option adds to the hash of the base.
    pub(crate) fn change(&self, option: u64) -> u128 {
        match &self.options {
            Options::Listed(list) => list[option as usize].change,
            Options::Independent { .. } if option == 0 => 0,
            Options::Independent { .. } => hash::change(self.at, &self.base, &self.content(option)),
        }
    }

    fn content_of(&self, choice: Choice) -> Content {
        let mut content = self.base.clone();
        if self.mixed {
            for (store, _) in self.chosen(choice).filter(|(_, persisted)| *persisted) {
                write_store(&mut content, store);
            }
            return content;
        }
        // The newest first: some lines are stored to in every operation of a long run.
        let mut left = self.written.clone();
        for store in self.line.stores()[..choice.ordered as usize].iter().rev() {
            store.tag.write(&mut content, &store.bytes.intersection(&left));
            left = left.without(&store.bytes);
            if left.is_empty() {
                break;
            }
        }
        content
    }

    /// All stores, and whether they persisted.
    fn chosen(&self, choice: Choice) -> impl Iterator<Item = (&PendingStore, bool)> {
        let (mut ordered, mut unordered) = (0, 0);
        self.line.stores().iter().map(move |store| {
            let persisted = if !self.is_ordered(store) {
                unordered += 1;
                choice.unordered >> (unordered - 1).min(TOLD_APART) & 1 != 0
            } else {
                ordered += 1;
                ordered <= choice.ordered
            };
            (store, persisted)
        })
    }

    /// Stores that persisted in the option and are not overwritten there (the others make no difference, and there can be very
    /// many of them), and all stores that did not: one that is overwritten by another missing one is missing, too.
    fn split(&self, option: u64) -> (Vec<StoreId>, Vec<StoreId>) {
        let chosen: Vec<_> = self.chosen(self.choice(option)).collect();
        let (mut persisted, mut missing) = (Vec::new(), Vec::new());
        let mut covered = Ranges::default();
        for (store, is_persisted) in chosen.into_iter().rev() {
            if !is_persisted {
                missing.push(store.tag.id);
                continue;
            }
            if !store.bytes.without(&covered).is_empty() {
                persisted.push(store.tag.id);
            }
            covered = covered.union(&store.bytes);
        }
        (persisted, missing)
    }

    /// Content with just these stores persisted, allowed or not.
    pub(crate) fn content_with(&self, persisted: impl Fn(StoreId) -> bool) -> Content {
        let mut content = self.base.clone();
        for store in self.line.stores().iter().filter(|s| persisted(s.tag.id)) {
            write_store(&mut content, store);
        }
        content
    }
}

/// A choice for each uncertain line of a point, in the order of [`CrashPoint::lines`]; one that the model allows, unless said
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State(pub Vec<u64>);

/// The last store that was executed before a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct After {
    pub id: StoreId,
    pub stack: StackId,
}

/// A crash point as far as it is known without looking at its lines.
#[derive(Clone, Debug)]
pub(crate) struct PointHead {
    /// The crash is just before this event. With eADR it may be within it: then so many pieces of it were stored.
    pub seq: u64,
    pub within: u16,
    /// Of the points that have states of their own, which one.
    pub number: u64,
    pub after: Option<After>,
    /// No earlier point had both this event's call path and that of the last store.
    pub new_stack: bool,
    /// States that the point before did not have, saturating.
    pub states: u128,
    /// Lines that changed since the point before.
    pub changed: usize,
    /// Stores since the point before are of this event or later.
    pub since: u64,
    /// Something was output since the point before, or a file changed.
    pub boundary: bool,
    pub what: PointKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PointKind {
    /// Before the first store of the window.
    Start,
    Middle,
    /// After the last event of the window.
    End,
}

/// A crash point with its lines.
pub(crate) struct CrashPoint {
    pub head: PointHead,
    /// In the order of their addresses.
    pub lines: Vec<Arc<UncertainLine>>,
    /// Edges between updates of different lines, if the model has any.
    pub ties: Option<Ties>,
    /// Indices of the lines that have options which the point before did not have.
    pub fresh: Vec<usize>,
    /// What beside the lines (file contents, sizes, names, output) differs from the point before: all states are new.
    pub all_fresh: bool,
    /// Of what is guaranteed persistent.
    pub hash: u128,
    /// Of file sizes and names.
    pub files: u128,
    /// Of what the program had output.
    pub output: u128,
    /// Pieces of the event that the crash is within: those stored, and the others.
    pub within: (Vec<StoreId>, Vec<StoreId>),
}

impl CrashPoint {
    pub(crate) fn nothing(&self) -> State {
        State(vec![0; self.lines.len()])
    }

    pub(crate) fn everything(&self) -> State {
        State(self.lines.iter().map(|line| line.everything()).collect())
    }

    /// Everything but what one line has pending, and what cannot persist without it.
    pub(crate) fn without(&self, line: usize) -> State {
        let mut state = self.everything();
        state.0[line] = 0;
        self.lowered(state)
    }

    /// Only what one line has pending, and what has to persist with it.
    pub(crate) fn only(&self, line: usize) -> State {
        let mut state = self.nothing();
        state.0[line] = self.lines[line].everything();
        self.raised(state)
    }

    /// The state that the model allows with the fewest updates more.
    pub(crate) fn raised(&self, choice: State) -> State {
        match &self.ties {
            Some(ties) => ties.nearest(&self.lines, &choice, Order::raise),
            None => choice,
        }
    }

    /// The state that the model allows with the fewest updates less.
    pub(crate) fn lowered(&self, choice: State) -> State {
        match &self.ties {
            Some(ties) => ties.nearest(&self.lines, &choice, Order::lower),
            None => choice,
        }
    }

    /// The states in which each line has one of some options.
    pub(crate) fn ways<'p>(&'p self, among: &'p [Among]) -> Ways<'p> {
        Ways::new(self, among)
    }

    /// Of what the recovery sees beside the contents.
    pub(crate) fn context(&self, with_output: bool) -> u128 {
        match with_output {
            true => self.files.wrapping_add(self.output),
            false => self.files,
        }
    }

    /// Equal for two states that a recovery cannot tell apart.
    pub(crate) fn state_hash(&self, state: &State) -> u128 {
        let lines = self.lines.iter().zip(&state.0).filter(|(_, option)| **option != 0);
        let content = lines.fold(self.hash, |sum, (line, &option)| sum.wrapping_add(line.change(option)));
        hash::pair(0, content as u64)
            .wrapping_add(hash::pair(1, (content >> 64) as u64))
            .wrapping_add(self.context(true))
    }

    /// Stores that were not guaranteed persistent: those that had persisted, and the others, as far as they matter.
    pub(crate) fn split(&self, state: &State) -> (Vec<StoreId>, Vec<StoreId>) {
        let (mut persisted, mut missing) = self.within.clone();
        for (line, &option) in self.lines.iter().zip(&state.0) {
            let (line_persisted, line_missing) = line.split(option);
            persisted.extend(line_persisted);
            missing.extend(line_missing);
        }
        persisted.sort_unstable();
        missing.sort_unstable();
        (persisted, missing)
    }

    /// The order in which the states are numbered: lines in their order of change, new ones first.
    fn digits(&self) -> Vec<usize> {
        let mut is_fresh = vec![false; self.lines.len()];
        self.fresh.iter().for_each(|&line| is_fresh[line] = true);
        let others = (0..self.lines.len()).filter(|&line| !is_fresh[line]);
        self.fresh.iter().copied().chain(others).collect()
    }

    /// The states that the point before did not have, as disjoint products.
    ///
    /// A state is new if some line holds what it could not hold before. The products differ in which is the first such line.
    pub(crate) fn products(&self) -> impl Iterator<Item = Product<'_>> {
        let count = if self.all_fresh { 1 } else { self.fresh.len() };
        let digits = self.digits();
        (0..count).map(move |first| Product {
            point: self,
            digits: digits.clone(),
            first: (!self.all_fresh).then_some(first),
        })
    }
}

/// For each line a range of its options.
pub(crate) struct Product<'a> {
    point: &'a CrashPoint,
    /// Lines, the first counting fastest.
    digits: Vec<usize>,
    /// Which of `digits` is the first line with a new option; `None`: every option of every line.
    first: Option<usize>,
}

impl Product<'_> {
    pub(crate) fn digits(&self) -> impl Iterator<Item = (usize, Range<u64>)> + '_ {
        let fresh = self.point.fresh.len();
        self.digits.iter().enumerate().map(move |(digit, &index)| {
            let line = &self.point.lines[index];
            let range = match self.first {
                Some(first) if digit == first => line.fresh_from()..line.count(),
                Some(first) if digit < first && digit < fresh => 0..line.fresh_from(),
                _ => 0..line.count(),
            };
            (index, range)
        })
    }

    /// The options of each line.
    pub(crate) fn among(&self) -> Vec<Among> {
        let mut among = vec![Among::Range(0..0); self.point.lines.len()];
        self.digits()
            .for_each(|(line, range)| among[line] = Among::Range(range));
        among
    }

    /// How many states, saturating.
    pub(crate) fn count(&self) -> u128 {
        if self.point.ties.is_some() {
            return self.point.ways(&self.among()).count(&self.open());
        }
        self.digits()
            .map(|(_, range)| (range.end - range.start) as u128)
            .fold(1, u128::saturating_mul)
    }

    pub(crate) fn state(&self, mut number: u128) -> State {
        if self.point.ties.is_some() {
            return self.point.ways(&self.among()).state(&self.open(), number);
        }
        let mut state = self.point.nothing();
        for (index, range) in self.digits() {
            let count = (range.end - range.start) as u128;
            state.0[index] = range.start + (number % count) as u64;
            number /= count;
        }
        state
    }

    fn open(&self) -> Vec<Option<u64>> {
        vec![None; self.point.lines.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn store(seq: u64, start: u32, data: &[u8], nontemporal: bool) -> PendingStore {
        Store {
            bytes: Ranges::range(start.into(), data.len() as u64),
            thread: 0,
            nontemporal,
            tag: Pending {
                id: StoreId { seq, piece: 0 },
                stack: StackId(0),
                start,
                data: data.into(),
            },
        }
    }

    fn line(reorder: bool, stores: &[PendingStore]) -> UncertainLine {
        let mut line = UncertainLine::new(
            LineAddress { file: 0, line: 3 },
            Content::from_elem(0, 64),
            reorder,
            false,
        );
        for s in stores {
            line.store(s.clone());
        }
        line.refresh();
        line
    }

    fn contents(line: &UncertainLine) -> BTreeSet<Content> {
        (0..line.count()).map(|option| line.content(option)).collect()
    }

    #[test]
    fn equal_contents_are_one_option() {
        let l = line(
            false,
            &[
                store(1, 0, &[1], false),
                store(2, 0, &[0], false),
                store(3, 0, &[1], false),
            ],
        );
        assert_eq!(l.count(), 2);
        assert_eq!(l.everything(), 1);
        assert_eq!(l.choice(1).ordered, 3, "the choice in which most persisted");
        let id = |seq| StoreId { seq, piece: 0 };
        assert_eq!(l.split(1), (vec![id(3)], vec![]));
        assert_eq!(
            l.split(0),
            (vec![], vec![id(3), id(2), id(1)]),
            "all that did not persist"
        );
    }

    #[test]
    fn prefixes_and_subsets() {
        let stores = [
            store(1, 0, &[1], false),
            store(2, 8, &[2], true),
            store(3, 16, &[3], false),
        ];
        assert_eq!(line(false, &stores).count(), 3 * 2);
        assert_eq!(line(true, &stores).count(), 8);
        let l = line(
            false,
            &[
                store(1, 0, &[1], true),
                store(2, 8, &[2], true),
                store(3, 16, &[0], true),
            ],
        );
        assert_eq!((l.count(), l.everything()), (4, 3));
        assert_eq!(contents(&l).len(), 4);
        assert_eq!((l.split(0).0.len(), l.split(0).1.len()), (0, 3));
        assert_eq!((l.split(3).0.len(), l.split(3).1.len()), (3, 0));
    }

    #[test]
    fn many_contents_are_all_kept() {
        let stores: Vec<_> = (1..=10_000)
            .map(|n: u64| store(n, 0, &n.to_le_bytes(), false))
            .collect();
        let l = line(false, &stores);
        assert!(!l.is_capped());
        assert_eq!((l.count(), l.everything()), (10_001, 10_000));
        for option in [0, 1, 4_096, 10_000] {
            assert_eq!(l.content(option)[..8], option.to_le_bytes());
        }
    }

    #[test]
    fn many_unordered_stores_are_looked_at_in_part() {
        let stores: Vec<_> = (1..=70)
            .map(|n| store(n, (n % 60) as u32, &[n as u8; 3], true))
            .collect();
        let l = line(false, &stores);
        assert!(l.is_capped());
        let mut all = Content::from_elem(0, 64);
        stores.iter().for_each(|s| write_store(&mut all, s));
        assert_eq!(l.content(l.everything()), all);
        assert!(l.chosen(l.choice(l.everything())).all(|(_, persisted)| persisted));
    }

    #[test]
    fn products_are_the_new_states() {
        let mut a = line(false, &[store(1, 0, &[1], false), store(2, 1, &[1], false)]);
        let b = line(false, &[store(3, 0, &[1], false)]);
        let mut c = line(false, &[store(4, 0, &[1], false)]);
        a.settle();
        a.store(store(5, 2, &[1], false));
        c.settle();
        let head = PointHead {
            number: 0,
            seq: 0,
            within: 0,
            after: None,
            new_stack: false,
            states: 0,
            changed: 2,
            since: 0,
            boundary: false,
            what: PointKind::Middle,
        };
        let point = CrashPoint {
            head,
            lines: vec![Arc::new(c), Arc::new(a), Arc::new(b)],
            ties: None,
            fresh: vec![1, 2],
            all_fresh: false,
            hash: 0,
            files: 0,
            output: 0,
            within: Default::default(),
        };
        let states: Vec<Vec<u64>> = point
            .products()
            .flat_map(|product| {
                (0..product.count())
                    .map(move |n| product.state(n).0)
                    .collect::<Vec<_>>()
            })
            .collect();
        let distinct: BTreeSet<_> = states.iter().cloned().collect();
        assert_eq!(distinct.len(), states.len());
        let expected: BTreeSet<_> = (0..2)
            .flat_map(|c| (0..4).flat_map(move |a| (0..2).map(move |b| vec![c, a, b])))
            .filter(|choice| choice[1] >= 3 || choice[2] >= 1)
            .collect();
        assert_eq!(distinct, expected);
    }
}
