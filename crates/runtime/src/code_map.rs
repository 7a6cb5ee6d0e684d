//! The code of this process as the handlers need it: which modules are loaded, where their flushes and fences are, and
//! whose call stack this is. Kept current by a breakpoint on the function that the loader calls when its list changes.

use crate::spin::{Held, Spin};
use crate::{calls, hooks, log, raw, sys};
use crashproof_code::modules::{Loader, LoaderState, Module};
use crashproof_code::sites::SiteTable;
use crashproof_code::sweep::{Sweep, SweepOptions, sweep_module};
use crashproof_code::unwind::Unwinder;
use crashproof_code::{patch, sweep};
use crashproof_wire::record::*;
use std::cell::UnsafeCell;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

pub(crate) use crashproof_code::sweep::Site;
pub(crate) use crashproof_code::unwind::{Cache, Evidence, Registers, stack_hash};

static SITES: SiteTable = SiteTable::new();
static UNWINDER: AtomicPtr<Unwinder> = AtomicPtr::new(std::ptr::null_mut());
static ADDRESS_SPACE: AtomicU32 = AtomicU32::new(NONE);
static LOADER_BREAKPOINT: AtomicUsize = AtomicUsize::new(0);
/// The runtime's own module.
static OWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// A forked child shares its parent's address space until either loads something.
static SHARED: AtomicBool = AtomicBool::new(false);

struct Known {
    lock: Spin,
    modules: UnsafeCell<Vec<Arc<Module>>>,
}

// SAFETY: `modules` is only touched with `lock` held.
unsafe impl Sync for Known {}

static KNOWN: Known = Known {
    lock: Spin::new(),
    modules: UnsafeCell::new(Vec::new()),
};

pub(crate) fn address_space() -> u32 {
    ADDRESS_SPACE.load(Ordering::Relaxed)
}

fn new_address_space() -> u32 {
    let id = log::session().map_or(NONE, |s| s.next_address_space.fetch_add(1, Ordering::Relaxed));
    ADDRESS_SPACE.store(id, Ordering::Relaxed);
    id
}

/// Starts a new address space; its modules are announced by [`modules_changed`].
pub(crate) fn init() -> u32 {
    if let Some(loader) = Loader::find() {
        let here = init as *const () as usize;
        if let Some(own) = loader.modules(&[]).iter().find(|m| m.range.contains(&here)) {
            OWN[0].store(own.range.start, Ordering::Relaxed);
            OWN[1].store(own.range.end, Ordering::Relaxed);
        }
        watch_loader(loader.r_brk());
    }
    new_address_space()
}

/// The function is a single `ret`, whose place the breakpoint takes.
fn watch_loader(r_brk: usize) {
    const RET: u8 = 0xc3;
    // SAFETY: the loader's own function.
    if r_brk == 0 || unsafe { *(r_brk as *const u8) } != RET {
        log::incomplete(
            INCOMPLETE_UNSUPPORTED,
            b"this dynamic loader cannot be watched: libraries loaded later are not seen",
        );
        return;
    }
    let mut original = [0u8; 15];
    original[0] = RET;
    let site = Site {
        address: r_brk,
        kind: sweep::SiteKind::Sfence,
        length: 1,
        original,
        copy: 0,
    };
    LOADER_BREAKPOINT.store(r_brk, Ordering::Release);
    // SAFETY: a one-byte instruction; the handler for it is installed before the loader can call it again.
    let _ = unsafe { patch::patch(&[site]) };
}

pub(crate) fn is_loader_breakpoint(address: u64) -> bool {
    LOADER_BREAKPOINT.load(Ordering::Relaxed) as u64 == address
}

pub(crate) fn is_runtime(address: u64) -> bool {
    (OWN[0].load(Ordering::Relaxed) as u64..OWN[1].load(Ordering::Relaxed) as u64).contains(&address)
}

pub(crate) fn site(address: u64) -> Option<Site> {
    SITES.find(address as usize).cloned()
}

fn unwinder() -> Option<&'static Unwinder> {
    // SAFETY: an unwinder, once published, is never freed.
    unsafe { UNWINDER.load(Ordering::Acquire).as_ref() }
}

/// Whether the address is in a module's code.
pub(crate) fn is_code(address: u64) -> bool {
    unwinder().is_some_and(|unwinder| unwinder.is_code(address))
}

