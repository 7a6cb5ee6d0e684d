//! What a program offers to do once in the fork server, and not again in each copy: a function that it shows with a [`Prepare`] in its
//! writable data. `crashproof_driver.h` has one that reads the file of operations.

use crashproof_wire::recovery::{PREPARE_ALIGN, PREPARE_MAGIC, Prepare};
use libc::{c_char, c_int, c_void, dl_phdr_info, size_t};

pub(super) type Function = extern "C-unwind" fn(c_int, *mut *mut c_char);

/// The program's function, if it has one.
pub(super) fn find() -> Option<Function> {
    let mut found = 0usize;
    // SAFETY: the loader calls `look_at` with valid structures before it returns, and with the pointer to `found`.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut found).cast()) };
    // SAFETY: an address in the program's code, given as that of a function of this type.
    (found != 0).then(|| unsafe { std::mem::transmute::<usize, Function>(found) })
}

/// Of the first module, which is the program.
unsafe extern "C" fn look_at(info: *mut dl_phdr_info, _size: size_t, found: *mut c_void) -> c_int {
    // SAFETY: the loader's structure; its segments are mapped where it says, writable ones are readable too (RELRO only takes the right to
    // write away), and a `Prepare` is read only where one fits.
    unsafe {
        let info = &*info;
        let segments = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
        let loaded = || segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD);
        let start = |segment: &libc::Elf64_Phdr| info.dlpi_addr as usize + segment.p_vaddr as usize;
        for segment in loaded().filter(|segment| segment.p_flags & libc::PF_W != 0) {
            let mut at = start(segment).next_multiple_of(PREPARE_ALIGN);
            let end = start(segment) + segment.p_filesz as usize;
            while at + size_of::<Prepare>() <= end {
                let prepare = &*(at as *const Prepare);
                let is_code = |segment: &libc::Elf64_Phdr| {
                    let range = start(segment)..start(segment) + segment.p_memsz as usize;
                    segment.p_flags & libc::PF_X != 0 && range.contains(&prepare.function)
                };
                if prepare.magic == PREPARE_MAGIC && loaded().any(is_code) {
                    *found.cast::<usize>() = prepare.function;
                    return 1;
                }
                at += PREPARE_ALIGN;
            }
        }
    }
    1
}
