//! The slow, obviously right version of the model, to compare the fast one with: it enumerates every order in which the
//! instructions of a program may take effect and collects the memory contents that a crash may leave.
//!
//! For cached stores and fences straight from Table 1 (Px86) of the PMBugAssist paper; its rows and columns for loads are
//! left out, as programs here have none. `clwb` is ordered like `clflushopt`. The trace fixes in which order stores,
//! fences and clflush became visible across threads; the table says which of one thread's instructions may take effect
//! in another order than they were executed, and that leaves only `clflushopt` to float.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::memory::Limits;
use crate::{ByteSet, Bytes, Keep, Line, LineAddress, Memory, Model, Ranges, order_of};

const LINES: usize = 3;
/// Bytes of a line that programs use; few, so that stores overlap often.
const USED: usize = 4;

type Contents = [[u8; USED]; LINES];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instruction {
    Store {
        line: usize,
        start: usize,
        len: usize,
    },
    NtStore {
        line: usize,
        start: usize,
        len: usize,
    },
    /// Locked read-modify-write on PM.
    Rmw {
        line: usize,
        start: usize,
        len: usize,
    },
    Mfence,
    Sfence,
    /// Locked read-modify-write on volatile memory.
    VolatileRmw,
    Clflushopt {
        line: usize,
    },
    Clflush {
        line: usize,
    },
}

use Instruction::*;

#[derive(Clone, Copy, Debug)]
struct Step {
    thread: u32,
    instruction: Instruction,
}

enum Entry {
    Ordered,
    Unordered,
    SameLine,
}

/// Table 1.
fn table(first: Instruction, second: Instruction) -> Entry {
    use Entry::*;
    match (first, second) {
        (Store { .. }, Clflushopt { .. }) => SameLine,
        (Store { .. }, _) => Ordered,
        (Rmw { .. } | VolatileRmw, _) => Ordered,
        (Mfence | Sfence, _) => Ordered,
        (Clflushopt { .. }, Store { .. } | Clflushopt { .. }) => Unordered,
        (Clflushopt { .. }, Clflush { .. }) => SameLine,
        (Clflushopt { .. }, _) => Ordered,
        (Clflush { .. }, Clflushopt { .. }) => SameLine,
        (Clflush { .. }, _) => Ordered,
        (NtStore { .. }, _) => unreachable!("not in the table"),
    }
}

fn line_of(instruction: Instruction) -> Option<usize> {
    match instruction {
        Store { line, .. } | NtStore { line, .. } | Rmw { line, .. } | Clflushopt { line } | Clflush { line } => {
            Some(line)
        }
        Mfence | Sfence | VolatileRmw => None,
    }
}

fn is_fence(instruction: Instruction) -> bool {
    matches!(instruction, Mfence | Sfence | VolatileRmw | Rmw { .. })
}

/// Whether `first`, executed before `second`, takes effect before it. The effect of a non-temporal store is its
/// persisting.
fn ordered(first: Step, second: Step) -> bool {
    let (a, b) = (first.instruction, second.instruction);
    let same_line = line_of(a).is_some() && line_of(a) == line_of(b);
    if matches!(a, NtStore { .. }) || matches!(b, NtStore { .. }) {
        // Ordered with the fences of its thread, and with nothing else.
        return first.thread == second.thread && (is_fence(a) || is_fence(b));
    }
    if first.thread == second.thread {
        return match table(a, b) {
            Entry::Ordered => true,
            Entry::Unordered => false,
            Entry::SameLine => same_line,
        };
    }
    match (a, b) {
        // A flush covers what another thread made visible in the line before; its own fences alone wait for it.
        (Clflushopt { .. }, _) => false,
        (Store { .. } | Rmw { .. }, Clflushopt { .. }) => same_line,
        (_, Clflushopt { .. }) => false,
        _ => true,
    }
}

/// Contents that a crash after the last step may leave.
fn allowed(model: Model, steps: &[Step]) -> BTreeSet<Contents> {
    let mut contents = BTreeSet::new();
    let mut visited = BTreeSet::new();
    extend(model, steps, 0, [0; LINES], 0, &mut visited, &mut contents);
    contents
}

