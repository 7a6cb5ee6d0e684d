//! What a command of the user's may do in the sandbox, when it runs as root.
//!
//! It keeps the capabilities that a recovery can need for its own files, users and ports. Those with which it could reach the
//! machine (mounts, devices, modules, the clock, the host's name, other roots than its own) are gone, for its children, too.
//!
//! Key rings belong to a user, not to a namespace, and need no capability: a new session ring would still leave those of the user
//! in reach. So the system calls for them fail, for whoever is not root as well, as in a kernel that has none.

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
pub(super) fn drop_rights() -> bool {
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
        dropped & (libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) && refuse_keys()
    }
}

/// From `linux/audit.h`: which numbers a system call has.
const ARCH_X86_64: u32 = 0xc000_003e;
const ARCH_I386: u32 = 0x4000_0003;
/// In a number: a call of the x32 interface, by the same table.
const X32: u32 = 0x4000_0000;
/// `add_key`, `request_key` and `keyctl`, in this order.
const KEYS: [u32; 2] = [libc::SYS_add_key as u32, libc::SYS_keyctl as u32];
const KEYS_I386: [u32; 2] = [286, 288];

/// The system calls for keys fail with ENOSYS from now on. A kernel without filters cannot tell, so that is no failure.
fn refuse_keys() -> bool {
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let answer = |value| statement(libc::BPF_RET | libc::BPF_K, value);
    // `offset_of!(seccomp_data, nr)` is 0, that of `arch` 4. Jumps count instructions that are left out.
    let mut filter = [
        load(4),
        jump(libc::BPF_JEQ, ARCH_I386, 5, 0),
        jump(libc::BPF_JEQ, ARCH_X86_64, 0, 7),
        load(0),
        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, !X32),
        jump(libc::BPF_JGE, KEYS[0], 0, 4),
        jump(libc::BPF_JGT, KEYS[1], 3, 4),
        load(0),
        jump(libc::BPF_JGE, KEYS_I386[0], 0, 1),
        jump(libc::BPF_JGT, KEYS_I386[1], 0, 1),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which is there until the call returns.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
            0,
            0,
        )
    };
    // SAFETY: errno of this thread.
    set == 0 || unsafe { *libc::__errno_location() } == libc::EINVAL
}

fn statement(code: u32, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k: value,
    }
}

fn jump(condition: u32, value: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: (libc::BPF_JMP | condition | libc::BPF_K) as u16,
        jt,
        jf,
        k: value,
    }
}
