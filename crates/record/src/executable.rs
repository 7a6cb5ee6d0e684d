//! Looks at a program before it runs: can the dynamic loader load the runtime into it at all?
//!
//! A program that cannot be recorded would run to its end with nothing recorded; it is better to say so, and why, before.
//! What cannot be read or found is not judged here: starting it gives the exact reason.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crashproof_trace::tracked::{self, TrackedError};
use crashproof_wire::SANITIZERS_WITHOUT_ROOM;
use tempfile::TempPath;

use crate::translate::Tracked;

/// A script may name a script as its interpreter; the kernel follows so many.
const MAX_INTERPRETERS: usize = 5;
/// The kernel reads no more of a `#!` line.
const MAX_SHEBANG: usize = 256;

const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
const CLASS_32: u8 = 1;
const MACHINE_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// No note that is looked for is longer.
const MAX_NOTES: u64 = 4096;
const SHT_DYNSYM: u32 = 11;
const SYMBOL: usize = 24;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
/// Larger tables of names are not looked through.
const MAX_NAMES: u64 = 64 << 20;

/// Why the runtime cannot be loaded into a program.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unrecordable {
    #[error(
        "cannot record {}: it is statically linked, and the runtime is loaded by the dynamic loader; link it dynamically \
         (without -static)",
        path.display()
    )]
    Static { path: PathBuf },
    #[error(
        "cannot record {}: it is a statically linked Go program, and the runtime is loaded by the dynamic loader; add \
         `import \"C\"` to its package main and build it with CGO_ENABLED=1 (this needs a C compiler), not stripped",
        path.display()
    )]
    StaticGo { path: PathBuf },
    #[error("cannot record {}: it is a 32-bit program, and only x86-64 is supported; build it with -m64", path.display())]
    ThirtyTwoBit { path: PathBuf },
    #[error(
        "cannot record {}: it is built for another processor (ELF machine {machine}), and only x86-64 is supported",
        path.display()
    )]
    OtherMachine { path: PathBuf, machine: u16 },
    #[error(
        "cannot record {}: its C library is {}, and the runtime needs glibc; build it against glibc",
        path.display(),
        loader.display()
    )]
    OtherLibc { path: PathBuf, loader: PathBuf },
    #[error(
        "cannot record {}: it gains privileges ({how}), and then the dynamic loader ignores LD_PRELOAD; record a copy \
         without them (cp drops them), or as the user that it runs as",
        path.display()
    )]
    Privileged { path: PathBuf, how: &'static str },
    #[error(
        "cannot record {}: it is built with {sanitizer}, which allows no memory where crashproof maps PM; build it without \
         (AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer can be recorded)",
        path.display()
    )]
    Sanitizer { path: PathBuf, sanitizer: &'static str },
}

/// Whether the program, found as the shell would find it, can be recorded.
pub fn check(program: &OsStr) -> Result<(), Unrecordable> {
    match find(program, std::env::var_os("PATH").as_deref()) {
        Some(path) => check_file(&path, MAX_INTERPRETERS),
        None => Ok(()),
    }
}

/// A version of a program that lies within it, as a file of its own for as long as this is there.
pub struct Within {
    pub executable: TempPath,
    program: PathBuf,
}

impl Within {
    /// As the runtime will name it, and as the trace is to.
    pub fn names(&self) -> Tracked {
        let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
        Tracked {
            runs: canonical(&self.executable).to_string_lossy().into_owned(),
            program: canonical(&self.program).to_string_lossy().into_owned(),
        }
    }
}

/// The version of the program that follows dependences, if it has one.
pub fn tracked(program: &OsStr) -> Result<Option<Within>, TrackedError> {
    let Some(program) = find(program, std::env::var_os("PATH").as_deref()) else {
        return Ok(None);
    };
    // What cannot be read, starting it says.
    if !program.is_file() {
        return Ok(None);
    }
    let extracted = tracked::extract(&program)?;
    Ok(extracted.map(|executable| Within { executable, program }))
}

