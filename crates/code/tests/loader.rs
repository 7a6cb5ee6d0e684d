//! A breakpoint on the loader's notification function sees libraries come and go, before their constructors run.

mod common;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;

use common::build;
use crashproof_code::modules::{Loader, LoaderState};
use crashproof_code::patch::patch;
use crashproof_code::sites::SiteTable;
use crashproof_code::sweep::{Site, SiteKind};

#[derive(Debug, PartialEq)]
enum Stop {
    /// The loader's notification, with whether the library is in the list.
    Loader(LoaderState, bool),
    Constructor,
}

static SITES: SiteTable = SiteTable::new();
static STOPS: Mutex<Vec<Stop>> = Mutex::new(Vec::new());

fn is_listed() -> bool {
    let is_ours = |path: &std::path::PathBuf| path.as_os_str().as_bytes().ends_with(b"-DLATE.so");
    Loader::find()
        .unwrap()
        .modules(&[])
        .iter()
        .any(|module| module.path.as_ref().is_some_and(is_ours))
}

extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's context of this signal.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let address = registers[libc::REG_RIP as usize] as usize - 1;
    let Some(site) = SITES.find(address) else {
        STOPS.lock().unwrap().push(Stop::Constructor);
        return;
    };
    if site.original[0] == 0xc3 {
        // SAFETY: performs the return that the breakpoint replaces.
        registers[libc::REG_RIP as usize] = unsafe { *(registers[libc::REG_RSP as usize] as *const i64) };
        registers[libc::REG_RSP as usize] += 8;
    } else {
        // endbr64
        registers[libc::REG_RIP as usize] = address as i64 + 4;
    }
    STOPS
        .lock()
        .unwrap()
        .push(Stop::Loader(Loader::find().unwrap().state(), is_listed()));
}

#[test]
fn libraries_are_seen_before_their_constructors() {
    let directory = tempfile::tempdir().unwrap();
    let path = build(directory.path(), "gcc", &["-DLATE"], "constructor.c");
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let loader = Loader::find().unwrap();
    let address = loader.r_brk();
    // SAFETY: the first instruction of a function; the handler knows it.
    unsafe {
        let mut original = [0; 15];
        original[0] = *(address as *const u8);
        let site = Site {
            address,
            kind: SiteKind::Locked,
            length: 1,
            original,
            copy: 0,
        };
        assert!(matches!(site.original[0], 0xc3 | 0xf3));
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()), 0);
        SITES.insert(std::slice::from_ref(&site));
        patch(&[site]).unwrap();
    }

    // SAFETY: loads a library of the test.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    use LoaderState::*;
    // While the loader adds or removes it, it may or may not be listed.
    let added = std::mem::take(&mut *STOPS.lock().unwrap());
    assert!(
        matches!(
            added[..],
            [
                Stop::Loader(Adding, _),
                Stop::Loader(Consistent, true),
                Stop::Constructor
            ]
        ),
        "{added:?}"
    );

    // SAFETY: nothing of it is in use.
    unsafe { libc::dlclose(library) };
    let removed = std::mem::take(&mut *STOPS.lock().unwrap());
    assert!(
        matches!(
            removed[..],
            [Stop::Loader(Removing, _), Stop::Loader(Consistent, false)]
        ),
        "{removed:?}"
    );

    // A library in a namespace of its own is listed too, and so is the C library that came with it.
    let count = |name: &[u8]| {
        let has_name = |path: &std::path::PathBuf| path.as_os_str().as_bytes().ends_with(name);
        loader
            .modules(&[])
            .iter()
            .filter(|module| module.path.as_ref().is_some_and(has_name))
            .count()
    };
    assert_eq!(count(b"/libc.so.6"), 1);
    // SAFETY: loads a library of the test.
    assert!(!unsafe { libc::dlmopen(libc::LM_ID_NEWLM, path.as_ptr(), libc::RTLD_NOW) }.is_null());
    assert_eq!((count(b"/libc.so.6"), is_listed()), (2, true));
    let stops = STOPS.lock().unwrap();
    assert_eq!(
        stops[stops.len() - 2..],
        [Stop::Loader(Consistent, true), Stop::Constructor]
    );
}
