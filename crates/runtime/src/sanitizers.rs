//! Sanitizers' run-time libraries.
//!
//! Some must be loaded before all others. AddressSanitizer in a library of its own (gcc's default, clang's `-shared-libasan`) ends the program unless it is the first library in the loader's
//! list, and LeakSanitizer's interceptors do not work behind ours. Without us they are first, because the executable needs them
//! first. A preloaded library comes before those that an executable needs, so the program is executed once more, before any of its own code has run, with
//! the sanitizer preloaded before us. Which file that is, the loader has just found out itself. The program does not see the change in its environment,
//! and the programs that it executes do not inherit it: they may have no sanitizer.
//!
//! Others leave no room for the views of PM. The recorder refuses such a program; a child of the recorded program that has one runs unrecorded, as without us,
//! and the trace is incomplete if it maps a file that would be PM. What we interpose calls the sanitizer's own function there ([`Natively`]): it has
//! to see which memory is mapped anew, and when the process ends.

use crate::real::{Next, Resolve};
use crate::{code_map, log, sys, variable};
use crashproof_code::modules::Loader;
use crashproof_wire::SANITIZERS_WITHOUT_ROOM;
use crashproof_wire::record::INCOMPLETE_UNSUPPORTED;
use libc::{c_char, c_int, c_void, off_t, size_t};
use std::ffi::CStr;
use std::sync::OnceLock;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// In the environment of a program that was executed once more.
const MARK: &CStr = c"CRASHPROOF_LOAD_ORDER=1";
const LIBRARIES: [&[u8]; 4] = [b"libasan.so", b"libclang_rt.asan", b"liblsan.so", b"libclang_rt.lsan"];
const PATH: usize = 4096;

type Strings = *const *const c_char;

/// Puts a sanitizer that comes right behind us before us. Returns if there is none, or if it cannot be done: the sanitizer then says so itself.
///
/// # Safety
/// The blocks that the loader passes to a constructor.
pub(crate) unsafe fn come_first(arguments: Strings, environment: Strings) {
    // SAFETY: the caller's promise.
    unsafe {
        if restore(environment) {
            return;
        }
        let mut order = Order {
            libraries: 0,
            sanitizer: None,
        };
        libc::dl_iterate_phdr(Some(look), (&raw mut order).cast());
        if let Some(sanitizer) = order.sanitizer {
            execute_again(sanitizer, arguments, environment);
        }
    }
}

/// The name of the sanitizer that this program is built with, if that leaves no room for views.
static WITHOUT_ROOM: OnceLock<&'static str> = OnceLock::new();

/// Whether the program is built with a sanitizer that leaves no room for views: in a library, or in the executable, which then exports its functions.
pub(crate) fn leaves_no_room() -> bool {
    let Some(loader) = Loader::find() else { return false };
    let modules = loader.modules(&[]);
    // SAFETY: reads the auxiliary vector.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    let found = SANITIZERS_WITHOUT_ROOM.iter().find(|sanitizer| {
        modules.iter().any(|module| {
            let of_executable = module.range.contains(&entry);
            // SAFETY: the loader has the module mapped.
            let exports = |name: &str| unsafe { module.exported_function(name.as_bytes()) }.is_some();
            let replaces = || !sanitizer.replaces.is_empty() && sanitizer.replaces.iter().all(|name| exports(name));
            module.has_name_in(sanitizer.libraries) || of_executable && (exports(sanitizer.start) || replaces())
        })
    });
    found.is_some_and(|sanitizer| WITHOUT_ROOM.set(sanitizer.name).is_ok())
}

/// The program, which is not recorded, maps a file that would be PM.
pub(crate) fn mapped(file: &[u8]) {
    use std::io::Write;
    let Some(sanitizer) = WITHOUT_ROOM.get() else { return };
    let mut path = [0u8; PATH];
    let mut text = Vec::new();
    let _ = write!(
        text,
        "{} is built with {}, which allows no memory where crashproof maps PM: it ran unrecorded, and mapped {} for writing; build it without",
        String::from_utf8_lossy(code_map::executable(&mut path)),
        sanitizer,
        String::from_utf8_lossy(file),
    );
    log::incomplete(INCOMPLETE_UNSUPPORTED, &text);
}

/// The functions behind ours, for a process that is not recorded.
pub(crate) struct Natively {
    pub mmap: Next<unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void>,
    pub munmap: Next<unsafe extern "C" fn(*mut c_void, size_t) -> c_int>,
    pub mprotect: Next<unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int>,
    pub unlink: Next<unsafe extern "C" fn(*const c_char) -> c_int>,
    pub exit: Next<unsafe extern "C" fn(c_int) -> !>,
}

// SAFETY: each with the type that libc's headers declare.
static NATIVELY: Natively = unsafe {
    Natively {
        mmap: Next::new(c"mmap"),
        munmap: Next::new(c"munmap"),
        mprotect: Next::new(c"mprotect"),
        unlink: Next::new(c"unlink"),
        exit: Next::new(c"_exit"),
    }
};

/// Looks them up.
pub(crate) fn resolve() {
    let Natively {
        mmap,
        munmap,
        mprotect,
        unlink,
        exit,
    } = &NATIVELY;
    let all: [&dyn Resolve; 5] = [mmap, munmap, mprotect, unlink, exit];
    all.iter().for_each(|next| next.resolve());
}

/// `None`: the process is recorded, or is a recovery.
pub(crate) fn natively() -> Option<&'static Natively> {
    log::unrecorded().map(|_| &NATIVELY)
}

