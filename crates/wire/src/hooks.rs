//! The narrow waist between code built by `crashproof cc` and the runtime: the list of the runtime's functions that such
//! code calls, which the compiler and the runtime share.
//!
//! Every linked module (executable or shared library) has one word, [`SLOT`]. The runtime finds it by a note ([`NOTE_NAME`])
//! and puts the address of its [`Hooks`] there before the module's code runs. Without a runtime, or in one that does not
//! record, the word stays null.
//!
//! The module reaches a hook through a few instructions of its own (a *gate*, [`Hook::gate`]): they return 0 if the word is
//! null, else jump to the hook. Arguments are in rdi, rsi, rdx and rcx and the result in rax; a hook keeps every other
//! general register but r11 (LLVM's `preserve_mostcc`), so that a site costs its function next to nothing. A hook finds its
//! caller by the return address on top of the stack and by rbp.
//!
//! **A result of 0 always means: not done.** The site then executes the original instruction, which faults or hits a
//! breakpoint and is recorded as in unmodified code. So a hook may decline whatever is unusual; nothing is lost.
//!
//! A locked instruction on ordinary memory is a fence, too, and has neither fault nor breakpoint. Such instructions are many, and hardly any
//! comes between a flush and its fence: before each, the code looks at [`Hooks::pending`] and calls [`Hook::Fence`] only if it is not 0.

use core::mem::offset_of;
use core::sync::atomic::AtomicU32;

/// Changes with every change of the hooks; the runtime leaves modules of another version alone.
pub const VERSION: u32 = 2;

/// The word of each linked module that points to the runtime's [`Hooks`].
pub const SLOT: &str = "__crashproof_hooks";

/// Name of the note, type [`VERSION`]. Its description is the distance from itself to the slot, 8 bytes.
pub const NOTE_NAME: &str = "crashproof";

/// The addresses at which the runtime maps PM: those whose bits from [`VIEW_SHIFT`] up are [`VIEW_PREFIX`]. Instrumented code
/// knows PM by this alone. PM elsewhere (the program asked for an address of its own) is recorded by faults.
pub const VIEWS: (u64, u64) = (VIEW_PREFIX << VIEW_SHIFT, (VIEW_PREFIX + 1) << VIEW_SHIFT);
pub const VIEW_SHIFT: u32 = 43;
pub const VIEW_PREFIX: u64 = 4;

/// A list of the runtime's functions and the table of their addresses, from one text.
macro_rules! table {
    (
        $(#[doc = $list_doc:literal])* enum $List:ident;
        $(#[doc = $table_doc:literal])* struct $Table:ident { $($(#[doc = $extra_doc:literal])* $extra:ident: $Extra:ty,)* }
        $($(#[doc = $doc:literal])* $name:ident $field:ident $gate:literal)*
    ) => {
        $(#[doc = $list_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $List {
            $($(#[doc = $doc])* $name,)*
        }

        impl $List {
            pub const ALL: &[$List] = &[$($List::$name,)*];

            /// The symbol of its gate.
            pub const fn gate(self) -> &'static str {
                match self {
                    $($List::$name => $gate,)*
                }
            }

            /// Where it is in the table.
            pub const fn offset(self) -> usize {
                self as usize * size_of::<unsafe extern "C" fn()>()
            }
        }

        $(#[doc = $table_doc])*
        #[repr(C)]
        pub struct $Table {
            $($(#[doc = $doc])* pub $field: unsafe extern "C" fn(),)*
            $($(#[doc = $extra_doc])* pub $extra: $Extra,)*
        }
    };
}
pub(crate) use table;

table! {
    enum Hook;
    /// The runtime's table. The types are not those of the functions, whose calling convention Rust has no name for.
    struct Hooks {
        /// How many threads have flushed, or stored past the cache, since they last fenced. More than there are does no harm.
        pending: AtomicU32,
    }
    /// (address, value, [`what`]): stores the low bytes of the value.
    Store store "__crashproof_store"
    /// (address, length): takes the locks of the lines and returns the distance to the alias, on which the caller executes one
    /// instruction and then calls [`Hook::End`].
    Begin begin "__crashproof_begin"
    /// (address, length, [`what`], lanes): logs what the instruction wrote: those elements, of the size in `what`, whose bit is set in
    /// `lanes`. Releases the locks.
    End end "__crashproof_end"
    /// (to, from, length): as memmove.
    Copy copy "__crashproof_copy"
    /// (to, byte, length): as memset.
    Fill fill "__crashproof_fill"
    /// (address, `FLUSH_*`)
    Flush flush "__crashproof_flush"
    /// (`FENCE_*`): a locked instruction may be left out of the trace if its thread has nothing to fence.
    Fence fence "__crashproof_fence"
}

/// Where the code finds [`Hooks::pending`].
pub const PENDING_OFFSET: usize = offset_of!(Hooks, pending);

/// Size of a store (or of an element of one) and its `STORE_*` flags, in one argument.
pub const fn what(size: u64, flags: u8) -> u64 {
    size | (flags as u64) << 32
}

pub const fn what_size(what: u64) -> u64 {
    what & 0xffff_ffff
}

pub const fn what_flags(what: u64) -> u8 {
    (what >> 32) as u8
}