/// Lets one more instruction take effect, in every way that the order allows. `done` and `persisted_nt` are bit sets of
/// steps; `floors` counts the cached stores of a line that are guaranteed persistent.
fn extend(
    model: Model,
    steps: &[Step],
    done: u32,
    floors: [usize; LINES],
    persisted_nt: u32,
    visited: &mut BTreeSet<(u32, [usize; LINES], u32)>,
    contents: &mut BTreeSet<Contents>,
) {
    if !visited.insert((done, floors, persisted_nt)) {
        return;
    }
    // The crash comes after all steps were executed: only flushes and non-temporal stores may still be under way.
    let under_way = |s: &Step| matches!(s.instruction, Clflushopt { .. } | NtStore { .. });
    if steps
        .iter()
        .enumerate()
        .all(|(i, s)| done & 1 << i != 0 || under_way(s))
    {
        collect(model, steps, floors, persisted_nt, contents);
    }
    for (i, &step) in steps.iter().enumerate() {
        let blocked = |j: usize| done & 1 << j == 0 && ordered(steps[j], step);
        if done & 1 << i != 0 || (0..i).any(blocked) {
            continue;
        }
        let (mut floors, mut persisted_nt) = (floors, persisted_nt);
        match step.instruction {
            Clflushopt { line } | Clflush { line } => {
                let visible = cached(steps, line).filter(|&j| done & 1 << j != 0).count();
                floors[line] = floors[line].max(visible);
            }
            NtStore { .. } => persisted_nt |= 1 << i,
            _ => {}
        }
        extend(model, steps, done | 1 << i, floors, persisted_nt, visited, contents);
    }
}

/// Steps that store to the line through the cache.
fn cached(steps: &[Step], line: usize) -> impl Iterator<Item = usize> {
    let stores = move |s: &Step| matches!(s.instruction, Store { line: l, .. } | Rmw { line: l, .. } if l == line);
    steps.iter().enumerate().filter(move |(_, s)| stores(s)).map(|(i, _)| i)
}

fn collect(model: Model, steps: &[Step], floors: [usize; LINES], persisted_nt: u32, contents: &mut BTreeSet<Contents>) {
    let counts: [usize; LINES] = std::array::from_fn(|line| cached(steps, line).count());
    let mut prefix = if model == Model::Eadr { counts } else { floors };
    loop {
        let mut seen = [0; LINES];
        let mut image = Contents::default();
        for (i, step) in steps.iter().enumerate() {
            let (line, start, len, persisted) = match step.instruction {
                Store { line, start, len } | Rmw { line, start, len } => {
                    seen[line] += 1;
                    (line, start, len, seen[line] <= prefix[line])
                }
                NtStore { line, start, len } => (line, start, len, persisted_nt & 1 << i != 0),
                _ => continue,
            };
            if persisted {
                image[line][start..start + len].fill(i as u8 + 1);
            }
        }
        contents.insert(image);
        let Some(line) = (0..LINES).find(|&line| prefix[line] < counts[line]) else {
            return;
        };
        prefix[line] += 1;
        for lower in 0..line {
            prefix[lower] = floors[lower].max(if model == Model::Eadr { counts[lower] } else { 0 });
        }
    }
}

/// The same by the state machine.
fn allowed_by_model(model: Model, steps: &[Step]) -> BTreeSet<Contents> {
    allowed_by(Memory::new(model, Keep::All), steps)
}

fn allowed_by(mut memory: Memory<u32>, steps: &[Step]) -> BTreeSet<Contents> {
    run(&mut memory, steps);
    let lines: Vec<_> = (0..LINES)
        .map(|line| memory.line(address(line)).cloned().unwrap_or_default())
        .collect();
    allowed_of(&lines, steps)
}

/// The same by units of another size, which the bytes that programs use fill.
fn allowed_by_units(model: Model, size: u64, steps: &[Step]) -> BTreeSet<Contents> {
    let mut units: [Line<u32, Ranges>; LINES] = Default::default();
    let scale = size / USED as u64;
    for (tag, &Step { thread, instruction }) in (0..).zip(steps) {
        if is_fence(instruction) {
            units.iter_mut().for_each(|unit| {
                unit.fence(thread);
            });
        }
        match instruction {
            Store { line, start, len } | NtStore { line, start, len } | Rmw { line, start, len } => {
                let store = crate::Store {
                    bytes: Ranges::range(start as u64 * scale, len as u64 * scale),
                    thread,
                    nontemporal: matches!(instruction, NtStore { .. }),
                    tag,
                };
                units[line].store(model, Keep::All, store);
            }
            Clflushopt { line } => drop(units[line].flush(thread, tag)),
            Clflush { line } => drop(units[line].flush_now(thread, tag)),
            Mfence | Sfence | VolatileRmw => {}
        }
    }
    allowed_of(&units, steps)
}

