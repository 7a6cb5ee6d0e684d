//! Whether the log holds everything: what it replays to is compared with what the files hold.
//!
//! The runtime sends the contents of a file's pages when it is unmapped and at exit. A process that is killed cannot, and a
//! process without the runtime may change a file that the others no longer have mapped. So all files are read by their paths at
//! the end of the recording, once more. Registered memory has no path: if its process did not send all of it, it cannot be
//! compared, and the trace is incomplete.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crashproof_trace::{Incomplete, IncompleteReason};

use crate::image::{Difference, Image};

/// A disk that has no more than this to spare is left to the trace.
const ROOM_FOR_TRACE: u64 = 64 << 20;

/// What an announcement of contents says.
pub(crate) enum Announced {
    /// What the file held when it was first mapped.
    First,
    /// It was written while nobody had it mapped.
    Changed,
    /// Nothing new.
    Known,
}

/// One PM file, by the runtime's id.
struct Verified {
    /// `None`: unlinked.
    path: Option<String>,
    /// The path in messages, also after the file was unlinked.
    name: String,
    dev: u64,
    ino: u64,
    /// `Err`: it cannot be kept, and why.
    image: Result<Image, io::Error>,
    /// Contents are announced when the file is mapped first; once it was used, an announcement is a check.
    used: bool,
    difference: Option<Difference>,
    /// There were stores after the runtime last sent contents.
    stored: bool,
    /// It stands for memory that the program registered.
    memory: bool,
    /// The runtime has sent all of the memory after it was last mapped or stored to.
    compared: bool,
    /// A process that had it mapped died without a word.
    orphaned: bool,
}

impl Verified {
    /// Does something to the image; if that fails, there is no image any more.
    fn with_image<T>(&mut self, change: impl FnOnce(&mut Image) -> io::Result<T>) -> Option<T> {
        match change(self.image.as_mut().ok()?) {
            Ok(result) => Some(result),
            Err(error) => {
                self.image = Err(error);
                None
            }
        }
    }
}

/// The images of all PM files.
pub(crate) struct Images {
    /// Where image files are made: beside the trace, which is on a disk that the user chose for much data.
    directories: Vec<PathBuf>,
    files: Vec<Option<Verified>>,
}

