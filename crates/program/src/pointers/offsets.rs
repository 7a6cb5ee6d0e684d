//! Where in an object: an arithmetic progression of byte offsets.
//!
//! One offset for a field; a progression for the elements of an array, or what a pointer that moves in steps may reach. Elements of an array
//! are thereby collapsed, by the offset in the element, while constant indices stay apart.

/// Offsets `first`, `first + step`, … up to `last`. `step` is 0 if and only if there is one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offsets {
    pub first: u32,
    pub last: u32,
    pub step: u32,
}

/// How a pointer moves within the object that it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shift {
    By(i64),
    /// An index below `count` into an array of elements of `step` bytes; of unknown length, without `count`.
    Index {
        step: u32,
        count: Option<u32>,
    },
    /// Any number of steps, forwards or backwards.
    Steps(u32),
}

impl Offsets {
    pub fn at(offset: u32) -> Offsets {
        Offsets {
            first: offset,
            last: offset,
            step: 0,
        }
    }

    /// An offset in an object of which offsets up to `end` are told apart.
    pub fn inside(offset: u32, end: u32) -> Offsets {
        match offset <= end {
            true => Offsets::at(offset),
            false => Offsets::anywhere(end),
        }
    }

    pub fn anywhere(end: u32) -> Offsets {
        Offsets::progression(0, end, 1)
    }

    /// `last` need not be one of them.
    pub fn progression(first: u32, last: u32, step: u32) -> Offsets {
        match step {
            0 => Offsets::at(first),
            _ if last < first.saturating_add(step) => Offsets::at(first),
            _ => Offsets {
                first,
                last: first + (last - first) / step * step,
                step,
            },
        }
    }

    pub fn is_exact(&self) -> bool {
        self.step == 0
    }

    /// Whether it goes on to the end of what is told apart in the object, and so perhaps beyond.
    pub fn is_open(&self, end: u32) -> bool {
        self.step > 0 && self.last.saturating_add(self.step) > end
    }

    /// In an object of which offsets up to `end` are told apart. What leads out of it may be anywhere in it: the object may be known by another
    /// begin than its allocation's (a header before what an allocator hands out), and C++ and allocators move pointers in ways of their own.
    pub fn shift(&self, shift: Shift, end: u32) -> Offsets {
        if end == 0 {
            return Offsets::at(0);
        }
        match shift {
            Shift::By(0) => *self,
            Shift::By(_) if self.step == 1 => Offsets::anywhere(end),
            // What reaches further than offsets are told apart only gets further away.
            Shift::By(by) if self.is_open(end) && by > 0 && self.stays_open(by, end) => {
                Offsets::progression(self.first + by as u32, end, self.step)
            }
            // It may come from further away than offsets are told apart, so all that is known is the remainder.
            Shift::By(by) if self.is_open(end) => {
                let first = (i64::from(self.first).saturating_add(by)).rem_euclid(i64::from(self.step));
                Offsets::progression(first as u32, end, self.step)
            }
            Shift::By(by) => {
                let (first, last) = (
                    i64::from(self.first).saturating_add(by),
                    i64::from(self.last).saturating_add(by),
                );
                self.clipped(first, last, end).unwrap_or(Offsets::anywhere(end))
            }
            Shift::Index { step, count } => {
                let reach = match count {
                    Some(count) => u64::from(count.saturating_sub(1)) * u64::from(step) + u64::from(self.last),
                    None => u64::from(end),
                };
                let step = if count == Some(1) {
                    self.step
                } else {
                    gcd(self.step, step)
                };
                Offsets::progression(self.first, reach.min(u64::from(end)) as u32, step)
            }
            Shift::Steps(step) => {
                let step = gcd(self.step, step);
                Offsets::progression(if step == 0 { self.first } else { self.first % step }, end, step)
            }
        }
    }

    /// Whether at least two of these offsets lie in the object when moved forwards.
    fn stays_open(&self, by: i64, end: u32) -> bool {
        i64::from(self.first)
            .saturating_add(by)
            .saturating_add(self.step.into())
            <= end.into()
    }

    /// The part from `first` to `last` (of these offsets moved there) that lies in the object.
    fn clipped(&self, first: i64, last: i64, end: u32) -> Option<Offsets> {
        let end = i64::from(end);
        if last < 0 || first > end {
            return None;
        }
        let step = i64::from(self.step);
        let first = if first >= 0 { first } else { first.rem_euclid(step) };
        (first <= end && first <= last).then(|| Offsets::progression(first as u32, last.min(end) as u32, self.step))
    }

    pub fn overlaps(&self, other: &Offsets) -> bool {
        if self.first > other.last || other.first > self.last {
            return false;
        }
        let step = gcd(self.step, other.step);
        match (step, self.first.abs_diff(other.first)) {
            (0, distance) => distance == 0,
            // Congruent, and the ranges meet: progressions with a common step do meet there; with different ones it may be too cautious.
            (step, distance) => distance % step == 0,
        }
    }

    /// Whether accesses of these sizes, one at each, may share a byte. Without a size: as far as the object goes.
    pub fn meets(&self, size: Option<u32>, other: &Offsets, other_size: Option<u32>) -> bool {
        let last = |offsets: &Offsets, size: Option<u32>| {
            size.map_or(u32::MAX, |size| offsets.last.saturating_add(size.max(1) - 1))
        };
        if self.first > last(other, other_size) || other.first > last(self, size) {
            return false;
        }
        let step = gcd(self.step, other.step);
        if step == 0 {
            return true;
        }
        // Distance from one to the other modulo the common step; they share a byte if one begins inside the other.
        let distance = (i64::from(other.first) - i64::from(self.first)).rem_euclid(i64::from(step)) as u32;
        size.is_none_or(|size| distance < size.max(1))
            || other_size.is_none_or(|size| step - distance < size.max(1))
            || distance == 0
    }

    /// Whether each of the other's offsets is one of these.
    pub fn covers(&self, other: &Offsets) -> bool {
        let inside = self.first <= other.first && other.last <= self.last;
        inside && (other.first - self.first).is_multiple_of(self.step) && other.step.is_multiple_of(self.step)
    }
}

pub(super) fn gcd(a: u32, b: u32) -> u32 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}