/// The call stack that these registers are at the top of, innermost first. [rsp, stack_limit) is readable.
pub(crate) fn unwind(cache: &mut Cache, registers: &Registers, stack_limit: u64, out: &mut [u64]) -> usize {
    match unwinder() {
        Some(unwinder) => unwinder.unwind(cache, registers, stack_limit, out),
        None => {
            out[0] = registers.rip();
            1
        }
    }
}

/// As [`unwind`], and notes by what the stack can be known again.
pub(crate) fn unwind_noting(
    cache: &mut Cache,
    registers: &Registers,
    stack_limit: u64,
    out: &mut [u64],
    evidence: &mut Evidence,
) -> usize {
    match unwinder() {
        Some(unwinder) => unwinder.unwind_noting(cache, registers, stack_limit, out, evidence),
        None => unwind(cache, registers, stack_limit, out),
    }
}

/// Where the function ends that begins at the address; 0 if that is not known.
pub(crate) fn function_end(address: usize) -> usize {
    let function = unwinder().and_then(|unwinder| unwinder.function_at(address as u64));
    function.filter(|f| f.start == address).map_or(0, |f| f.end)
}

/// Another number whenever a call stack may have another name: an unwinder is never freed, so its address is its own.
pub(crate) fn generation() -> u64 {
    UNWINDER.load(Ordering::Acquire) as u64 ^ (address_space() as u64) << 48
}

fn options() -> SweepOptions {
    let own = OWN[0].load(Ordering::Relaxed)..OWN[1].load(Ordering::Relaxed);
    let wanted = log::session().map(|s| &s.options);
    SweepOptions {
        // Registrations count also where the other requests are not answered.
        client_requests: wanted.is_some(),
        locked: wanted.is_some_and(|o| o.locked_rmw != 0),
        system_calls: raw::WANTED,
        own,
    }
}

/// Reads the loader's list again: new modules are announced and get their breakpoints before any of their code runs.
pub(crate) fn modules_changed() {
    let Some(loader) = Loader::find() else { return };
    if !matches!(loader.state(), LoaderState::Consistent) {
        calls::show();
        return;
    }
    let _held = KNOWN.lock.lock();
    // SAFETY: the lock is held.
    let known = unsafe { &mut *KNOWN.modules.get() };
    let modules = loader.modules(known);
    let has = |list: &[Arc<Module>], module: &Arc<Module>| list.iter().any(|m| Arc::ptr_eq(m, module));
    let gone: Vec<_> = known.iter().filter(|m| !has(&modules, m)).cloned().collect();
    for module in &gone {
        // SAFETY: the lock makes this the only writer.
        unsafe { SITES.remove(module.range.clone()) };
    }
    // Addresses may mean something else now than they did to those who were told of them.
    let fresh = !gone.is_empty() || SHARED.swap(false, Ordering::Relaxed);
    if fresh {
        new_address_space();
    }
    let mut options = options();
    let locked_wanted = options.locked;
    for (index, module) in modules.iter().enumerate() {
        let new = !has(known, module);
        if new || fresh {
            // libc runs with every signal blocked at times; see `locks`.
            options.locked = locked_wanted && !module.is_language_runtime();
            // SAFETY: the loader has the module mapped.
            let mut found = unsafe { sweep_module(module, &options) };
            announce(module, found.locked);
            if new {
                if index == 0 {
                    report_doubtful_calls(module, &found);
                }
                set_breakpoints(Some(module), &mut found);
                hooks::install(module);
            }
        }
    }
    // SAFETY: the loader has them mapped; frames of a module are unwound only while its code runs.
    let unwinder = Box::into_raw(Box::new(unsafe { Unwinder::new(&modules, &[]) }));
    UNWINDER.store(unwinder, Ordering::Release);
    calls::settle(&modules, known);
    *known = modules;
}

/// Each module there is now. Signals are blocked.
pub(crate) fn for_each_module(mut f: impl FnMut(&Module)) {
    let _held = KNOWN.lock.lock();
    // SAFETY: the lock is held.
    let known = unsafe { &*KNOWN.modules.get() };
    known.iter().for_each(|module| f(module));
}

