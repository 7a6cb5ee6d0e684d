//! A map from words to labels: open addressing, emptied all at once. (The standard one would ask the system for randomness.)

const SMALLEST: usize = 256;

/// The key 0 is taken for an empty place: no content hash is, in practice, and no pair of live labels.
#[derive(Default)]
pub(super) struct Map {
    places: Vec<(u64, u32)>,
    used: usize,
}

impl Map {
    fn place(&self, key: u64) -> usize {
        let mask = self.places.len() - 1;
        let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.places[at].0 != key && self.places[at].0 != 0 {
            at = (at + 1) & mask;
        }
        at
    }

    pub(super) fn get(&self, key: u64) -> Option<u32> {
        if self.places.is_empty() || key == 0 {
            return None;
        }
        let (found, label) = self.places[self.place(key)];
        (found == key).then_some(label)
    }

    /// A key that is not in the map.
    pub(super) fn insert(&mut self, key: u64, label: u32) {
        if key == 0 {
            return;
        }
        if self.used * 2 >= self.places.len() {
            let larger = (self.places.len() * 2).max(SMALLEST);
            let old = std::mem::replace(&mut self.places, vec![(0, 0); larger]);
            for entry in old.into_iter().filter(|entry| entry.0 != 0) {
                let at = self.place(entry.0);
                self.places[at] = entry;
            }
        }
        let at = self.place(key);
        self.places[at] = (key, label);
        self.used += 1;
    }

    pub(super) fn clear(&mut self) {
        if self.used > 0 {
            self.places.fill((0, 0));
            self.used = 0;
        }
    }
}