struct Order {
    /// Seen so far, without the executable and the kernel's own.
    libraries: usize,
    /// The second library, if we are the first and it is a sanitizer.
    sanitizer: Option<&'static [u8]>,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: size_t, order: *mut c_void) -> c_int {
    // SAFETY: the loader's description of a module, and the caller's structure. A library loaded at the start stays, with its name.
    unsafe {
        let (info, order) = (&*info, &mut *order.cast::<Order>());
        let path = match info.dlpi_name.is_null() {
            true => &[][..],
            false => CStr::from_ptr(info.dlpi_name).to_bytes(),
        };
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if name.is_empty() || name.starts_with(b"linux-vdso") {
            return 0;
        }
        order.libraries += 1;
        if order.libraries == 1 {
            return !is_this(info) as c_int;
        }
        if LIBRARIES.iter().any(|library| name.starts_with(library)) {
            // `LD_PRELOAD` is split at these; the name alone is searched for as the executable's need was.
            let splits = path.iter().any(|byte| matches!(byte, b' ' | b':'));
            order.sanitizer = Some(if splits { name } else { path });
        }
        1
    }
}

unsafe fn is_this(info: &libc::dl_phdr_info) -> bool {
    let here = is_this as *const () as u64;
    // SAFETY: the caller's description of a module.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
    headers.iter().any(|header| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && (start..start + header.p_memsz).contains(&here)
    })
}

/// Takes what was added out of the environment again. True: this is the program's second start.
unsafe fn restore(environment: Strings) -> bool {
    // SAFETY: the block that the kernel laid on the stack: a NULL-terminated array of strings, all of them writable.
    unsafe {
        let mut read = environment.cast_mut();
        let mut write = read;
        while !(*read).is_null() {
            if CStr::from_ptr(*read) != MARK {
                *write = *read;
                write = write.add(1);
            }
            read = read.add(1);
        }
        *write = std::ptr::null();
        if read == write {
            return false;
        }
        let mut entry = environment.cast_mut();
        while !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            let added = text.iter().position(|&byte| byte == b':');
            if let (true, Some(colon)) = (text.starts_with(PRELOAD), added) {
                // The name of the variable, once more, right before the rest of its value.
                let start = (*entry).cast_mut().cast::<u8>().add(colon + 1 - PRELOAD.len());
                std::ptr::copy_nonoverlapping(PRELOAD.as_ptr(), start, PRELOAD.len());
                *entry = start.cast();
            }
            entry = entry.add(1);
        }
        true
    }
}

unsafe fn execute_again(sanitizer: &[u8], arguments: Strings, environment: Strings) {
    let Some(preloaded) = variable(environment, &PRELOAD[..PRELOAD.len() - 1]) else {
        return;
    };
    let mut path = [0u8; PATH];
    let Some(program) = program(&mut path) else { return };
    // SAFETY: the mapping has room for the pointers and, behind them, for the one string that is new.
    unsafe {
        let count = (0..).take_while(|&i| !(*environment.add(i)).is_null()).count();
        let pointers = (count + 2) * size_of::<usize>();
        let parts = [PRELOAD, sanitizer, b":", preloaded, b"\0"];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let Some(memory) = sys::map_anonymous((pointers + length) as u64) else {
            return;
        };
        let mut text = memory.add(pointers);
        for part in parts {
            std::ptr::copy_nonoverlapping(part.as_ptr(), text, part.len());
            text = text.add(part.len());
        }
        let array = memory.cast::<*const c_char>();
        array.write(MARK.as_ptr());
        for i in 0..count {
            let entry = *environment.add(i);
            let is_preload = CStr::from_ptr(entry).to_bytes().starts_with(PRELOAD);
            array.add(i + 1).write(match is_preload {
                true => memory.add(pointers).cast(),
                false => entry,
            });
        }
        // Returns only if it fails.
        let _ = sys::syscall(
            libc::SYS_execve,
            [program as u64, arguments as u64, array as u64, 0, 0, 0],
        );
    }
}

/// A name of the running program, the one by which it was executed if that still stands for it. `None` if it was started through the loader, which
/// keeps its arguments to itself.
fn program(path: &mut [u8; PATH]) -> Option<*const c_char> {
    const ITSELF: &CStr = c"/proc/self/exe";
    // SAFETY: NUL-terminated strings, and a buffer that the kernel does not fill to its last byte.
    unsafe {
        let arguments = [
            ITSELF.as_ptr() as u64,
            path.as_mut_ptr() as u64,
            PATH as u64 - 1,
            0,
            0,
            0,
        ];
        let length = sys::syscall(libc::SYS_readlink, arguments).ok()? as usize;
        let name = path[..length].rsplit(|&byte| byte == b'/').next()?;
        if name.starts_with(b"ld-linux") || name.starts_with(b"ld.so") {
            return None;
        }
        let itself = file_at(ITSELF.as_ptr())?;
        let executed = libc::getauxval(libc::AT_EXECFN) as *const c_char;
        [executed, path.as_ptr().cast(), ITSELF.as_ptr()]
            .into_iter()
            .find(|&name| !name.is_null() && file_at(name) == Some(itself))
    }
}

/// Device and inode.
unsafe fn file_at(path: *const c_char) -> Option<(u64, u64)> {
    // SAFETY: all-zero is a valid stat; the kernel fills it. The path is NUL-terminated.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        sys::syscall(libc::SYS_stat, [path as u64, &raw mut status as u64, 0, 0, 0, 0]).ok()?;
        Some((status.st_dev, status.st_ino))
    }
}
