//! The loads of an operation, and what each reaches: PO3 closed over the reader's side.
//!
//! A recorded dependence joins an access to the *nearest* loads. With `if (token && key == k) use(value)` the value depends on the key and
//! the key on the token; that the value must be there before the token takes a chain of two. A chain has at most [`DEPTH`]
//! dependences, of which at least one is control (the paper's edge: "if there is at least one control-flow edge along the path").
//! The bound keeps a walk over a list of n nodes from giving n² conditions; four reach from a value over its key and token to the pointer that leads to
//! the bucket.

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
    pub thread: ThreadId,
    pub stack: StackId,
    pub locations: Vec<LocationId>,
    depends: Vec<Dependence>,
}

/// A load that another access reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Reached {
    pub node: u64,
    /// Some dependence on the way is control.
    pub control: bool,
}

#[derive(Default)]
pub(crate) struct Loads {
    loads: FxHashMap<u64, Load>,
    /// Of a walk.
    seen: FxHashMap<Reached, ()>,
    front: Vec<Reached>,
}

impl Loads {
    pub fn get(&self, node: u64) -> Option<&Load> {
        self.loads.get(&node)
    }

    pub fn add(
        &mut self,
        node: u64,
        thread: ThreadId,
        stack: StackId,
        locations: Vec<LocationId>,
        depends: Vec<Dependence>,
    ) {
        if self.loads.len() >= MOST_LOADS {
            self.loads.retain(|old, _| *old + (MOST_LOADS as u64 / 2) > node);
        }
        self.loads.insert(
            node,
            Load {
                thread,
                stack,
                locations,
                depends,
            },
        );
    }

    /// An operation of the thread ended: nothing depends on its loads any more.
    pub fn end_operation(&mut self, thread: ThreadId) {
        self.loads.retain(|_, load| load.thread != thread);
    }

    /// All loads that these dependences lead to, in chains of at least one control dependence.
    pub fn guards(&mut self, depends: &[Dependence], out: &mut Vec<u64>) {
        self.seen.clear();
        self.front.clear();
        self.front.extend(depends.iter().map(|on| Reached {
            node: on.node,
            control: on.control,
        }));
        let first = out.len();
        for depth in 1..=DEPTH {
            for reached in std::mem::take(&mut self.front) {
                if self.seen.insert(reached, ()).is_some() {
                    continue;
                }
                if reached.control {
                    out.push(reached.node);
                }
                if depth < DEPTH
                    && let Some(load) = self.loads.get(&reached.node)
                {
                    self.front.extend(load.depends.iter().map(|on| Reached {
                        node: on.node,
                        control: reached.control || on.control,
                    }));
                }
            }
        }
        out[first..].sort_unstable();
    }
}
