//! The locations of all objects, which of them overlap, and what copies of memory carry from where to where.

use rustc_hash::FxHashMap;

use super::constraints::ObjectId;
use super::offsets::{Offsets, Shift, gcd};
use super::set::Set;

/// A part of an object that a pointer may point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    pub object: ObjectId,
    pub offsets: Offsets,
}

#[derive(Default)]
struct ObjectMemory {
    end: u32,
    exact: FxHashMap<u32, u32>,
    progressions: Vec<u32>,
    all: Vec<u32>,
    /// The one location that stands for all others, once there would be too many.
    whole: Option<u32>,
    most_exact: usize,
    /// Copies of memory that have this object as a source: the copy, and the location from which on it is copied.
    watchers: Vec<(u32, u32)>,
}

pub(super) struct Memory {
    pub locations: Vec<Location>,
    /// Nodes, made when they are needed.
    pub read: Vec<Option<u32>>,
    pub written: Vec<Option<u32>>,
    numbers: FxHashMap<Location, u32>,
    objects: Vec<ObjectMemory>,
    most_progressions: usize,
    /// Objects that have become one location since it was last asked.
    pub collapsed: Vec<ObjectId>,
}

impl Memory {
    /// The one location of [`ObjectId::UNKNOWN`].
    pub(super) const UNKNOWN: u32 = 0;

    pub(super) fn new(ends: impl Iterator<Item = u32>) -> Memory {
        let object = |end| ObjectMemory {
            end,
            most_exact: usize::MAX,
            ..ObjectMemory::default()
        };
        let mut memory = Memory {
            locations: Vec::new(),
            read: Vec::new(),
            written: Vec::new(),
            numbers: FxHashMap::default(),
            objects: ends.map(object).collect(),
            most_progressions: usize::MAX,
            collapsed: Vec::new(),
        };
        // The begin of each object is what is pointed to most: neighbours in the sets.
        for object in 0..memory.objects.len() as u32 {
            memory.location(ObjectId(object), Offsets::at(0));
        }
        memory
    }

    /// From now on, an object with more locations than `fields`, and one for every eight bytes of it, or more progressions than `fields`, is collapsed.
    pub(super) fn limit(&mut self, fields: usize) {
        self.most_progressions = fields;
        for object in &mut self.objects {
            object.most_exact = (object.exact.len() + object.end as usize / 8).saturating_add(fields);
        }
    }

    pub(super) fn end(&self, object: ObjectId) -> u32 {
        self.objects[object.0 as usize].end
    }

    pub(super) fn location(&mut self, object: ObjectId, offsets: Offsets) -> u32 {
        if let Some(whole) = self.objects[object.0 as usize].whole {
            return whole;
        }
        let location = Location { object, offsets };
        if let Some(number) = self.numbers.get(&location) {
            return *number;
        }
        let memory = &self.objects[object.0 as usize];
        if memory.exact.len() >= memory.most_exact || memory.progressions.len() >= self.most_progressions {
            return self.collapse(object);
        }
        self.new_location(location)
    }

    fn new_location(&mut self, location: Location) -> u32 {
        let number = self.locations.len() as u32;
        self.numbers.insert(location, number);
        self.locations.push(location);
        self.read.push(None);
        self.written.push(None);
        let memory = &mut self.objects[location.object.0 as usize];
        memory.all.push(number);
        match location.offsets.is_exact() {
            true => _ = memory.exact.insert(location.offsets.first, number),
            false => memory.progressions.push(number),
        }
        number
    }

    /// Makes all locations of an object one.
    fn collapse(&mut self, object: ObjectId) -> u32 {
        let offsets = Offsets::anywhere(self.end(object));
        let location = Location { object, offsets };
        let whole = self.numbers.get(&location).copied();
        let whole = whole.unwrap_or_else(|| self.new_location(location));
        let memory = &mut self.objects[object.0 as usize];
        memory.whole = Some(whole);
        for other in &memory.all {
            self.locations[*other as usize].offsets = offsets;
        }
        self.collapsed.push(object);
        whole
    }

    /// The location that stands for this one.
    pub(super) fn canonical(&self, location: u32) -> u32 {
        let object = self.locations[location as usize].object;
        self.objects[object.0 as usize].whole.unwrap_or(location)
    }

    pub(super) fn anywhere(&mut self, object: ObjectId) -> u32 {
        self.location(object, Offsets::anywhere(self.end(object)))
    }

