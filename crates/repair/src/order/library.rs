//! What the table of library functions says of those that are in the way of a move.

use crashproof_library::{self as table, Effect, Extent};

/// What a function of PMDK copies or fills; indices are of its arguments.
pub(super) struct Copying {
    pub destination: usize,
    pub source: Option<usize>,
    pub size: usize,
    /// It waits for what was flushed, or may.
    pub fences: bool,
    /// Where flags say how it does that.
    pub flags: Option<usize>,
}

/// Of PMDK's functions that write a range and flush it: `pmem_memcpy_persist`, `pmemobj_memset` and their like.
pub(super) fn copying(name: &str) -> Option<Copying> {
    let effects = table::effects(name).filter(|_| table::is_pmdk(name))?;
    let (destination, source, size) = effects.iter().find_map(|effect| match *effect {
        Effect::Copies {
            to,
            from,
            extent: Extent::Argument(size),
        } => Some((to, Some(from as usize), size)),
        Effect::Fills {
            to,
            extent: Extent::Argument(size),
            ..
        } => Some((to, None, size)),
        _ => None,
    })?;
    let flags = effects.iter().find_map(|effect| match *effect {
        Effect::TakesFlags(index) => Some(index as usize),
        _ => None,
    });
    Some(Copying {
        destination: destination as usize,
        source,
        size: size as usize,
        fences: flags.is_some() || effects.contains(&Effect::Fences),
        flags,
    })
}

/// What a function of a library is to a move of what is around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It flushes, fences, or both, and does nothing else.
    Persists {
        flushes: bool,
        fences: bool,
    },
    /// It only reads what it is given.
    Reads,
    /// It reads a text by a format, and stores what that says where its arguments from this one on point to.
    Scans(usize),
    /// It draws a random number.
    Draws,
    /// It only returns something: new memory, or what it has computed.
    Returns,
    /// It tells the outside something.
    Outputs,
    Other,
}

pub(super) fn role(name: &str) -> Role {
    let Some(effects) = table::effects(name) else {
        return Role::Other;
    };
    let all = |is: fn(&Effect) -> bool| !effects.is_empty() && effects.iter().all(is);
    let has = |effect| effects.contains(&effect);
    let scans = effects.iter().find_map(|effect| match *effect {
        Effect::Scans(from) => Some(from as usize),
        _ => None,
    });
    match scans {
        Some(from) => Role::Scans(from),
        _ if has(Effect::Outputs) => Role::Outputs,
        _ if has(Effect::Draws) => Role::Draws,
        // One that persists a range may fence or not: nothing is moved past it.
        _ if table::only_persists(name) && !effects.iter().any(|effect| matches!(effect, Effect::Persists { .. })) => {
            Role::Persists {
                flushes: effects.iter().any(|effect| matches!(effect, Effect::Flushes { .. })),
                fences: has(Effect::Fences),
            }
        }
        _ if all(|effect| matches!(effect, Effect::ReturnsNew(extent) if *extent != Extent::Unknown)) => Role::Returns,
        _ if all(|effect| matches!(effect, Effect::DependsOnAll)) => Role::Returns,
        _ if all(|effect| effect.is_read() || matches!(effect, Effect::ReturnsInside(_) | Effect::DependsOn(_))) => {
            Role::Reads
        }
        _ => Role::Other,
    }
}

/// Flags of the copying functions: `PMEM_F_MEM_NODRAIN` and `PMEM_F_MEM_NOFLUSH`, which libpmemobj gives the same values.
pub(super) const NOT_WAITING: u64 = 1 << 0 | 1 << 5;

/// Instructions that compute in registers, or wait, when they have no operand in memory.
pub(super) const REGISTERS: [&str; 16] = [
    "rdtsc", "rdtscp", "pause", "nop", "bsf", "bsfl", "bsfq", "bsr", "bsrl", "bsrq", "bswap", "lzcnt", "tzcnt",
    "popcnt", "lzcntq", "tzcntq",
];

/// Functions of the header that a repair adds (`crashproof_pm.h`): which instruction they flush with, they ask once.
pub(super) const OWN: [&str; 3] = ["crashproof_flush", "crashproof_fence", "crashproof_persist"];

/// Intrinsics that touch no memory, by their beginnings.
pub(super) const COMPUTING: [&str; 24] = [
    "llvm.abs.",
    "llvm.annotation",
    "llvm.assume",
    "llvm.bitreverse.",
    "llvm.bswap.",
    "llvm.ceil.",
    "llvm.ctlz.",
    "llvm.ctpop.",
    "llvm.cttz.",
    "llvm.dbg.",
    "llvm.expect.",
    "llvm.fabs.",
    "llvm.floor.",
    "llvm.fmuladd.",
    "llvm.fshl.",
    "llvm.fshr.",
    "llvm.is.constant.",
    "llvm.lifetime.",
    "llvm.objectsize.",
    "llvm.ptrmask.",
    "llvm.smax.",
    "llvm.smin.",
    "llvm.umax.",
    "llvm.umin.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles() {
        let persists = |flushes, fences| Role::Persists { flushes, fences };
        let expected = [
            ("pmem_persist", persists(true, true)),
            ("pmem_flush", persists(true, false)),
            ("pmem_deep_flush", persists(true, false)),
            ("pmemobj_drain", persists(false, true)),
            ("pmemobj_xpersist", persists(true, true)),
            // It is not known whether they fence.
            ("pmem_deep_persist", Role::Other),
            ("pmem_msync", Role::Other),
            ("strlen", Role::Reads),
            ("strchr", Role::Reads),
            ("__isoc99_sscanf", Role::Scans(2)),
            ("fscanf", Role::Other),
            ("rand", Role::Draws),
            ("malloc", Role::Returns),
            ("getpid", Role::Returns),
            ("sqrt", Role::Returns),
            // It may throw.
            ("_Znwm", Role::Other),
            ("strdup", Role::Other),
            // It makes a stream, not only memory.
            ("fopen", Role::Other),
            ("__printf_chk", Role::Outputs),
            ("write", Role::Outputs),
            ("memcpy", Role::Other),
            ("rename", Role::Other),
            ("mine", Role::Other),
        ];
        for (name, expected) in expected {
            assert_eq!(role(name), expected, "{name}");
        }
    }

    #[test]
    fn copying_functions_have_their_flags_last() {
        let of =
            |name: &str| copying(name).map(|copy| (copy.destination, copy.source, copy.size, copy.fences, copy.flags));
        assert_eq!(of("pmem_memcpy_persist"), Some((0, Some(1), 2, true, None)));
        assert_eq!(of("pmem_memset_nodrain"), Some((0, None, 2, false, None)));
        assert_eq!(of("pmemobj_memmove"), Some((1, Some(2), 3, true, Some(4))));
        assert_eq!(of("memcpy"), None);
        assert_eq!(of("pmem_persist"), None);
    }
}
