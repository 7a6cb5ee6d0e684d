//! Sweeps real code, built by the system's compilers and as the system ships it, and runs it with breakpoints in place.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Library, alone, build, module_of, modules};
use crashproof_code::modules::Module;
use crashproof_code::patch::patch;
use crashproof_code::sites::SiteTable;
use crashproof_code::sweep::{Site, SiteKind, Sweep, SweepOptions, sweep_module};

const KINDS: [SiteKind; 7] = [
    SiteKind::Clwb,
    SiteKind::Clflushopt,
    SiteKind::Clflush,
    SiteKind::Sfence,
    SiteKind::Mfence,
    SiteKind::ClientRequest,
    SiteKind::Locked,
];

fn everything() -> SweepOptions {
    SweepOptions {
        client_requests: true,
        locked: true,
        ..SweepOptions::default()
    }
}

/// What the library itself says about its sites.
fn expected(library: &Library) -> BTreeMap<usize, SiteKind> {
    // SAFETY: functions of tests/c/sites.c, which return the bounds of a table of pairs.
    let table = unsafe {
        let bound = |name| std::mem::transmute::<usize, extern "C" fn() -> *const [i32; 2]>(library.symbol(name))();
        let (begin, end) = (bound(c"expected_begin"), bound(c"expected_end"));
        std::slice::from_raw_parts(begin, end.offset_from(begin) as usize)
    };
    let address = |pair: &[i32; 2]| (pair.as_ptr() as usize).wrapping_add_signed(pair[0] as isize);
    table
        .iter()
        .map(|pair| (address(pair), KINDS[pair[1] as usize]))
        .collect()
}

fn found(sweep: &Sweep) -> BTreeMap<usize, SiteKind> {
    sweep.sites.iter().map(|site| (site.address, site.kind)).collect()
}

#[test]
fn every_shape_is_found_and_nothing_else() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    for compiler in ["gcc", "clang-19"] {
        for flags in [
            &["-O0"][..],
            &["-O2"],
            &[
                "-O2",
                "-fomit-frame-pointer",
                "-fno-asynchronous-unwind-tables",
                "-fno-unwind-tables",
            ],
            &["-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-s"],
            &["-O2", "-s"],
        ] {
            let library = Library::load(&build(directory.path(), compiler, flags, "sites.c"));
            let module = module_of(library.symbol(c"run"));
            // SAFETY: loaded.
            let sweep = unsafe { sweep_module(&module, &everything()) };
            let relative = |sites: BTreeMap<usize, SiteKind>| -> BTreeMap<_, _> {
                sites
                    .into_iter()
                    .map(|(address, kind)| (format!("{:#x}", address - module.bias), kind))
                    .collect()
            };
            assert_eq!(
                relative(found(&sweep)),
                relative(expected(&library)),
                "{compiler} {flags:?}"
            );
            assert_eq!(sweep.locked, 3);
            // Of the data between functions, what no symbol declares as data.
            let stripped = flags.contains(&"-s");
            assert_eq!(
                sweep.unverified.len(),
                if stripped { 3 } else { 1 },
                "{compiler} {flags:?}"
            );
        }
    }
}

#[test]
fn the_runtime_itself_is_left_alone() {
    let _alone = alone();
    let module = module_of(the_runtime_itself_is_left_alone as *const () as usize);
    let options = SweepOptions {
        own: module.range.clone(),
        ..everything()
    };
    // SAFETY: the test's own module.
    assert_eq!(unsafe { sweep_module(&module, &options) }, Sweep::default());
}

static SITES: SiteTable = SiteTable::new();
static HITS: [AtomicUsize; 7] = [const { AtomicUsize::new(0) }; 7];

extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's context of this signal.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let address = registers[libc::REG_RIP as usize] as usize - 1;
    let Some(site) = SITES.find(address) else {
        std::process::abort()
    };
    HITS[KINDS.iter().position(|kind| *kind == site.kind).unwrap()].fetch_add(1, Ordering::Relaxed);
    if site.kind == SiteKind::ClientRequest {
        // SAFETY: rax points to the request's arguments.
        registers[libc::REG_RDX as usize] = unsafe { *(registers[libc::REG_RAX as usize] as *const i64) } + 1;
    }
    registers[libc::REG_RIP as usize] = (address + site.length as usize) as i64;
}

