//! Edges between updates of different lines, and which choices for the lines go together because of them.
//!
//! Px86 and eADR have none: there each choice for a line goes with each choice for the others, and nothing of this is needed.
//! A model of files has them: what a sync orders, what a truncation cuts.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crashproof_model::{Chains, Order};

use crate::executor::StoreId;
use crate::state::{CrashPoint, State, UncertainLine};

/// An update that is not guaranteed to have persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    pub id: StoreId,
    pub file: u32,
    /// What it persists with, counted from the file's start: the cache line, or a unit of another size.
    pub unit: u64,
    /// Of its first byte.
    pub offset: u64,
    pub nontemporal: bool,
}

/// What a model demands beyond the order of the updates of each line.
///
/// It must fit what the model guarantees: when an update is guaranteed to have persisted, so is what persists before it.
pub trait Edges: fmt::Debug + Send + Sync {
    /// An index that has no updates yet.
    fn index(&self) -> Box<dyn EdgeIndex>;
}

/// Updates by what later ones may depend on, so that an update costs what leads to it and not what came before it.
pub trait EdgeIndex: Send {
    /// Takes the next update in program order. Gives the earlier ones from which an edge leads to it, numbered in the order in which they were
    /// taken. Those of its own unit do not count: the unit has an order.
    fn take(&mut self, update: &Update) -> Vec<usize>;
}

/// The edges between updates that come one by one, in program order.
pub(crate) struct EdgesSoFar<N> {
    index: Box<dyn EdgeIndex>,
    /// What each update is called, and its unit.
    taken: Vec<(N, (u32, u64))>,
}

impl<N: Copy> EdgesSoFar<N> {
    pub(crate) fn new(edges: &dyn Edges) -> EdgesSoFar<N> {
        EdgesSoFar {
            index: edges.index(),
            taken: Vec::new(),
        }
    }

    /// Takes the next update. Gives those of other units that persist directly before it.
    pub(crate) fn take(&mut self, name: N, update: &Update) -> Vec<N> {
        let unit = (update.file, update.unit);
        let before = self.index.take(update).into_iter().map(|number| self.taken[number]);
        let before = before.filter(|(_, of)| *of != unit).map(|(name, _)| name).collect();
        self.taken.push((name, unit));
        before
    }
}

/// An update of a point: its line, and which of the line's.
pub(crate) type At = (usize, usize);

/// The order of all updates of a crash point.
#[derive(Debug)]
pub(crate) struct Ties {
    order: Order,
    /// By line and update: its number in the order.
    numbers: Vec<Vec<usize>>,
    /// By line: the edges that lead to it or from it, each from the earlier to the later.
    edges: Vec<Vec<(At, At)>>,
}

impl Ties {
    pub(crate) fn new(lines: &[Arc<UncertainLine>], edges: &dyn Edges) -> Ties {
        let of_line = |line: usize| (0..lines[line].line().stores().len()).map(move |store| (line, store));
        let mut updates: Vec<(At, Update)> = (0..lines.len())
            .flat_map(of_line)
            .map(|at| (at, lines[at.0].update(at.1)))
            .collect();
        updates.sort_by_key(|(_, update)| update.id);
        let mut ties = Ties {
            order: Order::default(),
            numbers: lines.iter().map(|line| vec![0; line.line().stores().len()]).collect(),
            edges: vec![Vec::new(); lines.len()],
        };
        let mut so_far = EdgesSoFar::new(edges);
        let mut chains = Chains::default();
        for (number, &(at, update)) in updates.iter().enumerate() {
            let before: Vec<At> = so_far.take(at, &update);
            let line = &lines[at.0];
            let chain = line.is_ordered(&line.line().stores()[at.1]).then_some(at.0);
            chains.update(chain, before.iter().map(|of| ties.numbers[of.0][of.1]));
            ties.numbers[at.0][at.1] = number;
            for earlier in before {
                ties.edges[earlier.0].push((earlier, at));
                ties.edges[at.0].push((earlier, at));
            }
        }
        ties.order = chains.order();
        ties
    }

    /// The state that `close` makes of a choice.
    pub(crate) fn nearest(
        &self,
        lines: &[Arc<UncertainLine>],
        choice: &State,
        close: impl FnOnce(&Order, &mut [bool]),
    ) -> State {
        let mut persisted = vec![false; self.order.len()];
        for ((line, numbers), &option) in lines.iter().zip(&self.numbers).zip(&choice.0) {
            for (&number, is_persisted) in numbers.iter().zip(line.persisted(option)) {
                persisted[number] = is_persisted;
            }
        }
        close(&self.order, &mut persisted);
        let lines = lines.iter().zip(&self.numbers);
        let options = lines.map(|(line, numbers)| line.option_with(|store| persisted[numbers[store]]));
        // Combinations that are left out: what is guaranteed is a state, too.
        let state: Option<Vec<u64>> = options.collect();
        State(state.unwrap_or_else(|| vec![0; choice.0.len()]))
    }

    /// Whether an update cannot persist without another.
    pub(crate) fn requires(&self, later: At, earlier: At) -> bool {
        let mut persisted = vec![false; self.order.len()];
        persisted[self.numbers[later.0][later.1]] = true;
        self.order.raise(&mut persisted);
        persisted[self.numbers[earlier.0][earlier.1]]
    }

