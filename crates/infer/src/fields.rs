//! What the stores of a trace write, by the names of types and fields, so that two recordings can be compared: the numbers that
//! [`Typing`] gives are those of one trace.

use crashproof_sites::{Store, Typing};
use crashproof_trace::{EventKind, FileId, Item, PmAddress, ReadError, Tables, TraceFile};
use rustc_hash::FxHashMap;

use crate::location::{Location, split};

/// Pieces of stores that are typed at a time.
const CHUNK: usize = 1 << 16;

/// A field of a type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Field {
    pub ty: String,
    pub size: u64,
    pub name: String,
}

/// A field's number in [`Fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldIndex(pub u32);

/// Bytes are this field of an object that begins so far before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Level {
    pub field: FieldIndex,
    pub distance: u64,
}

/// The last store to some bytes of a word: which of them, its list, and where its piece begins.
type LastStore = (u8, u32, u64);

/// What all stores of a trace write, piece by piece (of a word).
#[derive(Clone, Debug, Default)]
pub struct Fields {
    names: Vec<Field>,
    numbers: FxHashMap<Field, FieldIndex>,
    lists: Vec<Vec<Level>>,
    list_numbers: FxHashMap<Vec<Level>, u32>,
    /// Event, where in the file its piece begins, list: in order.
    stores: Vec<(u64, u64, u32)>,
    /// By word.
    last: FxHashMap<(FileId, u64), Vec<LastStore>>,
    pub warnings: Vec<String>,
}

impl Fields {
    pub fn read(trace: &TraceFile) -> Result<Fields, ReadError> {
        let mut typing = Typing::new();
        let mut any = false;
        // What a store writes may show only by later ones.
        each_chunk(trace, |tables, _, pieces| {
            let types = typing.all(tables, pieces);
            any |= (0..pieces.len()).any(|piece| !types.of(piece).is_empty());
        })?;
        let mut fields = Fields::default();
        if any {
            each_chunk(trace, |tables, events, pieces| {
                let types = typing.all(tables, pieces);
                for (index, piece) in pieces.iter().enumerate() {
                    let levels = types.of(index).iter().map(|typed| {
                        let field = Field {
                            ty: typing.type_name(typed.ty).to_owned(),
                            size: typing.type_size(typed.ty),
                            name: typing.field_name(typed.field).to_owned(),
                        };
                        (field, piece.at.offset.wrapping_sub(typed.instance.offset))
                    });
                    fields.add(events[index], piece.at, piece.len as u64, levels);
                }
            })?;
        }
        fields.warnings = typing.warnings().to_vec();
        Ok(fields)
    }

    fn number(&mut self, field: Field) -> FieldIndex {
        let names = &mut self.names;
        *self.numbers.entry(field).or_insert_with_key(|field| {
            names.push(field.clone());
            FieldIndex(names.len() as u32 - 1)
        })
    }

    /// A store, in a piece that lies in one word, writes these fields, innermost first, of objects that begin so far before it. Events come in
    /// order.
    pub fn add(&mut self, event: u64, at: PmAddress, len: u64, levels: impl IntoIterator<Item = (Field, u64)>) {
        let levels = levels.into_iter().map(|(field, distance)| Level {
            field: self.number(field),
            distance,
        });
        let levels: Vec<Level> = levels.collect();
        let is_typed = !levels.is_empty();
        let list = self.list(levels);
        if is_typed {
            self.stores.push((event, at.offset, list));
        }
        for part in split(at, len) {
            let last = self.last.entry(part.word()).or_default();
            let mask = part.mask();
            for (bytes, ..) in last.iter_mut() {
                *bytes &= !mask;
            }
            last.retain(|(bytes, ..)| *bytes != 0);
            last.push((mask, list, at.offset));
        }
    }

    fn list(&mut self, levels: Vec<Level>) -> u32 {
        let lists = &mut self.lists;
        *self.list_numbers.entry(levels).or_insert_with_key(|levels| {
            lists.push(levels.clone());
            lists.len() as u32 - 1
        })
    }

    pub fn name(&self, field: FieldIndex) -> &Field {
        &self.names[field.0 as usize]
    }

    pub fn find(&self, field: &Field) -> Option<FieldIndex> {
        self.numbers.get(field).copied()
    }

    /// What the last store to the location wrote, innermost first; that of most of its bytes. Distances are from where that store's piece
    /// begins, which may be before the location.
    pub fn at(&self, location: Location) -> (u64, &[Level]) {
        let last = self.last.get(&location.word()).into_iter().flatten();
        let most = last
            .filter(|(bytes, ..)| bytes & location.mask() != 0)
            .max_by_key(|(bytes, ..)| (bytes & location.mask()).count_ones());
        most.map_or((location.offset, &[]), |&(_, list, offset)| {
            (offset, &self.lists[list as usize])
        })
    }

    /// What the event's store of these bytes writes: each piece's offset and levels.
    pub fn of(&self, event: u64, start: u64, end: u64) -> impl Iterator<Item = (u64, &[Level])> {
        let first = self.stores.partition_point(|&(seq, ..)| seq < event);
        let pieces = self.stores[first..].iter().take_while(move |(seq, ..)| *seq == event);
        pieces
            .filter(move |(_, offset, _)| (start..end).contains(offset))
            .map(|&(_, offset, list)| (offset, &self.lists[list as usize][..]))
    }
}

/// All pieces of stores of the trace, with their events.
fn each_chunk(trace: &TraceFile, mut see: impl FnMut(&Tables, &[u64], &[Store])) -> Result<(), ReadError> {
    let mut reader = trace.files()?;
    let (mut events, mut pieces) = (Vec::new(), Vec::new());
    while let Some((item, tables)) = reader.next_with_tables()? {
        if let Item::Event(event) = item
            && let EventKind::Store { at, data, .. } = event.kind
        {
            for part in split(at, data.len() as u64) {
                events.push(event.seq);
                pieces.push(Store {
                    thread: event.thread,
                    stack: event.stack,
                    at: PmAddress {
                        file: at.file,
                        offset: part.offset,
                    },
                    len: part.len as usize,
                });
            }
            if pieces.len() >= CHUNK {
                see(tables, &events, &pieces);
                events.clear();
                pieces.clear();
            }
        }
    }
    see(reader.tables(), &events, &pieces);
    Ok(())
}