/// The function of this name in the only module of the program's that exports one; unlike `dlsym` this leaves `dlerror` alone.
pub(crate) fn exported_function(name: &[u8]) -> Option<usize> {
    let (mut found, mut several) = (None, false);
    for_each_module(|module| {
        // SAFETY: the loader has the module mapped.
        let function = unsafe { module.exported_function(name) }.filter(|&address| !is_runtime(address as u64));
        several |= function.is_some() && found.is_some();
        found = found.or(function);
    });
    found.filter(|_| !several)
}

fn announce(module: &Module, locked: u32) {
    let path = module
        .path
        .as_ref()
        .map_or(&b"[vdso]"[..], |p| p.as_os_str().as_bytes());
    let (start, end) = (module.range.start as u64, module.range.end as u64);
    log::module(
        address_space(),
        module.bias as u64,
        start,
        end,
        locked,
        &module.build_id,
        path,
    );
}

/// The program itself has code of which nothing is known, and system calls in it: a stripped Go program. In a library what
/// reads as one is rather a table of constants.
fn report_doubtful_calls(module: &Module, found: &Sweep) {
    use std::io::Write;
    let Some(first) = found.doubtful_calls.first() else {
        return;
    };
    let mut text = Vec::new();
    let _ = write!(
        text,
        "the program makes system calls of its own in code without unwind tables or symbols, the first at address {:#x}: \
         files that it maps with them are not seen; do not strip it (go build without -ldflags=-s)",
        first.wrapping_sub(module.bias)
    );
    log::incomplete(INCOMPLETE_UNVERIFIED_CODE, &text);
}

fn set_breakpoints(module: Option<&Module>, found: &mut Sweep) {
    use std::io::Write;
    let is_call = |site: &Site| site.kind == sweep::SiteKind::SystemCall;
    let calls: Vec<_> = found.sites.iter_mut().filter(|site| is_call(site)).collect();
    if !calls.is_empty() && !raw::make_copies(calls.into_iter()) {
        log::incomplete(
            INCOMPLETE_LIMIT,
            b"no memory for the program's own system calls: files that it maps with them are not seen",
        );
        found.sites.retain(|site| !is_call(site));
    }
    // SAFETY: the caller holds the lock, which makes this the only writer; the table is filled before a breakpoint stands.
    unsafe { SITES.insert(&found.sites) };
    // SAFETY: verified instruction starts, and the handler is installed.
    if let Err(error) = unsafe { patch::patch(&found.sites) } {
        log::incomplete(INCOMPLETE_UNVERIFIED_CODE, error.to_string().as_bytes());
    }
    if let Some(first) = found.unverified.first() {
        let path = module.and_then(|m| m.path.as_ref()).map(|p| p.as_os_str().as_bytes());
        // As disassemblers count addresses in the file.
        let address = first.wrapping_sub(module.map_or(0, |m| m.bias));
        let mut text = Vec::new();
        let _ = write!(
            text,
            "{}: {} places may hold a flush or fence that could not be told from data, the first at address {address:#x}",
            String::from_utf8_lossy(path.unwrap_or(b"code made at run time")),
            found.unverified.len(),
        );
        log::incomplete(INCOMPLETE_UNVERIFIED_CODE, &text);
    }
}

/// Code that the program mapped or made executable itself.
pub(crate) fn sweep_range(start: u64, end: u64) {
    let _held = KNOWN.lock.lock();
    // SAFETY: just mapped executable by the program.
    let mut found = unsafe { sweep::sweep_range(start as usize..end as usize, &options()) };
    set_breakpoints(None, &mut found);
}

/// Keeps everyone from changing what is known, for a fork.
pub(crate) fn lock() -> Held<'static> {
    KNOWN.lock.lock()
}

pub(crate) fn after_fork() {
    KNOWN.lock.reset();
}

/// In a forked child: the same code, until one of the two loads or unloads something.
pub(crate) fn share() {
    SHARED.store(true, Ordering::Relaxed);
}

/// The path of the program.
pub(crate) fn executable(buffer: &mut [u8; 4096]) -> &[u8] {
    let link = c"/proc/self/exe".as_ptr();
    // SAFETY: NUL-terminated path and a buffer of that size.
    let read = unsafe {
        sys::syscall(
            libc::SYS_readlink,
            [link as u64, buffer.as_mut_ptr() as u64, 4096, 0, 0, 0],
        )
    };
    &buffer[..read.unwrap_or(0) as usize]
}
