//! What is not persistent at a place of the trace.

use crashproof_base::{LINE, LineAddress};
use crashproof_litmus::StoreKind;
use crashproof_model::{Keep, Line, Model};
use crashproof_replay::{Cut, Observer, Replay, Step, Steps, StorePiece};
use crashproof_trace::StoreFlags;

use super::trace::{Event, What, line_at, place_at};

/// The lines that hold something that is not persistent.
pub(super) struct Unpersisted(Replay<Line<()>>);

impl Default for Unpersisted {
    fn default() -> Unpersisted {
        Unpersisted(Replay::new(Model::Px86))
    }
}

struct EveryLine;

impl Observer for EveryLine {
    type Line = Line<()>;

    /// Whether a line is persistent does not depend on stores that are overwritten.
    const KEEP: Keep = Keep::Last;

    fn tag(&mut self, _piece: &StorePiece) {}

    fn open(&mut self, _at: LineAddress) -> Option<Line<()>> {
        Some(Line::default())
    }
}

impl Unpersisted {
    pub(super) fn has(&self, line: u64) -> bool {
        self.0.line(line_at(line)).is_some()
    }

    pub(super) fn event(&mut self, event: &Event) {
        match event.what {
            What::Store { at, len, kind } => {
                let flags = StoreFlags {
                    nontemporal: kind == StoreKind::Nontemporal,
                    locked: kind == StoreKind::Locked,
                    ..StoreFlags::default()
                };
                for step in Steps::of_store(place_at(at), len, flags, Cut::LINES) {
                    self.step(event, &step);
                }
            }
            What::Flush { at, at_once } => {
                let line = line_at(at / LINE);
                self.step(event, &Step::Flush { line, at_once });
            }
            What::Fence { .. } => self.step(event, &Step::Fence),
            What::Sync { at, len } => {
                let at = place_at(at);
                let (file, offset) = (at.file, at.offset);
                self.step(event, &Step::Sync { file, offset, len });
            }
            What::File(step) => self.step(event, &step),
            What::Output => {}
        }
    }

    fn step(&mut self, event: &Event, step: &Step) {
        self.0.step(event.thread, step, &mut EveryLine);
    }
}

#[cfg(test)]
mod tests {
    use crashproof_base::{FileId, PmAddress};
    use crashproof_trace::StackId;

    use super::*;

    /// Whether line 0 is persistent after a store and these.
    fn persistent(kind: StoreKind, after: &[What]) -> bool {
        let mut lines = Unpersisted::default();
        let store = What::Store { at: 8, len: 8, kind };
        for what in [store].iter().chain(after) {
            lines.event(&Event {
                seq: 0,
                thread: 0,
                stack: StackId(0),
                what: *what,
            });
        }
        !lines.has(0)
    }

    #[test]
    fn what_makes_a_line_persistent() {
        use StoreKind::*;
        let flush = |at_once| What::Flush { at: 0, at_once };
        let fence = What::Fence { full: false };
        let other_line = |kind| What::Store { at: 128, len: 8, kind };
        assert!(!persistent(Plain, &[flush(false)]) && persistent(Plain, &[flush(false), fence]));
        assert!(persistent(Plain, &[flush(true)]), "clflush needs no fence");
        assert!(
            persistent(Plain, &[flush(false), other_line(Locked)]),
            "a locked store fences"
        );
        assert!(!persistent(Plain, &[flush(false), other_line(Plain)]));
        assert!(persistent(Nontemporal, &[fence]) && !persistent(Plain, &[fence]));
        assert!(
            !persistent(Plain, &[What::Sync { at: 0, len: 12 }]),
            "a part of the store"
        );
        let at = PmAddress {
            file: FileId(0),
            offset: 8,
        };
        assert!(persistent(Plain, &[What::File(Step::Write { at, len: 8 })]));
        let resize = |size| What::File(Step::Resize { file: FileId(0), size });
        assert!(persistent(Plain, &[resize(8)]) && !persistent(Plain, &[resize(12)]));
    }

    #[test]
    fn files_are_apart() {
        let mut lines = Unpersisted::default();
        let at = (1 << 40) + 64;
        lines.event(&Event {
            seq: 0,
            thread: 0,
            stack: StackId(0),
            what: What::Store {
                at,
                len: 8,
                kind: StoreKind::Plain,
            },
        });
        assert!(lines.has(at / LINE) && !lines.has(1));
    }
}
