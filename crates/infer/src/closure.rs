//! The loads of an operation, and what each reaches: PO3 closed over the reader's side.
//!
//! A recorded dependence joins an access to the *nearest* loads. With `if (token && key == k) use(value)` the value depends on the key and
//! the key on the token; that the value must be there before the token takes a chain of two. A chain has at most [`DEPTH`]
//! dependences, of which at least one is control (the paper's edge: "if there is at least one control-flow edge along the path").
//! The bound keeps a walk over a list of n nodes from giving n² conditions; four reach from a value over its key and token to the pointer that leads to
//! the bucket.

use std::collections::VecDeque;

use crashproof_trace::{Dependence, StackId, ThreadId};
use rustc_hash::FxHashMap;

use crate::location::LocationId;

/// Dependences in a chain.
pub const DEPTH: u32 = 4;
/// Loads that are kept at a time. Labels end with their operation, so that only a set-up or an operation without end has more.
const MOST_LOADS: usize = 1 << 20;

/// A load, as the accesses after it see it.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    node: u64,
    thread: ThreadId,
    pub stack: StackId,
    pub locations: Vec<LocationId>,
    depends: Box<[Link]>,
}

/// The number of a load among all that there were, and whether it decides by control.
#[derive(Clone, Copy, Debug)]
struct Link {
    load: u64,
    control: bool,
}

#[derive(Default)]
pub(crate) struct Loads {
    /// From number `first` on. Those of operations that ended are left until no other is before them.
    loads: VecDeque<Load>,
    first: u64,
    /// By load: the last walk that came there, twice its number, and one more if by a control dependence.
    visited: VecDeque<u64>,
    /// By node, of operations that go on.
    numbers: FxHashMap<u64, u64>,
    walk: u64,
    front: Vec<Link>,
    next: Vec<Link>,
}

impl Loads {
    pub(crate) fn get(&self, node: u64) -> Option<&Load> {
        let number = self.numbers.get(&node)?;
        self.loads.get((number - self.first) as usize)
    }

    pub(crate) fn add(
        &mut self,
        node: u64,
        thread: ThreadId,
        stack: StackId,
        locations: Vec<LocationId>,
        depends: &[Dependence],
    ) {
        if self.loads.len() >= MOST_LOADS {
            for _ in 0..MOST_LOADS / 2 {
                self.forget_first();
            }
        }
        let load = Load {
            node,
            thread,
            stack,
            locations,
            depends: self.links(depends).collect(),
        };
        self.numbers.insert(node, self.first + self.loads.len() as u64);
        self.loads.push_back(load);
        self.visited.push_back(0);
    }

    fn forget_first(&mut self) {
        if let Some(load) = self.loads.pop_front() {
            if self.numbers.get(&load.node) == Some(&self.first) {
                self.numbers.remove(&load.node);
            }
            self.visited.pop_front();
            self.first += 1;
        }
    }

    fn links(&self, depends: &[Dependence]) -> impl Iterator<Item = Link> {
        depends.iter().filter_map(|on| {
            let load = *self.numbers.get(&on.node)?;
            let control = on.control;
            Some(Link { load, control })
        })
    }

    /// An operation of the thread ended: nothing depends on its loads any more.
    pub(crate) fn end_operation(&mut self, thread: ThreadId) {
        let first = self.first;
        self.numbers.retain(|_, number| {
            let load = &mut self.loads[(*number - first) as usize];
            if load.thread == thread {
                // It is not gone on from there either.
                load.depends = Box::default();
            }
            load.thread != thread
        });
        while let Some(load) = self.loads.front()
            && self.numbers.get(&load.node) != Some(&self.first)
        {
            self.forget_first();
        }
    }

    /// All loads that these dependences lead to, in chains of at least one control dependence.
    pub(crate) fn guards(&mut self, depends: &[Dependence], out: &mut Vec<u64>) {
        self.walk += 1;
        let mut front = std::mem::take(&mut self.front);
        let mut next = std::mem::take(&mut self.next);
        let (first, by_control) = (self.first, 2 * self.walk + 1);
        // Whether it has not been visited: by control, everything behind it has been reached by control, too.
        let visit = |visited: &mut [u64], on: Link| {
            let Some(at) = on.load.checked_sub(first) else {
                return false;
            };
            let known = &mut visited[at as usize];
            let mark = by_control - u64::from(!on.control);
            *known < mark && {
                *known = mark;
                true
            }
        };
        front.clear();
        front.extend(self.links(depends));
        let visited = self.visited.make_contiguous();
        front.retain(|&on| visit(visited, on));
        let begin = out.len();
        for depth in 1..=DEPTH {
            next.clear();
            for &Link { load, control } in &front {
                let load = &self.loads[(load - first) as usize];
                if control {
                    out.push(load.node);
                }
                if depth == DEPTH {
                    continue;
                }
                for on in &load.depends {
                    let control = control || on.control;
                    let on = Link { control, ..*on };
                    // The last step counts only if the chain has its control dependence.
                    if (control || depth + 1 < DEPTH) && visit(visited, on) {
                        next.push(on);
                    }
                }
            }
            std::mem::swap(&mut front, &mut next);
        }
        (self.front, self.next) = (front, next);
        out[begin..].sort_unstable();
    }
}
