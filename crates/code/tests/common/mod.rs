//! Builds C and C++ sources with the compilers of the system and loads them into the test process.

// Not every test uses all of it.
#![allow(dead_code)]

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crashproof_code::modules::{Loader, Module};

pub(crate) fn build(directory: &Path, compiler: &str, flags: &[&str], source: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let output = directory.join(format!("{}{}.so", compiler, flags.concat().replace('/', "")));
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-g", "-Wall", "-o"])
        .arg(&output)
        .args(flags)
        .arg(&source)
        .status()
        .unwrap_or_else(|error| panic!("cannot run {compiler}: {error}"));
    assert!(status.success(), "{compiler} {flags:?} {}", source.display());
    output
}

pub(crate) struct Library(*mut c_void);

impl Library {
    pub(crate) fn load(path: &Path) -> Library {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library of the test or of the system.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) };
        assert!(!handle.is_null(), "cannot load {}", path.display());
        Library(handle)
    }

    pub(crate) fn symbol(&self, name: &CStr) -> usize {
        // SAFETY: the library is loaded.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) } as usize;
        assert_ne!(symbol, 0, "{name:?}");
        symbol
    }
}

/// Every loaded module. The caller is [`alone`].
pub(crate) fn modules() -> Vec<Arc<Module>> {
    Loader::find().unwrap().modules(&[])
}

pub(crate) fn module_of(address: usize) -> Arc<Module> {
    modules()
        .into_iter()
        .find(|module| module.range.contains(&address))
        .unwrap()
}

/// One test at a time loads libraries and walks the loader's list. A test that failed does not spoil the others.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static LOADING: Mutex<()> = Mutex::new(());
    LOADING.lock().unwrap_or_else(PoisonError::into_inner)
}