/// The file that a name stands for: itself with a `/` in it, else the first match in the search path.
fn find(program: &OsStr, search_path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    std::env::split_paths(search_path?)
        .map(|folder| folder.join(program))
        .find(|path| {
            path.metadata()
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
}

fn check_file(path: &Path, interpreters_left: usize) -> Result<(), Unrecordable> {
    let Ok(mut file) = File::open(path) else { return Ok(()) };
    if let Some(how) = file
        .metadata()
        .ok()
        .and_then(|metadata| gained_privilege(path, &metadata))
    {
        return Err(Unrecordable::Privileged { path: path.into(), how });
    }
    let mut start = [0; MAX_SHEBANG];
    let Ok(len) = read_up_to(&mut file, &mut start) else {
        return Ok(());
    };
    let start = &start[..len];
    if let Some(interpreter) = shebang(start) {
        return match interpreters_left {
            0 => Ok(()),
            left => check_file(&interpreter, left - 1),
        };
    }
    if start.starts_with(&ELF_MAGIC) {
        check_elf(path, &mut file, start)
    } else {
        Ok(())
    }
}

fn check_elf(path: &Path, file: &mut File, header: &[u8]) -> Result<(), Unrecordable> {
    let path = || path.to_owned();
    let (Some(&class), Some(machine)) = (header.get(4), u16_at(header, 18)) else {
        return Ok(());
    };
    // A 32-bit x86 program runs here, one for another processor does not, unless an emulator is registered.
    if class == CLASS_32 {
        return Err(Unrecordable::ThirtyTwoBit { path: path() });
    }
    if machine != MACHINE_X86_64 {
        return Err(Unrecordable::OtherMachine { path: path(), machine });
    }
    // The loader may be called as a program (`ld.so ./app`); it names no loader of its own and does load the runtime.
    let is_loader = path()
        .file_name()
        .is_some_and(|name| name.as_bytes().starts_with(b"ld-linux"));
    match loader(file, header) {
        Ok(Some(loader)) if loader.as_os_str().as_bytes().windows(4).any(|part| part == b"musl") => {
            Err(Unrecordable::OtherLibc { path: path(), loader })
        }
        Ok(None) if !is_loader && is_go(file, header).unwrap_or(false) => Err(Unrecordable::StaticGo { path: path() }),
        Ok(None) if !is_loader => Err(Unrecordable::Static { path: path() }),
        // A damaged file: the kernel will say so.
        _ => match refused_sanitizer(file, header) {
            Ok(Some(sanitizer)) => Err(Unrecordable::Sanitizer {
                path: path(),
                sanitizer,
            }),
            _ => Ok(()),
        },
    }
}

/// A program that is built with a sanitizer has the name of the function that starts it among its dynamic symbols: it imports it, or its static
/// copy is exported. If it is not exported, what the copy replaces is.
fn refused_sanitizer(file: &mut File, header: &[u8]) -> io::Result<Option<&'static str>> {
    let segments = segments(file, header)?;
    let Some(dynamic) = segments.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
        return Ok(None);
    };
    let mut entries = Vec::new();
    file.seek(SeekFrom::Start(dynamic.offset))?;
    file.take(dynamic.size.min(MAX_NAMES)).read_to_end(&mut entries)?;
    let value = |tag| {
        let mut entries = entries.chunks_exact(16);
        entries.find_map(|entry| u64_at(entry, 8).filter(|_| u64_at(entry, 0) == Some(tag)))
    };
    let place = value(DT_STRTAB).and_then(|address| {
        let holds = |segment: &&Segment| {
            segment.kind == PT_LOAD
                && (segment.address..segment.address.saturating_add(segment.size)).contains(&address)
        };
        let segment = segments.iter().find(holds)?;
        segment.offset.checked_add(address - segment.address)
    });
    let (Some(place), Some(size)) = (place, value(DT_STRSZ).filter(|&size| size <= MAX_NAMES)) else {
        return Ok(None);
    };
    let mut names = Vec::new();
    file.seek(SeekFrom::Start(place))?;
    file.take(size).read_to_end(&mut names)?;
    let has = |name: &str| {
        let name = format!("\0{name}\0");
        names.windows(name.len()).any(|part| part == name.as_bytes())
    };
    if let Some(found) = SANITIZERS_WITHOUT_ROOM.iter().find(|sanitizer| has(sanitizer.start)) {
        return Ok(Some(found.name));
    }
    for sanitizer in &SANITIZERS_WITHOUT_ROOM {
        let replaced = sanitizer.replaces;
        if !replaced.is_empty() && replaced.iter().all(|name| has(name)) {
            let defined = defined(file, header, &names)?;
            if replaced.iter().all(|name| defined.contains(&name.as_bytes())) {
                return Ok(Some(sanitizer.name));
            }
        }
    }
    Ok(None)
}

