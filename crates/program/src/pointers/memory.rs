//! The locations of all objects, which of them overlap, and what copies of memory carry from where to where.

use rustc_hash::FxHashMap;

use super::constraints::ObjectId;
use super::offsets::{Offsets, Shift, gcd};

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
    /// Copies of memory that have this object as a source: the copy, and the location from which on it is copied.
    watchers: Vec<(u32, u32)>,
}

pub struct Memory {
    pub locations: Vec<Location>,
    /// Nodes, made when they are needed.
    pub read: Vec<Option<u32>>,
    pub written: Vec<Option<u32>>,
    numbers: FxHashMap<Location, u32>,
    objects: Vec<ObjectMemory>,
}

impl Memory {
    /// The one location of [`ObjectId::UNKNOWN`].
    pub const UNKNOWN: u32 = 0;

    pub fn new(ends: impl Iterator<Item = u32>) -> Memory {
        let object = |end| ObjectMemory {
            end,
            ..ObjectMemory::default()
        };
        let mut memory = Memory {
            locations: Vec::new(),
            read: Vec::new(),
            written: Vec::new(),
            numbers: FxHashMap::default(),
            objects: ends.map(object).collect(),
        };
        // The begin of each object is what is pointed to most: neighbours in the sets.
        for object in 0..memory.objects.len() as u32 {
            memory.location(ObjectId(object), Offsets::at(0));
        }
        memory
    }

    pub fn end(&self, object: ObjectId) -> u32 {
        self.objects[object.0 as usize].end
    }

    pub fn location(&mut self, object: ObjectId, offsets: Offsets) -> u32 {
        let location = Location { object, offsets };
        if let Some(number) = self.numbers.get(&location) {
            return *number;
        }
        let number = self.locations.len() as u32;
        self.numbers.insert(location, number);
        self.locations.push(location);
        self.read.push(None);
        self.written.push(None);
        let memory = &mut self.objects[object.0 as usize];
        memory.all.push(number);
        match offsets.is_exact() {
            true => _ = memory.exact.insert(offsets.first, number),
            false => memory.progressions.push(number),
        }
        number
    }

    pub fn anywhere(&mut self, object: ObjectId) -> u32 {
        self.location(object, Offsets::anywhere(self.end(object)))
    }

    pub fn shifted(&mut self, location: u32, shift: Shift) -> u32 {
        let Location { object, offsets } = self.locations[location as usize];
        self.location(object, offsets.shift(shift, self.end(object)))
    }

    /// Those of the same object, itself included.
    pub fn overlapping(&self, location: u32) -> Vec<u32> {
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

    pub fn of_object(&self, object: ObjectId) -> &[u32] {
        &self.objects[object.0 as usize].all
    }

    pub fn watchers(&self, object: ObjectId) -> &[(u32, u32)] {
        &self.objects[object.0 as usize].watchers
    }

    pub fn watch(&mut self, object: ObjectId, copy: u32, source: u32) {
        self.objects[object.0 as usize].watchers.push((copy, source));
    }

    /// Where something lands that is copied at a distance from the begin of what is copied; nowhere, if that lies outside of the object.
    pub fn copied_to(&mut self, target: u32, relative: Offsets) -> Option<u32> {
        if target == Memory::UNKNOWN {
            return Some(target);
        }
        let Location { object, offsets } = self.locations[target as usize];
        let landed = landing(offsets, relative, self.end(object))?;
        Some(self.location(object, landed))
    }
}

/// See [`Memory::copied_to`].
pub fn landing(target: Offsets, relative: Offsets, end: u32) -> Option<Offsets> {
    if end == 0 {
        return Some(Offsets::at(0));
    }
    let first = target.first.checked_add(relative.first).filter(|first| *first <= end)?;
    let last = target.last.saturating_add(relative.last).min(end);
    Some(Offsets::progression(first, last, gcd(target.step, relative.step)))
}

/// The state of a [`Constraint::CopyMemory`](super::constraints::Constraint::CopyMemory). What is copied goes through one node for each distance from
/// the begin, not from each source to each target.
pub struct Channels {
    length: Option<u32>,
    pub channels: Vec<(Offsets, u32)>,
    pub numbers: FxHashMap<Offsets, u32>,
    pub targets: Vec<u32>,
}

impl Channels {
    pub fn new(length: Option<u32>) -> Channels {
        Channels {
            length,
            channels: Vec::new(),
            numbers: FxHashMap::default(),
            targets: Vec::new(),
        }
    }

    /// See [`distance`].
    pub fn relative(&self, source: Offsets, at: Offsets) -> Option<Offsets> {
        distance(source, at, self.length)
    }
}

/// How far from the begin of a copy from `source` on that lies which is `at` these offsets; `None` if it is not copied.
///
/// Field by field only if the length is constant, as that of a struct is. Else what is copied may land wherever it is aligned: in a program that moves
/// buffers about, of sizes not known, each would soon have something at each offset anyway. For the same reason a progression is rounded up to one of a few.
pub fn distance(source: Offsets, at: Offsets, length: Option<u32>) -> Option<Offsets> {
    let last = at.last.checked_sub(source.first)?;
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
