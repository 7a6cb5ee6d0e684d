//! What a crash may leave of a few lines: per line a prefix of the cached stores that are not guaranteed persistent, plus
//! any subset of the unfenced non-temporal ones. The lines are independent of each other.
//!
//! Two states may have the same contents (a store of the value that was there, a store overwritten by another): telling
//! them apart is the caller's, who knows the data.

use crate::line::{Line, Store, Tag};

/// One allowed crash state of the lines given to [`crash_states`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CrashState {
    lines: Vec<Choice>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Choice {
    /// So many of the cached stores persisted.
    cached: usize,
    /// Bit n: the n-th non-temporal store persisted.
    nontemporal: u64,
}

impl CrashState {
    /// The stores of `line`, the `index`-th of those given to [`crash_states`], that persisted, in execution order: writing
    /// them over what is guaranteed persistent gives the contents.
    pub fn persisted<'a, T: Tag>(&self, index: usize, line: &'a Line<T>) -> impl Iterator<Item = &'a Store<T>> {
        let Choice {
            mut cached,
            mut nontemporal,
        } = self.lines[index];
        line.stores().iter().filter(move |store| {
            if store.nontemporal {
                let persisted = nontemporal & 1 != 0;
                nontemporal >>= 1;
                persisted
            } else {
                let persisted = cached > 0;
                cached = cached.saturating_sub(1);
                persisted
            }
        })
    }
}

/// All allowed crash states of the lines, from "nothing more persisted" to "everything".
///
/// Of more than 63 unfenced non-temporal stores to one line, those beyond the 63rd are taken as not persisted.
pub fn crash_states<T: Tag>(lines: &[&Line<T>]) -> CrashStates {
    let limits = lines
        .iter()
        .map(|line| {
            let nontemporal = line.stores().iter().filter(|s| s.nontemporal).count();
            Choice {
                cached: line.stores().len() - nontemporal,
                nontemporal: (1 << nontemporal.min(63)) - 1,
            }
        })
        .collect::<Vec<_>>();
    CrashStates {
        next: Some(CrashState {
            lines: vec![Choice::default(); limits.len()],
        }),
        limits,
    }
}

/// Counts through the choices of all lines like an odometer.
pub struct CrashStates {
    limits: Vec<Choice>,
    next: Option<CrashState>,
}

impl CrashStates {
    /// How many there are, from the start.
    pub fn total(&self) -> u128 {
        self.limits
            .iter()
            .map(|limit| (limit.cached as u128 + 1).saturating_mul(limit.nontemporal as u128 + 1))
            .fold(1, u128::saturating_mul)
    }
}

impl Iterator for CrashStates {
    type Item = CrashState;

    fn next(&mut self) -> Option<CrashState> {
        let state = self.next.take()?;
        let mut following = state.clone();
        for (choice, limit) in following.lines.iter_mut().zip(&self.limits) {
            if choice.cached < limit.cached {
                choice.cached += 1;
            } else if choice.nontemporal < limit.nontemporal {
                choice.cached = 0;
                choice.nontemporal += 1;
            } else {
                *choice = Choice::default();
                continue;
            }
            self.next = Some(following);
            break;
        }
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Keep, Model};

    #[test]
    fn prefixes_times_subsets() {
        let mut a = Line::default();
        let mut b = Line::default();
        for (tag, nontemporal) in [(1, false), (2, true), (3, false)] {
            let store = Store {
                bytes: Bytes::range(8 * tag as u64, 8),
                thread: 0,
                nontemporal,
                tag,
            };
            a.store(Model::Px86, Keep::All, store.clone());
            b.store(Model::Px86, Keep::All, store);
        }
        b.flush_now(0, 0);
        let states = crash_states(&[&a, &b]);
        assert_eq!(states.total(), 3 * 2 * 2);
        let mut seen: Vec<_> = states
            .map(|s| {
                (
                    s.persisted(0, &a).map(|s| s.tag).collect(),
                    s.persisted(1, &b).map(|s| s.tag).collect(),
                )
            })
            .collect::<Vec<(Vec<u32>, Vec<u32>)>>();
        assert_eq!(seen.len(), 12);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 12);
        assert!(seen.contains(&(vec![1, 2], vec![])));
        assert!(
            !seen.iter().any(|(a, _)| a == &[3]),
            "cached stores of a line never reorder"
        );
    }

    #[test]
    fn no_lines_have_one_state() {
        assert_eq!(crash_states::<u32>(&[]).count(), 1);
    }
}
