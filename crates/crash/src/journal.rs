//! What was tested, noted as it is tested, so that a campaign that was interrupted (Ctrl-C, kill -9, a power failure even)
//! goes on where it was.
//!
//! A file that only grows: a header with a key (of the trace's content and of the options that decide what a state is and
//! how it is judged; the commands are the caller's to keep apart), then records, each with its length and checksum. What a killed campaign wrote last may be torn: the
//! file is cut there. Entries are written with plain write(2): after 50 ms with the next entry, and by whoever has the time to
//! flush ([`Journal::flush`]).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crashproof_model::Model;
use crashproof_sandbox::{Ended, Run};
use crashproof_trace::StackId;

use crate::campaign::{CampaignOptions, Recovered};
use crate::error::CrashError;
use crate::executor::{Failure, StoreId, Verdict};
use crate::hash::Fold;
use crate::reads::UnitHash;

const MAGIC: &[u8; 8] = b"CRSHJRN3";
const HEADER: u64 = 24;
/// Entries of so long are written together.
const BATCH: Duration = Duration::from_millis(50);
/// No record is larger; a length beyond it is damage.
const MAX_RECORD: u32 = 64 << 20;

#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Tested(Box<Record>),
    /// No state is left out any more by what the recovery reads.
    PruningEnded {
        why: String,
    },
}

/// A state that was tested.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub state: u128,
    /// Of what is not tracked of its reads.
    pub context: u128,
    /// Whether the context has what the program had output.
    pub output_read: bool,
    pub verdict: Verdict,
    /// What the recovery looked at, if it is needed.
    pub touched: Option<Vec<(u64, UnitHash)>>,
    pub failure: Option<Failure>,
    pub recovered: Option<(StackId, Recovered)>,
}

pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    written: Instant,
}

impl Journal {
    /// Begins a journal, or goes on with one: then gives what is in it.
    pub(crate) fn open(
        path: &Path,
        trace: &Path,
        options: &CampaignOptions,
    ) -> Result<(Journal, Vec<Entry>), CrashError> {
        let fail = |what| {
            move |source| CrashError::Journal {
                path: path.into(),
                what,
                source,
            }
        };
        let key = key(trace, options).map_err(fail("find the key of"))?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(fail("open"))?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(fail("read"))?;
        let mut header = MAGIC.to_vec();
        header.extend(key.to_le_bytes());
        let mut entries = Vec::new();
        let end = if content.len() < HEADER as usize && header.starts_with(&content) {
            file.seek(SeekFrom::Start(0)).map_err(fail("write"))?;
            file.write_all(&header).map_err(fail("write"))?;
            HEADER
        } else if content.starts_with(&header) {
            HEADER + read_entries(&content[HEADER as usize..], &mut entries) as u64
        } else {
            return Err(CrashError::JournalOfAnother { path: path.into() });
        };
        file.set_len(end).map_err(fail("cut"))?;
        file.seek(SeekFrom::Start(end)).map_err(fail("write"))?;
        let journal = Journal {
            path: path.into(),
            file,
            buffer: Vec::new(),
            written: Instant::now(),
        };
        Ok((journal, entries))
    }

    pub(crate) fn append(&mut self, entry: &Entry) -> Result<(), CrashError> {
        let start = self.buffer.len();
        self.buffer.extend([0; 8]);
        put_entry(&mut self.buffer, entry);
        let body = &self.buffer[start + 8..];
        let (len, checksum) = (body.len() as u32, crc32fast::hash(body));
        self.buffer[start..start + 4].copy_from_slice(&len.to_le_bytes());
        self.buffer[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
        if self.written.elapsed() >= BATCH {
            self.flush()?;
        }
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<(), CrashError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        self.written = Instant::now();
        written.map_err(|source| CrashError::Journal {
            path: self.path.clone(),
            what: "write",
            source,
        })
    }
}

/// Differs if a state of one campaign could be another one's, or be judged otherwise.
fn key(trace: &Path, options: &CampaignOptions) -> io::Result<u128> {
    let mut hash = Fold::default();
    let mut file = File::open(trace)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hash.bytes(&buffer[..n]);
    }
    hash.bytes(&[
        (options.model == Model::Eadr) as u8,
        options.tear as u8,
        options.reorder_in_line as u8,
        options.expect_output.is_some() as u8,
    ]);
    hash.bytes(options.strategy.name().as_bytes());
    hash.bytes(options.expect_output.as_deref().unwrap_or_default());
    hash.bytes(
        options
            .oracle
            .as_ref()
            .map_or_else(String::new, |oracle| format!("{oracle:?}"))
            .as_bytes(),
    );
    Ok(hash.0)
}

