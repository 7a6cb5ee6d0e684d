//! Calls of PMDK's functions by the program, which bind to the functions here.
//!
//! - Functions that begin or abort a transaction, and some others, are logged with their six register arguments. Their trampoline saves the
//!   argument registers, has the call logged, and jumps on to the real function, so that stack arguments, variable arguments and results are
//!   untouched, and a jump out of the function (`longjmp`) does no harm.
//! - The other functions of transactions are logged when they are called and when they have returned, with their result and the object that
//!   they gave. They take register arguments only. An abort may jump over their frames.
//! - Functions that persist leave a frame on the stack ([`stands_for`]). In stock builds of PMDK most of them end in a jump to
//!   a function without a name, and a flush or fence in it would not say what the program has called. How the program got
//!   the address (by its PLT, by a pointer, through a wrapper that ends in a jump) does not matter then.
//! - Functions that allocate or reserve outside transactions are logged when they have returned, with the object that they gave.
//!
//! A program that is not linked to the library does not find its functions: a weak reference to one is null, and so is what `dlsym` gives for its name.
//! It must not find ours either. So they are taken out of our symbol table while the library is not loaded ([`settle`]). The loader has bound the
//! references of what it loads before we know; weak ones that found ours are reset.
//!
//! `crashproof-stacks` has the names of the functions that persist and do nothing else; a test compares them.

use crate::{code_map, log, real, sys};
use crashproof_code::modules::{Loader, Module};
use crashproof_code::patch;
use std::arch::naked_asm;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

macro_rules! calls {
    ($($index:literal $name:ident)*) => {
        const NAMES: &[&str] = &[$(concat!(stringify!($name), "\0")),*];

        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                naked_asm!("mov r11d, {index}", "jmp {call}", index = const $index, call = sym call)
            }
        )*
    };
}

calls! {
    0 pmemobj_tx_begin
    1 pmemobj_tx_lock
    2 pmemobj_tx_xlock
    3 pmemobj_tx_abort
    4 pmemobj_publish
    5 pmemobj_cancel
}

static REAL: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// A function that stays on the stack while the real one runs.
struct Framed {
    name: &'static str,
    /// Where the real function returns to.
    returns: &'static u8,
}

static FRAMED_REAL: [AtomicUsize; FRAMED.len()] = [const { AtomicUsize::new(0) }; FRAMED.len()];
/// Where the real functions end; 0 if that is not known.
static FRAMED_END: [AtomicUsize; FRAMED.len()] = [const { AtomicUsize::new(0) }; FRAMED.len()];

