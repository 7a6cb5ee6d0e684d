//! PM traffic by function: who stores, flushes and fences, and how much of that does nothing. It shows where the cost of
//! persistence is.
//!
//! An event is its function's that has source: what libpmem or memcpy does is the caller's. The numbers are of all events of
//! the trace, and add up to its counts. A flush or fence is redundant if the oracles say so, before anything is ignored.

use crashproof_finding::blamed;
use crashproof_finding::picture::{Caller, Traffic};
use crashproof_finding::{Frame, Kind};
use crashproof_stacks::Stacks;
use crashproof_trace::{Event, EventKind, StackId, Tables};
use rustc_hash::FxHashMap;

use crate::findings::Findings;

/// Functions told apart; the rest are one row.
const MAX_FUNCTIONS: usize = 100;
/// Places that a function is called from.
const MAX_CALLERS: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    stores: u64,
    bytes: u64,
    flushes: u64,
    fences: u64,
    redundant_flushes: u64,
    redundant_fences: u64,
}

impl Numbers {
    fn add(&mut self, other: &Numbers) {
        self.stores += other.stores;
        self.bytes += other.bytes;
        self.flushes += other.flushes;
        self.fences += other.fences;
        self.redundant_flushes += other.redundant_flushes;
        self.redundant_fences += other.redundant_fences;
    }

    /// Flushes and fences are what costs.
    fn cost(&self) -> (u64, u64) {
        (self.flushes + self.fences, self.stores)
    }
}

/// What was done with each call stack.
#[derive(Default)]
pub(crate) struct ByStack {
    numbers: Vec<Numbers>,
}

#[derive(Default)]
struct Function {
    total: Numbers,
    callers: FxHashMap<Frame, Numbers>,
}

impl ByStack {
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        match event.kind {
            EventKind::Store { data, .. } => {
                let numbers = self.of(event.stack);
                numbers.stores += 1;
                numbers.bytes += data.len() as u64;
            }
            EventKind::Flush { .. } => self.of(event.stack).flushes += 1,
            EventKind::Fence { .. } => self.of(event.stack).fences += 1,
            _ => {}
        }
    }

    fn of(&mut self, stack: StackId) -> &mut Numbers {
        let index = stack.index();
        if index >= self.numbers.len() {
            self.numbers.resize(index + 1, Numbers::default());
        }
        &mut self.numbers[index]
    }

    /// The most costly function first.
    pub(crate) fn by_function(mut self, findings: &Findings, stacks: &mut Stacks, tables: &Tables) -> Vec<Traffic> {
        for finding in findings.iter() {
            match finding.kind {
                Kind::RedundantFlush | Kind::FlushUnmodified => {
                    self.of(finding.stack).redundant_flushes += finding.count
                }
                Kind::RedundantFence => self.of(finding.stack).redundant_fences += finding.count,
                _ => {}
            }
        }
        let mut functions: FxHashMap<(Option<String>, Option<String>), Function> = FxHashMap::default();
        for (stack, numbers) in (0..).map(StackId).zip(&self.numbers) {
            if numbers.stores + numbers.flushes + numbers.fences == 0 {
                continue;
            }
            let frames = stacks.symbolize(stack, tables).frames;
            let frame = blamed(&frames);
            let name = (
                frame.and_then(|frame| frame.function.clone()),
                frame.and_then(|frame| frame.file.clone()),
            );
            let function = functions.entry(name).or_default();
            function.total.add(numbers);
            let at = frame.and_then(|frame| frames.iter().position(|other| std::ptr::eq(other, frame)));
            if let Some(caller) = at
                .and_then(|at| frames.get(at + 1))
                .filter(|caller| caller.has_position())
            {
                // However many copies of the call there are.
                let place = Frame {
                    address: 0,
                    ..caller.clone()
                };
                function.callers.entry(place).or_default().add(numbers);
            }
        }
        let mut rows: Vec<_> = functions.into_iter().collect();
        rows.sort_by(|(a_name, a), (b_name, b)| b.total.cost().cmp(&a.total.cost()).then_with(|| a_name.cmp(b_name)));
        let rest = rows.split_off(rows.len().min(MAX_FUNCTIONS));
        let mut traffic: Vec<Traffic> = rows
            .into_iter()
            .map(|((function, file), of)| Traffic {
                function,
                file,
                callers: callers(of.callers),
                ..row(&of.total)
            })
            .collect();
        if !rest.is_empty() {
            let mut total = Numbers::default();
            rest.iter().for_each(|(_, of)| total.add(&of.total));
            traffic.push(Traffic {
                functions: Some(rest.len() as u64),
                ..row(&total)
            });
        }
        traffic
    }
}

fn row(numbers: &Numbers) -> Traffic {
    Traffic {
        stores: numbers.stores,
        bytes: numbers.bytes,
        flushes: numbers.flushes,
        fences: numbers.fences,
        redundant_flushes: numbers.redundant_flushes,
        redundant_fences: numbers.redundant_fences,
        ..Traffic::default()
    }
}

fn callers(callers: FxHashMap<Frame, Numbers>) -> Vec<Caller> {
    let mut callers: Vec<_> = callers.into_iter().collect();
    let place = |frame: &Frame| (frame.file.clone(), frame.line, frame.column, frame.module.clone());
    callers.sort_by(|(a, of_a), (b, of_b)| of_b.cost().cmp(&of_a.cost()).then_with(|| place(a).cmp(&place(b))));
    callers.truncate(MAX_CALLERS);
    let caller = |(frame, numbers): (Frame, Numbers)| Caller {
        frame,
        stores: numbers.stores,
        flushes: numbers.flushes,
        fences: numbers.fences,
        redundant_flushes: numbers.redundant_flushes,
        redundant_fences: numbers.redundant_fences,
    };
    callers.into_iter().map(caller).collect()
}