    /// Whether two lines may have these options at once, as far as edges go from one to the other.
    fn go_together(&self, lines: &[Arc<UncertainLine>], a: (usize, u64), b: (usize, u64)) -> bool {
        let holds = |(line, option): (usize, u64), store: usize| lines[line].persisted(option).nth(store) == Some(true);
        self.edges[a.0].iter().all(|&(earlier, later)| {
            let (first, second) = match (earlier.0, later.0) {
                (from, to) if from == a.0 && to == b.0 => (a, b),
                (from, to) if from == b.0 && to == a.0 => (b, a),
                _ => return true,
            };
            holds(first, earlier.1) || !holds(second, later.1)
        })
    }

    fn partners(&self, line: usize) -> impl Iterator<Item = usize> {
        let edges = self.edges[line].iter();
        edges.map(move |(earlier, later)| if earlier.0 == line { later.0 } else { earlier.0 })
    }
}

/// Options of a line.
#[derive(Clone, Debug)]
pub(crate) enum Among {
    Range(Range<u64>),
    List(Vec<u64>),
}

impl Among {
    pub(crate) fn count(&self) -> u64 {
        match self {
            Among::Range(range) => range.end - range.start,
            Among::List(list) => list.len() as u64,
        }
    }

    pub(crate) fn nth(&self, number: u64) -> u64 {
        match self {
            Among::Range(range) => range.start + number,
            Among::List(list) => list[number as usize],
        }
    }
}

/// The states in which each line has one of some options. Some lines may be chosen for already.
pub(crate) struct Ways<'p> {
    point: &'p CrashPoint,
    among: &'p [Among],
}

impl<'p> Ways<'p> {
    pub(crate) fn new(point: &'p CrashPoint, among: &'p [Among]) -> Ways<'p> {
        Ways { point, among }
    }

    /// The options of an open line that go with what is chosen.
    fn options(&self, line: usize, chosen: &[Option<u64>]) -> impl Iterator<Item = u64> {
        let all = (0..self.among[line].count()).map(move |number| self.among[line].nth(number));
        all.filter(move |&option| self.fits(line, option, chosen))
    }

    fn fits(&self, line: usize, option: u64, chosen: &[Option<u64>]) -> bool {
        let Some(ties) = &self.point.ties else { return true };
        ties.partners(line).all(|other| {
            chosen[other].is_none_or(|known| ties.go_together(&self.point.lines, (line, option), (other, known)))
        })
    }

    /// How many options of an open line go with what is chosen.
    fn fitting(&self, line: usize, chosen: &[Option<u64>]) -> u128 {
        match self.point.ties {
            Some(_) => self.options(line, chosen).count() as u128,
            None => self.among[line].count().into(),
        }
    }

    /// The open line with most edges to other open ones: once it is chosen for, the others depend less on each other.
    fn most_tied(&self, chosen: &[Option<u64>]) -> Option<usize> {
        let ties = self.point.ties.as_ref()?;
        let open = |line: &usize| chosen[*line].is_none();
        let tied = |line: usize| ties.partners(line).filter(open).count();
        let lines = (0..chosen.len()).filter(open).map(|line| (tied(line), line));
        lines.max().filter(|&(tied, _)| tied > 0).map(|(_, line)| line)
    }

    /// How many states there are, saturating.
    pub(crate) fn count(&self, chosen: &[Option<u64>]) -> u128 {
        let fits = |(line, option): (usize, &Option<u64>)| option.is_none_or(|option| self.fits(line, option, chosen));
        if !chosen.iter().enumerate().all(fits) {
            return 0;
        }
        self.count_open(&mut chosen.to_vec())
    }

    fn count_open(&self, chosen: &mut Vec<Option<u64>>) -> u128 {
        let Some(line) = self.most_tied(chosen) else {
            let open = (0..chosen.len()).filter(|&line| chosen[line].is_none());
            return open
                .map(|line| self.fitting(line, chosen))
                .fold(1, u128::saturating_mul);
        };
        let options: Vec<u64> = self.options(line, chosen).collect();
        let mut count = 0u128;
        for option in options {
            chosen[line] = Some(option);
            count = count.saturating_add(self.count_open(chosen));
        }
        chosen[line] = None;
        count
    }

    /// One of the states, by its number.
    pub(crate) fn state(&self, chosen: &[Option<u64>], mut number: u128) -> State {
        let mut chosen = chosen.to_vec();
        while let Some(line) = self.most_tied(&chosen) {
            let options: Vec<u64> = self.options(line, &chosen).collect();
            for option in options {
                chosen[line] = Some(option);
                let count = self.count_open(&mut chosen);
                if number < count {
                    break;
                }
                number -= count;
            }
        }
        let mut state = State(Vec::with_capacity(chosen.len()));
        for line in 0..chosen.len() {
            let option = chosen[line].unwrap_or_else(|| {
                let count = self.fitting(line, &chosen).max(1);
                let place = (number % count) as usize;
                number /= count;
                match self.point.ties {
                    Some(_) => self.options(line, &chosen).nth(place).unwrap_or(0),
                    None => self.among[line].nth(place as u64),
                }
            });
            state.0.push(option);
        }
        state
    }
}
