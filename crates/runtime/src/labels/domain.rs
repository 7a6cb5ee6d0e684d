//! What a label means: the trait, and sets of PM loads, the domain of Witcher's dependences (SOSP '21, section 4.2.2).
//!
//! Witcher builds the program dependence graph from a trace of all instructions and reduces it to the accesses to PM afterwards; here a label
//! *is* the reduced part: the loads from PM that a value comes from, with nothing but other values in between. Sets are hash-consed, so that a label is a
//! number and equal sets are equal numbers, and the union of two labels is worked out once.
//!
//! Labels live for one operation: the numbers go on, and those from before the operation stand for the empty set. So whatever still
//! holds one (shadow memory, registers) need not be cleared.

use super::hash::Map;
use crashproof_wire::labels::MOST_MEMBERS;

pub(super) type Label = u32;

/// Depends on nothing.
pub(super) const EMPTY: Label = 0;

/// Twice the node of a load, plus 1 if the dependence is one of control: as in the record.
pub(super) type Member = u64;

pub(super) const CONTROL: Member = 1;

/// What can be propagated along the program's values. Expressions over what was loaded would be another one: `operation` is for them.
pub(crate) trait Domain {
    /// Of a value that was loaded from PM.
    fn load(&mut self, node: u64) -> Label;
    /// Of what an operation (LLVM's opcode) makes of two operands.
    fn combine(&mut self, operation: u32, one: Label, other: Label) -> Label;
    /// What depends, by control, on what the label stands for.
    fn control(&mut self, label: Label) -> Label;
    /// Whether the label stands for anything in this operation.
    fn is_live(&self, label: Label) -> bool;
    /// The loads that it depends on, nearest first.
    fn members(&self, label: Label) -> &[Member];
    /// The operation is over. How many labels were cut in it.
    fn end_operation(&mut self) -> u64;
}

/// Sets of loads.
pub(super) struct Sets {
    /// Labels below are of earlier operations.
    first: Label,
    /// (start, length) in `members`, by label less `first`.
    sets: Vec<(u32, u32)>,
    /// All sets of the operation, each sorted, nearest first.
    members: Vec<Member>,
    by_content: Map,
    unions: Map,
    scratch: Vec<Member>,
    cuts: u64,
}

impl Default for Sets {
    fn default() -> Sets {
        Sets {
            first: 1,
            sets: Vec::new(),
            members: Vec::new(),
            by_content: Map::default(),
            unions: Map::default(),
            scratch: Vec::new(),
            cuts: 0,
        }
    }
}

impl Sets {
    /// The label of the set in `scratch`.
    fn intern(&mut self) -> Label {
        if self.scratch.len() > MOST_MEMBERS {
            self.scratch.truncate(MOST_MEMBERS);
            self.cuts += 1;
        }
        let mut key = self.scratch.iter().fold(self.scratch.len() as u64, |hash, &member| {
            (hash.rotate_left(5) ^ member).wrapping_mul(0x517c_c1b7_2722_0a95)
        });
        while let Some(label) = self.by_content.get(key) {
            if self.members(label) == self.scratch {
                return label;
            }
            key = key.wrapping_add(1);
        }
        let Some(label) = u32::try_from(self.sets.len())
            .ok()
            .and_then(|n| self.first.checked_add(n))
        else {
            // Four thousand million labels: what comes now depends on nothing that is known.
            self.cuts += 1;
            return EMPTY;
        };
        self.sets.push((self.members.len() as u32, self.scratch.len() as u32));
        self.members.extend_from_slice(&self.scratch);
        self.by_content.insert(key, label);
        label
    }
}

impl Domain for Sets {
    fn load(&mut self, node: u64) -> Label {
        self.scratch.clear();
        self.scratch.push(node << 1);
        self.intern()
    }