/// How many bytes whole entries take.
fn read_entries(content: &[u8], entries: &mut Vec<Entry>) -> usize {
    let mut input = Input(content);
    loop {
        let good = content.len() - input.0.len();
        let (Some(len), Some(checksum)) = (input.u32(), input.u32()) else {
            return good;
        };
        let body = input.take(len as usize).filter(|_| len <= MAX_RECORD);
        let Some(entry) = body
            .filter(|body| crc32fast::hash(body) == checksum)
            .and_then(|body| take_entry(&mut Input(body)))
        else {
            return good;
        };
        entries.push(entry);
    }
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    match entry {
        Entry::Tested(record) => {
            out.push(0);
            put_record(out, record);
        }
        Entry::PruningEnded { why } => {
            out.push(1);
            put_bytes(out, why.as_bytes());
        }
    }
}

fn take_entry(input: &mut Input<'_>) -> Option<Entry> {
    let entry = if input.flag()? {
        let why = String::from_utf8(input.bytes()?).ok()?;
        Entry::PruningEnded { why }
    } else {
        Entry::Tested(Box::new(take_record(input)?))
    };
    input.0.is_empty().then_some(entry)
}

fn put_record(out: &mut Vec<u8>, record: &Record) {
    out.extend(record.state.to_le_bytes());
    out.extend(record.context.to_le_bytes());
    out.push(record.output_read as u8);
    out.push((record.verdict == Verdict::Fails) as u8);
    put_option(out, record.touched.as_ref(), |out, touched| {
        put_u64(out, touched.len() as u64);
        for &(unit, content) in touched {
            put_u64(out, unit);
            put_u64(out, content);
        }
    });
    put_option(out, record.failure.as_ref(), |out, failure| {
        put_u64(out, failure.point);
        put_u64(out, failure.output);
        put_stores(out, &failure.persisted);
        put_stores(out, &failure.missing);
        put_ended(out, &failure.run.recovery);
        put_option(out, failure.run.check.as_ref(), put_ended);
        out.push(failure.run.wrote as u8);
    });
    put_option(out, record.recovered.as_ref(), |out, (stack, recovered)| {
        put_u64(out, stack.0 as u64);
        put_u64(out, recovered.point);
        put_u64(out, recovered.output);
        put_stores(out, &recovered.persisted);
    });
}

fn take_record(input: &mut Input<'_>) -> Option<Record> {
    Some(Record {
        state: input.u128()?,
        context: input.u128()?,
        output_read: input.flag()?,
        verdict: if input.flag()? {
            Verdict::Fails
        } else {
            Verdict::Recovers
        },
        touched: input.option(|input| input.list(|input| Some((input.u64()?, input.u64()?))))?,
        failure: input.option(|input| {
            Some(Failure {
                point: input.u64()?,
                output: input.u64()?,
                persisted: input.stores()?,
                missing: input.stores()?,
                run: Run {
                    recovery: input.ended()?,
                    check: input.option(Input::ended)?,
                    touched: None,
                    wrote: input.flag()?,
                    output_unread: false,
                    looked: None,
                },
            })
        })?,
        recovered: input.option(|input| {
            Some((
                StackId(input.u64()?.try_into().ok()?),
                Recovered {
                    point: input.u64()?,
                    output: input.u64()?,
                    persisted: input.stores()?,
                },
            ))
        })?,
    })
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend(value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend(bytes);
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(value.is_some() as u8);
    if let Some(value) = value {
        put(out, value);
    }
}

fn put_stores(out: &mut Vec<u8>, stores: &[StoreId]) {
    put_u64(out, stores.len() as u64);
    for store in stores {
        put_u64(out, store.seq);
        out.extend(store.piece.to_le_bytes());
    }
}

fn put_ended(out: &mut Vec<u8>, ended: &Ended) {
    put_option(out, ended.status, |out, status| out.extend(status.to_le_bytes()));
    put_option(out, ended.signal, |out, signal| out.extend(signal.to_le_bytes()));
    out.push(ended.timed_out as u8);
    put_bytes(out, &ended.stdout);
    put_bytes(out, &ended.stderr);
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        self.array().map(|[byte]| byte != 0)
    }

    fn option<T>(&mut self, take: impl FnOnce(&mut Input<'a>) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { take(self).map(Some) } else { Some(None) }
    }

    fn list<T>(&mut self, mut take: impl FnMut(&mut Input<'a>) -> Option<T>) -> Option<Vec<T>> {
        let len = self.u64()?;
        // Each item takes bytes: a wrong length ends here, not in an allocation.
        (0..len).map(|_| take(self)).collect()
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = self.u64()?.try_into().ok()?;
        self.take(len).map(Into::into)
    }

    fn stores(&mut self) -> Option<Vec<StoreId>> {
        self.list(|input| {
            Some(StoreId {
                seq: input.u64()?,
                piece: input.array().map(u16::from_le_bytes)?,
            })
        })
    }

    fn ended(&mut self) -> Option<Ended> {
        Some(Ended {
            status: self.option(Input::i32)?,
            signal: self.option(Input::i32)?,
            timed_out: self.flag()?,
            stdout: self.bytes()?,
            stderr: self.bytes()?,
        })
    }
}
