//! What is not persistent at a place of the trace.

use rustc_hash::FxHashMap;

use super::trace::{Event, What};

/// The lines that hold something that is not persistent.
#[derive(Default)]
pub struct Unpersisted {
    /// With the number of stores to each.
    stores: FxHashMap<u64, usize>,
    /// By thread, what was flushed and when: how many stores it had then.
    flushed: FxHashMap<u32, Vec<(u64, usize)>>,
}

impl Unpersisted {
    pub fn has(&self, line: u64) -> bool {
        self.stores.contains_key(&line)
    }

    pub fn event(&mut self, event: &Event) {
        match event.what {
            What::Store { at, len, .. } => {
                for line in at / 64..=(at + len - 1) / 64 {
                    *self.stores.entry(line).or_default() += 1;
                }
            }
            What::Flush { at, .. } => {
                let line = at / 64;
                if let Some(stores) = self.stores.get(&line) {
                    self.flushed.entry(event.thread).or_default().push((line, *stores));
                }
            }
            What::Fence { .. } => {
                for (line, stores) in self.flushed.remove(&event.thread).unwrap_or_default() {
                    if self.stores.get(&line) == Some(&stores) {
                        self.stores.remove(&line);
                    }
                }
            }
            What::Sync { at, len } => {
                let lines = at / 64..at.saturating_add(len).div_ceil(64);
                self.stores.retain(|line, _| !lines.contains(line));
            }
            What::File | What::Output => {}
        }
    }
}
