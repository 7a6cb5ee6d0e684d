//! Conditions by what they constrain, in the numbers of the trace that is crashed.

use crashproof_infer::{Conditions, Field, FieldIndex, Fields};
use rustc_hash::{FxHashMap, FxHashSet};

pub(super) struct Index {
    /// By file and word: which bytes of it are which location.
    locations: FxHashMap<(u32, u64), Vec<(u8, u32)>>,
    /// By location: what must persist before it, sorted.
    befores: Vec<Vec<u32>>,
    /// And what must not persist before it.
    afters: Vec<Vec<u32>>,
    guardians: FxHashSet<u32>,
    /// By field: what must persist before it, and whether only in the same object.
    field_befores: FxHashMap<FieldIndex, Vec<(FieldIndex, bool)>>,
    field_afters: FxHashMap<FieldIndex, Vec<(FieldIndex, bool)>>,
    field_guardians: FxHashSet<FieldIndex>,
}

impl Index {
    /// `files` are those of the trace.
    pub(super) fn new(conditions: &Conditions, fields: &Fields, files: &[&str]) -> Index {
        // By path; the recordings may have had different folders, so else by number.
        let file = |number: usize| {
            let path = conditions.files.get(number);
            let same = path.and_then(|path| files.iter().position(|file| file == path));
            same.unwrap_or(number) as u32
        };
        let mut locations: FxHashMap<(u32, u64), Vec<(u8, u32)>> = FxHashMap::default();
        for (number, location) in conditions.locations.iter().enumerate() {
            let (_, word) = location.word();
            let at = (file(location.file.index()), word);
            locations.entry(at).or_default().push((location.mask(), number as u32));
        }
        let mut befores: Vec<Vec<u32>> = vec![Vec::new(); conditions.locations.len()];
        let mut afters = befores.clone();
        for order in &conditions.orders {
            befores[order.after.index()].push(order.before.0);
            afters[order.before.index()].push(order.after.0);
        }
        for list in befores.iter_mut().chain(&mut afters) {
            list.sort_unstable();
            list.dedup();
        }
        let mut field_befores: FxHashMap<FieldIndex, Vec<(FieldIndex, bool)>> = FxHashMap::default();
        let mut field_afters = field_befores.clone();
        let find = |field: &Field| fields.find(field);
        for (order, _) in &conditions.lifted.orders {
            if let (Some(before), Some(after)) = (find(&order.before), find(&order.after)) {
                let list = field_befores.entry(after).or_default();
                if !list.contains(&(before, order.same_object)) {
                    list.push((before, order.same_object));
                    let list = field_afters.entry(before).or_default();
                    list.push((after, order.same_object));
                }
            }
        }
        Index {
            locations,
            befores,
            afters,
            guardians: conditions
                .guardians
                .iter()
                .map(|guardian| guardian.location.0)
                .collect(),
            field_befores,
            field_afters,
            field_guardians: conditions.lifted.guardians.keys().filter_map(find).collect(),
        }
    }

    /// Locations that these bytes of a word overlap.
    pub(super) fn locations(&self, file: u32, word: u64, mask: u8) -> Vec<u32> {
        let known = self.locations.get(&(file, word)).into_iter().flatten();
        known
            .filter(|(bytes, _)| bytes & mask != 0)
            .map(|&(_, location)| location)
            .collect()
    }

    pub(super) fn befores(&self, after: u32) -> &[u32] {
        &self.befores[after as usize]
    }

    pub(super) fn afters(&self, before: u32) -> &[u32] {
        &self.afters[before as usize]
    }

    pub(super) fn is_guardian(&self, location: u32) -> bool {
        self.guardians.contains(&location)
    }

    pub(super) fn field_befores(&self, after: FieldIndex) -> &[(FieldIndex, bool)] {
        self.field_befores.get(&after).map_or(&[], Vec::as_slice)
    }

    pub(super) fn field_afters(&self, before: FieldIndex) -> &[(FieldIndex, bool)] {
        self.field_afters.get(&before).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_guardian_field(&self, field: FieldIndex) -> bool {
        self.field_guardians.contains(&field)
    }
}