macro_rules! framed {
    (
        persist { $($index:literal $name:ident $label:ident)* }
        objects { $($object_index:literal $object_name:ident $object_label:ident)* }
        transactions { $($tx_index:literal $tx_name:ident $tx_label:ident)* }
    ) => {
        unsafe extern "C" {
            $(static $label: u8;)*
            $(static $object_label: u8;)*
            $(static $tx_label: u8;)*
        }

        // SAFETY: labels in the text of the functions below; only their addresses are used.
        const FRAMED: &[Framed] = unsafe { &[
            $(Framed { name: concat!(stringify!($name), "\0"), returns: &$label },)*
            $(Framed { name: concat!(stringify!($object_name), "\0"), returns: &$object_label },)*
            $(Framed { name: concat!(stringify!($tx_name), "\0"), returns: &$tx_label },)*
        ] };

        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                naked_asm!(
                    ".cfi_startproc",
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 8",
                    "mov rax, [rip + {real} + 8 * {index}]",
                    "test rax, rax",
                    "jnz 2f",
                    "mov r11d, {index}",
                    "call {resolve}",
                    "2:",
                    "call rax",
                    concat!(".globl ", stringify!($label)),
                    concat!(".hidden ", stringify!($label)),
                    concat!(stringify!($label), ":"),
                    "add rsp, 8",
                    ".cfi_adjust_cfa_offset -8",
                    "ret",
                    ".cfi_endproc",
                    real = sym FRAMED_REAL,
                    index = const $index,
                    resolve = sym resolve,
                )
            }
        )*

        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $object_name() {
                naked_asm!(
                    ".cfi_startproc",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    // A seventh argument, if there is one, is on the caller's stack.
                    "push [rsp + 56]",
                    ".cfi_adjust_cfa_offset 56",
                    "mov rax, [rip + {real} + 8 * {index}]",
                    "test rax, rax",
                    "jnz 2f",
                    "mov r11d, {index}",
                    "call {resolve}",
                    "2:",
                    "call rax",
                    concat!(".globl ", stringify!($object_label)),
                    concat!(".hidden ", stringify!($object_label)),
                    concat!(stringify!($object_label), ":"),
                    "add rsp, 8",
                    // The result takes two registers.
                    "push rax",
                    "push rdx",
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 16",
                    "mov edi, {index}",
                    "lea rsi, [rsp + 24]",
                    "mov rcx, rdx",
                    "mov rdx, rax",
                    "call {returned}",
                    "add rsp, 8",
                    "pop rdx",
                    "pop rax",
                    "add rsp, 48",
                    ".cfi_adjust_cfa_offset -72",
                    "ret",
                    ".cfi_endproc",
                    real = sym FRAMED_REAL,
                    index = const $object_index,
                    resolve = sym resolve,
                    returned = sym returned,
                )
            }
        )*

        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $tx_name() {
                naked_asm!(
                    ".cfi_startproc",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "sub rsp, 24",
                    ".cfi_adjust_cfa_offset 72",
                    "mov edi, {index}",
                    "lea rsi, [rsp + 24]",
                    "call {called}",
                    "mov r9, [rsp + 24]",
                    "mov r8, [rsp + 32]",
                    "mov rcx, [rsp + 40]",
                    "mov rdx, [rsp + 48]",
                    "mov rsi, [rsp + 56]",
                    "mov rdi, [rsp + 64]",
                    "call rax",
                    concat!(".globl ", stringify!($tx_label)),
                    concat!(".hidden ", stringify!($tx_label)),
                    concat!(stringify!($tx_label), ":"),
                    // The result takes two registers.
                    "mov [rsp], rax",
                    "mov [rsp + 8], rdx",
                    "mov edi, {index}",
                    "lea rsi, [rsp + 24]",
                    "mov rcx, rdx",
                    "mov rdx, rax",
                    "call {returned}",
                    "mov rax, [rsp]",
                    "mov rdx, [rsp + 8]",
                    "add rsp, 72",
                    ".cfi_adjust_cfa_offset -72",
                    "ret",
                    ".cfi_endproc",
                    index = const $tx_index,
                    called = sym called,
                    returned = sym returned,
                )
            }
        )*
    };
}

framed! {
    persist {
        0 pmem_persist crashproof_in_pmem_persist
        1 pmem_flush crashproof_in_pmem_flush
        2 pmem_drain crashproof_in_pmem_drain
        3 pmemobj_persist crashproof_in_pmemobj_persist
        4 pmemobj_flush crashproof_in_pmemobj_flush
        5 pmemobj_drain crashproof_in_pmemobj_drain
        6 pmemobj_xpersist crashproof_in_pmemobj_xpersist
        7 pmemobj_xflush crashproof_in_pmemobj_xflush
    }
    objects {
        8 pmemobj_reserve crashproof_in_pmemobj_reserve
        9 pmemobj_xreserve crashproof_in_pmemobj_xreserve
        10 pmemobj_alloc crashproof_in_pmemobj_alloc
        11 pmemobj_xalloc crashproof_in_pmemobj_xalloc
        12 pmemobj_zalloc crashproof_in_pmemobj_zalloc
    }
    transactions {
        13 pmemobj_tx_alloc crashproof_in_pmemobj_tx_alloc
        14 pmemobj_tx_xalloc crashproof_in_pmemobj_tx_xalloc
        15 pmemobj_tx_zalloc crashproof_in_pmemobj_tx_zalloc
        16 pmemobj_tx_realloc crashproof_in_pmemobj_tx_realloc
        17 pmemobj_tx_zrealloc crashproof_in_pmemobj_tx_zrealloc
        18 pmemobj_tx_strdup crashproof_in_pmemobj_tx_strdup
        19 pmemobj_tx_xstrdup crashproof_in_pmemobj_tx_xstrdup
        20 pmemobj_tx_wcsdup crashproof_in_pmemobj_tx_wcsdup
        21 pmemobj_tx_xwcsdup crashproof_in_pmemobj_tx_xwcsdup
        22 pmemobj_tx_free crashproof_in_pmemobj_tx_free
        23 pmemobj_tx_xfree crashproof_in_pmemobj_tx_xfree
        24 pmemobj_tx_add_range crashproof_in_pmemobj_tx_add_range
        25 pmemobj_tx_add_range_direct crashproof_in_pmemobj_tx_add_range_direct
        26 pmemobj_tx_xadd_range crashproof_in_pmemobj_tx_xadd_range
        27 pmemobj_tx_xadd_range_direct crashproof_in_pmemobj_tx_xadd_range_direct
        28 pmemobj_tx_publish crashproof_in_pmemobj_tx_publish
        29 pmemobj_tx_xpublish crashproof_in_pmemobj_tx_xpublish
        30 pmemobj_tx_commit crashproof_in_pmemobj_tx_commit
        31 pmemobj_tx_process crashproof_in_pmemobj_tx_process
        32 pmemobj_tx_end crashproof_in_pmemobj_tx_end
    }
}

