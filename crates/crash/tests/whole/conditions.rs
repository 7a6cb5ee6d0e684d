//! The strategy `conditions` against its definition, taken literally: at every crash point, for all pairs of stores.

use crate::common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use common::{
    Action, Image, PATH, SIZE, Simulated, Step, Units, fitting, is_edge, opened, options, run, steps, tied, units,
    write_trace,
};
use crashproof_crash::{CampaignOptions, StoreId, StrategyKind, Update};
use crashproof_infer::{Conditions, Guardian, Location, LocationId, Order, Rule};
use crashproof_trace::{EventKind, FileId, FlushKind, Item, StackId, TraceReader};
use proptest::prelude::*;

/// A word's worth of a store.
#[derive(Clone)]
struct Piece {
    id: StoreId,
    at: u64,
    data: Vec<u8>,
    thread: u32,
    nontemporal: bool,
    flushed_by: BTreeSet<u32>,
    persistent: bool,
}

impl Piece {
    fn has(&self, byte: u64) -> bool {
        (self.at..self.at + self.data.len() as u64).contains(&byte)
    }
}

struct Naive<'a> {
    units: Units,
    /// Bytes of one.
    unit: u64,
    conditions: &'a Conditions,
    initial: Vec<u8>,
    /// Of the whole run, and how many of them were executed.
    all: Vec<Piece>,
    pieces: Vec<Piece>,
    images: BTreeSet<Vec<u8>>,
}

impl Naive<'_> {
    fn fence(&mut self, thread: u32) {
        let raises = |piece: &Piece| {
            !piece.persistent && (piece.flushed_by.contains(&thread) || piece.nontemporal && piece.thread == thread)
        };
        if self.pieces.iter().any(raises) {
            self.point();
        }
        for piece in self.pieces.iter_mut().filter(|piece| raises(piece)) {
            piece.persistent = true;
        }
    }

    fn image(&self, persisted: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut image = self.initial.clone();
        for (index, piece) in self.pieces.iter().enumerate() {
            if piece.persistent || persisted(index) {
                image[piece.at as usize..][..piece.data.len()].copy_from_slice(&piece.data);
            }
        }
        image
    }

    /// Whether the piece's byte can still make a difference: a non-temporal store that came later may have persisted before it.
    fn is_visible(&self, piece: usize, byte: u64) -> bool {
        let hides = |later: &Piece| later.persistent && later.has(byte);
        self.pieces[piece].has(byte) && !self.pieces[piece + 1..].iter().any(hides)
    }

    /// Whether P must not persist without U.
    fn is_condition(&self, p: usize, u: usize) -> bool {
        let of = |piece: usize, id: LocationId| {
            let location = self.conditions.location(id);
            let mut bytes = location.offset..location.offset + location.len as u64;
            bytes.any(|byte| self.is_visible(piece, byte))
        };
        let guards = |piece: usize| {
            let guardians = self.conditions.guardians.iter();
            guardians.clone().any(|guardian| of(piece, guardian.location))
        };
        self.conditions
            .orders
            .iter()
            .any(|order| of(p, order.after) && of(u, order.before))
            || guards(p) && guards(u)
    }

    /// The same of any two stores of the run, by all that they write.
    fn is_condition_of_all(&self, p: usize, u: usize) -> bool {
        let of = |piece: usize, id: LocationId| {
            let location = self.conditions.location(id);
            let mut bytes = location.offset..location.offset + location.len as u64;
            bytes.any(|byte| self.all[piece].has(byte))
        };
        let guards = |piece: usize| {
            self.conditions
                .guardians
                .iter()
                .any(|guardian| of(piece, guardian.location))
        };
        let mut orders = self.conditions.orders.iter();
        orders.any(|order| of(p, order.after) && of(u, order.before)) || guards(p) && guards(u)
    }

    /// `first` persists whenever `second` does.
    fn is_before(&self, first: usize, second: usize) -> bool {
        let between = |piece: usize| !self.pieces[piece].persistent && self.is_directly_before(first, piece);
        self.is_directly_before(first, second)
            || (first + 1..second).any(|piece| between(piece) && self.is_before(piece, second))
    }

    fn is_directly_before(&self, first: usize, second: usize) -> bool {
        let (a, b) = (&self.pieces[first], &self.pieces[second]);
        let update = |piece: &Piece| Update {
            id: piece.id,
            file: 0,
            unit: piece.at / self.unit,
            offset: piece.at,
            nontemporal: piece.nontemporal,
        };
        match a.at / self.unit == b.at / self.unit {
            true => first < second && !a.nontemporal && !b.nontemporal,
            false => first < second && is_edge(self.units, &update(a), &update(b)),
        }
    }

    fn point(&mut self) {
        let uncertain: Vec<usize> = (0..self.pieces.len())
            .filter(|&piece| !self.pieces[piece].persistent)
            .collect();
        let (base, newest) = (self.image(|_| false), self.image(|_| true));
        let mut images = Vec::new();
        for &p in &uncertain {
            for &u in uncertain.iter().filter(|&&u| u != p) {
                if self.is_condition(p, u) && !self.is_before(u, p) {
                    images.push((self.image(|piece| piece == p || self.is_before(piece, p)), &base));
                    images.push((self.image(|piece| piece != u && !self.is_before(u, piece)), &newest));
                }
            }
        }
        // What is persistent must not be so without what is pending or still to come; all of it is one operation.
        let is_pending = |&piece: &usize| {
            let range = &self.pieces[piece];
            let mut bytes = range.at..range.at + range.data.len() as u64;
            !range.persistent && bytes.any(|byte| self.is_visible(piece, byte))
        };
        let pending: Vec<usize> = (0..self.pieces.len()).filter(is_pending).collect();
        let mut nothing = false;
        for p in (0..self.pieces.len().min(self.all.len())).filter(|p| !pending.contains(p)) {
            for u in pending.iter().copied().chain(self.pieces.len()..self.all.len()) {
                if self.is_condition_of_all(p, u) {
                    nothing = true;
                    if u < self.pieces.len() {
                        images.push((self.image(|piece| piece != u && !self.is_before(u, piece)), &newest));
                    }
                }
            }
        }
        if nothing {
            self.images.insert(base.clone());
        }
        self.images.extend(
            images
                .into_iter()
                .filter(|(image, trivial)| image != *trivial)
                .map(|(image, _)| image),
        );
    }
}

