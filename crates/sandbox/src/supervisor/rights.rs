//! What a command of the user's may do in the sandbox, when it runs as root.
//!
//! It keeps the capabilities that a recovery can need for its own files, users and ports. Those with which it could reach the
//! machine (mounts, devices, modules, the clock, the host's name, other roots than its own) are gone, for its children, too.

/// From `linux/capability.h`.
const CHOWN: u32 = 0;
const DAC_OVERRIDE: u32 = 1;
const FOWNER: u32 = 3;
const FSETID: u32 = 4;
const KILL: u32 = 5;
const SETGID: u32 = 6;
const SETUID: u32 = 7;
const NET_BIND_SERVICE: u32 = 10;
const IPC_LOCK: u32 = 14;
const IPC_OWNER: u32 = 15;
/// `su` fails without it where the kernel has auditing.
const AUDIT_WRITE: u32 = 29;

/// What stays. Not DAC_READ_SEARCH, which opens files by handle past the sandbox's root; not SYS_CHROOT, with which a process leaves
/// a chroot.
const KEPT: [u32; 11] = [
    CHOWN,
    DAC_OVERRIDE,
    FOWNER,
    FSETID,
    KILL,
    SETGID,
    SETUID,
    NET_BIND_SERVICE,
    IPC_LOCK,
    IPC_OWNER,
    AUDIT_WRITE,
];

#[repr(C)]
struct Header {
    version: u32,
    process: i32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// For the program that this process is about to execute, and all that come from it. Only makes system calls.
///
/// False: a capability could not be dropped.
pub fn drop_rights() -> bool {
    // SAFETY: these calls change attributes of this process; capget and capset read and write a header and two sets of three words, as
    // version 3 has.
    unsafe {
        let mut dropped = true;
        // Reading a capability that the kernel does not know fails.
        for capability in (0..).take_while(|&number| libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) >= 0) {
            if !KEPT.contains(&capability) && libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) == 1 {
                dropped &= libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) == 0;
            }
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        let mut header = Header {
            version: VERSION,
            process: 0,
        };
        let mut sets = [[0u32; 3]; 2];
        if libc::syscall(libc::SYS_capget, &mut header, sets.as_mut_ptr()) == 0 {
            // Effective and permitted ones end with execve(2); inheritable ones would not.
            sets.iter_mut().for_each(|set| set[2] = 0);
            libc::syscall(libc::SYS_capset, &mut header, sets.as_ptr());
        }
        dropped & (libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
    }
}
