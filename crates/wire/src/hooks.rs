//! The narrow waist between code built by `crashproof cc` and the runtime: the list of the runtime's
//! functions that such code calls, which the compiler and the runtime share.
//!
//! Every linked module (executable or shared library) has one word, [`SLOT`]. The runtime finds it by a note
//! ([`NOTE_NAME`]) and puts the address of its [`Hooks`] there before the module's code runs. Without a
//! runtime, or if the runtime does not record, the word stays null.
//!
//! The module reaches a hook through a few instructions of its own (a *gate*, [`Hook::gate`]). They return 0
//! if the word is null, and jump to the hook otherwise. Arguments are in rdi, rsi, rdx and rcx, and the
//! result is in rax. A hook preserves every general register but rax and r11 (LLVM's `preserve_mostcc`), so
//! that a site hardly changes the code around it. A hook finds its caller by the return address on top of the
//! stack and by rbp.
//!
//! **A result of 0 always means that the hook has declined.** The site then executes the original
//! instruction, which faults or hits a breakpoint and is recorded as in unmodified code. A hook may therefore
//! decline any unusual case, and no event is lost.
//!
//! A locked instruction on ordinary memory is a fence too, and neither faults nor has a breakpoint. Such
//! instructions are frequent, and hardly any comes between a flush and its fence. Before each, the code
//! therefore reads [`Hooks::pending`], and calls [`Hook::Fence`] only if it is not 0.

use core::mem::offset_of;
use core::sync::atomic::AtomicU32;

/// Version of the hooks. It changes with every change of the list; the runtime ignores modules of another
/// version.
pub const VERSION: u32 = 2;

/// Symbol of the word in each linked module that points to the runtime's [`Hooks`].
pub const SLOT: &str = "__crashproof_hooks";

/// Name of the note by which the runtime finds the slot. The note's type is [`VERSION`]; its description is
/// the signed distance in bytes from the description to the slot, 8 bytes long.
pub const NOTE_NAME: &str = "crashproof";

/// Begin and end of the addresses at which the runtime maps PM. They are the addresses whose bits from
/// [`VIEW_SHIFT`] up are [`VIEW_PREFIX`], and instrumented code recognises PM by these bits alone. PM at
/// other addresses, which the program asked for, is recorded by faults.
pub const VIEWS: (u64, u64) = (VIEW_PREFIX << VIEW_SHIFT, (VIEW_PREFIX + 1) << VIEW_SHIFT);
/// Number of the lowest bit of an address that distinguishes [`VIEWS`] from other addresses.
pub const VIEW_SHIFT: u32 = 43;
/// Value of the bits from [`VIEW_SHIFT`] up in an address of [`VIEWS`].
pub const VIEW_PREFIX: u64 = 4;

/// Defines a list of the runtime's functions and the table of their addresses.
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
            /// All functions of the list, in the order of the table.
            pub const ALL: &[$List] = &[$($List::$name,)*];

            /// The symbol of the function's gate.
            pub const fn gate(self) -> &'static str {
                match self {
                    $($List::$name => $gate,)*
                }
            }

            /// The function's offset in the table, in bytes.
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
    /// A function of the runtime that instrumented code calls.
    enum Hook;
    /// The runtime's table of its hooks. Rust has no name for the calling convention of the hooks, so the
    /// types of the fields only have the right size.
    struct Hooks {
        /// Number of threads that have flushed, or stored past the cache, since their last fence. It may be
        /// too high, which costs time only.
        pending: AtomicU32,
    }
    /// (address, value, [`what`]): stores the low bytes of the value and logs the store.
    Store store "__crashproof_store"
    /// (address, length in bytes): takes the locks of the lines and returns the distance from the view to the
    /// alias. The caller executes one instruction on the alias, and then calls [`Hook::End`].
    Begin begin "__crashproof_begin"
    /// (address, length in bytes, [`what`], lanes): logs the elements that the instruction wrote, and
    /// releases the locks. The elements have the size in `what`; those were written whose bit is set in
    /// `lanes`.
    End end "__crashproof_end"
    /// (to, from, length in bytes): copies as memmove does and logs the stores.
    Copy copy "__crashproof_copy"
    /// (to, byte, length in bytes): fills as memset does and logs the stores.
    Fill fill "__crashproof_fill"
    /// (address, `FLUSH_*`): logs a flush of the line that holds the address.
    Flush flush "__crashproof_flush"
    /// (`FENCE_*`): logs a fence. The runtime logs no locked instruction of a thread that has nothing to fence.
    Fence fence "__crashproof_fence"
}

/// Offset of [`Hooks::pending`] in the table, in bytes.
pub const PENDING_OFFSET: usize = offset_of!(Hooks, pending);

/// An argument that holds the size in bytes of a store (or of an element of one) and its `STORE_*` flags.
pub const fn what(size: u64, flags: u8) -> u64 {
    size | (flags as u64) << 32
}

/// The size in an argument that [`what`] made.
pub const fn what_size(what: u64) -> u64 {
    what & 0xffff_ffff
}

/// The `STORE_*` flags in an argument that [`what`] made.
pub const fn what_flags(what: u64) -> u8 {
    (what >> 32) as u8
}