fn naive(trace: &Path, conditions: &Conditions, units: Units) -> BTreeSet<Vec<u8>> {
    let mut naive = Naive {
        units,
        unit: tied(units, CampaignOptions::default()).unit,
        conditions,
        initial: vec![0; SIZE as usize],
        all: Vec::new(),
        pieces: Vec::new(),
        images: BTreeSet::new(),
    };
    replay(trace, &mut naive);
    naive.all = std::mem::take(&mut naive.pieces);
    naive.images.clear();
    replay(trace, &mut naive);
    naive.images
}

fn replay(trace: &Path, naive: &mut Naive<'_>) {
    let mut reader = TraceReader::open(trace).unwrap();
    while let Some(item) = reader.next().unwrap() {
        let Item::Event(event) = item else { continue };
        let thread = event.thread.0;
        match event.kind {
            EventKind::Store { at, data, flags } => {
                if flags.locked {
                    naive.fence(thread);
                }
                for (piece, part) in (0..).zip(crashproof_infer::split(at, data.len() as u64)) {
                    naive.pieces.push(Piece {
                        id: StoreId { seq: event.seq, piece },
                        at: part.offset,
                        data: data[(part.offset - at.offset) as usize..][..part.len as usize].into(),
                        thread,
                        nontemporal: flags.nontemporal,
                        flushed_by: BTreeSet::new(),
                        persistent: false,
                    });
                }
            }
            EventKind::Flush { at, kind } => {
                let (line, unit) = (at.offset / naive.unit, naive.unit);
                let now = kind == FlushKind::Clflush;
                let is_in = |piece: &Piece| piece.at / unit == line && !piece.nontemporal && !piece.persistent;
                if now && naive.pieces.iter().any(is_in) {
                    naive.point();
                }
                for piece in naive.pieces.iter_mut().filter(|piece| is_in(piece)) {
                    piece.persistent |= now;
                    piece.flushed_by.insert(thread);
                }
            }
            EventKind::Fence { .. } => naive.fence(thread),
            _ => {}
        }
    }
    naive.point();
}

