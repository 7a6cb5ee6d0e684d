//! Orders between stores that no list holds: of different threads, or of different calls of a function.
//!
//! What has to persist first is made persistent where it is stored, which is safe anywhere: a fence behind the statement that flushes it, or a flush and a
//! fence behind the one that stores it. Right if it is stored first, which the recording has to show.

use crashproof_litmus::{Action, AddressRange, Flush, Litmus, Op, Property, Store, StoreKind, violations};

use super::acknowledged;
use super::list::{self, List, Parting};
use super::search::Arrangement;
use super::trace::{CallPath, Event, What};
use super::{Fix, Orderer, Side};

/// Pairs of stores that are looked at.
const MOST: usize = 200;
/// Events between two stores of a pair.
pub(super) const LONGEST: usize = 20_000;

/// The events of a pair: indices in the trace.
pub(super) struct Pair {
    pub before: usize,
    pub after: usize,
}

pub(super) fn put_in_order(orderer: &Orderer, orders: &[(Side, Side)]) -> Result<Fix, String> {
    let [(before, after)] = orders else {
        return Err("several orders between different threads or calls".into());
    };
    let pairs = pairs(orderer, before, after);
    let broken: Vec<&Pair> = pairs.iter().filter(|pair| !holds(orderer, pair, None)).collect();
    let Some(first) = broken.first() else {
        return Err("the recording does not show what has to persist first to be stored first".into());
    };
    if after.path.is_empty()
        && let Some(fix) = acknowledged::persist_earlier(orderer, before, &broken)
    {
        return Ok(fix);
    }
    let stored = &orderer.trace.events[first.before];
    let flush = (first.before + 1..first.after).find(|&index| {
        let event = &orderer.trace.events[index];
        event.thread == stored.thread && covers(event, stored)
    });
    if let Some(flush) = flush
        && broken.iter().all(|pair| holds(orderer, pair, Some(false)))
        && let Ok(fix) = fence_behind(orderer, before, flush)
    {
        return Ok(fix);
    }
    if !broken.iter().all(|pair| holds(orderer, pair, Some(true))) {
        return Err("a flush and fence behind the store do not put it in order".into());
    }
    let places = orderer.places(std::iter::once(before));
    let site = before.path.first().ok_or("the store has no place in the source")?;
    let list = List::holding(orderer.units, site).map_err(|refusal| refusal.to_string())?;
    let writer = orderer.writer(&list, &places);
    let changes = writer.flush_where_stored(true).map_err(|refusal| refusal.to_string())?;
    let unit = list.unit_of(site).ok_or("the store is in no statement")?;
    Ok(Fix {
        key: format!("{}:{site:?}: persisted", list.tree.file.path.display()),
        moved: Vec::new(),
        touched: vec![(list.tree.file.path.clone(), list.units[unit].range.clone())],
        changes,
        words: words(
            &list,
            unit,
            "what it stores is flushed and fenced right behind it",
            broken.len(),
        ),
        litmus: String::new(),
    })
}

/// A fence behind the statement that flushes what was stored.
fn fence_behind(orderer: &Orderer, before: &Side, flush: usize) -> Result<Fix, String> {
    let flushed = orderer.trace.path(orderer.trace.events[flush].stack);
    let parting = list::parting(&before.path, flushed).map_err(|_| "apart")?;
    let (Some(ours), Some(theirs)) = (parting.before.last(), parting.after.last()) else {
        return Err("the flush has no place".into());
    };
    let list = List::around(orderer.units, ours, theirs).map_err(|_| "no list")?;
    let unit = list.unit_of(theirs).ok_or("the flush is in no statement")?;
    let arrangement = Arrangement::fence_behind(list.units.len(), unit);
    let writer = orderer.writer(&list, &[]);
    let changes = writer.write(&arrangement).map_err(|refusal| refusal.to_string())?;
    Ok(Fix {
        key: format!(
            "{}:{}: fence behind {unit}",
            list.tree.file.path.display(),
            list.range().start
        ),
        moved: Vec::new(),
        touched: vec![(list.tree.file.path.clone(), list.units[unit].range.clone())],
        changes,
        words: words(&list, unit, "a fence right behind it waits for what it flushes", 1),
        litmus: String::new(),
    })
}

fn words(list: &List, unit: usize, what: &str, pairs: usize) -> Vec<String> {
    vec![
        format!("{}, {}: {what}", list.heading(), list.describe(unit)),
        format!(
            "safe: flushes and fences change no value; the order holds then in {}",
            match pairs {
                1 => "the one place of the recording that broke it".into(),
                count => format!("all {count} places of the recording that broke it"),
            }
        ),
    ]
}

