//! The rules of ordinary frames, and each thread's cache of them.

use super::stack::Stack;

/// What the caller's frame is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Base {
    /// CFA = rsp + offset.
    Rsp,
    /// CFA = rbp + offset.
    Rbp,
    /// CFA = the word at rbp + offset; rbp is saved relative to rbp. Functions that realign their stack do so.
    SavedAtRbp,
    /// There is a rule, but not one of these.
    Other,
    /// There is no caller, or none that can be found.
    Outermost,
    /// This is no code, so the address was no return address.
    NotCode,
}

/// How to get from a frame to its caller's. The return address is always just below the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub cfa_offset: i32,
    /// Where rbp is saved, relative to the CFA (to rbp for [`Base::SavedAtRbp`]); or [`Rule::KEPT`].
    pub rbp_offset: i16,
    pub base: Base,
    /// Not from unwind tables: each use is checked for plausibility.
    pub guessed: bool,
}

/// The caller's frame.
pub(super) struct Frame {
    pub cfa: u64,
    pub return_address: u64,
    pub rbp: u64,
}

impl Rule {
    /// Instead of an offset: rbp is still that of the caller.
    pub(super) const KEPT: i16 = i16::MIN;
    pub(super) const OTHER: Rule = Rule::without_offset(Base::Other);
    pub(super) const OUTERMOST: Rule = Rule::without_offset(Base::Outermost);
    pub(super) const NOT_CODE: Rule = Rule::without_offset(Base::NotCode);

    const fn without_offset(base: Base) -> Rule {
        Rule {
            cfa_offset: 0,
            rbp_offset: Rule::KEPT,
            base,
            guessed: false,
        }
    }

    /// `None` if the stack cannot be read there or the frame would not be further out.
    #[inline]
    pub(super) fn apply(&self, rsp: u64, rbp: u64, stack: &mut Stack) -> Option<Frame> {
        let offset = self.cfa_offset as i64;
        let (cfa, saved_relative_to) = match self.base {
            Base::Rsp => {
                let cfa = rsp.wrapping_add_signed(offset);
                (cfa, cfa)
            }
            Base::Rbp => {
                let cfa = rbp.wrapping_add_signed(offset);
                (cfa, cfa)
            }
            Base::SavedAtRbp => (stack.read(rbp.wrapping_add_signed(offset))?, rbp),
            Base::Other | Base::Outermost | Base::NotCode => return None,
        };
        if cfa <= rsp {
            return None;
        }
        let return_address = stack.read(cfa - 8)?;
        let rbp = match self.rbp_offset {
            Rule::KEPT => rbp,
            offset => stack.read(saved_relative_to.wrapping_add_signed(offset as i64))?,
        };
        Some(Frame {
            cfa,
            return_address,
            rbp,
        })
    }
}

const SETS_LOG: u32 = 9;
const WAYS: usize = 2;

#[derive(Clone, Copy)]
struct Entry {
    /// Zero: empty.
    pc: u64,
    rule: Rule,
}

/// The rules that a thread has met, by address. 16 KiB; each thread has its own and none shares it with its signal
/// handlers.
pub struct Cache {
    unwinder: u64,
    sets: [[Entry; WAYS]; 1 << SETS_LOG],
}

impl Cache {
    pub const fn new() -> Cache {
        Cache {
            unwinder: 0,
            sets: [[Entry {
                pc: 0,
                rule: Rule::OUTERMOST,
            }; WAYS]; 1 << SETS_LOG],
        }
    }

    /// Forgets what another unwinder has filled in: modules may have come and gone.
    #[inline]
    pub(super) fn adopt(&mut self, unwinder: u64) {
        if self.unwinder != unwinder {
            for entry in self.sets.as_flattened_mut() {
                entry.pc = 0;
            }
            self.unwinder = unwinder;
        }
    }

    #[inline]
    pub(super) fn get(&self, pc: u64) -> Option<Rule> {
        self.sets[set_of(pc)]
            .iter()
            .find(|entry| entry.pc == pc)
            .map(|entry| entry.rule)
    }

    /// Returns the rule.
    #[cold]
    pub(super) fn insert(&mut self, pc: u64, rule: Rule) -> Rule {
        let set = &mut self.sets[set_of(pc)];
        if set[0].pc != pc {
            set[1] = set[0];
        }
        set[0] = Entry { pc, rule };
        rule
    }
}

impl Default for Cache {
    fn default() -> Self {
        Cache::new()
    }
}

fn set_of(pc: u64) -> usize {
    (pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SETS_LOG)) as usize
}

const _: () = assert!(size_of::<Entry>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_forgets_what_another_unwinder_knew() {
        let mut cache = Cache::new();
        cache.adopt(1);
        cache.insert(7, Rule::OTHER);
        assert_eq!(cache.get(7), Some(Rule::OTHER));
        cache.adopt(2);
        assert_eq!(cache.get(7), None);
    }

    #[test]
    fn frames_never_lead_inwards() {
        let words = [5u64; 4];
        let low = words.as_ptr() as u64;
        let mut stack = Stack::new(low, low + 32);
        let rule = |cfa_offset| Rule {
            base: Base::Rbp,
            cfa_offset,
            ..Rule::OUTERMOST
        };
        assert!(rule(16).apply(low, low - 16, &mut stack).is_none());
        assert_eq!(rule(16).apply(low, low, &mut stack).unwrap().return_address, 5);
        assert!(rule(16).apply(low, 0, &mut stack).is_none());
    }
}