#[test]
fn breakpoints_are_hit_and_the_code_runs_on() {
    let _alone = alone();
    // SAFETY: a handler for breakpoints only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()), 0);
    }
    let directory = tempfile::tempdir().unwrap();
    let library = Library::load(&build(directory.path(), "gcc", &["-O2", "-DPATCHED"], "sites.c"));
    // SAFETY: a function of tests/c/sites.c.
    let run = unsafe { std::mem::transmute::<usize, extern "C" fn() -> u64>(library.symbol(c"run")) };
    let natively = run();

    let module = module_of(library.symbol(c"run"));
    let options = SweepOptions {
        client_requests: true,
        ..SweepOptions::default()
    };
    // SAFETY: loaded; the handler is in place and knows the sites.
    unsafe {
        let sweep = sweep_module(&module, &options);
        SITES.insert(&sweep.sites);
        patch(&sweep.sites).unwrap();
        for site in &sweep.sites {
            assert_eq!(*(site.address as *const u8), 0xcc);
        }
    }
    // The client request is answered now; natively it returns zero.
    assert_eq!(run(), natively + 0x1234 + 1);
    let hits = HITS.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert_eq!(hits, [2, 3, 2, 2, 2, 1, 0]);
}

/// What `objdump -d` shows of a library: addresses in the file by kind.
fn disassembled(path: &Path) -> BTreeSet<(usize, SiteKind)> {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let site = |line: &str| {
        let (address, instruction) = line.trim().split_once(":\t")?;
        let mut words = instruction.split_whitespace();
        let kind = loop {
            match words.next()? {
                "cs" | "ds" | "es" | "ss" | "data16" | "rex" => (),
                "clwb" => break SiteKind::Clwb,
                "clflushopt" => break SiteKind::Clflushopt,
                "clflush" => break SiteKind::Clflush,
                "sfence" => break SiteKind::Sfence,
                "mfence" => break SiteKind::Mfence,
                _ => return None,
            }
        };
        Some((usize::from_str_radix(address, 16).ok()?, kind))
    };
    text.lines().filter_map(site).collect()
}

fn shipped(name: &str) -> Arc<Module> {
    Library::load(Path::new(name));
    let of_name = |path: &Path| {
        path.file_name()
            .is_some_and(|file| file.to_str().unwrap().starts_with(name))
    };
    let module = modules()
        .into_iter()
        .find(|module| module.path.as_deref().is_some_and(of_name));
    module.unwrap()
}

#[test]
fn shipped_libraries_hold_what_objdump_shows() {
    let _alone = alone();
    let libraries = [
        ("libpmem.so.1", 1000),
        ("libpmemobj.so.1", 0),
        ("libc.so.6", 5),
        ("libm.so.6", 0),
    ];
    for (name, least) in libraries {
        let module = shipped(name);
        let options = SweepOptions {
            client_requests: true,
            ..SweepOptions::default()
        };
        // SAFETY: loaded.
        let sweep = unsafe { sweep_module(&module, &options) };
        let sites = sweep.sites.iter().map(|site| (site.address - module.bias, site.kind));
        let (requests, sites): (BTreeSet<_>, BTreeSet<_>) =
            sites.partition(|(_, kind)| *kind == SiteKind::ClientRequest);
        assert_eq!(sites, disassembled(module.path.as_deref().unwrap()), "{name}");
        assert!(sites.len() >= least, "{name}: {}", sites.len());
        assert_eq!(sweep.unverified, Vec::<usize>::new(), "{name}");
        assert_eq!(!requests.is_empty(), name.starts_with("libpmem"), "{name}");
    }
}

#[test]
fn original_bytes_are_kept() {
    let _alone = alone();
    let module = shipped("libc.so.6");
    // SAFETY: libc stays loaded and nobody patches it.
    let sweep = unsafe { sweep_module(&module, &everything()) };
    let same = |site: &Site| {
        // SAFETY: as above.
        let code = unsafe { std::slice::from_raw_parts(site.address as *const u8, site.length as usize) };
        code == site.bytes()
    };
    assert!(sweep.sites.len() > 100 && sweep.sites.iter().all(same));
}
