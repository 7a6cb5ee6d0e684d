//! A crash point's states on an executor's image: going from one to the next writes the bytes that differ.

use crashproof_model::{LINE, LineAddress};
use crashproof_wire::recovery::{PAGE, parse_unit};

use crate::cursor::Cursor;
use crate::executor::Executor;
use crate::hash;
use crate::image::Image;
use crate::reads::{UnitHash, unit_hash};
use crate::state::{CrashPoint, State};

pub(crate) struct Stage<'a> {
    pub executor: &'a mut dyn Executor,
    pub point: &'a CrashPoint,
    shown: State,
}

impl<'a> Stage<'a> {
    /// The image has to be at what is guaranteed persistent.
    pub(crate) fn new(executor: &'a mut dyn Executor, point: &'a CrashPoint) -> Stage<'a> {
        Stage {
            executor,
            shown: point.nothing(),
            point,
        }
    }

    pub(crate) fn show(&mut self, state: &State) {
        for (index, line) in self.point.lines.iter().enumerate() {
            let (old, new) = (self.shown.0[index], state.0[index]);
            if old != new {
                self.executor
                    .write_difference(line.at, &line.content(old), &line.content(new));
                self.shown.0[index] = new;
            }
        }
    }

    /// Leaves the image at what is guaranteed persistent.
    pub(crate) fn clear(mut self) {
        let nothing = self.point.nothing();
        self.show(&nothing);
    }

    /// The lines of the point that lie in a unit.
    pub(crate) fn lines_of(&self, unit: u64) -> std::ops::Range<usize> {
        let (file, offset, len) = parse_unit(unit);
        let before = |end: u64| {
            self.point
                .lines
                .partition_point(|line| (line.at.file, line.at.line) < (file, end))
        };
        before(offset / LINE)..before((offset + len) / LINE)
    }

    /// What a unit holds if its lines hold these options. The other lines are at what is guaranteed persistent, always.
    pub(crate) fn unit(&self, unit: u64, cursor: &Cursor, option: impl Fn(usize) -> u64) -> UnitHash {
        let (file, offset, len) = parse_unit(unit);
        let lines = self.lines_of(unit);
        let base = if len == PAGE {
            cursor.page_hash(file, offset / PAGE)
        } else if let Some(line) = self.point.lines[lines.clone()].first() {
            hash::line(line.at, line.base())
        } else {
            let at = LineAddress {
                file,
                line: offset / LINE,
            };
            hash::line(at, &self.executor.read_line(at))
        };
        let content = lines.fold(base, |sum, index| {
            sum.wrapping_add(self.point.lines[index].change(option(index)))
        });
        unit_hash(content)
    }
}