fn location() -> impl Strategy<Value = Location> {
    (0..3usize, 0..28u64, 1..=8u8).prop_map(|(place, within, len)| {
        let offset = [0, 128, 4096 + 64][place] + within;
        let file = FileId(0);
        Location {
            file,
            offset,
            len: len.min((8 - offset % 8) as u8),
        }
    })
}

fn conditions(trace: &Path, locations: &[Location], pairs: &[(usize, usize)], guardians: &[usize]) -> Conditions {
    let mut conditions = Conditions::default();
    conditions.files = vec![PATH.into()];
    conditions.locations = locations.to_vec();
    let id = |number: usize| LocationId((number % locations.len()) as u32);
    let none = StackId(0);
    let orders = pairs.iter().map(|&(before, after)| Order {
        rule: Rule::Po1,
        before: id(before),
        after: id(after),
        count: 1,
        dependent: none,
        source: none,
    });
    conditions.orders = orders.collect();
    let guardians = guardians.iter().map(|&number| Guardian {
        location: id(number),
        of_reads: true,
        dependents: 1,
        dependent: none,
        source: none,
    });
    conditions.guardians = guardians.collect();
    conditions.operations = crashproof_infer::operations(&opened(trace)).unwrap();
    conditions
}

fn tested(trace: &Path, conditions: &Conditions, units: Units) -> BTreeSet<Vec<u8>> {
    let options = CampaignOptions {
        conditions: Some(Arc::new(conditions.clone())),
        ..tied(units, options(StrategyKind::Conditions))
    };
    let campaign = run(trace, &options, &Simulated::new(Arc::new(|_, _| true)), 2);
    let content = |image: Image| image.content;
    campaign.images().into_iter().map(content).collect()
}

fn plain(mut steps: Vec<Step>) -> Vec<Step> {
    for step in &mut steps {
        // What a persisted non-temporal store leaves of a cached one before it is for the tests of states.
        if let Action::Store { nontemporal, .. } = &mut step.action {
            *nontemporal = false;
        }
    }
    steps
}

proptest! {
    #![proptest_config(common::config(150))]

    #[test]
    fn states_are_those_of_the_definition(
        steps in steps(false, 14),
        locations in prop::collection::vec(location(), 1..6),
        pairs in prop::collection::vec((0..6usize, 0..6usize), 0..5),
        guardians in prop::collection::vec(0..6usize, 0..3),
        cached in any::<bool>(),
        units in units(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        let steps = if cached { plain(steps) } else { steps };
        write_trace(&trace, &[], &fitting(units, steps));
        let conditions = conditions(&trace, &locations, &pairs, &guardians);
        prop_assert_eq!(tested(&trace, &conditions, units), naive(&trace, &conditions, units));
    }
}

fn store(offset: u64) -> Step {
    Step {
        thread: 0,
        stack: 0,
        action: Action::Store {
            at: offset,
            data: vec![1],
            nontemporal: false,
            locked: false,
        },
    }
}

#[test]
fn conditions_of_addresses_do_not_apply_where_the_recordings_differ() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (folder.path().join("own"), folder.path().join("other"));
    let file = FileId(0);
    let locations = [0, 128].map(|offset| Location { file, offset, len: 1 });
    write_trace(&own, &[], &[store(0), store(128)]);
    write_trace(&other, &[], &[store(0), store(136)]);
    let same = conditions(&own, &locations, &[(0, 1)], &[]);
    assert_eq!(
        tested(&own, &same, Units::default()).len(),
        1,
        "the second without the first"
    );
    let differs = conditions(&other, &locations, &[(0, 1)], &[]);
    assert_eq!(tested(&own, &differs, Units::default()).len(), 0);
    let options = CampaignOptions {
        conditions: Some(Arc::new(differs)),
        ..options(StrategyKind::Conditions)
    };
    let campaign = run(&own, &options, &Simulated::new(Arc::new(|_, _| true)), 1);
    let warnings = campaign.outcome.warnings.join("\n");
    assert!(
        warnings.contains("1 operation stores to other places than in the recording of dependences (0)"),
        "{warnings}"
    );
}