/// The first of those that are logged when they are called, too.
const FIRST_OF_TRANSACTIONS: usize = 13;

/// What a function of a transaction gives.
fn gives_object(name: &str) -> bool {
    name.ends_with("alloc") || name.ends_with("dup")
}

/// Looks a framed function up, by its index in `r11`, and keeps the argument registers.
#[unsafe(naked)]
extern "C" fn resolve() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 56",
        "mov edi, r11d",
        "call {lookup}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "ret",
        ".cfi_endproc",
        lookup = sym lookup_framed,
    )
}

extern "C" fn lookup_framed(index: usize) -> usize {
    let found = lookup(FRAMED[index].name);
    let end = sys::without_signals(|| code_map::function_end(found));
    FRAMED_END[index].store(end, Ordering::Relaxed);
    FRAMED_REAL[index].store(found, Ordering::Relaxed);
    found
}

/// What the frame of an interposed function stands for: the real function, and where it ends.
pub(crate) fn stands_for(return_address: u64) -> Option<std::ops::Range<u64>> {
    let index = FRAMED
        .iter()
        .position(|framed| framed.returns as *const u8 as u64 == return_address)?;
    let [start, end] = [&FRAMED_REAL, &FRAMED_END].map(|table| table[index].load(Ordering::Relaxed) as u64);
    (start != 0).then_some(start..end)
}

/// Logs the call of a function that stays on the stack, and returns the real one.
unsafe extern "C" fn called(index: usize, saved: *const [u64; 6]) -> usize {
    // SAFETY: the trampoline pushed six registers there.
    let mut arguments = unsafe { *saved };
    arguments.reverse();
    let name = FRAMED[index].name.trim_end_matches('\0');
    sys::without_signals(|| {
        if log::session().is_some() {
            log::call(log::stack_here(), name.as_bytes(), &arguments);
        }
    });
    match FRAMED_REAL[index].load(Ordering::Relaxed) {
        0 => lookup_framed(index),
        found => found,
    }
}

/// Logs that a function has returned, with the object that it gave. `saved` holds the argument registers, last first.
unsafe extern "C" fn returned(index: usize, saved: *const [u64; 6], result: u64, second: u64) {
    // SAFETY: the trampoline pushed six registers there.
    let mut arguments = unsafe { *saved };
    arguments.reverse();
    let name = FRAMED[index].name.trim_end_matches('\0');
    let of_transaction = index >= FIRST_OF_TRANSACTIONS;
    let is_reserved = name.ends_with("reserve");
    // A PMEMoid: the pool's id and the offset; 0 if there was no memory.
    let [pool, offset] = if is_reserved || of_transaction && gives_object(name) {
        [result, second]
    } else if of_transaction {
        [0; 2]
    } else {
        match arguments[1] as *const [u64; 2] {
            // SAFETY: the library has stored the object's PMEMoid there, if it reports success.
            oid if !oid.is_null() && result as u32 == 0 => unsafe { oid.read_unaligned() },
            _ => [0; 2],
        }
    };
    if offset == 0 && !of_transaction || log::session().is_none() {
        return;
    }
    // What is only reserved, as all is until a transaction commits, need not have a header that says how large it is.
    let usable = match is_reserved || of_transaction {
        true => 0,
        false => usable_size(pool, offset),
    };
    sys::without_signals(|| {
        let object = (offset != 0).then_some([pool, offset, usable]);
        log::returned(log::stack_here(), name.as_bytes(), &arguments, result, object);
    });
}

/// libpmemobj's function of this name; 0: not looked up yet, 1: there is none.
static USABLE_SIZE: AtomicUsize = AtomicUsize::new(0);
const NO_FUNCTION: usize = 1;