/// Each store that comes second, with the last before it that has to persist first.
fn pairs(orderer: &Orderer, before: &Side, after: &Side) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut last = None;
    // An output is recorded without its stack.
    let is_second = |event: &Event| match after.path.is_empty() {
        true => event.what == What::Output,
        false => after.stacks.contains(&event.stack),
    };
    for (index, event) in orderer.trace.events.iter().enumerate() {
        if !matches!(event.what, What::Store { .. } | What::File(_) | What::Output) {
            continue;
        }
        if before.stacks.contains(&event.stack) {
            last = Some(index);
        } else if is_second(event)
            && let Some(before) = last
            && index - before < LONGEST
        {
            pairs.push(Pair { before, after: index });
            if pairs.len() == MOST {
                break;
            }
        }
    }
    pairs
}

pub(super) fn covers(flush: &Event, store: &Event) -> bool {
    match (flush.what, store.what) {
        (What::Flush { at, .. }, What::Store { at: stored, len, .. }) => {
            (stored / 64..=(stored + len - 1) / 64).contains(&(at / 64))
        }
        _ => false,
    }
}

/// Whether a pair is in order: as it was; with a fence behind each flush of what was stored; or with a flush and a fence behind the store.
fn holds(orderer: &Orderer, pair: &Pair, persisted: Option<bool>) -> bool {
    let stored = &orderer.trace.events[pair.before];
    let mut litmus = Litmus::default();
    litmus.threads.push(String::new());
    let mut threads: Vec<u32> = Vec::new();
    for (index, event) in orderer.trace.events[pair.before..=pair.after].iter().enumerate() {
        let thread = match threads.iter().position(|thread| *thread == event.thread) {
            Some(thread) => thread,
            None => {
                threads.push(event.thread);
                litmus.threads.push(format!("T{}", threads.len()));
                threads.len() - 1
            }
        } as u32;
        let mut push = |action: Action| litmus.ops.push(Op { thread, action });
        let fence = Action::Fence { full: false };
        let flush = |at: AddressRange| {
            Action::Flush(Flush {
                names: None,
                at,
                at_once: false,
            })
        };
        match event.what {
            What::Store { at, len, kind } => {
                push(Action::Store(litmus.stores.len()));
                litmus.stores.push(Store {
                    name: format!("s{index}"),
                    at: AddressRange { start: at, len },
                    kind,
                });
                if index == 0 && persisted == Some(true) {
                    litmus.ops.push(Op {
                        thread,
                        action: flush(AddressRange { start: at, len }),
                    });
                    litmus.ops.push(Op { thread, action: fence });
                }
            }
            What::File(_) | What::Output => {
                push(Action::Store(litmus.stores.len()));
                litmus.stores.push(Store {
                    name: format!("s{index}"),
                    at: AddressRange {
                        start: (1 << 60) + 64 * index as u64,
                        len: 1,
                    },
                    kind: StoreKind::Plain,
                });
            }
            What::Flush { at, .. } => {
                push(flush(AddressRange { start: at, len: 1 }));
                if persisted == Some(false) && event.thread == stored.thread && covers(event, stored) {
                    litmus.ops.push(Op { thread, action: fence });
                }
            }
            What::Fence { full } => push(Action::Fence { full }),
            What::Sync { at, len } => {
                push(flush(AddressRange { start: at, len }));
                litmus.ops.push(Op { thread, action: fence });
            }
        }
    }
    let Some(last) = litmus.stores.len().checked_sub(1) else {
        return true;
    };
    litmus.properties.push(Property::Before(0, last));
    violations(&litmus).is_empty()
}

/// What the recording does not have (a crash of the recovery): what has to persist first is made persistent behind its statement, if that comes first.
pub(super) fn unseen<'a>(
    orderer: &Orderer<'a, '_, '_>,
    orders: &[(Side, Side)],
    list: &List<'a>,
    wanted: &[Parting],
) -> Result<Fix, String> {
    let unit = |path: &CallPath| path.last().and_then(|site| list.unit_of(site));
    let comes_first = |wanted: &Parting| unit(&wanted.before) < unit(&wanted.after);
    if !wanted.iter().all(comes_first) {
        return Err("what has to persist first is stored second".into());
    }
    let stores = orderer.places(orders.iter().map(|(before, _)| before));
    let writer = orderer.writer(list, &stores);
    let changes = writer.flush_where_stored(true).map_err(|refusal| refusal.to_string())?;
    let file = &list.tree.file.path;
    let touched: Vec<usize> = wanted.iter().filter_map(|wanted| unit(&wanted.before)).collect();
    let mut words: Vec<String> = touched
        .iter()
        .map(|unit| {
            format!(
                "{}, what {} stores is flushed and fenced behind it",
                list.heading(),
                list.describe(*unit)
            )
        })
        .collect();
    words.push("safe: flushes and fences change no value; the recording does not have this code".into());
    Ok(Fix {
        key: format!("{}:{}: {touched:?} persisted", file.display(), list.range().start),
        moved: Vec::new(),
        touched: touched
            .iter()
            .map(|unit| (file.clone(), list.units[*unit].range.clone()))
            .collect(),
        changes,
        words,
        litmus: String::new(),
    })
}