impl Images {
    pub(crate) fn new(trace: &Path) -> Images {
        let beside = match trace.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        Images {
            directories: vec![beside, std::env::temp_dir()],
            files: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, raw: u32, size: u64, dev: u64, ino: u64, path: String, memory: bool) {
        let image = self.create_image(size);
        let raw = raw as usize;
        if self.files.len() <= raw {
            self.files.resize_with(raw + 1, || None);
        }
        self.files[raw] = Some(Verified {
            memory,
            compared: false,
            name: path.clone(),
            path: Some(path),
            dev,
            ino,
            image,
            used: false,
            difference: None,
            stored: false,
            orphaned: false,
        });
    }

    pub(crate) fn store(&mut self, raw: u32, offset: u64, data: &[u8]) {
        if let Some(file) = self.file(raw) {
            file.used = true;
            file.stored = true;
            file.compared = false;
            file.with_image(|image| image.store(offset, data));
        }
    }

    pub(crate) fn write(&mut self, raw: u32, offset: u64, data: &[u8]) {
        if let Some(file) = self.file(raw) {
            file.used = true;
            file.stored = true;
            file.with_image(|image| image.write(offset, data));
        }
    }

    pub(crate) fn resize(&mut self, raw: u32, size: u64) {
        if let Some(file) = self.file(raw) {
            file.stored = true;
            file.with_image(|image| image.resize(size));
        }
    }

    pub(crate) fn rename(&mut self, raw: u32, path: Option<&str>) {
        if let Some(file) = self.file(raw) {
            file.path = path.map(str::to_owned);
            file.name = path.map_or_else(|| file.name.clone(), str::to_owned);
        }
    }

    /// Contents that the runtime found at a mapping.
    pub(crate) fn initial(&mut self, raw: u32, offset: u64, data: &[u8]) -> Announced {
        let Some(file) = self.file(raw) else {
            return Announced::First;
        };
        if !file.used {
            file.with_image(|image| image.store(offset, data));
            return Announced::First;
        }
        match file.with_image(|image| image.verify(offset, data)).flatten() {
            Some(_) => Announced::Changed,
            None => Announced::Known,
        }
    }

    /// The file was mapped: from now on an announcement of its contents is a check.
    pub(crate) fn mapped(&mut self, raw: u32) {
        if let Some(file) = self.file(raw) {
            file.used = true;
            file.compared = false;
        }
    }

    /// Contents that the runtime found at an unmapping or at the end; none: of registered memory, it has sent all that there is.
    pub(crate) fn verify(&mut self, raw: u32, offset: u64, actual: &[u8]) {
        if let Some(file) = self.file(raw) {
            file.stored = false;
            file.compared |= actual.is_empty();
            let difference = file.with_image(|image| image.verify(offset, actual)).flatten();
            Difference::merge(&mut file.difference, difference);
        }
    }

    /// A process that had these mapped died without a word: they are read at the end.
    pub(crate) fn orphaned(&mut self, files: &[u32]) {
        for &raw in files {
            if let Some(file) = self.file(raw) {
                file.orphaned = true;
            }
        }
    }

    /// All that is wrong with the log. The images are gone afterwards, and so is the space they took.
    pub(crate) fn finish(&mut self) -> Vec<Incomplete> {
        self.files.drain(..).flatten().filter_map(judge).flatten().collect()
    }

    /// In the first directory with room for all of it and for a trace beside it, else in the first where it can be made.
    fn create_image(&self, size: u64) -> io::Result<Image> {
        let roomy = |directory: &&PathBuf| has_room(directory, size.saturating_add(ROOM_FOR_TRACE));
        let (roomy, tight): (Vec<_>, Vec<_>) = self.directories.iter().partition(roomy);
        let mut image = Err(io::ErrorKind::NotFound.into());
        for directory in roomy.into_iter().chain(tight) {
            image = Image::create(directory, size);
            if image.is_ok() {
                break;
            }
        }
        image
    }

    fn file(&mut self, raw: u32) -> Option<&mut Verified> {
        self.files.get_mut(raw as usize)?.as_mut()
    }
}

fn judge(mut file: Verified) -> Option<Vec<Incomplete>> {
    let name = &file.name;
    let unsupported = |detail| Incomplete {
        reason: IncompleteReason::Unsupported,
        detail,
    };
    let mismatch = |detail| Incomplete {
        reason: IncompleteReason::Mismatch,
        detail,
    };
    let mut notes = Vec::new();
    match &file.image {
        Err(error) => {
            notes.push(unsupported(format!(
                "{name}: could not be verified: there is no room for its image: {error}"
            )));
        }
        Ok(_) if file.memory => {
            if !file.compared {
                notes.push(unsupported(format!(
                    "{name}: could not be verified: the process that registered it was killed, and nothing is left of its memory"
                )));
            }
        }
        Ok(image) => match verify_by_path(&file, image) {
            Ok((difference, size)) => {
                Difference::merge(&mut file.difference, difference);
                if size != image.size() {
                    let logged = image.size();
                    notes.push(mismatch(format!(
                        "{name}: has {size} bytes where the log ends with {logged}"
                    )));
                }
            }
            Err(error) if file.stored || file.orphaned => {
                let why = if file.orphaned {
                    "a process that had it mapped was killed"
                } else {
                    "it was not unmapped"
                };
                notes.push(unsupported(format!(
                    "{name}: could not be verified: {why}, and reading it failed: {error}"
                )));
            }
            // All that the recorded processes had to say of it was compared.
            Err(_) => {}
        },
    }
    let count = |d: Difference| match d.bytes {
        1 => format!("1 byte differs, at offset {:#x}", d.first),
        n => format!("{n} bytes differ, first at offset {:#x}", d.first),
    };
    if let Some(difference) = file.difference {
        notes.push(mismatch(format!(
            "{name}: {} from what the log replays to",
            count(difference)
        )));
    }
    (!notes.is_empty()).then_some(notes)
}

fn has_room(directory: &Path, size: u64) -> bool {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: an all-zero statvfs is valid, and the call fills it.
    unsafe {
        let mut status: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &mut status) == 0 && status.f_bavail.saturating_mul(status.f_frsize) >= size
    }
}

/// How the file differs from its image, and its size.
fn verify_by_path(file: &Verified, image: &Image) -> io::Result<(Option<Difference>, u64)> {
    let path = file.path.as_ref().ok_or_else(|| io::Error::other("it was removed"))?;
    // A pipe that has its path now would wait for a writer.
    let actual = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let status = actual.metadata()?;
    let dev = (u64::from(libc::major(status.dev())) << 32) | u64::from(libc::minor(status.dev()));
    if !status.is_file() {
        return Err(io::Error::other("it is a device"));
    }
    if (dev, status.ino()) != (file.dev, file.ino) {
        return Err(io::Error::other("another file has its path now"));
    }
    Ok((image.verify_file(&actual)?, status.len()))
}
