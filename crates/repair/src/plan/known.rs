//! Library functions that need no bitcode, because what they write is known.
//!
//! A persistent subprogram (section 4.2.4) has to flush whatever it writes. The paper does not say what happens to callees without
//! bitcode; here such a callee is in the table of library functions, or the candidate is out.

use crashproof_library::{self as library, Extent};

/// What a call does to memory that its caller passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that the caller would have to flush: it writes only memory of its own, or makes durable what it writes.
    Nothing,
    /// A range that starts at an argument.
    Writes(Written),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Index of the argument that points to the first byte.
    pub destination: u32,
    pub length: Length,
}

/// How much of a range a call has written, when it has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As much as this argument says.
    Argument(u32),
    /// The string at the destination, with its zero.
    String,
    /// What `snprintf` returned, and the zero, but no more than the argument says; nothing if that is 0.
    Printed { size: u32 },
    /// As many bytes as it returned, if that is positive.
    Returned,
    /// Always so many bytes: of an intrinsic of the compiler's headers.
    Constant(u64),
}

/// Of a library function or memory intrinsic, by its linkage name; `None` if nothing is known of it.
pub fn effect(name: &str) -> Option<Effect> {
    if let Some(written) = written(name) {
        let effects = library::effects(name)?;
        let is_all = !effects.iter().any(library::Effect::writes_elsewhere);
        return is_all.then_some(Effect::Writes(written));
    }
    // PMDK makes durable what it writes on its own account, or asks for a drain.
    if INTRINSICS.binary_search(&name).is_ok() || name.starts_with("llvm.va_") || library::is_pmdk(name) {
        return Some(Effect::Nothing);
    }
    let writes = |effect: &library::Effect| effect.destination().is_some() || effect.writes_elsewhere();
    (!library::effects(name)?.iter().any(writes)).then_some(Effect::Nothing)
}

/// Of a library function or memory intrinsic that writes a range which it is given, and leaves it to its caller to flush that.
pub fn written(name: &str) -> Option<Written> {
    let effect = library::written(name)?;
    let length = match *effect {
        library::Effect::Copies { extent, .. }
        | library::Effect::Fills { extent, .. }
        | library::Effect::Writes(_, extent) => match extent {
            Extent::Argument(index) => Length::Argument(index),
            Extent::Returned { .. } => Length::Returned,
            _ => return None,
        },
        library::Effect::CopiesText { padded_to, .. } => padded_to.map_or(Length::String, Length::Argument),
        library::Effect::AppendsText { .. } => Length::String,
        library::Effect::Prints { room, .. } => room.map_or(Length::String, |size| Length::Printed { size }),
        _ => return None,
    };
    Some(Written {
        destination: effect.destination()?,
        length,
    })
}

/// Library functions that fence before they return, whatever happens.
pub fn fences(name: &str) -> bool {
    library::effects(name).is_some_and(|effects| effects.contains(&library::Effect::Fences))
}

/// Intrinsics of the compiler. Sorted.
#[rustfmt::skip]
const INTRINSICS: [&str; 22] = [
    "llvm.assume", "llvm.debugtrap", "llvm.eh.typeid.for", "llvm.eh.typeid.for.p0", "llvm.expect.i64",
    "llvm.frameaddress.p0", "llvm.lifetime.end.p0", "llvm.lifetime.start.p0", "llvm.prefetch.p0",
    "llvm.readcyclecounter", "llvm.returnaddress", "llvm.stackrestore.p0", "llvm.stacksave.p0",
    "llvm.threadlocal.address.p0", "llvm.trap", "llvm.x86.clflushopt", "llvm.x86.clwb", "llvm.x86.sse.sfence",
    "llvm.x86.sse2.clflush", "llvm.x86.sse2.lfence", "llvm.x86.sse2.mfence", "llvm.x86.sse2.pause",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(INTRINSICS.is_sorted());
    }

    #[test]
    fn what_is_written_in_all_its_names() {
        let argument = Some((0, Length::Argument(2)));
        let expected = [
            ("memcpy", argument),
            ("llvm.memcpy.p0.p0.i64", argument),
            ("__memmove_chk", argument),
            ("llvm.memset.p0.i64", argument),
            ("strncpy", argument),
            ("bcopy", Some((1, Length::Argument(2)))),
            ("strcat", Some((0, Length::String))),
            ("__snprintf_chk", Some((0, Length::Printed { size: 1 }))),
            ("recvfrom", Some((1, Length::Returned))),
            ("memcpy2", None),
            ("llvm.memcpy.element.unordered.atomic.p0.p0.i64", None),
            ("llvm.sqrt.f64", None),
            ("memchr", None),
            ("memccpy", None),
            ("pmem_memcpy", None),
        ];
        for (name, range) in expected {
            let expected = range.map(|(destination, length)| Written { destination, length });
            assert_eq!(written(name), expected, "{name}");
        }
    }

    #[test]
    fn a_function_does_nothing_if_all_that_it_writes_is_its_own() {
        for name in [
            "strlen",
            "fopen",
            "llvm.va_start",
            "llvm.trap",
            "pmemobj_tx_commit",
            "_ZNSolsEi",
            "rename",
        ] {
            assert_eq!(effect(name), Some(Effect::Nothing), "{name}");
        }
        for name in [
            "qsort", "strtol", "recvfrom", "stat", "fgets", "sscanf", "memccpy", "mine",
        ] {
            assert_eq!(effect(name), None, "{name}");
        }
    }

    #[test]
    fn fences_are_those_that_wait_for_everything() {
        for name in [
            "pmem_drain",
            "pmem_persist",
            "pmemobj_memset_persist",
            "pmemobj_xpersist",
        ] {
            assert!(fences(name), "{name}");
        }
        for name in [
            "pmem_flush",
            "pmem_msync",
            "pmem_deep_persist",
            "pmemobj_tx_commit",
            "pmem_memcpy",
            "msync",
        ] {
            assert!(!fences(name), "{name}");
        }
    }
}