/// Names of the dynamic symbols that the file defines. `names` is the table that they are in.
fn defined<'a>(file: &mut File, header: &[u8], names: &'a [u8]) -> io::Result<Vec<&'a [u8]>> {
    let damaged = || io::Error::from(io::ErrorKind::InvalidData);
    let table = u64_at(header, 40).ok_or_else(damaged)?;
    let entry_size = u16_at(header, 58).ok_or_else(damaged)?;
    let entries = u16_at(header, 60).ok_or_else(damaged)?;
    let mut symbols = Vec::new();
    for index in 0..u64::from(entries) {
        let mut entry = [0; 64];
        let offset = table.checked_add(index * u64::from(entry_size)).ok_or_else(damaged)?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut entry)?;
        if u32_at(&entry, 4) == Some(SHT_DYNSYM) {
            let (start, size) = u64_at(&entry, 24).zip(u64_at(&entry, 32)).ok_or_else(damaged)?;
            file.seek(SeekFrom::Start(start))?;
            file.take(size.min(MAX_NAMES)).read_to_end(&mut symbols)?;
        }
    }
    let name = |symbol: &[u8]| {
        let is_defined = u16_at(symbol, 6)? != 0;
        let start = names.get(u32_at(symbol, 0)? as usize..)?;
        let end = start.iter().position(|&byte| byte == 0)?;
        is_defined.then(|| &start[..end])
    };
    Ok(symbols.chunks_exact(SYMBOL).filter_map(name).collect())
}

/// Whether the Go linker made it: it leaves a note with the build's id.
fn is_go(file: &mut File, header: &[u8]) -> io::Result<bool> {
    /// The sizes of name and content are before it.
    const KIND_AND_NAME: &[u8] = b"\x04\0\0\0Go\0\0";
    for segment in segments(file, header)?.iter().filter(|segment| segment.kind == PT_NOTE) {
        let mut notes = Vec::new();
        file.seek(SeekFrom::Start(segment.offset))?;
        file.take(segment.size.min(MAX_NOTES)).read_to_end(&mut notes)?;
        if notes.windows(KIND_AND_NAME.len()).any(|part| part == KIND_AND_NAME) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An entry of the program header table.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

fn segments(file: &mut File, header: &[u8]) -> io::Result<Vec<Segment>> {
    let damaged = || io::Error::from(io::ErrorKind::InvalidData);
    let table = u64_at(header, 32).ok_or_else(damaged)?;
    let entry_size = u16_at(header, 54).ok_or_else(damaged)?;
    let entries = u16_at(header, 56).ok_or_else(damaged)?;
    let mut segments = Vec::new();
    for index in 0..u64::from(entries) {
        let mut entry = [0; 56];
        let offset = table.checked_add(index * u64::from(entry_size)).ok_or_else(damaged)?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut entry)?;
        let word = |at| u64_at(&entry, at).ok_or_else(damaged);
        segments.push(Segment {
            kind: u32_at(&entry, 0).ok_or_else(damaged)?,
            offset: word(8)?,
            address: word(16)?,
            size: word(32)?,
        });
    }
    Ok(segments)
}

/// The dynamic loader that an ELF file names.
fn loader(file: &mut File, header: &[u8]) -> io::Result<Option<PathBuf>> {
    let segments = segments(file, header)?;
    let Some(named) = segments.iter().find(|segment| segment.kind == PT_INTERP) else {
        return Ok(None);
    };
    let mut name = Vec::new();
    file.seek(SeekFrom::Start(named.offset))?;
    file.take(named.size.min(libc::PATH_MAX as u64))
        .read_to_end(&mut name)?;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(Some(OsStr::from_bytes(&name[..end]).into()))
}

/// The interpreter on a `#!` line.
fn shebang(start: &[u8]) -> Option<PathBuf> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|&byte| byte == b'\n')
        .next()?
        .trim_ascii_start();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    (end > 0).then(|| OsStr::from_bytes(&line[..end]).into())
}