    pub(super) fn shifted(&mut self, location: u32, shift: Shift) -> u32 {
        let Location { object, offsets } = self.locations[location as usize];
        self.location(object, offsets.shift(shift, self.end(object)))
    }

    /// Those of the same object, itself included.
    pub(super) fn overlapping(&self, location: u32) -> Vec<u32> {
        let Location { object, offsets } = self.locations[location as usize];
        let memory = &self.objects[object.0 as usize];
        let overlaps = |other: &&u32| self.locations[**other as usize].offsets.overlaps(&offsets);
        match offsets.is_exact() {
            true => {
                let progressions = memory.progressions.iter().filter(overlaps);
                progressions.copied().chain([location]).collect()
            }
            false => memory.all.iter().filter(overlaps).copied().collect(),
        }
    }

    pub(super) fn of_object(&self, object: ObjectId) -> &[u32] {
        &self.objects[object.0 as usize].all
    }

    pub(super) fn watchers(&self, object: ObjectId) -> &[(u32, u32)] {
        &self.objects[object.0 as usize].watchers
    }

    pub(super) fn watch(&mut self, object: ObjectId, copy: u32, source: u32) {
        self.objects[object.0 as usize].watchers.push((copy, source));
    }

    /// Where something lands that is copied at a distance from the begin of what is copied.
    pub(super) fn copied_to(&mut self, target: u32, relative: Offsets) -> u32 {
        if target == Memory::UNKNOWN {
            return target;
        }
        let Location { object, offsets } = self.locations[target as usize];
        let landed = landing(offsets, relative, self.end(object));
        self.location(object, landed)
    }
}

/// See [`Memory::copied_to`]. As with shifts, what leads out of the object may be anywhere in it.
pub(super) fn landing(target: Offsets, relative: Offsets, end: u32) -> Offsets {
    if end == 0 {
        return Offsets::at(0);
    }
    let first = target.first.saturating_add(relative.first);
    if first > end {
        return Offsets::anywhere(end);
    }
    let last = target.last.saturating_add(relative.last).min(end);
    Offsets::progression(first, last, gcd(target.step, relative.step))
}

/// The state of a [`Constraint::CopyMemory`](super::constraints::Constraint::CopyMemory). What is copied goes through one node for each distance from
/// the begin, not from each source to each target.
pub(super) struct Channels {
    length: Option<u32>,
    pub channels: Vec<(Offsets, u32)>,
    pub numbers: FxHashMap<Offsets, u32>,
    pub sources: Set,
    pub targets: Set,
}

impl Channels {
    pub(super) fn new(length: Option<u32>) -> Channels {
        Channels {
            length,
            channels: Vec::new(),
            numbers: FxHashMap::default(),
            sources: Set::default(),
            targets: Set::default(),
        }
    }

    /// See [`distance`].
    pub(super) fn relative(&self, source: Offsets, at: Offsets, end: u32) -> Option<Offsets> {
        distance(source, at, self.length, end)
    }
}

/// How far from the begin of a copy from `source` on that lies which is `at` these offsets, in an object of which offsets up to `end` are told apart; `None`
/// if it is not copied.
///
/// Field by field only if the length is constant, as that of a struct is. Else what is copied may land wherever it is aligned: in a program that moves
/// buffers about, of sizes not known, each would soon have something at each offset anyway. For the same reason a progression is rounded up to one of a few.
pub(super) fn distance(source: Offsets, at: Offsets, length: Option<u32>, end: u32) -> Option<Offsets> {
    let last = if at.is_open(end) { u32::MAX - 8 } else { at.last };
    let last = last.checked_sub(source.first)?;
    let Some(length) = length else {
        let aligned = |number: u32| number.is_multiple_of(8);
        let is_aligned = aligned(at.first.abs_diff(source.first)) && aligned(at.step) && aligned(source.step);
        return Some(Offsets::progression(0, u32::MAX - 8, if is_aligned { 8 } else { 1 }));
    };
    let last = last.min(length.checked_sub(1)?);
    let step = match gcd(source.step, at.step) {
        step if step.is_multiple_of(8) => step,
        _ => 1,
    };
    if step == 0 {
        // From one place: what lies before it is not copied.
        let first = at.first.checked_sub(source.first)?;
        return (first <= last).then(|| Offsets::at(first));
    }
    let first = match at.first.checked_sub(source.first) {
        Some(first) => first % step,
        None => (step - (source.first - at.first) % step) % step,
    };
    (first <= last).then(|| Offsets::progression(first, last.saturating_add(1).next_power_of_two(), step))
}
