//! Objects by the program's own types, where `crashproof cc` has noted them (dissertation §4.4.2); elsewhere by calls
//! ([`super::calls`]).
//!
//! With joint behaviours a typed store is an update of the calls that make it, too, as if they were objects around its own: what
//! one call does to several objects belongs together. Types alone take the making of an object, which nothing can reach yet, for
//! an update in place of the same fields; the calls tell the two apart.
//!
//! What a store writes may show only by later stores (an element of an array, by a store to the object around it), so the stores
//! are typed before the replay, in two rounds, and what is known of each is kept as the number of a list: which types, fields
//! and distances; there are few of those.

use crashproof_sites::{FieldId, Store, TypeId, Types, Typing};
use crashproof_trace::{Event, EventKind, Item, Tables, TraceFile};
use rustc_hash::FxHashMap;

use super::calls::Calls;
use super::order::Update;
use super::subject::{Instance, Subject, Subjects, TypeKey};
use crate::error::CrashError;

/// Stores that are typed at a time.
const CHUNK: usize = 1 << 16;
/// The stores of so many chunks (100 MB) are kept for the second round; for more the trace is read again.
const CHUNKS_KEPT: usize = 32;

/// A type, a field of it, and how far before the store the object begins.
type Level = (TypeId, FieldId, u64);

pub(crate) struct Typed {
    typing: Typing,
    calls: Calls,
    /// Typed stores are updates of calls as well.
    both: bool,
    about_calls: Vec<Subject>,
    /// By number.
    lists: Vec<Vec<Level>>,
    /// Stores that have a type: event and list, in order.
    stores: Vec<(u64, u32)>,
    next: usize,
}

impl Typed {
    pub(super) fn open(trace: &TraceFile, both: bool) -> Result<Typed, CrashError> {
        let mut typed = Typed {
            typing: Typing::new(),
            calls: Calls::default(),
            both,
            about_calls: Vec::new(),
            lists: Vec::new(),
            stores: Vec::new(),
            next: 0,
        };
        let mut any = false;
        let mut chunks = Some(Vec::new());
        each_chunk(trace, |tables, seqs, stores| {
            let types = typed.typing.all(tables, stores);
            any |= (0..stores.len()).any(|store| !types.of(store).is_empty());
            chunks = chunks.take().filter(|chunks| chunks.len() < CHUNKS_KEPT);
            if let Some(chunks) = &mut chunks {
                chunks.push((seqs.to_vec(), stores.to_vec()));
            }
        })?;
        if !any {
            return Ok(typed);
        }
        let mut numbers = FxHashMap::default();
        let mut second_round = |tables: &Tables, seqs: &[u64], stores: &[Store]| {
            let types = typed.typing.all(tables, stores);
            typed.add(&types, seqs, stores, &mut numbers);
        };
        match chunks {
            Some(chunks) => chunks
                .iter()
                .for_each(|(seqs, stores)| second_round(trace.tables(), seqs, stores)),
            None => each_chunk(trace, second_round)?,
        }
        Ok(typed)
    }

    pub(super) fn warnings(&self) -> &[String] {
        self.typing.warnings()
    }

    fn add(&mut self, types: &Types, seqs: &[u64], stores: &[Store], numbers: &mut FxHashMap<Vec<Level>, u32>) {
        for (index, store) in stores.iter().enumerate() {
            let levels = types.of(index).iter();
            let list: Vec<Level> = levels
                .map(|typed| {
                    let distance = store.at.offset.wrapping_sub(typed.instance.offset);
                    (typed.ty, typed.field, distance)
                })
                .collect();
            if list.is_empty() {
                continue;
            }
            let number = *numbers.entry(list).or_insert_with_key(|list| {
                self.lists.push(list.clone());
                self.lists.len() as u32 - 1
            });
            self.stores.push((seqs[index], number));
        }
    }

    fn list(&mut self, update: &Update<'_>) -> Option<(u64, &[Level])> {
        update.line?;
        while self.stores.get(self.next)?.0 < update.seq {
            self.next += 1;
        }
        let &(seq, number) = self.stores.get(self.next)?;
        (seq == update.seq).then(|| (update.store_at.offset, &self.lists[number as usize][..]))
    }
}

/// All stores of the trace, with their events.
fn each_chunk(trace: &TraceFile, mut see: impl FnMut(&Tables, &[u64], &[Store])) -> Result<(), CrashError> {
    let mut reader = trace.files()?;
    let (mut seqs, mut stores) = (Vec::new(), Vec::new());
    while let Some((item, tables)) = reader.next_with_tables()? {
        if let Item::Event(event) = item
            && let EventKind::Store { at, data, .. } = event.kind
        {
            seqs.push(event.seq);
            stores.push(Store {
                thread: event.thread,
                stack: event.stack,
                at,
                len: data.len(),
            });
            if stores.len() == CHUNK {
                see(tables, &seqs, &stores);
                seqs.clear();
                stores.clear();
            }
        }
    }
    see(reader.tables(), &seqs, &stores);
    Ok(())
}

/// Types and functions have numbers of their own.
fn of_type(ty: TypeId) -> TypeKey {
    ty.0 * 2
}

fn of_function(function: TypeKey) -> TypeKey {
    function * 2 + 1
}

impl Subjects for Typed {
    fn event(&mut self, event: &Event<'_>, tables: &Tables, ended: &mut Vec<Instance>) {
        let first = ended.len();
        self.calls.event(event, tables, ended);
        for (function, _) in &mut ended[first..] {
            *function = of_function(*function);
        }
    }

    fn of(&mut self, update: &Update<'_>, tables: &Tables, out: &mut Vec<Subject>) {
        if let Some((at, levels)) = self.list(update) {
            for &(ty, field, distance) in levels {
                let start = at.wrapping_sub(distance);
                let subject = Subject {
                    instance: (of_type(ty), u64::from(update.at.file.0) << 48 ^ start),
                    field: u64::from(field.0),
                    call: None,
                };
                // An object that begins with one of its own type is counted once.
                if !out.contains(&subject) {
                    out.push(subject);
                }
            }
            if !self.both {
                return;
            }
        }
        self.about_calls.clear();
        self.calls.of(update, tables, &mut self.about_calls);
        out.extend(self.about_calls.iter().map(|subject| Subject {
            instance: (of_function(subject.instance.0), subject.instance.1),
            ..*subject
        }));
    }

    fn site(&mut self, update: &Update<'_>, tables: &Tables) -> u64 {
        self.calls.site(update, tables)
    }

    fn type_name(&self, ty: TypeKey) -> String {
        match ty % 2 {
            0 => self.typing.type_name(TypeId(ty / 2)).to_owned(),
            _ => self.calls.type_name(ty / 2),
        }
    }

    fn field_name(&self, ty: TypeKey, field: u64) -> String {
        match ty % 2 {
            0 => self.typing.field_name(FieldId(field as u32)).to_owned(),
            _ => self.calls.field_name(ty / 2, field),
        }
    }
}