/// What makes the kernel run the file with more than this user's rights.
fn gained_privilege(path: &Path, file: &Metadata) -> Option<&'static str> {
    // SAFETY: these calls only return a number of this process.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let mode = file.permissions().mode();
    if mode & libc::S_ISUID != 0 && file.uid() != user {
        return Some("setuid");
    }
    if mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0 && file.gid() != group {
        return Some("setgid");
    }
    (user != 0 && has_capabilities(path)).then_some("file capabilities")
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both names end with a zero byte; a size of 0 asks for the attribute's length and writes nothing.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..])? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header with one program header after it.
    fn elf(class: u8, machine: u16, segment: u32, loader: &str) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..4].copy_from_slice(&ELF_MAGIC);
        bytes[4] = class;
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&1u16.to_le_bytes());
        bytes[64..68].copy_from_slice(&segment.to_le_bytes());
        bytes[72..80].copy_from_slice(&120u64.to_le_bytes());
        bytes[96..104].copy_from_slice(&(loader.len() as u64 + 1).to_le_bytes());
        bytes.extend_from_slice(loader.as_bytes());
        bytes.push(0);
        bytes
    }

    fn judge(content: &[u8]) -> Result<(), Unrecordable> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, content).unwrap();
        check(path.as_os_str())
    }

    #[test]
    fn ordinary_programs_pass() {
        assert_eq!(
            judge(&elf(2, MACHINE_X86_64, PT_INTERP, "/lib64/ld-linux-x86-64.so.2")),
            Ok(())
        );
        assert_eq!(check(OsStr::new("sh")), Ok(()));
        assert_eq!(judge(b"#! /bin/sh -e\nexit 0\n"), Ok(()));
        assert_eq!(judge(b"no program at all"), Ok(()));
        assert_eq!(judge(b""), Ok(()));
        assert_eq!(check(OsStr::new("/no/such/program")), Ok(()));
        assert_eq!(check(OsStr::new("no-such-program")), Ok(()));
        assert_eq!(check(OsStr::new("/lib64/ld-linux-x86-64.so.2")), Ok(()));
    }

    #[test]
    fn what_the_loader_cannot_reach_is_refused() {
        assert!(matches!(
            judge(&elf(2, MACHINE_X86_64, 1, "")),
            Err(Unrecordable::Static { .. })
        ));
        assert!(matches!(
            judge(&elf(1, 3, PT_INTERP, "/lib/ld-linux.so.2")),
            Err(Unrecordable::ThirtyTwoBit { .. })
        ));
        assert!(matches!(
            judge(&elf(2, 183, PT_INTERP, "")),
            Err(Unrecordable::OtherMachine { machine: 183, .. })
        ));
        let go = elf(
            2,
            MACHINE_X86_64,
            PT_NOTE,
            "\u{4}\0\0\0\u{53}\0\0\0\u{4}\0\0\0Go\0\0build id",
        );
        assert!(matches!(judge(&go), Err(Unrecordable::StaticGo { .. })));
        let musl = judge(&elf(2, MACHINE_X86_64, PT_INTERP, "/lib/ld-musl-x86_64.so.1"));
        assert!(matches!(musl, Err(Unrecordable::OtherLibc { .. })));
    }

    #[test]
    fn sanitizers_that_leave_no_room_for_views_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("program.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let built = |flags: &[&str]| {
            let program = folder.path().join("program");
            let mut compiler = std::process::Command::new("gcc");
            compiler.args(flags).arg(&source);
            assert!(compiler.arg("-o").arg(&program).status().unwrap().success());
            check(program.as_os_str())
        };
        for flags in [
            &["-fsanitize=address"][..],
            &["-fsanitize=address", "-static-libasan"],
            &["-fsanitize=undefined"],
            &["-fsanitize=leak"],
        ] {
            assert_eq!(built(flags), Ok(()), "{flags:?}");
        }
        for flags in [
            &["-fsanitize=thread"][..],
            &["-fsanitize=thread", "-static-libtsan"],
            &["-fsanitize=thread", "-static-libtsan", "-s"],
        ] {
            let refused = matches!(
                built(flags),
                Err(Unrecordable::Sanitizer {
                    sanitizer: "ThreadSanitizer",
                    ..
                })
            );
            assert!(refused, "{flags:?}");
        }
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let interpreter = folder.path().join("static-interpreter");
        std::fs::write(&interpreter, elf(2, MACHINE_X86_64, 1, "")).unwrap();
        let script = format!("#!{} -x\n", interpreter.display());
        assert_eq!(
            judge(script.as_bytes()),
            Err(Unrecordable::Static { path: interpreter })
        );
        let itself = folder.path().join("itself");
        std::fs::write(&itself, format!("#!{}\n", itself.display())).unwrap();
        assert_eq!(check(itself.as_os_str()), Ok(()));
    }

    #[test]
    fn damaged_headers_do_not_panic() {
        let whole = elf(2, MACHINE_X86_64, PT_INTERP, "/lib64/ld-linux-x86-64.so.2");
        for len in 0..whole.len() {
            let _ = judge(&whole[..len]);
        }
        let mut far = whole.clone();
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(judge(&far), Ok(()));
    }

    #[test]
    fn setuid_for_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, elf(2, MACHINE_X86_64, PT_INTERP, "/lib64/ld-linux-x86-64.so.2")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        // Setuid to the user who runs it gains nothing.
        assert_eq!(check(path.as_os_str()), Ok(()));
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
            assert!(matches!(
                check(path.as_os_str()),
                Err(Unrecordable::Privileged { how: "setuid", .. })
            ));
        }
    }
}
