//! Mumak's strategy: the program is crashed right after a store, with everything before it persisted in program order, once
//! for each call path that a store has; and around file operations. That is seconds for any program, and finds what
//! no reordering is needed for.

use super::{PassEnd, Strategy, Work};
use crate::cursor::Stops;
use crate::state::{CrashPoint, PointHead};

pub(crate) struct Prefix;

impl Strategy for Prefix {
    fn stops(&self, _pass: u32) -> Stops {
        Stops::NewStacks
    }

    fn has_pass(&self, pass: u32, _last: PassEnd) -> bool {
        pass == 0
    }

    fn parts(&self, _pass: u32, _head: &PointHead) -> u64 {
        1
    }

    fn work<'p>(&self, _pass: u32, point: &'p CrashPoint, _part: u64) -> Work<'p> {
        Work::States(Box::new(std::iter::once(point.everything())))
    }
}