/// How much of an object the program may use; 0 if that is not known.
fn usable_size(pool: u64, offset: u64) -> u64 {
    let known = match USABLE_SIZE.load(Ordering::Relaxed) {
        0 => {
            let name = c"pmemobj_alloc_usable_size";
            let found = sys::without_signals(|| code_map::exported_function(name.to_bytes()));
            let found = found.unwrap_or(NO_FUNCTION);
            USABLE_SIZE.store(found, Ordering::Relaxed);
            found
        }
        known => known,
    };
    if known == NO_FUNCTION {
        return 0;
    }
    // SAFETY: the function's type; a PMEMoid is passed in two registers. The library has just given the object.
    unsafe { std::mem::transmute::<usize, extern "C" fn(u64, u64) -> usize>(known)(pool, offset) as u64 }
}

/// Common tail of the trampolines; `r11` is the function's index.
#[unsafe(naked)]
extern "C" fn call() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        ".cfi_adjust_cfa_offset 56",
        "mov edi, r11d",
        "lea rsi, [rsp + 8]",
        "call {log}",
        "mov r11, rax",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "jmp r11",
        ".cfi_endproc",
        log = sym log_call,
    )
}

/// Logs the call and returns the real function. `saved` holds the argument registers, last first.
unsafe extern "C" fn log_call(index: usize, saved: *const [u64; 6]) -> usize {
    let name = NAMES[index];
    // SAFETY: the trampoline pushed six registers there.
    let mut arguments = unsafe { *saved };
    arguments.reverse();
    sys::without_signals(|| {
        if log::session().is_some() {
            log::call(log::stack_here(), &name.as_bytes()[..name.len() - 1], &arguments);
        }
    });
    match REAL[index].load(Ordering::Relaxed) {
        0 => {
            let found = lookup(name);
            REAL[index].store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

/// The library's own function: behind us in the global scope, or in a library that was loaded with a scope of its own.
fn lookup(name: &str) -> usize {
    let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
        std::process::abort()
    };
    if let Some(found) = sys::without_signals(|| code_map::exported_function(name.to_bytes())) {
        return found;
    }
    let _errno = sys::KeptErrno::new();
    let next = real::next(name);
    if next != 0 {
        return next;
    }
    for library in [c"libpmemobj.so.1", c"libpmem.so.1"] {
        // SAFETY: NUL-terminated names; NOLOAD loads nothing.
        unsafe {
            let library = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            // Without a library dlsym would find our own function.
            if library.is_null() {
                continue;
            }
            let found = libc::dlsym(library, name.as_ptr()) as usize;
            if found != 0 {
                return found;
            }
        }
    }
    std::process::abort()
}

/// How the file of a library begins, and the names of its functions.
const LIBRARIES: [(&str, &[u8]); 2] = [("libpmem.so", b"pmem_"), ("libpmemobj.so", b"pmemobj_")];
/// Whether our functions of the library are in our symbol table.
static SHOWN: [AtomicBool; LIBRARIES.len()] = [const { AtomicBool::new(true) }; LIBRARIES.len()];
static EXPORTS: OnceLock<Exports> = OnceLock::new();

struct Exports {
    functions: Vec<Export>,
    /// The runtime's own segments, and how they are protected.
    mappings: Vec<(Range<usize>, i32)>,
}

/// One of the functions here, as the loader sees it.
struct Export {
    library: usize,
    name: &'static [u8],
    address: usize,
    /// Where its value lies in our symbol table.
    symbol: usize,
    value: usize,
}

impl Exports {
    fn read(modules: &[Arc<Module>]) -> Option<Exports> {
        let here = Exports::read as *const () as usize;
        let own = modules.iter().find(|module| module.range.contains(&here))?;
        // SAFETY: our own module.
        let exports = unsafe { own.exports() };
        let functions = exports.filter_map(|(name, symbol)| {
            let library = LIBRARIES.iter().position(|(_, prefix)| name.starts_with(prefix))?;
            // SAFETY: a word of our symbol table.
            let value = unsafe { *(symbol as *const usize) };
            Some(Export {
                library,
                name,
                address: own.bias.wrapping_add(value),
                symbol,
                value,
            })
        });
        let mut functions: Vec<_> = functions.collect();
        functions.sort_by_key(|function| function.symbol);
        let mappings = own.segments.iter().filter(|segment| segment.readable).map(|segment| {
            let execute = if segment.executable { libc::PROT_EXEC } else { 0 };
            (segment.range.clone(), libc::PROT_READ | execute)
        });
        Some(Exports {
            functions,
            mappings: mappings.collect(),
        })
    }

    /// Leaves the functions of these libraries in our symbol table, and no others.
    fn show(&self, wanted: [bool; LIBRARIES.len()]) {
        let changed: Vec<_> = SHOWN
            .iter()
            .zip(wanted)
            .map(|(shown, wanted)| shown.swap(wanted, Ordering::Relaxed) != wanted)
            .collect();
        let changed = self.functions.iter().filter(|function| changed[function.library]);
        let words = changed.map(|function| match wanted[function.library] {
            true => (function.symbol, function.value),
            false => (function.symbol, 0),
        });
        let words: Vec<_> = words.collect();
        // SAFETY: values in our symbol table, which only the loader reads, each as a whole. If it cannot be done, the program finds our functions.
        let _ = unsafe { patch::write_words(&words, &self.mappings) };
    }
}

/// For a process that is not recorded; else [`settle`] is called as libraries come and go.
pub(crate) fn init() {
    if let Some(loader) = Loader::find() {
        settle(&loader.modules(&[]), &[]);
    }
}

/// The loader changes its list. What it loads may be, or need, a library of PMDK, and is to find our functions.
pub(crate) fn show() {
    if let Some(exports) = EXPORTS.get() {
        exports.show([true; LIBRARIES.len()]);
    }
}

/// Where another module has a function of that name, as a program does that has PMDK within a library of its own; 0: nowhere.
fn defined_elsewhere(function: &Export, modules: &[Arc<Module>]) -> usize {
    let definition = |module: &Arc<Module>| {
        // SAFETY: the loader has the module mapped; the value of a symbol is a word of it.
        unsafe {
            let mut exports = module.exports();
            let (_, value) = exports.find(|&(name, value)| name == function.name && value != function.symbol)?;
            Some(module.bias.wrapping_add(*(value as *const usize)))
        }
    };
    modules.iter().find_map(definition).unwrap_or(0)
}

/// The loader has loaded these modules, of which some were known before.
pub(crate) fn settle(modules: &[Arc<Module>], known: &[Arc<Module>]) {
    if EXPORTS.get().is_none()
        && let Some(exports) = Exports::read(modules)
    {
        let _ = EXPORTS.set(exports);
    }
    let Some(exports) = EXPORTS.get() else { return };
    let loaded = LIBRARIES.map(|(file, _)| modules.iter().any(|module| module.has_name_in(&[file])));
    exports.show(loaded);
    let files = LIBRARIES.map(|(file, _)| file);
    let is_gone = |module: &Arc<Module>| !modules.iter().any(|other| Arc::ptr_eq(other, module));
    if known.iter().any(|module| module.has_name_in(&files) && is_gone(module)) {
        let found = REAL.iter().chain(&FRAMED_REAL).chain(&FRAMED_END).chain([&USABLE_SIZE]);
        found.for_each(|address| address.store(0, Ordering::Relaxed));
    }
    let hidden = |word: usize| {
        let mut functions = exports.functions.iter();
        functions.find(|function| function.address == word && !loaded[function.library])
    };
    let mut words = Vec::new();
    for module in modules
        .iter()
        .filter(|module| !known.iter().any(|m| Arc::ptr_eq(m, module)))
    {
        // SAFETY: the loader has the module mapped, and what it fills is readable.
        words.extend(unsafe {
            let references = module.weak_references();
            references.filter_map(|word| {
                let function = hidden((word as *const usize).read_volatile())?;
                Some((word, defined_elsewhere(function, modules)))
            })
        });
    }
    words.sort_unstable();
    if !words.is_empty()
        && let Ok(mappings) = patch::mappings()
    {
        // SAFETY: what the loader would have left zero without us; none of the module's code has run.
        let _ = unsafe { patch::write_words(&words, &mappings) };
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_OF_TRANSACTIONS, FRAMED, Framed};
    use crashproof_stacks::Entry;

    #[test]
    fn functions_of_transactions_come_last() {
        let is_of_transaction = |framed: &Framed| framed.name.starts_with("pmemobj_tx_");
        let first = FRAMED.iter().position(is_of_transaction);
        assert_eq!(first, Some(FIRST_OF_TRANSACTIONS));
        assert!(FRAMED[FIRST_OF_TRANSACTIONS..].iter().all(is_of_transaction));
    }

    #[test]
    fn what_persists_has_a_frame() {
        for framed in FRAMED {
            let name = framed.name.trim_end_matches('\0');
            let entry = Entry {
                function: Some(name.to_owned()),
                library: String::new(),
            };
            let allocates = name.ends_with("alloc") || name.ends_with("reserve");
            let is_logged = allocates || name.starts_with("pmemobj_tx_");
            assert_ne!(entry.is_persist_primitive(), is_logged, "{name}");
        }
    }
}