    fn combine(&mut self, _: u32, one: Label, other: Label) -> Label {
        let (one, other) = match (self.is_live(one), self.is_live(other)) {
            (false, false) => return EMPTY,
            (true, false) => return one,
            (false, true) => return other,
            (true, true) if one == other => return one,
            (true, true) => (one.min(other), one.max(other)),
        };
        let pair = u64::from(one) << 32 | u64::from(other);
        if let Some(known) = self.unions.get(pair) {
            return known;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        merge(self.members(one), self.members(other), &mut scratch);
        self.scratch = scratch;
        let union = self.intern();
        self.unions.insert(pair, union);
        union
    }

    fn control(&mut self, label: Label) -> Label {
        if !self.is_live(label) {
            return EMPTY;
        }
        // No union has equal halves.
        let pair = u64::from(label) << 32 | u64::from(label);
        if let Some(known) = self.unions.get(pair) {
            return known;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend(self.members(label).iter().map(|member| member | CONTROL));
        self.scratch = scratch;
        let control = self.intern();
        self.unions.insert(pair, control);
        control
    }

    fn is_live(&self, label: Label) -> bool {
        label >= self.first
    }

    fn members(&self, label: Label) -> &[Member] {
        let set = label
            .checked_sub(self.first)
            .and_then(|index| self.sets.get(index as usize));
        set.map_or(&[], |&(start, length)| {
            &self.members[start as usize..(start + length) as usize]
        })
    }

    fn end_operation(&mut self) -> u64 {
        // At the end of the numbers, the last label stays the first of an operation that gets none.
        self.first = self.first.saturating_add(self.sets.len() as u32);
        self.sets.clear();
        self.members.clear();
        self.by_content.clear();
        self.unions.clear();
        std::mem::take(&mut self.cuts)
    }
}

/// The union of two sets, nearest first. Of a load that is in both, control wins.
pub(super) fn merge(one: &[Member], other: &[Member], union: &mut Vec<Member>) {
    union.clear();
    let (mut one, mut other) = (one, other);
    while let (Some((&a, rest_a)), Some((&b, rest_b))) = (one.split_first(), other.split_first()) {
        let (near, far) = (a >> 1, b >> 1);
        union.push(match near.cmp(&far) {
            std::cmp::Ordering::Equal => a | b,
            std::cmp::Ordering::Greater => a,
            std::cmp::Ordering::Less => b,
        });
        if near >= far {
            one = rest_a;
        }
        if far >= near {
            other = rest_b;
        }
    }
    union.extend_from_slice(one);
    union.extend_from_slice(other);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_are_sorted_and_shared_and_control_wins() {
        let mut sets = Sets::default();
        let (a, b) = (sets.load(5), sets.load(9));
        let union = sets.combine(0, a, b);
        assert_eq!(sets.members(union), [18, 10]);
        assert_eq!(sets.combine(0, b, a), union);
        let control = sets.control(a);
        let mixed = sets.combine(0, union, control);
        assert_eq!(sets.members(mixed), [18, 11]);
        assert_eq!(sets.combine(0, mixed, a), mixed);
        assert_eq!(sets.combine(0, EMPTY, a), a);
    }

    #[test]
    fn the_nearest_members_are_kept() {
        let mut sets = Sets::default();
        let mut all = EMPTY;
        for node in 1..=80 {
            let label = sets.load(node);
            all = sets.combine(0, all, label);
        }
        assert_eq!(sets.members(all).len(), MOST_MEMBERS);
        assert_eq!(sets.members(all)[0], 160);
        assert_eq!(sets.end_operation(), 16);
        assert_eq!(sets.end_operation(), 0);
    }

    #[test]
    fn labels_end_with_their_operation() {
        let mut sets = Sets::default();
        let old = sets.load(1);
        sets.end_operation();
        let new = sets.load(2);
        assert!(!sets.is_live(old));
        assert_ne!(old, new);
        assert_eq!(sets.combine(0, old, new), new);
        assert_eq!(sets.control(old), EMPTY);
        assert!(sets.members(old).is_empty());
    }
}