fn allowed_of<B: ByteSet>(lines: &[Line<u32, B>], steps: &[Step]) -> BTreeSet<Contents> {
    let uncertain: Vec<u32> = lines.iter().flat_map(|line| line.stores()).map(|s| s.tag).collect();
    order_of(lines, false)
        .states()
        .map(|persisted| {
            let lost = |step: u32| {
                uncertain
                    .iter()
                    .position(|&tag| tag == step)
                    .is_some_and(|at| !persisted[at])
            };
            let mut image = Contents::default();
            for (i, step) in steps.iter().enumerate() {
                if let Store { line, start, len } | NtStore { line, start, len } | Rmw { line, start, len } =
                    step.instruction
                    && !lost(i as u32)
                {
                    image[line][start..start + len].fill(i as u8 + 1);
                }
            }
            image
        })
        .collect()
}

/// Each line in a page of its own, so that pages come and go.
fn address(line: usize) -> LineAddress {
    LineAddress {
        file: 0,
        line: 64 * line as u64,
    }
}

fn run(memory: &mut Memory<u32>, steps: &[Step]) {
    for (i, &Step { thread, instruction }) in steps.iter().enumerate() {
        let tag = i as u32;
        let at = address(line_of(instruction).unwrap_or(0));
        if is_fence(instruction) {
            memory.fence(thread, tag);
        }
        match instruction {
            Store { start, len, .. } | NtStore { start, len, .. } | Rmw { start, len, .. } => {
                let nontemporal = matches!(instruction, NtStore { .. });
                let bytes = Bytes::range(start as u64, len as u64);
                memory.store(
                    at,
                    crate::Store {
                        bytes,
                        thread,
                        nontemporal,
                        tag,
                    },
                );
            }
            Clflushopt { .. } => drop(memory.flush(at, thread, false, tag)),
            Clflush { .. } => drop(memory.flush(at, thread, true, tag)),
            Mfence | Sfence | VolatileRmw => {}
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let place = (0..LINES, 0..USED, 1..=2usize).prop_map(|(line, start, len)| (line, start, len.min(USED - start)));
    let instruction = prop_oneof![
        4 => place.clone().prop_map(|(line, start, len)| Store { line, start, len }),
        2 => place.clone().prop_map(|(line, start, len)| NtStore { line, start, len }),
        1 => place.prop_map(|(line, start, len)| Rmw { line, start, len }),
        1 => Just(Mfence),
        2 => Just(Sfence),
        1 => Just(VolatileRmw),
        3 => (0..LINES).prop_map(|line| Clflushopt { line }),
        1 => (0..LINES).prop_map(|line| Clflush { line }),
    ];
    (0..3u32, instruction).prop_map(|(thread, instruction)| Step { thread, instruction })
}

/// Whether the step may raise a floor, so that a crash just before it has states that no later crash has.
fn raises_floor(model: Model, step: Step) -> bool {
    let stores = matches!(step.instruction, Store { .. } | Rmw { .. });
    is_fence(step.instruction) || matches!(step.instruction, Clflush { .. }) || model == Model::Eadr && stores
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_state_machine_allows_what_the_table_allows(steps in prop::collection::vec(step(), 0..10)) {
        for model in [Model::Px86, Model::Eadr] {
            let allowed = allowed(model, &steps);
            prop_assert_eq!(&allowed_by_model(model, &steps), &allowed, "{:?}", model);
            let limits = Limits { lines: 2, pages: 1, fences: 2 };
            let sweeping = Memory::with_limits(model, Keep::All, limits);
            prop_assert_eq!(&allowed_by(sweeping, &steps), &allowed, "{:?}, sweeping often", model);
            for size in [16, 4096] {
                prop_assert_eq!(&allowed_by_units(model, size, &steps), &allowed, "{:?}, units of {}", model, size);
            }
        }
    }

    #[test]
    fn few_crash_points_cover_all(steps in prop::collection::vec(step(), 0..16)) {
        for model in [Model::Px86, Model::Eadr] {
            let (mut all, mut few) = (BTreeSet::new(), BTreeSet::new());
            for point in 0..=steps.len() {
                let states = allowed_by_model(model, &steps[..point]);
                if steps.get(point).is_none_or(|&next| raises_floor(model, next)) {
                    few.extend(states.iter().copied());
                }
                all.extend(states);
            }
            prop_assert_eq!(&all, &few, "{:?}", model);
        }
    }
}

/// A lower prefix resets to its floor, so the enumeration visits every combination.
#[test]
fn the_reference_enumerates() {
    let store = |line, start| Step {
        thread: 0,
        instruction: Store { line, start, len: 1 },
    };
    let steps = [store(0, 0), store(0, 1), store(1, 0)];
    assert_eq!(allowed(Model::Px86, &steps).len(), 6);
    assert_eq!(allowed(Model::Eadr, &steps).len(), 1);
}
