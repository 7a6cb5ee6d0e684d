//! Which contents of the uncertain lines a behaviour is tested with at a crash point.
//!
//! Its own stores persist in every combination that the model allows. What was stored before it has persisted. What others
//! stored during it has persisted as well, or, in the second variant, only as far as it must: if one of the behaviour's own has
//! persisted after it in the same line. A combination is made as a choice of stores that the model allows and found
//! among the line's options, so that no other state can come up.

use rustc_hash::FxHashSet;

use crate::edges::Among;
use crate::state::{CrashPoint, State, UncertainLine};

/// What of others has persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// All that was issued before the crash.
    Persisted,
    /// What was issued before the behaviour began.
    AsMust,
}

/// Lines that are left out, or are the only ones, in the first look at a point.
const EARLY_LINES: usize = 32;
/// Beyond so many unordered stores of a behaviour in one line, few or all but few of them persist.
const COMBINED: usize = 8;

/// A behaviour as the crash states need it.
#[derive(Clone, Debug)]
pub(crate) struct Tested {
    /// Events of its stores, sorted.
    pub seqs: Vec<u64>,
}

impl Tested {
    fn owns(&self, seq: u64) -> bool {
        self.seqs.binary_search(&seq).is_ok()
    }

    fn start(&self) -> u64 {
        self.seqs.first().copied().unwrap_or(0)
    }

    pub(crate) fn choices(&self, point: &CrashPoint, others: Others) -> Choices {
        let mut choices = Choices::default();
        for line in &point.lines {
            let mut options = self.options(line, others);
            choices.full.push(options[options.len() - 1]);
            let mut known = FxHashSet::default();
            options.retain(|&option| known.insert(option));
            choices.options.push(options);
        }
        choices
    }

    /// From nothing of the behaviour to all of it.
    fn options(&self, line: &UncertainLine, others: Others) -> Vec<u64> {
        let stores = line.line().stores();
        let start = self.start();
        let stays = |seq: u64| others == Others::Persisted || seq < start;
        let mut prefixes = Vec::new();
        let mut free = Vec::new();
        let mut ordered = 0;
        let mut must = 0;
        for (index, store) in stores.iter().enumerate() {
            let seq = store.tag.id.seq;
            let own = self.owns(seq);
            if line.is_ordered(store) {
                match others {
                    Others::Persisted if own => prefixes.push(ordered),
                    Others::AsMust if own => prefixes.push(ordered + 1),
                    Others::AsMust if seq < start => must = ordered + 1,
                    _ => {}
                }
                ordered += 1;
            } else if own {
                free.push(index);
            }
        }
        match others {
            Others::Persisted => prefixes.push(ordered),
            Others::AsMust => prefixes.insert(0, must),
        }
        let mut options = Vec::new();
        for &prefix in &prefixes {
            for chosen in subsets(free.len()) {
                let option = line.option_of(prefix, |index, store| match free.binary_search(&index) {
                    Ok(bit) => chosen >> bit & 1 != 0,
                    Err(_) => stays(store.tag.id.seq),
                });
                options.extend(option);
            }
        }
        if options.is_empty() {
            // The line has more contents than are kept.
            options.push(line.everything());
        }
        options
    }
}

fn subsets(stores: usize) -> Vec<u128> {
    if stores <= COMBINED {
        return (0..1 << stores).collect();
    }
    let all = u128::MAX >> (128 - stores.min(128) as u32);
    let single = (0..stores.min(128)).flat_map(|bit| [1 << bit, all & !(1 << bit)]);
    std::iter::once(0).chain(single).chain([all]).collect()
}

/// What is tested at a point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices {
    /// For each line its options; the first has nothing of the behaviour.
    pub options: Vec<Vec<u64>>,
    /// For each line the option that has all of it.
    full: Vec<u64>,
}

impl Choices {
    /// States that most bugs show in: all persisted, nothing of the behaviour, all but one line, only one line.
    pub(crate) fn early(&self) -> Vec<State> {
        let full = State(self.full.clone());
        let none = State(self.options.iter().map(|options| options[0]).collect());
        let open: Vec<usize> = (0..self.full.len())
            .filter(|&line| self.options[line].len() > 1)
            .collect();
        let mut states = vec![full.clone(), none.clone()];
        if open.len() > 1 {
            for &line in open.iter().take(EARLY_LINES) {
                let (mut without, mut only) = (full.clone(), none.clone());
                without.0[line] = none.0[line];
                only.0[line] = full.0[line];
                states.extend([without, only]);
            }
        }
        states
    }

    /// How many states there are, saturating.
    pub(crate) fn count(self, point: &CrashPoint) -> u128 {
        let among: Vec<Among> = self.options.into_iter().map(Among::List).collect();
        point.ways(&among).count(&vec![None; among.len()])
    }
}
