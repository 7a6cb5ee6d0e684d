//! A crash point's states on an executor's image: going from one to the next writes the bytes that differ.

use crashproof_wire::recovery::{PAGE, parse_unit};

use crate::cursor::Cursor;
use crate::executor::Executor;
use crate::hash;
use crate::image::Image;
use crate::reads::{UnitHash, unit_hash};
use crate::state::{CrashPoint, State, UncertainLine};

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
        let lines = &self.point.lines;
        let first = lines.partition_point(|line| (line.at.file, line.end()) <= (file, offset));
        let end = lines.partition_point(|line| (line.at.file, line.start()) < (file, offset + len));
        first..end
    }

    /// What a unit holds if its lines hold these options. The other lines are at what is guaranteed persistent, always.
    pub(crate) fn unit(&self, unit: u64, cursor: &Cursor, option: impl Fn(usize) -> u64) -> UnitHash {
        let (file, offset, len) = parse_unit(unit);
        let lines = self.lines_of(unit);
        let base = if len == PAGE {
            cursor.page_hash(file, offset / PAGE)
        } else if let [line] = &self.point.lines[lines.clone()]
            && (line.start(), line.end()) == (offset, offset + len)
        {
            hash::bytes(file, offset, line.base())
        } else {
            let mut base = vec![0; len as usize];
            self.executor.read(file as usize, offset, &mut base);
            for line in &self.point.lines[lines.clone()] {
                line.copy_to(line.base(), offset, &mut base);
            }
            hash::bytes(file, offset, &base)
        };
        let whole = |line: &UncertainLine| line.start() >= offset && line.end() <= offset + len;
        let content = lines.fold(base, |sum, index| {
            let (line, option) = (&self.point.lines[index], option(index));
            if whole(line) {
                return sum.wrapping_add(line.change(option));
            }
            let part = [line.base().clone(), line.content(option)].map(|content| {
                let mut part = vec![0; len as usize];
                line.copy_to(&content, offset, &mut part);
                hash::bytes(file, offset, &part)
            });
            sum.wrapping_sub(part[0]).wrapping_add(part[1])
        });
        unit_hash(content)
    }
}
