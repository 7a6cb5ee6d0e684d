//! A minimal recorder: makes a session, drains the ring while a program runs, and replays the log against the file.

use crashproof_wire::{self as wire, record::*};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Session(*mut wire::Session);

// SAFETY: the mapping is shared by design; everything that changes in it is atomic.
unsafe impl Sync for Session {}

#[derive(Default)]
pub(crate) struct Recorded {
    pub stores: usize,
    pub system_call_stores: usize,
    pub output: Vec<(u32, Vec<u8>)>,
    pub incomplete: Vec<String>,
    /// Pages in which the file is not what the log replays to.
    pub mismatches: Vec<String>,
}

impl Session {
    pub(crate) fn create(path: &Path) -> Session {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .expect("a session file");
        let size = size_of::<wire::Session>();
        file.set_len(size as u64).expect("room for the session");
        // SAFETY: a fresh shared mapping of a file of that size; all-zero is a valid session but for its first fields.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let mapped = libc::mmap(
                std::ptr::null_mut(),
                size,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(mapped, libc::MAP_FAILED);
            let session = mapped.cast::<wire::Session>();
            (*session).magic = wire::MAGIC;
            (*session).version = wire::VERSION;
            (*session).recorder_pid = std::process::id();
            Session(session)
        }
    }

    /// Runs `program` and drains the ring until it has ended and nothing is left.
    pub(crate) fn record<R: Send>(&self, program: impl FnOnce() -> R + Send) -> (Recorded, R) {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                let result = program();
                ended.store(true, Ordering::Release);
                result
            });
            let recorded = self.drain(&ended);
            (recorded, running.join().expect("the program's thread"))
        })
    }

    fn drain(&self, ended: &AtomicBool) -> Recorded {
        // SAFETY: mapped for as long as the test runs.
        let session = unsafe { &*self.0 };
        let mut replay = Replay::default();
        let mut position = 0;
        loop {
            let slot = |p: u64| &session.ring[(p % wire::RING_SLOTS) as usize];
            let over = ended.load(Ordering::Acquire);
            let word = slot(position).header.load(Ordering::Acquire);
            let Some((kind, len)) = wire::parse_slot_header(word, position) else {
                if over {
                    return replay.recorded;
                }
                std::thread::sleep(std::time::Duration::from_micros(200));
                continue;
            };
            let slots = wire::slots_for(len);
            let mut body = Vec::with_capacity(slots as usize * wire::SLOT_PAYLOAD);
            for p in position..position + slots {
                // SAFETY: a committed record's payload is complete.
                body.extend_from_slice(unsafe { &*slot(p).payload.get() });
            }
            replay.take(kind, &body[..len]);
            position += slots;
            session.head.0.store(position, Ordering::Release);
        }
    }
}

#[derive(Default)]
struct Replay {
    images: HashMap<u32, Vec<u8>>,
    recorded: Recorded,
}

impl Replay {
    fn take(&mut self, kind: u8, body: &[u8]) {
        let mut fields = Reader(body);
        match kind {
            STORE => {
                let (access, data) = Access::parse(body).expect("a store");
                self.recorded.stores += 1;
                self.recorded.system_call_stores += (access.flags() & STORE_SYSCALL != 0) as usize;
                let data = &data[..access.length()];
                let Place { file, offset } = access.place();
                self.bytes(file, offset, data.len()).copy_from_slice(data);
            }
            INITIAL => {
                let (file, offset) = (fields.u32().expect("file"), fields.u64().expect("offset"));
                self.bytes(file, offset, fields.0.len()).copy_from_slice(fields.0);
            }
            FILE_WRITE => {
                let _by = (fields.u32(), fields.u64());
                let (file, _begun) = (fields.u32().expect("file"), fields.u64());
                let offset = fields.u64().expect("offset");
                self.bytes(file, offset, fields.0.len()).copy_from_slice(fields.0);
            }
            RESIZE => {
                let _by = (fields.u32(), fields.u64());
                let (file, _begun) = (fields.u32().expect("file"), fields.u64());
                let size = fields.u64().expect("size");
                self.images.entry(file).or_default().resize(size as usize, 0);
            }
            VERIFY => {
                let (file, offset) = (fields.u32().expect("file"), fields.u64().expect("offset"));
                if self.bytes(file, offset, fields.0.len()) != fields.0 {
                    self.recorded
                        .mismatches
                        .push(format!("file {file}, page at {offset:#x}"));
                }
            }
            OUTPUT => {
                let _thread = fields.u32();
                self.recorded
                    .output
                    .push((fields.u32().expect("fd"), fields.0.to_vec()));
            }
            INCOMPLETE => {
                let _reason = fields.u32();
                let text = fields.bytes().expect("text");
                self.recorded
                    .incomplete
                    .push(String::from_utf8_lossy(text).into_owned());
            }
            _ => {}
        }
    }

    fn bytes(&mut self, file: u32, offset: u64, len: usize) -> &mut [u8] {
        let image = self.images.entry(file).or_default();
        let end = offset as usize + len;
        if image.len() < end {
            image.resize(end, 0);
        }
        &mut image[offset as usize..end]
    }
}
